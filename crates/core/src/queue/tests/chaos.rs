//! Random histories, each from a seed: crashes, requests that come twice or late, a storage that refuses or loses its
//! answer, a clock that is set back. A model that shares nothing with the machine says what may happen. And each planted
//! bug is found by it.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_protocol::{
    Timestamp,
    queue::{Claimed, JobId, Lease, LeaseStatus, QueueSettings, SentStatus},
};

use super::{Bug, Post, World, at, post};
use crate::{
    object::Fault,
    queue::{End, Queue},
};

/// How many histories are tried.
const SEEDS: u64 = 400;

/// How many things happen in one.
const STEPS: u32 = 100;

/// After how many attempts a job is dead.
const ATTEMPTS: u32 = 3;

/// Where a job stands, as far as everybody was told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Queued { due: u64 },
    Held { nonce: String, until: u64 },
    Done,
    Dead,
    Purged,
}

#[derive(Clone, Debug)]
struct Model {
    state: State,
    attempts: u32,
    group: Option<String>,
    /// Its place among all.
    order: u64,
}

struct Chaos {
    world: World,
    jobs: BTreeMap<u64, Model>,
    keys: BTreeMap<(Option<String>, String), u64>,
    requests: Vec<(String, Vec<Post>, Vec<JobId>)>,
    claims: Vec<String>,
    leases: Vec<Lease>,
    /// The latest time that the instance has seen.
    latest: u64,
    count: u64,
    random: u64,
    wrong: Option<String>,
}

