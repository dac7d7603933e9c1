//! Runs that are under limits: which were let in, and what their lanes are asked and told.
//!
//! Owns: the questions to lanes. All of it is in memory only. A run that is due and was not let in is asked for again by
//! whichever instance comes next, and its lane knows its ticket; a lane that does not hear that a ticket is over asks.

use std::rc::Rc;

use stepwell_protocol::{
    Epoch, Timestamp,
    lane::{Ask, Hold, PRIORITY_MAX, Standing, Ticket},
};

use super::{Cell, Order, Rows};
use crate::{
    lane::limit_in_words,
    object::{ANSWER_MS, Fault, Hosted as _, pause_ms},
    ordered::{OrdMap, OrdSet},
    run::{Entry, IN_LINE_MS, Input, Phase, Run},
    window::SILENCE_MS,
};

/// How many runs one question to a lane is about.
const ASKS_MAX: usize = 256;

/// How many tickets that are over a lane is told of with one question. What is beyond, it finds out.
const OVER_MAX: usize = 1_024;

/// How long until a lane is asked again that has no room.
const LANE_FULL_MS: u64 = 5_000;

/// The same for a step, whose run is written for it.
const STEP_FULL_MS: u64 = 30_000;

/// The longest pause between two questions to a lane that does not answer.
const ASK_AGAIN_MS_MAX: u64 = 5_000;

/// What a lane is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneQuestion {
    /// The name of the lane.
    pub lane: String,
    /// Which question.
    pub flight: u64,
    /// Who wants to be let in.
    pub asks: Vec<Ask>,
    /// Whose tickets are over.
    pub over: Vec<Ticket>,
}

/// What a cell knows of lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    /// The tickets that were let in, by run.
    let_in: OrdMap<u64, u32>,
    /// Tickets that are over as soon as the calls of their runs are: by run, and of which of its steps, or its own (0).
    closing: OrdMap<(u64, u32), Closing>,
    words: OrdMap<String, Words>,
    last_flight: u64,
    /// The tickets of steps that an answer is just being heard about.
    hearing: OrdSet<Ticket>,
}

/// A ticket, and all earlier ones of its run, that is over when the run's call is.
#[derive(Clone, Debug)]
struct Closing {
    lane: String,
    ticket: Ticket,
    /// Of which call.
    epoch: Epoch,
    /// When its end is waited for no longer, if a consumer has the call: it may be gone.
    until: Option<Timestamp>,
}

/// What one lane is to be asked.
#[derive(Clone, Debug, Default)]
struct Words {
    asks: OrdSet<u64>,
    /// What steps ask, by run and ticket. Their runs may not be in memory.
    step_asks: OrdMap<(u64, u32), Ask>,
    over: Vec<Ticket>,
    flight: Option<Flight>,
    failures: u32,
    again_at: Timestamp,
}

#[derive(Clone, Debug)]
struct Flight {
    id: u64,
    /// The runs that it is about, and their tickets.
    asks: Vec<(u64, u32)>,
    /// The same of steps, which come after those.
    step_asks: Vec<Ask>,
    over: Vec<Ticket>,
    since: Timestamp,
}

impl Lanes {
    /// Whether a run's ticket was let in.
    pub fn has_let_in(&self, run: &Run) -> bool {
        run.ticket().is_some_and(|ticket| self.let_in.get(&run.id.number) == Some(&ticket))
    }

    /// A run that is due has to be let in.
    pub fn want(&mut self, run: &Run) {
        let number = run.id.number;
        let words = self.words.get_or_default(run.lane_name().to_owned());
        let is_asked = |flight: &Flight| {
            flight.asks.iter().any(|(asked, ticket)| *asked == number && run.ticket() == Some(*ticket))
        };
        if !words.flight.as_ref().is_some_and(is_asked) {
            words.asks.insert(number);
        }
    }

