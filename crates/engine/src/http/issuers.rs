//! The routes of issuers, whose tokens are taken like keys.

use stepwell_protocol::{Code, access::Issuer};

use super::{body::read, error::Refusal, front::Front, request::pairs, response::Response};
use crate::{calls::catalog::Request, outbound, settings::DEFAULT_NAMESPACE};

/// `GET /api/issuers`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListIssuers).await
}

/// `PUT /api/issuers`
pub(super) async fn set(front: &Front, body: &str) -> Result<Response, Refusal> {
    let issuer: Issuer = read(body)?;
    outbound::check("jwks_url", &issuer.jwks_url, front.deployment().is_dev).map_err(Refusal)?;
    front.within(DEFAULT_NAMESPACE).pass_on(Request::SetIssuer { issuer }).await
}

/// `DELETE /api/issuers?issuer=…`
pub(super) async fn remove(front: &Front, query: &str) -> Result<Response, Refusal> {
    let named = pairs(query).find(|(name, _)| name == "issuer");
    let Some((_, issuer)) = named else {
        return Err(Refusal::new(Code::InvalidRequest, "Say which, with `?issuer=` and its `iss`."));
    };
    front.within(DEFAULT_NAMESPACE).pass_on(Request::RemoveIssuer { issuer }).await
}
