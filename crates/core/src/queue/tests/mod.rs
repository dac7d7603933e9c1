//! The machine by itself: every answer may be lost, every instance may die.

mod addresses;
mod chaos;
mod dead;
mod leases;
mod memory;
mod push;
mod sends;
mod tell;
mod turns;

use stepwell_protocol::{
    Code, Timestamp,
    queue::{Claimed, JobId, Lease, LeaseStatus, QueueSettings, QueueState, Sent},
};

use self::memory::{Bug, Memory};
use super::{Content, End, Form, Post, Queue, Wanted};
use crate::object::{Fault, Hosted as _, Machine as _};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

/// A partition with its rows.
struct World {
    queue: Queue,
    rows: Memory,
    settings: QueueSettings,
    now: u64,
    alarm: Option<Timestamp>,
    sent: u64,
}

impl World {
    fn new() -> Self {
        Self::with(QueueSettings { max_attempts: 3, ..QueueSettings::new(at(0)) })
    }

    fn with(settings: QueueSettings) -> Self {
        let mut world =
            Self { queue: Queue::new(0), rows: Memory::default(), settings, now: 0, alarm: None, sent: 0 };
        world.queue.make(&world.rows, at(0), world.settings.clone()).expect("it is made");
        world
    }

    /// The instance dies, and the next one is loaded by a request.
    fn crash(&mut self) {
        self.queue = Queue::new(0);
        self.alarm = None;
        self.queue.repair(&self.rows, at(self.now)).expect("the rows can be read");
        self.take_orders();
    }

    fn take_orders(&mut self) -> Vec<super::Order> {
        let orders = self.queue.take_orders();
        self.alarm = orders.arm.or(self.alarm);
        orders.own
    }

    /// Time passes, and the alarm fires when it is due.
    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        self.take_orders();
        for _ in 0..10_000 {
            let Some(alarm) = self.alarm.filter(|alarm| *alarm <= at(until)) else { break };
            self.alarm = None;
            self.now = self.now.max(alarm.as_millis().saturating_sub(at(0).as_millis()));
            let _ = self.queue.alarm(&self.rows, at(self.now));
            self.take_orders();
        }
        self.now = until;
    }

    fn try_send(&mut self, request: Option<&str>, posts: Vec<Post>) -> Result<Vec<Sent>, Fault<()>> {
        self.sent += 1;
        let mark = format!("mark{}", self.sent);
        self.queue.send(&self.rows, at(self.now), &self.settings, &mark, request, posts)
    }

    fn send(&mut self, posts: Vec<Post>) -> Vec<JobId> {
        let sent = self.try_send(None, posts).expect("it is stored");
        sent.into_iter().filter_map(|sent| sent.id).collect()
    }

    fn wanted(nonce: &str, limit: usize) -> Wanted {
        let nonce = nonce.to_owned();
        Wanted { nonce, limit, bytes: 4_194_304, at_least_one: true, visibility_ms: None }
    }

    fn claim(&mut self, nonce: &str, limit: usize) -> Vec<Claimed> {
        self.claim_with(&Self::wanted(nonce, limit))
    }

    fn claim_with(&mut self, wanted: &Wanted) -> Vec<Claimed> {
        self.queue.claim(&self.rows, at(self.now), &self.settings, wanted).expect("the storage works")
    }

    /// Claims, and gives what the bodies say.
    fn texts(&mut self, nonce: &str, limit: usize) -> Vec<String> {
        self.claim(nonce, limit).into_iter().filter_map(|claimed| claimed.text).collect()
    }

    fn end(&mut self, leases: &[Lease], end: &End) -> Vec<LeaseStatus> {
        let ended = self.queue.end(&self.rows, at(self.now), &self.settings, leases, end);
        ended.expect("the storage works").into_iter().map(|result| result.status).collect()
    }

    fn ack(&mut self, claimed: &[Claimed]) -> Vec<LeaseStatus> {
        self.end(&leases(claimed), &End::Ack)
    }

    fn nack(&mut self, claimed: &[Claimed], delay_ms: Option<u64>) -> Vec<LeaseStatus> {
        self.end(&leases(claimed), &End::Nack { delay_ms, reason: Some("why".into()), dead: false })
    }

    fn counts(&mut self) -> (u64, u64, u64) {
        let counts = self.queue.counts(&self.rows, at(self.now), &self.settings).expect("it has counts");
        (counts.depth, counts.in_flight, counts.dead)
    }

    fn set(&mut self, change: impl Fn(&mut QueueSettings)) {
        change(&mut self.settings);
        self.settings.revision += 1;
    }
}

