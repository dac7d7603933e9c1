//! The routes of namespaces.

use stepwell_protocol::access::{
    CreatedNamespace, Limits, NamespaceView, NewKey, NewNamespace, Permission, Scope,
};

use super::{body::read, error::Refusal, front::Front, keys::make, response::Response};
use crate::{calls::catalog::Request, settings::DEFAULT_NAMESPACE};

/// `GET /api/namespaces`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListNamespaces).await
}

/// `POST /api/namespaces`
pub(super) async fn create(front: &Front, body: &str) -> Result<Response, Refusal> {
    let NewNamespace { name, limits } = read(body)?;
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
    Ok(Response::of(201, &CreatedNamespace { view, admin }))
}

/// `GET /api/namespaces/{namespace}`
pub(super) async fn show(front: &Front, name: &str) -> Result<Response, Refusal> {
    existing(front, name).await?.pass_on(Request::ShowSettings).await
}

/// `POST /api/namespaces/{namespace}/keys`
pub(super) async fn create_key(front: &Front, name: &str, body: &str) -> Result<Response, Refusal> {
    let new: NewKey = read(body)?;
    let created = make(&existing(front, name).await?, new).await?;
    Ok(Response::of(201, &created))
}

/// `PUT /api/namespaces/{namespace}/limits`
pub(super) async fn set_limits(front: &Front, name: &str, body: &str) -> Result<Response, Refusal> {
    let limits: Limits = read(body)?;
    existing(front, name).await?.pass_on(Request::SetLimits { limits }).await
}

/// A namespace that is there. No object is touched for any other.
async fn existing(front: &Front, name: &str) -> Result<Front, Refusal> {
    if name != DEFAULT_NAMESPACE {
        let registry = front.within(DEFAULT_NAMESPACE);
        let _: NamespaceView = registry.ask_catalog(Request::ShowNamespace { name: name.to_owned() }).await?;
    }
    Ok(front.within(name))
}
