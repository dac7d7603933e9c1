//! Which namespaces there are, as far as this isolate has seen.
//!
//! Anybody can write a key's text for a namespace that nobody has made. The platform makes an object of whatever name
//! it is asked for, so such a name must not get that far: the deployment's catalog is asked about one that is new. What it
//! has confirmed is remembered for a minute. A namespace that is deleted meanwhile has a catalog that grants nothing, so
//! whoever is let through by what this isolate remembers gets nowhere.

use std::cell::RefCell;

use stepwell_core::{
    access::not_good,
    catalog::{NAMESPACES_MAX, Namespace},
    recent::Recent,
};
use stepwell_protocol::Code;
use worker::Env;

use super::{caller::Caller, error::Refusal, front::Front, verdicts};
use crate::{calls::catalog::Request, runtime, settings::DEFAULT_NAMESPACE};

/// How long a namespace is taken to be there.
const KNOWN_MS: u64 = 60_000;

thread_local! {
    static KNOWN: RefCell<Recent> = const { RefCell::new(Recent::new(KNOWN_MS, NAMESPACES_MAX)) };
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
    if name == DEFAULT_NAMESPACE || KNOWN.with_borrow(|known| known.contains(runtime::clock(), name)) {
        return Ok(true);
    }
    let registry = Front::new(env.clone())?;
    if !registry.has_catalog() || verdicts::is_missing(name) {
        return Ok(false);
    }
    match registry.ask_catalog::<Namespace>(Request::ShowNamespace { name: name.to_owned() }).await {
        Ok(_) => {
            KNOWN.with_borrow_mut(|known| known.insert(runtime::clock(), name.to_owned()));
            Ok(true)
        }
        Err(refusal) if refusal.0.code == Code::NamespaceNotFound => {
            verdicts::missing(name);
            Ok(false)
        }
        Err(refusal) => Err(refusal),
    }
}
