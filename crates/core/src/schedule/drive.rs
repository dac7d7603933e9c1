//! The one loop of a station of schedules: decide, commit, order. Synchronous, like a cell's.

use std::{collections::BTreeMap, fmt, rc::Rc};

use stepwell_protocol::{
    Code, Place, Problem, RunId, Timestamp,
    rest::Status,
    schedule::{Backfill, NextTicks, ScheduleList, ScheduleSpec, ScheduleView, TickId, Ticked},
};

use super::{
    Order, Rows, Schedule, StartEnd, TickStart, Zones,
    agenda::Agenda,
    row::{Job, World},
};
use crate::{
    object::{DEAD_MAN_MS, Fault, Hosted, Machine, Object, Receipt},
    pools::Pool,
};

/// The most schedules of a station.
pub const SCHEDULES_MAX: usize = 10_000;

/// How many schedules a page of the list has at the most.
pub const LIST_MAX: usize = 100;

/// How many ticks are shown ahead.
pub const NEXT_MAX: usize = 10;

/// How many cells are asked for something at once.
pub const IN_FLIGHT_MAX: usize = 16;

/// How many are asked before the alarm has to go on with it: see [`crate::cell::CALLS_MAX`].
pub const STARTS_MAX: u32 = 32;

/// How long an answer takes at the most: after that the same is asked again.
pub const ANSWER_MS: u64 = 30_000;

/// How many schedules are looked at in one turn.
const SLICE: usize = 128;

/// How long until a cell is asked again that could not start a run; twice as long each time.
const ASK_AGAIN_MS: u64 = 250;

/// The longest such pause.
const ASK_AGAIN_MS_MAX: u64 = 60_000;

/// How long until runs are cancelled again whose ends were not heard of.
const CANCEL_AGAIN_MS: u64 = 5_000;

/// How long until a row is read again that could not be.
const UNREADABLE_MS: u64 = 3_600_000;

/// Something that a cell is asked.
#[derive(Clone, Debug)]
struct Flight {
    number: u64,
    tick: TickId,
    /// Until when an answer may come.
    until: Timestamp,
}

/// Why a tick has not started a run yet.
#[derive(Clone, Debug, Default)]
struct Trouble {
    /// How often in a row.
    times: u32,
    problem: Option<Problem>,
}

/// The schedules of a station, put together with its storage's rows.
#[derive(Clone)]
pub struct Schedules {
    object: Object<Order>,
    /// What its cells call this station by.
    station: String,
    zones: Rc<dyn Zones>,
    pool: Pool,
    /// Nothing until the rows were read, and again when one could not be written.
    agenda: Option<Agenda>,
    /// What is under way, one thing for each schedule at the most.
    flights: BTreeMap<String, Flight>,
    troubles: BTreeMap<String, Trouble>,
    /// How many cells were asked since the last request or alarm.
    asked: u32,
    last_flight: u64,
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").field("flights", &self.flights).finish_non_exhaustive()
    }
}

impl Hosted for Schedules {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }

    fn begin(&mut self) {
        self.asked = 0;
    }
}

impl<R: Rows> Machine<R> for Schedules {
    type Error = R::Error;

    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let gone_on = self.go_on(rows, now);
        gone_on.map(|()| self.next_look(now))
    }

    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.agenda(rows)?;
        Ok(self.next_look(now))
    }
}

impl Schedules {
    /// A station of this name, whose runs go to this pool.
    pub fn new(station: String, zones: Rc<dyn Zones>, pool: Pool) -> Self {
        Self {
            object: Object::new(),
            station,
            zones,
            pool,
            agenda: None,
            flights: BTreeMap::new(),
            troubles: BTreeMap::new(),
            asked: 0,
            last_flight: 0,
        }
    }

