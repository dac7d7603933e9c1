//! The workflows of the simulated app, in three builds.
//!
//! The second build does the same things in the same order as the first and takes other times for it. The
//! third calls a step of `looping` and `sequential` by another name: a run that crosses to it must stop and
//! say so, unless it has not got that far.

use std::pin::pin;

use futures::{
    StreamExt,
    future::{Either, join, join3, select},
    stream::FuturesUnordered,
};
use stepwell::prelude::*;

use crate::outside::{Deed, Work, work};

/// What every workflow is started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Which start this is: tells two runs apart.
    pub tag: String,
    /// How many of whatever the workflow does.
    pub n: u32,
    /// How long things take.
    pub ms: u64,
    /// How many attempts fail.
    pub fails: u32,
    /// What earlier lives of the run have taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<u64>,
}

/// How many builds of the app there are.
pub const BUILDS: usize = 3;

/// The names of all workflows that clients start.
pub const NAMES: [&str; 16] = [
    "sequential",
    "retries",
    "sleeps",
    "approval",
    "patience",
    "looping",
    "joined",
    "race_sleep",
    "race_signal",
    "crowd",
    "collect",
    "doomed",
    "three_ways",
    "stuck",
    "poison",
    "thrower",
];

/// Workflows that use what the others do not: steps that run at most once, time-outs of steps, patches, steps that fail
/// side by side.
pub const SPECIAL: [&str; 4] = ["payment", "impatient", "upgraded", "ruined"];

/// The workflow that continues as new.
pub const LIVES: &str = "lives";

/// One build of the app.
pub fn build(number: usize) -> App {
    let app = App::new()
        .workflow(retries)
        .workflow(sleeps)
        .workflow(approval)
        .workflow(patience)
        .workflow(joined)
        .workflow(race_sleep)
        .workflow(race_signal)
        .workflow(crowd)
        .workflow(collect)
        .workflow(doomed)
        .workflow(three_ways)
        .workflow(stuck)
        .workflow(poison)
        .workflow(thrower)
        .workflow(payment)
        .workflow(impatient)
        .workflow(ruined)
        .workflow(lives);
    match number {
        0 => app.workflow(sequential).workflow(looping).workflow(upgraded),
        1 => app.workflow(sequential_2).workflow(looping_2).workflow(upgraded_2),
        _ => app.workflow(sequential_3).workflow(looping_3).workflow(upgraded_2),
    }
}

/// Whether a build has the patch of `upgraded`. One that has not cannot go on with a run that has applied it.
pub fn has_patch(build: usize) -> bool {
    build > 0
}

/// Whether a run of this workflow may find that its journal is another build's.
pub fn may_diverge(workflow: &str) -> bool {
    matches!(workflow, "sequential" | "looping")
}

fn takes(ms: u64) -> Work {
    Work { ms, ..Work::default() }
}

fn quick(attempts: u32) -> Retry {
    Retry { attempts, initial_ms: 40, factor: 2.0, max_ms: 1_000, jitter: 0.5 }
}

async fn one(ctx: &Ctx, name: &str, work_to_do: Work) -> Result<u64> {
    let step = ctx.step_with(name, async move |info| work(info, work_to_do).await);
    step.retry(quick(work_to_do.limit)).await
}

#[workflow]
async fn sequential(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    steps(&ctx, &job, "work", 1).await
}

#[workflow(name = "sequential")]
async fn sequential_2(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    steps(&ctx, &job, "work", 3).await
}

#[workflow(name = "sequential")]
async fn sequential_3(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    steps(&ctx, &job, "labour", 1).await
}

async fn steps(ctx: &Ctx, job: &Job, name: &str, slower: u64) -> Result<Vec<u64>> {
    let mut values = Vec::new();
    for _ in 0..job.n {
        values.push(one(ctx, name, takes(job.ms * slower)).await?);
        // What was foreseen must be what is on record.
        values.push(ctx.now().as_millis());
    }
    Ok(values)
}

#[workflow]
async fn looping(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    rounds(&ctx, &job, "round").await
}

#[workflow(name = "looping")]
async fn looping_2(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    rounds(&ctx, &Job { ms: job.ms + 7, ..job }, "round").await
}

#[workflow(name = "looping")]
async fn looping_3(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    rounds(&ctx, &job, "lap").await
}

async fn rounds(ctx: &Ctx, job: &Job, name: &str) -> Result<Vec<u64>> {
    let mut values = Vec::new();
    for _ in 0..job.n {
        values.push(one(ctx, name, takes(job.ms)).await?);
        ctx.sleep("sleep", Duration::from_millis(job.ms * 3)).await;
    }
    Ok(values)
}

