//! Waits that look back at the events before them.

use super::{waits::waiter, *};
use crate::{
    object::Receipt,
    topic::{LOOK_BACK_BYTES_MAX, LOOK_BACK_EVENTS_MAX, waits::EXAMINED_MAX},
};
use stepwell_protocol::topic::Waiter;

#[test]
fn waits_that_are_registered_together_look_back_together() {
    let mut world = World::new();
    let from = world.now;
    for id in 1..=1_000 {
        world.emit(id);
    }
    for id in 1..=1_000 {
        world.wait(waiter(id, from));
    }
    assert_eq!(world.deliver(20_000, &Receipt::Taken).len(), 1_000);
    // The first one alone, then 256 at a time.
    const { assert!(1_000 < LOOK_BACK_EVENTS_MAX) };
}

#[test]
fn a_look_back_is_about_the_events_before_the_wait_however_many_come_after_it() {
    let mut world = World::new();
    let from = world.now;
    world.emit(7);
    // This one looks back first; the other one has to wait for its turn.
    world.wait_now(100);
    world.wait(waiter(7, from));
    for _ in 0..=LOOK_BACK_EVENTS_MAX {
        world.emit(999);
    }
    assert_eq!(world.deliver(60_000, &Receipt::Taken), [(7, 1)]);
}

#[test]
fn a_look_back_ends_at_its_bytes() {
    let mut world = World::new();
    let from = world.now;
    let large = json!("x".repeat(1_000_000));
    world.emit(7);
    for number in 0..LOOK_BACK_BYTES_MAX / 1_000_000 + 3 {
        world.send(&format!("l{number}"), vec![event("order/shipped", None, &large)]);
    }
    world.emit(8);
    world.wait(waiter(7, from));
    world.wait(waiter(8, from));
    assert_eq!(
        world.deliver(20_000, &Receipt::Taken).into_iter().map(|(run, _)| run).collect::<Vec<_>>(),
        [8]
    );
}

#[test]
fn waits_that_were_looked_back_for_are_not_looked_at_again_after_a_crash() {
    let mut world = World::new();
    let from = world.now;
    for id in 1..=50 {
        world.emit(id);
    }
    for id in 1..=40 {
        world.wait(waiter(1_000 + id, from));
    }
    world.wait(waiter(50, from));
    // Something is always under way.
    world.wait(waiter(2_000, from));
    for _ in 0..5 {
        world.emit(2_000);
        world.deliver_with(1_500, |run| if run == 2_000 { Receipt::Passed } else { Receipt::Taken });
        world.emit(2_000);
        world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
    }
    assert!(world.rows.looked.get() >= 41, "{}", world.rows.looked.get());
}

#[test]
fn a_look_back_compares_so_many_waits_at_once_and_goes_on() {
    let mut world = World::new();
    let from = world.now;
    for id in 1..=1_000 {
        world.emit(id);
    }
    let when = Some("event.data.id == 1 || event.data.id < 0".to_owned());
    world.wait(Waiter { when: when.clone(), ..waiter(0, from) });
    world.deliver(10, &Receipt::Taken);
    // The others wait until the next look back.
    for id in 1..=200 {
        world.wait(Waiter { when: when.clone(), ..waiter(id, from) });
    }
    for _ in 0..20 {
        world.rows.events_read.set(0);
        world.later(1_000);
        world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
        let read = world.rows.events_read.get();
        assert!(200 * read <= 2 * EXAMINED_MAX, "{read} events were compared with 200 waits at once");
    }
    assert_eq!(world.deliver(600_000, &Receipt::Taken).len(), 200);
}
