//! Who may ask: whoever brings the deployment's key.

use sha2::{Digest, Sha256};
use stepwell_protocol::Code;
use subtle::ConstantTimeEq;
use worker::{Env, Request};

use super::error::Refusal;
use crate::settings::KEY;

/// Refuses a request without the right key.
pub fn check(request: &Request, env: &Env) -> Result<(), Refusal> {
    let Ok(key) = env.secret(KEY) else {
        let detail = format!(
            "The secret {KEY} is not set, so nobody can be let in. Set it with `npx wrangler secret put {KEY}`."
        );
        return Err(Refusal::new(Code::Internal, detail));
    };
    let header = request.headers().get("authorization").ok().flatten().unwrap_or_default();
    let brought = match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        Some(_) | None => "",
    };
    if !brought.is_empty() && same(&key.to_string(), brought) {
        return Ok(());
    }
    let detail = format!("Send the deployment's key as `Authorization: Bearer <{KEY}>`.");
    Err(Refusal::new(Code::Unauthorized, detail))
}

/// Whether two texts are the same, in a time that tells nothing about either.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a.as_bytes()).ct_eq(&Sha256::digest(b.as_bytes())).into()
}
