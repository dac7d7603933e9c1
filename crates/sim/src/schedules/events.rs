//! What happens in a world of schedules, and what it leads to.

use stepwell_core::schedule::{Seen, StartEnd, TickStart, tick_key};
use stepwell_protocol::{
    Code, Problem, RunId,
    manifest::ScheduleDescription,
    rest::Status,
    schedule::{ScheduleSpec, Ticked},
};

use super::{ANSWER_MS, Planted, World};
use crate::{host::Cause, one::OneStation as _};

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// A cell is asked to start a run.
    Ask(u64, Box<TickStart>),
    /// It has answered.
    Answer(u64, Box<TickStart>, StartEnd),
    /// A cell is asked to cancel a run.
    Cancel(u64, String, RunId),
    /// A cell is asked whether a run has ended.
    Look(u64, String, RunId),
    /// It says whether it has.
    Seen(u64, String, RunId, Seen),
    /// A run ends.
    RunEnds(RunId),
    /// A cell writes that one of its runs has ended.
    Letter(u64),
    /// Somebody does something.
    Act(usize),
}

/// What leaves the station.
#[derive(Clone, Debug)]
pub enum Out {
    /// A question to a cell.
    Ask(u64, Box<TickStart>),
    /// A run is to be cancelled.
    Cancel(u64, String, RunId),
    /// Has a run ended?
    Look(u64, String, RunId),
    /// A letter has arrived.
    Taken(u64),
    /// Somebody is told that it is done.
    Acked(usize),
}

/// A letter about the end of a run.
#[derive(Clone, Debug)]
pub struct Letter {
    pub ticked: Ticked,
    pub run: RunId,
    pub how: Status,
}

/// What operators and the catalog do. Each repeats it until it is done.
#[derive(Clone, Debug)]
pub enum Act {
    /// Makes a schedule.
    Put(String, Box<ScheduleSpec>),
    /// Pauses it.
    Pause(String),
    /// Resumes it.
    Resume(String),
    /// The code declares these, by this revision.
    Declare(u64, Vec<ScheduleDescription>),
}

impl World {
    pub(super) fn on(&mut self, event: Event) {
        match event {
            Event::Ask(from, start) => self.on_ask(from, start),
            Event::Answer(to, start, end) => self.answer(to, &start, end),
            Event::Cancel(from, schedule, run) => {
                let is_over = self.model.runs.get(&run.to_string()).is_none_or(|known| known.ended);
                if !is_over {
                    self.end_run(&run, Status::Cancelled);
                }
                let seen = if is_over { Seen::Over(Status::Cancelled) } else { Seen::Open };
                self.common.put(5, Event::Seen(from, schedule, run, seen));
            }
            Event::Look(from, schedule, run) => {
                let is_over = self.model.runs.get(&run.to_string()).is_none_or(|known| known.ended);
                let seen = if is_over { Seen::Over(Status::Completed) } else { Seen::Open };
                self.common.put(5, Event::Seen(from, schedule, run, seen));
            }
            Event::Seen(to, schedule, run, seen) => {
                self.turn(to, Cause::CallEnded, |machine, rows, now| {
                    machine.run_seen(rows, now, &schedule, &run, seen)
                });
            }
            Event::RunEnds(run) => self.end_run(&run, Status::Completed),
            Event::Letter(number) => self.on_letter(number),
            Event::Act(index) => self.on_act(index),
        }
    }

    /// Something leaves the station.
    pub(super) fn leaves(&mut self, out: Out) {
        let event = match out {
            Out::Ask(from, start) => {
                // Whoever gets no answer in time takes it for a failure.
                self.common.put(ANSWER_MS, Event::Answer(from, start.clone(), StartEnd::Failed));
                if self.common.breaks() && self.common.rng.percent(10) {
                    let again_ms = self.common.rng.between(1, 500);
                    self.common.put(again_ms, Event::Ask(from, start.clone()));
                }
                Event::Ask(from, start)
            }
            Out::Cancel(from, schedule, run) => Event::Cancel(from, schedule, run),
            Out::Look(from, schedule, run) => Event::Look(from, schedule, run),
            Out::Taken(number) => return drop(self.letters.remove(&number)),
            Out::Acked(index) => return self.on_ack(index),
        };
        if let Some(delay_ms) = self.common.travels() {
            self.common.put(delay_ms, event);
        }
    }

