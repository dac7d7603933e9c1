//! The routes of keys, sessions, settings and namespaces. New keys are made here: the catalog gets their hashes, and
//! the caller is the only one who ever sees the text.

use std::collections::BTreeMap;

use axum::{
    Extension,
    extract::{Path, RawQuery},
    response::Response,
    routing::{self, MethodFilter, MethodRouter},
};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use stepwell_core::{access::Credential, catalog::OVERLAP_MS_DEFAULT};
use stepwell_protocol::{
    Code,
    access::{
        CreatedKey, CreatedNamespace, Issuer, KeyList, KeyView, Limits, NamespaceView, NewKey, NewNamespace,
        OpenedSession, Permission, Rotation, RunSettings, Scope, SessionView,
    },
    key::{self, Fresh, Kind},
};

use worker::send::SendFuture;

use super::{
    auth::cookie,
    body::{is_empty, read},
    error::Refusal,
    forward::Front,
    json,
    runs::pairs,
    token,
};
use crate::{access::hash, catalog::Request, runtime, settings::DEFAULT_NAMESPACE};

/// How many lines of the audit log a page has.
const AUDIT_LINES: u32 = 100;

/// What is asked for, as the table of routes has it.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    ListKeys,
    CreateKey,
    RotateKey,
    RevokeKey,
    ShowSession,
    OpenSession,
    EndSession,
    ShowSettings,
    SetSettings,
    SetWorkflowSettings,
    RemoveWorkflowSettings,
    Audit,
    ListNamespaces,
    CreateNamespace,
    ShowNamespace,
    CreateNamespaceKey,
    SetLimits,
    ListIssuers,
    SetIssuer,
    RemoveIssuer,
}

/// Routes one of these. All have the same form: axum makes as much code of each form as of a large part of the rest.
pub fn on(method: MethodFilter, asked: Asked) -> MethodRouter {
    let handler = move |Extension(front): Extension<Front>,
                        Path(named): Path<BTreeMap<String, String>>,
                        RawQuery(query): RawQuery,
                        body: String| {
        SendFuture::new(async move { answer_to(asked, &front, named, query, body).await })
    };
    routing::on(method, handler)
}

async fn answer_to(
    asked: Asked,
    front: &Front,
    mut named: BTreeMap<String, String>,
    query: Option<String>,
    body: String,
) -> Result<Response, Refusal> {
    let mut name = |what: &str| named.remove(what).unwrap_or_default();
    match asked {
        Asked::ListKeys => list(front).await,
        Asked::CreateKey => create(front, body).await,
        Asked::RotateKey => rotate(front, name("key"), body).await,
        Asked::RevokeKey => revoke(front, name("key")).await,
        Asked::ShowSession => show_session(front).await,
        Asked::OpenSession => open_session(front).await,
        Asked::EndSession => end_session(front).await,
        Asked::ShowSettings => show_settings(front).await,
        Asked::SetSettings => set_settings(front, body).await,
        Asked::SetWorkflowSettings => set_workflow(front, name("workflow"), body).await,
        Asked::RemoveWorkflowSettings => remove_workflow(front, name("workflow")).await,
        Asked::Audit => audit(front, query).await,
        Asked::ListNamespaces => list_namespaces(front).await,
        Asked::CreateNamespace => create_namespace(front, body).await,
        Asked::ShowNamespace => show_namespace(front, name("namespace")).await,
        Asked::CreateNamespaceKey => create_namespace_key(front, name("namespace"), body).await,
        Asked::SetLimits => set_limits(front, name("namespace"), body).await,
        Asked::ListIssuers => list_issuers(front).await,
        Asked::SetIssuer => set_issuer(front, body).await,
        Asked::RemoveIssuer => remove_issuer(front, query).await,
    }
}

/// `GET /api/keys`
async fn list(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ListKeys).await
}

/// `POST /api/keys`
async fn create(front: &Front, body: String) -> Result<Response, Refusal> {
    let created = make(front, read(&body)?).await?;
    Ok(answer(StatusCode::CREATED, &created))
}

