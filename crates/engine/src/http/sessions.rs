//! The routes of sessions, and the cookie that browsers keep one in.

use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use stepwell_core::catalog::SESSION_LIFE_MS_MAX;
use stepwell_protocol::{
    access::{OpenedSession, SessionView},
    key::Kind,
};

use super::{
    auth::cookie,
    error::Refusal,
    forward::Front,
    keys::{answer, credential, draw},
};
use crate::catalog::Request;

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
    let mut response = answer(StatusCode::CREATED, &OpenedSession { token: fresh.text, view });
    set_cookie(&mut response, &cookie);
    Ok(response)
}

/// `DELETE /api/session`
pub(super) async fn end(front: &Front) -> Result<Response, Refusal> {
    let mut response = front.pass_on(Request::EndSession).await?;
    set_cookie(&mut response, &cookie(front.is_https(), "", 0));
    Ok(response)
}

/// `GET /api/sessions`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ListSessions).await
}

/// `DELETE /api/sessions/{session}`
pub(super) async fn revoke(front: &Front, id: String) -> Result<Response, Refusal> {
    front.pass_on(Request::RevokeSession { id }).await
}

fn set_cookie(response: &mut Response, cookie: &str) {
    let value = HeaderValue::from_str(cookie).expect("tokens are visible ASCII");
    response.headers_mut().insert(header::SET_COOKIE, value);
}
