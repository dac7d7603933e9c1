//! Dead letters that another queue is told of.

use stepwell_protocol::queue::{DEAD_LETTER, DeadLetter, QueuePatch};

use super::{Content, End, Form, Post, World, at, leases, post, posts};
use crate::{
    object::Machine as _,
    queue::{Order, Telling, check_patch},
};

fn telling() -> World {
    let mut world = World::new();
    world.set(|settings| settings.dead_to = Some("mourners".into()));
    world
}

/// Claims all and rejects it.
fn bury(world: &mut World, posts: Vec<Post>) {
    world.send(posts);
    let nonce = format!("n{}", world.now);
    let claimed = world.claim(&nonce, 100);
    world.end(&leases(&claimed), &End::Nack { delay_ms: None, reason: Some("no".into()), dead: true });
}

/// Lets alarms fire, and gives what the host is to tell.
fn told(world: &mut World, ms: u64) -> Vec<Telling> {
    let until = world.now + ms;
    let mut found = Vec::new();
    for _ in 0..1_000 {
        for order in world.take_orders() {
            if let Order::Tell(telling) = order {
                found.push(*telling);
            }
        }
        let Some(alarm) = world.alarm.filter(|alarm| *alarm <= at(until)) else { break };
        world.alarm = None;
        world.now = world.now.max(alarm.as_millis().saturating_sub(at(0).as_millis()));
        world.queue.alarm(&world.rows, at(world.now)).expect("the rows can be read");
    }
    world.now = until;
    found
}

fn texts(telling: &Telling) -> Vec<&str> {
    telling.jobs.iter().filter_map(|(_, job)| job.text.as_deref()).collect()
}

fn answer(world: &mut World, telling: &Telling, is_all: bool) {
    let through = is_all.then_some(telling.through);
    world.queue.told(&world.rows, at(world.now), telling.flight, through, is_all).expect("it is stored");
}

#[test]
fn each_dead_letter_is_told_once_in_the_order_of_deaths_and_stays_where_it_is() {
    let mut world = telling();
    bury(&mut world, posts(&["a", "b"]));
    let first = told(&mut world, 5);
    assert_eq!(first.iter().map(texts).collect::<Vec<_>>(), [["a", "b"]]);
    assert_eq!(first[0].queue, "mourners");
    // Whoever dies while the host is at it comes with the next ones.
    bury(&mut world, posts(&["c"]));
    assert!(told(&mut world, 5).is_empty());
    answer(&mut world, &first[0], true);
    let second = told(&mut world, 5);
    assert_eq!(second.iter().map(texts).collect::<Vec<_>>(), [["c"]]);
    // Nobody knows whether these were told: the next instance tells them again, which the other queue knows.
    world.crash();
    let again = told(&mut world, 5);
    assert_eq!(again.iter().map(texts).collect::<Vec<_>>(), [["c"]]);
    answer(&mut world, &again[0], true);
    world.crash();
    assert!(told(&mut world, 100_000).is_empty());
    assert_eq!(world.counts(), (0, 0, 3));
    let letter = DeadLetter::of("mails", again[0].jobs[0].1.clone()).expect("it is dead");
    assert_eq!((letter.reason.as_deref(), letter.text.as_deref()), (Some("no"), Some("c")));
}

