use stepwell::prelude::*;

#[workflow(retries = 3)]
async fn greet(ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}
