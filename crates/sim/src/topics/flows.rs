//! The workflows of these worlds. None has steps of its own: what they wait for, and what they emit, is all that they do.

use std::time::Duration;

use serde_json::Value as Json;
use stepwell::prelude::*;

/// What a workflow is started with, by a caller or by an event that says as much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Which events it is about.
    pub n: u64,
    /// How long it waits, where it does not wait for ever.
    #[serde(default)]
    pub ms: u64,
}

/// The condition of all waits that have one.
pub const CONDITION: &str = "event.data.n == input.n";

/// The workflows that callers start.
pub const CALLED: [&str; 7] = ["patient", "hasty", "twice", "stoppable", "asks", "approval", "emits"];

/// The app.
pub fn app() -> App {
    App::new()
        .workflow(noted)
        .workflow(patient)
        .workflow(hasty)
        .workflow(twice)
        .workflow(again)
        .workflow(stoppable)
        .workflow(asks)
        .workflow(answers)
        .workflow(approval)
        .workflow(emits)
}

/// Ends at once.
#[workflow]
async fn noted(_ctx: Ctx, _job: Json) -> Result<()> {
    std::future::ready(Ok(())).await
}

/// Waits for as long as it takes.
#[workflow]
async fn patient(ctx: Ctx, _job: Job) -> Result<String> {
    Ok(ctx.wait_for::<Json>("order/paid").matching(CONDITION).looking_back("1 minute").await?.id)
}

/// Waits for some time.
#[workflow]
async fn hasty(ctx: Ctx, job: Job) -> Result<Option<String>> {
    let paid = ctx.wait_for::<Json>("order/paid").matching(CONDITION).within(Duration::from_millis(job.ms));
    Ok(paid.or_none().await?.map(|event| event.id))
}

/// Waits for two events of the same name.
#[workflow]
async fn twice(ctx: Ctx, _job: Job) -> Result<Vec<String>> {
    let mut got = Vec::new();
    for _ in 0..2 {
        got.push(ctx.wait_for::<Json>("order/*").matching(CONDITION).looking_back("2 minutes").await?.id);
    }
    Ok(got)
}

/// Is started by an event, and waits for another one like it.
#[workflow]
async fn again(ctx: Ctx, _job: Job) -> Result<String> {
    Ok(ctx.wait_for::<Json>("order/paid").matching(CONDITION).looking_back("1 hour").await?.id)
}

/// Sleeps until an event cancels it.
#[workflow(cancel_on = "order/cancelled", cancel_when = "event.data.n == input.n")]
async fn stoppable(ctx: Ctx, _job: Job) -> Result<()> {
    ctx.sleep("until it is cancelled", "30 days").await;
    Ok(())
}

/// Emits a question and waits for the answer.
#[workflow]
async fn asks(ctx: Ctx, job: Job) -> Result<String> {
    ctx.emit("order/asked", &job).await?;
    Ok(ctx.wait_for::<Json>("order/answered").matching(CONDITION).await?.id)
}

/// Is started by a question, and answers it.
#[workflow]
async fn answers(ctx: Ctx, job: Job) -> Result<()> {
    ctx.emit("order/answered", &job).await?;
    Ok(())
}

/// Waits until somebody with a token completes it.
#[workflow]
async fn approval(ctx: Ctx, _job: Job) -> Result<Json> {
    Ok(ctx.wait::<Json>("approval").await?)
}

/// Emits some events.
#[workflow]
async fn emits(ctx: Ctx, job: Job) -> Result<()> {
    for _ in 0..3 {
        ctx.emit("order/paid", &job).await?;
    }
    Ok(())
}
