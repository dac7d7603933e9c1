//! A topic over rows in memory: what it stores once, what it asks, and what is left when it dies in between.

mod chaos;
mod hooks;
mod layers;
mod look_back;
mod memory;
mod queues;
mod trouble;
mod waits;

use std::collections::BTreeMap;

use memory::{Bug, Full, Memory};
use serde_json::{Value as Json, json};
use stepwell_protocol::{
    Code, Payload, Problem, RunId, Timestamp,
    manifest::TriggerDescription,
    topic::{
        AcceptedStatus, EVENT_RETENTION_MS, NewEvent, TriggerInput, TriggerSpec, TriggerView, Triggered,
    },
};

use super::{EventStart, Order, Parked, StartEnd, TRIGGERS_MAX, Topic, event_key};
use crate::{
    object::{ASKS_MAX, DEAD_MAN_MS, Fault, Hosted as _, IN_FLIGHT_MAX, Machine as _},
    pools::Pool,
};

fn start_of(order: Order) -> Option<EventStart> {
    match order {
        Order::Start(start) => Some(*start),
        Order::Meet(_) => None,
    }
}

/// A topic, its rows, and cells that start runs: once for each key.
struct World {
    rows: Memory,
    topic: Topic,
    now: Timestamp,
    runs: BTreeMap<String, (EventStart, u32)>,
    alarm: Option<Timestamp>,
}

fn topic() -> Topic {
    Topic::new("order".into(), Pool::parse("default", "16").expect("a pool"))
}

fn on(pattern: &str, when: Option<&str>) -> TriggerSpec {
    TriggerSpec {
        on: pattern.into(),
        when: when.map(Into::into),
        workflow: "charge".into(),
        queue: None,
        input: TriggerInput::Data,
        tags: vec!["shop".into()],
    }
}

fn event(name: &str, id: Option<&str>, data: &Json) -> NewEvent {
    NewEvent { name: name.into(), id: id.map(Into::into), data: Payload::encode(data).expect("it is JSON") }
}

impl World {
    fn later(&mut self, ms: u64) {
        self.now = self.now.plus_millis(ms);
    }

    fn new() -> Self {
        let now = Timestamp::from_millis(1_000_000_000);
        Self { rows: Memory::default(), topic: topic(), now, runs: BTreeMap::new(), alarm: None }
    }

    fn put(&mut self, id: &str, spec: TriggerSpec) -> Result<(TriggerView, bool), Fault<Full>> {
        self.topic.put_trigger(&self.rows, self.now, "ada", id, spec)
    }

    fn trigger(&mut self, id: &str) -> TriggerView {
        self.topic.get_trigger(&self.rows, self.now, id).expect("it is there")
    }

    fn send(&mut self, mark: &str, events: Vec<NewEvent>) -> Vec<(AcceptedStatus, String)> {
        let accepted = self.topic.accept(&self.rows, self.now, mark, None, events).expect("it is accepted");
        accepted.into_iter().map(|accepted| (accepted.status, accepted.id.expect("it has an id"))).collect()
    }

    /// What the machine wants of its host, with the alarm noted.
    fn orders(&mut self) -> Vec<EventStart> {
        let orders = self.topic.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        orders.own.into_iter().filter_map(start_of).collect()
    }

    /// A cell starts a run, or finds it.
    fn start(&mut self, start: &EventStart) -> RunId {
        let number = u64::try_from(self.runs.len()).expect("few") + 1;
        let known = self.runs.entry(event_key(&start.triggered)).or_insert((start.clone(), 0));
        assert_eq!(known.0.to, start.to, "another cell was asked for the same run");
        known.1 += 1;
        RunId { place: start.to.clone(), number, suffix: RunId::suffix_from(number) }
    }

    fn answer(&mut self, start: &EventStart, end: StartEnd) {
        self.topic.answered(&self.rows, self.now, start, end).expect("it is taken");
    }

    /// Goes on until the alarm is further away than this, and cells start all that they are asked for.
    fn settle(&mut self, within_ms: u64) {
        let until = self.now.plus_millis(within_ms);
        for _ in 0..10_000 {
            let starts = self.orders();
            if starts.is_empty() {
                match self.alarm.take() {
                    Some(at) if at <= until => {
                        self.now = self.now.max(at);
                        self.topic.alarm(&self.rows, self.now).expect("the rows can be read");
                        continue;
                    }
                    other => {
                        self.alarm = other;
                        return;
                    }
                }
            }
            for start in starts {
                let run = self.start(&start);
                self.answer(&start, StartEnd::Started(run));
            }
        }
        panic!("it does not come to rest");
    }

