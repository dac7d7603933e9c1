//! A small shop. An order is charged over HTTP, a person approves it if it is large, everybody who asked is told,
//! and the receipt is kept. A crash at any time loses nothing and charges nobody twice.

mod books;
mod outside;

use stepwell::prelude::*;
#[cfg(feature = "engine")]
use stepwell_engine as _;

/// What a customer orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The shop's own number for it.
    pub id: String,
    /// What it costs.
    pub cents: u32,
    /// Whom to tell.
    #[serde(default)]
    pub notify: Vec<String>,
}

/// What a run of [`order`] returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// How it ended.
    pub status: Status,
    /// The bank's number of the charge.
    pub charge: String,
    /// How many were told.
    pub told: usize,
}

/// How an order ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The goods are on their way.
    Shipped,
    /// Somebody said no, or nobody said anything: the money went back.
    Refunded,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Shipped => "shipped",
            Self::Refunded => "refunded",
        }
    }
}

/// Takes an order to its end.
#[workflow(timeout = "7d")]
async fn order(ctx: Ctx, order: Order) -> Result<Receipt> {
    ensure!(order.cents > 0, terminal: "order {} costs nothing", order.id);
    ctx.set_attribute("order", &order.id);

    ctx.step("open", async || books::open(&ctx.env(), &order).await).await?;
    let charge = ctx
        .step_with("charge", async |info| outside::charge(&info, &order).await)
        .timeout("30 seconds")
        .await?;

    let status = if is_approved(&ctx, &order).await? { Status::Shipped } else { Status::Refunded };
    if status == Status::Refunded {
        ctx.step_with("refund", async |info| outside::refund(&info, &charge).await).await?;
    }

    // A message that is not delivered keeps no order from its end.
    let text = format!("order {} is {}", order.id, status.as_str());
    let messages =
        ctx.each("notify", &order.notify, async |to, info| outside::tell(&info, to, &text).await).attempts(5);
    let told = messages.results().await.iter().filter(|result| result.is_ok()).count();

    let receipt = Receipt { status, charge, told };
    ctx.step("keep receipt", async || books::keep(&ctx.env(), &order, &receipt).await).await?;
    ctx.step("close", async || books::close(&ctx.env(), &order, status).await).await?;
    Ok(receipt)
}

/// Whether the order may go out. A large one needs a person, who has three days.
async fn is_approved(ctx: &Ctx, order: &Order) -> Result<bool> {
    let limit = ctx.step("read limit", async || Ok(ctx.env().var("APPROVAL_CENTS")?.parse::<u32>()?)).await?;
    if order.cents < limit {
        return Ok(true);
    }
    ctx.log().info(format!("{} cents need an approval", order.cents));
    Ok(ctx.wait::<bool>("approval").timeout("3 days").or_none().await?.unwrap_or(false))
}

/// All workflows of this program.
#[stepwell::main]
pub fn app() -> App {
    App::new().workflow(order)
}
