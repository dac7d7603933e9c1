//! The second way to a program: through a queue.
//!
//! A run that is due is *nudged*: the host sends one small message. Whoever consumes it *claims* the run, calls
//! its program, and carries what the program says to the cell, each time in a call of its own; so the cell holds
//! no call, and may sleep or die meanwhile. While it says nothing else, it *beats*; the cell waits a lease
//! ([`crate::run::LEASE_MS`]) to hear of it, then calls the program anew.
//!
//! Owns: who waits for a consumer, and when a message is sent again. The message is only a nudge: the rows are
//! the truth, so one that is lost, doubled or late does no harm.
//!
//! Who goes this way, on a host that has a queue: a run whose workflow asks for it, always; any other run once it
//! has waited [`OVERFLOW_MS`] for a place in the window, and then whoever comes first has it. A run under
//! suspicion goes the way of its workflow and no other: directly, it waits until the window is empty; through the
//! queue, until a consumer has nothing else under way. Neither keeps the other way closed: what a consumer calls
//! is not in the cell's hands.

use std::rc::Rc;

use stepwell_protocol::{
    Epoch, Seq, Timestamp,
    program::{Activation, Dispatch, RawPage},
};

use super::{Cell, Order, Rows};
use crate::{
    object::{Fault, Hosted as _},
    ordered::{OrdMap, OrdSet},
    run::{Input, Phase, Run, Slot, Transport},
    sorting::sort,
};

/// How many runs of a cell wait for a consumer at once. Others that are due wait in memory until there is room, or in the
/// rows until memory has room ([`super::live`]).
pub const QUEUED_MAX: usize = 1_000;

/// How long a run waits for a place in the window before it is offered to the queue. Most programs are done
/// sooner, and a message that nobody needs any more costs as much as one that somebody does.
pub const OVERFLOW_MS: u64 = 500;

/// When a message that nobody has followed is sent again. Each further one waits twice as long, up to four times
/// this: a long queue must not grow by its own length.
pub const NUDGE_AGAIN_MS: u64 = 10_000;

/// The runs that wait for a consumer.
#[derive(Clone, Debug, Default)]
pub(super) struct Nudges {
    waiting: OrdMap<u64, Waiting>,
    /// The same by when their next message is sent.
    by_time: OrdSet<(Timestamp, u64)>,
    /// Whether runs were left out because too many waited.
    overflowed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When the next message is sent.
    at: Timestamp,
    /// When the latest one was, and how many there were.
    sent: Option<(Timestamp, u32)>,
}

/// What a consumer gets for a claim.
#[derive(Clone, Debug)]
pub enum Claim {
    /// The run is its own: this is what the program is to be called with.
    Yours(Box<Activation<RawPage>>),
    /// There is nothing to do: somebody else has it, or it is not due.
    Nothing,
    /// The run is under suspicion: it should be claimed again when nothing else is under way.
    Alone,
}

impl Nudges {
    /// When the next message is to be sent.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|&(at, _)| at)
    }

    /// Whether there is room again for runs that were left out. Only when half of it is free: each time, memory is
    /// searched for them.
    fn has_room_again(&self) -> bool {
        self.overflowed && self.waiting.len() <= QUEUED_MAX / 2
    }

    fn wait(&mut self, number: u64, at: Timestamp) {
        if self.waiting.contains_key(&number) {
            return;
        }
        if self.waiting.len() < QUEUED_MAX {
            self.waiting.insert(number, Waiting { at, sent: None });
            self.by_time.insert((at, number));
        } else {
            self.overflowed = true;
        }
    }

    /// The runs whose message is to be sent by now.
    fn take_due(&mut self, now: Timestamp) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some(&(at, number)) = self.by_time.first()
            && at <= now
        {
            self.by_time.pop_first();
            let Some(waiting) = self.waiting.get_mut(&number) else { continue };
            let times = waiting.sent.map_or(0, |(_, times)| times);
            waiting.sent = Some((now, times + 1));
            waiting.at = now.plus_millis(NUDGE_AGAIN_MS << times.min(2));
            self.by_time.insert((waiting.at, number));
            due.push(number);
        }
        // In the order in which they were accepted.
        sort(&mut due);
        due
    }

    fn forget(&mut self, number: u64) {
        if let Some(waiting) = self.waiting.remove(&number) {
            self.by_time.remove(&(waiting.at, number));
        }
    }
}

impl Cell {
    /// Whether such runs are called through the queue, and in no other way.
    pub(super) fn goes_by_queue(&self, dispatch: Dispatch) -> bool {
        self.queue.is_some() && dispatch == Dispatch::Queued
    }

