//! A consumer that the partition calls itself, seen from outside: how many jobs it gets at once, in which order, and which
//! of them again.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_protocol::{
    Code,
    queue::{Claimed, Push, PushEnd, PushFailure, QueuePatch, QueueSettings, QueueState},
};

use super::{Bug, Post, World, at, code, of_group, post, posts};
use crate::{
    object::{Hosted as _, Machine as _},
    queue::{Order, check_patch, push_backoff_ms},
};

fn to(url: &str) -> Push {
    Push { url: Some(url.into()), ..Push::default() }
}

fn pushing(concurrency: u32) -> World {
    let push = Some(Push { concurrency, ..to("https://example.com") });
    World::with(QueueSettings { max_attempts: 5, push, ..QueueSettings::new(at(0)) })
}

impl World {
    /// The jobs that were taken to the consumer since it was last asked.
    fn pushed(&mut self) -> Vec<Claimed> {
        let pushes = self.take_orders().into_iter().filter_map(|order| match order {
            Order::Push(pushed) => Some(pushed.job),
            Order::Wake(_) | Order::Tell(_) | Order::Delete => None,
        });
        pushes.collect()
    }

    fn pushed_texts(&mut self) -> Vec<String> {
        self.pushed().into_iter().filter_map(|job| job.text).collect()
    }

    fn push_ends(&mut self, job: &Claimed, end: PushEnd) {
        self.queue.pushed(&self.rows, at(self.now), &job.lease, end).expect("the storage works");
    }

    /// Its consumer answers nothing until it is left alone.
    fn goes_down(&mut self) {
        let mut open = self.pushed();
        while let Some(job) = open.pop() {
            self.push_ends(&job, PushEnd::Failed(PushFailure { is_down: true, ..failed("no answer") }));
            open.extend(self.pushed());
        }
    }

    /// Time passes until something is pushed.
    fn fire(&mut self) -> Vec<Claimed> {
        let mut pushed = self.pushed();
        for _ in 0..100 {
            if !pushed.is_empty() {
                break;
            }
            let alarm = self.alarm.take().expect("something is due");
            self.now = self.now.max(alarm.as_millis().saturating_sub(at(0).as_millis()));
            self.queue.alarm(&self.rows, at(self.now)).expect("the storage works");
            pushed = self.pushed();
        }
        pushed
    }
}

fn failed(reason: &str) -> PushFailure {
    PushFailure { reason: reason.into(), ..PushFailure::default() }
}

