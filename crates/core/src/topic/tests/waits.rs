//! Waits of runs: which events they get, and what is left of them when the topic or an answer is lost.

use std::collections::BTreeSet;

use stepwell_protocol::{
    Epoch, Op, OpKind, Place,
    topic::{CONDITION_BYTES_MAX, LOOK_BACK_MS, Waiter},
};

use super::*;
use crate::{
    object::{ANSWER_MS, Receipt},
    topic::{Meeting, WAITS_MAX, kinds::KINDS_MAX, wait_id, waits::EXAMINED_MAX},
};

/// What a run waits for: `id` is both the run's number and what it compares the event with.
pub(super) fn waiter(id: u64, from: Timestamp) -> Waiter {
    let place = Place { pool: "default".into(), generation: 1, cell: u32::try_from(id % 4).expect("small") };
    Waiter {
        run: RunId { place, number: id, suffix: RunId::suffix_from(id) },
        life: 1,
        op: Op { kind: OpKind::Wait, name: "event:order/paid".into(), occurrence: 0 },
        epoch: Epoch(1),
        on: "order/paid".into(),
        when: Some("event.data.id == input.id".into()),
        input: Payload::encode(&json!({ "id": id })).expect("it is JSON"),
        from,
        until: None,
        except: None,
        cancels: false,
    }
}

fn paid(id: u64) -> NewEvent {
    event("order/paid", None, &json!({ "id": id }))
}

impl World {
    pub(super) fn wait(&mut self, waiter: Waiter) {
        let receipt = self.topic.wait(&self.rows, self.now, waiter).expect("it is taken");
        assert_eq!(receipt, Receipt::Taken);
    }

    pub(super) fn wait_now(&mut self, id: u64) {
        self.wait(waiter(id, self.now));
    }

    pub(super) fn emit(&mut self, id: u64) {
        let mark = format!("m{}", self.rows.last.get());
        self.send(&mark, vec![paid(id)]);
    }

    fn meetings(&mut self) -> Vec<Meeting> {
        let orders = self.topic.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        let meetings = orders.own.into_iter().filter_map(|order| match order {
            Order::Meet(meeting) => Some(*meeting),
            Order::Start(_) => None,
        });
        meetings.collect()
    }

    /// Goes on until the alarm is further away than this, and cells answer as they are told to: which runs were told.
    pub(super) fn deliver(&mut self, within_ms: u64, answer: &Receipt) -> Vec<(u64, u64)> {
        self.deliver_with(within_ms, |_| answer.clone())
    }

    /// The same with an answer for each run.
    pub(super) fn deliver_with(
        &mut self,
        within_ms: u64,
        answer: impl Fn(u64) -> Receipt,
    ) -> Vec<(u64, u64)> {
        let until = self.now.plus_millis(within_ms);
        let mut told = Vec::new();
        for _ in 0..100_000 {
            let meetings = self.meetings();
            if meetings.is_empty() {
                match self.alarm.take() {
                    Some(at) if at <= until => {
                        self.now = self.now.max(at);
                        self.topic.alarm(&self.rows, self.now).expect("the rows can be read");
                        continue;
                    }
                    other => {
                        self.alarm = other;
                        return told;
                    }
                }
            }
            for meeting in meetings {
                assert!(meeting.waits.len() <= WAITS_MAX);
                assert!(meeting.waits.iter().all(|wait| wait.waiter.run.place == meeting.to));
                let number = meeting.event.tag.rsplit('/').next().and_then(|number| number.parse().ok());
                let number: u64 = number.expect("a number");
                told.extend(meeting.waits.iter().map(|wait| (wait.waiter.run.number, number)));
                let receipts = meeting.waits.iter().map(|wait| answer(wait.waiter.run.number)).collect();
                self.topic.met(&self.rows, self.now, &meeting, Some(receipts)).expect("it is taken");
            }
        }
        panic!("it never comes to rest");
    }

