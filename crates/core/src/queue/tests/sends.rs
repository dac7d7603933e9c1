//! What producers send, once and again.

use stepwell_protocol::{
    Code, Payload,
    queue::{DEAD_LETTER, NewJob, SentJob, SentStatus},
};

use super::{Post, World, code, of_group, post, posts};
use crate::queue::{check_patch, check_post, home};

fn with_id(text: &str, id: &str) -> Post {
    Post { dedupe_id: Some(id.into()), ..post(text) }
}

fn statuses(world: &mut World, request: Option<&str>, posts: Vec<Post>) -> Vec<SentStatus> {
    world.try_send(request, posts).expect("it is stored").iter().map(|sent| sent.status).collect()
}

#[test]
fn a_job_with_a_known_dedupe_id_is_not_stored_again_and_has_the_same_id() {
    use SentStatus::{Accepted, Duplicate};
    let mut world = World::new();
    let first = world.try_send(None, vec![with_id("a", "1"), with_id("a", "1"), with_id("b", "2")]);
    let first = first.expect("it is stored");
    assert_eq!(first.iter().map(|sent| sent.status).collect::<Vec<_>>(), [Accepted, Duplicate, Accepted]);
    assert_eq!(first[0].id, first[1].id);
    world.crash();
    assert_eq!(statuses(&mut world, None, vec![with_id("other", "1")]), [Duplicate]);
    // With a group, the id is one of that group.
    let grouped = |group: &str| Post { dedupe_id: Some("1".into()), ..of_group("a", group) };
    assert_eq!(
        statuses(&mut world, None, vec![grouped("g"), grouped("h"), grouped("g")]),
        [Accepted, Accepted, Duplicate]
    );
    assert_eq!(world.counts(), (4, 0, 0));
}

#[test]
fn a_dedupe_id_is_known_for_its_time_and_for_as_long_as_its_job_is_there() {
    use SentStatus::{Accepted, Duplicate};
    let mut world = World::new();
    let day = world.settings.dedupe_ms;
    statuses(&mut world, None, vec![with_id("a", "1"), Post { delay_ms: 3 * day, ..with_id("b", "2") }]);
    let claimed = world.claim("n", 1);
    world.ack(&claimed);
    world.pass(day - 1);
    assert_eq!(statuses(&mut world, None, vec![with_id("a", "1")]), [Duplicate]);
    world.pass(60_001);
    assert_eq!(statuses(&mut world, None, vec![with_id("a", "1"), with_id("b", "2")]), [Accepted, Duplicate]);
    world.pass(day);
    assert_eq!(statuses(&mut world, None, vec![with_id("b", "2")]), [Duplicate], "its job is there");
    for _ in 0..20 {
        let claimed = world.claim("m", 9);
        world.ack(&claimed);
        world.pass(day / 2);
    }
    assert!(world.rows.keys.borrow().is_empty(), "{:?}", world.rows.keys.borrow());
}

#[test]
fn a_job_of_a_run_is_stored_once_for_as_long_as_its_letter_may_come_again() {
    use SentStatus::{Accepted, Duplicate};
    let mut world = World::new();
    let minute = 60_000;
    world.set(|settings| settings.dedupe_ms = minute);
    let of = |letter: &str, id: Option<&str>| Post {
        letter: Some(letter.into()),
        dedupe_id: id.map(str::to_owned),
        ..post(letter)
    };
    let (plain, known, second) = (of("a", None), of("b", Some("1")), of("c", Some("1")));
    assert_eq!(statuses(&mut world, None, vec![plain.clone(), known.clone()]), [Accepted, Accepted]);
    // One that the dedupe id stands for already has had its effect, too.
    assert_eq!(statuses(&mut world, None, vec![second.clone()]), [Duplicate]);
    let claimed = world.claim("n", 9);
    assert_eq!(claimed.len(), 2);
    world.ack(&claimed);
    for days in [1, 3, 2] {
        world.pass(days * 86_400_000);
        world.crash();
        let again = vec![plain.clone(), known.clone(), second.clone()];
        assert_eq!(statuses(&mut world, None, again), [Duplicate; 3]);
    }
    // An answer that was lost is given also when the queue takes no more jobs.
    world.set(|settings| settings.state = stepwell_protocol::queue::QueueState::Draining);
    assert_eq!(statuses(&mut world, None, vec![plain.clone()]), [Duplicate]);
    assert_eq!(code(world.try_send(None, vec![of("e", None)])), Some(Code::QueueClosed));
    world.set(|settings| settings.state = stepwell_protocol::queue::QueueState::Active);
    assert_eq!(
        statuses(&mut world, None, vec![of("d", Some("1"))]),
        [Accepted],
        "the dedupe id is forgotten"
    );
    let claimed = world.claim("m", 9);
    world.ack(&claimed);
    world.pass(8 * 86_400_000);
    assert!(world.rows.keys.borrow().is_empty(), "{:?}", world.rows.keys.borrow());
}

