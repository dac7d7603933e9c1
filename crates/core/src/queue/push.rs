//! Jobs that a partition takes to their consumer itself.
//!
//! A push holds its job like a claim does, by a row: an instance that dies leaves its leases, and nobody else gets these
//! jobs, or their places, before they are over. So no more jobs are pushed at once than the queue says, whatever dies.

use stepwell_protocol::{
    Payload, Problem, Timestamp,
    queue::{
        CLAIM_BYTES_MAX, Claimed, DELAY_MS_MAX, Lease, PUSH_TIMEOUT_MS_MAX, PUSH_TIMEOUT_MS_MIN, PUSHES_MAX,
        PUSHES_OF_PARTITION_MAX, PUSHES_PER_SECOND_MAX, Push, PushEnd, PushFailure, QueueSettings,
        QueueState, REASON_LENGTH_MAX, SINK_PREFIX, URL_LENGTH_MAX,
    },
    text::is_hidden,
};

use super::{
    End, Hold, IN_FLIGHT_MAX, Order, Queue, Rows, Wanted, drive::Known, rows::escaped_size, settings::bad,
};
use crate::{
    object::{Fault, Hosted as _},
    ordered::OrdMap,
};

/// How much longer than its consumer may take a pushed job is held: nobody else gets it while its consumer is at work.
const MARGIN_MS: u64 = 5_000;

/// What the nonces of pushes begin with. No consumer's own has a space.
const NONCE: &str = "push ";

/// How long a job waits after its first failed push, unless its consumer says it.
const BACKOFF_MS: u64 = 5_000;

/// How long it waits at the most: six hours.
const BACKOFF_MS_MAX: u64 = 6 * 3_600_000;

/// How many jobs are pushed before the alarm has to go on with it: see [`crate::cell::CALLS_MAX`].
const CALLS_MAX: u32 = 30;

/// How often an instance that waits for consumers is called by its alarm.
const AWAKE_MS: u64 = 30_000;

/// After how many failures in a row a consumer counts as down: from then on, it gets one job at a time, and rarely.
pub(super) const DOWN: u32 = 3;

/// How long jobs wait to be looked at again whose addresses have as many as they get at once.
const HELD_UP_MS: u64 = 1_000;

/// How long a consumer that is down is left alone, after the first such failure.
const DOWN_MS: u64 = 1_000;

/// How long it is left alone at the most.
const DOWN_MS_MAX: u64 = 60_000;

/// A job on its way to its consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// It.
    pub job: Claimed,
    /// How it gets there.
    pub push: Push,
}

/// What an instance knows of its pushes.
#[derive(Clone, Debug, Default)]
pub(super) struct Pushing {
    /// How many jobs are held by pushes, those of instances before it too.
    pub held: usize,
    /// When to look whether there is something to push.
    pub at: Option<Timestamp>,
    /// Before when nothing is pushed, because of the rate.
    paced: Timestamp,
    /// How many bytes the jobs have that this instance pushes.
    bytes: OrdMap<u64, usize>,
    /// The addresses that jobs are on their way to, of those that have one of their own.
    pub to: OrdMap<u64, String>,
    /// Whether a job that is next in line waits for another one.
    pub is_held_up: bool,
    /// Whether others may be next in line now.
    pub at_once: bool,
    /// When addresses that jobs stand back for were last given some, as a count.
    pub served: OrdMap<String, u64>,
    last_served: u64,
    /// How many were pushed since the last request or alarm: one invocation may call only so many, and the end of a call is
    /// what begins the next.
    pub calls: u32,
}

impl Pushing {
    /// By when the alarm keeps this instance awake while it waits for consumers: an idle object is removed after a minute
    /// or two, with what it waits for.
    pub fn awake_by(&self, now: Timestamp) -> Option<Timestamp> {
        (!self.bytes.is_empty()).then(|| now.plus_millis(AWAKE_MS))
    }

    /// A claim with this nonce holds a job, or no longer does.
    pub fn count(&mut self, nonce: &str, job: u64, holds: bool) {
        if nonce.starts_with(NONCE) {
            self.held = if holds { self.held + 1 } else { self.held.saturating_sub(1) };
        }
        if !holds {
            self.bytes.remove(&job);
            self.to.remove(&job);
        }
    }

