use stepwell::prelude::*;

struct Shop;

impl Shop {
    #[workflow]
    async fn sell(&self, ctx: Ctx) -> Result<()> {
        Ok(())
    }
}

fn main() {}
