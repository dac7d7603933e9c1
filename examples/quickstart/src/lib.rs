//! Two small workflows: one that sleeps, one that waits for a person.

use stepwell::prelude::*;
#[cfg(feature = "engine")]
use stepwell_engine as _;

/// Composes a greeting, sleeps, and sends it.
#[workflow]
async fn greet(ctx: Ctx, name: String) -> Result<String> {
    let greeting = ctx.step("compose", async || Ok(format!("Hello, {name}!"))).await?;
    ctx.sleep("pause", "10 seconds").await;
    ctx.step("send", async || Ok(format!("sent: {greeting}"))).await?;
    Ok(greeting)
}

/// Waits up to a week for somebody to say yes or no.
#[workflow]
async fn approval(ctx: Ctx, document: String) -> Result<String> {
    match ctx.wait::<bool>("decision").timeout("1 week").or_none().await? {
        Some(true) => ctx.step("publish", async || Ok(format!("published {document}"))).await,
        Some(false) => Ok(format!("rejected {document}")),
        None => Ok(format!("nobody decided about {document}")),
    }
}

/// All workflows of this program.
#[stepwell::main]
pub fn app() -> App {
    App::new().workflow(greet).workflow(approval)
}
