//! How events do at a size, on the real workerd: how soon their runs start at several rates, what bounds that, and how long
//! it takes until as many waits have got an event each. Prints a table, and fails if an event has no run or two, or if a wait
//! gets no event.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use stepwell_workerd_tests::engine::{Client, Engine, Form};
use tokio::time::{Duration, Instant, interval, sleep};

/// The rates, and how many events one request has.
const RATES: [(u64, u64); 3] = [(1, 1), (100, 1), (1_000, 100)];

/// How many requests are under way at once when waits are met.
const AT_ONCE: usize = 4;

/// How many events a request has then.
const BATCH: u64 = 100;

/// The sizes of pages.
const PAGE: usize = 100;

/// How long runs may take to complete after their events were sent: so long, and longer for each.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_EACH_MS: u64 = 20;

/// How long the runs of one wave are started: each of them waits for a minute, in which the last ones have to begin, and all
/// events have to come.
const WAVE: Duration = Duration::from_secs(15);

/// When all of a wave have to wait.
const WAVE_MAX: Duration = Duration::from_secs(50);

/// How many runs of a wave may be on their way.
const UNDER_WAY_MAX: u64 = 500;

/// A rate that is missed by more than this has met a limit.
const REACHED: f64 = 0.95;

/// What is measured.
#[derive(Parser)]
struct Arguments {
    /// How long events are sent at each rate.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How many runs wait for an event each.
    #[arg(long, default_value_t = 1_000)]
    waits: u64,
    /// `all-in-one`, `split` or `both`.
    #[arg(long, default_value = "all-in-one")]
    form: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    for &form in Form::named(&arguments.form)? {
        println!("{}: accepted to started, {} s at each rate; meter off", form.name(), arguments.seconds);
        println!("events/s  events  accepted/s  started/s  p50 ms  p99 ms  max ms  behind  limit");
        for (rate, batch) in RATES {
            let engine = Engine::start_with(form, &[]).await?;
            println!("{}", at_rate(&engine, rate, batch, arguments.seconds).await?);
        }
        if arguments.waits > 0 {
            let engine = Engine::start_with(form, &[]).await?;
            println!("{}", waits(&engine.client(), arguments.waits).await?);
        }
    }
    Ok(())
}

/// Sends events at a rate, each of which starts a run, and gives the line of the table.
async fn at_rate(engine: &Engine, rate: u64, batch: u64, seconds: u64) -> Result<String> {
    let client = engine.client();
    let spec = json!({ "on": "tick/*", "workflow": "echo", "tags": ["tick"] });
    put_trigger(&client, "tick", &spec).await?;
    // The first event creates the topic's and the cells' tables, and reads the code.
    send(&client, &[json!({ "name": "tick/first", "data": 0 })]).await?;
    until_completed(&client, "echo", 1, PATIENCE).await?;

    let (requests, total) = (rate * seconds / batch, rate * seconds / batch * batch);
    let (busy, began) = (Busy::of(engine)?, Instant::now());
    let mut ticks = interval(Duration::from_micros(1_000_000 * batch / rate));
    let mut sent = tokio::task::JoinSet::new();
    for request in 0..requests {
        ticks.tick().await;
        let client = client.clone();
        let events: Vec<_> =
            (0..batch).map(|n| json!({ "name": "tick/tock", "data": request * batch + n })).collect();
        sent.spawn(async move { send(&client, &events).await });
    }
    while let Some(one) = sent.join_next().await {
        one??;
    }
    let accepted_in = began.elapsed().max(Duration::from_secs(seconds));
    until_completed(&client, "echo", total + 1, PATIENCE + Duration::from_millis(total * PATIENCE_EACH_MS))
        .await?;
    let busy = Busy::of(engine)?.since(busy);
    let times = times(&client).await?;
    ensure!(times.len() as u64 == total, "{total} events have {} runs", times.len());
    Ok(line(rate, &times, accepted_in, &busy))
}

