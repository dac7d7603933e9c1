use stepwell::prelude::*;

#[workflow]
async fn echo<T: Serialize>(ctx: Ctx, value: T) -> Result<T> {
    Ok(value)
}

fn main() {}
