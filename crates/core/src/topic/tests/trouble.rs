//! A topic whose rows cannot all be read, whose events are large, and whose calls come twice.

use serde_json::json;
use stepwell_protocol::{
    Code, Problem,
    topic::{AcceptedStatus, EVENT_RETENTION_MS},
};

use super::{EventStart, Parked, StartEnd, World, event, on};
use crate::object::{DEAD_MAN_MS, Fault, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_TO_ONE_MAX, Machine as _};

fn events(count: u64) -> Vec<stepwell_protocol::topic::NewEvent> {
    (0..count).map(|number| event("order/paid", None, &json!(number))).collect()
}

#[test]
fn an_event_that_cannot_be_read_holds_up_and_loses_no_other() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    world.rows.unreadable.borrow_mut().extend([3, 99]);
    world.send("a", events(100));
    world.settle(10_000);
    assert_eq!((world.runs.len(), world.rows.through.get()), (98, 100));
    let (mut before, mut listed) = (u64::MAX, 0);
    for _ in 0..100 {
        let page = world.topic.list(&world.rows, before, 3).expect("a page");
        listed += page.events.len();
        let Some(next) = page.next else { break };
        before = next;
    }
    assert_eq!(listed, 98, "the list goes on behind what cannot be read");
    // And its time comes like that of the others.
    world.settle(EVENT_RETENTION_MS + 60_000 + DEAD_MAN_MS);
    assert_eq!(world.rows.events.borrow().len(), 0);
    world.send("b", events(1));
    world.settle(10_000);
    assert_eq!(world.runs.len(), 99);
}

#[test]
fn a_trigger_that_cannot_be_read_gets_its_events_when_it_can_be() {
    for text in ["{", ""] {
        let mut world = World::new();
        world.put("other", on("order/*", None)).expect("a trigger");
        world.put("later", on("order/*", Some("event.data > 1"))).expect("a trigger");
        let row = world.rows.triggers.borrow()["later"].clone();
        // The whole row, or only its condition.
        let broken =
            if text.is_empty() { row.replace("event.data > 1", "event.data >") } else { text.into() };
        world.rows.triggers.borrow_mut().insert("later".into(), broken);
        world.crash();
        world.send("a", events(4));
        world.settle(200_000);
        assert_eq!(world.runs.len(), 4, "of the other one");
        assert_eq!((world.rows.parked.borrow().len(), world.rows.through.get()), (4, 4));
        if !text.is_empty() {
            let list = world.topic.list_triggers(&world.rows, world.now).expect("a list");
            assert_eq!((list.triggers.len(), list.unreadable), (1, vec!["later".to_owned()]));
            let unread = world.topic.get_trigger(&world.rows, world.now, "later");
            assert!(matches!(unread, Err(Fault::Rejected(Problem { code: Code::WrongStatus, .. }))));
        }
        // The release that can read it is back.
        world.rows.triggers.borrow_mut().insert("later".into(), row);
        world.crash();
        world.settle(200_000);
        assert_eq!(world.runs.len(), 6, "two of four events meet it");
        assert_eq!(world.rows.parked.borrow().len(), 0);
        assert_eq!(world.trigger("later").counts.started, 2);
    }
}

#[test]
fn a_trigger_that_cannot_be_read_can_be_deleted_and_replaced() {
    for replaces in [false, true] {
        let mut world = World::new();
        world.put("later", on("order/*", None)).expect("a trigger");
        world.rows.triggers.borrow_mut().insert("later".into(), "{".into());
        world.crash();
        world.send("a", events(3));
        world.settle(10_000);
        assert_eq!(world.rows.parked.borrow().len(), 3);
        if replaces {
            world.put("later", on("order/*", None)).expect("it is replaced");
            world.send("b", events(1));
        } else {
            world.topic.delete_trigger(&world.rows, world.now, "later").expect("it is deleted");
            assert_eq!(world.rows.triggers.borrow().len(), 0);
        }
        world.settle(200_000);
        assert_eq!((world.runs.len(), world.rows.parked.borrow().len()), (usize::from(replaces), 0));
    }
}