fn leases(claimed: &[Claimed]) -> Vec<Lease> {
    claimed.iter().map(|claimed| claimed.lease.clone()).collect()
}

fn post(text: &str) -> Post {
    let content = Content { content_type: "text/plain".into(), form: Form::Text, data: text.into() };
    Post { content, delay_ms: 0, priority: 0, group: None, dedupe_id: None, to: None, letter: None }
}

fn of_group(text: &str, group: &str) -> Post {
    Post { group: Some(group.into()), ..post(text) }
}

fn posts(texts: &[&str]) -> Vec<Post> {
    texts.iter().map(|text| post(text)).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, Fault<()>>) -> Option<Code> {
    match result {
        Err(Fault::Rejected(problem)) => Some(problem.code),
        Ok(_) | Err(Fault::Storage(()) | Fault::Moved(_)) => None,
    }
}

#[test]
fn the_first_job_sent_is_the_first_claimed_and_gone_once_it_is_done() {
    let mut world = World::new();
    world.send(posts(&["a", "b", "c"]));
    assert_eq!(world.counts(), (3, 0, 0));
    let claimed = world.claim("n1", 2);
    assert_eq!(claimed.iter().filter_map(|it| it.text.as_deref()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((world.counts(), claimed[0].attempt), ((1, 2, 0), 1));
    assert_eq!(world.ack(&claimed), [LeaseStatus::Done; 2]);
    assert_eq!(world.counts(), (1, 0, 0));
    assert_eq!(world.texts("n2", 9), ["c"]);
}

#[test]
fn a_plain_job_costs_one_row_to_store_and_one_to_end_besides_two_for_its_claim() {
    let mut world = World::new();
    world.rows.written.set(0);
    world.send((0..100).map(|number| post(&number.to_string())).collect());
    let claimed = world.claim("n", 100);
    world.ack(&claimed);
    // The counts go with the last job, and with the row of the claim.
    assert_eq!(world.rows.written.get(), 100 + 1 + 101);
}

#[test]
fn counts_are_those_of_the_latest_row_that_has_some() {
    let mut world = World::new();
    world.send(posts(&["a", "b", "c"]));
    world.crash();
    assert_eq!(world.counts(), (3, 0, 0));
    let first = world.claim("n1", 2);
    let last = world.claim("n2", 1);
    // With it, the row goes that had the latest counts.
    world.ack(&last);
    world.crash();
    assert_eq!(world.counts(), (0, 2, 0));
    world.ack(&first[..1]);
    world.crash();
    assert_eq!(world.counts(), (0, 1, 0));
    world.ack(&first[1..]);
    world.crash();
    assert_eq!(world.counts(), (0, 0, 0));
    // A number is never used twice, although no job is left that had one.
    world.send(posts(&["d"]));
    assert!(world.claim("n3", 1)[0].lease.job.number > last[0].lease.job.number);
}

#[test]
fn rows_of_claims_are_used_again_and_never_while_a_claim_has_them() {
    let mut world = World::new();
    let held: Vec<_> = (0..50_u32)
        .filter_map(|round| {
            world.send(posts(&["a", "b", "c"]));
            let claimed = [0, 1, 2].map(|claim| world.claim(&format!("n{round}-{claim}"), 1));
            // One of each 16 stays held, with free rows around its own.
            let [first, second, third] = claimed;
            world.ack(&first);
            world.ack(&third);
            let is_held = round % 16 == 0;
            if !is_held {
                world.ack(&second);
            }
            if round % 7 == 0 {
                world.crash();
            }
            is_held.then_some(second)
        })
        .collect();
    assert_eq!(world.counts(), (0, 4, 0));
    assert_eq!(world.rows.leases.borrow().len(), 4 + 3);
    world.crash();
    for one in held {
        assert_eq!(world.ack(&one), [LeaseStatus::Done]);
    }
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn rows_of_many_claims_go_with_them() {
    let mut world = World::new();
    world.send((0..500).map(|number| post(&number.to_string())).collect());
    let claimed: Vec<_> = (0..500).map(|claim| world.claim(&format!("n{claim}"), 1)).collect();
    for (n, one) in claimed.iter().enumerate() {
        world.ack(one);
        if n == 250 {
            world.crash();
        }
    }
    assert_eq!(world.rows.leases.borrow().len(), 100);
    world.crash();
    assert_eq!(world.counts(), (0, 0, 0));
}

#[test]
fn counts_that_are_lost_cost_no_job_its_number() {
    let mut world = World::new();
    world.send(posts(&["a", "b"]));
    world.rows.counts.borrow_mut().clear();
    world.crash();
    world.send(posts(&["c"]));
    assert_eq!(world.texts("n", 9), ["a", "b", "c"]);
}

#[test]
fn a_partition_that_begins_anew_does_not_count_what_was_left_over() {
    let mut world = World::new();
    world.send(posts(&["a", "b"]));
    let claimed = world.claim("n", 2);
    world.ack(&claimed);
    world.settings = QueueSettings { max_attempts: 3, ..QueueSettings::new(at(9)) };
    world.now = 9;
    world.queue.make(&world.rows, at(9), world.settings.clone()).expect("it is made anew");
    world.send(posts(&["c"]));
    world.crash();
    assert_eq!(world.counts(), (1, 0, 0));
    world.queue.make(&world.rows, at(9), world.settings.clone()).expect("it is there");
    world.crash();
    assert_eq!(world.texts("n", 9), ["c"]);
}

#[test]
fn what_a_claim_reads_is_bounded_by_what_it_takes() {
    let mut world = World::new();
    let delayed = |number: u64| Post {
        delay_ms: 1_000 + number,
        priority: u8::try_from(number % 10).unwrap_or(0),
        ..post("later")
    };
    for _ in 0..5 {
        world.send((0..1_000).map(delayed).collect());
        world.send((0..1_000).map(|_| post("now")).collect());
    }
    for round in 0..20 {
        world.rows.read.set(0);
        let claimed = world.claim(&format!("n{round}"), 10);
        assert_eq!(claimed.len(), 10);
        // A state and a body each, the page, ten lines that have nothing that is due; the first one looks further.
        let most = if round == 0 { 500 } else { 150 };
        assert!(world.rows.read.get() < most, "{round}: {}", world.rows.read.get());
        world.rows.read.set(0);
        world.counts();
        assert!(world.rows.read.get() < 1_100, "{}", world.rows.read.get());
    }
}

#[test]
fn a_claim_has_no_more_jobs_and_bytes_than_it_may_and_what_does_not_fit_is_not_leased() {
    let mut world = World::new();
    let large = "x".repeat(1_500_000);
    world.send(posts(&[&large, &large, &large, "small"]));
    let claimed = world.claim("n1", 100);
    assert_eq!(claimed.len(), 2, "a third would be more than 4 MiB");
    assert_eq!(world.counts(), (2, 2, 0));
    // Another part of a claim takes nothing that is larger than its share, and one that may take it does.
    let share = Wanted { bytes: 600_000, at_least_one: false, ..World::wanted("n2", 10) };
    assert_eq!(world.claim_with(&share), []);
    let first = Wanted { bytes: 600_000, at_least_one: true, ..World::wanted("n3", 10) };
    assert_eq!(world.claim_with(&first).len(), 1, "the small one does not fit beside it");
    assert_eq!(world.counts(), (1, 3, 0));
}

#[test]
fn priorities_come_first_and_delays_are_kept() {
    let mut world = World::new();
    world.send(vec![
        post("plain"),
        Post { priority: 5, ..post("five") },
        Post { delay_ms: 1_000, priority: 9, ..post("late nine") },
        Post { priority: 9, ..post("nine") },
        Post { delay_ms: 500, ..post("late") },
    ]);
    assert_eq!(world.texts("n1", 9), ["plain", "five", "nine"].map(String::from));
    world.now += 999;
    assert_eq!(world.texts("n2", 1), ["late"]);
    world.now += 1;
    assert_eq!(world.texts("n3", 9), ["late nine"]);
    let mut world = World::new();
    world.send(vec![post("a"), Post { priority: 1, ..post("b") }, Post { priority: 9, ..post("c") }]);
    for (nonce, text) in [("1", "c"), ("2", "b"), ("3", "a")] {
        assert_eq!(world.texts(nonce, 1), [text]);
    }
}

#[test]
fn plain_jobs_and_others_of_the_same_priority_take_turns_by_their_times() {
    let mut world = World::new();
    world.send(vec![Post { delay_ms: 50, ..post("delayed") }]);
    world.now = 40;
    world.send(posts(&["before"]));
    world.now = 60;
    world.send(posts(&["after"]));
    for (nonce, text) in [("1", "before"), ("2", "delayed"), ("3", "after")] {
        assert_eq!(world.texts(nonce, 1), [text]);
    }
}

#[test]
fn a_paused_queue_hands_out_nothing_and_a_draining_one_takes_nothing() {
    let mut world = World::new();
    world.send(posts(&["a"]));
    world.set(|settings| settings.state = QueueState::Paused);
    assert_eq!(world.claim("n", 1), []);
    world.send(posts(&["b"]));
    world.set(|settings| settings.state = QueueState::Draining);
    assert_eq!(code(world.try_send(None, posts(&["c"]))), Some(Code::QueueClosed));
    assert_eq!(world.texts("m", 9), ["a", "b"]);
    // An earlier revision that comes late changes nothing.
    let late = QueueSettings { revision: 1, state: QueueState::Active, ..world.settings.clone() };
    assert_eq!(
        code(world.queue.send(&world.rows, at(world.now), &late, "m", None, posts(&["d"]))),
        Some(Code::QueueClosed)
    );
}

#[test]
fn who_goes_by_another_making_of_the_queue_is_told_so() {
    let mut world = World::new();
    let other = QueueSettings { made_at: at(77), ..world.settings.clone() };
    let refused = world.queue.send(&world.rows, at(0), &other, "m", None, posts(&["a"]));
    assert!(matches!(refused, Err(Fault::Rejected(problem)) if super::is_stale(problem.status)));
    let mut fresh = Queue::new(3);
    let refused = fresh.claim(&Memory::default(), at(0), &other, &World::wanted("n", 1));
    assert!(matches!(refused, Err(Fault::Rejected(problem)) if super::is_stale(problem.status)));
    // One that was left over and has nothing is made anew.
    world.queue.make(&world.rows, at(80), other.clone()).expect("it is empty");
    assert_eq!(world.queue.settings(&world.rows, at(80)).expect("it has settings"), Some(other));
}

#[test]
fn as_many_claims_are_woken_as_there_are_jobs() {
    let mut world = World::new();
    world.take_orders();
    world.send(posts(&["a", "b"]));
    assert_eq!(world.take_orders(), [super::Order::Wake(2)]);
    world.send(vec![Post { delay_ms: 9, ..post("later") }, of_group("1", "g"), of_group("2", "g")]);
    assert_eq!(world.take_orders(), [super::Order::Wake(1)]);
    let claimed = world.claim("n", 9);
    assert_eq!(claimed.len(), 3);
    world.take_orders();
    world.ack(&claimed);
    assert_eq!(world.take_orders(), [super::Order::Wake(1)], "the next of the group");
}

#[test]
fn the_deletion_of_a_queue_is_remembered_and_one_with_jobs_is_kept_as_it_was() {
    let mut world = World::new();
    world
        .queue
        .configure(&world.rows, at(1), &<_>::default(), Some(QueueState::Paused))
        .expect("it is paused");
    let deleting = world.queue.delete(&world.rows, at(2), false).expect("it begins");
    assert_eq!(deleting.state, QueueState::Deleting);
    world.crash();
    world.pass(6_000);
    assert!(world.queue.deleting().is_some());
    let kept = world.queue.keep(&world.rows, at(9_000)).expect("it has jobs");
    assert_eq!((kept.state, world.queue.deleting()), (QueueState::Paused, None));
    // Whoever says that the jobs may go is not overruled.
    world.queue.delete(&world.rows, at(9_001), true).expect("it begins");
    world.queue.delete(&world.rows, at(9_002), false).expect("it goes on");
    assert!(world.queue.deleting().is_some_and(|deleting| deleting.with_jobs));
}
