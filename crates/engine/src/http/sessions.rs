//! The routes of sessions.

use stepwell_core::catalog::SESSION_LIFE_MS_MAX;
use stepwell_protocol::{
    access::{OpenedSession, SessionView},
    key::Kind,
};

use super::{
    cookie::cookie,
    error::Refusal,
    front::Front,
    keys::{credential, draw},
    response::Response,
};
use crate::calls::catalog::Request;

/// `GET /api/session`
pub(super) async fn show(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ShowSession).await
}

/// `POST /api/session`
pub(super) async fn open(front: &Front) -> Result<Response, Refusal> {
    let fresh = draw(Kind::Session, front.namespace());
    let request = Request::OpenSession { credential: credential(&fresh) };
    let view: SessionView = front.ask_catalog(request).await?;
    // A session that is used lasts longer than it says now. The catalog knows when it is over.
    let lasts_s = SESSION_LIFE_MS_MAX / 1_000;
    let cookie = cookie(front.is_https(), &fresh.text, lasts_s);
    let response = Response::of(201, &OpenedSession { token: fresh.text, view });
    Ok(response.with("set-cookie", cookie))
}

/// `DELETE /api/session`
pub(super) async fn end(front: &Front) -> Result<Response, Refusal> {
    let response = front.pass_on(Request::EndSession).await?;
    Ok(response.with("set-cookie", cookie(front.is_https(), "", 0)))
}

/// `GET /api/sessions`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ListSessions).await
}

/// `DELETE /api/sessions/{session}`
pub(super) async fn revoke(front: &Front, id: String) -> Result<Response, Refusal> {
    front.pass_on(Request::RevokeSession { id }).await
}
