//! Workflows whose starts do not each become a run that begins at once.

use stepwell::prelude::*;

/// What such a run is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    key: String,
    number: u32,
}

/// One of a key at a time, until it is told to go on.
#[workflow(singleton(key = "input.key"))]
pub async fn only_one(ctx: Ctx, item: Item) -> Result<u32> {
    let () = ctx.wait("go").await?;
    Ok(item.number)
}

/// The latest of a key.
#[workflow(singleton(key = "input.key", cancel = true))]
pub async fn latest_only(ctx: Ctx, item: Item) -> Result<u32> {
    let () = ctx.wait("go").await?;
    Ok(item.number)
}

/// The last of those that come close together.
#[workflow(debounce(wait = "1s", longest = "3s", key = "input.key"))]
pub async fn debounced(ctx: Ctx, item: Item) -> Result<u32> {
    ctx.step("take", async || Ok(item.number)).await
}

/// Ten of a key together.
#[workflow(batch(max = 10, wait = "2s", key = "input.key"))]
pub async fn batched(ctx: Ctx, items: Vec<Item>) -> Result<Vec<u32>> {
    ctx.step("take", async || Ok(items.iter().map(|item| item.number).collect())).await
}

/// Five in three seconds for each key, and no others.
#[workflow(rate(max = 5, per = "3s", key = "input.key", drop = true))]
pub async fn dropped(ctx: Ctx, item: Item) -> Result<u32> {
    ctx.step("take", async || Ok(item.number)).await
}

/// One each 200 ms. Gives when it began.
#[workflow(throttle(max = 10, per = "2s"))]
pub async fn throttled(ctx: Ctx) -> Result<u64> {
    ctx.step("begin", async || Ok(worker::Date::now().as_millis())).await
}