    /// The instance dies, and another one looks at the rows.
    fn crash(&mut self) {
        self.topic = topic();
        self.topic.repair(&self.rows, self.now).expect("the rows can be read");
    }
}

#[test]
fn an_event_is_stored_once_and_starts_one_run_for_each_trigger() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    world.put("large", on("order/paid", Some("event.data.amount > 100"))).expect("a trigger");
    let paid = |amount: u64| event("order/paid", Some("evt"), &json!({"amount": amount}));
    assert_eq!(world.send("a", vec![paid(120)]), [(AcceptedStatus::Accepted, "evt".into())]);
    world.settle(10_000);
    assert_eq!(world.runs.len(), 2);
    // Whatever it says, it is the same.
    assert_eq!(world.send("b", vec![paid(999)]), [(AcceptedStatus::Duplicate, "evt".into())]);
    let other = event("order/paid", None, &json!({"amount": 5}));
    world.send("c", vec![other, event("order/shipped", None, &json!(null))]);
    world.settle(10_000);
    assert_eq!(world.runs.len(), 4);
    assert_eq!(world.trigger("all").counts.started, 3);
    let large = world.trigger("large");
    assert_eq!((large.counts.started, large.counts.failed), (1, 0));
    let (start, asked) = world.runs.values().next().expect("a run");
    assert_eq!((start.tags.as_slice(), *asked), (["shop".to_owned(), "event:order/1".into()].as_slice(), 1));
    assert_eq!(world.rows.through.get(), 3);
}

#[test]
fn a_changed_trigger_starts_nothing_for_events_that_were_passed_over_before() {
    for declares in [false, true] {
        let mut world = World::new();
        let change = |world: &mut World, revision: u64, on: TriggerSpec| {
            if declares {
                let trigger = TriggerDescription { name: "some".into(), spec: on };
                world.topic.declare(&world.rows, world.now, revision, &[trigger]).expect("it is heard");
            } else {
                world.put("some", on).expect("a trigger");
            }
        };
        change(&mut world, 1, on("order/paid", None));
        for number in 0..3 {
            world.send(&number.to_string(), vec![event("order/shipped", None, &json!(number))]);
        }
        world.settle(10_000);
        change(&mut world, 2, on("order/shipped", None));
        world.crash();
        world.settle(10_000);
        assert!(world.runs.is_empty(), "it was not about them when they came");
        world.send("later", vec![event("order/shipped", None, &json!(4))]);
        world.settle(10_000);
        assert_eq!(world.runs.len(), 1);
    }
}

#[test]
fn a_batch_is_answered_item_by_item() {
    let mut world = World::new();
    let one = |id| event("order/paid", id, &json!(1));
    let answers = world.send("m", vec![one(Some("x")), one(None), one(Some("x")), one(None)]);
    let (new, old) = (AcceptedStatus::Accepted, AcceptedStatus::Duplicate);
    let wanted = [(new, "x"), (new, "2-m-1"), (old, "x"), (new, "3-m-3")];
    assert_eq!(answers, wanted.map(|(status, id)| (status, id.to_owned())));
    // The runtime delivers the same request again.
    let again = world.send("m", vec![one(Some("x")), one(None), one(Some("x")), one(None)]);
    assert_eq!(again.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [old; 4]);
    assert_eq!(world.rows.events.borrow().len(), 3);
    for id in ["x", "2-m-1", "3-m-3"] {
        assert_eq!(world.topic.get(&world.rows, id).expect("it is there").id, id);
    }
    let missing = world.topic.get(&world.rows, "2-m-2");
    assert!(matches!(missing, Err(Fault::Rejected(Problem { code: Code::EventNotFound, .. }))));
    let page = world.topic.list(&world.rows, u64::MAX, 2).expect("a page");
    assert_eq!((page.events[0].id.as_str(), page.next), ("3-m-3", Some(2)));
    let page = world.topic.list(&world.rows, 2, 2).expect("a page");
    assert_eq!((page.events.len(), page.next), (1, None));
}

#[test]
fn nothing_is_accepted_that_is_not_stored() {
    let mut world = World::new();
    world.rows.is_full.set(true);
    let refused =
        world.topic.accept(&world.rows, world.now, "a", None, vec![event("order/paid", None, &json!(1))]);
    assert!(matches!(refused, Err(Fault::Storage(Full))));
    world.rows.is_full.set(false);
    let again = world.send("a", vec![event("order/paid", None, &json!(1))]);
    assert_eq!(again, [(AcceptedStatus::Accepted, "1-a-0".into())]);
}

