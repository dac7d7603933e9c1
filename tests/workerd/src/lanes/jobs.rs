//! Jobs beside the runs: some are claimed by consumers, some are pushed to an endpoint, while workerd is killed.
//!
//! Everything is counted outside: which job began when, how many of a group and of a queue were at work at once, and how
//! often each was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    endpoint::{Endpoint, Reply},
    engine::Client,
};

/// The queue that consumers claim from, and the one that is pushed.
const QUEUES: [&str; 2] = ["pulled", "pushed"];

/// How many consumers claim.
const CONSUMERS: u32 = 4;

/// How many jobs are pushed at once.
pub const PUSHES: u32 = 6;

/// How many groups each queue has; a third of its jobs is in one.
const GROUPS: u32 = 20;

/// How many jobs are sent at once.
const BATCH: u32 = 20;

/// After how many attempts a job is dead: more than kills can take from one that is well.
const ATTEMPTS: u32 = 12;

/// How long a consumer has.
const VISIBILITY: Duration = Duration::from_secs(3);

/// How long a job is at work.
const WORK: Duration = Duration::from_millis(4);

/// How much longer all of them may take for each job.
const EACH: Duration = Duration::from_millis(100);

/// What a job is like, by its number.
fn how(number: u32) -> &'static str {
    match number % 50 {
        7 | 8 => "poison",
        1 | 12 | 21 | 32 => "flaky",
        _ => "well",
    }
}

fn group(number: u32) -> Option<u32> {
    number.is_multiple_of(3).then_some(number / 3 % GROUPS)
}

/// What was seen of one queue.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Which jobs have begun, in order.
    begun: Vec<u32>,
    /// How often each was done.
    done: BTreeMap<u32, u32>,
    /// The groups that are at work, by how many jobs.
    at_work: BTreeMap<u32, u32>,
    /// What must not have happened.
    wrong: Option<String>,
}

impl Seen {
    fn begins(&mut self, number: u32) {
        self.begun.push(number);
        if let Some(group) = group(number) {
            let at_work = self.at_work.entry(group).or_default();
            *at_work += 1;
            if *at_work > 1 {
                self.wrong.get_or_insert(format!("{at_work} jobs of group {group} were at work at once"));
            }
        }
    }

    fn ends(&mut self, number: u32, is_done: bool) {
        if let Some(at_work) = group(number).and_then(|group| self.at_work.get_mut(&group)) {
            *at_work -= 1;
        }
        if is_done {
            *self.done.entry(number).or_default() += 1;
        }
    }
}

type Shared = Arc<Mutex<Seen>>;

fn with<T>(seen: &Shared, act: impl FnOnce(&mut Seen) -> T) -> T {
    act(&mut seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A job at work; over when dropped, also if its connection breaks.
struct AtWork {
    seen: Shared,
    number: u32,
    is_done: bool,
}

impl AtWork {
    fn begin(seen: &Shared, number: u32, is_done: bool) -> Self {
        with(seen, |seen| seen.begins(number));
        Self { seen: Arc::clone(seen), number, is_done }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        with(&self.seen, |seen| seen.ends(self.number, self.is_done));
    }
}

/// What came out of it.
#[derive(Debug)]
pub struct Report {
    jobs: u32,
    dead: u64,
    most: usize,
    /// How often jobs were done beyond once, by queue.
    doubled: [u32; 2],
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, dead, most, doubled } = self;
        write!(
            f,
            "{jobs} jobs, half of them claimed by {CONSUMERS} consumers and half pushed: none lost, {dead} poison ones in \
             dead letters, at most {most} pushed at once (limit {PUSHES}), the order held in each of {} groups; done more \
             than once, as at-least-once allows: {} claimed, {} pushed",
            2 * GROUPS,
            doubled[0],
            doubled[1]
        )
    }
}

/// Jobs on their way.
pub struct Jobs {
    client: Client,
    count: u32,
    seen: [Shared; 2],
    endpoint: Endpoint,
    senders: JoinSet<Result<()>>,
    consumers: JoinSet<()>,
    is_over: Arc<AtomicBool>,
}

