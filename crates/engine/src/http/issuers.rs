//! The routes of issuers, whose tokens are taken like keys.

use axum::response::Response;
use stepwell_protocol::{Code, access::Issuer};

use super::{body::read, error::Refusal, forward::Front, runs::pairs, token};
use crate::{catalog::Request, settings::DEFAULT_NAMESPACE};

/// `GET /api/issuers`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListIssuers).await
}

/// `PUT /api/issuers`
pub(super) async fn set(front: &Front, body: String) -> Result<Response, Refusal> {
    let issuer: Issuer = read(&body)?;
    token::check_url(&issuer.jwks_url, front.is_dev())?;
    front.within(DEFAULT_NAMESPACE).pass_on(Request::SetIssuer { issuer }).await
}

/// `DELETE /api/issuers?issuer=…`
pub(super) async fn remove(front: &Front, query: Option<String>) -> Result<Response, Refusal> {
    let named = pairs(query.as_deref().unwrap_or_default()).find(|(name, _)| name == "issuer");
    let Some((_, issuer)) = named else {
        return Err(Refusal::new(Code::InvalidRequest, "Say which, with `?issuer=` and its `iss`."));
    };
    front.within(DEFAULT_NAMESPACE).pass_on(Request::RemoveIssuer { issuer }).await
}
