use stepwell::prelude::*;

// A replay does not run the step's code: the push would be lost.
#[workflow]
async fn gather(ctx: Ctx) -> Result<Vec<u32>> {
    let mut gathered = Vec::new();
    ctx.step("gather", async || {
        gathered.push(1);
        Ok(())
    })
    .await?;
    Ok(gathered)
}

fn main() {}
