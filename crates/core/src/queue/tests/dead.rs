//! Dead letters, purges, and what is too old.

use stepwell_protocol::{
    Code, Timestamp,
    queue::{DeadCode, JobStatus, LeaseStatus, Redrive},
};

use super::{World, at, code, leases, of_group, post, posts};
use crate::queue::{Content, End, Form};

/// Lets all jobs that are there die.
fn kill(world: &mut World, reason: &str) {
    let claimed = world.claim("killer", 100);
    let end = End::Nack { delay_ms: None, reason: Some(reason.into()), dead: true };
    assert!(world.end(&leases(&claimed), &end).iter().all(|status| *status == LeaseStatus::Dead));
}

fn dead(world: &mut World) -> Vec<(u64, DeadCode, Option<String>)> {
    let (now, settings) = (at(world.now), world.settings.clone());
    let page = world.queue.dead(&world.rows, now, &settings, (Timestamp::default(), 0), 100);
    let page = page.expect("the rows can be read").into_iter();
    page.filter_map(|view| view.death.map(|death| (view.id.number, death.code, death.reason))).collect()
}

fn purge(world: &mut World, is_dead: bool) {
    world.queue.purge(&world.rows, at(world.now), &world.settings, is_dead).expect("it begins");
}

fn redrive(world: &mut World, redrive: Redrive) {
    world.queue.redrive(&world.rows, at(world.now), &world.settings, redrive).expect("it begins");
}

#[test]
fn a_job_whose_attempts_are_spent_is_a_dead_letter_with_its_reason() {
    let mut world = World::new();
    world.send(posts(&["a", "b"]));
    for nonce in ["1", "2", "3"] {
        let claimed = world.claim(nonce, 1);
        assert_eq!(claimed[0].text.as_deref(), Some("a"));
        world.nack(&claimed, Some(1));
        let lost = world.claim(&format!("lost{nonce}"), 1);
        assert_eq!(lost[0].text.as_deref(), Some("b"));
        world.pass(30_000);
    }
    assert_eq!(
        dead(&mut world),
        [(1, DeadCode::Attempts, Some("why".into())), (2, DeadCode::Attempts, None)]
    );
    assert_eq!(world.counts(), (0, 0, 2));
}

#[test]
fn a_dead_letter_is_shown_edited_and_redriven() {
    let mut world = World::new();
    let ids = world.send(posts(&["a", "b"]));
    let settings = world.settings.clone();
    let other = Content { content_type: "application/json".into(), form: Form::Json, data: "{}".into() };
    let edited = world.queue.edit(&world.rows, at(0), &settings, &ids[0], other.clone());
    assert_eq!(code(edited), Some(Code::WrongStatus));
    kill(&mut world, "bad");
    world.queue.edit(&world.rows, at(0), &settings, &ids[0], other).expect("it is dead");
    let view = world.queue.job(&world.rows, at(0), &settings, &ids[0]).expect("it is there");
    assert_eq!((view.status, view.size, view.attempts), (JobStatus::Dead, 2, 1));
    world.queue.redrive_one(&world.rows, at(0), &settings, &ids[0]).expect("it is dead");
    assert_eq!(
        code(world.queue.redrive_one(&world.rows, at(0), &settings, &ids[0])),
        Some(Code::WrongStatus)
    );
    world.queue.discard(&world.rows, at(0), &settings, &ids[1]).expect("it is dead");
    assert_eq!(code(world.queue.discard(&world.rows, at(0), &settings, &ids[1])), Some(Code::JobNotFound));
    world.crash();
    let claimed = world.claim("n", 9);
    assert_eq!((claimed.len(), claimed[0].attempt), (1, 1));
    assert_eq!(claimed[0].body.as_ref().map(stepwell_protocol::Payload::text), Some("{}"));
    assert_eq!(world.counts(), (0, 1, 0));
}

