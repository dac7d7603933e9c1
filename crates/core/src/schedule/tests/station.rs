//! A station over rows in memory: what it asks, what it stores, and what is left when it dies in between.

use std::{cell::RefCell, collections::BTreeMap};

use stepwell_protocol::{
    Code, Problem, RunId, Timestamp,
    rest::Status,
    schedule::{ScheduleSpec, ScheduleView, TickId},
};

use super::{at, run, spec, zones};
use crate::{
    object::{
        ANSWER_MS, ASKS_MAX, DEAD_MAN_MS, Fault, Hosted as _, IN_FLIGHT_MAX, IN_FLIGHT_TO_ONE_MAX,
        Machine as _, Receipt,
    },
    pools::Pool,
    schedule::{Heard, Order, Rows, SCHEDULES_MAX, Schedule, Schedules, Seen, StartEnd, TickStart, tick_key},
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
    pub heard: RefCell<Heard>,
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

    fn page(&self, after: &str, limit: usize) -> Result<Vec<(String, Option<Schedule>)>, Broken> {
        let rows = self.rows.borrow();
        let page = rows.iter().filter(|(id, _)| id.as_str() > after).take(limit);
        Ok(page.map(|(id, (_, text))| (id.clone(), serde_json::from_str(text).ok())).collect())
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

    fn heard(&self) -> Result<Heard, Broken> {
        Ok(self.heard.borrow().clone())
    }

    fn declare(&self, heard: &Heard, schedules: &[Schedule]) -> Result<(), Broken> {
        for schedule in schedules {
            self.put(schedule)?;
        }
        self.heard.replace(heard.clone());
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
    /// The runs that were asked whether they have ended.
    pub looked: Vec<RunId>,
    pub reported: Vec<String>,
    /// Whether cells that are asked about runs do not answer.
    pub hangs: bool,
    /// How often the alarm was set.
    pub armed: u64,
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
            looked: Vec::new(),
            reported: Vec::new(),
            hangs: false,
            armed: 0,
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
        self.armed += u64::from(orders.arm.is_some());
        for order in orders.own {
            match order {
                Order::Start(start) => self.asked.push(*start),
                Order::Cancel { schedule, run } => {
                    self.cancelled.push(run.clone());
                    self.see(&schedule, &run);
                }
                Order::Look { schedule, run } => {
                    self.looked.push(run.clone());
                    self.see(&schedule, &run);
                }
                Order::Report(id) => self.reported.push(id),
            }
        }
    }

    fn see(&mut self, schedule: &str, run: &RunId) {
        if !self.hangs {
            let seen = self.machine.run_seen(&self.rows, self.now, schedule, run, Seen::Open);
            seen.expect("the rows can be read");
            self.perform();
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
            let is_new = !self.runs.contains_key(&tick_key(&asked.ticked));
            let end = if asked.given_up && is_new {
                StartEnd::Never
            } else {
                StartEnd::Started(self.start(&asked))
            };
            self.answer(&asked, end);
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
fn an_answer_that_never_comes_is_given_up_and_of_late_ones_only_a_started_run_counts() {
    let mut bench = Bench::new("2026-11-13T12:00:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let first = bench.asked.pop().expect("it is asked");
    while bench.asked.is_empty() {
        bench.fire();
    }
    assert!(bench.now >= at("2026-11-14T09:00:00Z").plus_millis(ANSWER_MS));
    bench.answer(&first, StartEnd::Never);
    assert_eq!((bench.view().counts.started, bench.view().next_tick), (0, Some(at("2026-11-14T09:00:00Z"))));
    let started = bench.start(&first);
    bench.answer(&first, StartEnd::Started(started));
    assert_eq!(bench.view().counts.started, 1, "though the second question is under way");
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
    const { assert!(ASKS_MAX as usize > IN_FLIGHT_MAX) };
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

#[test]
fn a_tick_of_a_lone_schedule_writes_its_row_and_two_alarms() {
    // The first of them is the dead man's switch while the cell is asked; the second is set when that fires.
    let mut bench = Bench::new("2026-11-13T08:30:00Z").with(spec("0 * * * *"));
    bench.live_until("2026-11-13T08:59:59Z");
    let before = (*bench.rows.written.borrow(), bench.armed);
    bench.live_until("2026-11-13T18:30:00Z");
    let ticks = bench.runs.len() as u64;
    assert_eq!(ticks, 10);
    assert_eq!((*bench.rows.written.borrow() - before.0, bench.armed - before.1), (ticks, 2 * ticks));
}

#[test]
fn schedules_that_tick_together_share_their_alarms() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    for number in 0..10 {
        bench.put(&format!("customer-{number}"), spec("0 * * * *"));
    }
    bench.live_until("2026-11-13T08:59:59Z");
    let before = (*bench.rows.written.borrow(), bench.armed);
    bench.live_until("2026-11-13T18:30:00Z");
    let ticks = bench.runs.len() as u64;
    assert_eq!(ticks, 100);
    assert_eq!((*bench.rows.written.borrow() - before.0, bench.armed - before.1), (ticks, 2 * ticks / 10));
}

#[test]
fn a_cell_that_hangs_keeps_no_schedule_of_another_from_ticking() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z");
    for number in 0..400 {
        bench.put(&format!("customer-{number}"), spec("0 9 * * *"));
    }
    let (mut hung, mut most) = (0, 0);
    for _ in 0..2_000 {
        while let Some(asked) = bench.asked.pop() {
            if asked.to.cell == 7 {
                hung += 1;
            } else {
                let run = bench.start(&asked);
                bench.answer(&asked, StartEnd::Started(run));
            }
        }
        most = most.max(hung);
        if bench.alarm.is_none_or(|alarm| alarm > at("2026-11-13T09:00:20Z")) {
            break;
        }
        bench.fire();
    }
    let others = bench.runs.len();
    assert!((350..390).contains(&others), "{others}");
    assert_eq!(most, IN_FLIGHT_TO_ONE_MAX);
    // It answers again, and the others of it do not have to wait for long.
    bench.live_until("2026-11-13T09:03:00Z");
    assert_eq!(bench.runs.len(), 400);
}

#[test]
fn a_tick_whose_cell_is_full_starts_in_the_one_that_it_is_sent_on_to() {
    let mut bench = Bench::new("2026-11-13T08:30:00Z").with(spec("0 9 * * *"));
    bench.fire();
    let first = bench.asked.pop().expect("it is asked");
    let spare = first.spare.clone().expect("there is another cell");
    assert_ne!(spare, first.to);
    bench.answer(&first, StartEnd::Moved(spare.clone()));
    let second = bench.asked.pop().expect("the other one is asked at once");
    assert_eq!((&second.to, &second.ticked), (&spare, &first.ticked));
    assert!(second.spare.is_some_and(|next| next != first.to && next != spare));
    // An instance that does not know asks the first one again.
    bench.crash();
    bench.fire_now();
    let again = bench.asked.pop().expect("it is asked");
    assert_eq!(again.to, first.to);
    bench.answer(&again, StartEnd::Moved(spare.clone()));
    bench.answer_all();
    assert_eq!(bench.view().last.expect("it has ticked").run.place, spare);
    bench.live_until("2026-11-14T08:59:00Z");
    bench.fire();
    assert_ne!(bench.asked[0].ticked, first.ticked, "the next tick is at home where it always was");
}
