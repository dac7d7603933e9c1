//! Workflows whose steps reach what is around their Worker.

use stepwell::{fetch, prelude::*};

/// Reads secrets or variables; says why for one that is missing.
#[workflow]
pub async fn environment(ctx: Ctx, names: Vec<String>) -> Result<Vec<String>> {
    ctx.step("read", async || {
        let read = |name: &String| ctx.env().secret(name).map(|secret| secret.expose().to_owned());
        Ok(names.iter().map(|name| read(name).unwrap_or_else(|error| error.to_string())).collect())
    })
    .await
}

/// What `call` is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Whom it calls.
    pub url: String,
    /// How long the attempt may take.
    pub timeout_ms: u64,
}

/// Calls somebody outside, and hangs up when its time is over.
#[workflow]
pub async fn call(ctx: Ctx, call: Call) -> Result<u16> {
    let step = ctx.step_with("call", async |info| {
        let answer = fetch(&info, &call.url).header("idempotency-key", &info.idempotency_key).send().await?;
        Ok(answer.ok()?.status())
    });
    step.attempts(1).timeout(Duration::from_millis(call.timeout_ms)).await
}

/// Looks for a KV namespace that its Worker does not have.
#[workflow]
pub async fn unbound(ctx: Ctx) -> Result<String> {
    ctx.step("look", async || {
        let cache = ctx.env().kv("CACHE")?;
        Ok(cache.get("key").text().await?.unwrap_or_default())
    })
    .await
}

/// Waits for a decision.
#[workflow]
pub async fn decide(ctx: Ctx) -> Result<bool> {
    Ok(ctx.wait::<bool>("decision").await?)
}
