//! Time that passes over the schedules that an app declares: the production machine starts their runs.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    rc::Rc,
    time::Duration,
};

use jiff::tz::TimeZone;
use stepwell_core::{
    object::{Hosted as _, Machine as _},
    pools::Pool,
    schedule::{Heard, Order, Rows, Schedule, Schedules, Seen, StartEnd, TickStart, Zones, tick_key},
};
use stepwell_protocol::{
    RunId, Timestamp,
    rest::Status,
    schedule::{TickId, Ticked},
};

use super::{
    Outcome, Scenario, Test,
    engine::{Death, START_MS},
};
use crate::ops::millis;

/// The most runs that one test starts.
const TICKS_MAX: usize = 10_000;

/// A run that a schedule has started.
pub struct Tick {
    /// The schedule's name.
    pub schedule: String,
    /// When the tick was due.
    pub at: Timestamp,
    /// What became of the run.
    pub outcome: Outcome,
}

impl Test {
    /// Lets so much virtual time pass, and gives the runs that the app's schedules have started, in order. Time begins
    /// on 14 November 2023 at 22:13:20 UTC, and each run goes to its end, or until it waits for something that will not
    /// come.
    ///
    /// # Panics
    /// If the app declares no schedule, or there are more than 10,000 runs.
    #[must_use]
    #[track_caller]
    pub fn advance(self, time: Duration) -> Vec<Tick> {
        Calendar::new(self, false).advance(time)
    }

    /// The same as [`Self::advance`], with a crash of the schedules at each tick, before and after they are told that its
    /// run is started, and with a crash before and after each commit of each run, as with [`Self::crash_everywhere`].
    ///
    /// # Panics
    /// As both of these.
    #[must_use]
    #[track_caller]
    pub fn advance_with_crashes(self, time: Duration) -> Vec<Tick> {
        Calendar::new(self, true).advance(time)
    }
}

/// The schedules of an app, and what they have started.
struct Calendar {
    scenario: Scenario,
    crashes: bool,
    machine: Schedules,
    rows: Memory,
    now: Timestamp,
    alarm: Option<Timestamp>,
    asked: VecDeque<TickStart>,
    /// The runs of ticks, as their cells know them.
    runs: BTreeMap<String, RunId>,
    /// When runs end whose schedules want to know.
    ends: BTreeMap<(Timestamp, u64), (Ticked, RunId, Status)>,
    ticks: Vec<Tick>,
}

impl Calendar {
    #[track_caller]
    fn new(test: Test, crashes: bool) -> Self {
        let scenario = test.around();
        assert!(scenario.app.schedules().next().is_some(), "the app declares no schedule");
        Self {
            scenario,
            crashes,
            machine: machine(),
            rows: Memory::default(),
            now: Timestamp::from_millis(START_MS),
            alarm: None,
            asked: VecDeque::new(),
            runs: BTreeMap::new(),
            ends: BTreeMap::new(),
            ticks: Vec::new(),
        }
    }

    #[track_caller]
    fn advance(mut self, time: Duration) -> Vec<Tick> {
        let until = self.now.plus_millis(millis(time));
        let declared: Vec<_> = self.scenario.app.schedules().cloned().collect();
        for schedule in &declared {
            if let Err(bad) = stepwell_core::schedule::Plan::read(&schedule.spec, &Jiff::default()) {
                panic!("schedule '{}': {bad}", schedule.name);
            }
        }
        let Ok(()) =
            self.machine.declare(&self.rows, self.now, 1, &declared).map_err(|fault| panic!("{fault}"));
        loop {
            self.perform();
            let first_end = self.ends.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [self.alarm, first_end].into_iter().flatten().min().filter(|at| *at <= until)
            else {
                return self.ticks;
            };
            self.now = self.now.max(next);
            if first_end == Some(next)
                && let Some((_, (ticked, run, how))) = self.ends.pop_first()
            {
                let _ = self.machine.run_ended(&self.rows, self.now, &ticked, &run, how);
            } else {
                self.alarm = None;
                let _ = self.machine.alarm(&self.rows, self.now);
            }
        }
    }

    /// Does what the machine has ordered, and whatever follows from that at once.
    #[track_caller]
    fn perform(&mut self) {
        self.take_orders();
        while let Some(start) = self.asked.pop_front() {
            let end = self.start(&start);
            if self.crashes {
                // Nobody hears the answer: the next instance asks again, and finds the same run.
                self.crash();
            }
            let _ = self.machine.answered(&self.rows, self.now, &start, end);
            if self.crashes {
                self.crash();
            }
            self.take_orders();
        }
    }

    fn take_orders(&mut self) {
        let orders = self.machine.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        for order in orders.own {
            match order {
                Order::Start(start) => self.asked.push_back(*start),
                Order::Cancel { schedule, run } => {
                    for ((_, _), (_, other, how)) in &mut self.ends {
                        if *other == run {
                            *how = Status::Cancelled;
                        }
                    }
                    self.end_now(&run);
                    self.see(&schedule, &run);
                }
                Order::Look { schedule, run } => self.see(&schedule, &run),
                Order::Report(_) => {}
            }
        }
    }

