//! What must hold of queues: who gets which job when, and what is on disk.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::queue::{Died, End, Mark, Row};
use stepwell_protocol::{
    Timestamp,
    queue::{Claimed, Lease, LeaseStatus, PushEnd, QueueSettings, QueueState, SentStatus},
};

use super::{
    around::{Answer, Posted, Want},
    rows::Tables,
};
use crate::check::Checked;

/// How late the alarm may be.
const LATE_MS: u64 = 6_000;

/// What is known of a job beside its row.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Who got it last, by which attempt.
    last: Option<(u32, String)>,
    /// Until when they hold it, as far as they were told; nothing if they have said that they do not.
    until: Option<Timestamp>,
    /// Before when nobody gets it.
    not_before: Timestamp,
    /// How many redrives there were when it was last handed out.
    redrives: u32,
    /// Somebody was told that it is done.
    is_done: bool,
    /// Somebody has said so.
    may_be_done: bool,
}

/// What is known beside the rows.
#[derive(Debug)]
pub struct Model {
    jobs: BTreeMap<u64, Known>,
    /// The rows as they were, and until when jobs were held.
    seen: BTreeMap<u64, (Row, Option<Timestamp>)>,
    /// What all jobs that there were say, and when they were sent.
    ever: BTreeMap<u64, (String, Timestamp)>,
    last: u64,
    /// The most attempts that a job ever could have.
    attempts_max: u32,
    dedupe_ms: u64,
    dead_retention_ms: u64,
    /// The deaths that another queue was told of, if one has to be.
    told: Option<BTreeSet<Died>>,
    /// Up to which numbers jobs and dead letters may have been purged.
    purged: (u64, u64),
    /// How many redrives were begun, and up to which number the last one was acknowledged.
    redrives: u32,
    redriven: u64,
    discards: bool,
    /// While the queue is paused, as an operator was told: the claims that held jobs by then, which may ask for them again.
    paused: Option<BTreeSet<String>>,
    /// The latest settings that may hold.
    revision: u64,
}

impl Model {
    pub fn new(settings: &QueueSettings) -> Self {
        Self {
            jobs: BTreeMap::new(),
            seen: BTreeMap::new(),
            ever: BTreeMap::new(),
            last: 0,
            attempts_max: settings.max_attempts,
            dedupe_ms: settings.dedupe_ms,
            dead_retention_ms: settings.dead_retention_ms,
            told: settings.dead_to.as_ref().map(|_| BTreeSet::new()),
            purged: (0, 0),
            redrives: 0,
            redriven: 0,
            discards: false,
            paused: None,
            revision: 0,
        }
    }

    /// Another queue hears of deaths.
    pub fn hears(&mut self, deaths: &[Died]) {
        self.told.iter_mut().for_each(|told| told.extend(deaths.iter().copied()));
    }

    /// Whether another queue has to hear of a death, and has not.
    fn is_untold(&self, number: u64, row: &Row) -> bool {
        let died = row.death.as_ref().map(|death| (death.at, number));
        self.told.as_ref().is_some_and(|told| died.is_some_and(|died| !told.contains(&died)))
    }

    /// Whether no job is left, by what is on disk.
    pub fn is_empty(&self) -> bool {
        self.seen.values().all(|(row, _)| row.death.is_some())
    }

    /// Somebody asks for something, and it may happen from here on.
    pub fn wants(&mut self, want: &Want) {
        match want {
            Want::End(lease, End::Ack) => self.ends(lease, true),
            Want::End(lease, End::Nack { .. }) => self.ends(lease, false),
            Want::Configure(patch, state) => {
                self.attempts_max = self.attempts_max.max(patch.max_attempts.unwrap_or(0));
                if state.is_some_and(|state| state != QueueState::Paused) {
                    self.paused = None;
                }
            }
            Want::Redrive(_) | Want::One { discards: false, .. } => self.redrives += 1,
            Want::One { discards: true, .. } => self.discards = true,
            Want::Send { .. } | Want::Claim(_) | Want::End(_, End::Extend { .. }) | Want::Purge { .. } => {}
        }
    }

    /// The endpoint says something of a job.
    pub fn push_ends(&mut self, lease: &Lease, end: &PushEnd) {
        self.ends(lease, *end == PushEnd::Done);
    }

    fn ends(&mut self, lease: &Lease, is_done: bool) {
        let job = self.jobs.entry(lease.job.number).or_default();
        job.may_be_done |= is_done;
        if job.is_of(lease) {
            job.until = None;
        }
    }