    /// Steps of a run have to be let in.
    fn want_steps(&mut self, now: Timestamp, run: &Run) {
        for (op, visit, since) in run.visits_to_ask() {
            let ask = Ask {
                ticket: Ticket::of_step(run.id.clone(), visit.ticket),
                limits: visit.limits.clone(),
                priority: run.lane.as_ref().map_or(0, |lane| lane.priority),
                share: None,
                hold: Hold::Work,
                since: since.unwrap_or(now),
                started: run.created_at,
                step: Some(op.name.clone()),
            };
            let words = self.words.get_or_default(visit.lane.clone());
            let is_asked = |flight: &Flight| flight.step_asks.iter().any(|asked| asked.ticket == ask.ticket);
            if !words.flight.as_ref().is_some_and(is_asked) && !self.hearing.contains(&ask.ticket) {
                words.step_asks.insert((run.id.number, visit.ticket), ask);
            }
        }
    }

    /// A run does not wait to be let in any more.
    pub fn forget(&mut self, number: u64) {
        for words in self.words.values_mut() {
            words.asks.remove(&number);
        }
    }

    /// A run's call is over.
    pub fn call_ended(&mut self, number: u64, epoch: Epoch, is_last: bool) {
        let of_run = self.closing.range((number, 0)..=(number, u32::MAX));
        // The steps of a call are over with it; a run's own ticket may be that of a call before.
        let is_over = |ticket: &Ticket, of: Epoch| is_last || ticket.is_step && of == epoch;
        let over = of_run.filter(|(_, closing)| is_over(&closing.ticket, closing.epoch)).map(|(key, _)| *key);
        for key in over.collect::<Vec<_>>() {
            self.close(key);
        }
    }

    fn close(&mut self, key: (u64, u32)) {
        if let Some(Closing { lane, ticket, .. }) = self.closing.remove(&key) {
            self.say_over(lane, ticket);
        }
    }

    /// Gives up on the ends of calls that did not come.
    fn close_late(&mut self, now: Timestamp) {
        let is_late = |closing: &Closing| closing.until.is_some_and(|until| until <= now);
        let late = self.closing.iter().filter(|(_, closing)| is_late(closing)).map(|(key, _)| *key);
        for key in late.collect::<Vec<_>>() {
            self.close(key);
        }
    }

    fn say_over(&mut self, lane: String, ticket: Ticket) {
        let words = self.words.get_or_default(lane);
        if ticket.is_step {
            words.step_asks.remove(&(ticket.run.number, ticket.number));
        }
        if words.over.len() < OVER_MAX {
            words.over.push(ticket);
        }
    }
}

/// Whether a run's own program has said this.
pub(super) fn is_by_program(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| matches!(entry, Entry::Marked(_) | Entry::Recorded { mark: Some(_), .. }))
}

impl Cell {
    /// Whether a run that ends does not work on: its program has ended it, or is not called. Otherwise its ticket is over
    /// with its call.
    pub(super) fn is_done(&self, run: &Run, entries: &[Entry]) -> bool {
        is_by_program(entries) || !(self.window.is_called(run.id.number) || run.is_leased())
    }

    /// Whether a run may go to work, as far as the limits of its workflow go.
    pub(super) fn may_go(&self, run: &Run) -> bool {
        !run.needs_ticket() || self.lanes.has_let_in(run)
    }

    /// After a commit: a ticket that is over is given back, once no call of the run is under way. That a consumer has the
    /// call of a run which somebody else has stopped, the window does not know.
    pub(super) fn give_back(&mut self, now: Timestamp, run: &Run, before: Option<u32>, is_consumed: bool) {
        let Some(number) = before.filter(|before| run.ticket() != Some(*before)) else { return };
        self.lanes.let_in.remove(&run.id.number);
        let ticket = Ticket::of_run(run.id.clone(), number);
        if self.window.is_called(run.id.number) || is_consumed {
            let until = is_consumed.then(|| now.plus_millis(SILENCE_MS));
            let closing = Closing { lane: run.lane_name().to_owned(), ticket, epoch: run.epoch, until };
            self.lanes.closing.insert((run.id.number, 0), closing);
        } else if let Some(closing) = self.lanes.closing.get_mut(&(run.id.number, 0)) {
            closing.ticket = ticket;
        } else {
            self.lanes.say_over(run.lane_name().to_owned(), ticket);
        }
    }

