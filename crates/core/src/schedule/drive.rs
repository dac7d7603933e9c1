//! The one loop of a station of schedules: decide, commit, order. Synchronous, like a cell's.

use std::{fmt, rc::Rc};

use stepwell_protocol::{
    Code, Place, Problem, RunId, Timestamp,
    rest::Status,
    schedule::{Backfill, NextTicks, ScheduleList, ScheduleSpec, ScheduleView, TickId, Ticked},
};

use super::{
    Effort, LOOK_MS, Order, Rows, Schedule, StartEnd, TickStart, Zones,
    agenda::Agenda,
    asks::{Asked, Flight, Trouble},
    find::{Unreadable, find, no_schedule, read},
    row::{Job, World},
};
use crate::{
    object::{DEAD_MAN_MS, Fault, Flights, Hosted, Machine, Object, Receipt},
    ordered::{OrdMap, OrdSet},
    pools::Pool,
};

/// The most schedules of a station.
pub const SCHEDULES_MAX: usize = 10_000;

/// How many schedules a page of the list has at the most.
pub const LIST_MAX: usize = 100;

/// How many ticks are shown ahead.
pub const NEXT_MAX: usize = 10;

/// How many schedules are looked at in one turn.
const SLICE: usize = 128;

/// How long a cell may be silent about a tick until its schedule goes on without an answer.
const SILENCE_MS: u64 = 600_000;

/// How often it must have been asked by then: a clock that jumps is no silence.
const SILENCE_ASKS: u32 = 5;

/// How long until runs are cancelled again whose ends were not heard of.
const CANCEL_AGAIN_MS: u64 = 5_000;

/// How long until a row is read again that could not be.
const UNREADABLE_MS: u64 = 3_600_000;