impl Jobs {
    /// Makes the queues, and begins to send jobs over a time and to consume them.
    pub async fn start(
        client: &Client,
        count: u32,
        span: Duration,
        patience: Duration,
        chance: u64,
    ) -> Result<Self> {
        let seen: [Shared; 2] = Default::default();
        let pushed = Arc::clone(&seen[1]);
        let endpoint = Endpoint::start_watched(move |call, _| {
            let number = call.text().trim_matches('"').parse().unwrap_or(0);
            let is_first = call.header("stepwell-attempt") == "1";
            let reply = match how(number) {
                "poison" => Reply::new("422 No\r\nstepwell-reject: poison"),
                "flaky" if is_first => Reply::new("409 Not Yet\r\nretry-after: 1"),
                _ => Reply::new("200 OK"),
            };
            let at_work = AtWork::begin(&pushed, number, reply.head.starts_with("200"));
            (Reply { after: WORK, ..reply }, Box::new(at_work))
        })
        .await?;
        let push = json!({ "url": endpoint.url("/"), "concurrency": PUSHES, "timeout_ms": 5_000 });
        let visibility_ms = u64::try_from(VISIBILITY.as_millis())?;
        let pulled = json!({ "partitions": 4, "max_attempts": ATTEMPTS, "visibility_ms": visibility_ms });
        let pushed = json!({ "partitions": 2, "max_attempts": ATTEMPTS, "push": push });
        for (queue, patch) in QUEUES.into_iter().zip([pulled, pushed]) {
            let answer = client.request("PATCH", &format!("/api/queues/{queue}"), &patch.to_string()).await?;
            ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        }
        let (mut senders, mut consumers) = (JoinSet::new(), JoinSet::new());
        for (index, queue) in QUEUES.into_iter().enumerate() {
            let numbers: Vec<_> = (0..count).filter(|number| *number as usize % 2 == index).collect();
            senders.spawn(send(client.clone(), queue, numbers, span, patience));
        }
        let is_over = Arc::new(AtomicBool::new(false));
        for consumer in 0..CONSUMERS {
            let random = StdRng::seed_from_u64(chance ^ u64::from(consumer) << 8);
            consumers.spawn(consume(client.clone(), Arc::clone(&seen[0]), Arc::clone(&is_over), random));
        }
        Ok(Self { client: client.clone(), count, seen, endpoint, senders, consumers, is_over })
    }

    /// Nothing is killed any more: waits until all is done, and judges.
    pub async fn verdict(mut self, within: Duration) -> Result<Report> {
        while let Some(sent) = self.senders.join_next().await {
            sent??;
        }
        let mut dead = 0;
        let within = within + EACH * self.count;
        for queue in QUEUES {
            dead += at_rest(&self.client, queue, within).await?;
        }
        self.is_over.store(true, Ordering::Relaxed);
        while self.consumers.join_next().await.is_some() {}
        let poison = (0..self.count).filter(|number| how(*number) == "poison").count() as u64;
        ensure!(dead == poison, "{dead} dead letters, and {poison} jobs are poison");
        let mut doubled = [0; 2];
        for (index, seen) in self.seen.iter().enumerate() {
            let seen = with(seen, |seen| seen.clone());
            doubled[index] = self.judge(index, &seen).context(QUEUES[index])?;
        }
        let most = self.endpoint.most();
        ensure!(most <= PUSHES as usize, "{most} jobs were pushed at once, and {PUSHES} is the limit");
        Ok(Report { jobs: self.count, dead, most, doubled })
    }

    /// Says how often jobs were done beyond once.
    fn judge(&self, index: usize, seen: &Seen) -> Result<u32> {
        if let Some(wrong) = &seen.wrong {
            anyhow::bail!("{wrong}");
        }
        let wanted =
            (0..self.count).filter(|number| *number as usize % 2 == index && how(*number) != "poison");
        let wanted: BTreeSet<_> = wanted.collect();
        let done: BTreeSet<_> = seen.done.keys().copied().collect();
        let lost: Vec<_> = wanted.difference(&done).collect();
        ensure!(lost.is_empty(), "lost: {lost:?}");
        ensure!(wanted.is_superset(&done), "done, though they are poison: {done:?}");
        // A job that comes again does so before the next one of its group begins.
        let mut latest: BTreeMap<u32, u32> = BTreeMap::new();
        for number in &seen.begun {
            if let Some(group) = group(*number) {
                let before = latest.insert(group, *number);
                ensure!(
                    before.is_none_or(|before| before <= *number),
                    "{number} of group {group} after {before:?}"
                );
            }
        }
        Ok(seen.done.values().map(|times| times - 1).sum())
    }
}

