//! Workflows whose steps write to a ledger outside, so that the tests can tell what has really run.

mod approvals;
mod events;
mod family;
mod hang;
mod jobs;
mod joins;
mod lanes;
mod ledger;
mod lives;
mod plain;
mod queued;
mod reach;
mod streams;
mod terms;
mod traced;
mod trouble;

use futures::{future, stream::FuturesUnordered, stream::StreamExt as _};
use stepwell::prelude::*;
#[cfg(feature = "engine")]
use stepwell_engine as _;

use ledger::Ledger;
use trouble::{clumsy, phone, steady};

/// What `mixed` is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The ledger's address.
    pub ledger: String,
    /// How often the step `flaky` fails before it succeeds.
    pub failures: u32,
    /// How long it sleeps.
    pub sleep_ms: u64,
    /// Whether it waits for the signal `go`.
    pub waits: bool,
    /// How many steps it has in its loop.
    pub items: u32,
}

/// Everything there is: steps, sleeps, retries, a signal, a loop, parallel steps, a race, a step that must not
/// run twice, a patch, progress.
#[workflow(timeout = "10m")]
async fn mixed(ctx: Ctx, plan: Plan) -> Result<Vec<u64>> {
    everything(ctx, plan).await
}

async fn everything(ctx: Ctx, plan: Plan) -> Result<Vec<u64>> {
    let ledger = Ledger::new(&ctx, &plan.ledger);
    ctx.set_attribute("items", plan.items);
    let mut results = vec![ctx.step_with("first", async |info| ledger.write("first", &info).await).await?];

    ctx.sleep("sleep", Duration::from_millis(plan.sleep_ms)).await;
    ctx.sleep_until("sleep", stepwell::Timestamp::from_millis(ctx.now().as_millis() + 5)).await;
    ctx.progress(20.0, "slept");

    // Cut short by a kill, it is not run again, and the run goes on without it.
    let once = ctx.step_with("once", async |info| ledger.write("once", &info).await).at_most_once();
    results.extend(once.or_none().await);

    let policy = Retry { attempts: plan.failures + 1, initial_ms: 20, factor: 1.5, max_ms: 200, jitter: 0.5 };
    let flaky = async |info: stepwell::StepInfo| {
        // Written down before it fails: a failed attempt is one that has run.
        let nonce = ledger.write("flaky", &info).await?;
        if info.attempt <= plan.failures { Err(Error::msg("not yet")) } else { Ok(nonce) }
    };
    let flaky = ctx.step_with("flaky", flaky).retry(policy).timeout(Duration::from_secs(60));
    results.push(flaky.await?);

    if plan.waits {
        results.push(ctx.wait::<u64>("go").timeout(Duration::from_secs(120)).await?);
    }
    for _ in 0..plan.items {
        results.push(ctx.step_with("item", async |info| ledger.write("item", &info).await).await?);
    }

    let (left, right) = future::join(
        ctx.step_with("left", async |info| ledger.write("left", &info).await),
        ctx.step_with("right", async |info| ledger.write("right", &info).await),
    )
    .await;
    results.extend([left?, right?]);

    let mut race: FuturesUnordered<_> = (0..3)
        .map(|n| {
            let (ctx, ledger) = (&ctx, &ledger);
            async move {
                let name = format!("race-{n}");
                ctx.step_with(name.clone(), async |info| ledger.write(&name, &info).await).await
            }
        })
        .collect();
    while let Some(result) = race.next().await {
        results.push(result?);
    }

    ctx.progress(90.0, "nearly there");
    let last = if ctx.patched("last") { "last" } else { "last, the old way" };
    results.push(ctx.step_with(last, async |info| ledger.write("last", &info).await).await?);
    Ok(results)
}

/// Ten steps that do nothing.
#[workflow]
async fn ten(ctx: Ctx) -> Result<u32> {
    let mut sum = 0;
    for n in 0..10 {
        sum += ctx.step("add", async || Ok(n)).await?;
    }
    Ok(sum)
}

/// Ten steps that do nothing, and a run that is not kept for long.
#[workflow(retention = "1s")]
async fn soon_gone(ctx: Ctx) -> Result<u32> {
    let mut sum = 0;
    for n in 0..10 {
        sum += ctx.step("add", async || Ok(n)).await?;
    }
    Ok(sum)
}

/// As many steps as it is told, and a run that is not kept for long.
#[workflow(retention = "1s")]
async fn soon_gone_long(ctx: Ctx, steps: u32) -> Result<u32> {
    for n in 0..steps {
        ctx.step("step", async || Ok(n)).await?;
    }
    Ok(steps)
}

/// So many steps, whose results have so many bytes.
#[workflow]
async fn many(ctx: Ctx, (steps, bytes): (u32, usize)) -> Result<usize> {
    let mut total = 0;
    for _ in 0..steps {
        total += ctx.step("part", async || Ok("x".repeat(bytes))).await?.len();
    }
    Ok(total)
}

