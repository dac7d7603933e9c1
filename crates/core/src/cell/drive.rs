//! The one loop: decide, commit, apply, arm, order.

use std::rc::Rc;

use stepwell_protocol::{
    Code, Problem, Timestamp,
    program::Dispatch,
    rest::{Act, RunView},
};

use super::{
    CALLS_MAX, Cell, Mail, Order, Rows, alarm::next_look, counts::counts_as, failures::count_failure,
    lanes::is_by_program, totals::Before,
};
use crate::{
    object::{Fault, Hosted as _, LOOK_AGAIN_MS},
    run::{CallEnd, Decision, Effect, Entry, Input, Phase, Run, Slot, Transport, with_result},
    window::Ready,
};

impl Cell {
    /// Lets an input happen to a run: `input` gets the slot that is free for it, if one is.
    pub(super) fn drive<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        input: impl FnOnce(Option<Slot>) -> Input,
    ) -> Result<Decision, Fault<R::Error>> {
        self.drive_by(rows, now, number, None, input)
    }

    /// The same on somebody's behalf, who is remembered if anything changes.
    pub(super) fn drive_by<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        number: u64,
        act: Option<Act>,
        input: impl FnOnce(Option<Slot>) -> Input,
    ) -> Result<Decision, Fault<R::Error>> {
        let run = self.run(rows, number)?;
        self.drive_run(rows, now, run, act, input)
    }

    /// The same for a run that was read already.
    pub(super) fn drive_run<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: Rc<Run>,
        act: Option<Act>,
        input: impl FnOnce(Option<Slot>) -> Input,
    ) -> Result<Decision, Fault<R::Error>> {
        self.drive_mail(rows, now, run, act, None, input)
    }

    /// The same, with the end of a letter that has arrived.
    pub(super) fn drive_mail<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: Rc<Run>,
        act: Option<Act>,
        done: Option<u64>,
        input: impl FnOnce(Option<Slot>) -> Input,
    ) -> Result<Decision, Fault<R::Error>> {
        let number = run.id.number;
        let driven = self.record(rows, now, run, act, done, input);
        if let Err(Fault::Storage(_)) = &driven {
            self.refusals.note(now, number);
        }
        driven
    }

    fn record<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: Rc<Run>,
        act: Option<Act>,
        done: Option<u64>,
        input: impl FnOnce(Option<Slot>) -> Input,
    ) -> Result<Decision, Fault<R::Error>> {
        let mut run = self.release(rows, now, run)?;
        let slot = if self.may_go(&run) { self.slot(now, &run.workflow, run.dispatch) } else { None };
        let (ticket, was_leased) = (run.ticket(), run.is_leased());
        let step_tickets: Vec<_> =
            run.step_tickets().map(|(lane, ticket)| (lane.to_owned(), ticket)).collect();
        let mut decision = run.decide(now, input(slot))?;
        if !decision.entries.is_empty() {
            decision.entries.extend(act.map(Entry::ActedOn));
        }
        let outgoing = std::mem::take(&mut decision.outgoing);
        let mail = Mail { post: self.mail_of(rows, now, &run, &mut decision.entries, outgoing)?, done };
        let counted_as = counts_as(&run);
        let spans = self.spans_of(&run, &decision.entries);
        if !decision.entries.is_empty() {
            // A copy, as memory has the run as it was: if this cannot be stored, it stays so.
            let next = Rc::make_mut(&mut run);
            let counted = Before::of(next, &decision.entries);
            let (before, status, head) = (next.wake_at(), next.status(), next.head);
            next.apply_all(&decision.entries);
            next.spend(before, &decision.entries);
            next.spend_mail(&mail);
            self.watching.stamp(now, next, status, &decision.entries);
            if self.publishing.is_last_word_of(next) {
                self.tell_all(rows, now, head, next)?;
            }
            if decision.entries.iter().any(Entry::is_stored) {
                rows.commit(next, before, &decision.entries, &mail)
                    .map_err(|error| self.lose_count(error))?;
                self.count_entries(&counted, next, &decision.entries);
                self.keep_spans(now, spans);
                self.tell_lines(next, &decision.entries);
                self.store_totals_beside(rows, now, next);
                count_failure(rows, now, next, &decision.entries);
                self.posted(&mail.post);
                if self.refusals.clear(next.id.number) {
                    // Alarms have passed it over; whatever it waits for may be due since.
                    self.look_again(now);
                }
                self.tell_readers(next, status);
                self.look_after_remains(next, &decision.entries);
            }
            self.recount(next, counted_as, counts_as(next));
        }
        if let Some(letter) = mail.done.filter(|_| decision.entries.is_empty()) {
            rows.forget_letter(letter).map_err(Fault::Storage)?;
        }
        self.settle(now, &run, &decision);
        // Whoever has its call and was not heard of for too long is taken for dead.
        let is_stopped = matches!(run.phase, Phase::Paused { .. } | Phase::Ended { .. });
        let is_by_program = is_by_program(&decision.entries);
        let is_consumed = was_leased && is_stopped && !is_by_program;
        self.give_back(now, &run, ticket, is_consumed);
        self.give_steps_back(now, &run, step_tickets, is_by_program, is_consumed);
        Ok(decision)
    }

    /// After a commit: memory, alarm, orders.
    pub(super) fn settle(&mut self, now: Timestamp, run: &Rc<Run>, decision: &Decision) {
        if let Some(at) = next_look(now, run) {
            self.object.arm_by(now, at);
        }
        self.remember(now, run);
        if decision.entries.iter().any(|entry| matches!(entry, Entry::OpenChanged(_))) {
            self.ask_for_steps(now, run);
        }
        let number = run.id.number;
        for effect in &decision.effects {
            match effect {
                // Whoever has claimed it calls its program.
                Effect::Activate { .. } if run.is_leased() => {}
                Effect::Activate { epoch } => {
                    self.calls_made += 1;
                    self.window.enter(now, number, *epoch, &run.workflow, run.wants_to_be_alone());
                    self.object.order(Order::Call { number, epoch: *epoch });
                }
                Effect::Enqueue => {
                    // One that is not due yet waits for the alarm, one that found no room for its turn.
                    if self.runs.contains_key(&number) {
                        self.wait_for_a_place(now, run);
                    }
                }
                Effect::TellProgram => self.object.order(Order::TellProgram(number)),
                Effect::TellEnd => {
                    let view = with_result(RunView::from(&**run), &decision.entries);
                    self.object.order(Order::TellEnd(Box::new(view)));
                }
            }
        }
    }

    /// A run is due, and nobody calls its program yet.
    fn wait_for_a_place(&mut self, now: Timestamp, run: &Run) {
        if !self.may_go(run) {
            self.lanes.want(run);
            return;
        }
        let (number, workflow, alone) = (run.id.number, run.workflow.clone(), run.wants_to_be_alone());
        if !self.goes_by_queue(run.dispatch) {
            let priority = run.lane.as_ref().map_or(0, |lane| lane.priority);
            self.window.enqueue(now, Ready { number, workflow, alone, priority });
        }
        self.wait_for_a_consumer(now, run);
    }

    /// After a commit: what memory keeps of the run.
    fn remember(&mut self, now: Timestamp, run: &Rc<Run>) {
        self.keep(now, run);
        let waits = matches!(run.phase, Phase::Pending { .. }) && self.runs.contains_key(&run.id.number);
        if !waits {
            self.wait_no_more(run.id.number);
        }
        if !matches!(run.phase, Phase::Running { .. }) {
            self.unstored.remove(&run.id.number);
        }
        // Whoever had the window to itself and has made progress lets others in.
        if !run.wants_to_be_alone() {
            self.window.clear(now, run.id.number, run.epoch);
        }
    }

    /// Gives free places to those who wait. To be called at the end of whatever may have freed one.
    pub(super) fn dispatch<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        if self.give_places(rows, now).is_err() {
            // The rows are still due: the alarm will find them.
            self.look_again(now);
        }
        self.offer_left_out(now);
        if self.calls_made >= CALLS_MAX && self.window.has_ready() {
            // The alarm goes on with them.
            self.object.arm_by(now, now);
        } else if let Some(at) = self.window.next_change(now) {
            self.object.arm_by(now, at);
        }
        self.ask_lanes(now);
        self.send_mail(rows, now);
    }

    fn give_places<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let mut given = self.refill(rows, now);
        while self.calls_made < CALLS_MAX
            && let Some(ready) = self.window.take_next(now)
        {
            let slot = Slot { session: Transport::Capability, alone: self.window.is_quiet(now) };
            let driven = self.drive(rows, now, ready.number, |_| Input::Activate(slot)).map(drop);
            given = given.and(driven).and_then(|()| self.refill(rows, now));
        }
        given
    }

    /// The call of a run's program is over.
    pub fn call_ended<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: stepwell_protocol::Epoch,
        end: CallEnd,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.window.leave(now, number, epoch);
        let is_last = !self.window.is_called(number);
        self.lanes.call_ended(number, epoch, is_last);
        self.inputs.remove(&number);
        let is_unstored = self.unstored.remove(&number) == Some(epoch);
        let end = match end {
            // A program that got an error for an answer may end in any way.
            CallEnd::Returned | CallEnd::Threw(_) | CallEnd::Lost(_) | CallEnd::Died(_) if is_unstored => {
                self.reached.remove(&(number, epoch));
                CallEnd::Unstored
            }
            CallEnd::Lost(message) if self.reached.remove(&(number, epoch)) => CallEnd::Died(message),
            CallEnd::Returned
            | CallEnd::Threw(_)
            | CallEnd::Lost(_)
            | CallEnd::Died(_)
            | CallEnd::Unstored
            | CallEnd::Silent
            | CallEnd::Refused(_) => {
                self.reached.remove(&(number, epoch));
                end
            }
        };
        // A listener of that call would wait for ever.
        self.object.order(Order::TellProgram(number));
        // What this instance has called is in memory for as long as somebody has to be at work on it: a run that is
        // not has ended or sleeps, and need not be read again to find that out.
        let ended = if self.runs.contains_key(&number) {
            self.drive(rows, now, number, |_| Input::ActivationEnded { epoch, end }).map(drop)
        } else {
            Ok(())
        };
        if ended.is_err() {
            self.look_again(now);
        }
        self.dispatch(rows, now);
        ended
    }

    /// Gives up on calls that nothing was heard of for too long: their places are free, and their runs are called again.
    pub(super) fn end_silent_calls<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
    ) -> Result<(), Fault<R::Error>> {
        let mut ended = Ok(());
        for (number, epoch) in self.window.silent(now) {
            self.object.order(Order::GiveUp { number, epoch });
            ended = ended.and(self.call_ended(rows, now, number, epoch, CallEnd::Silent));
        }
        ended
    }

    /// Looks at all due rows anew.
    pub(super) fn look_again(&mut self, now: Timestamp) {
        self.scanned = (Timestamp::default(), 0);
        self.object.arm_by(now, now.plus_millis(LOOK_AGAIN_MS));
    }

    /// A run from memory or from its rows.
    pub(super) fn run<R: Rows>(&self, rows: &R, number: u64) -> Result<Rc<Run>, Fault<R::Error>> {
        if let Some(run) = self.runs.get(&number) {
            return Ok(run.clone());
        }
        Self::load(rows, number)?.map(Rc::new).ok_or_else(no_such_run)
    }

    /// The slot that a run of this workflow could have at once.
    pub(super) fn slot(&self, now: Timestamp, workflow: &str, dispatch: Dispatch) -> Option<Slot> {
        if self.calls_made >= CALLS_MAX || self.goes_by_queue(dispatch) {
            return None;
        }
        self.window.offers(now, workflow).map(|alone| Slot { session: Transport::Capability, alone })
    }
}

/// There is no such run, or not for whoever asks.
pub fn no_such_run<E>() -> Fault<E> {
    let detail =
        "There is no run with this id. Check that the id is complete and belongs to this deployment.";
    Fault::Rejected(Problem::new(Code::RunNotFound, detail))
}