    /// Makes a schedule, or lets it do something else. Says whether it is new.
    pub fn put<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        by: &str,
        id: &str,
        spec: ScheduleSpec,
    ) -> Result<(ScheduleView, bool), Fault<R::Error>> {
        let now = self.now(clock);
        let known = rows.get(id).map_err(Fault::Storage)?;
        let is_new = known.is_none();
        let schedule = match known {
            Some(known) if known.spec == spec => known,
            Some(known) => {
                let changed = known.changed(self.world(), now, spec, by.to_owned()).map_err(Problem::from)?;
                self.store(rows, now, &changed)?;
                changed
            }
            None => {
                if self.agenda(rows)?.count() >= SCHEDULES_MAX {
                    let detail =
                        format!("There are {SCHEDULES_MAX} schedules already. Delete those that are over.");
                    return Err(Problem::new(Code::TooMany, detail).into());
                }
                let new = Schedule::new(self.world(), now, id.to_owned(), spec, by.to_owned());
                let new = new.map_err(Problem::from)?;
                self.store(rows, now, &new)?;
                new
            }
        };
        Ok((self.view(&schedule), is_new))
    }

    /// Shows a schedule.
    pub fn get<R: Rows>(&self, rows: &R, id: &str) -> Result<ScheduleView, Fault<R::Error>> {
        Ok(self.view(&find(rows, id)?))
    }

    /// Lists schedules after an id.
    pub fn list<R: Rows>(
        &self,
        rows: &R,
        after: &str,
        limit: usize,
    ) -> Result<ScheduleList, Fault<R::Error>> {
        let limit = limit.clamp(1, LIST_MAX);
        let page = rows.page(after, limit).map_err(Fault::Storage)?;
        let next = page.last().filter(|_| page.len() == limit).map(|last| last.id.clone());
        Ok(ScheduleList { schedules: page.iter().map(|schedule| self.view(schedule)).collect(), next })
    }

    /// Deletes a schedule. Its runs go on.
    pub fn delete<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &str) -> Result<(), Fault<R::Error>> {
        self.now(clock);
        find(rows, id)?;
        let deleted = rows.delete(id);
        self.flights.remove(id);
        self.troubles.remove(id);
        match &mut self.agenda {
            Some(agenda) if deleted.is_ok() => agenda.remove(id),
            Some(_) | None => self.agenda = None,
        }
        deleted.map_err(Fault::Storage)
    }

    /// Lets a schedule tick no more, until it is resumed.
    pub fn pause<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        by: &str,
        id: &str,
    ) -> Result<ScheduleView, Fault<R::Error>> {
        self.change(rows, clock, id, |schedule, _, now| Ok(schedule.paused(now, by.to_owned())))
    }

    /// Lets a paused schedule tick again.
    pub fn resume<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<ScheduleView, Fault<R::Error>> {
        self.change(rows, clock, id, |schedule, world, now| Ok(schedule.resumed(world, now)?))
    }

    /// Starts a run of a schedule now, whether it is paused or not. The mark is that of the request: the same one starts
    /// no other.
    pub fn trigger<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        mark: String,
    ) -> Result<ScheduleView, Fault<R::Error>> {
        self.change(rows, clock, id, |schedule, world, now| schedule.triggered(world, now, mark))
    }

    /// Starts the ticks of a range again.
    pub fn backfill<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        range: Backfill,
    ) -> Result<ScheduleView, Fault<R::Error>> {
        self.change(rows, clock, id, |schedule, world, now| schedule.backfilled(world, now, range))
    }

    /// When a schedule ticks next.
    pub fn next_ticks<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<NextTicks, Fault<R::Error>> {
        let now = self.now(clock);
        let ticks = find(rows, id)?.next_ticks(self.world(), now, NEXT_MAX).map_err(Problem::from)?;
        Ok(NextTicks { ticks })
    }

    /// What became of a question to a cell.
    pub fn answered<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        asked: &TickStart,
        end: StartEnd,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let Ticked { schedule: id, tick, .. } = &asked.ticked;
        // The answer to a question that was given up comes too late: the same is asked again.
        if self.flights.get(id).is_none_or(|flight| flight.number != asked.flight) {
            return Ok(());
        }
        self.flights.remove(id);
        let answered = self.take_answer(rows, now, id, tick, end);
        if answered.is_err() {
            self.agenda = None;
        }
        let gone_on = self.go_on(rows, now);
        self.arm(now);
        answered.and(gone_on)
    }

    fn take_answer<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        id: &str,
        tick: &TickId,
        end: StartEnd,
    ) -> Result<(), Fault<R::Error>> {
        let Some(schedule) = rows.get(id).map_err(Fault::Storage)? else { return Ok(()) };
        let problem = match end {
            StartEnd::Started(run) if schedule.awaits(tick) => {
                self.troubles.remove(id);
                return self.store(rows, now, &schedule.started(self.world(), now, tick, run));
            }
            StartEnd::Refused(problem) if schedule.awaits(tick) => {
                self.troubles.insert(id.to_owned(), Trouble { times: 0, problem: Some(problem) });
                return self.store(rows, now, &schedule.refused(self.world(), now, tick));
            }
            // Its run has ended already, and that was heard first.
            StartEnd::Started(_) | StartEnd::Refused(_) => {
                self.set_due(&schedule);
                return Ok(());
            }
            StartEnd::Declined(problem) => Some(problem),
            StartEnd::Failed => None,
        };
        self.ask_later(now, id, problem);
        Ok(())
    }

    /// A cell could not be asked, or has said no for now.
    fn ask_later(&mut self, now: Timestamp, id: &str, problem: Option<Problem>) {
        let trouble = self.troubles.entry(id.to_owned()).or_default();
        let pause_ms = (ASK_AGAIN_MS << trouble.times.min(16)).min(ASK_AGAIN_MS_MAX);
        trouble.times = trouble.times.saturating_add(1);
        trouble.problem = problem.or_else(|| trouble.problem.take());
        if let Some(agenda) = &mut self.agenda {
            agenda.set(id, Some(now.plus_millis(pause_ms)));
        }
    }

    /// A cell says that the run of a tick has ended. Takes effect once, however often it comes.
    pub fn run_ended<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        ticked: &Ticked,
        run: &RunId,
        how: Status,
    ) -> Result<Receipt, Fault<R::Error>> {
        let now = self.now(clock);
        let Some(mut schedule) = rows.get(&ticked.schedule).map_err(Fault::Storage)? else {
            return Ok(self.gone(now));
        };
        // Its end may be heard of before its start is.
        if schedule.awaits(&ticked.tick) {
            schedule = schedule.started(self.world(), now, &ticked.tick, run.clone());
            if self.flights.get(&ticked.schedule).is_some_and(|flight| flight.tick == ticked.tick) {
                self.flights.remove(&ticked.schedule);
            }
            self.troubles.remove(&ticked.schedule);
        } else if !schedule.running.contains(run) {
            return Ok(self.gone(now));
        }
        self.store(rows, now, &schedule.ended(now, run, how))?;
        let gone_on = self.go_on(rows, now);
        self.arm(now);
        gone_on.map(|()| Receipt::Taken)
    }

    /// A run that had to be cancelled is over, or nobody knows it any more. That it has ended may be heard of later, or
    /// never: whoever knew of it may be gone.
    pub fn run_gone<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        run: &RunId,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let Some(schedule) =
            rows.get(id).map_err(Fault::Storage)?.filter(|found| found.running.contains(run))
        else {
            return Ok(());
        };
        self.store(rows, now, &schedule.ended(now, run, Status::Cancelled))?;
        let gone_on = self.go_on(rows, now);
        self.arm(now);
        gone_on
    }

    /// Nobody waits for this any more; or this instance was superseded, and does not know. The answer lets the sender
    /// forget its letter, so it has to wait for a write, which only the instance that has the name can make.
    fn gone(&mut self, now: Timestamp) -> Receipt {
        self.object.arm_anew(now);
        Receipt::Gone
    }

    /// Changes a schedule, and goes on with what that makes due.
    fn change<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        change: impl FnOnce(&Schedule, World<'_>, Timestamp) -> Result<Schedule, Problem>,
    ) -> Result<ScheduleView, Fault<R::Error>> {
        let now = self.now(clock);
        let before = find(rows, id)?;
        let after = change(&before, self.world(), now)?;
        if after != before {
            self.store(rows, now, &after)?;
            // What is stored is stored, whatever comes after it.
            if self.go_on(rows, now).is_err() {
                self.agenda = None;
            }
            self.arm(now);
        }
        Ok(self.view(&after))
    }

    fn store<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        schedule: &Schedule,
    ) -> Result<(), Fault<R::Error>> {
        if let Err(error) = rows.put(schedule) {
            self.agenda = None;
            return Err(Fault::Storage(error));
        }
        self.set_due(schedule);
        self.arm(now);
        Ok(())
    }

    /// A schedule is due when its row says so, unless something is under way for it.
    fn set_due(&mut self, schedule: &Schedule) {
        let at = schedule.due_at().filter(|_| !self.flights.contains_key(&schedule.id));
        if let Some(agenda) = &mut self.agenda {
            agenda.set(&schedule.id, at);
        }
    }

    /// Serves those that are due, as many as may be at once.
    fn go_on<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        self.give_up_late(now);
        self.agenda(rows)?;
        for _ in 0..SLICE {
            if !self.may_ask() {
                break;
            }
            let Some(id) = self.agenda.as_mut().and_then(|agenda| agenda.take(now)) else { break };
            if let Err(fault) = self.serve(rows, now, &id) {
                self.agenda = None;
                return Err(fault);
            }
        }
        Ok(())
    }

    fn may_ask(&self) -> bool {
        self.flights.len() < IN_FLIGHT_MAX && self.asked < STARTS_MAX
    }

    fn serve<R: Rows>(&mut self, rows: &R, now: Timestamp, id: &str) -> Result<(), Fault<R::Error>> {
        let schedule = match rows.get(id) {
            Ok(Some(schedule)) => schedule,
            Ok(None) => return Ok(()),
            Err(error) if R::is_unreadable(&error) => {
                self.object.order(Order::Report(id.to_owned()));
                self.be_due(id, now.plus_millis(UNREADABLE_MS));
                return Ok(());
            }
            Err(error) => return Err(Fault::Storage(error)),
        };
        match schedule.job(self.world(), now) {
            Job::Start { tick, to } => self.ask(now, &schedule, tick, to),
            Job::Cancel(runs) => {
                self.asked = self.asked.saturating_add(u32::try_from(runs.len()).unwrap_or(u32::MAX));
                for run in runs {
                    self.object.order(Order::Cancel { schedule: id.to_owned(), run });
                }
                self.be_due(id, now.plus_millis(CANCEL_AGAIN_MS));
            }
            Job::Store(changed) => self.store(rows, now, &changed)?,
            Job::Wait => {
                // Never at once again: it would be looked at without end.
                let at = schedule.due_at().map(|at| at.max(now.plus_millis(DEAD_MAN_MS)));
                if let Some(at) = at {
                    self.be_due(id, at);
                }
            }
        }
        Ok(())
    }

    fn be_due(&mut self, id: &str, at: Timestamp) {
        if let Some(agenda) = &mut self.agenda {
            agenda.set(id, Some(at));
        }
    }

    fn ask(&mut self, now: Timestamp, schedule: &Schedule, tick: TickId, to: Place) {
        self.last_flight += 1;
        self.asked += 1;
        let number = self.last_flight;
        let until = now.plus_millis(ANSWER_MS);
        self.flights.insert(schedule.id.clone(), Flight { number, tick: tick.clone(), until });
        let tells = schedule.wants_to_hear().then(|| self.station.clone());
        self.object.order(Order::Start(Box::new(TickStart {
            flight: number,
            to,
            ticked: Ticked { schedule: schedule.id.clone(), tick, tells },
            workflow: schedule.spec.workflow.clone(),
            input: schedule.spec.input.clone(),
            tags: schedule.spec.tags.clone(),
        })));
    }

    /// Gives up on answers that have not come: the same is asked again.
    fn give_up_late(&mut self, now: Timestamp) {
        let late = self.flights.iter().filter(|(_, flight)| flight.until <= now);
        let late: Vec<_> = late.map(|(id, _)| id.clone()).collect();
        for id in late {
            self.flights.remove(&id);
            self.ask_later(now, &id, None);
        }
    }

    /// When the alarm has to fire: while something is under way it is the dead man's switch as well.
    fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let dead_man = (!self.flights.is_empty()).then(|| now.plus_millis(DEAD_MAN_MS));
        let first = self.agenda.as_ref().map_or(Some(now), Agenda::first);
        // All that may be under way is: the next answer goes on with the rest.
        let first = first.filter(|at| *at > now || self.flights.len() < IN_FLIGHT_MAX);
        [dead_man, first].into_iter().flatten().min()
    }

    fn arm(&mut self, now: Timestamp) {
        if let Some(at) = self.next_look(now) {
            self.object.arm_by(now, at);
        }
    }

    fn agenda<R: Rows>(&mut self, rows: &R) -> Result<&mut Agenda, Fault<R::Error>> {
        if self.agenda.is_none() {
            let mut agenda = Agenda::default();
            for (id, at) in rows.due().map_err(Fault::Storage)? {
                let at = at.filter(|_| !self.flights.contains_key(&id));
                agenda.set(&id, at);
            }
            self.agenda = Some(agenda);
        }
        Ok(self.agenda.get_or_insert_default())
    }

    fn world(&self) -> World<'_> {
        World { zones: self.zones.as_ref(), pool: &self.pool }
    }

    fn view(&self, schedule: &Schedule) -> ScheduleView {
        let trouble = self.troubles.get(&schedule.id);
        schedule.view(trouble.and_then(|trouble| trouble.problem.clone()))
    }
}

fn find<R: Rows>(rows: &R, id: &str) -> Result<Schedule, Fault<R::Error>> {
    let found = rows.get(id).map_err(Fault::Storage)?;
    found.ok_or_else(|| {
        let detail = "There is no schedule of this id. `GET /api/schedules` lists them.";
        Problem::new(Code::ScheduleNotFound, detail).into()
    })
}
