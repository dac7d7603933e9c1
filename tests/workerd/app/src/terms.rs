//! Workflows whose terms are other ones in the bundle with the feature `changed`, and one that it does not have.

use stepwell::prelude::*;

/// Waits for a signal for as long as its terms let it.
#[cfg(not(feature = "changed"))]
#[workflow(timeout = "1h", retention = "7d")]
async fn termed(ctx: Ctx) -> Result<()> {
    ctx.wait::<()>("go").await?;
    Ok(())
}

/// Waits for a signal for as long as its terms let it.
#[cfg(feature = "changed")]
#[workflow(timeout = "2h", idempotency = "required")]
async fn termed(ctx: Ctx) -> Result<()> {
    ctx.wait::<()>("go").await?;
    Ok(())
}

/// Is gone after the next deployment.
#[cfg(not(feature = "changed"))]
#[workflow]
async fn withdrawn(ctx: Ctx) -> Result<()> {
    ctx.wait::<()>("go").await?;
    Ok(())
}

/// The app with them.
pub fn register(app: App) -> App {
    #[cfg(not(feature = "changed"))]
    let app = app.workflow(withdrawn);
    app.workflow(termed)
}