#[test]
fn nobody_sends_what_tells_of_a_dead_letter_but_stepwell() {
    let content_type = Some(DEAD_LETTER.to_owned());
    let job = NewJob { content_type: content_type.clone(), ..NewJob::default() };
    assert!(check_post(job).is_err());
    let sent = SentJob { content_type, ..SentJob::new("mails".into(), Payload::null()) };
    assert!(sent.check().is_err(), "a run cannot either");
    let told = Post::sent("a".into(), sent).expect("a queue can");
    assert_eq!(told.content.content_type, DEAD_LETTER);
}

#[test]
fn a_whole_batch_that_comes_again_after_a_crash_is_stored_once() {
    let mut world = World::new();
    let batch = || (0..1_000).map(|number| post(&number.to_string())).collect::<Vec<_>>();
    let first = world.try_send(Some("key"), batch()).expect("it is stored");
    world.crash();
    let again = world.try_send(Some("key"), batch()).expect("it is known");
    assert!(again.iter().all(|sent| sent.status == SentStatus::Duplicate));
    assert_eq!(
        first.iter().map(|sent| &sent.id).collect::<Vec<_>>(),
        again.iter().map(|sent| &sent.id).collect::<Vec<_>>()
    );
    assert_eq!(world.counts(), (1_000, 0, 0));
    assert_eq!(code(world.try_send(Some("key"), posts(&["other"]))), Some(Code::IdempotencyKeyReused));
    // The answer is lost, but not what was stored.
    world.rows.loses_answer.set(true);
    assert!(world.try_send(Some("lost"), batch()).is_err());
    assert_eq!(statuses(&mut world, Some("lost"), batch()), [SentStatus::Duplicate; 1_000]);
    assert_eq!(world.counts(), (2_000, 0, 0));
    // A request that comes again is answered also when the queue takes no more jobs.
    world.set(|settings| settings.state = stepwell_protocol::queue::QueueState::Draining);
    assert_eq!(statuses(&mut world, Some("lost"), batch()), [SentStatus::Duplicate; 1_000]);
}

#[test]
fn a_batch_without_a_key_that_the_platform_delivers_twice_is_stored_once() {
    let mut world = World::new();
    world.try_send(None, vec![with_id("known", "7")]).expect("it is stored");
    let batch = || {
        let mut posts: Vec<_> = (0..998).map(|number| post(&number.to_string())).collect();
        posts.insert(400, with_id("new", "8"));
        posts.insert(600, with_id("old", "7"));
        posts
    };
    let send = |world: &mut World| {
        let sent = world.queue.send(&world.rows, super::at(0), &world.settings, "mark", None, batch());
        sent.expect("it is stored").into_iter().map(|sent| sent.id).collect::<Vec<_>>()
    };
    let first = send(&mut world);
    assert_eq!(send(&mut world), first);
    world.crash();
    // Some of them are done by then.
    let claimed = world.claim("n", 100);
    world.ack(&claimed);
    assert_eq!(send(&mut world), first);
    assert_eq!(world.counts(), (900, 0, 0));
}

#[test]
fn a_batch_that_is_delivered_again_after_its_ids_are_over_names_no_job_of_another() {
    let mut world = World::new();
    world.set(|settings| settings.dedupe_ms = 1_000);
    world.send(vec![with_id("known", "1")]);
    let deliver = |world: &mut World| {
        let batch = vec![post("own"), with_id("known", "1")];
        let sent = world.queue.send(&world.rows, super::at(world.now), &world.settings, "mark", None, batch);
        let sent = sent.expect("it is stored").into_iter();
        sent.map(|sent| sent.id.map(|id| id.number)).collect::<Vec<_>>()
    };
    assert_eq!(deliver(&mut world), [Some(2), Some(1)]);
    world.send(posts(&["another's"]));
    let claimed = world.claim("n", 1);
    world.ack(&claimed);
    world.now = 2_000;
    assert_eq!(deliver(&mut world), [Some(2), None], "3 is the job of another");
}

#[test]
fn a_batch_is_stored_as_a_whole_or_not_at_all() {
    let mut world = World::new();
    world.rows.refuses.set(true);
    assert!(world.try_send(None, posts(&["a", "b"])).is_err());
    world.rows.refuses.set(false);
    assert_eq!(world.counts(), (0, 0, 0));
    assert_eq!(world.send(posts(&["c"]))[0].number, 1);
}

#[test]
fn groups_and_dedupe_ids_stay_where_they_are_when_partitions_are_added() {
    let mut settings = World::new().settings;
    (settings.partitions, settings.keyed_partitions) = (4, 4);
    let homes = |settings: &stepwell_protocol::queue::QueueSettings| {
        let of = |number: u32| {
            let word = format!("w{number}");
            (home(settings, Some(&word), Some("x"), Some("y")), home(settings, None, Some(&word), Some("y")))
        };
        (0..100).map(of).collect::<Vec<_>>()
    };
    let before = homes(&settings);
    settings.partitions = 64;
    assert_eq!(homes(&settings), before);
    let used: std::collections::BTreeSet<_> = before.iter().map(|(group, _)| *group).collect();
    assert_eq!(used.len(), 4, "{used:?}");
    assert_eq!(home(&settings, None, None, None), None);
    assert_eq!(home(&settings, None, None, Some("k")), home(&settings, None, None, Some("k")));
}

