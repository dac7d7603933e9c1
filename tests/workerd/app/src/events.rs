//! Workflows that emit events and wait for them.

use stepwell::{Event, prelude::*};

/// What the events say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    id: u64,
}

/// Emits an event, and gives its id.
#[workflow]
pub async fn pay(ctx: Ctx, order: Order) -> Result<String> {
    ctx.step("charge", async || Ok(())).await?;
    ctx.emit("order/paid", &order).await
}

/// Waits for the payment of its order, for a while.
#[workflow]
pub async fn ship(ctx: Ctx, order: Order) -> Result<String> {
    let paid = ctx.wait_for::<Order>("order/paid").matching("event.data.id == input.id").within("60 seconds");
    let event: Event<Order> = paid.await?;
    Ok(format!("{} {} of {}", event.name, event.data.id, order.id))
}

/// Sleeps, unless its order is cancelled.
#[workflow(cancel_on = "order/cancelled", cancel_when = "event.data.id == input.id")]
pub async fn on_the_road(ctx: Ctx, _order: Order) -> Result<()> {
    ctx.sleep("a day", "1 day").await;
    Ok(())
}
