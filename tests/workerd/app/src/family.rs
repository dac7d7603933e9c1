//! Runs that invoke runs: a tree in which each parent says whom it has heard of.

use futures::future::join_all;
use stepwell::prelude::*;

use crate::ledger::Ledger;

/// A member of a family.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The ledger's address; nothing is written down without one.
    pub ledger: Option<String>,
    /// What it is called: its parent's name and a number.
    pub name: String,
    /// How many children it has, each of its children, and so on.
    pub children: Vec<u32>,
    /// How often it continues as new before anything else.
    pub lives: u32,
    /// How often each of its first children does, every so many.
    pub child_lives: Option<(u32, usize)>,
}

/// Gives the names of all that came out of it: those below it in order, and its own.
#[workflow(timeout = "20m")]
pub async fn family(ctx: Ctx, me: Member) -> Result<Vec<String>> {
    if me.lives > 0 {
        ctx.step("live", async || Ok(())).await?;
        let lives = me.lives - 1;
        ctx.continue_as_new(&Member { lives, ..me }).await;
    }
    let (count, below) =
        me.children.split_first().map_or((0, vec![]), |(count, below)| (*count, below.to_vec()));
    let children = (0..count as usize).map(|number| {
        let lives = me.child_lives.filter(|(_, every)| number % every == 0).map_or(0, |(lives, _)| lives);
        let child = Member {
            ledger: me.ledger.clone(),
            name: format!("{}.{number}", me.name),
            children: below.clone(),
            lives,
            child_lives: None,
        };
        ctx.invoke(family, child)
    });
    let mut names = Vec::new();
    for child in join_all(children).await {
        names.extend(child?);
    }
    let name = me.name.clone();
    let written = async |info| match &me.ledger {
        Some(ledger) => Ledger::new(&ctx, ledger).write(&name, &info).await.map(|_| ()),
        None => Ok(()),
    };
    ctx.step_with("report", written).await?;
    names.push(me.name.clone());
    Ok(names)
}

/// What a guardian invokes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Charge {
    /// The workflow.
    pub workflow: String,
    /// What it is started with.
    pub input: serde_json::Value,
    /// How long the guardian waits for it.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether the guardian does not wait for it at all.
    #[serde(default)]
    pub detached: bool,
}

/// Invokes one child, and says what became of it.
#[workflow]
pub async fn guardian(ctx: Ctx, charge: Charge) -> Result<serde_json::Value> {
    let child = ctx.invoke_named::<_, serde_json::Value>(charge.workflow, charge.input).name("charge");
    if charge.detached {
        return Ok(serde_json::json!({ "started": child.detached().await?.to_string() }));
    }
    let child = match charge.timeout_ms {
        Some(ms) => child.timeout(Duration::from_millis(ms)),
        None => child,
    };
    Ok(match child.await {
        Ok(output) => serde_json::json!({ "output": output }),
        Err(error) => serde_json::json!({
            "code": error.code(),
            "message": error.message(),
            "child": error.child().map(|child| child.run.as_ref().map(ToString::to_string)),
        }),
    })
}

/// Waits for the signal `go`, and gives what comes with it.
#[workflow]
pub async fn ward(ctx: Ctx, _input: serde_json::Value) -> Result<serde_json::Value> {
    Ok(ctx.wait("go").await?)
}