#[test]
fn a_queue_that_does_not_answer_is_told_later_and_then_of_all() {
    let mut world = telling();
    let many: Vec<_> = (0..40).map(|number| post(&number.to_string())).collect();
    bury(&mut world, many);
    let mut tries = 0;
    for _ in 0..10 {
        for telling in told(&mut world, 30_000) {
            tries += 1;
            answer(&mut world, &telling, false);
        }
    }
    assert!((5..=14).contains(&tries), "{tries} tries in five minutes");
    let mut seen = Vec::new();
    for _ in 0..10 {
        for telling in told(&mut world, 20_000) {
            seen.extend(texts(&telling).into_iter().map(str::to_owned));
            answer(&mut world, &telling, true);
        }
    }
    assert_eq!(seen, (0..40).map(|number: u32| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn a_late_answer_counts_and_begins_nothing_beside_what_goes_on() {
    let mut world = telling();
    let many: Vec<_> = (0..40).map(|number| post(&number.to_string())).collect();
    bury(&mut world, many);
    let [late, again] = &told(&mut world, 40_000)[..] else { panic!("it is told again after a while") };
    // A change of the settings does not begin it anew either.
    world.set(|settings| settings.max_attempts = 9);
    world.send(posts(&["x"]));
    answer(&mut world, late, true);
    assert!(told(&mut world, 5).is_empty());
    assert_eq!(world.rows.head.borrow().as_ref().map(|head| head.told), Some(late.through));
    answer(&mut world, again, true);
    let next = told(&mut world, 5);
    assert_eq!(next.iter().map(|telling| texts(telling)[0].to_owned()).collect::<Vec<_>>(), ["16"]);
}

#[test]
fn an_instance_that_dies_while_it_tells_is_woken_soon() {
    let mut world = telling();
    bury(&mut world, posts(&["a"]));
    assert_eq!(told(&mut world, 5).len(), 1);
    let alarm = world.alarm.expect("it is set");
    assert!(alarm <= at(world.now + 5_000), "{alarm:?}");
}

#[test]
fn who_dies_after_a_failure_that_came_to_nothing_is_told() {
    let mut world = telling();
    bury(&mut world, posts(&["a"]));
    let first = told(&mut world, 5);
    answer(&mut world, &first[0], false);
    let id = first[0].jobs[0].1.id.clone();
    world.queue.discard(&world.rows, at(world.now), &world.settings, &id).expect("it is dead");
    assert!(told(&mut world, 100_000).is_empty());
    bury(&mut world, posts(&["b"]));
    assert_eq!(told(&mut world, 5).iter().map(texts).collect::<Vec<_>>(), [["b"]]);
}

#[test]
fn what_was_told_before_a_failure_is_not_told_again() {
    let mut world = telling();
    bury(&mut world, posts(&["a", "b", "c"]));
    let first = told(&mut world, 5);
    let (through, _) = first[0].jobs[1];
    let flight = first[0].flight;
    world.queue.told(&world.rows, at(world.now), flight, Some(through), false).expect("it is stored");
    let rest = told(&mut world, 10_000);
    assert_eq!(rest.iter().map(texts).collect::<Vec<_>>(), [["c"]]);
}

#[test]
fn a_dead_letter_is_kept_until_it_is_told() {
    let mut world = telling();
    world.set(|settings| settings.dead_retention_ms = 60_000);
    bury(&mut world, posts(&["a"]));
    for _ in 0..20 {
        for telling in told(&mut world, 20_000) {
            answer(&mut world, &telling, false);
        }
    }
    assert_eq!(world.counts(), (0, 0, 1));
    let mut is_told = false;
    for _ in 0..20 {
        for telling in told(&mut world, 20_000) {
            is_told = true;
            answer(&mut world, &telling, true);
        }
    }
    assert_eq!((is_told, world.counts()), (true, (0, 0, 0)));
}

#[test]
fn a_clock_that_goes_back_hides_no_death() {
    let mut world = telling();
    world.now = 10_000;
    bury(&mut world, posts(&["a", "b"]));
    let first = told(&mut world, 5);
    // The next ones die while these are told, and on a machine whose clock is behind.
    world.now = 9_000;
    bury(&mut world, posts(&["c"]));
    answer(&mut world, &first[0], true);
    world.crash();
    world.now = 8_000;
    bury(&mut world, posts(&["d"]));
    let mut seen = Vec::new();
    for _ in 0..5 {
        for telling in told(&mut world, 2_000) {
            seen.extend(texts(&telling).into_iter().map(str::to_owned));
            answer(&mut world, &telling, true);
        }
    }
    assert_eq!(seen, ["c", "d"]);
}

#[test]
fn a_dead_letter_that_cannot_be_read_keeps_no_job_from_its_consumer() {
    let mut world = telling();
    bury(&mut world, posts(&["a"]));
    world.rows.has_bad_bodies.set(true);
    world.send(vec![Post { delay_ms: 1_000, ..post("later") }]);
    let tries = told(&mut world, 100_000).len();
    assert_eq!(tries, 0);
    world.rows.has_bad_bodies.set(false);
    assert_eq!(world.texts("next", 9), ["later"]);
    assert_eq!(told(&mut world, 70_000).first().map(texts), Some(vec!["a"]));
}

#[test]
fn a_host_that_never_answers_is_asked_again() {
    let mut world = telling();
    bury(&mut world, posts(&["a"]));
    assert_eq!(told(&mut world, 100_000).len(), 4);
}

#[test]
fn what_died_before_is_not_told_and_neither_is_what_tells_of_a_death() {
    let mut world = World::new();
    bury(&mut world, posts(&["before"]));
    world.pass(10);
    world.set(|settings| settings.dead_to = Some("mourners".into()));
    let content = Content { content_type: DEAD_LETTER.into(), form: Form::Json, data: "{}".into() };
    bury(&mut world, vec![Post { content, ..post("") }, post("after")]);
    let first = told(&mut world, 5);
    assert_eq!(first.iter().map(texts).collect::<Vec<_>>(), [["after"]]);
    answer(&mut world, &first[0], true);
    world.set(|settings| settings.dead_to = None);
    bury(&mut world, posts(&["unheard"]));
    assert!(told(&mut world, 100_000).is_empty());
}

#[test]
fn no_queue_of_stepwell_is_told() {
    let to = |queue: &str| QueuePatch { dead_to: Some(Some(queue.into())), ..QueuePatch::default() };
    assert!(check_patch(&to("mourners")).is_ok());
    assert!(check_patch(&to("stepwell.webhooks")).is_err());
    assert!(check_patch(&to("a b")).is_err());
}