#[test]
fn a_page_of_large_events_fits_into_an_answer() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    for mark in ["a", "b"] {
        let large = (0..10).map(|_| event("order/paid", None, &json!("x".repeat(400_000))));
        world.send(mark, large.collect());
    }
    let (mut before, mut listed) = (u64::MAX, 0);
    while listed < 20 {
        let page = world.topic.list(&world.rows, before, 50).expect("a page");
        let bytes: usize = page.events.iter().map(|event| event.data.size()).sum();
        assert!((1..1 << 20).contains(&bytes), "{bytes}");
        listed += page.events.len();
        before = page.next.unwrap_or_default();
    }
    assert_eq!(before, 0, "no page is left");
    world.settle(10_000);
    assert_eq!(world.runs.len(), 20);
}

#[test]
fn a_call_that_comes_again_after_a_crash_stores_nothing_twice() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    world.send("other", vec![event("order/paid", Some("9-m-0"), &json!(1))]);
    let first = world.send("m", events(2));
    world.crash();
    let again = world.send("m", events(2));
    assert!(again.iter().all(|(status, _)| *status == AcceptedStatus::Duplicate), "{again:?}");
    assert_eq!(
        again.iter().map(|(_, id)| id).collect::<Vec<_>>(),
        first.iter().map(|(_, id)| id).collect::<Vec<_>>()
    );
    world.settle(10_000);
    assert_eq!((world.rows.events.borrow().len(), world.runs.len()), (3, 3));
}

#[test]
fn a_batch_that_comes_again_after_other_batches_stores_nothing_twice() {
    for is_new_instance in [false, true] {
        let mut world = World::new();
        let first = world.send("m", events(100));
        for mark in ["n", "o"] {
            world.send(mark, events(100));
        }
        for number in 0..5_000 {
            world.send(&format!("p{number}"), events(1));
        }
        if is_new_instance {
            world.crash();
        }
        let again = world.send("m", events(100));
        assert!(again.iter().all(|(status, _)| *status == AcceptedStatus::Duplicate), "{again:?}");
        let ids =
            |sent: &[(AcceptedStatus, String)]| sent.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&again), ids(&first));
        assert_eq!(world.rows.events.borrow().len(), 5_300);
    }
}

#[test]
fn the_first_trigger_is_not_about_the_events_before_it_even_after_a_crash() {
    let mut world = World::new();
    world.send("a", events(100));
    world.settle(10_000);
    world.put("all", on("order/*", None)).expect("a trigger");
    assert_eq!(world.rows.through.get(), 100, "stored with the trigger");
}

/// Lets alarms fire for so long, while cells answer as they do; some do not.
fn live(world: &mut World, ms: u64, mut answer: impl FnMut(&mut World, &EventStart) -> Option<StartEnd>) {
    let until = world.now.plus_millis(ms);
    for _ in 0..100_000 {
        let starts = world.orders();
        if starts.is_empty() {
            let Some(at) = world.alarm.filter(|at| *at <= until) else {
                world.now = until;
                return;
            };
            world.alarm = None;
            world.now = world.now.max(at);
            world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
        }
        for start in starts {
            if let Some(end) = answer(world, &start) {
                world.answer(&start, end);
            }
        }
    }
    panic!("it does not come to rest");
}

fn paused() -> StartEnd {
    StartEnd::Declined(Problem::new(Code::WorkflowPaused, "The workflow is paused."))
}

#[test]
fn a_cell_that_hangs_holds_up_no_other() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    for mark in ["a", "b", "c", "d"] {
        world.send(mark, events(100));
    }
    let (mut asked, mut others) = (0, 0);
    live(&mut world, 5_000, |world, start| {
        if start.to.cell == 7 {
            asked += 1;
            return None;
        }
        others += 1;
        Some(StartEnd::Started(world.start(start)))
    });
    assert_eq!(asked, IN_FLIGHT_TO_ONE_MAX);
    let of_seven = 400 - others;
    assert!((10..50).contains(&of_seven), "the others wait for nobody: {of_seven}");
    live(&mut world, 600_000, |_, start| {
        assert_eq!(start.to.cell, 7);
        asked += 1;
        None
    });
    assert!(asked < 30, "one that does not answer is asked {asked} times");
    assert_eq!((world.rows.parked.borrow().len(), world.rows.through.get()), (of_seven, 400));
    // New events go on, and those of the cell are parked without a question.
    world.send("e", events(100));
    live(&mut world, 5_000, |world, start| {
        assert_ne!(start.to.cell, 7);
        Some(StartEnd::Started(world.start(start)))
    });
    live(&mut world, 300_000, |world, start| Some(StartEnd::Started(world.start(start))));
    assert_eq!((world.runs.len(), world.rows.parked.borrow().len()), (500, 0));
}

