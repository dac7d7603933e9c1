use stepwell::prelude::*;

#[workflow]
async fn charge(ctx: Ctx, cents: u32) -> Result<String> {
    ctx.step("charge", async || Ok(cents.to_string())).await
}

#[workflow]
async fn order(ctx: Ctx) -> Result<u32> {
    ctx.invoke(charge, "ten").await?;
    ctx.invoke(charge, 10).await
}

fn main() {}
