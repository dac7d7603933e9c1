//! The code of the README, so that it compiles and does what the README says: `tests/house` compares them.

use stepwell::{
    prelude::*,
    testing::{Test, crash_everywhere},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    cents: u32,
}

fn an_order() -> Order {
    Order { cents: 1_000 }
}

/// Stands for the services that the README's workflow calls.
#[allow(clippy::unused_async, reason = "the real services are asked over the network")]
mod bank {
    use super::{Order, Result};

    pub(crate) async fn charge(order: &Order, key: String) -> Result<String> {
        Ok(format!("{} by {key}", order.cents))
    }

    pub(crate) async fn refund(_charge: &str) -> Result<()> {
        Ok(())
    }
}

#[allow(clippy::unused_async, reason = "the real services are asked over the network")]
mod warehouse {
    use super::{Order, Result};

    pub(crate) async fn ship(_order: &Order) -> Result<String> {
        Ok("shipped".into())
    }
}

#[workflow]
async fn order(ctx: Ctx, order: Order) -> Result<String> {
    let paid = ctx.step_with("charge", async |info| bank::charge(&order, info.idempotency_key).await).await?;
    let approved = ctx.wait::<bool>("approval").timeout("3 days").or_none().await?;
    if approved != Some(true) {
        ctx.step("refund", async || bank::refund(&paid).await).await?;
        return Ok("refunded".into());
    }
    ctx.sleep("cooling-off period", "14 days").await;
    ctx.step("ship", async || warehouse::ship(&order).await).await
}

#[workflow]
async fn greet(ctx: Ctx, name: String) -> Result<String> {
    ctx.step("compose", async || Ok(format!("Hello, {name}!"))).await
}

#[stepwell::main]
fn app() -> App {
    App::new().workflow(order).workflow(greet)
}

#[test]
fn survives_a_crash_at_every_commit() {
    crash_everywhere(app(), "greet", "Ada");
}

#[test]
fn ships_an_approved_order() {
    let test = Test::new(app()).mock("charge", |_| Ok("ch_1")).signal_when_waiting("approval", &true);
    assert_eq!(test.run("order", &an_order()).output::<String>(), "shipped");
}

#[test]
fn refunds_an_order_that_nobody_approves() {
    assert_eq!(Test::new(app()).run("order", &an_order()).output::<String>(), "refunded");
}

#[derive(Serialize, Deserialize)]
struct Cart {
    total: u32,
}

type Receipt = String;

#[workflow]
async fn charge(ctx: Ctx, cents: u32) -> Result<Receipt> {
    ctx.step("charge", async || Ok(format!("receipt for {cents}"))).await
}

#[workflow]
async fn checkout(ctx: Ctx, cart: Cart) -> Result<Receipt> {
    ctx.invoke(charge, cart.total).timeout("10 minutes").await
}

#[test]
fn a_checkout_returns_what_its_child_returns() {
    let outcome =
        Test::new(App::new().workflow(charge).workflow(checkout)).run("checkout", &Cart { total: 10 });
    assert_eq!(outcome.output::<String>(), "receipt for 10");
}
