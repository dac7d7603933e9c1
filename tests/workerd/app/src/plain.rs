//! Workflows that do as little as can be: for tests of what goes in and what comes out.

use serde_json::value::RawValue;
use stepwell::{Timestamp, prelude::*};

/// Gives back what it gets, as the same text.
#[workflow]
#[expect(clippy::unused_async, reason = "a workflow is async, also if it awaits nothing")]
pub async fn echo(_ctx: Ctx, value: Box<RawValue>) -> Result<Box<RawValue>> {
    Ok(value)
}

/// Sleeps until the time that it is told, in milliseconds since 1970.
#[workflow]
pub async fn until(ctx: Ctx, at_ms: u64) -> Result<&'static str> {
    ctx.sleep_until("sleep", Timestamp::from_millis(at_ms)).await;
    Ok("awake")
}
