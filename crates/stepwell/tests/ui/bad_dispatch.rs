use stepwell::prelude::*;

#[workflow(dispatch = "pigeon")]
async fn greet(ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}
