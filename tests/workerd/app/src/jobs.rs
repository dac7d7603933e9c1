//! Handlers of jobs.

use stepwell::prelude::*;

use crate::ledger;

/// What a job asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Errand {
    /// Whom it asks.
    address: String,
    /// How it ends.
    how: String,
}

/// Sends so many jobs, each after a step.
#[workflow]
pub async fn sends(ctx: Ctx, (queue, run, count): (String, u64, u64)) -> Result<u64> {
    for number in 0..count {
        let body = run * 1_000 + number;
        ctx.step("think", async || Ok(())).await?;
        ctx.send(&queue, &body).await?;
    }
    Ok(count)
}

/// Four at once, and a second for each.
#[job(queue = "errands", concurrency = 4, timeout = "1s")]
pub async fn errand(job: Job<Errand>) -> Result<()> {
    let Errand { address, how } = &job.body;
    ledger::ask(&format!("{address}?how={how}&attempt={}&id={}", job.attempt, job.id)).await?;
    match (how.as_str(), job.attempt) {
        ("never", _) => Err(Error::terminal("no such address")),
        ("later", 1) => Err(Error::msg("not now").retry_after(Duration::from_millis(50))),
        ("panic", _) => panic!("the errand is cursed"),
        (_, _) => Ok(()),
    }
}
