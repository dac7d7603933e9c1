//! The host of schedules: what is around `stepwell_core::schedule`.
//!
//! Owns: the rows in SQLite, the questions to cells, and what the runtime knows of time zones. Decides nothing.

mod requests;
mod starts;
mod store;

use std::rc::Rc;

use stepwell_core::{
    object::Address,
    schedule::{Order, Schedules as Machine},
};
use stepwell_protocol::{Code, Problem, json};

use crate::{
    log,
    object::{self, Answering, Fault, Kind, Loaded},
    settings::{Deployment, is_metered},
    terms::KnownTerms,
    zones::Runtime,
};
use store::Store;

/// A station that was just loaded.
pub fn load(loaded: Loaded, address: Address) -> Result<Rc<Host>, Fault> {
    let store = Store::new(loaded.storage.clone(), is_metered(&loaded.env));
    let deployment =
        Deployment::known(&loaded.env).map_err(|wrong| Problem::new(Code::Misconfigured, wrong))?;
    let machine = Machine::new(address.name.clone(), Rc::new(Runtime), deployment.pool.clone());
    Ok(Host::new(loaded, store, machine, Schedules { address, known: KnownTerms::default() }))
}

/// What the files of this host share.
pub type Host = object::Host<Schedules>;

/// What a station of schedules has besides its machine and its rows.
pub struct Schedules {
    /// Where it is.
    address: Address,
    /// What it remembers of the app and of the catalog.
    known: KnownTerms,
}

impl Kind for Schedules {
    type Store = Store;
    type Machine = Machine;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Start(start) => host.start(*start),
                Order::Cancel { schedule, run } => host.cancel(schedule, run),
                Order::Look { schedule, run } => host.look(schedule, run),
                Order::Report(id) => {
                    log::error!("the schedule '{id}' cannot be read; it does not tick");
                }
            }
        }
    }

    fn answer(host: Rc<Host>, call: &str) -> Answering {
        let call = json::from_str(call);
        Box::pin(async move { host.answer(call).await })
    }

    fn count_rows(store: &Store, rows: u64) {
        store.tables.count_rows(rows);
    }
}
