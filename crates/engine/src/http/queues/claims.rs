//! The routes of consumers: they claim jobs, and say what became of them.
//!
//! A claim asks a few partitions at once, beginning with another one each time, and never takes more than fits into one
//! answer: of the partitions that have jobs, the first may give one job of any size, and the others share the rest.

use futures::future::{join_all, select_all};
use serde::{Deserialize, Serialize};
use stepwell_core::{
    ordered::OrdMap,
    queue::{End, Looked, Wanted, is_stale},
};
use stepwell_protocol::{
    Code, Payload,
    queue::{
        Ack, CLAIM_BYTES_MAX, CLAIM_MAX, Claim, DELAY_MS_MAX, Extend, LEASES_MAX, Lease, LeaseResult,
        LeaseStatus, Nack, QueueSettings, REASON_LENGTH_MAX, VISIBILITY_MS_MAX, VISIBILITY_MS_MIN,
        WAIT_MS_MAX, is_nonce,
    },
    text::is_visible,
};

use super::{ask, check_own, check_queue, is_silent, read_answer, with_settings};
use crate::{
    calls::queues::{Request, Waited},
    http::{
        body::{is_empty, read},
        error::Refusal,
        front::Front,
        response::Response,
        starts::nonce,
    },
    object::in_time,
    runtime,
};

/// How many partitions are asked at once.
const FEW: u32 = 4;

/// How often a claim without a nonce of its caller's goes on to the next few.
const ROUNDS_MAX: u32 = 4;

/// How long a claim waits at once: whatever it could not be woken for, it finds when it looks again.
const WAIT_SLICE_MS: u64 = 2_000;

/// How often a claim that waits looks again: each time, it asks up to 36 objects, and the platform lets a request ask about
/// 1,000.
const LOOKS_MAX: u32 = 24;

/// What a claim is about.
struct Claiming<'a> {
    front: &'a Front,
    queue: &'a str,
    nonce: String,
    limit: usize,
    visibility_ms: Option<u64>,
    /// Whether the nonce is the caller's: the same one leads to the same partitions, and to no others.
    is_given: bool,
    /// Where it begins.
    start: u64,
}

/// `POST /api/queues/{queue}/claim`
pub async fn claim(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    check_own(queue)?;
    let wanted: Claim = if is_empty(body) { Claim::default() } else { read(body)? };
    let bad = |detail: String| Err(Refusal::new(Code::InvalidRequest, detail));
    let limit = wanted.limit.unwrap_or(1);
    if !(1..=CLAIM_MAX).contains(&limit) {
        return bad(format!("`limit` is 1 to {CLAIM_MAX}."));
    }
    let wait_ms = wanted.wait_ms.unwrap_or_default();
    if wait_ms > WAIT_MS_MAX {
        return bad(format!("`wait_ms` is at most {WAIT_MS_MAX}."));
    }
    check_visibility(wanted.visibility_ms)?;
    if wanted.nonce.as_ref().is_some_and(|nonce| !is_nonce(nonce)) {
        return bad("`nonce` has 1 to 64 letters, digits, '-' or '_'.".into());
    }
    let is_given = wanted.nonce.is_some();
    let nonce = wanted.nonce.unwrap_or_else(nonce);
    let start = if is_given { stepwell_core::queue::place_of(&nonce) } else { runtime::random() };
    let claiming =
        Claiming { front, queue, nonce, limit, visibility_ms: wanted.visibility_ms, is_given, start };
    let until = runtime::clock().plus_millis(wait_ms);
    let claiming = &claiming;
    for _ in 0..LOOKS_MAX {
        let jobs = with_settings(front, queue, &|settings| Box::pin(claiming.sweep(settings))).await?;
        let left_ms = until.as_millis().saturating_sub(runtime::clock().as_millis());
        if jobs != NONE || left_ms == 0 {
            return Ok(Response::json(200, jobs));
        }
        let slice_ms = left_ms.min(WAIT_SLICE_MS);
        let answer =
            with_settings(front, queue, &|settings| Box::pin(claiming.wait(settings, slice_ms))).await?;
        if read_answer::<Waited>(&answer)?.is_full {
            break;
        }
    }
    Ok(Response::json(200, NONE))
}

/// A claim without jobs.
const NONE: &str = r#"{"jobs":[]}"#;

/// Jobs that were claimed, which are not read.
#[derive(Default, Serialize, Deserialize)]
struct Jobs {
    jobs: Vec<Payload>,
}

/// What became of leases, which is not read.
#[derive(Default, Serialize, Deserialize)]
struct Results {
    results: Vec<Payload>,
}

