//! A station over rows in memory: what it asks, what it stores, and what is left when it dies in between.

use std::{cell::RefCell, collections::BTreeMap};

use stepwell_protocol::{
    Code, Problem, RunId, Timestamp,
    rest::Status,
    schedule::{ScheduleSpec, ScheduleView, TickId},
};

use super::{at, run, spec, zones};
use crate::{
    object::{DEAD_MAN_MS, Fault, Hosted as _, Machine as _, Receipt},
    pools::Pool,
    schedule::{
        ANSWER_MS, IN_FLIGHT_MAX, Order, Rows, SCHEDULES_MAX, STARTS_MAX, Schedule, Schedules, StartEnd,
        TickStart, tick_key,
    },
};

/// Why these rows fail.
#[derive(Debug, PartialEq)]
pub enum Broken {
    Storage,
    Row,
}

/// Rows as a database has them: texts.
#[derive(Default)]
pub struct Memory {
    pub rows: RefCell<BTreeMap<String, (Option<Timestamp>, String)>>,
    pub written: RefCell<u64>,
    pub is_full: RefCell<bool>,
}

impl Rows for Memory {
    type Error = Broken;

    fn is_unreadable(error: &Broken) -> bool {
        *error == Broken::Row
    }

    fn due(&self) -> Result<Vec<(String, Option<Timestamp>)>, Broken> {
        Ok(self.rows.borrow().iter().map(|(id, (at, _))| (id.clone(), *at)).collect())
    }

    fn get(&self, id: &str) -> Result<Option<Schedule>, Broken> {
        let rows = self.rows.borrow();
        rows.get(id).map(|(_, text)| serde_json::from_str(text).map_err(|_| Broken::Row)).transpose()
    }

    fn page(&self, after: &str, limit: usize) -> Result<Vec<Schedule>, Broken> {
        let rows = self.rows.borrow();
        let page = rows.iter().filter(|(id, _)| id.as_str() > after);
        Ok(page.filter_map(|(_, (_, text))| serde_json::from_str(text).ok()).take(limit).collect())
    }

    fn put(&self, schedule: &Schedule) -> Result<(), Broken> {
        if *self.is_full.borrow() {
            return Err(Broken::Storage);
        }
        *self.written.borrow_mut() += 1;
        let text = serde_json::to_string(schedule).expect("JSON");
        self.rows.borrow_mut().insert(schedule.id.clone(), (schedule.due_at(), text));
        Ok(())
    }

    fn delete(&self, id: &str) -> Result<(), Broken> {
        self.rows.borrow_mut().remove(id);
        Ok(())
    }
}

/// A station, its rows, its alarm, and the runs that cells have started for it.
pub struct Bench {
    pub machine: Schedules,
    pub rows: Memory,
    pub now: Timestamp,
    pub alarm: Option<Timestamp>,
    /// What cells were asked and have not answered.
    pub asked: Vec<TickStart>,
    pub cancelled: Vec<RunId>,
    pub reported: Vec<String>,
    /// The run of each tick, by its key, as cells know them.
    pub runs: BTreeMap<String, RunId>,
}

impl Bench {
    pub fn new(now: &str) -> Self {
        Self {
            machine: machine(),
            rows: Memory::default(),
            now: at(now),
            alarm: None,
            asked: Vec::new(),
            cancelled: Vec::new(),
            reported: Vec::new(),
            runs: BTreeMap::new(),
        }
    }

    /// Makes a schedule called `nightly`.
    pub fn with(mut self, spec: ScheduleSpec) -> Self {
        self.put("nightly", spec);
        self
    }

    pub fn put(&mut self, id: &str, spec: ScheduleSpec) {
        self.machine.put(&self.rows, self.now, "key:1", id, spec).expect("it is stored");
        self.perform();
    }

    /// Does what the machine has ordered.
    pub fn perform(&mut self) {
        let orders = self.machine.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        for order in orders.own {
            match order {
                Order::Start(start) => self.asked.push(*start),
                Order::Cancel { run, .. } => self.cancelled.push(run),
                Order::Report(id) => self.reported.push(id),
            }
        }
    }

    /// The alarm fires, whenever it is set for.
    pub fn fire(&mut self) {
        let due = self.alarm.take().expect("the alarm is set");
        self.now = self.now.max(due);
        self.fire_now();
    }

    pub fn fire_now(&mut self) {
        let _ = self.machine.alarm(&self.rows, self.now);
        self.perform();
    }

    /// Lets alarms fire until then, and cells answer at once.
    pub fn live_until(&mut self, until: &str) {
        let until = at(until);
        for _ in 0..100_000 {
            self.answer_all();
            match self.alarm {
                Some(due) if due <= until => self.fire(),
                Some(_) | None => {
                    self.now = self.now.max(until);
                    return;
                }
            }
        }
        panic!("it goes on for ever");
    }

