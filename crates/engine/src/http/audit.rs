//! The route of the audit log.

use stepwell_protocol::Code;

use super::{error::Refusal, front::Front, request::pairs, response::Response};
use crate::calls::catalog::Request;

/// How many lines of the audit log a page has.
const AUDIT_LINES: u32 = 100;

/// `GET /api/audit`
pub(super) async fn show(front: &Front, query: &str) -> Result<Response, Refusal> {
    let below = match pairs(query).find(|(name, _)| name == "before") {
        Some((_, text)) => text.parse().ok().filter(|below| *below <= 1 << 53).ok_or_else(|| {
            Refusal::new(Code::InvalidRequest, "`before` takes the `next` of the page before.")
        })?,
        None => 1 << 53,
    };
    front.pass_on(Request::Audit { below, limit: AUDIT_LINES }).await
}
