//! A cell: many runs, one alarm, one window. The loop that every change of a run goes through.
//!
//! Owns: which runs are at work, when the alarm must fire, which key has started which run, and what a
//! program is told. All of it is a cache of rows: a cell that is made anew from them goes on.
//! Does not own: the rows themselves ([`Rows`]), the calls of programs, and whoever waits for an answer.
//!
//! Everything here is synchronous, and what it has in common with other kinds is [`crate::object`]: clock, alarm, and
//! how the host hears of [`Order`]s.

mod access;
mod acts;
mod alarm;
mod arrivals;
mod at_work;
mod callbacks;
mod counts;
mod drive;
mod events;
mod failures;
mod joins;
mod keys;
mod lanes;
mod lines;
mod live;
mod mail;
mod publishing;
mod queued;
mod recent;
mod refusals;
mod remains;
mod requests;
mod retention;
mod room;
mod rows;
mod session;
mod ticks;
mod tokens;
mod totals;
mod traces;
mod triggered;
mod unreadable;
mod watching;
use std::rc::Rc;

use stepwell_protocol::{Epoch, Payload, Timestamp, program::Budget, rest::RunView};

pub use access::{Admission, REMEMBERED_MAX, REMEMBERED_MS, Spans, settled};
pub use acts::Action;
pub use arrivals::Chance;
pub use counts::{COUNT_SLICE, Counted, Tally};
pub use drive::no_such_run;
pub use failures::{FAILURE_GROUPS_MAX, FAILURES_KEPT_MS, FailureRows};
pub use joins::{Joins, joins_by};
pub use keys::{Reserved, scoped_key};
pub use lanes::LaneQuestion;
pub use lines::{Level, Line};
pub use live::{LIVE_MAX, LIVE_OF_WORKFLOW_MAX};
pub use mail::{Mail, child_key};
pub use publishing::{LINGER_MS, PUBLISH_EVERY_MS, PUBLISHED_BYTES_MAX, PUBLISHED_ROW_BYTES_MAX};
pub use queued::{Claim, NUDGE_AGAIN_MS, OVERFLOW_MS, QUEUED_MAX};
pub use recent::{LOOK_BACK, NONCES_MAX};
pub use requests::{NewRun, Started, StartedAs};
pub use retention::DELETE_SLICE;
pub use rows::{JoinedRun, KeyRow, Rows, Slice, Sought, StoredKey, StoredRun, Trimmed};
pub use ticks::TickRun;
pub use tokens::{TOKEN_ACTOR, TokenAnswer, Unsigned};
pub use totals::{Happened, MINUTES_KEPT, NO_WORKFLOW, add_happened};
pub use traces::{SPAN_LINGER_MS, SPANS_MAX, Sampling, Span, SpansToSend};
pub use triggered::TriggeredRun;
pub(crate) use unreadable::unreadable_journal;
pub use unreadable::{LOOK_AT_UNREADABLE_MS, readable_again, unreadable};

use self::{lanes::Lanes, live::Live, publishing::Publishing, queued::Nudges, watching::Watching};
use crate::{
    object::{Hosted, Object},
    ordered::{OrdMap, OrdSet},
    pools::Pool,
    run::{LEASE_MS, Phase, Run, SignalLimits},
    window::Window,
};

/// How many due runs one alarm takes up; the next alarm follows at once.
pub const ALARM_SLICE: usize = 256;

/// How many programs are called before the alarm has to go on with it. One invocation may call only so many Workers,
/// and the end of a call may be what calls the next: a request or an alarm is a fresh invocation.
pub const CALLS_MAX: u32 = 30;