/// One step that asks an address, which may take its time over the answer.
#[workflow]
async fn ask(ctx: Ctx, address: String) -> Result<u16> {
    ctx.step("ask", async || ledger::ask(&address).await).await
}

/// Two steps that ask an address at once, and then so many signals `part`, whose lengths it adds up.
#[workflow]
async fn gather(ctx: Ctx, (address, parts): (String, u32)) -> Result<usize> {
    let (one, other) = future::join(
        ctx.step("one", async || ledger::ask(&address).await),
        ctx.step("other", async || ledger::ask(&address).await),
    )
    .await;
    one?;
    other?;
    let mut total = 0;
    for _ in 0..parts {
        total += ctx.wait::<String>("part").await?.len();
    }
    Ok(total)
}

/// The same under another name: what one workflow may take is bounded.
#[workflow]
async fn ask_too(ctx: Ctx, address: String) -> Result<u16> {
    ctx.step("ask", async || ledger::ask(&address).await).await
}

/// And a third time.
#[workflow]
async fn ask_again(ctx: Ctx, address: String) -> Result<u16> {
    ctx.step("ask", async || ledger::ask(&address).await).await
}

/// Can be found by what it is told, and by the stage that the signal `go` brings it to, up to the third.
#[workflow]
async fn found(ctx: Ctx, attributes: Vec<(String, String)>) -> Result<u32> {
    for (name, value) in attributes {
        ctx.set_attribute(name, value);
    }
    ctx.step("first", async || Ok(())).await?;
    loop {
        let stage = ctx.wait::<u32>("go").await?;
        ctx.set_attribute("stage", stage);
        if stage == 3 {
            return Ok(stage);
        }
    }
}

/// Changes what it can be found by between its steps.
#[workflow]
async fn labelled(ctx: Ctx) -> Result<()> {
    for stage in 0..3 {
        ctx.set_attribute("stage", stage);
        ctx.step("work", async || Ok(())).await?;
    }
    Ok(())
}

/// Sleeps for as long as it is told, in milliseconds.
#[workflow]
async fn nap(ctx: Ctx, ms: u64) -> Result<&'static str> {
    ctx.sleep("sleep", Duration::from_millis(ms)).await;
    Ok("awake")
}

/// Waits for the signal `go`.
#[workflow]
async fn wait(ctx: Ctx, timeout_ms: u64) -> Result<String> {
    match ctx.wait::<String>("go").timeout(Duration::from_millis(timeout_ms)).await {
        Ok(text) => Ok(text),
        Err(error) => Ok(error.to_string()),
    }
}

/// The same, started only with an idempotency key.
#[workflow(idempotency = "required")]
async fn keyed(ctx: Ctx, timeout_ms: u64) -> Result<String> {
    match ctx.wait::<String>("go").timeout(Duration::from_millis(timeout_ms)).await {
        Ok(text) => Ok(text),
        Err(error) => Ok(error.to_string()),
    }
}

/// A long step against the signal `stop`: whichever is first.
#[workflow]
async fn race(ctx: Ctx, step_ms: u64) -> Result<&'static str> {
    step_or_signal(ctx, step_ms).await
}

async fn step_or_signal(ctx: Ctx, step_ms: u64) -> Result<&'static str> {
    let slow = ctx.step("slow", async || {
        worker::Delay::from(Duration::from_millis(step_ms)).await;
        Ok(())
    });
    match future::select(slow, ctx.wait::<()>("stop")).await {
        future::Either::Left(_) => Ok("step"),
        future::Either::Right(_) => Ok("signal"),
    }
}

/// A step that takes longer than it may, until its third attempt.
#[workflow]
async fn slow(ctx: Ctx) -> Result<u32> {
    third_attempt(ctx).await
}

async fn third_attempt(ctx: Ctx) -> Result<u32> {
    let retry = Retry { attempts: 3, initial_ms: 10, factor: 1.0, max_ms: 10, jitter: 0.0 };
    let attempt = ctx.step_with("slow", async |info: stepwell::StepInfo| {
        if info.attempt < 3 {
            worker::Delay::from(Duration::from_secs(30)).await;
        }
        Ok(info.attempt)
    });
    attempt.retry(retry).timeout(Duration::from_millis(100)).await
}

/// A run that takes longer than it may.
#[workflow(timeout = "300ms")]
async fn late(ctx: Ctx) -> Result<()> {
    ctx.progress(50.0, "half way");
    ctx.step("first", async || Ok(())).await?;
    ctx.wait::<()>("never").await?;
    Ok(())
}

/// Waits twice for the same signal, the first time only for a moment.
#[workflow]
async fn twice(ctx: Ctx, first_ms: u64) -> Result<(Option<u32>, u32)> {
    let first = ctx.wait::<u32>("go").timeout(Duration::from_millis(first_ms)).await.ok();
    Ok((first, ctx.wait::<u32>("go").timeout(Duration::from_secs(60)).await?))
}