    /// A cell is asked to start the run of a tick.
    fn on_ask(&mut self, from: u64, start: Box<TickStart>) {
        let key = match self.planted {
            Some(Planted::KeyWithoutInstant) => start.ticked.schedule.clone(),
            Some(Planted::KeyLost) => format!("{}", self.keys.len()),
            Some(_) | None => tick_key(&start.ticked),
        };
        let end = match self.keys.get(&key) {
            Some(run) if start.given_up && self.is(Planted::PassedUnasked) => {
                let _ = run;
                StartEnd::Never
            }
            Some(run) => StartEnd::Started(run.clone()),
            None if self.given_up.contains(&key) && !self.is(Planted::GivenUpForgotten) => StartEnd::Never,
            None if start.given_up => {
                self.given_up.insert(key);
                StartEnd::Never
            }
            None if self.common.breaks() && self.common.rng.percent(8) => {
                StartEnd::Declined(Problem::new(Code::LimitReached, "not now"))
            }
            None if self.refused.contains(&key) || self.common.breaks() && self.common.rng.percent(2) => {
                self.refused.insert(key);
                StartEnd::Refused(Problem::new(Code::PayloadTooLarge, "never"))
            }
            None => {
                let run = self.run_of(&start);
                self.keys.insert(key, run.clone());
                let ends_in_ms = if self.common.rng.percent(70) {
                    self.common.rng.between(10, 3_000)
                } else {
                    self.common.rng.between(3_000, 120_000)
                };
                self.common.put(ends_in_ms, Event::RunEnds(run.clone()));
                StartEnd::Started(run)
            }
        };
        if let StartEnd::Started(run) = &end {
            let row = self.common.station.disk.get(&start.ticked.schedule);
            let running = row.map(|row| row.running).unwrap_or_default();
            let checked = self.model.started(&start.ticked, run, &running);
            self.common.must(checked);
        }
        if let Some(delay_ms) = self.common.travels() {
            self.common.put(delay_ms, Event::Answer(from, start, end));
        }
    }

    /// A cell's letter arrives, and again until the answer to it has.
    fn on_letter(&mut self, number: u64) {
        let Some(letter) = self.letters.get(&number).cloned() else { return };
        let again_ms = self.common.rng.between(500, 5_000);
        self.common.put(again_ms, Event::Letter(number));
        if self.common.travels().is_none() {
            return;
        }
        let Some(id) = self.load_for_request() else { return };
        let Letter { ticked, run, how } = letter;
        let taken = self
            .turn(id, Cause::Request, |machine, rows, now| machine.run_ended(rows, now, &ticked, &run, how));
        if let Some(Ok(_)) = taken {
            self.send(id, Out::Taken(number), None);
        }
    }

    fn on_act(&mut self, index: usize) {
        if self.acked.contains(&index) {
            return;
        }
        let again_ms = self.common.rng.between(500, 3_000);
        self.common.put(again_ms, Event::Act(index));
        let act = self.acts[index].clone();
        // From here on it may take effect.
        if let Act::Resume(id) = &act {
            self.model.resumed.insert(id.clone());
            self.model.paused.remove(id);
        }
        let Some(id) = self.load_for_request() else { return };
        let done = match act {
            Act::Put(name, spec) => self.turn(id, Cause::Request, |machine, rows, now| {
                machine.put(rows, now, "root", &name, *spec).map(drop)
            }),
            Act::Pause(name) => self.turn(id, Cause::Request, |machine, rows, now| {
                machine.pause(rows, now, "root", &name).map(drop)
            }),
            Act::Resume(name) => {
                self.turn(id, Cause::Request, |machine, rows, now| machine.resume(rows, now, &name).map(drop))
            }
            Act::Declare(revision, schedules) => self.turn(id, Cause::Request, |machine, rows, now| {
                machine.declare(rows, now, revision, &schedules)
            }),
        };
        if let Some(Ok(())) = done
            && !self.common.station.is_stale(id)
        {
            self.send(id, Out::Acked(index), None);
        }
    }

    fn on_ack(&mut self, index: usize) {
        if !self.acked.insert(index) {
            return;
        }
        match &self.acts[index] {
            Act::Pause(id) => {
                // Somebody may have resumed it before this was heard of.
                if !self.model.resumed.contains(id) {
                    self.model.paused.insert(id.clone());
                }
            }
            Act::Declare(_, schedules) if schedules.is_empty() => {
                self.model.retired.insert("s0".into());
            }
            Act::Put(..) | Act::Resume(_) | Act::Declare(..) => {}
        }
    }
}
