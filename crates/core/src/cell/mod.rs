//! A cell: many runs, one alarm, one window. The loop that every change of a run goes through.
//!
//! Owns: which runs are at work, when the alarm must fire, which key has started which run, and what a
//! program is told. All of it is a cache of rows: a cell that is made anew from them goes on.
//! Does not own: the rows themselves ([`Rows`]), the calls of programs, and whoever waits for an answer.
//!
//! Everything here is synchronous. The host calls a method, which reads and commits rows, and then performs
//! the [`Order`]s that it gets back, in the same turn: so rows and alarm are one commit, and nothing goes out
//! before what it stands for is stored.
//!
//! Invariant: the alarm is never later than the earliest time at which a run is due.

mod access;
mod acts;
mod alarm;
mod counts;
mod drive;
mod keys;
mod live;
mod queued;
mod recent;
mod refusals;
mod requests;
mod retention;
mod room;
mod rows;
mod session;
mod telling;
mod unreadable;
mod watching;

use std::collections::{BTreeMap, BTreeSet};

use stepwell_protocol::{
    Epoch, Payload, Timestamp,
    program::{Budget, StepAtWork},
    rest::RunView,
};

pub use access::{Admission, REMEMBERED_MAX, REMEMBERED_MS, settled};
pub use acts::Action;
pub use counts::{COUNT_SLICE, Counted, Tally};
pub use drive::no_such_run;
pub use keys::{Reserved, scoped_key};
pub use live::{LIVE_MAX, LIVE_OF_WORKFLOW_MAX};
pub use queued::{Claim, NUDGE_AGAIN_MS, OVERFLOW_MS, QUEUED_MAX};
pub use recent::{LOOK_BACK, NONCES_MAX};
pub use requests::{NewRun, Started};
pub use retention::DELETE_SLICE;
pub use room::FULL_PERCENT;
pub use rows::{Fault, KeyRow, Rows, Slice, Sought, StoredKey, StoredRun, Trimmed};
pub use telling::{LINGER_MS, PUBLISHED_BYTES_MAX, TELL_EVERY_MS, TOLD_BYTES_MAX};
pub(crate) use unreadable::unreadable_journal;
pub use unreadable::{LOOK_AT_UNREADABLE_MS, readable_again, unreadable};

use self::{live::Live, queued::Nudges, telling::Telling, watching::Watching};
use crate::{
    run::{LEASE_MS, Phase, Run, SignalLimits},
    window::Window,
};

/// How long a dead cell stays unnoticed at the most, if nobody asks it anything.
pub const DEAD_MAN_MS: u64 = 5_000;

/// The longest time between two turns of a cell whose programs are at work: its alarm fires that often, or a little late.
/// Whatever is longer, the cell has not lived through.
pub const TURN_GAP_MS: u64 = 2 * DEAD_MAN_MS;

/// How many due runs one alarm takes up; the next alarm follows at once.
pub const ALARM_SLICE: usize = 256;

/// How long until a cell that could not do something looks again.
pub const LOOK_AGAIN_MS: u64 = 100;

/// How many programs are called before the alarm has to go on with it. One invocation may call only so many Workers,
/// and the end of a call may be what calls the next: a request or an alarm is a fresh invocation.
pub const CALLS_MAX: u32 = 30;

/// A cell as it is kept in memory.
#[derive(Debug)]
pub struct Cell {
    /// The runs that are running, and those that are due as far as there is room for them; no others.
    runs: BTreeMap<u64, Run>,
    /// How many due runs are in memory, and where the others are.
    live: Live,
    /// What new runs were started with, until their first call.
    inputs: BTreeMap<u64, Payload>,
    window: Window,
    /// What every activation may do.
    budget: Option<Budget>,
    /// How many signals each run is sent.
    signal_limits: SignalLimits,
    /// Programs that were called since the last request or alarm.
    calls_made: u32,
    /// The runs that wait for a consumer of the queue; nothing if the host has no queue.
    queue: Option<Nudges>,
    /// When the alarm is set for, as far as this instance knows.
    armed: Option<Timestamp>,
    /// Whether an alarm could not be set: the platform's may be any, so the next one has to look at all rows.
    arm_at_once: bool,
    /// Up to where due rows were looked at: wake time and run number.
    scanned: (Timestamp, u64),
    /// The latest time that was seen: the clock may be set back, a run's time never is.
    latest: Timestamp,
    /// Whether this instance has compared the alarm with the rows.
    repaired: bool,
    /// What the platform said that the alarm was set for when this instance was loaded.
    found: Option<Timestamp>,
    /// The number of the latest run.
    last_number: Option<u64>,
    /// The latest runs by their nonces.
    recent: recent::Recent,
    /// The room for new runs.
    room: room::Room,
    /// Runs that the storage has failed for.
    refusals: refusals::Refusals,
    /// How many alarms in a row could not read the rows.
    failed_alarms: u32,
    /// Runs whose time is over, to be deleted.
    expired: BTreeSet<u64>,
    /// Whether there are more of them in the rows.
    more_expired: bool,
    /// How much is deleted at once.
    delete_slice: Slice,
    /// How many runs there are, once somebody has asked.
    counted: Option<Counted>,
    /// Calls whose program has said something.
    reached: BTreeSet<(u64, Epoch)>,
    /// The latest activation of a run whose report the storage did not take.
    unstored: BTreeMap<u64, Epoch>,
    /// The steps that programs at work were last heard to run. Only for people to see: no row has them.
    steps: BTreeMap<u64, (Epoch, Vec<StepAtWork>)>,
    /// Who may ask.
    gate: access::Gate,
    /// What programs have published and is not stored yet.
    telling: Telling,
    /// Who follows which runs.
    watching: Watching,
    orders: Vec<Order>,
}

