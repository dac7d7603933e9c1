//! The class of every object that is no cell. Its address says which machine it has, so a new kind takes no new binding
//! and no migration.

#![expect(missing_docs, reason = "the object has methods that only the runtime calls")]

use std::{
    cell::OnceCell,
    panic::{RefUnwindSafe, UnwindSafe},
    rc::Rc,
};

use js_sys::Promise;
use stepwell_core::object::{Address, Kind};
use wasm_bindgen::prelude::*;
use worker::{Env, worker_sys::DurableObjectState};

use crate::{
    alerts, catalog, lanes, log,
    object::{Answered, Fault, Loaded, StoreError, Tables},
    queues, runtime, schedules, topics,
};

/// A Durable Object that is no cell.
#[wasm_bindgen]
pub struct Station {
    /// Only [`extend_durable_object`] makes one without.
    loaded: Option<Loaded>,
    machine: OnceCell<Machine>,
}

/// The machine that a station has.
enum Machine {
    Catalog(Rc<catalog::Host>),
    Schedules(Rc<schedules::Host>),
    Topic(Rc<topics::Host>),
    Lane(Rc<lanes::Host>),
    Queue(Rc<queues::Host>),
    Alerts(Rc<alerts::Host>),
}

/// See `cell::extend_durable_object`.
pub fn extend_durable_object() {
    runtime::extend_durable_object(Station { loaded: None, machine: OnceCell::new() }.into());
}

// Whatever a panic leaves in memory is only a cache of rows.
impl UnwindSafe for Station {}
impl RefUnwindSafe for Station {}

#[wasm_bindgen]
impl Station {
    #[wasm_bindgen(constructor)]
    pub fn new(state: DurableObjectState, env: Env) -> Self {
        log::begin(&env);
        Self { loaded: Some(Loaded::new(state, env)), machine: OnceCell::new() }
    }

    /// What Workers and objects call: the station's own address and a call as JSON in, an array of status and body out.
    pub fn ask(&self, to: &JsValue, call: &JsValue) -> JsValue {
        let call = call.as_string().unwrap_or_default();
        match self.machine(&to.as_string().unwrap_or_default()) {
            Ok(Machine::Catalog(host)) => host.ask(&call),
            Ok(Machine::Schedules(host)) => host.ask(&call),
            Ok(Machine::Topic(host)) => host.ask(&call),
            Ok(Machine::Lane(host)) => host.ask(&call),
            Ok(Machine::Queue(host)) => host.ask(&call),
            Ok(Machine::Alerts(host)) => host.ask(&call),
            Err(fault) => Answered::from(fault).into_array(None),
        }
    }

    /// Something is due. An instance that nobody has asked anything yet knows its address from its rows.
    pub fn alarm(&self) -> Promise {
        let machine = match self.machine.get() {
            Some(machine) => Ok(Some(machine)),
            None => self.stored().and_then(|stored| stored.map(|to| self.machine(&to)).transpose()),
        };
        match machine {
            Ok(Some(Machine::Catalog(host))) => host.alarm(),
            Ok(Some(Machine::Schedules(host))) => host.alarm(),
            Ok(Some(Machine::Topic(host))) => host.alarm(),
            Ok(Some(Machine::Lane(host))) => host.alarm(),
            Ok(Some(Machine::Queue(host))) => host.alarm(),
            Ok(Some(Machine::Alerts(host))) => host.alarm(),
            // Nothing was ever stored, so nothing is due.
            Ok(None) => Promise::resolve(&JsValue::UNDEFINED),
            Err(fault) => Promise::reject(&JsError::new(&fault.to_string()).into()),
        }
    }
}

impl Station {
    fn loaded(&self) -> &Loaded {
        self.loaded.as_ref().expect("the runtime makes stations with `new`")
    }

    /// The address that was stored with the first row.
    fn stored(&self) -> Result<Option<String>, Fault> {
        Ok(Tables::new(self.loaded().storage.clone(), false).address()?)
    }

    /// The machine at an address.
    fn machine(&self, to: &str) -> Result<&Machine, Fault> {
        if let Some(machine) = self.machine.get() {
            return Ok(machine);
        }
        let address: Address = to
            .parse()
            .map_err(|error: stepwell_core::object::NoAddress| StoreError::Refused(error.to_string()))?;
        let machine = match address.kind {
            Kind::Catalog => Machine::Catalog(catalog::load(self.loaded().clone())),
            Kind::Schedules => Machine::Schedules(schedules::load(self.loaded().clone(), address)?),
            Kind::Topic => Machine::Topic(topics::load(self.loaded().clone(), address)?),
            Kind::Lane => Machine::Lane(lanes::load(self.loaded().clone(), address)),
            Kind::Queue => Machine::Queue(queues::load(self.loaded().clone(), address)),
            Kind::Alerts => Machine::Alerts(alerts::load(self.loaded().clone(), address)),
            Kind::Cell => return Err(StoreError::Refused("a cell is no station".into()).into()),
        };
        Ok(self.machine.get_or_init(|| machine))
    }
}
