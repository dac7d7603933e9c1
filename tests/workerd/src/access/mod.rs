//! Every route with every kind of caller, and what is left behind.
//!
//! The routes come from the table in `stepwell_protocol::routes`, so a route that is added is asked like all others:
//! one whose check is missing is found here.

mod cross;
mod exploits;
pub mod issuer;
mod matrix;
mod report;
mod traces;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_protocol::routes::Route;

use crate::{
    Answer,
    engine::{Client, Engine, Form},
};
pub use matrix::Kind;
pub use report::Report;
pub(crate) use traces::Secrets;

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How engine and app are put together.
    pub form: Form,
    /// Operations on another namespace's things.
    pub crossings: u32,
    /// Keys that are revoked while they are in use.
    pub revocations: u32,
    /// Where chance comes from.
    pub seed: u64,
}

/// Does it, and says what was counted.
pub async fn run(plan: &Plan) -> Result<Report> {
    let mut engine = Engine::start(plan.form, CELLS).await?;
    let mut secrets = Secrets::default();
    let mut report = matrix::run(&engine.client(), Route::ALL, &mut secrets).await?;
    cross::run(&engine.client(), plan, &mut secrets, &mut report).await?;
    cross::revoke(&engine.client(), plan.revocations, &mut secrets, &mut report).await?;
    exploits::run(&mut report).await;
    engine.engine.kill();
    report.traces = secrets.look_for_traces(&engine.engine, &mut report.files)?;
    report.secrets = secrets.len();
    report.check()?;
    Ok(report)
}

/// Asks these routes as every kind of caller, and counts what is as it must be.
pub async fn ask(root: &Client, routes: &[Route]) -> Result<Report> {
    matrix::run(root, routes, &mut Secrets::default()).await
}

/// Few enough that each cell is asked by everybody.
const CELLS: u32 = 2;

/// Makes a namespace, and gives a client with its first key.
pub async fn namespace(root: &Client, name: &str) -> Result<Client> {
    let made = root.post_json("/api/namespaces", &json!({ "name": name })).await?;
    Ok(root.with_key(text(&made["admin"]["key"])?))
}

/// Makes a key, and gives its id and a client with it.
pub async fn key(admin: &Client, scopes: &[&str]) -> Result<(String, Client)> {
    let made = admin.post_json("/api/keys", &json!({ "name": "a key", "scopes": scopes })).await?;
    Ok((text(&made["id"])?.to_owned(), admin.with_key(text(&made["key"])?)))
}

/// The code of a problem.
pub fn code(answer: &Answer) -> Result<String> {
    ensure!(
        answer.headers.get("content-type").is_some_and(|kind| kind == "application/problem+json"),
        "{} is no problem: {}",
        answer.status,
        answer.body
    );
    let problem: Value = serde_json::from_str(&answer.body)?;
    Ok(text(&problem["code"])?.to_owned())
}

/// The text that a value is.
pub(crate) fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}
