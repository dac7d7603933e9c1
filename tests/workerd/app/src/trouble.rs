//! Workflows that make trouble, and those that have to live beside them.

use stepwell::{Result, Retry, StepInfo, Terminal, prelude::*};
use worker::{Fetch, Headers, Method, Request, RequestInit};

/// Does something that nobody should, in the way that it is told.
#[workflow]
pub async fn clumsy(ctx: Ctx, how: String) -> Result<String> {
    let retry = Retry { attempts: 3, initial_ms: 10, factor: 1.0, max_ms: 10, jitter: 0.0 };
    ctx.step("first", async || Ok(())).await?;
    match how.as_str() {
        "workflow" => {
            ctx.log().info("about to slip");
            panic!("the workflow slipped")
        }
        "after a wait" => {
            ctx.wait::<()>("go").await?;
            panic!("the workflow slipped after a wait");
        }
        "twice in a step" => {
            let slips = async |info: StepInfo| {
                assert!(info.attempt >= 3, "attempt {} slipped", info.attempt);
                Ok(info.attempt)
            };
            Ok(format!("attempt {}", ctx.step_with("slips", slips).retry(retry).await?))
        }
        "always in a step" => {
            let slips = async || -> Result<()> {
                ctx.log().info("about to slip");
                panic!("the step slipped")
            };
            match ctx.step("slips", slips).retry(retry).await {
                Ok(()) => Ok("it did not slip".into()),
                Err(error) => Ok(error.to_string()),
            }
        }
        "deep" => ctx.step("dives", async || Ok(dive(1).to_string())).await,
        other => Err(Terminal::new(format!("nothing is called '{other}'")).into()),
    }
}

/// Goes down until the stack is full.
#[expect(unconditional_recursion, reason = "that is what it is for")]
fn dive(depth: u64) -> u64 {
    let below = std::hint::black_box([depth; 64]);
    dive(depth + 1) + below[usize::try_from(depth % 64).unwrap_or_default()]
}

/// Does one thing after the other, each of which takes a while.
#[workflow]
pub async fn steady(ctx: Ctx, step_ms: u64) -> Result<u32> {
    let mut steps = 0;
    for _ in 0..3 {
        let slow = async || {
            worker::Delay::from(Duration::from_millis(step_ms)).await;
            Ok(1)
        };
        steps += ctx.step("slow", slow).await?;
    }
    Ok(steps)
}

/// What `phone` is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Whom it calls.
    pub url: String,
    /// How long each attempt may take.
    pub timeout_ms: u64,
    /// How many attempts there are.
    pub attempts: u32,
}

/// Calls somebody outside, who may not be nice.
#[workflow]
pub async fn phone(ctx: Ctx, order: Order) -> Result<u64> {
    let retry = Retry { attempts: order.attempts, initial_ms: 50, factor: 1.0, max_ms: 50, jitter: 0.0 };
    let ask = async |info: StepInfo| {
        let headers = Headers::new();
        headers.set("idempotency-key", &info.idempotency_key).map_err(Error::msg)?;
        headers.set("attempt", &info.attempt.to_string()).map_err(Error::msg)?;
        let mut init = RequestInit::new();
        init.with_method(Method::Post).with_headers(headers);
        let request = Request::new_with_init(&order.url, &init).map_err(Error::msg)?;
        let mut response = Fetch::Request(request).send().await.map_err(Error::msg)?;
        let text = response.text().await.map_err(Error::msg)?;
        text.trim().parse::<u64>().map_err(|_| Error::msg(format!("that is no number: {text}")))
    };
    let answer = ctx.step_with("ask", ask).retry(retry).timeout(Duration::from_millis(order.timeout_ms));
    answer.await
}
