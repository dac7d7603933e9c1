//! Whoever is around a partition: producers, consumers and operators. Each asks, and asks again if no answer comes.

use std::collections::BTreeMap;

use stepwell_core::{
    object::Fault,
    queue::{Content, Died, End, Form, Post, Pushed, Queue, Telling, Wanted},
};
use stepwell_protocol::{
    Timestamp,
    queue::{Claimed, Lease, LeaseResult, Push, QueuePatch, QueueSettings, QueueState, Redrive, Sent},
};

use super::{
    Planted, World,
    rows::{Entries, Queues},
};
use crate::{
    Sabotage,
    host::{Cause, Refused},
    one::{BEGINNING_MS, BREAKS_MS, Common, OneStation as _},
};

/// How many consumers claim jobs.
const CONSUMERS: u64 = 3;

/// How long somebody waits for an answer.
const ANSWER_MS: u64 = 8_000;

/// How often somebody asks while things break.
const TRIES_MAX: u32 = 4;

/// Something that happens around a partition.
#[derive(Clone, Debug)]
pub enum Event {
    /// Somebody wants something.
    Want(Box<Want>),
    /// It is asked for, unless it was answered.
    Try(u64),
    /// That reaches the partition: which try it is.
    Arrives(u64, u32),
    /// Its answer reaches whoever asked.
    Answered(u64, Answer),
    /// A consumer claims jobs.
    Consume(u64),
    /// A job reaches the endpoint.
    Begins(u64),
    /// The endpoint is done with it, or the partition no longer waits.
    Ends(u64),
    /// The instance hears of it.
    Heard(u64),
    /// An instance hears how far another queue was told of dead letters.
    Told { to: u64, flight: u64, through: Option<Died>, is_all: bool },
}

/// What somebody wants of a partition.
#[derive(Clone, Debug)]
pub enum Want {
    /// To send jobs: by an idempotency key, or without.
    Send { posts: Vec<Post>, has_key: bool },
    /// To get jobs.
    Claim(Wanted),
    /// To end or extend a lease.
    End(Lease, End),
    /// To change the settings.
    Configure(Box<QueuePatch>, Option<QueueState>),
    /// To delete what is queued, or what is dead.
    Purge { dead: bool },
    /// To queue all dead letters again, at a rate.
    Redrive(Option<u32>),
    /// To queue one of them again, or to delete it: some one, by chance.
    One { of: u64, discards: bool },
}

/// What the partition says.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Which jobs were stored.
    Sent(Vec<Sent>),
    /// Which jobs are handed out.
    Claimed(Vec<Claimed>),
    /// How a lease stands.
    Ended(Vec<LeaseResult>),
    /// What the settings are.
    Settings(Box<QueueSettings>),
    /// It is done: up to this number.
    Redriven(u64),
    /// It is done.
    Done,
    /// It is not, and will not be.
    Refused,
}

/// What leaves a partition.
#[derive(Clone, Debug)]
pub enum Out {
    /// An answer.
    Answer { ask: u64, answer: Answer },
    /// A job, for the endpoint, and how often the clock had jumped when it was leased.
    Push { from: u64, jumps: u32, pushed: Box<Pushed> },
    /// Dead letters, for another queue.
    Tell { from: u64, telling: Box<Telling> },
}

/// Somebody who waits for an answer.
#[derive(Clone, Debug)]
struct Ask {
    want: Want,
    tries: u32,
    is_answered: bool,
}

/// A job that was sent, by what its body says.
#[derive(Clone, Debug)]
pub struct Posted {
    pub post: Post,
    /// Whether its request has an idempotency key.
    pub has_key: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Around {
    /// The settings as they were at first.
    pub settings: QueueSettings,
    /// As they were last answered.
    known: QueueSettings,
    pub posts: BTreeMap<String, Posted>,
    asks: BTreeMap<u64, Ask>,
    asked: u64,
    claims: u64,
}

/// A job whose body ends like this is never done.
const POISON: &str = "!";

fn push_of(common: &mut Common<Queues, Event, Out>) -> Push {
    Push {
        url: Some(format!("https://consumer.example/{}", common.rng.below(2))),
        sink: None,
        concurrency: u32::try_from(common.rng.between(1, 3)).unwrap_or(1),
        per_second: common.rng.percent(20).then_some(2),
        timeout_ms: 10_000,
    }
}

impl Around {
    /// Producers and operators whose wishes come one after the other, and consumers.
    pub fn new(common: &mut Common<Queues, Event, Out>) -> Self {
        let mut settings = QueueSettings {
            visibility_ms: *common.rng.pick(&[5_000, 30_000]),
            max_attempts: u32::try_from(common.rng.between(2, 4)).unwrap_or(2),
            dedupe_ms: *common.rng.pick(&[30_000, 3_600_000]),
            ..QueueSettings::new(Timestamp::from_millis(BEGINNING_MS))
        };
        if common.rng.percent(20) {
            settings.retention_ms = 120_000;
        }
        if common.rng.percent(20) {
            settings.dead_retention_ms = 600_000;
        }
        if common.rng.percent(50) {
            settings.push = Some(push_of(common));
        }
        if common.rng.percent(40) {
            settings.dead_to = Some("mourners".into());
        }
        let known = settings.clone();
        let (posts, asks) = (BTreeMap::new(), BTreeMap::new());
        let mut around = Self { settings, known, posts, asks, asked: 0, claims: 0 };
        around.produce(common);
        Self::operate(common);
        for consumer in 0..CONSUMERS {
            common.put_at(consumer * 300, Event::Consume(consumer));
        }
        around
    }

