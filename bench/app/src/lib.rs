//! Workflows that do nothing but be recorded, so that all the time they take is Stepwell's and the platform's.

use stepwell::prelude::*;
#[cfg(feature = "engine")]
use stepwell_engine as _;

/// As many steps as it is told, one after the other; gives the sum of what they return.
#[workflow]
async fn steps(ctx: Ctx, count: u32) -> Result<u32> {
    let mut sum = 0;
    for number in 0..count {
        sum += ctx.step("add", async || Ok(number)).await?;
    }
    Ok(sum)
}

/// What `naps` is started with.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Naps {
    /// How many steps come first.
    pub steps: u32,
    /// How many sleeps follow the signal `go`.
    pub naps: u32,
}

/// Some steps, then the signal `go`, then many sleeps of a millisecond: each one makes the engine call the
/// program again, which replays everything before it.
#[workflow]
async fn naps(ctx: Ctx, plan: Naps) -> Result<u32> {
    for number in 0..plan.steps {
        ctx.step("add", async || Ok(number)).await?;
    }
    ctx.wait::<()>("go").await?;
    for _ in 0..plan.naps {
        ctx.sleep("sleep", Duration::from_millis(1)).await;
    }
    Ok(plan.naps)
}

/// The app.
#[stepwell::main]
pub fn app() -> App {
    App::new().workflow(steps).workflow(naps)
}