    /// After a commit: the tickets that steps had before and have no longer are given back. If its program has said what
    /// became of them, their code is done; otherwise it may be at work until the call is over.
    pub(super) fn give_steps_back(
        &mut self,
        now: Timestamp,
        run: &Run,
        before: Vec<(String, u32)>,
        is_by_program: bool,
        is_consumed: bool,
    ) {
        let number = run.id.number;
        for (lane, ticket) in before {
            if run.step_tickets().any(|(_, kept)| kept == ticket) {
                continue;
            }
            let is_at_work = !is_by_program && (self.window.is_called(number) || is_consumed);
            let key = (number, ticket);
            let ticket = Ticket::of_step(run.id.clone(), ticket);
            if is_at_work {
                let until = is_consumed.then(|| now.plus_millis(SILENCE_MS));
                self.lanes.closing.insert(key, Closing { lane, ticket, epoch: run.epoch, until });
            } else {
                self.lanes.say_over(lane, ticket);
            }
        }
    }

    /// After a commit: lanes are asked to let steps in.
    pub(super) fn ask_for_steps(&mut self, now: Timestamp, run: &Run) {
        self.lanes.want_steps(now, run);
    }

    /// Asks lanes whatever there is to ask, one question each at a time: while one is under way, the next gathers.
    pub(super) fn ask_lanes(&mut self, now: Timestamp) {
        self.lanes.close_late(now);
        if self.lanes.words.is_empty() && self.lanes.closing.is_empty() {
            return;
        }
        let mut said_all = Vec::new();
        for (lane, words) in self.lanes.words.iter_mut() {
            if let Some(flight) = words.flight.take_if(|flight| flight.since.plus_millis(ANSWER_MS) <= now) {
                words.unanswered(now, flight);
            }
            if words.flight.is_none()
                && words.asks.is_empty()
                && words.step_asks.is_empty()
                && words.over.is_empty()
            {
                said_all.push(lane.clone());
            }
            if words.flight.is_some() || words.again_at > now {
                continue;
            }
            let (mut asks, mut about, mut later) = (Vec::new(), Vec::new(), Vec::new());
            while asks.len() < ASKS_MAX
                && let Some(number) = words.asks.pop_first()
            {
                // A later ticket would give back the one with which its code is still at work.
                if self.lanes.closing.contains_key(&(number, 0)) {
                    later.push(number);
                    continue;
                }
                // One that is not in memory is due by its row, and comes back.
                let Some(ask) = self.runs.get(&number).and_then(|run| ask_of(run)) else { continue };
                about.push((number, ask.ticket.number));
                asks.push(ask);
            }
            words.asks.extend(later);
            let mut step_asks = Vec::new();
            while asks.len() + step_asks.len() < ASKS_MAX
                && let Some((_, ask)) = words.step_asks.pop_first()
            {
                step_asks.push(ask);
            }
            asks.extend(step_asks.iter().cloned());
            let over = std::mem::take(&mut words.over);
            if asks.is_empty() && over.is_empty() {
                continue;
            }
            self.lanes.last_flight += 1;
            let id = self.lanes.last_flight;
            words.flight = Some(Flight { id, asks: about, step_asks, over: over.clone(), since: now });
            let lane = lane.clone();
            self.object.order(Order::AskLane(Box::new(LaneQuestion { lane, flight: id, asks, over })));
        }
        for lane in said_all {
            self.lanes.words.remove(&lane);
        }
        let next = self.lanes.words.values().filter_map(|words| words.next(now));
        let next = next.chain(self.lanes.closing.values().filter_map(|closing| closing.until)).min();
        if let Some(at) = next {
            self.object.arm_by(now, at);
        }
    }