/// When each event was accepted, and when its run was.
async fn times(client: &Client) -> Result<Vec<(u64, u64)>> {
    let mut runs = BTreeMap::new();
    for run in client.list("tag=tick", PAGE).await? {
        let tags = run["tags"].as_array().map_or(&[][..], Vec::as_slice);
        let event = tags.iter().filter_map(Value::as_str).find(|tag| tag.starts_with("event:"));
        let at = run["created_at"].as_u64().context("a run has a time")?;
        let event = event.with_context(|| format!("{run} names no event"))?.to_owned();
        ensure!(runs.insert(event.clone(), at).is_none(), "{event} has two runs");
    }
    let (mut times, mut before) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/api/events?topic=tick&limit={PAGE}{before}")).await?.json()?;
        for event in page["events"].as_array().context("a page has events")? {
            let tag = event["tag"].as_str().context("an event has a tag")?;
            let started = runs.remove(tag).with_context(|| format!("{tag} has no run"))?;
            if event["name"] != "tick/first" {
                times.push((event["at"].as_u64().context("an event has a time")?, started));
            }
        }
        match page["next"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return Ok(times),
        }
    }
}

fn line(rate: u64, times: &[(u64, u64)], accepted_in: Duration, busy: &Busy) -> String {
    let mut late: Vec<_> =
        times.iter().map(|(accepted, started)| started.saturating_sub(*accepted)).collect();
    late.sort_unstable();
    let first = times.iter().map(|(accepted, _)| *accepted).min().unwrap_or_default();
    let last = times.iter().map(|(accepted, _)| *accepted).max().unwrap_or_default();
    let last_started = times.iter().map(|(_, started)| *started).max().unwrap_or_default();
    let behind = times.iter().filter(|(_, started)| *started > last).count();
    let count = u32::try_from(times.len()).map_or(f64::MAX, f64::from);
    let accepted = count / accepted_in.as_secs_f64();
    // The first one is at the beginning of its interval, and the last one at that of another.
    let each = Duration::from_micros(1_000_000 / rate);
    let started = count / (Duration::from_millis(last_started - first) + each).as_secs_f64();
    let wanted = u32::try_from(rate).map_or(f64::MAX, f64::from) * REACHED;
    let limit = if accepted.min(started) >= wanted { "not reached".into() } else { busy.limit() };
    format!(
        "{rate:>8}  {:>6}  {accepted:>10.1}  {started:>9.1}  {:>6}  {:>6}  {:>6}  {behind:>6}  {limit} ({busy})",
        times.len(),
        percentile(&late, 50),
        percentile(&late, 99),
        percentile(&late, 100)
    )
}

/// The value that so many of a hundred are not above.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len() * percent).div_ceil(100).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied().unwrap_or_default()
}

async fn put_trigger(client: &Client, topic: &str, spec: &Value) -> Result<()> {
    let answer = client.request("PUT", &format!("/api/triggers/{topic}/all"), &spec.to_string()).await?;
    ensure!(answer.status < 300, "{} {}", answer.status, answer.body);
    Ok(())
}

/// Sends events, all of which have to be accepted.
async fn send(client: &Client, events: &[Value]) -> Result<()> {
    let answer = client.post_json("/api/events", &json!({ "events": events })).await?;
    let results = answer["results"].as_array().context("each has a result")?;
    ensure!(results.iter().all(|one| one["status"] == "accepted"), "{answer}");
    Ok(())
}

/// How many runs of a workflow there are, by their status.
async fn statuses(client: &Client, workflow: &str) -> Result<Value> {
    let counts = client.get(&format!("/api/metrics?workflow={workflow}")).await?.json()?;
    Ok(counts["statuses"].clone())
}