#[workflow]
async fn retries(ctx: Ctx, job: Job) -> Result<String> {
    let mut texts = Vec::new();
    for name in ["first", "second"] {
        let todo = Work { ms: job.ms, fails: job.fails, limit: 4, ..Work::default() };
        match one(&ctx, name, todo).await {
            Ok(value) => texts.push(value.to_string()),
            Err(error) => texts.push(error.to_string()),
        }
    }
    Ok(texts.join(";"))
}

#[workflow]
async fn sleeps(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    let before = one(&ctx, "before", takes(job.ms)).await?;
    ctx.sleep("sleep", Duration::from_millis(job.ms * 20)).await;
    let between = one(&ctx, "between", takes(job.ms)).await?;
    ctx.sleep("sleep", Duration::from_millis(job.ms)).await;
    ctx.sleep("sleep", Duration::ZERO).await;
    Ok(vec![before, between, ctx.random() >> 11])
}

#[workflow]
async fn approval(ctx: Ctx, job: Job) -> Result<(u64, u64)> {
    let asked = one(&ctx, "ask", takes(job.ms)).await?;
    let answer: u64 = ctx.wait("go").await?;
    one(&ctx, "act", takes(job.ms)).await?;
    Ok((asked, answer))
}

#[workflow]
async fn patience(ctx: Ctx, job: Job) -> Result<Option<u64>> {
    let answer = ctx.wait::<u64>("go").timeout(Duration::from_millis(job.ms * 15)).await.ok();
    one(&ctx, "after", takes(job.ms)).await?;
    Ok(answer)
}

#[workflow]
async fn joined(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    let flaky = Work { ms: job.ms * 2, fails: job.fails.min(2), limit: 5, ..Work::default() };
    let (a, b, c) = join3(
        one(&ctx, "left", takes(job.ms)),
        one(&ctx, "middle", flaky),
        one(&ctx, "right", takes(job.ms * 3)),
    )
    .await;
    Ok(vec![a?, b?, c?, one(&ctx, "end", takes(1)).await?])
}

#[workflow]
async fn race_sleep(ctx: Ctx, job: Job) -> Result<String> {
    let mut won = Vec::new();
    for round in 0..job.n.min(3) {
        let ms = if round % 2 == 0 { job.ms * 4 } else { job.ms / 2 };
        let step = pin!(one(&ctx, "racer", takes(ms)));
        match select(step, ctx.sleep("sleep", Duration::from_millis(job.ms * 2))).await {
            Either::Left((value, _)) => won.push(format!("step {}", value?)),
            Either::Right(((), _)) => won.push("sleep".to_owned()),
        }
    }
    Ok(won.join(";"))
}

#[workflow]
async fn race_signal(ctx: Ctx, job: Job) -> Result<String> {
    let step = pin!(one(&ctx, "long", takes(job.ms * 30)));
    match select(step, ctx.wait::<u64>("go")).await {
        Either::Left((value, _)) => Ok(format!("step {}", value?)),
        Either::Right((answer, _)) => Ok(format!("signal {}", answer?)),
    }
}

#[workflow]
async fn crowd(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    let mut crowd = FuturesUnordered::new();
    for i in 0..job.n {
        let todo = Work { ms: 1 + (job.ms * u64::from(i * 7 % 5)), ..Work::default() };
        let ctx = ctx.clone();
        crowd.push(async move { one(&ctx, "member", todo).await });
    }
    let mut order = Vec::new();
    while let Some(value) = crowd.next().await {
        order.push(value?);
    }
    Ok(order)
}

#[workflow]
async fn collect(ctx: Ctx, job: Job) -> Result<Vec<u64>> {
    let mut items = Vec::new();
    for _ in 0..job.n.min(3) {
        one(&ctx, "prepare", takes(job.ms)).await?;
        items.push(ctx.wait::<u64>("item").timeout(Duration::from_millis(job.ms * 40)).await.unwrap_or(0));
    }
    Ok(items)
}

#[workflow]
async fn doomed(ctx: Ctx, job: Job) -> Result<u64> {
    one(&ctx, "fine", takes(job.ms)).await?;
    one(&ctx, "doom", Work { ms: job.ms, is_terminal: true, ..Work::default() }).await
}

#[workflow]
async fn three_ways(ctx: Ctx, job: Job) -> Result<String> {
    let step = pin!(one(&ctx, "way", takes(job.ms * 10)));
    let sleep = ctx.sleep("sleep", Duration::from_millis(job.ms * 10));
    let either = match select(step, select(sleep, ctx.wait::<u64>("go"))).await {
        Either::Left((value, _)) => format!("step {}", value?),
        Either::Right((Either::Left(_), _)) => "sleep".to_owned(),
        Either::Right((Either::Right((answer, _)), _)) => format!("signal {}", answer?),
    };
    one(&ctx, "end", takes(1)).await?;
    Ok(either)
}