    /// A lane has said of each run how it stands, or has not answered.
    pub fn lane_answered<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        lane: &str,
        flight: u64,
        standings: Option<&[Standing]>,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let Some(words) = self.lanes.words.get_mut(lane) else { return Ok(()) };
        let Some(flight) = words.flight.take_if(|known| known.id == flight) else { return Ok(()) };
        let mut heard = Ok(());
        let asked = flight.asks.len() + flight.step_asks.len();
        match standings.filter(|standings| standings.len() == asked) {
            None => words.unanswered(now, flight),
            Some(standings) => {
                (words.failures, words.again_at) = (0, Timestamp::default());
                let (of_runs, of_steps) = standings.split_at(flight.asks.len());
                for ((number, ticket), standing) in flight.asks.into_iter().zip(of_runs) {
                    heard = heard.and(self.hear_standing(rows, now, (number, ticket), *standing));
                }
                self.lanes.hearing = flight.step_asks.iter().map(|ask| ask.ticket.clone()).collect();
                for (ask, standing) in flight.step_asks.iter().zip(of_steps) {
                    heard = heard.and(self.hear_of_step(rows, now, &ask.ticket, *standing));
                }
                self.lanes.hearing = OrdSet::new();
            }
        }
        if heard.is_err() {
            self.look_again(now);
        }
        self.dispatch(rows, now);
        heard
    }

    fn hear_standing<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        (number, ticket): (u64, u32),
        standing: Standing,
    ) -> Result<(), Fault<R::Error>> {
        let Some(run) = self.runs.get(&number).cloned() else { return Ok(()) };
        if run.ticket() != Some(ticket) {
            // It has moved on, has said so or will, and may want to be let in by another ticket.
            if matches!(run.phase, Phase::Pending { .. }) && !self.may_go(&run) {
                self.lanes.want(&run);
            }
            return Ok(());
        }
        match standing {
            Standing::In => self.let_in(rows, now, run, ticket),
            // A word that it was let in has overtaken this one.
            Standing::InLine | Standing::Full | Standing::Over if self.lanes.has_let_in(&run) => Ok(()),
            Standing::InLine => self.drive_run(rows, now, run, None, |_| Input::InLine).map(drop),
            // Nothing but a lane with rows of the future says that it is over. No row is written for either.
            Standing::Full | Standing::Over => {
                self.lanes.want(&run);
                let words = self.lanes.words.get_or_default(run.lane_name().to_owned());
                words.again_at = now.plus_millis(LANE_FULL_MS);
                Ok(())
            }
        }
    }

    /// A lane has said of a step how it stands. If the storage fails, its run's row says when it is asked again.
    fn hear_of_step<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        ticket: &Ticket,
        standing: Standing,
    ) -> Result<(), Fault<R::Error>> {
        let run = match self.run(rows, ticket.run.number) {
            Ok(run) if run.id == ticket.run && run.visit_by(ticket.number).is_some() => run,
            // It has moved on, and has said so or will.
            Ok(_) | Err(Fault::Rejected(_)) => return Ok(()),
            Err(fault) => return Err(fault),
        };
        let ticket = ticket.number;
        let again_ms = match standing {
            Standing::In => {
                return self
                    .drive_run(rows, now, run, None, |slot| Input::StepLetIn { ticket, slot })
                    .map(drop);
            }
            Standing::InLine => IN_LINE_MS,
            Standing::Full | Standing::Over => STEP_FULL_MS,
        };
        let until = now.plus_millis(again_ms);
        self.drive_run(rows, now, run, None, |_| Input::StepPutOff { ticket, until }).map(drop)
    }

    fn let_in<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: Rc<Run>,
        ticket: u32,
    ) -> Result<(), Fault<R::Error>> {
        self.lanes.let_in.insert(run.id.number, ticket);
        self.drive_run(rows, now, run, None, |slot| Input::LetIn { slot }).map(drop)
    }

    /// A lane says who was let in, now or before. Says which of them still go: what does not, never will again.
    pub fn are_let_in<R: Rows>(&mut self, rows: &R, clock: Timestamp, tickets: &[Ticket]) -> Vec<bool> {
        let now = self.now(clock);
        let mut goes = Vec::new();
        for ticket in tickets {
            // One that the storage fails for keeps its ticket, and holds up no other.
            goes.push(self.is_let_in(rows, now, ticket).unwrap_or(true));
        }
        if goes.contains(&false) {
            // This instance may have been superseded: only a write says that it has not.
            self.object.arm_anew(now);
        }
        self.dispatch(rows, now);
        goes
    }

    fn is_let_in<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        ticket: &Ticket,
    ) -> Result<bool, Fault<R::Error>> {
        let number = ticket.run.number;
        let is_closing =
            |closing: &Closing| closing.ticket.run == ticket.run && closing.ticket.number >= ticket.number;
        if self.lanes.closing.get(&(number, ticket.holder().1)).is_some_and(is_closing) {
            return Ok(true);
        }
        let run = match self.run(rows, number) {
            Ok(run) => run,
            // It is gone; one that cannot be read goes on some day.
            Err(Fault::Rejected(problem)) => {
                return Ok(problem.code != stepwell_protocol::Code::RunNotFound);
            }
            Err(fault) => return Err(fault),
        };
        if ticket.is_step && run.id == ticket.run {
            let ticket = ticket.number;
            if run.visit_by(ticket).is_some() {
                self.drive_run(rows, now, run, None, |slot| Input::StepLetIn { ticket, slot })?;
                return Ok(true);
            }
            return Ok(run.holds_step_ticket(ticket));
        }
        if run.id != ticket.run || run.ticket() != Some(ticket.number) {
            return Ok(false);
        }
        let sleeps = matches!(run.phase, Phase::Pending { not_before } if not_before > now);
        if sleeps || (matches!(run.phase, Phase::Pending { .. }) && !self.may_go(&run)) {
            self.let_in(rows, now, run, ticket.number)?;
        }
        Ok(true)
    }

    /// What people are told of a run that waits to be let in.
    pub(super) fn waits_for_its_lane(&self, run: &Run) -> Option<String> {
        let lane = run.lane.as_ref()?;
        let waits = matches!(run.phase, Phase::Pending { .. }) && !self.may_go(run);
        // One that is not due yet, or was put off, has another reason.
        if !waits || run.begins_at().is_some() || run.has_losses() {
            return None;
        }
        // The lane knows which of them, and what people have set: see `Lane::why`.
        let limits: Vec<_> = lane.in_force().map(|limit| limit_in_words(limit, run.lane_name())).collect();
        Some(format!("It waits to be let in: {}.", limits.join(", ")))
    }
}