    /// A job is on its way to an address of its own.
    pub fn goes_to(&mut self, job: u64, address: Option<String>) {
        self.to.extend(address.map(|address| (job, address)));
    }

    /// An address is given jobs that stood back for it: others come first the next time.
    pub fn serve(&mut self, address: &str) {
        self.last_served += 1;
        self.served.insert(address.to_owned(), self.last_served);
    }

    /// How many jobs are on their way to an address.
    pub fn held_by(&self, address: &str) -> usize {
        self.to.values().filter(|to| *to == address).count()
    }
}

/// How many jobs a partition pushes at once: its part.
fn part(push: &Push, partitions: u32, partition: u32) -> usize {
    let partitions = partitions.max(1);
    let part = push.concurrency / partitions + u32::from(partition < push.concurrency % partitions);
    part.clamp(1, PUSHES_OF_PARTITION_MAX) as usize
}

/// How many pushes may begin at once, and after how many milliseconds the next ones: by a partition's part of the rate.
fn pace(per_second: Option<u32>, partitions: u32) -> (usize, u64) {
    let Some(rate) = per_second else { return (usize::MAX, 0) };
    let (rate, second) = (u64::from(rate.max(1)), 1_000 * u64::from(partitions.max(1)));
    if rate > second {
        (usize::try_from(rate / second).unwrap_or(usize::MAX), 1)
    } else {
        (1, second.div_ceil(rate))
    }
}

/// For how long a consumer is left alone that has failed so often in a row, if it is.
pub(super) fn pause_ms(failures: u32) -> Option<u64> {
    let beyond = failures.checked_sub(DOWN)?;
    Some((DOWN_MS << beyond.min(20)).min(DOWN_MS_MAX))
}

/// How long a job waits after a failed push, unless its consumer says it.
pub fn push_backoff_ms(attempt: u32) -> u64 {
    (BACKOFF_MS << (2 * attempt.saturating_sub(1).min(10))).min(BACKOFF_MS_MAX)
}

