use stepwell::prelude::*;

#[workflow(callback = "example.com/done")]
async fn greet(ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}