    /// The cell of a run has answered. Ends are told by letters.
    fn see(&mut self, schedule: &str, run: &RunId) {
        let _ = self.machine.run_seen(&self.rows, self.now, schedule, run, Seen::Open);
        self.take_orders();
    }

    /// A run that is cancelled ends at once.
    fn end_now(&mut self, run: &RunId) {
        let ends: Vec<_> =
            self.ends.iter().filter(|(_, (_, other, _))| other == run).map(|(at, _)| *at).collect();
        for at in ends {
            if let Some(end) = self.ends.remove(&at) {
                self.ends.insert((self.now, at.1), end);
            }
        }
    }

    /// The instance of the schedules dies, and the next one finds what is stored.
    fn crash(&mut self) {
        self.machine = machine();
        self.asked.clear();
        self.alarm = None;
        let _ = self.machine.repair(&self.rows, self.now);
        let _ = self.machine.alarm(&self.rows, self.now);
        self.take_orders();
    }

    /// The run of a tick, started now or before.
    #[track_caller]
    fn start(&mut self, start: &TickStart) -> StartEnd {
        let key = tick_key(&start.ticked);
        if let Some(run) = self.runs.get(&key) {
            return StartEnd::Started(run.clone());
        }
        if start.given_up {
            return StartEnd::Never;
        }
        assert!(self.ticks.len() < TICKS_MAX, "there are more than {TICKS_MAX} runs: let less time pass");
        let number = self.ticks.len() as u64 + 1;
        let run = RunId { place: start.to.clone(), number, suffix: RunId::suffix_from(number) };
        self.runs.insert(key, run.clone());
        let scenario = Scenario {
            workflow: start.workflow.clone(),
            input: start.input.clone(),
            timeout_ms: self.scenario.timeout_ms.or_else(|| self.scenario.app.timeout_ms(&start.workflow)),
            accepted_at: self.now,
            ..self.scenario.clone()
        };
        let outcome = if self.crashes { scenario.crash_everywhere() } else { scenario.play(Death::Never) };
        let ended_at = self.now.plus_millis(millis(outcome.took()));
        if start.ticked.tells.is_some() && outcome.status().is_terminal() {
            let end = (start.ticked.clone(), run.clone(), outcome.status());
            self.ends.insert((ended_at, number), end);
        }
        let at = match &start.ticked.tick {
            TickId::At(at) | TickId::Again(_, at) => *at,
            TickId::Triggered(_) => self.now,
        };
        self.ticks.push(Tick { schedule: start.ticked.schedule.clone(), at, outcome });
        StartEnd::Started(run)
    }
}

fn machine() -> Schedules {
    let pool = Pool::parse("default", "1").expect("a pool of one cell");
    Schedules::new("0".into(), Rc::new(Jiff::default()), pool)
}

/// The rules of time zones as jiff has them.
#[derive(Default)]
struct Jiff(RefCell<BTreeMap<String, Option<TimeZone>>>);

impl Zones for Jiff {
    fn offset_s(&self, zone: &str, at_s: i64) -> Option<i32> {
        let mut known = self.0.borrow_mut();
        let zone = known.entry(zone.to_owned()).or_insert_with(|| TimeZone::get(zone).ok());
        let at = jiff::Timestamp::from_second(at_s).ok()?;
        zone.as_ref().map(|zone| zone.to_offset(at).seconds())
    }
}

/// Rows in memory.
#[derive(Default)]
struct Memory {
    schedules: RefCell<BTreeMap<String, Schedule>>,
    heard: RefCell<Heard>,
}

impl Rows for Memory {
    type Error = Infallible;

    fn is_unreadable(_: &Infallible) -> bool {
        false
    }

    fn due(&self) -> Result<Vec<(String, Option<Timestamp>)>, Infallible> {
        Ok(self.schedules.borrow().values().map(|one| (one.id.clone(), one.due_at())).collect())
    }

    fn get(&self, id: &str) -> Result<Option<Schedule>, Infallible> {
        Ok(self.schedules.borrow().get(id).cloned())
    }

    fn page(&self, after: &str, limit: usize) -> Result<Vec<(String, Option<Schedule>)>, Infallible> {
        let schedules = self.schedules.borrow();
        let page = schedules.iter().filter(|(id, _)| id.as_str() > after).take(limit);
        Ok(page.map(|(id, one)| (id.clone(), Some(one.clone()))).collect())
    }

    fn put(&self, schedule: &Schedule) -> Result<(), Infallible> {
        self.schedules.borrow_mut().insert(schedule.id.clone(), schedule.clone());
        Ok(())
    }

    fn heard(&self) -> Result<Heard, Infallible> {
        Ok(self.heard.borrow().clone())
    }

    fn declare(&self, heard: &Heard, schedules: &[Schedule]) -> Result<(), Infallible> {
        for schedule in schedules {
            self.put(schedule)?;
        }
        self.heard.replace(heard.clone());
        Ok(())
    }

    fn delete(&self, id: &str) -> Result<(), Infallible> {
        self.schedules.borrow_mut().remove(id);
        Ok(())
    }
}
