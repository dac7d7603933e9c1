//! What a catalog has done about the deletion of a namespace: it asks the namespace's own catalog, which empties cells and
//! stations, and at the end itself.

use std::rc::Rc;

use futures::stream::{self, StreamExt as _};
use stepwell_core::{
    catalog::{Batch, Deletion, Emptied, Input},
    object::Address,
};

use super::{Host, TOLD_AT_ONCE};
use crate::{
    calls::catalog::{Call, Request, ask},
    log,
    object::{self, Fault, StoreError, Word, in_time},
    runtime,
    settings::{DEFAULT_NAMESPACE, DEFAULT_POOL, Deployment},
};

/// What was emptied, in the order in which it is heard of.
enum Part {
    Cell(u32, bool),
    Station(stepwell_core::catalog::Station, bool),
}

impl Host {
    /// Asks the catalogs of namespaces to delete what there is of these lives.
    pub(super) async fn delete_namespaces(self: Rc<Self>, names: Vec<(String, u64)>) {
        let cells = match self.cells() {
            Ok(cells) => cells,
            Err(fault) => return log::error!("no namespace was deleted: {fault}"),
        };
        let asked = stream::iter(names).map(|(name, life)| {
            let (host, cells) = (self.clone(), cells.clone());
            async move {
                let request = Request::Delete { life, pool: DEFAULT_POOL.to_owned(), cells };
                match in_time(ask(&host.env, &Call::new(&name, request))).await {
                    Ok((200, body)) => match stepwell_protocol::json::from_str::<Option<Deletion>>(&body) {
                        Ok(None) => host.record(Input::NamespaceGone { name, life }),
                        // It is asked again.
                        Ok(Some(_)) => {}
                        Err(error) => log::error!("the catalog of {name} said: {error}"),
                    },
                    Ok((status, _)) => {
                        log::error!("{name} is still to be deleted: {status}");
                    }
                    Err(thrown) => {
                        let why = runtime::message(&thrown);
                        log::error!("{name} is still to be deleted: {why}");
                    }
                }
            }
        });
        asked.buffer_unordered(TOLD_AT_ONCE).collect::<Vec<()>>().await;
    }

    /// How many cells each generation of the pool has, oldest first. Whoever has grown it may know more than this Worker.
    fn cells(self: &Rc<Self>) -> Result<Vec<u32>, Fault> {
        let known = self.turn(|desk, store, _| Ok(desk.catalog(store)?.pool().to_vec()))?;
        let own = Deployment::of(&self.env).map_err(StoreError::Refused)?.pool.cells();
        Ok(if known.len() > own.len() { known } else { own })
    }

    /// Empties cells and stations, and lets the machine hear of it.
    pub(super) fn empty_batch(self: &Rc<Self>, Batch { life, cells, stations }: Batch) {
        let host = self.clone();
        self.go_on_with(async move {
            let namespace = match host.store.namespace() {
                Ok(Some(namespace)) if namespace != DEFAULT_NAMESPACE => namespace,
                Ok(_) => return,
                Err(error) => return log::error!("nothing was emptied: {error}"),
            };
            let of_cells = cells.into_iter().map(|(cell, place)| {
                (
                    Some(Address::cell(&namespace, &place)),
                    Box::new(move |ok| Part::Cell(cell, ok)) as Box<dyn FnOnce(bool) -> Part>,
                )
            });
            let of_stations = stations.into_iter().map(|station| {
                let address = station.address(&namespace);
                (address, Box::new(move |ok| Part::Station(station, ok)) as Box<dyn FnOnce(bool) -> Part>)
            });
            let all: Vec<_> = of_cells.chain(of_stations).collect();
            let told = stream::iter(all).map(|(address, part)| {
                let host = host.clone();
                async move { part(host.empty_one(address, life).await) }
            });
            let parts: Vec<_> = told.buffer_unordered(TOLD_AT_ONCE).collect().await;
            let mut emptied = Emptied { life, ..Emptied::default() };
            for part in parts {
                match part {
                    Part::Cell(cell, true) => drop(emptied.cells.insert(cell)),
                    Part::Cell(cell, false) => drop(emptied.silent.insert(cell)),
                    Part::Station(station, true) => emptied.stations.push(station),
                    Part::Station(_, false) => {}
                }
            }
            let heard = host.turn(|desk, store, now| Ok(desk.emptied(store, now, emptied)?));
            if let Err(fault) = heard {
                log::error!("what was emptied is emptied again: {fault}");
            }
        });
    }

    async fn empty_one(&self, address: Option<Address>, life: u64) -> bool {
        // A station of a kind that only a newer release knows waits for that release.
        let Some(address) = address else { return false };
        match in_time(object::tell(&self.env, &address, Word::Empty { life })).await {
            Ok((200, _)) => true,
            Ok((status, _)) => {
                log::error!("{address} is still to be emptied: {status}");
                false
            }
            Err(thrown) => {
                log::error!("{address} is still to be emptied: {}", runtime::message(&thrown));
                false
            }
        }
    }

    /// Nothing but this catalog is left of its namespace: empties it like the others. The deployment's catalog asks again,
    /// and finds nothing here: so the name is free only when this instance has ended.
    pub(super) fn clear(self: &Rc<Self>, life: u64) {
        let host = self.clone();
        self.go_on_with(async move {
            let is_last = host.turn(|desk, store, _| Ok(desk.is_last(store, life)?));
            let cleared = match is_last {
                Ok(true) => host.empty(life).await,
                Ok(false) => Ok(()),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = cleared {
                log::error!("a catalog is still to be deleted: {fault}");
            }
        });
    }
}
