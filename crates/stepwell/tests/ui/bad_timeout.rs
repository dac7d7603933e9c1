use stepwell::prelude::*;

#[workflow(timeout = "soon")]
async fn greet(ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}