/// A step that never ends, beside a wait that does: its program has to listen.
#[workflow]
async fn stuck(ctx: Ctx, job: Job) -> Result<Option<u64>> {
    let step = pin!(one(&ctx, "stuck", Work { hangs: true, ..Work::default() }));
    let wait = ctx.wait::<u64>("go").timeout(Duration::from_millis(job.ms * 60));
    match select(step, wait).await {
        Either::Left((value, _)) => Ok(Some(value?)),
        Either::Right((answer, _)) => Ok(answer.ok()),
    }
}

/// Kills its cell, as long as there are faults.
#[workflow]
async fn poison(ctx: Ctx, job: Job) -> Result<u64> {
    one(&ctx, "calm", takes(job.ms)).await?;
    one(&ctx, "poison", Work { ms: 50, deed: Deed::Poison, ..Work::default() }).await
}

/// Throws, as long as there are faults.
#[workflow]
async fn thrower(ctx: Ctx, job: Job) -> Result<u64> {
    one(&ctx, "calm", takes(job.ms)).await?;
    one(&ctx, "throw", Work { ms: 50, deed: Deed::Throws, ..Work::default() }).await
}

/// Steps that must not run twice, whatever happens: one that was cut short says so.
#[workflow]
async fn payment(ctx: Ctx, job: Job) -> Result<String> {
    let mut texts = Vec::new();
    for _ in 0..job.n.min(3) {
        let todo = Work { ms: job.ms, limit: 1, is_once: true, ..Work::default() };
        let step = ctx.step_with("pay", async move |info| work(info, todo).await).at_most_once();
        texts.push(step.await.map_or_else(|error| error.to_string(), |value| value.to_string()));
    }
    Ok(texts.join(";"))
}

/// A step whose first attempts never end: only its time-out gets it any further.
#[workflow]
async fn impatient(ctx: Ctx, job: Job) -> Result<String> {
    let todo = Work { ms: job.ms, hangs_first: job.fails.min(3), limit: 3, ..Work::default() };
    let step = ctx.step_with("slow", async move |info| work(info, todo).await).retry(quick(3));
    let slow = step.timeout(Duration::from_millis(job.ms * 2)).await;
    let end = one(&ctx, "end", takes(1)).await?;
    Ok(format!("{} {end}", slow.map_or_else(|error| error.to_string(), |value| value.to_string())))
}

/// Sleeps beside a wait, so that a signal wakes it while the sleep goes on.
#[workflow]
async fn upgraded(ctx: Ctx, job: Job) -> Result<String> {
    let way = pin!(old_way(&ctx, &job));
    both(&ctx, &job, way).await
}

/// Does not sleep any more. A run that has come past here before sleeps all the same.
#[workflow(name = "upgraded")]
async fn upgraded_2(ctx: Ctx, job: Job) -> Result<String> {
    let way = pin!(async {
        if ctx.patched("no sleep") {
            one(&ctx, "new", takes(job.ms)).await
        } else {
            old_way(&ctx, &job).await
        }
    });
    both(&ctx, &job, way).await
}

async fn old_way(ctx: &Ctx, job: &Job) -> Result<u64> {
    ctx.sleep("sleep", Duration::from_millis(job.ms * 20)).await;
    one(ctx, "old", takes(job.ms)).await
}

async fn both(ctx: &Ctx, job: &Job, way: impl Future<Output = Result<u64>>) -> Result<String> {
    let wait = ctx.wait::<u64>("go").timeout(Duration::from_millis(job.ms * 60));
    let (answer, value) = join(wait, way).await;
    Ok(format!("{:?} {}", answer.ok(), value?))
}

/// Continues as new, again and again. Every second life takes a signal, if one is there or comes: the others are kept,
/// beside steps and timers that are not.
#[workflow]
async fn lives(ctx: Ctx, mut job: Job) -> Result<Vec<u64>> {
    one(&ctx, "live", Work { ms: job.ms, fails: job.fails.min(1), ..Work::default() }).await?;
    if job.n.is_multiple_of(2) {
        let wait = ctx.wait::<u64>("item").timeout(Duration::from_millis(job.ms * 4));
        job.taken.extend(wait.await.ok());
    }
    if job.n == 0 {
        return Ok(job.taken);
    }
    job.n -= 1;
    ctx.continue_as_new(&job).await
}

/// Two steps fail side by side, and one between them does not.
#[workflow]
async fn ruined(ctx: Ctx, job: Job) -> Result<u64> {
    one(&ctx, "fine", takes(job.ms)).await?;
    let doom = |ms| Work { ms, is_terminal: true, ..Work::default() };
    let (left, middle, right) = join3(
        one(&ctx, "left", doom(job.ms)),
        one(&ctx, "middle", takes(job.ms * 2)),
        one(&ctx, "right", doom(job.ms * 3)),
    )
    .await;
    Ok(left? + middle? + right?)
}