/// A cell as it is kept in memory.
#[derive(Clone, Debug)]
pub struct Cell {
    object: Object<Order>,
    /// The runs that are running, and those that are due as far as there is room for them; no others.
    runs: OrdMap<u64, Rc<Run>>,
    /// How many due runs are in memory, and where the others are.
    live: Live,
    /// What new runs were started with, until their first call.
    inputs: OrdMap<u64, Payload>,
    window: Window,
    /// Which of them were let in by their lanes, and what those are to be asked.
    lanes: Lanes,
    /// What every activation may do.
    budget: Option<Budget>,
    /// The cells that children go to; their own parent's, if that is not said.
    pool: Option<Pool>,
    /// How long a child is kept if its workflow does not say it; for ever, if that is not said.
    retention_ms: Option<u64>,
    /// How many signals each run is sent.
    signal_limits: SignalLimits,
    /// Programs that were called since the last request or alarm.
    calls_made: u32,
    /// The runs that wait for a consumer of the queue; nothing if the host has no queue.
    queue: Option<Nudges>,
    /// Up to where due rows were looked at: wake time and run number.
    scanned: (Timestamp, u64),
    /// The number of the latest run.
    last_number: Option<u64>,
    /// The latest runs by their nonces.
    recent: recent::Recent,
    /// The room for new runs.
    room: room::Room,
    /// Runs that the storage has failed for.
    refusals: refusals::Refusals,
    /// Runs whose time is over, to be deleted, and those whose earlier lives have left something behind.
    expired: OrdSet<u64>,
    /// Whether there are more of them in the rows.
    more_expired: bool,
    /// How much is deleted at once.
    delete_slice: Slice,
    /// How many runs there are, once somebody has asked.
    counted: Option<Counted>,
    /// What has happened to them, as far as it is not stored.
    unstored_totals: totals::Unstored,
    /// Calls whose program has said something.
    reached: OrdSet<(u64, Epoch)>,
    /// The latest activation of a run whose report the storage did not take.
    unstored: OrdMap<u64, Epoch>,
    /// The steps that programs at work were last heard to run. Only for people to see: no row has them.
    steps: OrdMap<u64, at_work::AtWork>,
    /// Who may ask.
    gate: access::Gate,
    /// What programs have published and is not stored yet.
    publishing: Publishing,
    /// Who follows which runs.
    watching: Watching,
    /// What is told to whoever collects traces, if anybody does.
    tracing: Option<traces::Tracing>,
    /// Up to which level lines are told.
    log_level: Level,
}

/// What the host has to do for a cell, in this order and in the same turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
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
    /// Ask a lane, and say what it answers.
    AskLane(Box<LaneQuestion>),
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
    /// Call [`Cell::take_spans`] at this time, and send what it gives. Only a timer: see [`Order::TellAt`].
    SendSpansAt(Timestamp),
    /// Write these lines to the log.
    Log(Vec<Line>),
}

impl Cell {
    /// A cell that has looked at nothing yet, with a window of this many places.
    pub fn new(window: usize) -> Self {
        Self {
            object: Object::new(),
            runs: OrdMap::new(),
            live: Live::default(),
            inputs: OrdMap::new(),
            window: Window::new(window),
            lanes: Lanes::default(),
            budget: None,
            pool: None,
            retention_ms: None,
            signal_limits: SignalLimits::default(),
            calls_made: 0,
            queue: None,
            scanned: (Timestamp::default(), 0),
            last_number: None,
            recent: recent::Recent::default(),
            room: room::Room::default(),
            refusals: refusals::Refusals::default(),
            expired: OrdSet::new(),
            more_expired: false,
            delete_slice: DELETE_SLICE,
            counted: None,
            unstored_totals: totals::Unstored::default(),
            reached: OrdSet::new(),
            unstored: OrdMap::new(),
            steps: OrdMap::new(),
            gate: access::Gate::default(),
            publishing: Publishing::default(),
            watching: Watching::default(),
            tracing: None,
            log_level: Level::Off,
        }
    }

    /// Bounds what one activation may do.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Spreads children over a pool, and keeps them for so long if their workflows do not say it.
    #[must_use]
    pub fn with_pool(self, pool: Pool, retention_ms: Option<u64>) -> Self {
        Self { pool: Some(pool), retention_ms, ..self }
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

    /// How many programs are called at present.
    pub fn calls(&self) -> usize {
        self.window.held()
    }

    /// Whether a call of this run's program is under way.
    pub fn is_called(&self, number: u64) -> bool {
        self.window.is_called(number)
    }
}

impl Hosted for Cell {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }

    fn begin(&mut self) {
        self.calls_made = 0;
    }

    /// Whatever programs have said meanwhile comes after this turn, so none of them is silent yet.
    fn stood_still(&mut self, clock: Timestamp, ms: u64) {
        self.window.skip(ms);
        for run in self.runs.values_mut() {
            if matches!(run.phase, Phase::Running { lease: Some(_), .. })
                && let Phase::Running { lease: Some(until), .. } = &mut Rc::make_mut(run).phase
            {
                *until = clock.plus_millis(LEASE_MS).max(*until);
            }
        }
    }
}
