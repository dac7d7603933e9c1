//! On whose behalf something is asked, and where: what the handlers, and all else that is not an object, know of the
//! deployment.
//!
//! Owns: the caller's place in the deployment. Its clients are in files of their own: the [`cells`], the [`catalog`], the
//! [`schedules`], the [`topics`] and the [`app`]; so is what their answers say of the caller's key ([`vouching`]).

mod app;
mod catalog;
mod cells;
mod schedules;
mod topics;
mod vouching;

use std::{cell::Cell, rc::Rc};

use stepwell_core::access::{About, Need};
use stepwell_protocol::{Code, Place};
use worker::Env;

use crate::{
    access::Access,
    http::{caller::Caller, error::Refusal},
    runtime,
    settings::{DEFAULT_NAMESPACE, Deployment, STATION_BINDING},
};

/// What the handlers know of the deployment.
#[derive(Clone)]
pub struct Front {
    env: Rc<Env>,
    deployment: Rc<Deployment>,
    namespace: Rc<str>,
    /// The life of the namespace that is meant, for whoever knows it.
    life: Option<u64>,
    /// On whose behalf it asks; nobody's in particular for the deployment's key and for Stepwell itself.
    access: Option<Rc<Access>>,
    /// Whether a cell or the catalog has found the caller's key good, or nobody has to.
    is_vouched: Rc<Cell<bool>>,
    /// Whether it may ask the objects at all.
    is_nobody: bool,
    /// Whether the caller's connection is encrypted.
    is_https: bool,
    /// The id of the request, if it is one.
    request: Option<Rc<str>>,
}

impl Front {
    /// For Stepwell itself: what this deployment says, unless that makes no sense.
    pub fn new(env: Env) -> Result<Self, Refusal> {
        Self::of(env, &Caller::Root, None)
    }

    /// For somebody who asks for something.
    pub fn of(env: Env, caller: &Caller, access: Option<Access>) -> Result<Self, Refusal> {
        let deployment = Deployment::known(&env).map_err(|wrong| Refusal::new(Code::Misconfigured, wrong))?;
        let namespace = match caller {
            Caller::Root | Caller::Nobody => DEFAULT_NAMESPACE,
            Caller::Bearer { namespace, .. } => namespace,
        };
        Ok(Self {
            env: Rc::new(env),
            deployment,
            namespace: namespace.into(),
            life: None,
            is_vouched: Rc::new(Cell::new(access.is_none())),
            access: access.map(Rc::new),
            is_nobody: matches!(caller, Caller::Nobody),
            is_https: true,
            request: None,
        })
    }

    /// The same for a request that came by this scheme.
    #[must_use]
    pub fn over(self, scheme: &str) -> Self {
        Self { is_https: scheme == "https", ..self }
    }

    /// The same for the request of this id.
    #[must_use]
    pub fn for_request(self, id: &str) -> Self {
        Self { request: Some(id.into()), ..self }
    }

    /// The same in another namespace, if nobody in particular asks.
    pub fn within(&self, namespace: &str) -> Self {
        match self.access {
            None => Self { namespace: namespace.into(), life: None, ..self.clone() },
            // Whoever has a key stays in its namespace.
            Some(_) => self.clone(),
        }
    }

    /// The same, meant for this life of the namespace.
    pub fn in_life(&self, life: Option<u64>) -> Self {
        Self { life, ..self.clone() }
    }

    /// On behalf of whoever holds an address that was verified: a wait token's, or a webhook's, in its namespace.
    pub fn holding(&self, namespace: &str) -> Self {
        Self { namespace: namespace.into(), life: None, is_nobody: false, ..self.itself() }
    }

    /// On behalf of the same caller, who has to be allowed this for all of the namespace.
    pub fn about_all(&self) -> Self {
        let whole = |access: &Rc<Access>| {
            let Access { credential, vouched, need } = (**access).clone();
            Rc::new(Access { credential, vouched, need: Need { about: About::Whole, ..need } })
        };
        Self { access: self.access.as_ref().map(whole), ..self.clone() }
    }

    /// Stepwell itself, in the same namespace.
    pub fn itself(&self) -> Self {
        // What it is told says nothing about the caller's key.
        let is_vouched = Rc::new(Cell::new(true));
        Self { access: None, is_vouched, ..self.clone() }
    }

    /// Stepwell itself, in the namespace whose catalog knows what belongs to the deployment.
    pub fn registry(&self) -> Self {
        Self { namespace: DEFAULT_NAMESPACE.into(), life: None, ..self.itself() }
    }

    /// What the deployment says.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// The Worker's bindings.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The caller's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The hash of the caller's key, if it is not the deployment's own.
    pub fn hash(&self) -> Option<&str> {
        self.access.as_ref().map(|access| access.credential.hash.as_str())
    }

    /// Whether somebody asks whose key says what it may.
    pub fn is_limited(&self) -> bool {
        self.access.is_some()
    }

    /// Whether the caller's connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Whether there are keys other than the deployment's own.
    pub fn has_catalog(&self) -> bool {
        !runtime::property(&self.env, STATION_BINDING).is_undefined()
    }

    /// All cells, of all generations.
    pub fn cells(&self) -> impl Iterator<Item = Place> + use<> {
        self.deployment.pool.places()
    }
}

fn unreadable() -> Refusal {
    Refusal::new(Code::Internal, "A cell gave an answer that could not be read. Try again.")
}