    /// The cell that was asked starts a run, unless it has.
    pub fn start(&mut self, asked: &TickStart) -> RunId {
        let number = self.runs.len() as u64 + 1;
        let new = run(asked.to.clone(), number);
        self.runs.entry(tick_key(&asked.ticked)).or_insert(new).clone()
    }

    pub fn answer(&mut self, asked: &TickStart, end: StartEnd) {
        let _ = self.machine.answered(&self.rows, self.now, asked, end);
        self.perform();
    }

    pub fn answer_all(&mut self) {
        while let Some(asked) = (!self.asked.is_empty()).then(|| self.asked.remove(0)) {
            let run = self.start(&asked);
            self.answer(&asked, StartEnd::Started(run));
        }
    }

    /// The run of a tick ends.
    pub fn end(&mut self, asked: &TickStart, how: Status) -> Receipt {
        let run = self.start(asked);
        let ended =
            self.machine.run_ended(&self.rows, self.now, &asked.ticked, &run, how).expect("it is stored");
        self.perform();
        ended
    }

    /// The instance dies, and the next one finds what is stored.
    pub fn crash(&mut self) {
        self.machine = machine();
        self.asked.clear();
        self.alarm = None;
        self.machine.repair(&self.rows, self.now).expect("the rows can be read");
        self.perform();
    }

    pub fn view(&self) -> ScheduleView {
        self.machine.get(&self.rows, "nightly").expect("it is there")
    }

    /// The ticks that have started runs.
    pub fn ticks(&self) -> Vec<String> {
        self.runs.keys().map(|key| key.rsplit('\n').next().expect("a tick").to_owned()).collect()
    }
}

fn machine() -> Schedules {
    Schedules::new("0".into(), zones(), Pool::parse("default", "16").expect("a pool"))
}

pub fn tick(at_text: &str) -> TickId {
    TickId::At(at(at_text))
}

#[test]
fn a_tick_starts_one_run_and_takes_one_row() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    *bench.rows.written.borrow_mut() = 0;
    assert_eq!(bench.alarm, Some(at("2026-11-14T09:00:00Z")));
    bench.fire();
    assert_eq!(bench.asked.len(), 1);
    assert_eq!(bench.asked[0].ticked.tick, tick("2026-11-14T09:00:00Z"));
    assert_eq!(*bench.rows.written.borrow(), 0, "the row is the intent");
    bench.answer_all();
    assert_eq!(*bench.rows.written.borrow(), 1);
    let view = bench.view();
    assert_eq!(view.next_tick, Some(at("2026-11-15T09:00:00Z")));
    assert_eq!((view.counts.started, view.last.expect("one").tick), (1, at("2026-11-14T09:00:00Z")));
}

#[test]
fn an_instance_that_dies_before_the_answer_asks_the_same_cell_for_the_same_run() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let first = bench.asked[0].clone();
    bench.start(&first);
    bench.crash();
    assert!(bench.alarm.expect("it is due") <= bench.now.plus_millis(1));
    bench.fire();
    let second = bench.asked[0].clone();
    assert_eq!((&first.to, &first.ticked), (&second.to, &second.ticked));
    bench.answer_all();
    assert_eq!(bench.runs.len(), 1);
    assert_eq!(bench.view().counts.started, 1);
}

#[test]
fn a_pool_that_grows_does_not_move_a_tick_that_is_stored() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let first = bench.asked[0].clone();
    bench.crash();
    bench.machine = Schedules::new("0".into(), zones(), Pool::parse("default", "16,64").expect("a pool"));
    bench.fire_now();
    assert_eq!(bench.asked[0].to, first.to);
    bench.answer_all();
    bench.live_until("2026-11-15T09:00:01Z");
    let last = bench.view().last.expect("it has ticked").run;
    assert_eq!(last.place.generation, 2, "the next one goes to the latest generation");
}

#[test]
fn an_alarm_that_fires_twice_asks_once() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    bench.fire_now();
    bench.fire_now();
    assert_eq!(bench.asked.len(), 1);
}

#[test]
fn while_a_cell_is_asked_the_alarm_is_the_dead_mans_switch() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    assert_eq!(bench.alarm, Some(bench.now.plus_millis(DEAD_MAN_MS)));
}