#[test]
fn what_no_job_can_be_is_refused_with_a_code() {
    let good = || NewJob { text: Some("a".into()), ..NewJob::default() };
    assert!(check_post(good()).is_ok());
    assert!(check_post(NewJob::default()).is_ok(), "no body is null");
    let large = || Some("x".repeat(1_900_001));
    let cases = [
        (NewJob { delay_ms: 365 * 86_400_000 + 1, ..good() }, Code::InvalidRequest),
        (NewJob { priority: 10, ..good() }, Code::InvalidRequest),
        (NewJob { group: Some(String::new()), ..good() }, Code::InvalidRequest),
        (NewJob { group: Some("a\nb".into()), ..good() }, Code::InvalidRequest),
        (NewJob { dedupe_id: Some("x".repeat(129)), ..good() }, Code::InvalidRequest),
        (NewJob { base64: Some("aaaa".into()), ..good() }, Code::InvalidRequest),
        (NewJob { base64: Some("a".into()), ..NewJob::default() }, Code::InvalidRequest),
        (NewJob { base64: Some("a=aa".into()), ..NewJob::default() }, Code::InvalidRequest),
        (NewJob { base64: Some("AB==".into()), ..NewJob::default() }, Code::InvalidRequest),
        (NewJob { base64: Some("AAB=".into()), ..NewJob::default() }, Code::InvalidRequest),
        (NewJob { base64: Some("==".into()), ..NewJob::default() }, Code::InvalidRequest),
        (NewJob { content_type: Some("nonsense".into()), ..good() }, Code::InvalidRequest),
        (NewJob { content_type: Some("a/b\r\nx: y".into()), ..good() }, Code::InvalidRequest),
        (NewJob { text: large(), ..NewJob::default() }, Code::PayloadTooLarge),
    ];
    for (job, expected) in cases {
        let shown = format!("{job:?}").chars().take(200).collect::<String>();
        assert_eq!(check_post(job).map_err(|problem| problem.code), Err(expected), "{shown}");
    }
    for base64 in ["", "AA==", "/w==", "AAA=", "//8=", "+/+/"] {
        let job = NewJob { base64: Some(base64.into()), ..NewJob::default() };
        assert!(check_post(job).is_ok(), "{base64}");
    }
    // As bytes, 1.9 MB are a third more as base64.
    let base64 = Some("AAAA".repeat(1_900_000 / 3));
    assert!(check_post(NewJob { base64, ..NewJob::default() }).is_ok());
}

#[test]
fn what_no_queue_can_be_set_to_is_refused() {
    use stepwell_protocol::queue::QueuePatch;
    assert_eq!(check_patch(&QueuePatch::default()), Ok(()));
    for patch in [
        QueuePatch { partitions: Some(0), ..QueuePatch::default() },
        QueuePatch { partitions: Some(65), ..QueuePatch::default() },
        QueuePatch { visibility_ms: Some(0), ..QueuePatch::default() },
        QueuePatch { max_attempts: Some(0), ..QueuePatch::default() },
        QueuePatch { retention_ms: Some(1), ..QueuePatch::default() },
        QueuePatch { dead_retention_ms: Some(u64::MAX), ..QueuePatch::default() },
        QueuePatch { dedupe_ms: Some(u64::MAX), ..QueuePatch::default() },
    ] {
        assert!(check_patch(&patch).is_err(), "{patch:?}");
    }
    let mut world = World::new();
    let grow = |partitions| QueuePatch { partitions: Some(partitions), ..QueuePatch::default() };
    let grown = world.queue.configure(&world.rows, super::at(1), &grow(4), None).expect("it grows");
    assert_eq!((grown.partitions, grown.keyed_partitions, grown.revision), (4, 1, 2));
    assert_eq!(
        code(world.queue.configure(&world.rows, super::at(2), &grow(2), None)),
        Some(Code::InvalidRequest)
    );
    // What was not said stays.
    let patch = QueuePatch { max_attempts: Some(7), ..QueuePatch::default() };
    let set = world.queue.configure(&world.rows, super::at(3), &patch, None).expect("it is set");
    assert_eq!((set.partitions, set.max_attempts, set.visibility_ms), (4, 7, 30_000));
}

#[test]
fn a_dedupe_id_whose_job_waits_is_seldom_written_and_ends_with_its_job() {
    use SentStatus::{Accepted, Duplicate};
    let mut world = World::new();
    world.set(|settings| settings.dedupe_ms = 60_000);
    let day = 86_400_000;
    let later = || vec![Post { delay_ms: day, ..with_id("a", "1") }];
    assert_eq!(statuses(&mut world, None, later()), [Accepted]);
    world.rows.written.set(0);
    world.pass(5 * 3_600_000);
    assert_eq!(world.rows.written.get(), 1);
    assert_eq!(statuses(&mut world, None, later()), [Duplicate]);
    world.pass(day);
    let claimed = world.claim("n", 1);
    assert_eq!(world.ack(&claimed), [stepwell_protocol::queue::LeaseStatus::Done]);
    assert_eq!(statuses(&mut world, None, later()), [Accepted], "its time is over, and its job is done");
}
