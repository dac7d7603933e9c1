use stepwell::prelude::*;

#[workflow(cron = "0 9 * *")]
async fn report(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[workflow(zone = "Europe/Berlin")]
async fn zoned(_ctx: Ctx) -> Result<()> {
    Ok(())
}

fn main() {}