impl Claiming<'_> {
    /// The partitions that are asked in a round.
    fn few(&self, settings: &QueueSettings, round: u32) -> Vec<u32> {
        let count = settings.partitions.max(1);
        let start = u32::try_from(self.start % u64::from(count)).unwrap_or(0);
        let from = round * FEW;
        (from..(from + FEW).min(count)).map(|step| (start + step) % count).collect()
    }

    fn rounds(&self, settings: &QueueSettings) -> u32 {
        if self.is_given { 1 } else { settings.partitions.div_ceil(FEW).clamp(1, ROUNDS_MAX) }
    }

    async fn sweep(&self, settings: QueueSettings) -> Result<String, Refusal> {
        let rounds = self.rounds(&settings);
        let mut failures = Failures::default();
        for round in 0..rounds {
            let Some(jobs) = failures.keep(self.round(&settings, round).await)? else { continue };
            if !jobs.jobs.is_empty() {
                return Ok(serde_json::to_string(&jobs).expect("jobs hold only what JSON can say"));
            }
        }
        failures.check(rounds as usize)?;
        Ok(NONE.to_owned())
    }

    async fn round(&self, settings: &QueueSettings, round: u32) -> Result<Jobs, Refusal> {
        let few = self.few(settings, round);
        let from = if few.len() > 1 { self.look(settings, few).await? } else { few };
        self.take(settings, &from).await
    }

    /// Those that hold jobs for this claim already or, if there are none, those that have jobs for it.
    async fn look(&self, settings: &QueueSettings, few: Vec<u32>) -> Result<Vec<u32>, Refusal> {
        let looks = few.iter().map(|partition| {
            let request = Request::Look { nonce: self.nonce.clone() };
            let look = ask(self.front, self.queue, *partition, Some(settings), request);
            // One that hangs holds nobody up: nothing was claimed from it yet.
            async { in_time(async { Ok(look.await) }).await.unwrap_or_else(|_| Err(is_silent())) }
        });
        let (mut held, mut ready) = (Vec::new(), Vec::new());
        let mut failures = Failures::default();
        for (partition, looked) in few.iter().zip(join_all(looks).await) {
            let looked = looked.and_then(|text| read_answer::<Looked>(&text));
            let Some(looked) = failures.keep(looked)? else { continue };
            if looked.is_held {
                held.push(*partition);
            } else if looked.is_ready {
                ready.push(*partition);
            }
        }
        failures.check(few.len())?;
        Ok(if held.is_empty() { ready } else { held })
    }

    /// Claims from these partitions, each its share.
    async fn take(&self, settings: &QueueSettings, from: &[u32]) -> Result<Jobs, Refusal> {
        let count = from.len().min(self.limit);
        let claims = from.iter().take(count).enumerate().map(|(index, partition)| {
            let (at_least_one, bytes) = match index {
                0 if count == 1 => (true, CLAIM_BYTES_MAX),
                // No body is larger than this, though it may be as JSON.
                0 => (true, CLAIM_BYTES_MAX / 2),
                _ => (false, CLAIM_BYTES_MAX / 2 / (count - 1)),
            };
            let limit = self.limit / count + usize::from(index < self.limit % count);
            let (nonce, visibility_ms) = (self.nonce.clone(), self.visibility_ms);
            let request = Request::Claim(Wanted { nonce, limit, bytes, at_least_one, visibility_ms });
            ask(self.front, self.queue, *partition, Some(settings), request)
        });
        let mut jobs = Jobs::default();
        let mut failed = None;
        for answer in join_all(claims).await {
            match answer.and_then(|text| read_answer::<Jobs>(&text)) {
                Ok(list) => jobs.jobs.extend(list.jobs),
                Err(refusal) => failed = Some(refusal),
            }
        }
        // What one partition has given is held: it must not be lost with another's failure.
        match failed {
            Some(refusal) if jobs.jobs.is_empty() => Err(refusal),
            Some(_) | None => Ok(jobs),
        }
    }

    /// Waits until one of the first few may have a job. Those that let no more wait, or do not answer, are left out for as
    /// long as another one waits.
    async fn wait(&self, settings: QueueSettings, ms: u64) -> Result<String, Refusal> {
        let waits = self.few(&settings, 0).into_iter().map(|partition| {
            let request = Request::Wait { nonce: self.nonce.clone(), ms };
            Box::pin(ask(self.front, self.queue, partition, Some(&settings), request))
        });
        let mut waits: Vec<_> = waits.collect();
        let count = waits.len();
        let mut failures = Failures::default();
        let (mut full, mut waited) = (None, None);
        while !waits.is_empty() {
            let (answer, _, others) = select_all(waits).await;
            waits = others;
            let answer = answer.and_then(|text| Ok((read_answer::<Waited>(&text)?, text)));
            let Some((said, text)) = failures.keep(answer)? else { continue };
            if said.is_full {
                full = Some(text);
            } else {
                waited = Some(text);
            }
            if said.is_ready {
                break;
            }
        }
        failures.check(count)?;
        Ok(waited.or(full).unwrap_or_default())
    }
}

