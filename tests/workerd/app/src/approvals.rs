//! A workflow that is completed by a link.

use stepwell::{Decision, fetch, prelude::*};

/// What `approve` is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Approval {
    /// Who gets the link.
    pub to: String,
    /// How long it works.
    pub expires_ms: u64,
    /// How long it takes after the link was sent until the run waits.
    #[serde(default)]
    pub pause_ms: u64,
}

/// Sends its link before it waits and after, and returns what was decided.
#[workflow]
pub async fn approve(ctx: Ctx, approval: Approval) -> Result<Option<Decision>> {
    let token = ctx
        .token("approval")
        .title("Refund order 42?")
        .detail("Ada paid 19.00 EUR on Monday.\nShe says that <nothing> arrived.")
        .expires(Duration::from_millis(approval.expires_ms));
    let url = token.url();
    let send = async |info: stepwell::StepInfo| {
        let sent = fetch(&info, &approval.to).header("idempotency-key", &url).send().await?;
        Ok(sent.ok()?.status())
    };
    ctx.step_with("mail", send).await?;
    if approval.pause_ms > 0 {
        ctx.sleep("pause", Duration::from_millis(approval.pause_ms)).await;
    }
    let decided = token.or_none().await?;
    ctx.step_with("receipt", send).await?;
    Ok(decided)
}