    fn produce(&mut self, common: &mut Common<Queues, Event, Out>) {
        let is_bursty = common.rng.percent(30);
        for request in 0..common.rng.between(10, 25) {
            let mut posts = Vec::new();
            let has_key = common.rng.percent(50);
            for number in 0..common.rng.between(1, 3) {
                let group = common.rng.percent(35).then(|| format!("g{}", common.rng.below(2)));
                let dedupe_id = common.rng.percent(25).then(|| format!("d{}", common.rng.below(4)));
                let poison = if common.rng.percent(8) { POISON } else { "" };
                let data = match &dedupe_id {
                    Some(id) => format!("{}/{id}", group.as_deref().unwrap_or_default()),
                    None => format!("r{request}-{number}{poison}"),
                };
                let content = Content { content_type: "text/plain".into(), form: Form::Text, data };
                let delay_ms = if common.rng.percent(20) { common.rng.between(1_000, 40_000) } else { 0 };
                let priority = if common.rng.percent(20) { *common.rng.pick(&[3, 9]) } else { 0 };
                let data = content.data.clone();
                let post = Post { content, delay_ms, priority, group, dedupe_id, to: None, letter: None };
                // What has the same id is the same.
                posts.push(self.posts.entry(data).or_insert(Posted { post, has_key }).post.clone());
            }
            let by_ms = if is_bursty { 20_000 } else { BREAKS_MS };
            let at_ms = common.rng.between(0, by_ms);
            common.put_at(at_ms, Event::Want(Box::new(Want::Send { posts, has_key })));
        }
    }

    fn operate(common: &mut Common<Queues, Event, Out>) {
        for _ in 0..common.rng.between(2, 7) {
            let mut patch = QueuePatch::default();
            let mut state = None;
            match common.rng.below(6) {
                0 => patch.visibility_ms = Some(*common.rng.pick(&[3_000, 20_000])),
                1 => patch.max_attempts = Some(u32::try_from(common.rng.between(2, 4)).unwrap_or(2)),
                2 => patch.push = Some(common.rng.percent(70).then(|| push_of(common))),
                3 => state = Some(QueueState::Draining),
                _ => state = Some(QueueState::Paused),
            }
            let at_ms = common.rng.between(1_000, BREAKS_MS - 60_000);
            common.put_at(at_ms, Event::Want(Box::new(Want::Configure(Box::new(patch), state))));
            if state.is_some() {
                let at_ms = at_ms + common.rng.between(5_000, 60_000);
                let want = Want::Configure(Box::default(), Some(QueueState::Active));
                common.put_at(at_ms, Event::Want(Box::new(want)));
            }
        }
        for _ in 0..common.rng.between(0, 5) {
            let want = match common.rng.below(8) {
                0 | 1 => Want::Purge { dead: common.rng.percent(30) },
                2 | 3 => Want::One { of: common.rng.below(5), discards: common.rng.percent(50) },
                _ => Want::Redrive(common.rng.percent(50).then_some(1)),
            };
            let at_ms = common.rng.between(20_000, BREAKS_MS);
            common.put_at(at_ms, Event::Want(Box::new(want)));
        }
        // Whatever an operator has done, all is well in the end.
        let want = Want::Configure(Box::default(), Some(QueueState::Active));
        common.put_at(BREAKS_MS + 1_000, Event::Want(Box::new(want)));
    }
}

/// Has one question answered by the machine.
fn asks(
    queue: &mut Queue,
    rows: &Entries,
    now: Timestamp,
    settings: &QueueSettings,
    (ask, tried): (u64, u32),
    want: &Want,
) -> Result<Answer, Fault<Refused>> {
    match want {
        Want::Send { posts, has_key } => {
            let (mark, key) = (format!("{ask}-{tried}"), format!("key{ask}"));
            let key = has_key.then_some(key.as_str());
            Ok(Answer::Sent(queue.send(rows, now, settings, &mark, key, posts.clone())?))
        }
        Want::Claim(wanted) => Ok(Answer::Claimed(queue.claim(rows, now, settings, wanted)?)),
        Want::End(lease, end) => {
            Ok(Answer::Ended(queue.end(rows, now, settings, std::slice::from_ref(lease), end)?))
        }
        Want::Configure(patch, state) => {
            Ok(Answer::Settings(Box::new(queue.configure(rows, now, patch, *state)?)))
        }
        Want::Purge { dead } => queue.purge(rows, now, settings, *dead).map(|()| Answer::Done),
        Want::Redrive(per_second) => {
            let redrive = Redrive { per_second: *per_second, ..Redrive::default() };
            queue.redrive(rows, now, settings, redrive)?;
            Ok(Answer::Redriven(rows.all().counts_that_hold().last))
        }
        Want::One { of, discards } => {
            let dead = queue.dead(rows, now, settings, (Timestamp::default(), 0), 5)?;
            let index = usize::try_from(*of).unwrap_or(0) % dead.len().max(1);
            match dead.get(index) {
                None => Ok(Answer::Refused),
                Some(job) if *discards => queue.discard(rows, now, settings, &job.id).map(|()| Answer::Done),
                Some(job) => queue.redrive_one(rows, now, settings, &job.id).map(|()| Answer::Done),
            }
        }
    }
}

impl World {
    pub(super) fn on(&mut self, event: Event) {
        match event {
            Event::Want(want) => self.want(*want),
            Event::Try(ask) => self.try_again(ask),
            Event::Arrives(ask, tried) => self.arrives(ask, tried),
            Event::Answered(ask, answer) => self.answered(ask, answer),
            Event::Consume(consumer) => self.consume(consumer),
            Event::Begins(call) => self.begins(call),
            Event::Ends(call) => self.ends(call),
            Event::Heard(call) => self.heard(call),
            Event::Told { to, flight, through, is_all } => {
                let _ = self.turn(to, Cause::CallEnded, |queue, rows, now| {
                    queue.told(rows, now, flight, through, is_all)
                });
            }
        }
    }