/// `POST /api/keys/{key}/rotate`
async fn rotate(front: &Front, id: String, body: String) -> Result<Response, Refusal> {
    let Rotation { overlap_ms } = if is_empty(&body) { Rotation::default() } else { read(&body)? };
    // Its text says what it is for, as that of the old one does.
    let KeyList { keys } = front.ask_catalog(Request::ListKeys).await?;
    let kind = keys.iter().find(|key| key.id == id).and_then(|key| Kind::of(&key.environment));
    let fresh = draw(kind.unwrap_or(Kind::Live), front.namespace());
    let (credential, overlap_ms) = (credential(&fresh), overlap_ms.unwrap_or(OVERLAP_MS_DEFAULT));
    let view: KeyView = front.ask_catalog(Request::RotateKey { id, credential, overlap_ms }).await?;
    Ok(answer(StatusCode::CREATED, &CreatedKey { key: fresh.text, view }))
}

/// `POST /api/keys/{key}/revoke`
async fn revoke(front: &Front, id: String) -> Result<Response, Refusal> {
    front.pass_on(Request::RevokeKey { id }).await
}

/// `GET /api/session`
async fn show_session(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ShowSession).await
}

/// `POST /api/session`
async fn open_session(front: &Front) -> Result<Response, Refusal> {
    let fresh = draw(Kind::Session, front.namespace());
    let request = Request::OpenSession { credential: credential(&fresh) };
    let view: SessionView = front.ask_catalog(request).await?;
    let lasts_s = view.expires_at.as_millis().saturating_sub(view.created_at.as_millis()) / 1_000;
    let cookie = cookie(front.is_https(), &fresh.text, lasts_s);
    let mut response = answer(StatusCode::CREATED, &OpenedSession { token: fresh.text, view });
    set_cookie(&mut response, &cookie);
    Ok(response)
}

/// `DELETE /api/session`
async fn end_session(front: &Front) -> Result<Response, Refusal> {
    let mut response = front.pass_on(Request::EndSession).await?;
    set_cookie(&mut response, &cookie(front.is_https(), "", 0));
    Ok(response)
}

fn set_cookie(response: &mut Response, cookie: &str) {
    let value = HeaderValue::from_str(cookie).expect("tokens are visible ASCII");
    response.headers_mut().insert(header::SET_COOKIE, value);
}

/// `GET /api/settings`
async fn show_settings(front: &Front) -> Result<Response, Refusal> {
    front.pass_on(Request::ShowSettings).await
}

/// `PUT /api/settings`
async fn set_settings(front: &Front, body: String) -> Result<Response, Refusal> {
    let settings: RunSettings = read(&body)?;
    front.pass_on(Request::SetRuns { settings }).await
}

/// `PUT /api/settings/workflows/{workflow}`
async fn set_workflow(front: &Front, workflow: String, body: String) -> Result<Response, Refusal> {
    super::runs::check_name("workflow", &workflow)?;
    let settings: RunSettings = read(&body)?;
    front.pass_on(Request::SetWorkflow { workflow, settings: Some(settings) }).await
}

/// `DELETE /api/settings/workflows/{workflow}`
async fn remove_workflow(front: &Front, workflow: String) -> Result<Response, Refusal> {
    front.pass_on(Request::SetWorkflow { workflow, settings: None }).await
}

/// `GET /api/audit`
async fn audit(front: &Front, query: Option<String>) -> Result<Response, Refusal> {
    let below = match pairs(query.as_deref().unwrap_or_default()).find(|(name, _)| name == "before") {
        Some((_, text)) => text.parse().ok().filter(|below| *below <= 1 << 53).ok_or_else(|| {
            Refusal::new(Code::InvalidRequest, "`before` takes the `next` of the page before.")
        })?,
        None => 1 << 53,
    };
    front.pass_on(Request::Audit { below, limit: AUDIT_LINES }).await
}

/// `GET /api/namespaces`
async fn list_namespaces(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListNamespaces).await
}

