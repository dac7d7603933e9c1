//! What a turn answers, reads and sets off.

use stepwell_protocol::{Code, queue::QueueState};

use super::{Post, World, at, code, leases, post, posts};
use crate::{
    object::{Hosted as _, Machine as _},
    queue::{Content, End, Form, Order},
};

/// Whether a turn sets the alarm: its answer then waits for a write, which a superseded instance cannot make.
fn arms(world: &mut World, act: impl Fn(&mut World)) -> bool {
    world.take_orders();
    world.rows.written.set(0);
    act(world);
    assert_eq!(world.rows.written.get(), 0, "it writes nothing else");
    world.queue.take_orders().arm.is_some()
}

#[test]
fn an_answer_that_needs_no_row_is_held_back_by_a_write_all_the_same() {
    let mut world = World::new();
    let known = || vec![Post { dedupe_id: Some("1".into()), ..post("a") }];
    world.send(known());
    world.try_send(Some("key"), posts(&["b"])).expect("it is stored");
    let claimed = world.claim("n", 2);
    world.ack(&claimed[..1]);
    assert!(arms(&mut world, |world| {
        world.send(known());
    }));
    assert!(arms(&mut world, |world| {
        world.try_send(Some("key"), posts(&["b"])).expect("it is known");
    }));
    assert!(arms(&mut world, |world| {
        world.ack(&claimed[..1]);
    }));
    assert!(arms(&mut world, |world| {
        world.end(&leases(&claimed[1..]), &End::Extend { visibility_ms: Some(1_000) });
    }));
    assert!(arms(&mut world, |world| {
        world.queue.close(&world.rows, at(world.now), &world.settings).expect("it answers");
    }));
}

#[test]
fn a_partition_is_erased_only_while_its_queue_is_deleted_and_with_jobs_only_if_they_may_go() {
    let mut world = World::new();
    let erase = |world: &mut World, with_jobs| {
        code(world.queue.check_erasure(&world.rows, at(world.now), &world.settings, with_jobs))
    };
    assert_eq!(erase(&mut world, true), Some(Code::WrongStatus), "the queue is active");
    world.send(posts(&["a"]));
    world.set(|settings| settings.state = QueueState::Deleting);
    assert_eq!(erase(&mut world, false), Some(Code::WrongStatus));
    assert_eq!(erase(&mut world, true), None);
    // Whoever comes late with settings that held before the queue was kept erases nothing.
    let late = world.settings.clone();
    world.set(|settings| settings.state = QueueState::Active);
    world.counts();
    let refused = world.queue.check_erasure(&world.rows, at(world.now), &late, true);
    assert_eq!(code(refused), Some(Code::WrongStatus));
}

#[test]
fn a_claim_of_a_queue_with_only_delayed_jobs_reads_next_to_nothing() {
    let mut world = World::new();
    let delayed = |number: u64| Post {
        delay_ms: 1_000 + number,
        priority: u8::try_from(number % 10).unwrap_or(0),
        ..post("later")
    };
    world.send((0..1_000).map(delayed).collect());
    for most in [10, 0] {
        world.rows.read.set(0);
        assert_eq!(world.claim("n", 100), []);
        assert!(world.rows.read.get() <= most, "{}", world.rows.read.get());
    }
    world.now = 1_000;
    assert_eq!(world.claim("m", 100).len(), 1);
    world.send(vec![Post { priority: 4, ..post("now") }]);
    assert_eq!(world.texts("o", 100), ["now"]);
    world.now = 3_000;
    assert_eq!(world.claim("p", 1_000).len(), 999);
}

#[test]
fn a_plain_job_is_ready_also_after_the_clock_was_set_back() {
    let mut world = World::new();
    world.now = 10_000;
    world.send(posts(&["a"]));
    world.now = 5_000;
    world.crash();
    let looked = world.queue.look(&world.rows, at(world.now), &world.settings, "n").expect("it looks");
    assert!(looked.is_ready);
    assert_eq!(world.texts("n", 1), ["a"]);
}

#[test]
fn a_claim_counts_bodies_as_they_are_in_its_answer() {
    let mut world = World::new();
    let controls = "\u{1}".repeat(1_000_000);
    world.send(posts(&[&controls, "a"]));
    assert_eq!(world.claim("n", 9).len(), 1, "as JSON, it has 6 MB");
    assert_eq!(world.texts("m", 9), ["a"]);
    let data: String = (0..0x180).filter_map(char::from_u32).collect();
    let content = Content { content_type: "text/plain".into(), form: Form::Text, data };
    let json = serde_json::to_string(&content.data).expect("it is a text");
    assert_eq!(content.encoded_size() + 2, json.len());
}

#[test]
fn a_deletion_is_tried_every_few_seconds_whatever_else_goes_on() {
    let mut world = World::new();
    world.send((0..100).map(|_| post("a")).collect());
    world.queue.delete(&world.rows, at(0), true).expect("it begins");
    let mut tried = Vec::new();
    for ms in 1..=11_000 {
        world.queue.alarm(&world.rows, at(ms)).expect("the storage works");
        if world.take_orders().contains(&Order::Delete) {
            tried.push(ms);
        }
    }
    assert_eq!(tried, [5_000, 10_000]);
    // The next instance goes on with it at once.
    world.crash();
    world.queue.alarm(&world.rows, at(11_001)).expect("the storage works");
    assert_eq!(world.take_orders(), [Order::Delete]);
}

#[test]
fn claims_that_wait_look_again_when_a_partition_hears_that_its_queue_is_resumed() {
    let mut world = World::new();
    world.set(|settings| settings.state = QueueState::Paused);
    world.counts();
    assert_eq!(world.take_orders(), []);
    world.set(|settings| settings.state = QueueState::Active);
    world.counts();
    assert_eq!(world.take_orders(), [Order::Wake(crate::queue::WAITING_MAX)]);
}