    fn want(&mut self, want: Want) {
        self.around.asked += 1;
        let ask = self.around.asked;
        self.around.asks.insert(ask, Ask { want, tries: 0, is_answered: false });
        self.try_again(ask);
    }

    fn try_again(&mut self, id: u64) {
        let is_over = !self.common.breaks();
        let Some(ask) = self.around.asks.get_mut(&id) else { return };
        if ask.is_answered || ask.tries >= TRIES_MAX && !is_over {
            return;
        }
        ask.tries += 1;
        let tried = ask.tries;
        let again_ms = ANSWER_MS + self.common.rng.between(0, 4_000);
        self.common.put(again_ms, Event::Try(id));
        for _ in 0..=u32::from(self.common.breaks() && self.common.rng.percent(12)) {
            if let Some(delay_ms) = self.common.travels() {
                self.common.put(delay_ms, Event::Arrives(id, tried));
            }
        }
    }

    fn arrives(&mut self, id: u64, tried: u32) {
        let Some(Ask { want, .. }) = self.around.asks.get(&id).cloned() else { return };
        let Some(instance) = self.load_for_request() else { return };
        let made = self.around.settings.clone();
        if self.common.station.disk.head.is_none() {
            let _ = self.turn(instance, Cause::Request, |queue, rows, now| queue.make(rows, now, made));
        }
        // Some have not heard of a change yet.
        let is_late = self.common.rng.percent(10);
        let settings = if is_late { &self.around.settings } else { &self.around.known }.clone();
        self.model.wants(&want);
        let sees = self.common.station.instance(instance);
        let holds = |wanted: &Wanted| {
            sees.is_some_and(|it| it.store.all().holds().any(|(nonce, _)| nonce == wanted.nonce))
        };
        let is_repeated = matches!(&want, Want::Claim(wanted) if holds(wanted));
        let clock = self.common.clock();
        let answer = self.turn(instance, Cause::Request, |queue, rows, now| {
            asks(queue, rows, now, &settings, (id, tried), &want)
        });
        let answer = match answer {
            Some(Ok(answer)) => answer,
            Some(Err(Fault::Rejected(_) | Fault::Moved(_))) => Answer::Refused,
            // It may have happened all the same.
            Some(Err(Fault::Storage(_))) | None => return self.look(),
        };
        if let Some(seen) = self.common.station.instance(instance)
            && !is_repeated
        {
            let checked = self.model.answers(&want, &answer, &seen.store.all(), clock, &self.around.posts);
            self.common.must(checked);
        }
        let early = self.is(Planted::AnsweredEarly).then_some(Sabotage::GateOpen);
        self.send(instance, Out::Answer { ask: id, answer }, early);
    }