/// `POST /api/namespaces`
async fn create_namespace(front: &Front, body: String) -> Result<Response, Refusal> {
    let NewNamespace { name, limits } = read(&body)?;
    let registry = front.within(DEFAULT_NAMESPACE);
    let view: NamespaceView = registry.ask_catalog(Request::AddNamespace { name }).await?;
    let inside = front.within(&view.name);
    // Should this be cut short, the namespace is there, and another key can be made for it.
    if limits != Limits::default() {
        inside.pass_on(Request::SetLimits { limits }).await?;
    }
    let new = NewKey {
        name: "admin".into(),
        scopes: vec![Permission::all(Scope::Admin)],
        environment: None,
        expires_at: None,
    };
    let admin = make(&inside, new).await?;
    Ok(answer(StatusCode::CREATED, &CreatedNamespace { view, admin }))
}

/// `GET /api/namespaces/{namespace}`
async fn show_namespace(front: &Front, name: String) -> Result<Response, Refusal> {
    existing(front, name).await?.pass_on(Request::ShowSettings).await
}

/// `POST /api/namespaces/{namespace}/keys`
async fn create_namespace_key(front: &Front, name: String, body: String) -> Result<Response, Refusal> {
    let new: NewKey = read(&body)?;
    let created = make(&existing(front, name).await?, new).await?;
    Ok(answer(StatusCode::CREATED, &created))
}

/// `PUT /api/namespaces/{namespace}/limits`
async fn set_limits(front: &Front, name: String, body: String) -> Result<Response, Refusal> {
    let limits: Limits = read(&body)?;
    existing(front, name).await?.pass_on(Request::SetLimits { limits }).await
}

/// `GET /api/issuers`
async fn list_issuers(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListIssuers).await
}

/// `PUT /api/issuers`
async fn set_issuer(front: &Front, body: String) -> Result<Response, Refusal> {
    let issuer: Issuer = read(&body)?;
    token::check_url(&issuer.jwks_url, front.is_dev())?;
    front.within(DEFAULT_NAMESPACE).pass_on(Request::SetIssuer { issuer }).await
}

/// `DELETE /api/issuers?issuer=…`
async fn remove_issuer(front: &Front, query: Option<String>) -> Result<Response, Refusal> {
    let named = pairs(query.as_deref().unwrap_or_default()).find(|(name, _)| name == "issuer");
    let Some((_, issuer)) = named else {
        return Err(Refusal::new(Code::InvalidRequest, "Say which, with `?issuer=` and its `iss`."));
    };
    front.within(DEFAULT_NAMESPACE).pass_on(Request::RemoveIssuer { issuer }).await
}

/// A namespace that is there. No object is touched for any other.
async fn existing(front: &Front, name: String) -> Result<Front, Refusal> {
    if name != DEFAULT_NAMESPACE {
        let registry = front.within(DEFAULT_NAMESPACE);
        let _: NamespaceView = registry.ask_catalog(Request::ShowNamespace { name: name.clone() }).await?;
    }
    Ok(front.within(&name))
}

async fn make(front: &Front, new: NewKey) -> Result<CreatedKey, Refusal> {
    let kind = new.environment.as_deref().and_then(Kind::of).filter(|kind| *kind != Kind::Session);
    let fresh = draw(kind.unwrap_or(Kind::Live), front.namespace());
    let view: KeyView = front.ask_catalog(Request::CreateKey { credential: credential(&fresh), new }).await?;
    Ok(CreatedKey { key: fresh.text, view })
}

fn draw(kind: Kind, namespace: &str) -> Fresh {
    let mut random = [0; key::RANDOM_BYTES];
    runtime::fill_random(&mut random);
    key::make(kind, namespace, random)
}

fn credential(fresh: &Fresh) -> Credential {
    Credential { id: fresh.named.id.clone(), hash: hash(&fresh.text) }
}

fn answer<T: Serialize>(status: StatusCode, body: &T) -> Response {
    json(status, serde_json::to_string(body).expect("answers hold only what JSON can say"))
}
