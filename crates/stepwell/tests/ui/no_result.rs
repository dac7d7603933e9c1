use stepwell::prelude::*;

#[workflow]
async fn greet(ctx: Ctx) {}

fn main() {}