    /// Waits of one cell for any event, so many.
    fn wait_in_one_cell(&mut self, count: u64) {
        for id in 1..=count {
            self.wait(Waiter { when: None, ..waiter(4 * id, self.now) });
        }
    }

    /// Lets alarms fire for so long, while no cell answers.
    fn hang(&mut self, ms: u64) {
        let until = self.now.plus_millis(ms);
        for _ in 0..1_000 {
            self.meetings();
            let Some(at) = self.alarm.filter(|at| *at <= until) else { break };
            self.alarm = None;
            self.now = self.now.max(at);
            self.topic.alarm(&self.rows, self.now).expect("the rows can be read");
        }
        self.now = until;
    }
}

#[test]
fn a_wait_gets_the_event_that_it_is_for_and_no_other() {
    let mut world = World::new();
    world.wait_now(7);
    world.wait_now(8);
    world.emit(9);
    world.emit(8);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(8, 2)]);
    let met = world.topic.get(&world.rows, "2-m1-0").expect("it is there").waits;
    assert_eq!(met.len(), 1);
    assert_eq!((met[0].run.number, met[0].wait.as_str()), (8, "wait:0:event:order/paid"));
    // The other one still waits.
    assert_eq!(world.rows.waits.borrow().len(), 1);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 3)]);
    assert!(world.rows.waits.borrow().is_empty());
}

#[test]
fn a_wait_gets_an_event_that_came_just_before_it_but_not_an_older_one() {
    let mut world = World::new();
    world.emit(7);
    world.later(LOOK_BACK_MS + 1);
    world.emit(7);
    world.later(LOOK_BACK_MS);
    let from = Timestamp::from_millis(world.now.as_millis() - LOOK_BACK_MS);
    world.wait(waiter(7, from));
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 2)]);
}

#[test]
fn the_event_that_started_a_run_does_not_count() {
    let mut world = World::new();
    let from = world.now;
    world.emit(7);
    world.wait(Waiter { except: Some(1), ..waiter(7, from) });
    assert_eq!(world.deliver(2_000, &Receipt::Taken), []);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 2)]);
}

#[test]
fn a_wait_without_an_equality_is_compared_with_each_event() {
    let mut world = World::new();
    let when = Some("event.data.id > input.id".into());
    world.wait(Waiter { on: "order/*".into(), when, ..waiter(7, world.now) });
    world.wait(Waiter { on: "order/shipped".into(), when: None, ..waiter(8, world.now) });
    world.emit(7);
    world.emit(8);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 2)]);
}

#[test]
fn a_wait_that_is_gone_is_dropped_and_one_that_passes_goes_on() {
    let mut world = World::new();
    world.wait_now(7);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Passed), [(7, 1)]);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Gone), [(7, 2)]);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), []);
    assert!(world.topic.get(&world.rows, "2-m1-0").expect("it is there").waits.is_empty());
}

#[test]
fn an_event_that_a_cell_cannot_take_yet_is_delivered_later_even_after_a_crash() {
    let mut world = World::new();
    world.wait_now(7);
    world.emit(7);
    let told = world.deliver(30_000, &Receipt::Later);
    assert!(told.len() >= 5, "{told:?}");
    assert_eq!(world.rows.parked.borrow().len(), 1);
    world.topic = topic();
    world.topic.repair(&world.rows, world.now).expect("the rows can be read");
    assert_eq!(world.deliver(120_000, &Receipt::Taken), [(7, 1)]);
    assert!(world.rows.parked.borrow().is_empty());
    assert!(world.rows.waits.borrow().is_empty());
}

