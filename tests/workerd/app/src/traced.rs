//! A workflow with all that a trace can show.

use std::time::Duration;

use stepwell::{Retry, bail, prelude::*};

/// Fails twice, sleeps, and invokes another; gives what its step passes on.
#[workflow]
pub async fn traced(ctx: Ctx, sleep_ms: u64) -> Result<Option<String>> {
    let retry = Retry { initial_ms: 50, ..Retry::default() };
    let header = ctx
        .step_with("flaky", async |info| {
            if info.attempt < 3 {
                bail!("busy");
            }
            Ok(info.traceparent().map(str::to_owned))
        })
        .retry(retry)
        .await?;
    ctx.sleep("rest", Duration::from_millis(sleep_ms)).await;
    ctx.invoke(traced_child, ()).await?;
    Ok(header)
}

/// The other.
#[workflow]
pub async fn traced_child(ctx: Ctx, _nothing: ()) -> Result<()> {
    ctx.step("write", async || Ok(())).await
}
