//! A cell's place: its disk, its alarm, its clock, and the instances that take it for theirs.

use std::collections::{BTreeMap, VecDeque};

use stepwell_core::cell::Cell as Machine;
use stepwell_protocol::{Epoch, Place, Timestamp};

use super::events::{Listener, Outgoing};
use crate::{
    store::Store,
    tables::{Batch, Tables},
};

/// When the world begins.
pub const BEGINNING_MS: u64 = 1_700_000_000_000;

/// A cell's place.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault of its own, and they go together in any way"
)]
pub struct Site {
    /// Where it is.
    pub place: Place,
    /// What is durable.
    pub disk: Tables,
    /// When the platform will call the alarm.
    pub alarm: Option<Timestamp>,
    /// Whether the alarm is being handled, and that is not durable yet.
    pub firing: bool,
    /// How often the alarm has failed in a row.
    pub alarm_failures: u32,
    /// Whether the alarm was taken away, and no request has come since.
    pub alarm_lost: bool,
    /// How much the next alarm is late.
    pub late_ms: u64,
    /// How much the next alarm is early.
    pub early_ms: u64,
    /// How much its clock is ahead, from a day.
    pub offset_ms: u64,
    /// The latest that its clock has ever shown.
    pub latest: Timestamp,
    /// Until when nothing can be written, in the world's time.
    pub refuses_until_ms: u64,
    /// What happens at the next flush.
    pub trap: Option<Trap>,
    /// How many flushes of fresh instances are to fail.
    pub crash_in_recovery: bool,
    /// Whether the next write is answered with an error.
    pub error_next: bool,
    /// Whoever has the name.
    pub live: Option<Instance>,
    /// Whoever has lost it and does not know.
    pub stale: Option<Instance>,
    /// How many instances there were.
    pub instances: u64,
    /// Programs that the alarm waits for: only a planted bug makes it.
    pub awaited: Vec<u32>,
}

/// What happens at the next flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// The instance dies before.
    Before,
    /// The instance dies after.
    After,
    /// The instance dies after the first one that an answer to a client waits for. The platform delivers the call that
    /// got no answer again, to the next instance.
    Unanswered,
}

/// An instance of a cell: the machine, and what is lost when it dies.
pub struct Instance {
    /// Which one of the site.
    pub id: u64,
    /// The machine.
    pub machine: Machine,
    /// What it sees of the disk.
    pub store: Store,
    /// What it has written and the disk has not.
    pub pending: VecDeque<Batch>,
    /// How many batches it has written.
    pub written: u64,
    /// How many of them are durable.
    pub flushed: u64,
    /// What waits for its batch to be durable.
    pub held: VecDeque<(u64, Outgoing)>,
    /// Programs that listen, by run.
    pub listeners: BTreeMap<u64, Vec<Listener>>,
    /// Requests that wait for a run's end.
    pub waiters: BTreeMap<u64, Vec<u32>>,
    /// Programs that were called and have not ended.
    pub calls: BTreeMap<u64, (Epoch, u32)>,
    /// Runs whose call has ended, and the batch that says so.
    pub ending: Vec<(u64, u64)>,
    /// The latest that it has seen.
    pub latest: Timestamp,
}

impl Instance {
    /// The requests of clients whose answers wait for a commit.
    pub fn unanswered(&self) -> Vec<u32> {
        let held = self.held.iter().map(|(_, outgoing)| outgoing);
        held.filter_map(|outgoing| match outgoing {
            Outgoing::Response(request, _) => Some(*request),
            Outgoing::ToProgram(..) | Outgoing::Begin(_) | Outgoing::Nudge(..) | Outgoing::Dropped(_) => None,
        })
        .collect()
    }
}

/// A clock that may be set back needs room.
const DAY_MS: u64 = 86_400_000;

impl Site {
    /// An empty cell.
    pub fn new(place: Place) -> Self {
        Self {
            place,
            disk: Tables::default(),
            alarm: None,
            firing: false,
            alarm_failures: 0,
            alarm_lost: false,
            late_ms: 0,
            early_ms: 0,
            offset_ms: DAY_MS,
            latest: Timestamp::default(),
            refuses_until_ms: 0,
            trap: None,
            crash_in_recovery: false,
            error_next: false,
            live: None,
            stale: None,
            instances: 0,
            awaited: Vec::new(),
        }
    }

    /// What its clock shows.
    pub fn clock(&mut self, now_ms: u64) -> Timestamp {
        let clock = Timestamp::from_millis(BEGINNING_MS + now_ms + self.offset_ms);
        self.latest = self.latest.max(clock);
        clock
    }

    /// When its clock will show this, in the world's time.
    pub fn world_time(&self, at: Timestamp) -> u64 {
        at.as_millis().saturating_sub(BEGINNING_MS + self.offset_ms)
    }

    /// One of its instances.
    pub fn instance(&mut self, id: u64) -> Option<&mut Instance> {
        [&mut self.live, &mut self.stale].into_iter().flatten().find(|instance| instance.id == id)
    }

    /// Takes one of its instances away.
    pub fn remove(&mut self, id: u64) -> Option<Instance> {
        let of = |slot: &Option<Instance>| slot.as_ref().is_some_and(|instance| instance.id == id);
        if of(&self.live) {
            self.live.take()
        } else if of(&self.stale) {
            self.stale.take()
        } else {
            None
        }
    }

    /// The runs that the disk takes for called by this instance.
    pub fn called_by(&self, instance: &Instance) -> Vec<(u64, Timestamp)> {
        let ending =
            instance.ending.iter().filter(|(_, batch)| *batch > instance.flushed).map(|(number, _)| *number);
        let mut called: Vec<_> = instance.calls.keys().copied().chain(ending).collect();
        called.sort_unstable();
        called.dedup();
        let row = |number| self.disk.runs.get(&number).filter(|row| row.status == "running");
        called.into_iter().filter_map(|number| Some((number, began_at(&row(number)?.state)))).collect()
    }

    /// Whether this instance has lost the name.
    pub fn is_stale(&self, id: u64) -> bool {
        self.stale.as_ref().is_some_and(|instance| instance.id == id)
    }
}

/// When the activation of a run at work began, by its row.
fn began_at(state: &str) -> Timestamp {
    let state: serde_json::Value = serde_json::from_str(state).unwrap_or_default();
    Timestamp::from_millis(state["phase"]["running"]["since"].as_u64().unwrap_or_default())
}