async fn until_completed(client: &Client, workflow: &str, count: u64, patience: Duration) -> Result<()> {
    let by = Instant::now() + patience;
    loop {
        let found = statuses(client, workflow).await?;
        let completed = found["completed"].as_u64().unwrap_or_default();
        ensure!(completed <= count, "{completed} runs of {count}");
        if completed == count {
            return Ok(());
        }
        ensure!(found["failed"].is_null(), "runs of {workflow} have failed: {found}");
        ensure!(Instant::now() < by, "{count} runs of {workflow} have not completed: {found}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Lets runs wait for an event each, sends those, and gives how long it took until all had theirs.
async fn waits(client: &Client, count: u64) -> Result<String> {
    let spec = json!({ "on": "begin/*", "workflow": "ship" });
    put_trigger(client, "begin", &spec).await?;
    let (mut met, mut waves, mut most, mut took_ms) = (0, 0, 0, 0);
    while met < count {
        let wave = begin_wave(client, met, count).await?;
        took_ms += meet(client, met, wave).await?;
        (met, waves, most) = (met + wave, waves + 1, most.max(wave));
    }
    Ok(format!(
        "{met} waits met by an event each, up to {most} at once ({waves} waves): {took_ms} ms from the first event of a \
         wave to its last completion, {:.0} a second",
        u32::try_from(met).map(f64::from)? * 1_000.0 / u32::try_from(took_ms).map(f64::from)?
    ))
}

/// Starts runs that wait, as many as can be before the first of them times out, and gives how many wait.
async fn begin_wave(client: &Client, from: u64, to: u64) -> Result<u64> {
    let (began, mut started) = (Instant::now(), from);
    while started < to && began.elapsed() < WAVE {
        let until = (started + BATCH).min(to);
        let events: Vec<_> =
            (started..until).map(|order| json!({ "name": "begin/ship", "data": { "id": order } })).collect();
        send(client, &events).await?;
        started = until;
        until_waiting(client, started.saturating_sub(from + UNDER_WAY_MAX), began).await?;
    }
    until_waiting(client, started - from, began).await?;
    // The topic knows of all of them then.
    loop {
        let outbox = client.get("/api/outbox").await?.json()?;
        if outbox["messages"].as_array().is_none_or(Vec::is_empty) {
            return Ok(started - from);
        }
        ensure!(began.elapsed() < WAVE_MAX, "the topic does not get to know of all waits");
        sleep(Duration::from_millis(100)).await;
    }
}

async fn until_waiting(client: &Client, count: u64, began: Instant) -> Result<()> {
    loop {
        let found = statuses(client, "ship").await?;
        if found["waiting"].as_u64().unwrap_or_default() >= count {
            return Ok(());
        }
        ensure!(began.elapsed() < WAVE_MAX, "{count} runs do not wait in {WAVE_MAX:?}: {found}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sends the events of a wave, and gives how long after the first of them the last run has completed.
async fn meet(client: &Client, from: u64, wave: u64) -> Result<u64> {
    let ends: Vec<_> = (from..from + wave).step_by(usize::try_from(BATCH)?).collect();
    let batches = ends.into_iter().map(|first| {
        let orders = first..(first + BATCH).min(from + wave);
        let events: Vec<_> = orders
            .map(|order| json!({ "name": "order/paid", "id": format!("paid-{order}"), "data": { "id": order } }))
            .collect();
        async move { send(client, &events).await }
    });
    stream::iter(batches).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    until_completed(client, "ship", from + wave, PATIENCE).await?;
    let mut first = u64::MAX;
    for order in (from..from + wave).step_by(usize::try_from(BATCH)?).take(AT_ONCE) {
        let event = client.get(&format!("/api/events/order/paid-{order}")).await?.json()?;
        first = first.min(event["at"].as_u64().context("an event has a time")?);
    }
    let runs = client.list("workflow=ship", PAGE).await?;
    let last = runs.iter().filter_map(|run| run["ended_at"].as_u64()).max().context("runs have ended")?;
    Ok(last - first)
}

/// How the thread of workerd that does the work has spent its time.
#[derive(Clone, Copy, Debug)]
struct Busy {
    at: Instant,
    ran_ns: u64,
    queued_ns: u64,
    wall_ns: u64,
}

impl Busy {
    /// Since the process was started.
    fn of(engine: &Engine) -> Result<Self> {
        let pid = engine.engine.pid().context("workerd runs")?;
        // Time on a core, and time in the queue for one.
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || anyhow::Ok(numbers.next().context("it has three numbers")??);
        Ok(Self { at: Instant::now(), ran_ns: next()?, queued_ns: next()?, wall_ns: 0 })
    }

    /// Since another time.
    fn since(self, before: Self) -> Self {
        let wall_ns = u64::try_from((self.at - before.at).as_nanos()).unwrap_or(u64::MAX);
        let (ran_ns, queued_ns) = (self.ran_ns - before.ran_ns, self.queued_ns - before.queued_ns);
        Self { at: self.at, ran_ns, queued_ns, wall_ns }
    }

    /// So many of a hundred parts of the time: on a core, in the queue for one.
    fn percent(&self) -> (u64, u64) {
        let of = |part: u64| u64::try_from(u128::from(part) * 100 / u128::from(self.wall_ns.max(1)));
        (of(self.ran_ns).unwrap_or_default(), of(self.queued_ns).unwrap_or_default())
    }

    /// What bounds the rate.
    fn limit(&self) -> String {
        match self.percent() {
            (ran, queued) if ran + queued < 80 => "waits: disk or requests".into(),
            (ran, queued) if ran >= queued => "CPU of workerd's thread".into(),
            _ => "the machine's cores: others have them".into(),
        }
    }
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ran, queued) = self.percent();
        write!(f, "workerd on a core {ran} %, in the queue for one {queued} %")
    }
}
