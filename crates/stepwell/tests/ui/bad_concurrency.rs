use stepwell::prelude::*;

#[workflow(concurrency(max = 0, key = "input"))]
async fn nobody(_ctx: Ctx, _input: u32) -> Result<()> {
    Ok(())
}

#[workflow(concurrency(key = "input"))]
async fn without_end(_ctx: Ctx, _input: u32) -> Result<()> {
    Ok(())
}

#[workflow(concurrency = 2, hold = "forever")]
async fn held(_ctx: Ctx, _input: u32) -> Result<()> {
    Ok(())
}

fn main() {}