    /// A run that is due is offered to consumers: at once if it goes by the queue, else after a while.
    pub(super) fn wait_for_a_consumer(&mut self, now: Timestamp, run: &Run) {
        let (Some(queue), Some(at)) = (&mut self.queue, offered_at(now, run)) else { return };
        queue.wait(run.id.number, at);
        self.nudge_and_arm(now);
    }

    /// Offers runs that were left out to consumers, once there is room for them. They are in memory: whatever is not is
    /// offered when it is read.
    pub(super) fn offer_left_out(&mut self, now: Timestamp) {
        let Some(queue) = self.queue.as_mut().filter(|queue| queue.has_room_again()) else { return };
        queue.overflowed = false;
        let may_go = |run: &&Rc<Run>| !run.needs_ticket() || self.lanes.has_let_in(run);
        let pending = self.runs.values().filter(|run| matches!(run.phase, Phase::Pending { .. }));
        for run in pending.filter(may_go) {
            if let Some(at) = offered_at(now, run) {
                queue.wait(run.id.number, at);
            }
        }
        self.nudge_and_arm(now);
    }

    fn nudge_and_arm(&mut self, now: Timestamp) {
        self.nudge_due(now);
        // Should a message be lost, or the run find no place, the alarm is there to send another.
        if let Some(next) = self.queue.as_ref().and_then(Nudges::next) {
            self.object.arm_by(now, next);
        }
    }

    /// A run is not due any more, or somebody has it.
    pub(super) fn wait_no_more(&mut self, number: u64) {
        self.window.forget(number);
        self.lanes.forget(number);
        if let Some(queue) = &mut self.queue {
            queue.forget(number);
        }
    }

    /// Sends the messages whose time has come.
    pub(super) fn nudge_due(&mut self, now: Timestamp) {
        let due = self.queue.as_mut().map(|queue| queue.take_due(now)).unwrap_or_default();
        for number in due {
            self.object.order(Order::Nudge { number });
        }
    }

    /// A consumer has got a message and wants the run. `alone` says that it has nothing else under way.
    pub fn claim<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        alone: bool,
    ) -> Result<Claim, Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.run(rows, number)?;
        let is_due = matches!(run.phase, Phase::Pending { not_before } if not_before <= now);
        if !is_due || !self.may_go(&run) {
            return Ok(Claim::Nothing);
        }
        if run.wants_to_be_alone() {
            // One that is called directly has its turn when the window is empty.
            if !self.goes_by_queue(run.dispatch) {
                return Ok(Claim::Nothing);
            }
            if !alone {
                return Ok(Claim::Alone);
            }
        }
        let slot = Slot { session: Transport::Token, alone };
        self.drive(rows, now, number, |_| Input::Activate(slot))?;
        self.dispatch(rows, now);
        // It may have been too late for it.
        let run = self.run(rows, number)?;
        if run.is_leased() {
            Ok(Claim::Yours(Box::new(self.activation(rows, clock, number, run.epoch)?)))
        } else {
            Ok(Claim::Nothing)
        }
    }

    /// Whoever holds the call of an activation is alive. Refused if it need not go on.
    pub fn renew<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.drive(rows, now, number, |_| Input::Heard { epoch }).map(drop)
    }

    /// The journal after a position, for an activation that the cell does not hold the call of.
    pub fn page_for<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
        after: Seq,
    ) -> Result<RawPage, Fault<R::Error>> {
        self.renew(rows, clock, number, epoch)?;
        self.page(rows, number, epoch, after)
    }

    /// What people are told of a run that waits for a consumer.
    pub(super) fn waits_for_a_consumer(&self, now: Timestamp, run: &Run) -> Option<String> {
        let waiting = self.queue.as_ref()?.waiting.get(&run.id.number)?;
        let (at, times) = waiting.sent?;
        let ago = now.as_millis().saturating_sub(at.as_millis());
        Some(match run.dispatch {
            Dispatch::Queued => format!(
                "It is due, and waits for a consumer of the queue. Message {times} was sent {ago} ms ago."
            ),
            Dispatch::Direct => format!(
                "It is due, and waits for a place among the programs that its cell calls, or for a consumer of \
                 the queue. Message {times} was sent {ago} ms ago."
            ),
        })
    }
}

/// When a run that is due is first offered to consumers; never, if it must not be.
fn offered_at(now: Timestamp, run: &Run) -> Option<Timestamp> {
    match run.dispatch {
        Dispatch::Queued => Some(now),
        // It waits until the window is empty, and nowhere else.
        Dispatch::Direct if run.wants_to_be_alone() => None,
        Dispatch::Direct => Some(now.plus_millis(OVERFLOW_MS)),
    }
}