#[test]
fn whenever_the_instance_dies_each_run_is_started_once() {
    for crash_after in 0..12 {
        let mut world = World::new();
        world.put("all", on("order/*", None)).expect("a trigger");
        world.settle(10_000);
        let events = (0..4).map(|number| event("order/paid", None, &json!(number))).collect();
        world.send("a", events);
        let mut steps = 0;
        'crash: loop {
            for start in world.orders() {
                let run = world.start(&start);
                steps += 1;
                if steps > crash_after {
                    break 'crash;
                }
                world.answer(&start, StartEnd::Started(run));
                steps += 1;
                if steps > crash_after {
                    break 'crash;
                }
            }
            world.now = world.now.plus_millis(400);
            world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
            steps += 1;
            if steps > crash_after {
                break;
            }
        }
        let done = world.rows.through.get();
        assert!((1..=done).all(|event| {
            let of = Triggered { topic: "order".into(), trigger: "all".into(), event };
            world.runs.contains_key(&event_key(&of))
        }));
        world.crash();
        world.settle(10_000);
        assert_eq!(world.runs.len(), 4, "after {crash_after}");
        assert_eq!(world.rows.through.get(), 4);
    }
}

#[test]
fn a_run_stays_at_home_in_its_cell_when_the_pool_grows() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    world.send("a", (0..8).map(|number| event("order/paid", None, &json!(number))).collect());
    for start in world.orders() {
        world.start(&start);
    }
    world.topic = Topic::new("order".into(), Pool::parse("default", "16,64").expect("a pool"));
    world.topic.repair(&world.rows, world.now).expect("the rows can be read");
    world.settle(10_000);
    assert_eq!(world.runs.len(), 8);
    assert!(world.runs.values().all(|(start, asked)| *asked == 2 && start.to.generation == 1));
}

#[test]
fn what_cannot_be_started_is_parked_and_holds_up_no_other() {
    let mut world = World::new();
    world.put("stuck", on("order/paid", None)).expect("a trigger");
    world.put("well", on("order/*", None)).expect("a trigger");
    world.send("a", (0..3).map(|number| event("order/paid", None, &json!(number))).collect());
    let mut is_stuck = true;
    for _ in 0..200 {
        let starts = world.orders();
        for start in starts {
            let end = if is_stuck && start.triggered.trigger == "stuck" {
                StartEnd::Declined(Problem::new(Code::WorkflowPaused, "The workflow is paused."))
            } else {
                StartEnd::Started(world.start(&start))
            };
            world.answer(&start, end);
        }
        let at = world.alarm.take().unwrap_or(world.now.plus_millis(500));
        world.now = world.now.plus_millis(1).max(at.min(world.now.plus_millis(5_000)));
        world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
        if world.rows.parked.borrow().len() == 3 {
            break;
        }
    }
    let view = world.trigger("stuck");
    assert_eq!((view.counts.waiting, view.counts.started), (3, 0));
    assert!(view.failures.iter().all(|failure| failure.why == "The workflow is paused."));
    assert_eq!(view.failures.len(), 3);
    is_stuck = false;
    world.settle(5_000);
    assert_eq!((world.rows.through.get(), world.trigger("well").counts.started), (3, 3));
    assert!(!is_stuck);
    world.crash();
    world.settle(120_000);
    assert_eq!(world.runs.len(), 6);
    assert_eq!(world.rows.parked.borrow().len(), 0);
    let view = world.trigger("stuck");
    assert_eq!((view.counts.waiting, view.counts.started), (0, 3));
}

#[test]
fn a_start_that_waits_for_six_days_is_given_up() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    world.send("a", vec![event("order/paid", None, &json!(1))]);
    let parked = Parked { event: 1, trigger: "all".into() };
    world.rows.parked.borrow_mut().insert(parked);
    world.rows.through.set(1);
    world.now = world.now.plus_millis(crate::object::DEAD_AFTER_MS);
    world.crash();
    world.settle(5_000);
    assert_eq!((world.runs.len(), world.rows.parked.borrow().len()), (0, 0));
    assert_eq!(world.trigger("all").counts.refused, 1);
}

