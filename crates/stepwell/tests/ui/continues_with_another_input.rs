use stepwell::prelude::*;

#[workflow]
async fn poll(ctx: Ctx, seen: u64) -> Result<()> {
    ctx.continue_as_new(&format!("{seen}")).await
}

fn main() {}
