//! An object's place in a world: its host, and what the platform under it is about to do.

use std::ops::{Deref, DerefMut};

use stepwell_protocol::{Place, Timestamp};

use super::events::Outgoing;
use crate::host::{Host, Simulated};

/// When the world begins.
pub const BEGINNING_MS: u64 = 1_700_000_000_000;

/// What a clock shows when worlds begin, if nobody has set it.
pub const FIRST_MS: u64 = BEGINNING_MS + DAY_MS;

/// An object's place.
pub struct Site<K: Simulated, P = Place> {
    /// Where it is.
    pub place: P,
    /// The host.
    pub host: Host<K, Outgoing>,
    /// The platform under it.
    pub platform: Platform,
}

/// The platform under one object.
#[derive(Clone, Debug)]
pub struct Platform {
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
    /// Whether the next instance dies with its first flush.
    pub crash_in_recovery: bool,
    /// Whether the next write is answered with an error.
    pub error_next: bool,
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

/// A clock that may be set back needs room.
const DAY_MS: u64 = 86_400_000;

impl<K: Simulated, P> Site<K, P> {
    /// An empty one.
    pub fn new(place: P) -> Self {
        let platform = Platform {
            late_ms: 0,
            early_ms: 0,
            offset_ms: DAY_MS,
            latest: Timestamp::default(),
            refuses_until_ms: 0,
            trap: None,
            crash_in_recovery: false,
            error_next: false,
            awaited: Vec::new(),
        };
        Self { place, host: Host::default(), platform }
    }

    /// The requests of clients whose answers wait for a commit of this instance.
    pub fn unanswered(&self, id: u64) -> Vec<u32> {
        let held = self.instance(id).into_iter().flat_map(|instance| &instance.held);
        held.filter_map(|(_, outgoing)| match outgoing {
            Outgoing::Response(request, _) => Some(*request),
            Outgoing::ToProgram(..)
            | Outgoing::Begin(_)
            | Outgoing::Nudge(..)
            | Outgoing::Dropped(_)
            | Outgoing::Ask(_)
            | Outgoing::Told(..)
            | Outgoing::Tell(_)
            | Outgoing::Forgot(_)
            | Outgoing::Letter(_)
            | Outgoing::Receipt(..)
            | Outgoing::Shown(..) => None,
        })
        .collect()
    }

    /// What its clock shows.
    pub fn clock(&mut self, now_ms: u64) -> Timestamp {
        self.platform.clock(now_ms)
    }

    /// When its clock will show this, in the world's time.
    pub fn world_time(&self, at: Timestamp) -> u64 {
        self.platform.world_time(at)
    }
}

impl Platform {
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

    /// Nothing of it is broken any more.
    pub fn heal(&mut self) {
        (self.trap, self.crash_in_recovery, self.error_next) = (None, false, false);
        (self.late_ms, self.early_ms, self.refuses_until_ms) = (0, 0, 0);
    }
}

impl<K: Simulated, P> Deref for Site<K, P> {
    type Target = Host<K, Outgoing>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl<K: Simulated, P> DerefMut for Site<K, P> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
    }
}
