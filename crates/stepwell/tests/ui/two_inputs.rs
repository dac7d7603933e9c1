use stepwell::prelude::*;

#[workflow]
async fn add(ctx: Ctx, a: u32, b: u32) -> Result<u32> {
    Ok(a + b)
}

fn main() {}
