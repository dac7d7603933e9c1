//! Workflows that are under limits.

use stepwell::prelude::*;

use crate::ledger;

/// What a limited run does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Whose it is.
    customer: String,
    /// Whom its steps ask: they are at work until they are answered.
    address: String,
    /// How many steps it has, with a short sleep between them.
    steps: u32,
}

/// At most 2 of a customer and 10 in all are at work at once.
#[workflow(concurrency = 10, concurrency(max = 2, key = "input.customer"))]
pub async fn limited(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, work).await
}

/// One of a customer, from its beginning to its end.
#[workflow(concurrency(max = 1, key = "input.customer"), hold = "run")]
pub async fn limited_whole(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, work).await
}

/// One of its lane, which it shares with `partner_refund`.
#[workflow(concurrency = 1, lane = "partner")]
pub async fn partner_charge(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, work).await
}

/// One of its lane, and as many of a customer as there are steps.
#[workflow(concurrency = 1, concurrency(max = "input.steps", key = "input.customer"), lane = "partner")]
pub async fn partner_refund(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, work).await
}

/// As many of a customer as its plan says.
#[workflow(concurrency(max = "input.steps", key = "input.customer"))]
pub async fn by_plan(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, Work { steps: 1, ..work }).await
}

/// One at a time, and customers take turns.
#[workflow(concurrency = 1, fair_by = "input.customer", priority = "input.steps > 5 ? 1 : 0")]
pub async fn in_turn(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, work).await
}

/// One at a time, and the first comes first.
#[workflow(concurrency = 1)]
pub async fn in_line(ctx: Ctx, work: Work) -> Result<u32> {
    labour(ctx, work).await
}

/// Without limits of its own: at most 2 steps of a customer and 10 in all are at work at once, half of them beside each other.
#[workflow]
pub async fn limited_steps(ctx: Ctx, work: Work) -> Result<u32> {
    let ask = || {
        let step = ctx.step_with("ask", async |_| ledger::ask(&work.address).await);
        step.lane("asks", &work.customer).limit(2).lane("asks", ()).limit(10)
    };
    for _ in 0..work.steps {
        let (one, other) = futures::join!(ask(), ask());
        one?;
        other?;
    }
    Ok(2 * work.steps)
}

/// At most 100 begin in a minute. Gives when it began.
#[workflow(rate(max = 100, per = "1m"))]
pub async fn rated(ctx: Ctx) -> Result<u64> {
    ctx.step("begin", async || Ok(worker::Date::now().as_millis())).await
}

async fn labour(ctx: Ctx, work: Work) -> Result<u32> {
    for step in 0..work.steps {
        if step > 0 {
            ctx.sleep("rest", "20ms").await;
        }
        ctx.step_with("ask", async |_| ledger::ask(&work.address).await).await?;
    }
    Ok(work.steps)
}
