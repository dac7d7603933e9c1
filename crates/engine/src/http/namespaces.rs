//! The routes of namespaces.

use stepwell_core::catalog::{Leaving, Namespace, namespace_deleting};
use stepwell_protocol::access::{
    CreatedNamespace, DeletedNamespace, DeletionView, Limits, NamespaceDetails, NewKey, NewNamespace,
    Permission, Scope, Settings,
};

use super::{body::read, error::Refusal, front::Front, keys::make, response::Response};
use crate::{
    calls::catalog::{Left, Request},
    settings::DEFAULT_NAMESPACE,
};

/// `GET /api/namespaces`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListNamespaces).await
}

/// `POST /api/namespaces`
pub(super) async fn create(front: &Front, body: &str) -> Result<Response, Refusal> {
    let NewNamespace { name, limits } = read(body)?;
    let registry = front.within(DEFAULT_NAMESPACE);
    let made: Namespace = registry.ask_catalog(Request::AddNamespace { name }).await?;
    let inside = front.within(&made.name).in_life(Some(made.life));
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
    Ok(Response::of(201, &CreatedNamespace { view: made.view(), admin }))
}

/// `GET /api/namespaces/{namespace}`
pub(super) async fn show(front: &Front, name: &str) -> Result<Response, Refusal> {
    let leaving = known(front, name).await?.and_then(|namespace| namespace.leaving);
    let (settings, deleting) = match leaving {
        Some(leaving) => (Settings::default(), Some(deletion(front, name, leaving).await)),
        None => (front.within(name).ask_catalog(Request::ShowSettings).await?, None),
    };
    Ok(Response::of(200, &NamespaceDetails { settings, deleting }))
}

/// `DELETE /api/namespaces/{namespace}`
pub(super) async fn delete(front: &Front, name: &str) -> Result<Response, Refusal> {
    let registry = front.within(DEFAULT_NAMESPACE);
    let request = Request::DeleteNamespace { name: name.to_owned() };
    let Namespace { leaving, .. } = registry.ask_catalog(request).await?;
    let leaving = leaving.ok_or_else(|| Refusal(namespace_deleting()))?;
    let deleting = deletion(front, name, leaving).await;
    Ok(Response::of(202, &DeletedNamespace { name: name.to_owned(), deleting }))
}

/// How far a deletion is: the namespace's own catalog knows, unless it is just being emptied itself. The deletion goes on
/// whether it answers or not.
async fn deletion(front: &Front, name: &str, Leaving { since, by }: Leaving) -> DeletionView {
    let left: Option<Left> = front.within(name).ask_catalog(Request::ShowDeletion).await.unwrap_or_default();
    let (cells_left, stations_left) = (left.map(|left| left.cells), left.map(|left| left.stations));
    DeletionView { since, by, cells_left, stations_left }
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

/// A namespace that is there, and is not being deleted. No object is touched for any other.
async fn existing(front: &Front, name: &str) -> Result<Front, Refusal> {
    match known(front, name).await? {
        Some(Namespace { leaving: Some(_), .. }) => Err(Refusal(namespace_deleting())),
        Some(Namespace { life, .. }) => Ok(front.within(name).in_life(Some(life))),
        None => Ok(front.within(name)),
    }
}

/// What the deployment's catalog knows of a namespace that is there; nothing of the default one, which was never made.
async fn known(front: &Front, name: &str) -> Result<Option<Namespace>, Refusal> {
    if name == DEFAULT_NAMESPACE {
        return Ok(None);
    }
    let registry = front.within(DEFAULT_NAMESPACE);
    Ok(Some(registry.ask_catalog(Request::ShowNamespace { name: name.to_owned() }).await?))
}
