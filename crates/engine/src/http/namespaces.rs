//! The routes of namespaces, and which ones there are, as far as this isolate has seen.
//!
//! Anybody can write a key's text for a namespace that nobody has made. The platform makes an object of whatever name
//! it is asked for, so such a name must not get that far: the deployment's catalog is asked about one that is new. A
//! namespace that is there stays, so what was once confirmed is remembered.

use std::{cell::RefCell, collections::BTreeSet};

use axum::response::Response;
use http::StatusCode;
use stepwell_core::{access::not_good, catalog::NAMESPACES_MAX};
use stepwell_protocol::{
    Code,
    access::{CreatedNamespace, Limits, NamespaceView, NewKey, NewNamespace, Permission, Scope},
};
use worker::Env;

use super::{
    auth::Caller,
    body::read,
    error::Refusal,
    forward::Front,
    keys::{answer, make},
    verdicts,
};
use crate::{catalog::Request, settings::DEFAULT_NAMESPACE};

thread_local! {
    static KNOWN: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// Refuses whoever names a namespace that is not there, like anybody whose key is not good.
pub async fn check(env: &Env, caller: &Caller) -> Result<(), Refusal> {
    let name = match caller {
        Caller::Bearer { namespace, .. } => namespace,
        Caller::Root | Caller::Nobody => return Ok(()),
    };
    // Without a catalog there is no key but the deployment's own.
    let is_there = Front::new(env.clone())?.has_catalog() && has(env, name).await?;
    if is_there { Ok(()) } else { Err(Refusal(not_good())) }
}

/// Whether there is a namespace. Makes none.
pub async fn has(env: &Env, name: &str) -> Result<bool, Refusal> {
    if name == DEFAULT_NAMESPACE || KNOWN.with_borrow(|known| known.contains(name)) {
        return Ok(true);
    }
    let registry = Front::new(env.clone())?;
    if !registry.has_catalog() || verdicts::is_missing(name) {
        return Ok(false);
    }
    match registry.ask_catalog::<NamespaceView>(Request::ShowNamespace { name: name.to_owned() }).await {
        Ok(_) => {
            KNOWN.with_borrow_mut(|known| {
                if known.len() < NAMESPACES_MAX {
                    known.insert(name.to_owned());
                }
            });
            Ok(true)
        }
        Err(refusal) if refusal.0.code == Code::NamespaceNotFound => {
            verdicts::missing(name);
            Ok(false)
        }
        Err(refusal) => Err(refusal),
    }
}

/// `GET /api/namespaces`
pub(super) async fn list(front: &Front) -> Result<Response, Refusal> {
    front.within(DEFAULT_NAMESPACE).pass_on(Request::ListNamespaces).await
}

/// `POST /api/namespaces`
pub(super) async fn create(front: &Front, body: String) -> Result<Response, Refusal> {
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
pub(super) async fn show(front: &Front, name: String) -> Result<Response, Refusal> {
    existing(front, name).await?.pass_on(Request::ShowSettings).await
}

/// `POST /api/namespaces/{namespace}/keys`
pub(super) async fn create_key(front: &Front, name: String, body: String) -> Result<Response, Refusal> {
    let new: NewKey = read(&body)?;
    let created = make(&existing(front, name).await?, new).await?;
    Ok(answer(StatusCode::CREATED, &created))
}

/// `PUT /api/namespaces/{namespace}/limits`
pub(super) async fn set_limits(front: &Front, name: String, body: String) -> Result<Response, Refusal> {
    let limits: Limits = read(&body)?;
    existing(front, name).await?.pass_on(Request::SetLimits { limits }).await
}

/// A namespace that is there. No object is touched for any other.
async fn existing(front: &Front, name: String) -> Result<Front, Refusal> {
    if name != DEFAULT_NAMESPACE {
        let registry = front.within(DEFAULT_NAMESPACE);
        let _: NamespaceView = registry.ask_catalog(Request::ShowNamespace { name: name.clone() }).await?;
    }
    Ok(front.within(&name))
}