/// Sends jobs in batches, each again and again until it is accepted, in order.
async fn send(
    client: Client,
    queue: &str,
    numbers: Vec<u32>,
    span: Duration,
    patience: Duration,
) -> Result<()> {
    let batches: Vec<_> = numbers.chunks(BATCH as usize).collect();
    let pause = span / u32::try_from(batches.len().max(1))?;
    let began = Instant::now();
    for (index, batch) in batches.into_iter().enumerate() {
        let jobs = batch.iter().map(|number| match group(*number) {
            Some(group) => json!({ "body": number.to_string(), "group": format!("g{group}") }),
            None => json!({ "body": number.to_string() }),
        });
        let body = json!({ "jobs": jobs.collect::<Vec<_>>() }).to_string();
        let path = format!("/api/queues/{queue}/jobs");
        let key = format!("{queue}-{index}");
        let bearer = format!("Bearer {}", client.key());
        let headers = [("idempotency-key", key.as_str()), ("authorization", bearer.as_str())];
        loop {
            let answer = client.request_with(reqwest::Method::POST, &path, &headers, &body).await;
            if let Ok(answer) = &answer
                && is_taken(&answer.json().unwrap_or_default(), batch.len())
            {
                break;
            }
            ensure!(began.elapsed() < span + patience, "a batch was not accepted: {:?}", answer.ok());
            sleep(Duration::from_millis(100)).await;
        }
        let next = pause * u32::try_from(index + 1)?;
        sleep(next.saturating_sub(began.elapsed())).await;
    }
    Ok(())
}

/// Whether all jobs of a batch are stored.
fn is_taken(answer: &Value, count: usize) -> bool {
    let results = answer["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    results.len() == count && results.iter().all(|sent| sent["id"].is_string())
}

/// Claims, works, and says what became of it, until all is over.
async fn consume(client: Client, seen: Shared, is_over: Arc<AtomicBool>, mut random: StdRng) {
    let queue = QUEUES[0];
    let (claim, ack, nack) = (
        format!("/api/queues/{queue}/claim"),
        format!("/api/queues/{queue}/ack"),
        format!("/api/queues/{queue}/nack"),
    );
    while !is_over.load(Ordering::Relaxed) {
        let nonce = format!("{:032x}", random.random::<u128>());
        let body = json!({ "limit": 10, "wait_ms": 1_000, "nonce": nonce }).to_string();
        // A claim whose answer is lost is repeated, and gets the same jobs.
        let mut claimed = None;
        for _ in 0..3 {
            match client.send_post(&claim, &body).await.ok().filter(|answer| answer.status == 200) {
                Some(answer) => claimed = answer.json().ok(),
                None => sleep(Duration::from_millis(100)).await,
            }
            if claimed.is_some() {
                break;
            }
        }
        let since = Instant::now();
        for job in claimed.unwrap_or_default()["jobs"].as_array().into_iter().flatten() {
            // Whoever is late stops: another one may have the job by then.
            if since.elapsed() > VISIBILITY / 2 || random.random_bool(0.01) {
                break;
            }
            let number = job["body"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
            let fails = how(number) == "poison" || how(number) == "flaky" && job["attempt"] == 1;
            let at_work = AtWork::begin(&seen, number, !fails);
            sleep(WORK).await;
            drop(at_work);
            let (path, body) = if fails {
                (&nack, json!({ "leases": [job["lease"]], "delay_ms": 100, "reason": "not yet" }))
            } else {
                (&ack, json!({ "leases": [job["lease"]] }))
            };
            let body = body.to_string();
            for _ in 0..20 {
                if client.send_post(path, &body).await.is_ok_and(|answer| answer.status == 200) {
                    break;
                }
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits until a queue has nothing to do: how many dead letters it has.
async fn at_rest(client: &Client, queue: &str, within: Duration) -> Result<u64> {
    let began = Instant::now();
    loop {
        let shown = client.get(&format!("/api/queues/{queue}")).await.and_then(|answer| answer.json());
        let counts = shown.map(|mut shown| shown["counts"].take()).unwrap_or_default();
        if counts["depth"] == 0 && counts["in_flight"] == 0 {
            return counts["dead"].as_u64().context("dead letters are counted");
        }
        ensure!(began.elapsed() < within, "jobs of {queue} do not end: {counts}");
        sleep(Duration::from_millis(200)).await;
    }
}
