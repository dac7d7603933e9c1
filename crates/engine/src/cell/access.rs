//! Who may ask this cell: what the machine remembers, and what the namespace's catalog says of everybody else.

use std::rc::Rc;

use serde::de::DeserializeOwned;
use stepwell_core::{
    access::{Grant, not_good},
    catalog::Confirmation,
    cell::{Admission, no_such_run},
    object::Hosted as _,
};
use stepwell_protocol::{Code, Place, Problem, RunId, access::Limits, json};

use super::Host;
use crate::{
    access::Access,
    calls::{catalog, cell::Call},
    log,
    object::{Fault, StoreError, in_time},
    runtime,
    settings::{DEFAULT_NAMESPACE, STATION_BINDING},
};

/// How often the catalog is asked about one key: it may change while it is asked.
const ASKED_MAX: usize = 3;

impl Host {
    /// Refuses a caller who may not do this, and then looks after the cell: nobody makes it read its rows or set its
    /// alarm with a key that is not good.
    pub(super) async fn enter(
        self: &Rc<Self>,
        call: &Call,
        place: &Place,
    ) -> Result<Option<Rc<Grant>>, Fault> {
        let grant = self.admit(call, place).await?;
        let is_new = self.machine.borrow_mut().wants_repair();
        self.repair().await?;
        let has_asked = self.find_life(call).await?;
        // A cell that was just loaded has waited for its alarm: the key may have been revoked meanwhile.
        let grant = if is_new || has_asked { self.admit(call, place).await? } else { grant };
        self.check_open()?;
        self.check_life(call)?;
        Ok(grant)
    }

    /// Refuses a caller who may not do this. Whoever may without being asked has no grant.
    async fn admit(&self, call: &Call, place: &Place) -> Result<Option<Rc<Grant>>, Fault> {
        let Some(access) = &call.access else { return Ok(None) };
        let (credential, need) = (&access.credential, &access.need);
        let bytes = call.operation.payload_bytes();
        for _ in 0..ASKED_MAX {
            let admitted = {
                let mut machine = self.machine.borrow_mut();
                machine.admit(runtime::clock(), credential, need, bytes as u64, self.settings.shares)?
            };
            if let Admission::Granted(grant) = admitted {
                self.check_operation(call, place, &grant)?;
                return Ok(Some(grant));
            }
            let confirmed = self.confirm(&call.namespace, access, place).await?;
            self.machine.borrow_mut().remember_key(runtime::clock(), credential, confirmed);
        }
        Err(not_good().into())
    }

    /// What only the cell can tell: whose run it is, and how much comes with the request.
    fn check_operation(&self, call: &Call, place: &Place, grant: &Grant) -> Result<(), Fault> {
        let scope = call.access.as_ref().map_or(stepwell_protocol::access::Scope::Admin, |a| a.need.scope);
        let bytes = call.operation.payload_bytes();
        let mut workflow = call.operation.workflow().map(str::to_owned);
        if let Some((number, suffix)) = call.operation.run() {
            let id = RunId { place: place.clone(), number, suffix: suffix.to_owned() };
            // Looked up only for whoever may not touch all of them.
            if !grant.allows(scope, None) || (bytes > 0 && !grant.workflows.is_empty()) {
                workflow = Some(self.find(&id)?.workflow);
            }
        }
        if let Some(workflow) = &workflow
            && let Err(refused) = grant.check_run(scope, workflow)
        {
            return Err(match refused {
                Some(problem) => problem.into(),
                None if call.operation.run().is_some() => no_such_run::<StoreError>().into(),
                None => stepwell_core::access::forbidden(scope).into(),
            });
        }
        match grant.check_payload(workflow.as_deref(), bytes) {
            Some(problem) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// Refuses one more run that has not ended if the namespace has as many as it may.
    pub(super) fn check_live(&self, limits: &Limits) -> Result<(), Fault> {
        let mut machine = self.machine.borrow_mut();
        match machine.check_live(&self.store, limits, self.settings.shares)? {
            Some(problem) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// Learns what holds for runs that no caller starts, unless this cell remembers it. Nothing does in a deployment
    /// without catalogs.
    pub(super) async fn learn_rules(&self, namespace: &str, place: &Place) -> Result<(), Fault> {
        if runtime::property(&self.env, STATION_BINDING).is_undefined() {
            return Ok(());
        }
        for _ in 0..ASKED_MAX {
            if !self.machine.borrow_mut().wants_rules(runtime::clock()) {
                return Ok(());
            }
            let request = catalog::Request::Rules { cell: place.to_string() };
            let rules = self.ask_catalog(namespace, request).await?;
            self.machine.borrow_mut().remember_rules(runtime::clock(), rules);
        }
        if self.machine.borrow_mut().wants_rules(runtime::clock()) {
            return Err(unreachable_catalog().into());
        }
        Ok(())
    }

    async fn confirm(&self, namespace: &str, access: &Access, place: &Place) -> Result<Confirmation, Fault> {
        let Access { credential, vouched, .. } = access.clone();
        let request = catalog::Request::Confirm { credential, vouched, cell: place.to_string() };
        self.ask_catalog(namespace, request).await
    }

    async fn ask_catalog<T: DeserializeOwned>(
        &self,
        namespace: &str,
        request: catalog::Request,
    ) -> Result<T, Fault> {
        let call = catalog::Call::new(namespace, request);
        let (status, body) = in_time(catalog::ask(&self.env, &call)).await.map_err(|thrown| {
            log::error!("the catalog did not answer: {}", runtime::message(&thrown));
            unreachable_catalog()
        })?;
        if status == 200 {
            return Ok(json::from_str(&body).map_err(|_| unreachable_catalog())?);
        }
        Err(json::from_str(&body).unwrap_or_else(|_| unreachable_catalog()).into())
    }

    /// Asks the catalog for the life of the namespace, before the first thing is stored here: what comes late, from a
    /// life that is over, stores nothing. Says whether it had to be asked. The default namespace has one life.
    async fn find_life(&self, call: &Call) -> Result<bool, Fault> {
        let is_first = call.operation.may_be_first() && call.namespace != DEFAULT_NAMESPACE;
        if !is_first || self.begins_in.get().is_some() || self.store.has_schema()? {
            return Ok(false);
        }
        self.begins_in.set(Some(self.ask_catalog(&call.namespace, catalog::Request::ShowLife).await?));
        Ok(true)
    }

    /// The life of the namespace that this cell is in; nothing in the default one.
    pub(super) fn own_life(&self, namespace: &str) -> Result<Option<u64>, Fault> {
        if namespace == DEFAULT_NAMESPACE {
            return Ok(None);
        }
        let stored = if self.store.has_schema()? { Some(self.life()?.unwrap_or_default()) } else { None };
        Ok(stored.or(self.begins_in.get()))
    }

    /// Refuses what is meant for another life of the namespace.
    fn check_life(&self, call: &Call) -> Result<(), Fault> {
        let Some(meant) = call.life else { return Ok(()) };
        match self.own_life(&call.namespace)? {
            Some(own) if own != meant => {
                let detail = "The namespace was deleted and made again meanwhile.";
                Err(Problem::new(Code::StaleEpoch, detail).into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn unreachable_catalog() -> Problem {
    Problem::new(Code::Internal, "The catalog of the namespace did not answer. Try again.")
}