impl Words {
    /// The lane has not answered: it is asked again after a while.
    fn unanswered(&mut self, now: Timestamp, flight: Flight) {
        self.asks.extend(flight.asks.into_iter().map(|(number, _)| number));
        let room = OVER_MAX.saturating_sub(self.over.len());
        self.over.extend(flight.over.into_iter().take(room));
        // Some may have been given up meanwhile.
        let step_asks = flight.step_asks.into_iter().filter(|ask| !self.over.contains(&ask.ticket));
        let step_asks: Vec<_> =
            step_asks.map(|ask| ((ask.ticket.run.number, ask.ticket.number), ask)).collect();
        self.step_asks.extend(step_asks);
        self.failures = self.failures.saturating_add(1);
        self.again_at = now.plus_millis(pause_ms(self.failures).min(ASK_AGAIN_MS_MAX));
    }

    /// When it is to be asked again, or its answer is late. What waits for the end of a call is asked then.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.flight {
            Some(flight) => Some(flight.since.plus_millis(ANSWER_MS)),
            None => Some(self.again_at).filter(|at| *at > now),
        }
    }
}

fn ask_of(run: &Run) -> Option<Ask> {
    let (lane, number) = (run.lane.as_ref()?, run.ticket()?);
    let since = match run.phase {
        Phase::Pending { not_before } => not_before,
        Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => return None,
    };
    Some(Ask {
        ticket: Ticket::of_run(run.id.clone(), number),
        limits: lane.in_force().cloned().collect(),
        // Whose step has a place already keeps others waiting for it.
        priority: if run.held.is_empty() { lane.priority } else { PRIORITY_MAX },
        share: lane.share.clone(),
        hold: lane.hold,
        since,
        started: run.created_at,
        step: None,
    })
}