#[test]
fn an_event_that_was_parked_for_a_silent_cell_is_not_lost_when_a_run_cannot_take_it_yet() {
    let mut world = World::new();
    world.wait_now(7);
    world.emit(7);
    world.hang(300_000);
    assert_eq!((world.rows.parked.borrow().len(), world.rows.through.get()), (1, 1));
    let meeting = loop {
        if let Some(meeting) = world.meetings().pop() {
            break meeting;
        }
        let at = world.alarm.take().expect("it is tried again");
        world.now = world.now.max(at);
        world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
    };
    // The cell answers at last, but the run cannot take it; and the topic dies.
    world.topic.met(&world.rows, world.now, &meeting, Some(vec![Receipt::Later])).expect("it is taken");
    world.topic = topic();
    world.topic.repair(&world.rows, world.now).expect("the rows can be read");
    assert_eq!(world.deliver(120_000, &Receipt::Taken), [(7, 1)]);
    assert!(world.rows.parked.borrow().is_empty() && world.rows.waits.borrow().is_empty());
}

#[test]
fn a_wait_that_is_registered_twice_is_one() {
    let mut world = World::new();
    world.wait_now(7);
    world.wait_now(7);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 1)]);
}

#[test]
fn a_wait_whose_time_is_over_is_deleted_by_the_alarm() {
    let mut world = World::new();
    world.wait(Waiter { until: Some(world.now.plus_millis(5_000)), ..waiter(7, world.now) });
    world.deliver(4_000, &Receipt::Taken);
    assert_eq!(world.rows.waits.borrow().len(), 1);
    world.deliver(70_000, &Receipt::Taken);
    assert!(world.rows.waits.borrow().is_empty());
    assert_eq!(world.alarm, None);
}

#[test]
fn a_wait_that_is_over_is_deleted_unless_it_has_begun_again_since() {
    let mut world = World::new();
    world.wait(Waiter { epoch: Epoch(3), ..waiter(7, world.now) });
    world.wait_now(8);
    let over = |world: &mut World, id: u64, epoch| {
        let Waiter { run, life, op, .. } = waiter(id, world.now);
        world.topic.wait_over(&world.rows, world.now, &wait_id(&run, life, &op), Epoch(epoch))
    };
    for (id, epoch) in [(7, 2), (8, 1), (9, 1)] {
        assert_eq!(over(&mut world, id, epoch).expect("it is taken"), Receipt::Taken);
    }
    world.emit(7);
    world.emit(8);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 1)]);
}

#[test]
fn many_waits_with_an_event_each_are_compared_about_once_each() {
    const COUNT: u64 = 1_000;
    let mut world = World::new();
    for id in 1..=COUNT {
        world.wait_now(id);
        world.later(1);
    }
    world.deliver(2_000, &Receipt::Taken);
    world.rows.waits_read.set(0);
    for id in 1..=COUNT {
        world.emit(id);
        world.later(1);
    }
    assert_eq!(world.deliver(60_000, &Receipt::Taken).len(), usize::try_from(COUNT).expect("few"));
    let read = world.rows.waits_read.get();
    assert!(read <= 2 * usize::try_from(COUNT).expect("few"), "{read} waits were read");
}

#[test]
fn many_waits_for_one_event_are_told_in_calls_of_256() {
    let mut world = World::new();
    for id in 1..=4_000 {
        world.wait(Waiter { when: None, ..waiter(id, world.now) });
    }
    world.emit(1);
    assert_eq!(world.deliver(10_000, &Receipt::Taken).len(), 4_000);
    assert!(world.rows.waits.borrow().is_empty());
}

#[test]
fn an_event_that_comes_after_a_wait_counts_whatever_the_clocks_say() {
    let mut world = World::new();
    world.wait(waiter(7, world.now.plus_millis(60_000)));
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 1)]);
}

#[test]
fn an_old_registration_does_not_replace_a_newer_one() {
    let mut world = World::new();
    world.wait(Waiter { epoch: Epoch(3), ..waiter(7, world.now) });
    world.wait(Waiter { until: Some(world.now.plus_millis(5_000)), ..waiter(7, world.now) });
    world.deliver(70_000, &Receipt::Taken);
    world.emit(7);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 1)]);
}