impl Queue {
    /// Pushes what can be pushed now. What was done before stands, whatever comes of this.
    pub(super) fn push<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        let Some(known) = &mut self.known else { return };
        if known.head.settings.push.is_none() {
            known.pushing.at = None;
            return;
        }
        let pushed = self.try_push(rows, now);
        if self.settle(pushed).is_err() {
            self.object.arm_by(now, now.plus_millis(crate::object::LOOK_AGAIN_MS));
        }
    }

    fn try_push<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let partition = self.partition;
        let Some(known) = &mut self.known else { return Ok(()) };
        let Some((limit, every_ms)) = known.may_push(now, partition) else {
            return self.look_again(rows, now);
        };
        let Some(push) = known.head.settings.push.clone() else { return Ok(()) };
        // As many are tried as can be held.
        let mut nonces = (0..=PUSHES_OF_PARTITION_MAX).map(|n| format!("{NONCE}{}-{n}", now.as_millis()));
        let Some(nonce) = nonces.find(|nonce| !known.leases.contains_key(nonce)) else { return Ok(()) };
        let pushed: usize = known.pushing.bytes.values().sum();
        let wanted = Wanted {
            nonce,
            limit,
            bytes: CLAIM_BYTES_MAX.saturating_sub(pushed),
            at_least_one: pushed == 0,
            visibility_ms: Some(push.timeout_ms + MARGIN_MS),
        };
        (known.pushing.is_held_up, known.pushing.at_once) = (false, false);
        if known.head.settings.addressed {
            let mut changes = Vec::new();
            known.bring_back(rows, now, limit, &mut changes)?;
            if !changes.is_empty() {
                changes.push(known.store_head());
            }
            self.commit(rows, now, &changes)?;
        }
        let claimed = self.hand_out(rows, now, &wanted)?;
        let Some(known) = &mut self.known else { return Ok(()) };
        // Those with addresses of their own are small.
        if claimed.is_empty() && limit > 0 && pushed > 0 && !known.head.settings.addressed {
            // What is next does not fit beside the others: the end of one of them goes on with it.
            known.pushing.at = None;
            return Ok(());
        }
        if !claimed.is_empty() {
            known.pushing.paced = now.plus_millis(every_ms);
        }
        for job in &claimed {
            known.pushing.calls += 1;
            known.pushing.bytes.insert(job.id.number, encoded_size(job));
        }
        if let Some(at) = known.pushing.awake_by(now) {
            self.object.arm_by(now, at);
        }
        for job in claimed {
            let own = self.known.as_ref().and_then(|known| known.pushing.to.get(&job.id.number));
            let url = own.or(push.url.as_ref()).cloned();
            self.object.order(Order::Push(Box::new(Pushed { job, push: Push { url, ..push.clone() } })));
        }
        self.look_again(rows, now)
    }

    /// Says when there will be something to push.
    fn look_again<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let partition = self.partition;
        let Some(known) = &mut self.known else { return Ok(()) };
        known.pushing.at = None;
        if !known.has_room(partition) {
            return Ok(());
        }
        // The end of another one lets it go; but there may be others that it does not keep waiting.
        let waits = known.pushing.is_held_up && !known.pushing.at_once;
        let held_up = if waits { now.plus_millis(HELD_UP_MS) } else { now };
        let ready = known.ready_at(rows, now)?.map(|at| at.max(held_up));
        if let Some(at) = [ready, known.back_at(now)].into_iter().flatten().min() {
            let at = at.max(known.pushing.paced).max(known.head.left_alone_until);
            known.pushing.at = Some(at);
            self.object.arm_by(now, at);
        }
        Ok(())
    }

    /// A job that was pushed came to an end.
    pub fn pushed<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        lease: &Lease,
        end: PushEnd,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let Some(known) = &mut self.known else { return Ok(()) };
        let settings = known.head.settings.clone();
        // Its end is heard, however late: a clock that jumps must not end its lease first.
        let number = lease.job.number;
        let held = known.leases.get(&lease.nonce).and_then(|holds| holds.get(&number)).copied();
        let is_held = held.is_some_and(|hold| hold.attempt == lease.attempt);
        if let Some((nonce, hold)) =
            held.filter(|hold| is_held && hold.until <= now).and_then(|_| known.let_go(number))
        {
            known.hold(&nonce, Hold { until: now.plus_millis(MARGIN_MS), ..hold });
        }
        // What was said of a push that is over says nothing of the consumer now.
        let mut failure = match end {
            PushEnd::Done => None,
            PushEnd::Failed(failure) => {
                let (is_down, gone) = (failure.is_down && is_held, failure.gone && is_held);
                Some(PushFailure { is_down, gone, ..failure })
            }
        };
        // Nor does it of the address, unless that has taken the job.
        let noted = match &failure {
            Some(_) if !is_held => Ok(false),
            failure => self.note_address(rows, now, number, failure.as_ref()),
        };
        if self.settle(noted)?
            && let Some(failure) = &mut failure
        {
            // That is about its own address, and not about the queue's consumer.
            failure.is_down = false;
            failure.dead |= failure.gone;
        }
        let Some(known) = &mut self.known else { return Ok(()) };
        let end = match failure {
            None => {
                known.recovers();
                End::Ack
            }
            Some(failure) => known.push_failed(now, lease.attempt, failure),
        };
        self.end(rows, now, &settings, std::slice::from_ref(lease), &end)?;
        Ok(())
    }
}

impl Known {
    /// A fresh instance finds jobs that another one was pushing when it died. One of them may have stopped it: so they come
    /// one by one, until one is done.
    pub fn found_pushes(&mut self) {
        if self.pushing.held > 0 {
            self.is_head_due |= self.head.failures < DOWN;
            self.head.failures = self.head.failures.max(DOWN);
        }
    }

    /// Jobs go to another consumer, or another way: what was known of the one before says nothing.
    pub fn changes_consumer(&mut self) {
        (self.head.failures, self.head.left_alone_until) = (0, Timestamp::default());
    }

    fn is_open(&self) -> bool {
        match self.head.settings.state {
            QueueState::Active | QueueState::Draining => true,
            QueueState::Paused | QueueState::Deleting => false,
        }
    }

    /// How many jobs may be pushed by their number.
    fn room(&self, partition: u32) -> usize {
        let QueueSettings { push, partitions, .. } = &self.head.settings;
        let Some(push) = push.as_ref().filter(|_| self.is_open()) else { return 0 };
        let most = if self.head.failures >= DOWN { 1 } else { part(push, *partitions, partition) };
        let free = IN_FLIGHT_MAX.saturating_sub(self.by_job.len());
        most.saturating_sub(self.pushing.held).min(free)
    }