/// What the host has to do, in this order and in the same turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Set the alarm.
    Arm(Timestamp),
    /// Call a run's program, and say when the call is over.
    Call {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
    },
    /// Wait no longer for the end of a call: the run's next activation does not depend on it.
    GiveUp {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
    },
    /// Send a message to the queue: whoever gets it should claim this run.
    Nudge {
        /// The run's number.
        number: u64,
    },
    /// Let a program that listens look for news.
    TellProgram(u64),
    /// Tell whoever waits for a run's end: this is it.
    TellEnd(Box<RunView>),
    /// Call [`Cell::tell`] at this time. Only a timer: what it is for would be lost with the instance anyway.
    TellAt(Timestamp),
    /// Let whoever follows a run read on.
    TellReaders(u64),
    /// Let whoever follows all runs read on.
    TellCellReaders,
}

impl Cell {
    /// A cell that has looked at nothing yet, with a window of this many places.
    pub fn new(window: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            live: Live::default(),
            inputs: BTreeMap::new(),
            window: Window::new(window),
            budget: None,
            signal_limits: SignalLimits::default(),
            calls_made: 0,
            queue: None,
            armed: None,
            arm_at_once: false,
            scanned: (Timestamp::default(), 0),
            latest: Timestamp::default(),
            repaired: false,
            found: None,
            last_number: None,
            recent: recent::Recent::default(),
            room: room::Room::default(),
            refusals: refusals::Refusals::default(),
            failed_alarms: 0,
            expired: BTreeSet::new(),
            more_expired: false,
            delete_slice: DELETE_SLICE,
            counted: None,
            reached: BTreeSet::new(),
            unstored: BTreeMap::new(),
            steps: BTreeMap::new(),
            gate: access::Gate::default(),
            telling: Telling::default(),
            watching: Watching::default(),
            orders: Vec::new(),
        }
    }

    /// Bounds what one activation may do.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Bounds how many signals each run is sent.
    #[must_use]
    pub fn with_signal_limits(self, signal_limits: SignalLimits) -> Self {
        Self { signal_limits, ..self }
    }

    /// The same cell on a host that has a queue, or has none.
    #[must_use]
    pub fn with_queue(mut self, has_queue: bool) -> Self {
        self.queue = has_queue.then(Nudges::default);
        self
    }

    /// What the host has to do now. To be asked for after every call, whether it failed or not.
    #[must_use = "orders that are not performed are lost"]
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// The alarm could not be set: what was ordered does not hold.
    pub fn not_armed(&mut self) {
        self.armed = None;
        self.arm_at_once = true;
        self.repaired = false;
    }

    /// Whether [`Self::repair`] has still to be called.
    pub fn wants_repair(&self) -> bool {
        !self.repaired
    }

    /// Says what the platform believes the alarm to be set for. To be called before [`Self::repair`].
    pub fn found_alarm(&mut self, at: Option<Timestamp>) {
        self.found = at;
    }

    /// How many programs are called at present.
    pub fn calls(&self) -> usize {
        self.window.held()
    }

    /// Whether a call of this run's program is under way.
    pub fn is_called(&self, number: u64) -> bool {
        self.window.is_called(number)
    }

    /// The time, which never goes back while this instance lives. Each turn begins with it.
    fn now(&mut self, clock: Timestamp) -> Timestamp {
        let gap_ms = clock.as_millis().saturating_sub(self.latest.as_millis());
        if gap_ms > TURN_GAP_MS {
            self.stood_still(clock, gap_ms - TURN_GAP_MS);
        }
        self.latest = self.latest.max(clock);
        self.latest
    }

    /// The machine has stood still, or its clock was set forward. Whatever programs have said meanwhile comes after this
    /// turn, so none of them is silent yet.
    fn stood_still(&mut self, clock: Timestamp, ms: u64) {
        self.window.skip(ms);
        for run in self.runs.values_mut() {
            if let Phase::Running { lease: Some(until), .. } = &mut run.phase {
                *until = clock.plus_millis(LEASE_MS).max(*until);
            }
        }
    }
}
