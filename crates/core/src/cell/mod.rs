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

mod alarm;
mod drive;
mod requests;
mod rows;
mod session;

use std::collections::BTreeMap;

use stepwell_protocol::{Epoch, Payload, Timestamp, rest::RunView};

pub use requests::{NewRun, Started};
pub use rows::{Fault, KeyRow, Rows, StoredRun};

use crate::{run::Run, window::Window};

/// How long a dead cell stays unnoticed at the most, if nobody asks it anything.
pub const DEAD_MAN_MS: u64 = 5_000;

/// How many due runs one alarm takes up; the next alarm follows at once.
pub const ALARM_SLICE: usize = 256;

/// How long until a cell that could not do something looks again.
pub const LOOK_AGAIN_MS: u64 = 100;

/// A cell as it is kept in memory.
#[derive(Debug)]
pub struct Cell {
    /// The runs that are pending or running, and no others.
    runs: BTreeMap<u64, Run>,
    /// What new runs were started with, until their first call.
    inputs: BTreeMap<u64, Payload>,
    window: Window,
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
    /// The number of the latest run.
    last_number: Option<u64>,
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
    /// Let a program that listens look for news.
    TellProgram(u64),
    /// Tell whoever waits for a run's end: this is it.
    TellEnd(Box<RunView>),
}

impl Cell {
    /// A cell that has looked at nothing yet, with a window of this many places.
    pub fn new(window: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            inputs: BTreeMap::new(),
            window: Window::new(window),
            armed: None,
            arm_at_once: false,
            scanned: (Timestamp::default(), 0),
            latest: Timestamp::default(),
            repaired: false,
            last_number: None,
            orders: Vec::new(),
        }
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

    /// How many programs are called at present.
    pub fn calls(&self) -> usize {
        self.window.held()
    }

    /// The time, which never goes back while this instance lives.
    fn now(&mut self, clock: Timestamp) -> Timestamp {
        self.latest = self.latest.max(clock);
        self.latest
    }
}
