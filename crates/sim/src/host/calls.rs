//! Cells as a kind of object that is hosted, and the calls of programs that their host keeps in memory.

use std::collections::BTreeMap;

use stepwell_core::{
    cell::Cell,
    run::{Entry, Phase, Transport},
    stream::Reader,
};
use stepwell_protocol::{Epoch, Place, Seq, Timestamp};

use super::{Batch, Host, Instance, Simulated};
use crate::{
    store::Store,
    tables::{Tables, Write},
};

/// Cells.
#[derive(Clone, Copy, Debug)]
pub struct Cells;

impl Simulated for Cells {
    type Machine = Cell;
    type Rows = Store;
    type Disk = Tables;
    type Own = Calls;
}

/// What a cell's host has in memory.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Programs that were called and have not ended, by run.
    pub calls: BTreeMap<u64, (Epoch, u32)>,
    /// The first activation of each run that this instance has called.
    pub first: BTreeMap<u64, Epoch>,
    /// Runs whose call has ended, and the batch that says so.
    pub ending: Vec<(u64, u64)>,
    /// Programs that listen, by run.
    pub listeners: BTreeMap<u64, Vec<Listener>>,
    /// When whoever holds the call of a leased activation last said that it is at work, by run.
    pub beats: BTreeMap<u64, (Epoch, Timestamp)>,
    /// Requests that wait for a run's end.
    pub waiters: BTreeMap<u64, Vec<u32>>,
    /// Clients that follow a run, and how far they have come; nothing, once they are sent that it is over.
    pub readers: BTreeMap<Connection, Option<Reader>>,
}

/// A program that listens.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// The program.
    pub program: u32,
    /// Its call.
    pub call: u32,
    /// Its run.
    pub number: u64,
    /// Its activation.
    pub epoch: Epoch,
    /// What it knows.
    pub after: Seq,
}

/// A client's connection to an instance, on which it follows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// The client.
    pub follower: usize,
    /// Which of its connections.
    pub nth: u32,
}

impl<M: Clone> Instance<Cells, M> {
    /// Runs whose call has ended, which is not durable yet.
    pub fn still_ending(&self) -> impl Iterator<Item = u64> {
        self.own.ending.iter().filter(|(_, batch)| *batch > self.flushed).map(|(number, _)| *number)
    }

    /// What was written last says that the call of a run's program is over.
    pub fn call_is_ending(&mut self, number: u64) {
        let (written, flushed) = (self.written, self.flushed);
        self.own.ending.retain(|(_, batch)| *batch > flushed);
        self.own.ending.push((number, written));
    }

    /// A run's program is called.
    pub fn called(&mut self, number: u64, epoch: Epoch, name: u32) {
        self.own.first.entry(number).or_insert(epoch);
        self.own.calls.insert(number, (epoch, name));
    }

    /// The call of a run's program is over.
    pub fn call_is_over(&mut self, number: u64, epoch: Epoch) -> Option<u32> {
        let (_, name) = self.own.calls.get(&number).copied().filter(|(of, _)| *of == epoch)?;
        self.own.calls.remove(&number);
        Some(name)
    }
}

impl<M: Clone> Host<Cells, M> {
    /// The runs that the disk takes for called by this instance, and since when.
    pub fn called_by(&self, place: &Place, instance: &Instance<Cells, M>) -> Vec<(u64, Timestamp)> {
        let calls = instance.own.calls.iter().map(|(number, (epoch, _))| (*number, *epoch));
        let mut called: Vec<_> =
            calls.chain(instance.still_ending().map(|number| (number, Epoch(0)))).collect();
        called.sort_unstable();
        called.dedup_by_key(|(number, _)| *number);
        let since = |(number, epoch)| {
            let run = self.disk.run(place, number)?;
            // The disk may know only of an activation by an earlier instance: this one was not called by its word.
            let first = instance.own.first.get(&number);
            // And it may know of a later one, by a consumer, while a call of this instance hangs.
            let is_this =
                epoch == Epoch(0) || first.is_some_and(|first| *first <= run.epoch) && run.epoch <= epoch;
            match run.phase {
                Phase::Running { since, .. } if is_this => Some((number, since)),
                Phase::Running { .. }
                | Phase::Pending { .. }
                | Phase::Suspended
                | Phase::Paused { .. }
                | Phase::Ended { .. } => None,
            }
        };
        called.into_iter().filter_map(since).collect()
    }
}

/// The runs whose rows say, by this batch, that their programs are called, whether that was still ordered or not.
pub fn was_called(batch: &Batch<Write>) -> impl Iterator<Item = u64> {
    let is_call = |entry: &Entry| matches!(entry, Entry::Activated { slot, .. } if slot.session == Transport::Capability);
    let called = batch.writes.iter().filter(move |write| write.is_new || write.entries.iter().any(is_call));
    called.map(|write| write.number)
}

/// Memory is a cache of rows: whoever asks either must hear the same. Says how they differ, if they do.
pub fn differs<M: Clone>(instance: &Instance<Cells, M>, batch: &Batch<Write>) -> Option<String> {
    if instance.store.is_broken() {
        return None;
    }
    let mut wrong = None;
    for write in &batch.writes {
        let stored = instance.store.peek(write.number).filter(|run| !run.deleting);
        let Some(stored) = stored else { continue };
        match instance.machine.find(&instance.store, &stored.id) {
            Ok(mut kept) => {
                if let Phase::Running { lease, .. } = &mut kept.phase {
                    *lease = None;
                }
                // What it has cost is counted in memory and stored with the next write.
                kept.spent = stored.spent;
                // So is that nothing is left of its earlier lives.
                kept.remains = kept.remains.or(stored.remains);
                // So is its last error.
                kept.last_error.clone_from(&stored.last_error);
                if kept != *stored {
                    wrong = Some(format!("run {}: memory {kept:?} and rows {stored:?} differ", write.number));
                }
            }
            Err(_) => wrong = Some(format!("run {} is gone from its own instance", write.number)),
        }
    }
    wrong
}
