//! A loop that continues as new until it has done all its rounds.

use stepwell::prelude::*;

/// How far the loop has come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rounds {
    /// How many rounds are left after this one.
    pub left: u32,
    /// The signals that were taken.
    pub taken: Vec<u32>,
    /// What the steps have passed to whatever they call.
    pub keys: Vec<String>,
}

/// One life for each round: three steps, a sleep, and one signal, if there is one.
#[workflow]
pub async fn lives(ctx: Ctx, mut rounds: Rounds) -> Result<Rounds> {
    for _ in 0..3 {
        rounds.keys.push(ctx.step_with("round", async |info| Ok(info.idempotency_key)).await?);
    }
    ctx.sleep("between", "30 milliseconds").await;
    let item: Option<u32> = ctx.wait("item").timeout("20 milliseconds").or_none().await?;
    rounds.taken.extend(item);
    if rounds.left == 0 {
        return Ok(rounds);
    }
    rounds.left -= 1;
    ctx.continue_as_new(&rounds).await
}
