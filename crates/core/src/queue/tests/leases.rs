//! How leases end.

use stepwell_protocol::queue::{Lease, LeaseStatus};

use super::{Post, World, at, leases, of_group, post, posts};
use crate::queue::{End, Wanted, backoff_ms};

#[test]
fn a_lease_that_is_over_gives_the_job_to_another_and_the_attempt_counts() {
    let mut world = World::new();
    world.send(posts(&["a"]));
    let first = world.claim("n1", 1);
    assert_eq!(world.claim("n2", 1), []);
    world.now = 29_999;
    assert_eq!(world.claim("n2", 1), []);
    world.now = 30_000;
    let second = world.claim("n2", 1);
    assert_eq!((second.len(), second[0].attempt), (1, 2));
    assert_eq!(world.ack(&first), [LeaseStatus::Lost]);
    assert_eq!(world.ack(&second), [LeaseStatus::Done]);
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn an_alarm_gives_back_what_nobody_asks_for() {
    let mut world = World::new();
    world.send(posts(&["a"]));
    world.claim("n1", 1);
    world.crash();
    world.pass(30_001);
    assert_eq!(world.rows.held().len(), 0, "leases that are over hold nothing");
    assert_eq!(world.counts(), (1, 0, 0));
}

#[test]
fn an_ack_can_be_repeated_at_any_time_and_by_any_instance() {
    let mut world = World::new();
    world.send(posts(&["a", "b"]));
    let claimed = world.claim("n1", 2);
    assert_eq!(world.ack(&claimed[..1]), [LeaseStatus::Done]);
    for wait in [0, 29_000, 1_000, 3_600_000] {
        world.pass(wait);
        assert_eq!(world.ack(&claimed[..1]), [LeaseStatus::Done]);
        world.crash();
        assert_eq!(world.ack(&claimed[..1]), [LeaseStatus::Done]);
    }
    assert_eq!(world.ack(&claimed[1..]), [LeaseStatus::Lost], "its lease is over, and it is queued");
    let twice = [claimed[0].lease.clone(), claimed[0].lease.clone()];
    assert_eq!(world.end(&twice, &End::Ack), [LeaseStatus::Done; 2]);
    // A job that never was is not done.
    let mut invented = claimed[0].lease.clone();
    invented.job.number = 999;
    assert_eq!(world.end(&[invented], &End::Ack), [LeaseStatus::Lost]);
}

#[test]
fn one_that_is_acknowledged_twice_in_a_request_is_counted_once() {
    let mut world = World::new();
    world.send(posts(&["a", "b"]));
    let claimed = world.claim("n1", 1);
    let twice = [claimed[0].lease.clone(), claimed[0].lease.clone()];
    assert_eq!(world.end(&twice, &End::Ack), [LeaseStatus::Done; 2]);
    assert_eq!(world.counts(), (1, 0, 0));
}

#[test]
fn the_row_of_a_claim_shrinks_with_each_ack() {
    let mut world = World::new();
    world.send((0..100).map(|_| post("a")).collect());
    let claimed = world.claim("n1", 100);
    for (done, one) in claimed.iter().enumerate() {
        assert_eq!(world.rows.held().get("n1").copied().unwrap_or_default(), 100 - done);
        world.ack(std::slice::from_ref(one));
    }
    assert!(world.rows.held().is_empty());
}

#[test]
fn a_claim_that_comes_again_gets_the_same_jobs_without_another_attempt() {
    let mut world = World::new();
    world.send(posts(&["a", "b", "c"]));
    let first = world.claim("same", 2);
    assert_eq!(world.claim("same", 2), first);
    world.crash();
    assert_eq!(world.claim("same", 2), first);
    world.ack(&first[..1]);
    assert_eq!(world.claim("same", 2), first[1..]);
    // Its answer was lost, but not what was stored.
    world.rows.loses_answer.set(true);
    assert!(world.queue.claim(&world.rows, at(9), &world.settings, &World::wanted("lost", 1)).is_err());
    let again = world.claim("lost", 1);
    assert_eq!((again.len(), again[0].attempt, again[0].text.as_deref()), (1, 1, Some("c")));
}

#[test]
fn an_extended_lease_lasts_longer_and_never_shorter() {
    let mut world = World::new();
    world.send(posts(&["a"]));
    let claimed = world.claim("n", 1);
    let extend = |ms| End::Extend { visibility_ms: Some(ms) };
    assert_eq!(world.end(&leases(&claimed), &extend(1_000)), [LeaseStatus::Extended]);
    world.now = 29_000;
    assert_eq!(world.claim("m", 1), [], "it is not shorter");
    assert_eq!(world.end(&leases(&claimed), &extend(60_000)), [LeaseStatus::Extended]);
    world.crash();
    world.pass(59_999);
    assert_eq!(world.claim("m", 1), []);
    world.pass(1);
    assert_eq!(world.end(&leases(&claimed), &extend(60_000)), [LeaseStatus::Lost]);
    assert_eq!(world.claim("m", 1)[0].attempt, 2);
}

#[test]
fn a_failed_job_waits_as_long_as_its_consumer_says_or_longer_each_time() {
    let mut world = World::new();
    world.send(posts(&["a"]));
    let claimed = world.claim("n1", 1);
    assert_eq!(world.nack(&claimed, Some(5_000)), [LeaseStatus::Queued]);
    assert_eq!(world.nack(&claimed, Some(0)), [LeaseStatus::Lost]);
    world.now = 4_999;
    assert_eq!(world.claim("n2", 1), []);
    world.now = 5_000;
    let claimed = world.claim("n2", 1);
    world.nack(&claimed, None);
    world.now = 6_999;
    assert_eq!(world.claim("n3", 1), []);
    world.now = 7_000;
    assert_eq!(world.claim("n3", 1)[0].attempt, 3);
    assert_eq!([1, 2, 3, 10, 11, 1_000].map(backoff_ms), [1_000, 2_000, 4_000, 512_000, 900_000, 900_000]);
}

#[test]
fn a_group_is_in_order_one_at_a_time_and_holds_up_no_other() {
    let mut world = World::new();
    world.send(vec![of_group("a1", "a"), of_group("a2", "a"), of_group("b1", "b"), of_group("a3", "a")]);
    let first = world.claim("n1", 9);
    assert_eq!(first.iter().filter_map(|it| it.text.as_deref()).collect::<Vec<_>>(), ["a1", "b1"]);
    assert_eq!(world.claim("n2", 9), []);
    // The first one fails: nobody overtakes it.
    world.nack(&first[..1], Some(1_000));
    assert_eq!(world.claim("n3", 9), []);
    world.crash();
    world.now = 1_000;
    let again = world.claim("n4", 9);
    assert_eq!(again.iter().filter_map(|it| it.text.as_deref()).collect::<Vec<_>>(), ["a1"]);
    world.ack(&again);
    world.send(vec![Post { priority: 9, ..of_group("a4", "a") }]);
    assert_eq!(world.texts("n5", 9), ["a2"]);
}

#[test]
fn leases_of_another_claim_attempt_or_queue_end_nothing() {
    let mut world = World::new();
    world.send(posts(&["a"]));
    let lease = world.claim("n", 1)[0].lease.clone();
    let mut of_other_queue = lease.clone();
    of_other_queue.job.made = at(5);
    for wrong in
        [Lease { nonce: "m".into(), ..lease.clone() }, Lease { attempt: 2, ..lease.clone() }, of_other_queue]
    {
        for end in [
            End::Ack,
            End::Nack { delay_ms: None, reason: None, dead: true },
            End::Extend { visibility_ms: None },
        ] {
            assert_eq!(world.end(std::slice::from_ref(&wrong), &end), [LeaseStatus::Lost]);
        }
    }
    assert_eq!(world.end(&[lease], &End::Ack), [LeaseStatus::Done]);
}

/// Jobs with bodies of 1.9 MB, all held by one claim.
fn hold_large_ones(world: &mut World, count: usize) -> Vec<stepwell_protocol::queue::Claimed> {
    let large = "x".repeat(1_900_000);
    world.send((0..count).map(|_| post(&large)).collect());
    world.claim_with(&Wanted { bytes: usize::MAX, ..World::wanted("large", count) })
}

#[test]
fn no_turn_gives_back_more_bodies_than_fit_into_one() {
    let mut world = World::new();
    hold_large_ones(&mut world, 12);
    world.now = 30_000;
    assert_eq!(world.counts(), (5, 7, 0));
    assert_eq!(world.counts(), (10, 2, 0));
    world.pass(10);
    assert_eq!(world.counts(), (12, 0, 0));
    // One request gives back what fits, and says of the others that it has failed.
    let mut world = World::new();
    let claimed = hold_large_ones(&mut world, 7);
    let mut expected = [LeaseStatus::Queued; 7];
    expected[5..].fill(LeaseStatus::Failed);
    assert_eq!(world.nack(&claimed, None), expected);
    assert_eq!(world.counts(), (5, 2, 0));
    assert_eq!(world.nack(&claimed[5..], None), [LeaseStatus::Queued; 2]);
    // Acks move nothing.
    let mut world = World::new();
    let claimed = hold_large_ones(&mut world, 7);
    assert_eq!(world.ack(&claimed), [LeaseStatus::Done; 7]);
}

#[test]
fn a_job_behind_a_long_one_of_its_group_has_its_whole_time_to_be_claimed() {
    let mut world = World::new();
    world.set(|settings| settings.retention_ms = 60_000);
    world.send(vec![of_group("1", "g"), of_group("2", "g")]);
    let hour = Some(3_600_000);
    let first = world.claim_with(&Wanted { visibility_ms: hour, ..World::wanted("n", 1) });
    world.pass(600_000);
    world.ack(&first);
    world.pass(59_000);
    assert_eq!(world.counts(), (1, 0, 0));
    world.pass(121_000);
    assert_eq!(world.counts(), (0, 0, 1));
}
