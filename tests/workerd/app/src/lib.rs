//! Workflows whose steps write to a ledger outside, so that the tests can tell what has really run.

mod ledger;

use futures::{future, stream::FuturesUnordered, stream::StreamExt as _};
use stepwell::prelude::*;
#[cfg(feature = "engine")]
use stepwell_engine as _;

use ledger::Ledger;

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

/// Everything there is: steps, a sleep, retries, a signal, a loop, parallel steps, a race.
#[workflow]
async fn mixed(ctx: Ctx, plan: Plan) -> Result<Vec<u64>> {
    let ledger = Ledger::new(&ctx, &plan.ledger);
    let mut results = vec![ctx.step_with("first", async |info| ledger.write("first", &info).await).await?];

    ctx.sleep(Duration::from_millis(plan.sleep_ms)).await;

    let policy = Retry { attempts: plan.failures + 1, initial_ms: 20, factor: 1.5, max_ms: 200, jitter: 0.5 };
    let flaky = async |info: stepwell::StepInfo| {
        // Written down before it fails: a failed attempt is one that has run.
        let nonce = ledger.write("flaky", &info).await?;
        if info.attempt <= plan.failures { Err(Error::msg("not yet")) } else { Ok(nonce) }
    };
    results.push(ctx.step_with("flaky", flaky).retry(policy).await?);

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

    results.push(ctx.step_with("last", async |info| ledger.write("last", &info).await).await?);
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

/// Sleeps for as long as it is told, in milliseconds.
#[workflow]
async fn nap(ctx: Ctx, ms: u64) -> Result<&'static str> {
    ctx.sleep(Duration::from_millis(ms)).await;
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

/// A long step against the signal `stop`: whichever is first.
#[workflow]
async fn race(ctx: Ctx, step_ms: u64) -> Result<&'static str> {
    let slow = ctx.step("slow", async || {
        worker::Delay::from(Duration::from_millis(step_ms)).await;
        Ok(())
    });
    match future::select(slow, ctx.wait::<()>("stop")).await {
        future::Either::Left(_) => Ok("step"),
        future::Either::Right(_) => Ok("signal"),
    }
}

/// Fails in the way that it is told.
#[workflow]
async fn fail(ctx: Ctx, how: String) -> Result<()> {
    let retry = Retry { attempts: 3, initial_ms: 10, factor: 1.0, max_ms: 10, jitter: 0.0 };
    match how.as_str() {
        "terminal" => ctx.step("t", async || Err::<(), _>(Terminal::new("declined").into())).await?,
        "retries" => ctx.step("r", async || Err::<(), _>(Error::msg("busy"))).retry(retry).await?,
        "await" => std::future::pending().await,
        "panic" => panic!("a mistake in the workflow"),
        _ => {}
    }
    Err(Error::msg("failed on purpose"))
}

/// The app.
#[stepwell::main]
pub fn app() -> App {
    App::new().workflow(mixed).workflow(ten).workflow(nap).workflow(wait).workflow(race).workflow(fail)
}
