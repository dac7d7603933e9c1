//! Workflows that are called through the queue, if there is one.

use stepwell::prelude::*;

use crate::{Plan, ledger::Ledger};

/// The same as `mixed`.
#[workflow(timeout = "10m", dispatch = "queued")]
pub async fn mixed_queued(ctx: Ctx, plan: Plan) -> Result<Vec<u64>> {
    crate::everything(ctx, plan).await
}

/// The same as `race`.
#[workflow(dispatch = "queued")]
pub async fn race_queued(ctx: Ctx, step_ms: u64) -> Result<&'static str> {
    crate::step_or_signal(ctx, step_ms).await
}

/// The same as `slow`.
#[workflow(dispatch = "queued")]
pub async fn slow_queued(ctx: Ctx) -> Result<u32> {
    crate::third_attempt(ctx).await
}

/// Fails, or panics if it is told to.
#[workflow(dispatch = "queued")]
pub async fn fail_queued(ctx: Ctx, panics: bool) -> Result<()> {
    ctx.sleep("sleep", Duration::from_millis(1)).await;
    assert!(!panics, "a mistake in the workflow");
    Err(Error::msg("failed on purpose"))
}

/// What `long` is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Long {
    /// The ledger's address.
    pub ledger: String,
    /// How long its second step takes.
    pub ms: u64,
}

/// Three steps that write to the ledger when they begin, the second of which takes its time.
#[workflow(dispatch = "queued")]
pub async fn long(ctx: Ctx, plan: Long) -> Result<Vec<u64>> {
    let ledger = Ledger::new(&ctx, &plan.ledger);
    let before = ctx.step_with("before", async |info| ledger.write("before", &info).await).await?;
    let long = ctx.step_with("long", async |info| {
        let nonce = ledger.write("long", &info).await?;
        worker::Delay::from(Duration::from_millis(plan.ms)).await;
        Ok(nonce)
    });
    let long = long.await?;
    let after = ctx.step_with("after", async |info| ledger.write("after", &info).await).await?;
    Ok(vec![before, long, after])
}