/// Ignores every error that it can get hold of.
#[workflow]
async fn careless(ctx: Ctx) -> Result<u32> {
    let mut count = 0;
    for _ in 0..3 {
        let _ = ctx.step("fails", async || Err::<(), _>(Terminal::new("no").into())).await;
        ctx.sleep("sleep", Duration::from_millis(20)).await;
        let _ = ctx.wait::<()>("never").timeout(Duration::from_millis(20)).await;
        count += 1;
    }
    Ok(count)
}

/// A workflow whose code is another one in the bundle with the feature `changed`.
#[workflow]
async fn changing(ctx: Ctx) -> Result<&'static str> {
    let name = if cfg!(feature = "changed") { "renamed" } else { "original" };
    ctx.step(name, async || Ok(())).await?;
    ctx.wait::<()>("go").await?;
    Ok(name)
}

/// Fails until it is told that the world is better: for retries by hand.
#[workflow]
async fn mend(ctx: Ctx, ledger: String) -> Result<Vec<u64>> {
    let ledger = Ledger::new(&ctx, &ledger);
    let first = ctx.step_with("first", async |info| ledger.write("first", &info).await).await?;
    let second = ctx.step_with("second", async |info| {
        let nonce = ledger.write("second", &info).await?;
        if nonce < 3 { Err(Terminal::new("not yet").into()) } else { Ok(nonce) }
    });
    let second = second.await?;
    let third = ctx.step_with("third", async |info| ledger.write("third", &info).await).await?;
    Ok(vec![first, second, third])
}

/// Fails in the way that it is told.
#[workflow]
async fn fail(ctx: Ctx, how: String) -> Result<()> {
    let retry = Retry { attempts: 3, initial_ms: 10, factor: 1.0, max_ms: 10, jitter: 0.0 };
    match how.as_str() {
        "terminal" => ctx.step("t", async || Err::<(), _>(Terminal::new("declined").into())).await?,
        "retries" => ctx.step("r", async || Err::<(), _>(Error::msg("busy"))).retry(retry).await?,
        "retries later" => {
            let declined =
                || Error::msg("the card \"4711\" was Declined").retry_after(Duration::from_secs(3_600));
            ctx.step("charge", async || Err::<(), _>(declined())).await?;
        }
        "await" => std::future::pending().await,
        "panic" => panic!("a mistake in the workflow"),
        _ => {}
    }
    Err(Error::msg(how.strip_prefix("say ").unwrap_or("failed on purpose")))
}

/// The app.
#[stepwell::main]
pub fn app() -> App {
    let app = App::new()
        .workflow(mixed)
        .workflow(ten)
        .workflow(soon_gone)
        .workflow(soon_gone_long)
        .workflow(many)
        .workflow(ask)
        .workflow(gather)
        .workflow(ask_too)
        .workflow(ask_again)
        .workflow(found)
        .workflow(labelled)
        .workflow(nap)
        .workflow(wait)
        .workflow(keyed)
        .workflow(race)
        .workflow(slow)
        .workflow(late)
        .workflow(mend)
        .workflow(twice)
        .workflow(careless)
        .workflow(changing)
        .workflow(fail)
        .workflow(clumsy)
        .workflow(steady)
        .workflow(phone)
        .workflow(plain::echo)
        .workflow(family::family)
        .workflow(family::guardian)
        .workflow(family::ward)
        .workflow(lives::lives)
        .workflow(plain::until)
        .workflow(queued::mixed_queued)
        .workflow(queued::race_queued)
        .workflow(queued::slow_queued)
        .workflow(queued::fail_queued)
        .workflow(queued::long)
        .workflow(traced::traced)
        .workflow(traced::traced_child)
        .workflow(reach::environment)
        .workflow(reach::call)
        .workflow(reach::unbound)
        .workflow(reach::decide)
        .workflow(approvals::approve)
        .workflow(events::pay)
        .workflow(events::ship)
        .workflow(events::on_the_road)
        .workflow(jobs::sends)
        .workflow(lanes::limited)
        .workflow(lanes::limited_whole)
        .workflow(lanes::limited_steps)
        .workflow(lanes::partner_charge)
        .workflow(lanes::partner_refund)
        .workflow(lanes::by_plan)
        .workflow(lanes::in_turn)
        .workflow(lanes::in_line)
        .workflow(lanes::rated)
        .workflow(joins::only_one)
        .workflow(joins::latest_only)
        .workflow(joins::debounced)
        .workflow(joins::batched)
        .workflow(joins::dropped)
        .workflow(joins::throttled)
        .workflow(streams::chatty)
        .workflow(streams::chatty_queued)
        .workflow(streams::paced)
        .workflow(streams::soon_gone_chatty)
        .job(jobs::errand);
    terms::register(hang::register(app))
}
