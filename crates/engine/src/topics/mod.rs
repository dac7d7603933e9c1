//! The host of topics: what is around `stepwell_core::topic`.
//!
//! Owns: the rows in SQLite, and the questions to cells. Decides nothing.

mod requests;
mod starts;
mod store;
mod webhooks;

use std::rc::Rc;

use stepwell_core::{
    object::Address,
    topic::{Order, Topic as Machine},
};
use stepwell_protocol::{Code, Problem, json};

use crate::{
    keyring::Keyring,
    object::{self, Answering, Fault, Kind, Loaded},
    settings::{Deployment, is_metered},
    terms::KnownTerms,
};
use store::Store;

/// A station that was just loaded.
pub fn load(loaded: Loaded, address: Address) -> Result<Rc<Host>, Fault> {
    let store = Store::new(loaded.storage.clone(), is_metered(&loaded.env));
    let deployment =
        Deployment::known(&loaded.env).map_err(|wrong| Problem::new(Code::Misconfigured, wrong))?;
    let keys = Keyring::of(&loaded.env).of_hooks(&address.namespace, deployment.url.clone());
    let machine = Machine::new(address.name.clone(), deployment.pool.clone()).with_keys(keys);
    Ok(Host::new(loaded, store, machine, Topic { address, known: KnownTerms::default() }))
}

/// What the files of this host share.
pub type Host = object::Host<Topic>;

/// What a topic has besides its machine and its rows.
pub struct Topic {
    /// Where it is.
    address: Address,
    /// What it remembers of the app and of the catalog.
    known: KnownTerms,
}

impl Kind for Topic {
    type Store = Store;
    type Machine = Machine;

    fn perform(host: &Rc<Host>, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Start(start) => host.start(*start),
                Order::Meet(meeting) => host.meet(*meeting),
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