#[test]
fn those_that_a_filter_says_are_redriven_and_no_faster_than_it_says() {
    let mut world = World::new();
    world.send((0..60).map(|_| post("a")).collect());
    kill(&mut world, "timeout: upstream");
    world.send(posts(&["b"]));
    kill(&mut world, "other");
    redrive(
        &mut world,
        Redrive { contains: Some("timeout".into()), per_second: Some(10), ..Redrive::default() },
    );
    world.pass(1_000);
    let (depth, _, _) = world.counts();
    assert!((9..=11).contains(&depth), "{depth}");
    world.crash();
    world.pass(2_000);
    let (depth, _, _) = world.counts();
    assert!((28..=32).contains(&depth), "{depth}");
    world.pass(10_000);
    assert_eq!(world.counts(), (60, 0, 1));
    assert_eq!(dead(&mut world)[0].2.as_deref(), Some("other"));
    // What dies again while it goes on is left alone.
    kill(&mut world, "timeout");
    redrive(&mut world, Redrive { code: Some(DeadCode::Rejected), ..Redrive::default() });
    let claimed = world.claim("none", 1);
    assert_eq!(claimed, []);
    world.pass(1_000);
    assert_eq!(world.counts(), (61, 0, 0));
}

#[test]
fn a_redriven_job_comes_behind_the_others_of_its_group() {
    let mut world = World::new();
    let ids = world.send(vec![of_group("1", "g"), of_group("2", "g"), of_group("3", "g")]);
    let first = world.claim("n", 1);
    world.end(&leases(&first), &End::Nack { delay_ms: None, reason: None, dead: true });
    let settings = world.settings.clone();
    world.queue.redrive_one(&world.rows, at(0), &settings, &ids[0]).expect("it is dead");
    for (nonce, text) in [("a", "2"), ("b", "3"), ("c", "1")] {
        let claimed = world.claim(nonce, 9);
        assert_eq!(claimed.iter().filter_map(|it| it.text.as_deref()).collect::<Vec<_>>(), [text]);
        world.ack(&claimed);
    }
}

#[test]
fn a_purge_deletes_what_was_queued_before_it_and_nothing_else() {
    let mut world = World::new();
    world.send((0..600).map(|_| post("old")).collect());
    world.send(vec![of_group("g1", "g"), of_group("g2", "g"), super::Post { delay_ms: 9, ..post("later") }]);
    let held = world.claim("n", 5);
    let group = world.claim("g", 0);
    assert_eq!(group, []);
    kill(&mut world, "dead");
    purge(&mut world, false);
    // While it goes on: a new job, one that is given back, one that is redriven, and a clock that is set back.
    world.nack(&held[..1], Some(0));
    let dead_id = dead(&mut world)[0].0;
    let id = stepwell_protocol::queue::JobId { number: dead_id, ..held[0].id.clone() };
    let settings = world.settings.clone();
    world.queue.redrive_one(&world.rows, at(0), &settings, &id).expect("it is dead");
    world.crash();
    world.send(vec![post("new"), of_group("g3", "g")]);
    let mut texts = world.texts("m", 9);
    texts.sort();
    assert_eq!(texts, ["new", "old", "old"], "what is being purged is not handed out");
    world.pass(1_000);
    assert_eq!(world.texts("o", 9), ["g3"]);
    assert_eq!(world.rows.head.borrow().as_ref().and_then(|head| head.purging), None);
    assert_eq!(world.counts(), (0, 8, 99));
    purge(&mut world, true);
    world.pass(1_000);
    assert_eq!(world.counts(), (0, 8, 0));
    assert_eq!(world.ack(&held[1..]), [LeaseStatus::Done; 4]);
}

#[test]
fn a_group_goes_on_after_its_first_jobs_were_purged() {
    let mut world = World::new();
    world.send((0..700).map(|_| of_group("old", "g")).collect());
    purge(&mut world, false);
    world.send(vec![of_group("new", "g"), of_group("newer", "g")]);
    world.pass(1_000);
    assert_eq!(world.texts("n", 9), ["new"]);
    assert_eq!(world.counts(), (1, 1, 0));
}

