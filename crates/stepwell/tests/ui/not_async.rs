use stepwell::prelude::*;

#[workflow]
fn greet(ctx: Ctx, name: String) -> Result<String> {
    Ok(name)
}

fn main() {}