#[test]
fn a_cell_that_does_not_answer_is_asked_again_later_and_later() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let asked = bench.asked.pop().expect("it is asked");
        assert_eq!(asked.ticked.tick, tick("2026-11-14T09:00:00Z"));
        bench.answer(&asked, StartEnd::Failed);
        let before = bench.now;
        while bench.asked.is_empty() {
            bench.fire();
        }
        pauses.push(bench.now.as_millis() - before.as_millis());
    }
    assert_eq!(pauses[0], 250);
    assert_eq!(*pauses.last().expect("some"), 60_000);
    bench.answer_all();
    assert_eq!(bench.view().counts.started, 1);
}

#[test]
fn an_answer_that_never_comes_is_given_up_and_one_that_comes_late_counts_for_nothing() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let first = bench.asked.pop().expect("it is asked");
    while bench.asked.is_empty() {
        bench.fire();
    }
    assert!(bench.now >= at("2026-11-14T09:00:00Z").plus_millis(ANSWER_MS));
    let started = bench.start(&first);
    bench.answer(&first, StartEnd::Started(started));
    assert_eq!(bench.view().counts.started, 0, "the second question is under way");
    bench.answer_all();
    assert_eq!((bench.runs.len(), bench.view().counts.started), (1, 1));
}

#[test]
fn a_start_that_is_refused_for_good_is_counted_and_shown() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let asked = bench.asked.pop().expect("it is asked");
    bench.answer(&asked, StartEnd::Refused(Problem::new(Code::PayloadTooLarge, "It is too large.")));
    let view = bench.view();
    assert_eq!((view.counts.refused, view.next_tick), (1, Some(at("2026-11-15T09:00:00Z"))));
    assert_eq!(view.problem.expect("it is shown").code, Code::PayloadTooLarge);
}

#[test]
fn a_commit_that_the_storage_does_not_take_is_made_up_for() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    bench.rows.is_full.replace(true);
    bench.answer_all();
    assert_eq!(bench.view().counts.started, 0);
    bench.rows.is_full.replace(false);
    bench.live_until("2026-11-14T09:10:00Z");
    assert_eq!((bench.runs.len(), bench.view().counts.started), (1, 1));
}

#[test]
fn a_row_that_cannot_be_read_keeps_no_other_from_ticking() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.put("broken", spec("0 8 * * *"));
    bench.rows.rows.borrow_mut().get_mut("broken").expect("it is there").1 = "{".into();
    bench.live_until("2026-11-14T09:00:01Z");
    assert_eq!(bench.reported, ["broken", "broken"], "once an hour");
    assert_eq!(bench.view().counts.started, 1);
}

#[test]
fn few_cells_are_asked_at_once_however_many_schedules_are_due() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z");
    for number in 0..100 {
        bench.put(&format!("customer-{number}"), spec("0 9 * * *"));
    }
    bench.fire();
    assert_eq!(bench.asked.len(), IN_FLIGHT_MAX);
    let mut most = 0;
    while bench.runs.len() < 100 {
        most = most.max(bench.asked.len());
        match bench.asked.pop() {
            Some(asked) => {
                let run = bench.start(&asked);
                bench.answer(&asked, StartEnd::Started(run));
            }
            None => bench.fire(),
        }
    }
    assert_eq!(most, IN_FLIGHT_MAX);
    assert!(bench.now < at("2026-11-14T09:00:01Z"), "nobody waits for the dead man's switch");
    const { assert!(STARTS_MAX as usize > IN_FLIGHT_MAX) };
}

#[test]
fn a_station_has_only_so_many_schedules() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z");
    for number in 0..SCHEDULES_MAX {
        bench.rows.rows.borrow_mut().insert(format!("s{number}"), (None, String::new()));
    }
    let refused = bench.machine.put(&bench.rows, bench.now, "key:1", "one-more", spec("0 9 * * *"));
    let Err(Fault::Rejected(problem)) = refused else { panic!("it is refused") };
    assert_eq!(problem.code, Code::TooMany);
}

#[test]
fn the_list_goes_by_ids_in_pages() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z");
    for id in ["c", "a", "b"] {
        bench.put(id, spec("0 9 * * *"));
    }
    let first = bench.machine.list(&bench.rows, "", 2).expect("a page");
    let ids: Vec<_> = first.schedules.iter().map(|schedule| schedule.id.as_str()).collect();
    assert_eq!((ids, first.next.as_deref()), (vec!["a", "b"], Some("b")));
    let second = bench.machine.list(&bench.rows, "b", 2).expect("a page");
    assert_eq!((second.schedules.len(), second.next), (1, None));
}

#[test]
fn what_is_not_there_is_not_found() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z");
    let Err(Fault::Rejected(problem)) = bench.machine.delete(&bench.rows, bench.now, "nightly") else {
        panic!("it is not there")
    };
    assert_eq!(problem.code, Code::ScheduleNotFound);
}
