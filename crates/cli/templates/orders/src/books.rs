//! What the shop keeps: orders in D1, receipts in KV. Each statement can be repeated.

use stepwell::{Env, Result, worker::D1Type};

use crate::{Order, Receipt, Status};

/// Notes that there is an order.
pub async fn open(env: &Env, order: &Order) -> Result<()> {
    let statement =
        "INSERT INTO orders (id, cents, status) VALUES (?1, ?2, 'open') ON CONFLICT (id) DO NOTHING";
    let cents = D1Type::Real(f64::from(order.cents));
    env.d1("ORDERS")?.prepare(statement).bind_refs(&[D1Type::Text(&order.id), cents])?.run().await?;
    Ok(())
}

/// Notes how it ended.
pub async fn close(env: &Env, order: &Order, status: Status) -> Result<()> {
    let statement = "UPDATE orders SET status = ?2 WHERE id = ?1";
    let values = [D1Type::Text(&order.id), D1Type::Text(status.as_str())];
    env.d1("ORDERS")?.prepare(statement).bind_refs(&values)?.run().await?;
    Ok(())
}

/// Keeps the receipt for whoever asks for it.
pub async fn keep(env: &Env, order: &Order, receipt: &Receipt) -> Result<()> {
    env.kv("RECEIPTS")?.put(&order.id, receipt)?.execute().await?;
    Ok(())
}
