use stepwell::prelude::*;

#[workflow(retention = "a while")]
async fn greet(ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}
