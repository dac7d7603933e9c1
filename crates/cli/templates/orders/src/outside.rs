//! The bank and the mail, over HTTP. Each call carries the step's idempotency key, so that a repeat has no effect.

use serde::{Deserialize, Serialize};
use stepwell::{Result, StepInfo, fetch, fetch::Fetch};

use crate::Order;

#[derive(Serialize)]
struct Charge<'a> {
    order: &'a str,
    cents: u32,
}

#[derive(Deserialize)]
struct Charged {
    id: String,
}

/// Charges the order, and gives the bank's number of the charge.
pub async fn charge(info: &StepInfo, order: &Order) -> Result<String> {
    let body = Charge { order: &order.id, cents: order.cents };
    let charged: Charged = call(info, "/charges")?.json(&body).send().await?.ok()?.json().await?;
    Ok(charged.id)
}

/// Gives the money back.
pub async fn refund(info: &StepInfo, charge: &str) -> Result<()> {
    call(info, "/refunds")?.json(&[charge]).send().await?.ok()?;
    Ok(())
}

/// Tells somebody.
pub async fn tell(info: &StepInfo, to: &str, text: &str) -> Result<()> {
    call(info, "/messages")?.json(&[to, text]).send().await?.ok()?;
    Ok(())
}

fn call(info: &StepInfo, path: &str) -> Result<Fetch> {
    let env = stepwell::env();
    let url = format!("{}{path}", env.var("BANK_URL")?);
    let key = env.secret("BANK_KEY")?;
    Ok(fetch(info, url).bearer(&key).header("idempotency-key", &info.idempotency_key))
}
