//! What the agent can do. Both tools are behind `TOOLS_URL`; put your own here.

use stepwell::{Result, StepInfo, fetch};

/// Looks something up.
pub async fn search(info: &StepInfo, query: &str) -> Result<String> {
    let url = format!("{}/search", stepwell::env().var("TOOLS_URL")?);
    fetch(info, url).json(&[query]).send().await?.ok()?.text().await
}

/// Sends a message. The key lets the receiver know a repeat.
pub async fn send(info: &StepInfo, to: &str, text: &str) -> Result<()> {
    let url = format!("{}/messages", stepwell::env().var("TOOLS_URL")?);
    fetch(info, url).header("idempotency-key", &info.idempotency_key).json(&[to, text]).send().await?.ok()?;
    Ok(())
}
