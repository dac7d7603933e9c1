//! Workflows that people follow.

use stepwell::prelude::*;
use worker::Delay;

/// Talks before, within and after each of its steps, and says how far it has come. Its input is how many steps it
/// has, how many chunks each of them publishes, and how long it takes over each chunk.
#[workflow]
pub async fn chatty(ctx: Ctx, plan: (u32, u32, u64)) -> Result<u32> {
    talk(ctx, plan).await
}

/// The same through a queue.
#[workflow(dispatch = "queued")]
pub async fn chatty_queued(ctx: Ctx, plan: (u32, u32, u64)) -> Result<u32> {
    talk(ctx, plan).await
}

/// The same, and not kept for long.
#[workflow(retention = "1s")]
pub async fn soon_gone_chatty(ctx: Ctx, plan: (u32, u32, u64)) -> Result<u32> {
    talk(ctx, plan).await
}

async fn talk(ctx: Ctx, (steps, chunks, pause_ms): (u32, u32, u64)) -> Result<u32> {
    for n in 0..steps {
        ctx.log().info(format!("before {n}"));
        let talk = async || {
            ctx.log().debug(format!("within {n}"));
            for chunk in 0..chunks {
                ctx.publish("tokens", &format!("{n}-{chunk}"));
                Delay::from(Duration::from_millis(pause_ms)).await;
            }
            Ok(n)
        };
        ctx.step("talk", talk).await?;
        ctx.progress_of(u64::from(n) + 1, u64::from(steps), "talking");
        // After it the code is replayed, and must not say all of it again.
        ctx.sleep("sleep", Duration::from_millis(10)).await;
    }
    ctx.log().warn("done");
    Ok(steps)
}

/// So many steps, with a pause before each.
#[workflow]
pub async fn paced(ctx: Ctx, (steps, pause_ms): (u32, u64)) -> Result<u32> {
    for n in 0..steps {
        ctx.sleep("sleep", Duration::from_millis(pause_ms)).await;
        ctx.step("pace", async || Ok(n)).await?;
    }
    Ok(steps)
}