#[test]
fn an_event_is_delivered_for_as_long_as_it_is_kept() {
    let mut world = World::new();
    let from = world.now;
    world.emit(7);
    world.later(EVENT_RETENTION_MS - 3_600_000);
    world.wait(waiter(7, from));
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 1)]);
}

#[test]
fn a_run_that_takes_nothing_holds_up_no_other_of_its_cell() {
    let mut world = World::new();
    world.wait(Waiter { on: "order/*".into(), when: None, ..waiter(4, world.now) });
    world.wait_now(8);
    let answer = |run| if run == 4 { Receipt::Later } else { Receipt::Taken };
    for _ in 0..120 {
        world.emit(1);
        world.deliver_with(1_000, answer);
        world.later(1_000);
    }
    assert!(world.rows.parked.borrow().len() <= 64, "{}", world.rows.parked.borrow().len());
    world.emit(8);
    let told = world.deliver_with(2_000, answer);
    assert!(told.contains(&(8, 121)), "{told:?}");
    // It gets one of those that wait for it.
    let told = world.deliver(180_000, &Receipt::Taken);
    assert!(told.len() == 1 && told[0].0 == 4, "{told:?}");
    assert!(world.rows.parked.borrow().is_empty() && world.rows.waits.borrow().is_empty());
}

#[test]
fn waits_are_found_by_what_is_theirs_alone() {
    let mut world = World::new();
    let when = "event.data.country == 'DE' && event.data.id == input.id";
    for id in 1..=1_000 {
        world.wait(Waiter { when: Some(when.into()), ..waiter(id, world.now) });
    }
    world.deliver(2_000, &Receipt::Taken);
    world.rows.waits_read.set(0);
    world.send("m", vec![event("order/paid", None, &json!({"id": 7, "country": "DE"}))]);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(7, 1)]);
    assert!(world.rows.waits_read.get() <= 4, "{}", world.rows.waits_read.get());
}

#[test]
fn one_turn_compares_so_many_waits_however_many_events_come() {
    let mut world = World::new();
    for id in 1..=1_000 {
        world.wait(Waiter { when: Some("event.data.id < 0".into()), ..waiter(id, world.now) });
    }
    world.deliver(20_000, &Receipt::Taken);
    world.rows.waits_read.set(0);
    world.send("m", (0..16).map(paid).collect());
    let read = world.rows.waits_read.get();
    assert!(read <= 2 * EXAMINED_MAX, "{read}");
    world.deliver(60_000, &Receipt::Taken);
    assert_eq!(world.rows.waits_read.get(), 16 * 1_000);
}

#[test]
fn names_that_nobody_waits_for_any_more_make_room_for_others() {
    let mut world = World::new();
    for number in 0..=KINDS_MAX {
        let on = format!("order/n{number}");
        world.later(10);
        world.wait(Waiter { on: on.clone(), when: None, ..waiter(4, world.now) });
        let Waiter { run, life, op, epoch, .. } = waiter(4, world.now);
        world.topic.wait_over(&world.rows, world.now, &wait_id(&run, life, &op), epoch).expect("it is over");
    }
    assert!(world.rows.waits.borrow().is_empty());
}

#[test]
fn a_topic_that_nobody_waits_at_sets_its_alarm_once() {
    let mut world = World::new();
    let mut armed = 0;
    for id in 1..=100 {
        world.emit(id);
        world.later(10);
        armed += usize::from(world.topic.take_orders().arm.is_some());
    }
    assert_eq!(armed, 1, "for the end of the first event's time");
}

#[test]
fn an_event_that_is_told_in_several_calls_reaches_the_waits_of_every_kind() {
    let mut world = World::new();
    world.wait_in_one_cell(300);
    for (id, on) in [(5_000, "order/*"), (5_004, "order/p*"), (5_008, "order/paid*")] {
        world.wait(Waiter { on: on.into(), when: None, ..waiter(id, world.now) });
    }
    world.emit(1);
    assert_eq!(world.deliver(30_000, &Receipt::Taken).len(), 303);
}