#[test]
fn as_many_jobs_are_pushed_as_may_be_at_once_and_the_next_when_one_is_done() {
    let mut world = pushing(2);
    world.send(posts(&["a", "b", "c"]));
    let first = world.pushed();
    assert_eq!(first.iter().filter_map(|job| job.text.as_deref()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(world.counts(), (1, 2, 0));
    assert_eq!(world.pushed(), []);
    world.push_ends(&first[1], PushEnd::Done);
    assert_eq!(world.pushed_texts(), ["c"]);
    assert_eq!(world.counts(), (0, 2, 0));
    // Its answer comes twice.
    world.push_ends(&first[1], PushEnd::Done);
    assert_eq!((world.pushed(), world.counts()), (Vec::new(), (0, 2, 0)));
}

#[test]
fn a_pushed_job_costs_four_rows() {
    let mut world = pushing(1);
    world.rows.written.set(0);
    world.send(posts(&["a", "b"]));
    for _ in 0..2 {
        let job = world.pushed().remove(0);
        world.push_ends(&job, PushEnd::Done);
    }
    // For each, itself and the row of its claim, and both again when it is done.
    assert_eq!(world.rows.written.get(), 2 * 4);
}

#[test]
fn an_instance_that_dies_gives_no_place_back_before_its_consumers_are_over() {
    let mut world = pushing(2);
    world.send(posts(&["a", "b", "c"]));
    assert_eq!(world.pushed().len(), 2);
    world.crash();
    world.pass(34_999);
    assert_eq!(world.pushed(), [], "they may still be at work");
    let again = world.fire();
    assert_eq!(again.len(), 1, "one of them may have stopped it: {again:?}");
    assert!(world.now <= 40_000, "{}", world.now);
    world.push_ends(&again[0], PushEnd::Done);
    assert_eq!(world.pushed().len(), 2, "it has not");
}

#[test]
fn an_instance_that_waits_for_a_consumer_is_kept_awake() {
    let push = Some(Push { timeout_ms: 300_000, ..to("https://example.com") });
    let mut world = World::with(QueueSettings { push, ..QueueSettings::new(at(0)) });
    world.send(posts(&["a"]));
    let job = world.pushed().remove(0);
    for _ in 0..5 {
        let before = world.now;
        let alarm = world.alarm.take().expect("it is set").as_millis() - at(0).as_millis();
        assert!(alarm > before && alarm <= before + 30_000, "{before} {alarm}");
        world.now = alarm;
        world.queue.alarm(&world.rows, at(world.now)).expect("the storage works");
        assert_eq!(world.pushed(), []);
    }
    world.push_ends(&job, PushEnd::Done);
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn whoever_pushes_no_more_has_no_alarm_for_it() {
    for ends_by_code in [false, true] {
        let mut world = pushing(2);
        if ends_by_code {
            world.settings =
                world.queue.declare(&world.rows, at(0), 5, Some(Push::default())).expect("it is stored");
        }
        world.send(vec![Post { delay_ms: 60_000, ..post("later") }]);
        let patch = QueuePatch { push: Some(None), ..QueuePatch::default() };
        world.settings = if ends_by_code {
            world.queue.declare(&world.rows, at(1), 6, None).expect("it is stored")
        } else {
            world.queue.configure(&world.rows, at(1), &patch, None).expect("it is stored")
        };
        world.take_orders();
        for _ in 0..3 {
            let Some(alarm) = world.alarm.take() else { break };
            world.now = world.now.max(alarm.as_millis().saturating_sub(at(0).as_millis()));
            world.queue.alarm(&world.rows, at(world.now)).expect("the storage works");
            world.take_orders();
        }
        let next = world.alarm.map_or(u64::MAX, |at_| at_.as_millis() - at(0).as_millis());
        assert!(next > 120_000, "{next}");
    }
}

#[test]
fn one_invocation_pushes_so_many_and_the_alarm_goes_on() {
    let mut world = pushing(2);
    world.send((0..100).map(|number| post(&number.to_string())).collect());
    let (mut open, mut count) = (world.pushed(), 0);
    while let Some(job) = open.pop() {
        count += 1;
        world.push_ends(&job, PushEnd::Done);
        open.extend(world.pushed());
    }
    assert_eq!(count, 30);
    world.queue.begin();
    assert_eq!(world.fire().len(), 2);
    assert!(world.now < 10, "{}", world.now);
}

#[test]
fn a_consumer_that_is_down_is_left_alone_by_the_next_instance_too() {
    let mut world = pushing(3);
    world.send((0..10).map(|number| post(&number.to_string())).collect());
    world.goes_down();
    world.crash();
    assert_eq!(world.pushed(), []);
    assert_eq!(world.fire().len(), 1);
    assert!(world.now >= 1_000, "{}", world.now);
}

#[test]
fn a_consumer_that_is_well_again_is_well_for_the_next_instance_too() {
    let mut world = pushing(3);
    world.send((0..10).map(|number| post(&number.to_string())).collect());
    world.goes_down();
    let mut first = world.fire();
    let job = first.pop().expect("it is tried");
    world.push_ends(&job, PushEnd::Done);
    let open = world.pushed();
    assert_eq!(open.len(), 3);
    for job in open {
        world.push_ends(&job, PushEnd::Done);
        for job in world.pushed() {
            world.push_ends(&job, PushEnd::Done);
        }
    }
    world.crash();
    world.send((0..3).map(|number| post(&number.to_string())).collect());
    assert_eq!(world.pushed().len(), 3);
}

#[test]
fn an_answer_counts_although_the_clock_has_jumped_and_claims_leave_room() {
    let mut world = pushing(1);
    world.send(posts(&["a", "b"]));
    let job = world.pushed().remove(0);
    world.now += 3_600_000;
    world.push_ends(&job, PushEnd::Done);
    assert_eq!((world.pushed_texts(), world.counts()), (vec!["b".to_owned()], (0, 1, 0)));
    // Large jobs are not pushed beside each other.
    let mut world = pushing(6);
    let large = "x".repeat(1_900_000);
    world.send(posts(&[&large, &large, &large, "small"]));
    let first = world.pushed();
    assert!((1..=2).contains(&first.len()), "{}", first.len());
    world.push_ends(&first[0], PushEnd::Done);
    assert!(!world.pushed().is_empty(), "the next one has room");
}

#[test]
fn a_queue_whose_handler_is_declared_is_not_deleted_and_hears_of_no_other_while_it_is() {
    let mut world = World::new();
    world.queue.declare(&world.rows, at(0), 5, Some(Push::default())).expect("it is stored");
    assert_eq!(code(world.queue.delete(&world.rows, at(1), true)), Some(Code::WrongStatus));
    // The same again is heard: an earlier one that comes late does not count.
    world.queue.declare(&world.rows, at(2), 10, Some(Push::default())).expect("it is stored");
    let late = Some(Push { concurrency: 1, ..Push::default() });
    let settings = world.queue.declare(&world.rows, at(3), 7, late).expect("it is late");
    assert_eq!(settings.push, Some(Push::default()));
    world.queue.declare(&world.rows, at(4), 11, None).expect("it is stored");
    world.queue.delete(&world.rows, at(5), true).expect("nobody declares it");
    let refused = world.queue.declare(&world.rows, at(6), 12, Some(Push::default()));
    assert_eq!(code(refused), Some(Code::QueueClosed));
}

#[test]
fn a_fresh_instance_pushes_what_nobody_has() {
    let mut world = pushing(2);
    world.set(|settings| settings.state = QueueState::Paused);
    world.send(posts(&["a", "b", "c"]));
    assert_eq!(world.pushed(), []);
    world.set(|settings| settings.state = QueueState::Active);
    world.counts();
    assert_eq!(world.pushed_texts(), ["a", "b"], "it was resumed");
    let mut world = pushing(2);
    world.send(vec![Post { delay_ms: 1_000, ..post("later") }]);
    world.crash();
    assert_eq!(world.fire().len(), 1);
    assert_eq!(world.now, 1_000);
}

#[test]
fn a_delayed_job_is_pushed_when_its_time_comes() {
    let mut world = pushing(2);
    world.send(vec![Post { delay_ms: 60_000, ..post("later") }]);
    assert_eq!(world.pushed(), []);
    assert_eq!(world.fire().len(), 1);
    assert_eq!(world.now, 60_000);
}

#[test]
fn a_failed_push_is_tried_again_later_and_later_until_the_job_is_dead() {
    let mut world = pushing(6);
    world.send(posts(&["a"]));
    let mut job = world.pushed().remove(0);
    for attempt in 1..5 {
        let before = world.now;
        world.push_ends(&job, PushEnd::Failed(failed("500")));
        job = world.fire().remove(0);
        assert_eq!((job.attempt, world.now - before), (attempt + 1, push_backoff_ms(attempt)));
    }
    world.push_ends(&job, PushEnd::Failed(failed("500")));
    assert_eq!(world.counts(), (0, 0, 1));
    assert_eq!((push_backoff_ms(1), push_backoff_ms(4), push_backoff_ms(99)), (5_000, 320_000, 21_600_000));
    // A consumer chooses: when, or never.
    world.send(posts(&["b", "c"]));
    let both = world.pushed();
    world.push_ends(&both[0], PushEnd::Failed(PushFailure { delay_ms: Some(7), ..failed("soon") }));
    world.push_ends(&both[1], PushEnd::Failed(PushFailure { dead: true, ..failed("never") }));
    assert_eq!(world.counts(), (1, 0, 2));
    let before = world.now;
    assert_eq!((world.fire().len(), world.now - before), (1, 7));
    // What is kept of a reason is bounded, and can be shown.
    world.send(posts(&["d"]));
    let job = world.fire().remove(0);
    let long = format!("a\nb\u{202e}{}", "ü".repeat(1_000));
    world.push_ends(&job, PushEnd::Failed(PushFailure { dead: true, ..failed(&long) }));
    let dead = world.queue.dead(&world.rows, at(world.now), &world.settings, <_>::default(), 9);
    let last =
        dead.expect("they are there").pop().and_then(|job| job.death?.reason).expect("it has a reason");
    assert!(last.starts_with("a b ü") && (999..=1_000).contains(&last.len()), "{last}");
}

#[test]
fn a_consumer_that_is_down_gets_one_job_at_a_time_and_the_others_keep_their_attempts() {
    let mut world = pushing(6);
    world.send((0..100).map(|number| post(&number.to_string())).collect());
    let down = || PushEnd::Failed(PushFailure { is_down: true, ..failed("no answer") });
    let mut open = world.pushed();
    let mut pushes = 0;
    while world.now < 3_600_000 {
        for job in std::mem::take(&mut open) {
            pushes += 1;
            world.push_ends(&job, down());
            open.extend(world.pushed());
        }
        if open.is_empty() {
            open = world.fire();
        }
        assert!(pushes < 12 || open.len() <= 1, "{}", open.len());
    }
    assert!((50..100).contains(&pushes), "{pushes}");
    assert_eq!(world.counts().2, 0, "an hour without it costs no job its life");
    // It is back: all are done soon.
    let before = world.now;
    for _ in 0..10_000 {
        for job in std::mem::take(&mut open) {
            world.push_ends(&job, PushEnd::Done);
            open.extend(world.pushed());
        }
        if world.counts().0 + world.counts().1 == 0 {
            break;
        }
        if open.is_empty() {
            open = world.fire();
        }
    }
    assert_eq!(world.counts(), (0, 0, 0));
    assert!(world.now - before < 400_000, "{}", world.now - before);
}

#[test]
fn no_more_pushes_begin_than_the_rate_says() {
    let push = Some(Push { concurrency: 6, per_second: Some(4), ..to("https://example.com") });
    let mut world = World::with(QueueSettings { push, ..QueueSettings::new(at(0)) });
    world.send((0..40).map(|number| post(&number.to_string())).collect());
    let mut times = Vec::new();
    let mut open = world.pushed();
    while times.len() < 40 {
        for job in std::mem::take(&mut open) {
            times.push(world.now);
            world.push_ends(&job, PushEnd::Done);
            open.extend(world.pushed());
        }
        if times.len() < 40 {
            open.extend(world.fire());
        }
    }
    for (index, begin) in times.iter().enumerate() {
        let within = times.iter().skip(index).filter(|time| **time < begin + 1_000).count();
        assert!(within <= 4, "{within} begin in the second after {begin}");
    }
    assert!(world.now <= 10_000, "{}", world.now);
}

#[test]
fn each_partition_has_its_part_of_what_is_pushed_at_once() {
    for (concurrency, partitions, parts) in [(5, 2, [3, 2]), (1, 2, [1, 1]), (384, 2, [6, 6])] {
        for (partition, part) in (0..2).zip(parts) {
            let push = Some(Push { concurrency, ..to("https://example.com") });
            let settings = QueueSettings { push, partitions, ..QueueSettings::new(at(0)) };
            let mut world = World::with(settings.clone());
            world.queue = crate::queue::Queue::new(partition);
            world.queue.make(&world.rows, at(0), settings).expect("it is made");
            world.send((0..20).map(|number| post(&number.to_string())).collect());
            assert_eq!(world.pushed().len(), part, "{concurrency} {partition}");
        }
    }
}

#[test]
fn a_push_that_no_queue_can_have_is_refused() {
    let patch = |push| check_patch(&QueuePatch { push: Some(Some(push)), ..QueuePatch::default() });
    let into_sink = |name: &str| Push { sink: Some(name.into()), ..Push::default() };
    assert_eq!(patch(to("https://example.com")), Ok(()));
    assert_eq!(patch(into_sink("SINK_ORDERS_2")), Ok(()));
    for bad in [
        Push::default(),
        Push { concurrency: 0, ..to("https://example.com") },
        Push { concurrency: 385, ..to("https://example.com") },
        Push { per_second: Some(0), ..to("https://example.com") },
        Push { timeout_ms: 300_001, ..to("https://example.com") },
        Push { timeout_ms: 999, ..to("https://example.com") },
        to(&"x".repeat(3_000)),
        Push { sink: Some("SINK_OUT".into()), ..to("https://example.com") },
        into_sink("DISPATCH"),
        into_sink("SINK_"),
        into_sink("SINK_A-B"),
        into_sink(&format!("SINK_{}", "x".repeat(60))),
    ] {
        assert_eq!(patch(bad.clone()).map_err(|problem| problem.code), Err(Code::InvalidRequest), "{bad:?}");
    }
}

#[test]
fn what_the_code_declares_is_the_codes_and_goes_with_it() {
    let mut world = World::new();
    let handler = || Some(Push { concurrency: 3, ..Push::default() });
    let declare = |world: &mut World, revision, handler| {
        world.settings =
            world.queue.declare(&world.rows, at(world.now), revision, handler).expect("it is stored");
    };
    world.send(posts(&["a"]));
    declare(&mut world, 7, handler());
    assert_eq!(world.pushed_texts(), ["a"], "what has waited is pushed");
    let patch = QueuePatch { push: Some(None), ..QueuePatch::default() };
    let refused = world.queue.configure(&world.rows, at(0), &patch, None);
    assert_eq!(code(refused), Some(Code::WrongStatus));
    let patch = QueuePatch { max_attempts: Some(9), ..QueuePatch::default() };
    world.settings =
        world.queue.configure(&world.rows, at(0), &patch, None).expect("the rest is the operator's");
    declare(&mut world, 8, None);
    assert_eq!((world.settings.push.clone(), world.settings.declared), (None, false));
    declare(&mut world, 7, handler());
    assert_eq!(world.settings.push, None, "an earlier word comes late");
    // What an operator has set stays, if the code says nothing of the queue.
    let patch = QueuePatch { push: Some(Some(to("https://example.com"))), ..QueuePatch::default() };
    world.settings = world.queue.configure(&world.rows, at(0), &patch, None).expect("nobody declares it");
    declare(&mut world, 9, None);
    assert_eq!(world.settings.push, Some(to("https://example.com")));
}

/// A consumer, as it sees itself.
struct Seen {
    job: Claimed,
    group: Option<String>,
    until: u64,
}

/// Random histories: crashes, answers that are lost, consumers that fail. Gives what is wrong, if anything is.
fn history(seed: u64, bug: Option<Bug>) -> Option<String> {
    const LIMIT: u32 = 3;
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut world = pushing(LIMIT);
    world.rows.bug.set(bug);
    let mut open: Vec<Seen> = Vec::new();
    let mut done: BTreeSet<u64> = BTreeSet::new();
    let mut order: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut sent = 0_u64;
    for step in 0..4_000_u32 {
        for job in world.pushed() {
            if done.contains(&job.id.number) {
                return Some(format!("{} is done and pushed again", job.id));
            }
            let group = job.group.clone();
            if group.is_some() && open.iter().any(|seen| seen.group == group) {
                return Some(format!("two of group {group:?} at once"));
            }
            open.push(Seen { job, group, until: world.now + 30_000 });
        }
        // A consumer that is not heard of stops when its time is over.
        open.retain(|seen| seen.until > world.now);
        if open.len() > LIMIT as usize {
            return Some(format!("{} at once", open.len()));
        }
        match next(10) {
            0 | 1 if step < 400 => {
                let group = format!("g{}", next(3));
                let text = sent.to_string();
                let new = if next(2) == 0 { of_group(&text, &group) } else { post(&text) };
                sent += 1;
                world.send(vec![new]);
            }
            2 if step < 400 && next(4) == 0 => {
                world.crash();
                world.rows.bug.set(bug);
            }
            3..=6 if !open.is_empty() => {
                let index = usize::try_from(next(open.len() as u64)).unwrap_or(0);
                let Seen { job, group, .. } = open.swap_remove(index);
                if next(10) < 8 {
                    world.push_ends(&job, PushEnd::Done);
                    done.insert(job.id.number);
                    if let Some(group) = group {
                        order.entry(group).or_default().push(job.id.number);
                    }
                } else if job.attempt < 4 {
                    let is_down = next(2) == 0;
                    let delay_ms = Some(next(2_000));
                    let failure = PushFailure { delay_ms, is_down, ..failed("x") };
                    world.push_ends(&job, PushEnd::Failed(failure));
                } else {
                    world.push_ends(&job, PushEnd::Done);
                    done.insert(job.id.number);
                    if let Some(group) = group {
                        order.entry(group).or_default().push(job.id.number);
                    }
                }
            }
            _ => {
                let until = world.now + next(3_000);
                world.take_alarms(until, &mut open);
            }
        }
        if step >= 400 && done.len() as u64 == sent {
            break;
        }
    }
    let dead = world.counts().2;
    if done.len() as u64 + dead < sent {
        return Some(format!("{} of {sent} are done", done.len()));
    }
    order.values().find(|of| dead == 0 && !of.is_sorted()).map(|of| format!("the order of a group is {of:?}"))
}

impl World {
    /// Time passes; what is pushed meanwhile is open.
    fn take_alarms(&mut self, until: u64, open: &mut Vec<Seen>) {
        for _ in 0..100 {
            for job in self.pushed() {
                let group = job.group.clone();
                open.push(Seen { job, group, until: self.now + 30_000 });
            }
            let Some(alarm) = self.alarm.filter(|alarm| *alarm <= at(until)) else { break };
            self.alarm = None;
            self.now = self.now.max(alarm.as_millis().saturating_sub(at(0).as_millis()));
            let now = self.now;
            open.retain(|seen| seen.until > now);
            self.queue.alarm(&self.rows, at(self.now)).expect("the storage works");
        }
        self.now = self.now.max(until);
    }
}

#[test]
fn in_no_random_history_is_more_pushed_at_once_or_again_or_out_of_order() {
    for seed in 1..=300 {
        if let Some(wrong) = history(seed, None) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn planted_bugs_of_pushes_are_found() {
    for bug in [
        Bug::AckNotStored,
        Bug::LeaseNotStored,
        Bug::LeasesNotRead,
        Bug::AnyoneOfGroupInLine,
        Bug::GroupBackwards,
    ] {
        assert!((1..=100).any(|seed| history(seed, Some(bug)).is_some()), "{bug:?} was not noticed");
    }
}