impl Chaos {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let world = World::with(QueueSettings { max_attempts: ATTEMPTS, ..QueueSettings::new(at(0)) });
        world.rows.bug.set(bug);
        Self {
            world,
            jobs: BTreeMap::new(),
            keys: BTreeMap::new(),
            requests: Vec::new(),
            claims: Vec::new(),
            leases: Vec::new(),
            latest: 0,
            count: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            wrong: None,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % bound.max(1) as u64).unwrap_or(0)
    }

    fn is_wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// The next write may fail, or its answer may be lost.
    fn maybe_break(&mut self) {
        let draw = self.below(8);
        self.world.rows.refuses.set(draw == 0);
        self.world.rows.loses_answer.set(draw == 1);
    }

    /// Asks until there is an answer, as clients do.
    fn ask<T>(
        &mut self,
        act: impl Fn(&mut Queue, &super::Memory, Timestamp, &QueueSettings) -> Result<T, Fault<()>>,
    ) -> Option<T> {
        self.maybe_break();
        for _ in 0..5 {
            self.latest = self.latest.max(self.world.now);
            let World { queue, rows, settings, now, .. } = &mut self.world;
            let answer = act(queue, rows, at(*now), settings);
            self.world.take_orders();
            self.world.rows.refuses.set(false);
            match answer {
                Ok(answer) => {
                    self.world.rows.loses_answer.set(false);
                    self.expire();
                    return Some(answer);
                }
                Err(Fault::Storage(())) => {
                    if self.below(3) == 0 {
                        self.load_anew();
                    }
                }
                Err(Fault::Rejected(_) | Fault::Moved(_)) => {
                    self.expire();
                    return None;
                }
            }
        }
        self.is_wrong("nothing answers any more".into());
        None
    }

    /// Leases that are over: every request gives back what they held before it does anything else.
    fn expire(&mut self) {
        let latest = self.latest;
        for job in self.jobs.values_mut() {
            if let State::Held { until, .. } = &job.state
                && *until <= latest
            {
                job.state = if job.attempts >= ATTEMPTS { State::Dead } else { State::Queued { due: 0 } };
            }
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..4 => self.send(),
            4 => self.send_again(),
            5..9 => {
                self.count += 1;
                let nonce = format!("n{}", self.count);
                self.claims.push(nonce.clone());
                self.claim(&nonce);
            }
            9 => {
                let index = self.below(self.claims.len());
                if let Some(nonce) = self.claims.get(index).cloned() {
                    self.claim(&nonce);
                }
            }
            10..13 => self.ack(),
            13 | 14 => self.nack(),
            15 => self.extend(),
            16 => self.crash(),
            17 => self.redrive(),
            18 if self.below(3) == 0 => self.purge(),
            _ => {
                let ms = [5, 700, 9_000, 31_000][self.below(4)];
                self.world.pass(ms);
                self.latest = self.latest.max(self.world.now);
                self.expire();
            }
        }
        self.check_counts();
    }

    fn send(&mut self) {
        let mut posts = Vec::new();
        for _ in 0..=self.below(3) {
            self.count += 1;
            let group = (self.below(3) == 0).then(|| format!("g{}", self.below(2)));
            let dedupe_id = (self.below(4) == 0).then(|| format!("d{}", self.below(5)));
            let delay_ms = if self.below(5) == 0 { 2_000 } else { 0 };
            let priority = if self.below(5) == 0 { 7 } else { 0 };
            posts.push(Post { delay_ms, priority, group, dedupe_id, ..post(&self.count.to_string()) });
        }
        // Some have a key; all are known by their marks, and are delivered until they are answered.
        let (key, has_key) = (format!("r{}", self.count), self.below(2) == 0);
        let sent = self.ask(|queue, rows, now, settings| {
            let mark = format!("m-{key}");
            queue.send(rows, now, settings, &mark, has_key.then_some(&key), posts.clone())
        });
        let Some(sent) = sent else { return self.is_wrong("a send was refused".into()) };
        let ids: Vec<_> = sent.iter().filter_map(|sent| sent.id.clone()).collect();
        for (post, id) in posts.iter().zip(&ids) {
            let key = post.dedupe_id.clone().map(|dedupe| (post.group.clone(), dedupe));
            if let Some(known) = key.as_ref().and_then(|key| self.keys.get(key)) {
                if *known != id.number {
                    self.is_wrong(format!("{key:?} is {known}, and was stored as {}", id.number));
                }
                continue;
            }
            self.keys.extend(key.map(|key| (key, id.number)));
            // One without a delay may be handed out at once, whatever the clock says later.
            let due = if post.delay_ms > 0 { self.latest + post.delay_ms } else { 0 };
            let state = State::Queued { due };
            let model = Model { state, attempts: 0, group: post.group.clone(), order: id.number };
            if self.jobs.insert(id.number, model).is_some() {
                self.is_wrong(format!("{} is two jobs", id.number));
            }
        }
        if has_key {
            self.requests.push((key, posts, ids));
        }
    }

    /// A request that was answered comes once more, however late.
    fn send_again(&mut self) {
        let index = self.below(self.requests.len());
        let Some((key, posts, ids)) = self.requests.get(index).cloned() else { return };
        let mark = format!("again{}", self.random);
        let sent = self.ask(|queue, rows, now, settings| {
            queue.send(rows, now, settings, &mark, Some(&key), posts.clone())
        });
        let sent = sent.unwrap_or_default();
        let again: Vec<_> = sent.iter().filter_map(|sent| sent.id.clone()).collect();
        if again != ids || sent.iter().any(|sent| sent.status != SentStatus::Duplicate) {
            self.is_wrong(format!("{key} was {ids:?}, and is {again:?}"));
        }
    }

    fn claim(&mut self, nonce: &str) {
        self.latest = self.latest.max(self.world.now);
        self.expire();
        let wanted = World::wanted(nonce, self.below(3) + 1);
        let is_of = |job: &Model| matches!(&job.state, State::Held { nonce: of, .. } if of == nonce);
        let held: BTreeSet<_> =
            self.jobs.iter().filter(|(_, job)| is_of(job)).map(|(number, _)| *number).collect();
        let claimed = self.ask(|queue, rows, now, settings| queue.claim(rows, now, settings, &wanted));
        let claimed = claimed.unwrap_or_default();
        let numbers: BTreeSet<_> = claimed.iter().map(|claimed| claimed.id.number).collect();
        if numbers.len() != claimed.len() {
            self.is_wrong(format!("{nonce} has a job twice"));
        }
        if !held.is_empty() && numbers != held {
            self.is_wrong(format!("{nonce} has {held:?}, and gets {numbers:?}"));
        }
        for claimed in claimed {
            self.claimed(nonce, claimed);
        }
    }

    fn claimed(&mut self, nonce: &str, claimed: Claimed) {
        let number = claimed.id.number;
        self.leases.push(claimed.lease);
        let Some(job) = self.jobs.get(&number).cloned() else {
            return self.is_wrong(format!("{number} was never sent"));
        };
        let expected = match &job.state {
            State::Held { nonce: of, .. } if of == nonce => job.attempts,
            State::Queued { due } if *due <= self.latest => job.attempts + 1,
            State::Queued { .. } | State::Held { .. } | State::Done | State::Dead | State::Purged => {
                return self.is_wrong(format!("{number} is claimed by {nonce} at {}: {job:?}", self.latest));
            }
        };
        if claimed.attempt != expected || claimed.attempt > ATTEMPTS {
            self.is_wrong(format!("{number} has attempt {}, not {expected}", claimed.attempt));
        }
        let is_before = |other: &Model| {
            job.group.is_some()
                && other.group == job.group
                && other.order < job.order
                && matches!(other.state, State::Queued { .. } | State::Held { .. })
        };
        if self.jobs.values().any(is_before) {
            self.is_wrong(format!("{number} overtakes another of its group"));
        }
        let until = claimed.until.as_millis() - at(0).as_millis();
        if let Some(job) = self.jobs.get_mut(&number) {
            job.attempts = claimed.attempt;
            job.state = State::Held { nonce: nonce.to_owned(), until };
        }
    }

    /// Some lease that there was, and whether it holds.
    fn lease(&mut self) -> Option<(Lease, bool)> {
        self.latest = self.latest.max(self.world.now);
        self.expire();
        let back = self.below(self.leases.len().min(8));
        let lease = self.leases.iter().rev().nth(back).cloned()?;
        let job = self.jobs.get(&lease.job.number)?;
        let holds = matches!(&job.state, State::Held { nonce, .. } if *nonce == lease.nonce)
            && job.attempts == lease.attempt;
        Some((lease, holds))
    }

    fn end(&mut self, lease: &Lease, end: &End) -> Option<(LeaseStatus, Option<Timestamp>)> {
        let leases = [lease.clone()];
        let ended = self.ask(|queue, rows, now, settings| queue.end(rows, now, settings, &leases, end));
        ended.and_then(|results| results.first().map(|result| (result.status, result.until)))
    }

    fn ack(&mut self) {
        let Some((lease, holds)) = self.lease() else { return };
        let Some((status, _)) = self.end(&lease, &End::Ack) else {
            return self.is_wrong("an ack was refused".into());
        };
        let Some(job) = self.jobs.get_mut(&lease.job.number) else { return };
        let may_be = match (&job.state, holds) {
            (State::Done, _) | (_, true) => &[LeaseStatus::Done][..],
            (State::Purged, false) => &[LeaseStatus::Done, LeaseStatus::Lost][..],
            (State::Queued { .. } | State::Held { .. } | State::Dead, false) => &[LeaseStatus::Lost][..],
        };
        let why = format!("the ack of {lease} is {status:?}: {job:?}");
        let is_right = may_be.contains(&status);
        if holds {
            job.state = State::Done;
        }
        if !is_right {
            self.is_wrong(why);
        }
    }

    fn nack(&mut self) {
        let Some((lease, holds)) = self.lease() else { return };
        let is_fatal = self.below(5) == 0;
        let end = End::Nack { delay_ms: Some(1_500), reason: None, dead: is_fatal };
        // Whether it has happened cannot be told if its answer is lost: that is not tried here.
        let World { queue, rows, settings, now, .. } = &mut self.world;
        let ended = queue.end(rows, at(*now), settings, std::slice::from_ref(&lease), &end);
        self.world.take_orders();
        let status = ended.ok().and_then(|results| results.first().map(|result| result.status));
        let latest = self.latest;
        let Some(job) = self.jobs.get_mut(&lease.job.number) else { return };
        let dies = is_fatal || job.attempts >= ATTEMPTS;
        let expected = match (holds, dies) {
            (false, _) => LeaseStatus::Lost,
            (true, true) => LeaseStatus::Dead,
            (true, false) => LeaseStatus::Queued,
        };
        if holds {
            job.state = if dies { State::Dead } else { State::Queued { due: latest + 1_500 } };
        }
        if status != Some(expected) {
            let why = format!("the nack of {lease} is {status:?}, not {expected:?}");
            self.is_wrong(why);
        }
    }

    fn extend(&mut self) {
        let Some((lease, holds)) = self.lease() else { return };
        let ms = if self.below(2) == 0 { 1_000 } else { 50_000 };
        let Some((status, until)) = self.end(&lease, &End::Extend { visibility_ms: Some(ms) }) else {
            return;
        };
        let expected = if holds { LeaseStatus::Extended } else { LeaseStatus::Lost };
        let before = self.jobs.get(&lease.job.number).map(|job| job.state.clone());
        if status != expected {
            return self.is_wrong(format!("the extension of {lease} is {status:?}"));
        }
        if let (Some(until), Some(State::Held { nonce, until: before })) = (until, before) {
            let until = until.as_millis() - at(0).as_millis();
            if until < before {
                self.is_wrong(format!("{lease} is shorter"));
            }
            if let Some(job) = self.jobs.get_mut(&lease.job.number) {
                job.state = State::Held { nonce, until };
            }
        }
    }

    /// The instance dies. The clock of the next one may be behind.
    fn crash(&mut self) {
        let back = self.below(3) * 400;
        self.world.now = self.world.now.saturating_sub(back as u64);
        self.load_anew();
        // What is over by its clock has been given back at most.
        self.latest = self.world.now;
    }

    fn load_anew(&mut self) {
        let (refuses, loses) = (self.world.rows.refuses.take(), self.world.rows.loses_answer.take());
        self.world.crash();
        self.world.rows.refuses.set(refuses);
        self.world.rows.loses_answer.set(loses);
    }

    fn redrive(&mut self) {
        self.latest = self.latest.max(self.world.now);
        self.expire();
        let dead: Vec<_> =
            self.jobs.iter().filter(|(_, job)| job.state == State::Dead).map(|(number, _)| *number).collect();
        let index = self.below(dead.len());
        let Some(&number) = dead.get(index) else { return };
        let id = JobId { made: at(0), partition: 0, number };
        self.ask(|queue, rows, now, settings| queue.redrive_one(rows, now, settings, &id));
        let order = self.world.rows.counts_that_hold().last;
        if let Some(job) = self.jobs.get_mut(&number) {
            (job.attempts, job.order, job.state) = (0, order, State::Queued { due: 0 });
        }
    }

    fn purge(&mut self) {
        let is_dead = self.below(4) == 0;
        self.latest = self.latest.max(self.world.now);
        self.expire();
        self.ask(|queue, rows, now, settings| queue.purge(rows, now, settings, is_dead));
        for job in self.jobs.values_mut() {
            match job.state {
                State::Queued { .. } if !is_dead => job.state = State::Purged,
                State::Dead if is_dead => job.state = State::Purged,
                State::Queued { .. } | State::Dead | State::Held { .. } | State::Done | State::Purged => {}
            }
        }
    }

    fn number_of(&self, is_it: impl Fn(&State) -> bool) -> u64 {
        self.jobs.values().filter(|job| is_it(&job.state)).count() as u64
    }

    fn check_counts(&mut self) {
        self.latest = self.latest.max(self.world.now);
        let World { queue, rows, settings, now, .. } = &mut self.world;
        let Ok(counts) = queue.counts(rows, at(*now), settings) else {
            return self.is_wrong("there are no counts".into());
        };
        self.world.take_orders();
        self.expire();
        let queued = self.number_of(|state| matches!(state, State::Queued { .. }));
        let held = self.number_of(|state| matches!(state, State::Held { .. }));
        let dead = self.number_of(|state| *state == State::Dead);
        let is_right =
            counts.in_flight == held && (counts.purging || (counts.depth == queued && counts.dead == dead));
        if !is_right {
            self.is_wrong(format!("{counts:?}, not {queued} queued, {held} held, {dead} dead"));
        }
    }

    /// Nothing goes wrong any more: whatever is there is handed out and done. Says what is not as it should be.
    fn verdict(mut self) -> Option<String> {
        self.crash();
        self.world.pass(60_000);
        self.latest = self.world.now;
        self.expire();
        for round in 0..400 {
            let nonce = format!("end{round}");
            let claimed = self.world.claim(&nonce, 5);
            let leases: Vec<_> = claimed.iter().map(|claimed| claimed.lease.clone()).collect();
            for claimed in claimed {
                self.claimed(&nonce, claimed);
            }
            let ended = self.world.end(&leases, &End::Ack);
            for (lease, status) in leases.iter().zip(ended) {
                if let Some(job) = self.jobs.get_mut(&lease.job.number)
                    && status == LeaseStatus::Done
                {
                    job.state = State::Done;
                }
            }
            self.world.pass(100);
            self.latest = self.world.now;
            if leases.is_empty() {
                break;
            }
        }
        self.check_counts();
        let left =
            self.jobs.iter().find(|(_, job)| matches!(job.state, State::Queued { .. } | State::Held { .. }));
        let left = left.map(|(number, job)| format!("{number} was lost: {job:?}"));
        let rows = self.world.rows.rows.borrow();
        let dead: BTreeSet<_> = rows.keys().copied().collect();
        let expected: BTreeSet<_> =
            self.jobs.iter().filter(|(_, job)| job.state == State::Dead).map(|(number, _)| *number).collect();
        let kept = (dead != expected).then(|| format!("{dead:?} are dead, not {expected:?}"));
        let plain = self.world.rows.plain.borrow().len();
        let remains = (plain > 0).then(|| format!("{plain} plain jobs remain"));
        self.wrong.or(left).or(kept).or(remains)
    }
}

fn first_violation(bug: Option<Bug>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let mut chaos = Chaos::new(seed, bug);
        for _ in 0..STEPS {
            chaos.step();
            if chaos.wrong.is_some() {
                break;
            }
        }
        let why = chaos.wrong.clone().or_else(|| chaos.verdict());
        why.map(|why| (seed, why))
    })
}

#[test]
fn whatever_goes_wrong_each_job_is_handed_out_as_it_should_be() {
    assert_eq!(first_violation(None), None);
}

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        assert!(first_violation(Some(bug)).is_some(), "{bug:?} was not noticed");
    }
}