#[test]
fn a_call_that_is_not_answered_is_made_again_from_its_first_wait() {
    let mut world = World::new();
    world.wait_in_one_cell(300);
    world.emit(1);
    assert_eq!(world.meetings()[0].waits.len(), WAITS_MAX);
    world.later(ANSWER_MS);
    assert_eq!(world.deliver(30_000, &Receipt::Taken).len(), 300);
}

#[test]
fn a_wait_that_begins_while_its_cell_is_told_gets_the_event_too() {
    let mut world = World::new();
    let from = world.now;
    world.wait_in_one_cell(1);
    world.emit(1);
    let meeting = world.meetings().pop().expect("its cell is told");
    world.wait(Waiter { when: None, ..waiter(8, from) });
    let receipts = Some(vec![Receipt::Taken]);
    world.topic.met(&world.rows, world.now, &meeting, receipts).expect("it is taken");
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(8, 1)]);
}

#[test]
fn a_cell_that_hangs_gets_its_events_when_it_answers() {
    let mut world = World::new();
    world.wait_now(4);
    world.wait_now(5);
    world.emit(4);
    world.hang(300_000);
    assert_eq!((world.rows.parked.borrow().len(), world.rows.through.get()), (1, 1));
    // It holds up no other.
    world.emit(5);
    assert_eq!(world.deliver(1_000, &Receipt::Taken), [(5, 2)]);
    assert_eq!(world.deliver(600_000, &Receipt::Taken), [(4, 1)]);
    assert!(world.rows.parked.borrow().is_empty());
}

#[test]
fn a_run_that_takes_nothing_is_asked_once_a_minute() {
    let mut world = World::new();
    world.wait_now(4);
    for _ in 0..60 {
        world.emit(4);
        world.deliver(1_000, &Receipt::Later);
        world.later(1_000);
    }
    world.deliver(60_000, &Receipt::Later);
    assert_eq!(world.rows.through.get(), 60);
    let asked = world.deliver(3_600_000, &Receipt::Later).len();
    assert!((50..=62).contains(&asked), "{asked}");
    assert_eq!(world.deliver(300_000, &Receipt::Taken).len(), 1);
    assert!(world.rows.parked.borrow().is_empty() && world.rows.waits.borrow().is_empty());
}

#[test]
fn waits_that_cannot_be_read_hide_no_others() {
    let mut world = World::new();
    world.wait_in_one_cell(300);
    world.rows.unreadable_waits.borrow_mut().extend(1..=10);
    world.emit(1);
    assert_eq!(world.deliver(2_000, &Receipt::Taken).len(), 290);
    assert_eq!(world.rows.waits.borrow().len(), 10);
    // The same for those that look back.
    let mut world = World::new();
    let from = world.now;
    world.emit(1);
    world.rows.unreadable_waits.borrow_mut().extend(1..=10);
    for id in 1..=12 {
        world.wait(Waiter { when: None, ..waiter(id, from) });
    }
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(11, 1), (12, 1)]);
}

#[test]
fn conditions_that_compare_much_are_spread_over_turns() {
    let mut world = World::new();
    for id in 1..=20 {
        let when = Some("event.data == event.data".into());
        world.wait(Waiter { when, ..waiter(4 * id, world.now) });
    }
    world.send("a", vec![event("order/paid", None, &json!(vec![0; 30_000]))]);
    let first = world.meetings().pop().expect("its cell is told").waits.len();
    assert!((4..20).contains(&first), "{first}");
    world.topic = topic();
    world.topic.repair(&world.rows, world.now).expect("the rows can be read");
    assert_eq!(world.deliver(2_000, &Receipt::Taken).len(), 20);
}