#[test]
fn large_events_are_asked_for_as_many_as_fit_into_memory() {
    let mut world = World::new();
    for number in 0..16 {
        world.put(&format!("t{number}"), on("order/*", None)).expect("a trigger");
    }
    world.send("a", vec![event("order/paid", None, &json!("x".repeat(1_000_000)))]);
    let mut most = 0;
    let mut waiting: Vec<EventStart> = Vec::new();
    loop {
        waiting.extend(world.orders());
        most = most.max(waiting.iter().map(|start| start.input.size()).sum());
        let is_waiting = world.runs.len() + waiting.len() < 16;
        assert!(
            !is_waiting || world.alarm.is_some_and(|at| at > world.now),
            "an answer goes on with the rest"
        );
        let Some(start) = waiting.pop() else { break };
        let run = world.start(&start);
        world.answer(&start, StartEnd::Started(run));
    }
    assert_eq!(world.runs.len(), 16);
    assert!((IN_FLIGHT_BYTES_MAX / 2..=IN_FLIGHT_BYTES_MAX).contains(&most), "{most}");
}

#[test]
fn a_trigger_that_is_stuck_costs_one_question_a_minute_and_holds_up_no_other() {
    let mut world = World::new();
    world.put("stuck", on("order/*", None)).expect("a trigger");
    world.put("well", on("order/*", None)).expect("a trigger");
    let mut asked = 0;
    let mut answer = |world: &mut World, start: &EventStart| {
        if start.triggered.trigger == "stuck" {
            asked += 1;
            return Some(paused());
        }
        Some(StartEnd::Started(world.start(start)))
    };
    world.send("first", events(1));
    live(&mut world, 10_000, &mut answer);
    for batch in 0..6 {
        world.send(&format!("b{batch}"), events(100));
        live(&mut world, 1_000, &mut answer);
    }
    assert_eq!(world.trigger("well").counts.started, 601);
    assert!(asked < 150, "what was known already, and no more: {asked}");
    let asked_before = asked;
    let read_before = world.rows.parked_read.get();
    let mut asked = 0;
    live(&mut world, 3_600_000, |_, _| {
        asked += 1;
        Some(paused())
    });
    assert!((50..=62).contains(&asked), "{asked} after {asked_before}");
    assert!(world.rows.parked_read.get() - read_before < 70);
    assert_eq!((world.rows.parked.borrow().len(), world.rows.through.get()), (601, 601));
    // It is resumed: all of them start.
    live(&mut world, 300_000, |world, start| Some(StartEnd::Started(world.start(start))));
    assert_eq!((world.runs.len(), world.rows.parked.borrow().len()), (1_202, 0));
    let counts = world.trigger("stuck").counts;
    assert_eq!((counts.started, counts.waiting), (601, 0));
}

#[test]
fn what_is_parked_for_a_trigger_that_is_deleted_goes_in_slices() {
    let mut world = World::new();
    world.put("stuck", on("order/*", None)).expect("a trigger");
    world.send("a", events(100));
    for event in 101..=1_000 {
        world.rows.parked.borrow_mut().insert(Parked { event, trigger: "stuck".into() });
    }
    live(&mut world, 10_000, |_, _| Some(paused()));
    assert_eq!(world.rows.parked.borrow().len(), 1_000);
    world.topic.delete_trigger(&world.rows, world.now, "stuck").expect("it is deleted");
    assert!(world.rows.parked.borrow().len() >= 900);
    world.crash();
    world.settle(60_000);
    assert_eq!((world.rows.parked.borrow().len(), world.runs.len()), (0, 0));
}

#[test]
fn an_event_whose_cell_is_full_starts_in_the_one_that_it_is_sent_on_to() {
    let mut world = World::new();
    world.put("all", on("order/*", None)).expect("a trigger");
    world.send("a", events(20));
    let mut moved = 0;
    live(&mut world, 10_000, |world, start| {
        if start.to.cell < 8
            && let Some(spare) = start.spare.clone()
        {
            moved += 1;
            assert_ne!(spare, start.to);
            return Some(StartEnd::Moved(spare));
        }
        Some(StartEnd::Started(world.start(start)))
    });
    assert!(moved > 0);
    assert_eq!((world.runs.len(), world.rows.parked.borrow().len(), world.rows.through.get()), (20, 0, 20));
}