    /// What an instance is about to answer, by what it sees.
    pub fn answers(
        &mut self,
        want: &Want,
        answer: &Answer,
        sees: &Tables,
        clock: Timestamp,
        posts: &BTreeMap<String, Posted>,
    ) -> Checked {
        match (want, answer) {
            (Want::Purge { dead }, Answer::Done) => {
                let last = sees.counts_that_hold().last;
                let purged = if *dead { &mut self.purged.1 } else { &mut self.purged.0 };
                *purged = last.max(*purged);
            }
            (Want::Configure(..), Answer::Settings(settings)) => {
                self.revision = self.revision.max(settings.revision);
            }
            (Want::Claim(_), Answer::Claimed(jobs)) => {
                let priority = |text: &str| posts.get(text).map_or(0, |posted| posted.post.priority);
                let lowest = jobs.iter().filter_map(|job| job.text.as_deref()).map(priority).min();
                let waits = sees.rows.iter().filter(|(_, row)| row.is_in_line && row.due <= clock);
                let passed = waits
                    .map(|(number, _)| sees.text(*number))
                    .find(|text| lowest.is_some_and(|lowest| priority(text) > lowest));
                // What is being purged stands in the way of others, for as long as that takes.
                let is_purging = sees.head.as_ref().is_some_and(|head| head.purging.is_some());
                if let Some(passed) = passed.filter(|_| !is_purging) {
                    let detail = format!("{passed} waits, and {jobs:?} are handed out");
                    return Err(("20 a higher priority comes first", detail));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Somebody is told something: it is durable.
    pub fn told(&mut self, want: &Want, answer: &Answer, disk: &Tables, latest: Timestamp) -> Checked {
        match (want, answer) {
            (Want::Send { posts, .. }, Answer::Sent(sent)) => {
                for (post, sent) in posts.iter().zip(sent) {
                    let number = sent.id.as_ref().map_or(0, |id| id.number);
                    let stored = self.ever.get(&number).map(|(text, _)| text);
                    let is_it = stored.is_some_and(|text| *text == post.content.data);
                    // A request that comes again may name a job that is gone.
                    let is_right = match sent.status {
                        SentStatus::Accepted => is_it || number <= self.purged.0,
                        SentStatus::Duplicate => is_it || !self.seen.contains_key(&number),
                        SentStatus::Refused => false,
                    };
                    if !is_right {
                        let detail = format!("{} as {number}, which is {stored:?}", post.content.data);
                        return Err(("1 a job that is accepted is stored", detail));
                    }
                }
            }
            (_, Answer::Claimed(jobs)) => {
                for job in jobs {
                    self.handed_out(job, disk, latest)?;
                }
            }
            (Want::End(lease, end), Answer::Ended(results)) => {
                let job = self.jobs.entry(lease.job.number).or_default();
                for result in results {
                    match result.status {
                        LeaseStatus::Done => job.is_done = true,
                        LeaseStatus::Queued => job.not_before = result.until.unwrap_or_default(),
                        LeaseStatus::Extended if job.is_of(lease) && job.until.is_some() => {
                            job.until = job.until.max(result.until);
                        }
                        LeaseStatus::Extended
                        | LeaseStatus::Dead
                        | LeaseStatus::Lost
                        | LeaseStatus::Failed => {}
                    }
                    if result.status == LeaseStatus::Done && *end != End::Ack {
                        return Err(("4 only an ack makes a job done", format!("{lease} by {end:?}")));
                    }
                }
            }
            (_, Answer::Settings(settings)) => {
                let is_paused = settings.state == QueueState::Paused && settings.revision >= self.revision;
                self.paused = is_paused.then(|| disk.holds().map(|(nonce, _)| nonce.to_owned()).collect());
            }
            (_, Answer::Redriven(last)) => self.redriven = self.redriven.max(*last),
            _ => {}
        }
        Ok(())
    }

    /// A job is on its way to somebody.
    pub fn handed_out(&mut self, claimed: &Claimed, disk: &Tables, latest: Timestamp) -> Checked {
        let (redrives, attempts_max) = (self.redrives, self.attempts_max);
        let paused = self.paused.as_ref().is_some_and(|held| !held.contains(&claimed.lease.nonce));
        let id = claimed.id.number;
        let known = self.jobs.entry(id).or_default();
        let detail = || format!("{} at {}: {known:?}", claimed.lease, latest.as_millis());
        if known.is_done {
            return Err(("4 a job that is done is never handed out again", detail()));
        }
        if known.is_of(&claimed.lease) {
            return Ok(());
        }
        if paused {
            return Err(("31 a paused queue hands out nothing", detail()));
        }
        if claimed.attempt > attempts_max {
            return Err(("7 attempts never exceed the maximum", detail()));
        }
        let is_redriven = known.redrives != redrives;
        if known.last.as_ref().is_some_and(|(attempt, _)| claimed.attempt <= *attempt) && !is_redriven {
            return Err(("7 attempts are counted", detail()));
        }
        if known.until.is_some_and(|until| until > latest) {
            return Err(("6 a job has one holder", detail()));
        }
        if known.not_before > latest && !is_redriven {
            return Err(("10 no job is handed out early", detail()));
        }
        known.last = Some((claimed.attempt, claimed.lease.nonce.clone()));
        known.until = Some(claimed.until);
        known.redrives = redrives;
        self.in_order(claimed, disk, latest)
    }

    /// Of a group, one job at a time is handed out, and always the first.
    fn in_order(&self, claimed: &Claimed, disk: &Tables, latest: Timestamp) -> Checked {
        let id = claimed.id.number;
        let Some(row) = disk.rows.get(&id) else { return Ok(()) };
        let Some(group) = &row.group else { return Ok(()) };
        let others =
            disk.rows.iter().filter(|(other, row)| **other != id && row.group.as_ref() == Some(group));
        for (other, before) in others.filter(|(_, row)| row.death.is_none()) {
            if before.place < row.place {
                return Err(("20 a group's jobs are handed out in order", format!("{id} before {other}")));
            }
            let held = self.jobs.get(other).and_then(|known| known.until);
            if held.is_some_and(|until| until > latest) {
                return Err(("20 a group's jobs are handed out one at a time", format!("{id} and {other}")));
            }
        }
        Ok(())
    }

    /// What is on disk after a write.
    pub fn durable(&mut self, disk: &Tables, latest: Timestamp, posts: &BTreeMap<String, Posted>) -> Checked {
        let Some(head) = &disk.head else { return Ok(()) };
        // Whoever has asked for it may not have been answered.
        let purging = head.purging.unwrap_or_default();
        self.purged = (self.purged.0.max(purging.queued), self.purged.1.max(purging.dead));
        let jobs = disk.jobs();
        let dead = jobs.values().filter(|row| row.death.is_some()).count() as u64;
        let counts = disk.counts_that_hold();
        if (counts.alive, counts.dead) != (jobs.len() as u64 - dead, dead) {
            let detail = format!("{counts:?}, not {} and {dead}", jobs.len());
            return Err(("24 the counts are those of the rows", detail));
        }
        let holds = Self::holders(disk, &jobs)?;
        Self::groups(&jobs, &holds)?;
        for (number, (row, held)) in &self.seen {
            if !jobs.contains_key(number) {
                self.may_be_gone(*number, row, *held, latest)?;
            }
        }
        for (number, row) in &jobs {
            if !self.ever.contains_key(number) {
                self.is_new(*number, row, disk, &jobs, latest, posts)?;
            }
        }
        self.last = counts.last;
        self.seen =
            jobs.into_iter().map(|(number, row)| (number, (row, holds.get(&number).copied()))).collect();
        Ok(())
    }

    /// Until when each job is held, by the rows: by one claim, and not in line meanwhile.
    fn holders(
        disk: &Tables,
        jobs: &BTreeMap<u64, Row>,
    ) -> Result<BTreeMap<u64, Timestamp>, (&'static str, String)> {
        let mut holds = BTreeMap::new();
        for (nonce, hold) in disk.holds() {
            let in_line = disk.rows.get(&hold.job).is_some_and(|row| row.is_in_line || row.death.is_some());
            if holds.insert(hold.job, hold.until).is_some() || !jobs.contains_key(&hold.job) || in_line {
                return Err(("6 a job has one holder", format!("{nonce} has {hold:?}")));
            }
        }
        Ok(holds)
    }

    /// Of each group, the first job is held or in line, and no other one.
    fn groups(jobs: &BTreeMap<u64, Row>, holds: &BTreeMap<u64, Timestamp>) -> Checked {
        let mut groups: BTreeMap<&str, Vec<(u64, bool)>> = BTreeMap::new();
        for (number, row) in jobs.iter().filter(|(_, row)| row.death.is_none()) {
            let is_out = row.is_in_line || holds.contains_key(number);
            if let Some(group) = &row.group {
                groups.entry(group).or_default().push((row.place, is_out));
            }
        }
        for (group, mut places) in groups {
            places.sort_unstable();
            if places.iter().enumerate().any(|(index, (_, is_out))| *is_out != (index == 0)) {
                return Err(("20 the first of a group is in line", format!("{group}: {places:?}")));
            }
        }
        Ok(())
    }

    fn may_be_gone(&self, number: u64, row: &Row, held: Option<Timestamp>, latest: Timestamp) -> Checked {
        let is_done = self.jobs.get(&number).is_some_and(|known| known.may_be_done);
        let is_held = held.is_some_and(|until| until > latest);
        let is_over = |at: Timestamp| at.plus_millis(self.dead_retention_ms) <= latest;
        let may_go = match &row.death {
            Some(death) => {
                let is_over = is_over(death.at) && !self.is_untold(number, row);
                is_over || row.since <= self.purged.1 || self.discards
            }
            // One whose lease is over may die, and be discarded, in the same turn.
            None => (row.since <= self.purged.0 || self.discards) && !is_held,
        };
        if is_done || may_go {
            return Ok(());
        }
        Err(("1 no accepted job is lost", format!("{number} is gone: {row:?}, held {held:?}")))
    }

    /// A job is on disk for the first time: no other one is the same.
    fn is_new(
        &mut self,
        number: u64,
        row: &Row,
        disk: &Tables,
        jobs: &BTreeMap<u64, Row>,
        latest: Timestamp,
        posts: &BTreeMap<String, Posted>,
    ) -> Checked {
        if number <= self.last {
            return Err(("5 what was recorded stays", format!("{number} is new after {}", self.last)));
        }
        let text = disk.text(number).to_owned();
        let same: Vec<_> = self.ever.iter().filter(|(_, (other, _))| *other == text).collect();
        let posted = posts.get(&text);
        let has_key = posted.is_some_and(|posted| posted.has_key);
        let has_id = posted.is_some_and(|posted| posted.post.dedupe_id.is_some());
        let is_within = |sent: Timestamp| sent.plus_millis(self.dedupe_ms) > latest;
        for (other, (_, sent)) in &same {
            let is_there = jobs.contains_key(other) && self.seen.contains_key(other);
            if has_id && (is_there || is_within(*sent)) {
                return Err(("3 a dedupe id makes one job", format!("{text} is {other} and {number}")));
            }
            if has_key && !has_id && is_within(*sent) {
                return Err((
                    "3 an idempotency key makes one request",
                    format!("{text} is {other} and {number}"),
                ));
            }
        }
        let twice = disk.marks.get(&number).and_then(|mine| {
            let is_twice = |mark: &Mark| mark.request == mine.request && mark.first != mine.first;
            disk.marks.iter().find(|(_, mark)| is_twice(mark))
        });
        if let Some((other, mark)) = twice {
            return Err((
                "3 a request that comes twice is one",
                format!("{mark:?} has {other} and {number}"),
            ));
        }
        let delay_ms = posted.map_or(0, |posted| posted.post.delay_ms);
        if delay_ms > 0 {
            self.jobs.entry(number).or_default().not_before = row.sent_at.plus_millis(delay_ms);
        }
        self.ever.insert(number, (text, row.sent_at));
        Ok(())
    }

    /// What is held comes back some day.
    pub fn alarm(disk: &Tables, alarm: Option<Timestamp>, latest: Timestamp) -> Checked {
        let Some(first) = disk.holds().map(|(_, hold)| hold.until).min() else { return Ok(()) };
        let by = first.max(latest).plus_millis(LATE_MS);
        if alarm.is_none_or(|alarm| alarm > by) {
            let detail = format!("{:?} at {}", alarm.map(Timestamp::as_millis), latest.as_millis());
            return Err(("12 the alarm is never later than what is due", detail));
        }
        Ok(())
    }

    /// Everything has been well for long.
    pub fn at_rest(&self, disk: &Tables) -> Checked {
        let jobs = disk.jobs();
        if let Some((number, row)) = jobs.iter().find(|(_, row)| row.death.is_none()) {
            return Err((
                "11 every job is done or dead in the end",
                format!("{number}: {row:?}, {:?}", disk.leases),
            ));
        }
        if let Some((number, row)) = jobs.iter().find(|(number, row)| self.is_untold(**number, row)) {
            return Err((
                "32 another queue hears of each death",
                format!("{number}: {row:?}, {:?}", disk.head),
            ));
        }
        if let Some((number, row)) = jobs.iter().find(|(_, row)| row.since <= self.redriven) {
            return Err((
                "11 what is redriven is queued",
                format!("{number}: {row:?} up to {}", self.redriven),
            ));
        }
        Ok(())
    }
}

impl Known {
    fn is_of(&self, lease: &Lease) -> bool {
        let is_it = |(attempt, nonce): &(u32, String)| (*attempt, nonce) == (lease.attempt, &lease.nonce);
        self.last.as_ref().is_some_and(is_it)
    }
}