/// Partitions, or rounds of them, that did not answer. A claim goes on without them, unless they are all that it has asked.
#[derive(Default)]
struct Failures {
    count: usize,
    last: Option<Refusal>,
}

impl Failures {
    /// What was answered. An answer that the settings do not hold any more ends the claim's round: others have to be asked
    /// for.
    fn keep<T>(&mut self, answer: Result<T, Refusal>) -> Result<Option<T>, Refusal> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(refusal) if is_stale(refusal.0.status) => Err(refusal),
            Err(refusal) => {
                self.count += 1;
                self.last = Some(refusal);
                Ok(None)
            }
        }
    }

    fn check(self, asked: usize) -> Result<(), Refusal> {
        match self.last {
            Some(refusal) if self.count == asked => Err(refusal),
            Some(_) | None => Ok(()),
        }
    }
}

/// `POST /api/queues/{queue}/ack`
pub async fn ack(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    let Ack { leases } = read(body)?;
    end(front, queue, leases, End::Ack).await
}

/// `POST /api/queues/{queue}/nack`
pub async fn nack(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    let Nack { leases, delay_ms, reason, dead } = read(body)?;
    if delay_ms.is_some_and(|ms| ms > DELAY_MS_MAX) {
        let detail = format!("`delay_ms` is at most {DELAY_MS_MAX}, which is a year.");
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    if reason.as_ref().is_some_and(|reason| reason.len() > REASON_LENGTH_MAX || !is_visible(reason)) {
        let detail = format!(
            "`reason` has at most {REASON_LENGTH_MAX} bytes, without control or invisible characters."
        );
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    end(front, queue, leases, End::Nack { delay_ms, reason, dead }).await
}

/// `POST /api/queues/{queue}/extend`
pub async fn extend(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    let Extend { leases, visibility_ms } = read(body)?;
    check_visibility(visibility_ms)?;
    end(front, queue, leases, End::Extend { visibility_ms }).await
}

fn check_visibility(ms: Option<u64>) -> Result<(), Refusal> {
    if ms.is_none_or(|ms| (VISIBILITY_MS_MIN..=VISIBILITY_MS_MAX).contains(&ms)) {
        return Ok(());
    }
    let detail = format!("`visibility_ms` is {VISIBILITY_MS_MIN} to {VISIBILITY_MS_MAX}.");
    Err(Refusal::new(Code::InvalidRequest, detail))
}

/// Ends leases: each partition is asked once, about all of its own.
async fn end(front: &Front, queue: &str, leases: Vec<Lease>, end: End) -> Result<Response, Refusal> {
    check_queue(queue)?;
    if !(1..=LEASES_MAX).contains(&leases.len()) {
        let detail = format!("`leases` has {} leases. Send 1 to {LEASES_MAX} at once.", leases.len());
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let (leases, end) = (&leases, &end);
    let ended = with_settings(front, queue, &|settings| {
        Box::pin(async move { end_all(front, queue, &settings, leases, end).await })
    })
    .await?;
    Ok(Response::json(200, ended))
}

async fn end_all(
    front: &Front,
    queue: &str,
    settings: &QueueSettings,
    leases: &[Lease],
    end: &End,
) -> Result<String, Refusal> {
    let result = |lease: &Lease, status| {
        Payload::encode(&LeaseResult { id: lease.job.clone(), status, until: None }).unwrap_or_default()
    };
    let mut results: Vec<_> = leases.iter().map(|lease| result(lease, LeaseStatus::Lost)).collect();
    let mut parts: OrdMap<u32, Vec<usize>> = OrdMap::new();
    for (index, lease) in leases.iter().enumerate() {
        // One of a queue that was deleted is lost.
        if lease.job.partition < settings.partitions && lease.job.made == settings.made_at {
            parts.get_or_default(lease.job.partition).push(index);
        }
    }
    let calls = parts.iter().map(|(partition, indexes)| {
        let leases = indexes.iter().filter_map(|index| leases.get(*index).cloned()).collect();
        let request = Request::End { leases, end: end.clone() };
        ask(front, queue, *partition, Some(settings), request)
    });
    let answers = join_all(calls).await;
    let count = answers.len();
    for (indexes, answer) in parts.values().zip(answers) {
        let ended = match answer.and_then(|text| read_answer::<Results>(&text)) {
            Ok(list) => list.results,
            Err(refusal) if count == 1 => return Err(refusal),
            Err(_) => {
                let failed = indexes.iter().filter_map(|index| leases.get(*index));
                failed.map(|lease| result(lease, LeaseStatus::Failed)).collect()
            }
        };
        for (index, ended) in indexes.iter().zip(ended) {
            if let Some(result) = results.get_mut(*index) {
                *result = ended;
            }
        }
    }
    Ok(serde_json::to_string(&Results { results }).expect("results hold only what JSON can say"))
}