#[test]
fn a_trigger_is_about_events_after_it_and_not_about_those_of_its_pause() {
    let mut world = World::new();
    let paid = || vec![event("order/paid", None, &json!(1))];
    world.send("a", paid());
    let (_, is_new) = world.put("all", on("order/*", None)).expect("a trigger");
    assert!(is_new && !world.put("all", on("order/*", None)).expect("the same").1);
    world.settle(10_000);
    assert_eq!(world.runs.len(), 0);
    world.topic.pause_trigger(&world.rows, world.now, "ada", "all").expect("it is there");
    world.send("b", paid());
    world.settle(10_000);
    world.crash();
    let view = world.topic.resume_trigger(&world.rows, world.now, "all").expect("it is there");
    assert_eq!(view.paused, None);
    world.send("c", paid());
    world.settle(10_000);
    assert_eq!(world.runs.values().map(|(start, _)| start.triggered.event).collect::<Vec<_>>(), [3]);
    world.topic.delete_trigger(&world.rows, world.now, "all").expect("it is there");
    world.send("d", paid());
    world.settle(10_000);
    assert_eq!(
        (world.runs.len(), world.topic.list_triggers(&world.rows, world.now).expect("a list").triggers.len()),
        (1, 0)
    );
}

#[test]
fn a_condition_that_fails_is_counted_and_shown() {
    let mut world = World::new();
    world.put("large", on("order/*", Some("event.data.amount > 100"))).expect("a trigger");
    world.send("a", vec![event("order/paid", Some("e"), &json!({"amount": "much"}))]);
    world.settle(10_000);
    world.crash();
    let view = world.trigger("large");
    assert_eq!((view.counts.failed, view.counts.started), (1, 0));
    assert_eq!(view.failures[0].event, "e");
}

#[test]
fn triggers_that_cannot_be_read_are_refused() {
    let mut world = World::new();
    for (pattern, when) in [
        ("invoice/paid", None),
        ("order", None),
        ("order/*", Some("event.data.amount >")),
        ("order/*", Some("input.x")),
    ] {
        let refused = world.put("bad", on(pattern, when));
        assert!(
            matches!(refused, Err(Fault::Rejected(Problem { code: Code::InvalidRequest, .. }))),
            "{pattern}"
        );
    }
    for number in 0..TRIGGERS_MAX {
        world.put(&format!("t{number}"), on("order/*", None)).expect("there is room");
    }
    let surplus = world.put("surplus", on("order/*", None));
    assert!(matches!(surplus, Err(Fault::Rejected(Problem { code: Code::TooMany, .. }))));
    // And all of them meet one event, a few at a time.
    world.send("a", vec![event("order/paid", None, &json!(1))]);
    assert_eq!(world.orders().len(), IN_FLIGHT_MAX);
    world.crash();
    world.settle(10_000);
    assert_eq!(world.runs.len(), TRIGGERS_MAX);
    assert!(IN_FLIGHT_MAX < usize::try_from(ASKS_MAX).expect("small"));
}

#[test]
fn events_are_deleted_in_slices_when_their_time_is_over() {
    let mut world = World::new();
    for batch in 0..6 {
        let events =
            (0..100).map(|number| event("order/paid", Some(&format!("{batch}-{number}")), &json!(number)));
        world.send("a", events.collect());
    }
    world.settle(10_000);
    assert_eq!(world.rows.events.borrow().len(), 600);
    world.settle(EVENT_RETENTION_MS + 60_000 + DEAD_MAN_MS);
    assert_eq!((world.rows.events.borrow().len(), world.rows.ids.borrow().len()), (0, 0));
    // The numbers go on, so that no run is taken for that of another event.
    world.crash();
    assert_eq!(world.send("b", vec![event("order/paid", None, &json!(1))])[0].1, "601-b-0");
}

#[test]
fn an_event_that_triggers_nothing_takes_one_row_and_one_start_takes_few_more() {
    let mut world = World::new();
    world.send("a", vec![event("order/paid", None, &json!(1))]);
    world.settle(10_000);
    assert_eq!(world.rows.written.get(), 1);
    world.put("all", on("order/*", None)).expect("a trigger");
    world.settle(10_000);
    let before = world.rows.written.get();
    world.send("b", (0..50).map(|number| event("order/paid", None, &json!(number))).collect());
    world.settle(10_000);
    assert_eq!(world.runs.len(), 50);
    assert!(world.rows.written.get() - before <= 54, "{}", world.rows.written.get() - before);
}

#[test]
fn conditions_that_spend_what_all_may_spend_together_are_looked_at_by_themselves() {
    let mut world = World::new();
    for number in 0..30 {
        let spec = on("order/*", Some("event.data.a == event.data.b"));
        world.put(&format!("t{number}"), spec).expect("a trigger");
    }
    let list = vec![0; 30_000];
    world.send("m", vec![event("order/paid", None, &json!({"a": list.clone(), "b": list}))]);
    world.settle(300_000);
    assert_eq!(world.runs.len(), 30);
    assert_eq!(world.trigger("t9").counts.failed, 0);
}