    fn has_room(&self, partition: u32) -> bool {
        self.room(partition) > 0
    }

    /// How many jobs may be pushed now, and for how long none after them.
    fn may_push(&self, now: Timestamp, partition: u32) -> Option<(usize, u64)> {
        let room = self.room(partition);
        let left = (CALLS_MAX.saturating_sub(self.pushing.calls)) as usize;
        if room.min(left) == 0 || self.pushing.paced.max(self.head.left_alone_until) > now {
            return None;
        }
        let QueueSettings { push, partitions, .. } = &self.head.settings;
        let (at_once, every_ms) = pace(push.as_ref()?.per_second, *partitions);
        Some((room.min(left).min(at_once), every_ms))
    }

    fn push_failed(&mut self, now: Timestamp, attempt: u32, failure: PushFailure) -> End {
        let PushFailure { reason, delay_ms, dead, is_down, gone: _ } = failure;
        if is_down {
            self.is_head_due = true;
            self.head.failures = self.head.failures.saturating_add(1);
            if let Some(pause_ms) = pause_ms(self.head.failures) {
                self.head.left_alone_until = now.plus_millis(pause_ms);
            }
        } else {
            self.recovers();
        }
        // Anybody may be at an address of a job's own.
        let most_ms = if self.head.settings.addressed { BACKOFF_MS_MAX } else { DELAY_MS_MAX };
        let delay_ms = delay_ms.unwrap_or_else(|| push_backoff_ms(attempt)).min(most_ms);
        End::Nack { delay_ms: Some(delay_ms), reason: Some(cut(&reason)), dead }
    }
}

/// How many bytes a job has when it is sent as JSON.
fn encoded_size(job: &Claimed) -> usize {
    let text = job.text.as_ref().map(|text| text.bytes().map(escaped_size).sum());
    let other = job.body.as_ref().map(Payload::size).or_else(|| job.base64.as_ref().map(String::len));
    text.or(other).unwrap_or_default()
}

/// As much of a reason as is kept. It may be anything that a consumer has said.
fn cut(reason: &str) -> String {
    let mut kept = String::new();
    for c in reason.chars().map(|c| if is_hidden(c) { ' ' } else { c }) {
        if kept.len() + c.len_utf8() > REASON_LENGTH_MAX {
            break;
        }
        kept.push(c);
    }
    kept
}

/// Refuses what no queue can push by. Whether an address may be called is for whoever calls it.
pub(super) fn check_push(push: &Push) -> Result<(), Problem> {
    match (&push.url, &push.sink) {
        (None, None) | (Some(_), Some(_)) => {
            let detail = "`push` needs either a `url` or a `sink`. A handler of the app is declared in its code, with \
                          `#[job]`.";
            return bad(detail.into());
        }
        (Some(url), None) if url.len() > URL_LENGTH_MAX => {
            return bad(format!("`url` has at most {URL_LENGTH_MAX} bytes."));
        }
        (None, Some(sink)) if !is_sink(sink) => {
            return bad(format!(
                "`sink` is the binding of a Cloudflare Queue. Its name begins with {SINK_PREFIX} and has at most 64 \
                 letters, digits and '_'."
            ));
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
    check_handler(push)
}

/// Whether a binding of this name may be a sink.
fn is_sink(name: &str) -> bool {
    name.strip_prefix(SINK_PREFIX).is_some_and(|rest| {
        (1..=64 - SINK_PREFIX.len()).contains(&rest.len())
            && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// Refuses how no handler can be called.
pub fn check_handler(push: &Push) -> Result<(), Problem> {
    let Push { url: _, sink: _, concurrency, per_second, timeout_ms } = push;
    if !(1..=PUSHES_MAX).contains(concurrency) {
        return bad(format!("`concurrency` is 1 to {PUSHES_MAX}."));
    }
    if per_second.is_some_and(|rate| !(1..=PUSHES_PER_SECOND_MAX).contains(&rate)) {
        return bad(format!("`per_second` is 1 to {PUSHES_PER_SECOND_MAX}."));
    }
    if !(PUSH_TIMEOUT_MS_MIN..=PUSH_TIMEOUT_MS_MAX).contains(timeout_ms) {
        return bad(format!("`timeout_ms` is {PUSH_TIMEOUT_MS_MIN} to {PUSH_TIMEOUT_MS_MAX}."));
    }
    Ok(())
}