    /// Another queue is told of dead letters: of all, of some, or of none.
    fn tell(&mut self, from: u64, telling: Telling) {
        let Telling { flight, jobs, through, .. } = telling;
        let breaks = self.common.breaks();
        let is_all = !(breaks && self.common.rng.percent(30));
        let count = if is_all {
            jobs.len()
        } else {
            usize::try_from(self.common.rng.below(jobs.len() as u64)).unwrap_or(0)
        };
        let heard: Vec<_> = jobs.iter().take(count).map(|(died, _)| *died).collect();
        self.model.hears(&heard);
        let through = if is_all { Some(through) } else { heard.last().copied() };
        let delay_ms = if breaks && self.common.rng.percent(10) { 45_000 } else { 20 };
        if !(breaks && self.common.rng.percent(10)) {
            self.common.put(delay_ms, Event::Told { to: from, flight, through, is_all });
        }
    }

    /// Something leaves the partition.
    pub(super) fn leaves_for(&mut self, out: Out) {
        let (disk, latest) = (self.common.station.disk.clone(), self.common.latest);
        match out {
            Out::Answer { ask, answer } => {
                let want = self.around.asks.get(&ask).map(|ask| &ask.want);
                let checked = want.map_or(Ok(()), |want| self.model.told(want, &answer, &disk, latest));
                self.common.must(checked);
                if let Some(delay_ms) = self.common.travels() {
                    self.common.put(delay_ms, Event::Answered(ask, answer));
                }
            }
            Out::Push { from, jumps, pushed } => {
                let checked = self.model.handed_out(&pushed.job, &disk, latest);
                self.common.must(checked);
                self.call(from, jumps, *pushed);
            }
            Out::Tell { from, telling } => self.tell(from, *telling),
        }
    }

    fn answered(&mut self, id: u64, answer: Answer) {
        let Some(ask) = self.around.asks.get_mut(&id) else { return };
        if std::mem::replace(&mut ask.is_answered, true) {
            return;
        }
        match answer {
            Answer::Claimed(jobs) => jobs.into_iter().for_each(|job| self.works(&job)),
            Answer::Settings(settings) => {
                if settings.revision > self.around.known.revision {
                    self.around.known = *settings;
                }
            }
            Answer::Sent(_) | Answer::Ended(_) | Answer::Redriven(_) | Answer::Done | Answer::Refused => {}
        }
    }

    fn consume(&mut self, consumer: u64) {
        let is_idle = self.model.is_empty() && self.common.now_ms > BREAKS_MS + 400_000;
        if is_idle {
            return;
        }
        let every_ms = self.common.rng.between(1_500, 5_000);
        self.common.put(every_ms, Event::Consume(consumer));
        if self.common.breaks() && self.common.rng.percent(20) {
            return;
        }
        self.around.claims += 1;
        let visibility_ms = self.common.rng.percent(20).then_some(2_000);
        let limit = usize::try_from(self.common.rng.between(1, 3)).unwrap_or(1);
        self.want(Want::Claim(Wanted {
            nonce: format!("n{}", self.around.claims),
            limit,
            bytes: 1_000_000,
            at_least_one: true,
            visibility_ms,
        }));
    }

    /// A consumer has a job, and some day it says what became of it, if it lives.
    fn works(&mut self, job: &Claimed) {
        let breaks = self.common.breaks();
        if breaks && self.common.rng.percent(10) {
            return;
        }
        let lease = job.lease.clone();
        let ms = if breaks && self.common.rng.percent(20) {
            self.common.rng.between(4_000, 60_000)
        } else {
            self.common.rng.between(10, 2_000)
        };
        if self.common.rng.percent(25) {
            let visibility_ms = self.common.rng.percent(70).then_some(25_000);
            let want = Want::End(lease.clone(), End::Extend { visibility_ms });
            self.common.put(ms / 2, Event::Want(Box::new(want)));
        }
        let fails = is_poison(job) || breaks && self.common.rng.percent(20);
        let end = if fails {
            let delay_ms = *self.common.rng.pick(&[None, Some(0), Some(2_000), Some(15_000)]);
            End::Nack { delay_ms, reason: Some("why".into()), dead: self.common.rng.percent(15) }
        } else {
            End::Ack
        };
        self.common.put(ms, Event::Want(Box::new(Want::End(lease, end))));
    }
}

/// Whether a pushed job can be done.
pub fn is_poison(job: &Claimed) -> bool {
    job.text.as_ref().is_some_and(|text| text.ends_with(POISON))
}