#[test]
fn what_nobody_claims_becomes_a_dead_letter_and_is_deleted_in_the_end() {
    let mut world = World::new();
    let day = 86_400_000;
    world.send(vec![
        post("a"),
        super::Post { delay_ms: day, ..post("b") },
        of_group("c", "g"),
        of_group("d", "g"),
    ]);
    world.pass(14 * day - 1);
    assert_eq!(world.counts(), (4, 0, 0));
    world.pass(120_000);
    assert_eq!(world.counts(), (1, 0, 3));
    world.crash();
    world.pass(day + 120_000);
    assert_eq!(world.counts(), (0, 0, 4));
    assert!(dead(&mut world).iter().all(|(_, code, _)| *code == DeadCode::Expired));
    world.pass(32 * day);
    assert_eq!(world.counts(), (0, 0, 0));
    assert!(world.rows.contents.borrow().is_empty());
}

#[test]
fn many_that_are_too_old_go_in_slices_one_after_the_other() {
    let mut world = World::new();
    world.send((0..1_000).map(|_| post("a")).collect());
    world.pass(14 * 86_400_000 + 120_000);
    assert_eq!(world.counts(), (0, 0, 1_000));
}

#[test]
fn a_purge_ends_while_jobs_keep_coming() {
    let mut world = World::new();
    let batch = || (0..300).map(|_| super::Post { priority: 1, ..post("a") }).collect::<Vec<_>>();
    world.send(batch());
    purge(&mut world, false);
    for _ in 0..10 {
        world.send(batch());
        world.pass(2);
    }
    assert_eq!(world.rows.head.borrow().as_ref().and_then(|head| head.purging), None);
    assert_eq!(world.counts(), (3_000, 0, 0));
}

#[test]
fn what_is_being_purged_does_not_become_a_dead_letter() {
    let mut world = World::new();
    world.set(|settings| settings.retention_ms = 60_000);
    world.send((0..600).map(|_| post("plain")).collect());
    world.send((0..600).map(|_| super::Post { priority: 3, ..post("first") }).collect());
    world.now = 130_000;
    purge(&mut world, false);
    world.pass(1_000);
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn jobs_that_are_held_for_longer_than_they_may_wait_keep_no_alarm_busy() {
    let mut world = World::new();
    world.set(|settings| settings.retention_ms = 60_000);
    world.send((0..300).map(|_| post("a")).collect());
    let wanted = crate::queue::Wanted { visibility_ms: Some(3_600_000), ..World::wanted("n", 300) };
    assert_eq!(world.claim_with(&wanted).len(), 300);
    world.crash();
    world.rows.read.set(0);
    world.pass(1_800_000);
    assert!(world.rows.read.get() < 2_000, "{}", world.rows.read.get());
    assert_eq!(world.counts(), (0, 300, 0));
}

#[test]
fn large_jobs_that_are_too_old_are_moved_a_few_at_a_time() {
    use crate::object::Machine as _;
    let mut world = World::new();
    world.set(|settings| settings.retention_ms = 60_000);
    let large = "x".repeat(1_900_000);
    world.send((0..7).map(|_| post(&large)).collect());
    world.now = 130_000;
    world.queue.alarm(&world.rows, at(world.now)).expect("the storage works");
    assert_eq!(world.counts(), (2, 0, 5));
    world.pass(10);
    assert_eq!(world.counts(), (0, 0, 7));
}

#[test]
fn a_group_that_nobody_claims_from_goes_as_a_whole() {
    let mut world = World::new();
    world.set(|settings| settings.retention_ms = 60_000);
    world.send((0..300).map(|_| of_group("a", "g")).collect());
    world.pass(121_000);
    assert_eq!(world.counts(), (0, 0, 300));
}

#[test]
fn what_no_redrive_can_be_is_refused() {
    use crate::queue::check_redrive;
    let long = |bytes: usize| Some("x".repeat(bytes));
    for good in [
        Redrive::default(),
        Redrive { contains: long(1_000), group: long(128), per_second: Some(1_000), ..Redrive::default() },
    ] {
        assert_eq!(check_redrive(&good), Ok(()));
    }
    for bad in [
        Redrive { contains: long(1_001), ..Redrive::default() },
        Redrive { group: long(129), ..Redrive::default() },
        Redrive { group: Some("a\n".into()), ..Redrive::default() },
        Redrive { per_second: Some(0), ..Redrive::default() },
    ] {
        assert_eq!(check_redrive(&bad).map_err(|problem| problem.code), Err(Code::InvalidRequest), "{bad:?}");
    }
}