#[test]
fn an_event_that_is_too_large_for_conditions_is_for_waits_without_one() {
    let mut world = World::new();
    world.wait(Waiter { when: Some("event.name == 'order/paid'".into()), ..waiter(1, world.now) });
    world.wait(Waiter { when: Some("event.name != 'x'".into()), ..waiter(2, world.now) });
    world.wait(Waiter { when: None, ..waiter(3, world.now) });
    world.send("a", vec![event("order/paid", None, &json!("x".repeat(CONDITION_BYTES_MAX)))]);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(3, 1)]);
    world.emit(1);
    assert_eq!(world.deliver(2_000, &Receipt::Taken), [(1, 2), (2, 2)]);
}

/// A world in which topics crash and answers are lost: what is recorded by the cells, by run.
struct Chaos {
    world: World,
    seed: u64,
    bug: Option<Bug>,
    open: BTreeSet<u64>,
    taken: BTreeMap<u64, Vec<u64>>,
}

impl Chaos {
    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % bound
    }

    /// A cell records an event only while the wait is open.
    fn take(&mut self, meeting: &Meeting) -> Vec<Receipt> {
        let runs = meeting.waits.iter().map(|wait| wait.waiter.run.number).collect::<Vec<_>>();
        let event = meeting.event.data.decode::<Json>().expect("JSON")["id"].as_u64().expect("a number");
        let mut receipts = Vec::new();
        for run in runs {
            let is_open = self.open.remove(&run);
            if is_open || self.bug == Some(Bug::TakeTwice) {
                self.taken.entry(run).or_default().push(event);
            }
            receipts.push(if is_open { Receipt::Taken } else { Receipt::Gone });
        }
        receipts
    }

    fn step(&mut self) {
        for meeting in self.world.meetings() {
            match self.below(4) {
                0 => {
                    // The answer is lost.
                    self.take(&meeting);
                    let _ = self.world.topic.met(&self.world.rows, self.world.now, &meeting, None);
                }
                1 => {
                    let _ = self.world.topic.met(&self.world.rows, self.world.now, &meeting, None);
                }
                _ => {
                    let receipts = self.take(&meeting);
                    let _ = self.world.topic.met(&self.world.rows, self.world.now, &meeting, Some(receipts));
                }
            }
        }
        if self.below(8) == 0 {
            self.world.topic = topic();
            let _ = self.world.topic.repair(&self.world.rows, self.world.now);
        }
        let ms = self.below(2_000);
        self.world.later(ms);
        if self.world.alarm.is_none_or(|at| at <= self.world.now) {
            self.world.alarm = None;
            let _ = self.world.topic.alarm(&self.world.rows, self.world.now);
        }
    }
}

fn chaos(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    const COUNT: u64 = 12;
    let mut chaos = Chaos { world: World::new(), seed, bug, open: BTreeSet::new(), taken: BTreeMap::new() };
    chaos.world.rows.bug.set(bug);
    let mut emitted = 0;
    let mut waiting = 0;
    for _ in 0..200 {
        if emitted < COUNT && chaos.below(3) == 0 {
            emitted += 1;
            chaos.world.emit(emitted);
        }
        if waiting < COUNT && chaos.below(3) == 0 {
            waiting += 1;
            chaos.open.insert(waiting);
            // All events of this world count, whenever they come.
            chaos.world.wait(waiter(waiting, Timestamp::from_millis(0)));
        }
        chaos.step();
    }
    for _ in 0..400 {
        chaos.step();
    }
    for id in 1..=emitted.min(waiting) {
        let taken = chaos.taken.get(&id).cloned().unwrap_or_default();
        if taken != [id] {
            return Err(format!("seed {seed}: run {id} took {taken:?}"));
        }
    }
    Ok(())
}

#[test]
fn whatever_crashes_each_wait_takes_its_event_once() {
    for seed in 0..300 {
        chaos(seed, None).expect("nothing is lost or repeated");
    }
}

#[test]
fn mistakes_with_waits_are_noticed() {
    for bug in [Bug::ForgetLookBack, Bug::TakeTwice, Bug::WatermarkAhead] {
        let is_found = (0..300).any(|seed| chaos(seed, Some(bug)).is_err());
        assert!(is_found, "{bug:?} was not noticed");
    }
}