/// The schedules of a station, put together with its storage's rows.
#[derive(Clone)]
pub struct Schedules {
    pub(super) object: Object<Order>,
    /// What its cells call this station by.
    pub(super) station: String,
    zones: Rc<dyn Zones>,
    pub(super) pool: Pool,
    /// Nothing until the rows were read, and again when one could not be written.
    pub(super) agenda: Option<Agenda>,
    /// All that cells are asked.
    pub(super) asking: Flights<Asked>,
    /// The ticks among it, one for each schedule at the most.
    pub(super) flights: OrdMap<String, Flight>,
    /// Ticks whose cells have sent them on. No row says so: an instance that does not know asks the same cell, and gets
    /// the same answer.
    pub(super) moved: OrdMap<String, (TickId, Place)>,
    /// Schedules that wait for cells which have to answer first.
    pub(super) held: OrdMap<Place, OrdSet<String>>,
    pub(super) troubles: OrdMap<String, Trouble>,
    /// Schedules whose next tick this instance has stored, and has asked no cell for. The ticks of all others may have
    /// started runs: an instance before this one may have asked, or an answer may have been lost.
    pub(super) untouched: OrdSet<String>,
    /// When runs of schedules were last asked whether they have ended.
    pub(super) looks: OrdMap<String, Timestamp>,
    /// What it may still spend on looking for ticks until the next request or alarm.
    effort: Effort,
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
        self.asking.begin();
        self.effort = Effort::default();
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
            asking: Flights::default(),
            flights: OrdMap::new(),
            moved: OrdMap::new(),
            held: OrdMap::new(),
            troubles: OrdMap::new(),
            untouched: OrdSet::new(),
            looks: OrdMap::new(),
            effort: Effort::default(),
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
        // Whoever sets one that cannot be read makes it anew.
        let known = read(rows, id)?.ok().flatten();
        let is_new = known.is_none();
        let schedule = match known {
            Some(known) if known.spec == spec && known.retired_at().is_none() => known,
            Some(known) => {
                let changed = known.changed(self.world(), now, spec, by.to_owned()).map_err(Problem::from)?;
                self.store(rows, now, Some(&known), &changed)?;
                changed
            }
            None => {
                let agenda = self.agenda(rows)?;
                if agenda.count() >= SCHEDULES_MAX && !agenda.has(id) {
                    let detail =
                        format!("There are {SCHEDULES_MAX} schedules already. Delete those that are over.");
                    return Err(Problem::new(Code::TooMany, detail).into());
                }
                let new = Schedule::new(self.world(), now, id.to_owned(), spec, by.to_owned());
                let new = new.map_err(Problem::from)?;
                self.store(rows, now, None, &new)?;
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
        let next = page.last().filter(|_| page.len() == limit).map(|(id, _)| id.clone());
        let mut list = ScheduleList { next, ..ScheduleList::default() };
        for (id, schedule) in page {
            match schedule {
                Some(schedule) => list.schedules.push(self.view(&schedule)),
                None => list.unreadable.push(id),
            }
        }
        Ok(list)
    }

    /// Deletes a schedule. Its runs go on.
    pub fn delete<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &str) -> Result<(), Fault<R::Error>> {
        self.now(clock);
        // One that cannot be read is gone if somebody says so: if the code declares it, the next deploy makes it anew.
        let Ok(known) = read(rows, id)? else { return self.forget(rows, id) };
        let declared = known.ok_or_else(no_schedule)?.declared;
        if declared.is_some_and(|declared| declared.retired_at.is_none()) {
            let detail = "The schedule is declared in code. Pause it, or remove it from the code.";
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        self.forget(rows, id)
    }

    fn forget<R: Rows>(&mut self, rows: &R, id: &str) -> Result<(), Fault<R::Error>> {
        let deleted = rows.delete(id);
        self.asking.forget(|asked| asked.schedule() == id);
        self.flights.remove(id);
        self.moved.remove(id);
        self.troubles.remove(id);
        self.untouched.remove(id);
        self.looks.remove(id);
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
        // Its cell was not asked meanwhile.
        if let Some(trouble) = self.troubles.get_mut(id) {
            trouble.since = None;
        }
        let may_pass_over = self.untouched.contains(id);
        self.change(rows, clock, id, |schedule, world, now| {
            Ok(schedule.resumed(world, now, may_pass_over)?)
        })
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
        let is_failed = end == StartEnd::Failed;
        let landed = if is_failed {
            self.asking.failed(now, asked.flight)
        } else {
            self.asking.answered(asked.flight)
        };
        let is_late =
            landed.is_none() || self.flights.get(id).is_none_or(|flight| flight.number != asked.flight);
        // An answer to a question that was given up: the same is asked again. But a run that has started has started.
        if is_late && !matches!(end, StartEnd::Started(_)) {
            return Ok(());
        }
        self.land(&asked.ticked);
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
                let after = schedule.started(self.world(), now, tick, run);
                return self.store(rows, now, Some(&schedule), &after);
            }
            StartEnd::Refused(problem) if schedule.awaits(tick) => {
                self.troubles.insert(id.to_owned(), Trouble { problem: Some(problem), ..Trouble::default() });
                let after = schedule.refused(self.world(), now, tick);
                return self.store(rows, now, Some(&schedule), &after);
            }
            StartEnd::Never if schedule.awaits(tick) => {
                self.troubles.remove(id);
                let after = schedule.given_up(self.world(), now, tick);
                return self.store(rows, now, Some(&schedule), &after);
            }
            StartEnd::Moved(to) if schedule.awaits(tick) => {
                self.moved.insert(id.to_owned(), (tick.clone(), to));
                self.be_due(id, now);
                return Ok(());
            }
            // Its run has ended already, and that was heard first.
            StartEnd::Started(_) | StartEnd::Refused(_) | StartEnd::Never | StartEnd::Moved(_) => {
                self.set_due(&schedule);
                return Ok(());
            }
            StartEnd::Declined(problem) => Some(problem),
            StartEnd::Failed => None,
        };
        self.ask_later(now, id, problem);
        Ok(())
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
        let Some(before) = rows.get(&ticked.schedule).map_err(Fault::Storage)? else {
            return Ok(self.gone(now));
        };
        let mut schedule = before.clone();
        // Its end may be heard of before its start is.
        if schedule.awaits(&ticked.tick) {
            schedule = schedule.started(self.world(), now, &ticked.tick, run.clone());
            self.land(ticked);
            self.troubles.remove(&ticked.schedule);
        } else if !schedule.running.contains(run) {
            return Ok(self.gone(now));
        }
        self.store(rows, now, Some(&before), &schedule.ended(now, run, how))?;
        let gone_on = self.go_on(rows, now);
        self.arm(now);
        gone_on.map(|()| Receipt::Taken)
    }

    /// What became of a tick is known: nobody has to be asked for it any more.
    fn land(&mut self, ticked: &Ticked) {
        if self.flights.get(&ticked.schedule).is_some_and(|flight| flight.tick == ticked.tick) {
            self.asking.forget(|asked| *asked == Asked::Tick(ticked.schedule.clone()));
            self.flights.remove(&ticked.schedule);
        }
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
        before.check_active()?;
        let after = change(&before, self.world(), now)?;
        if after != before {
            self.store(rows, now, Some(&before), &after)?;
            self.go_on_after(rows, now);
        }
        Ok(self.view(&after))
    }

    /// Goes on after a change: what is stored is stored, whatever comes after it.
    pub(super) fn go_on_after<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        if self.go_on(rows, now).is_err() {
            self.lose_agenda();
        }
        self.arm(now);
    }

    /// Memory may say something else than the rows.
    pub(super) fn lose_agenda(&mut self) {
        self.agenda = None;
    }

    /// A schedule was stored.
    pub(super) fn stored(&mut self, schedule: &Schedule) {
        self.set_due(schedule);
    }

    pub(super) fn store<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        before: Option<&Schedule>,
        after: &Schedule,
    ) -> Result<(), Fault<R::Error>> {
        if let Err(error) = rows.put(after) {
            self.agenda = None;
            self.untouched.remove(&after.id);
            return Err(Fault::Storage(error));
        }
        if before.is_none_or(|before| before.next != after.next) {
            self.untouched.insert(after.id.clone());
            if let Some(trouble) = self.troubles.get_mut(&after.id) {
                (trouble.times, trouble.since, trouble.held_by) = (0, None, None);
            }
        }
        self.set_due(after);
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
    pub(super) fn go_on<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        self.give_up_late(now);
        self.agenda(rows)?;
        self.wake_held(now);
        for _ in 0..SLICE {
            if !self.asking.may_ask() || self.effort.is_spent() {
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

    fn serve<R: Rows>(&mut self, rows: &R, now: Timestamp, id: &str) -> Result<(), Fault<R::Error>> {
        let schedule = match read(rows, id)? {
            Ok(Some(schedule)) => schedule,
            Ok(None) => return Ok(()),
            Err(Unreadable) => {
                self.object.order(Order::Report(id.to_owned()));
                self.be_due(id, now.plus_millis(UNREADABLE_MS));
                return Ok(());
            }
        };
        let job = schedule.job(self.world(), now, self.may_pass_over(now, id));
        // Whoever cancels runs finds out whether they have ended.
        if !matches!(job, Job::Cancel(_)) {
            self.look(now, &schedule);
        }
        match job {
            Job::Start { tick, to } => self.ask(now, &schedule, tick, &to, false),
            Job::GiveUp { tick, to } => self.ask(now, &schedule, tick, &to, true),
            Job::Cancel(runs) => {
                for run in runs {
                    if self.ask_run(now, id, &run) {
                        self.object.order(Order::Cancel { schedule: id.to_owned(), run });
                    }
                }
                self.be_due(id, now.plus_millis(CANCEL_AGAIN_MS));
            }
            Job::Store(changed) => self.store(rows, now, Some(&schedule), &changed)?,
            // They are asked already.
            Job::Look(_) => self.be_due(id, now.plus_millis(LOOK_MS)),
            Job::Forget => self.forget(rows, id)?,
            Job::Wait => {
                if let Some(at) = schedule.due_at() {
                    // Never at once again: it would be looked at without end.
                    self.be_due(id, if at > now { at } else { now.plus_millis(DEAD_MAN_MS) });
                }
            }
        }
        Ok(())
    }

    /// Whether the tick of a schedule's row may be passed over without a word of its cell. A cell that has been silent for
    /// long holds up no schedule for longer.
    fn may_pass_over(&self, now: Timestamp, id: &str) -> bool {
        let is_long = |trouble: &Trouble| {
            let by_others = trouble.held_by.as_ref().map_or(0, |cell| self.asking.failures(cell));
            let since = trouble.since.filter(|_| trouble.times.max(by_others) >= SILENCE_ASKS);
            since.is_some_and(|since| since.plus_millis(SILENCE_MS) <= now)
        };
        self.untouched.contains(id) || self.troubles.get(id).is_some_and(is_long)
    }

    pub(super) fn be_due(&mut self, id: &str, at: Timestamp) {
        if let Some(agenda) = &mut self.agenda {
            agenda.set(id, Some(at));
        }
    }

    /// When the alarm has to fire: while something is under way it is the dead man's switch as well.
    fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let dead_man = (!self.asking.is_empty()).then(|| now.plus_millis(DEAD_MAN_MS));
        let first = self.agenda.as_ref().map_or(Some(now), Agenda::first);
        // All that may be under way is: the next answer goes on with the rest.
        let first = first.filter(|at| *at > now || !self.asking.is_full());
        [dead_man, first].into_iter().flatten().min()
    }

    pub(super) fn arm(&mut self, now: Timestamp) {
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

    pub(super) fn world(&self) -> World<'_> {
        World { zones: self.zones.as_ref(), effort: &self.effort, pool: &self.pool }
    }

    fn view(&self, schedule: &Schedule) -> ScheduleView {
        let trouble = self.troubles.get(&schedule.id);
        schedule.view(trouble.and_then(|trouble| trouble.problem.clone()))
    }
}
