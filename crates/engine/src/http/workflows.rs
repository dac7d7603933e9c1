//! The app's workflows, and how their runs are treated, as this isolate remembers them.
//!
//! Starts are served from here without a call of the app; what is older than [`FRESH_MS`] is served as it is and read
//! again behind the answer, so a deployment of the app is noticed. What it declares is then passed on to the catalog
//! ([`manifest`](super::manifest)).

use std::cell::RefCell;

use stepwell_core::{
    ordered::{OrdMap, OrdSet},
    sorting::sort_by,
};
use stepwell_promises as promises;
use stepwell_protocol::{
    Code,
    program::{WorkflowDescription, is_reserved},
};
use wasm_bindgen::JsValue;

use super::{error::Refusal, front::Front, manifest::saw};
use crate::{calls::catalog::Request, log, runtime, terms::Terms};

/// How long what the app said is taken for what it would say.
const FRESH_MS: u64 = 10_000;

type Workflows = OrdMap<String, Terms>;

#[derive(Default)]
struct Known {
    workflows: Workflows,
    /// When the app was last asked, whether it has answered or not: one question at a time.
    asked_at_ms: u64,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// How runs of a workflow are treated. Refuses a workflow that the app does not have. What the app said once is
/// remembered, so that a start costs no call; it is read again behind the answer now and then, and at once for a name
/// that is new.
pub async fn terms(front: &Front, name: &str) -> Result<Terms, Refusal> {
    if let Some((terms, is_stale)) = find(name) {
        if is_stale {
            read_again(front);
        }
        return Ok(terms);
    }
    // A caller who may not start it makes nobody ask the app.
    let seen: Option<OrdSet<String>> =
        if front.is_limited() { front.ask_catalog(Request::SeenWorkflows).await? } else { None };
    // An app that does not answer may be on its way: that refuses nobody. What it has declared before holds, above all its
    // limits.
    let Some(workflows) = read(front).await else {
        let declared = declared_before(front, name).await;
        return Ok(declared.unwrap_or_else(|| Terms::unsaid(front.deployment())));
    };
    if let Some(terms) = workflows.get(name).cloned() {
        replace(workflows);
        return Ok(terms);
    }
    let is_seen = |name: &&String| seen.as_ref().is_none_or(|seen| seen.contains(*name));
    let names: Vec<_> = workflows.keys().filter(is_seen).map(String::as_str).collect();
    let mut detail = format!("The app has no workflow '{name}'.");
    if !names.is_empty() {
        detail = format!("{detail} It has: {}.", names.join(", "));
    }
    Err(Refusal::new(Code::WorkflowNotFound, detail))
}

/// What the app has declared about a workflow before, as far as the catalog knows.
async fn declared_before(front: &Front, name: &str) -> Option<Terms> {
    if !front.has_catalog() {
        return None;
    }
    let asked = front.registry().ask_catalog::<Vec<WorkflowDescription>>(Request::ShowDeclared).await;
    let declared = asked.ok()?.into_iter().find(|workflow| workflow.name == name)?;
    Some(Terms::of(&declared, front.deployment()))
}

/// What the app says about its workflows, by name.
pub async fn described(front: &Front) -> Result<Vec<WorkflowDescription>, Refusal> {
    let mut workflows = front.manifest().await?.workflows;
    workflows.retain(|workflow| !is_reserved(&workflow.name));
    sort_by(&mut workflows, |a, b| a.name.cmp(&b.name));
    Ok(workflows)
}

/// How runs of a workflow are treated, if it is known; and whether the app should be asked again behind the answer.
fn find(name: &str) -> Option<(Terms, bool)> {
    let now_ms = runtime::clock().as_millis();
    KNOWN.with_borrow_mut(|known| {
        let terms = known.workflows.get(name)?.clone();
        let is_stale = now_ms.saturating_sub(known.asked_at_ms) >= FRESH_MS;
        if is_stale {
            known.asked_at_ms = now_ms;
        }
        Some((terms, is_stale))
    })
}

/// The app has said what it has. What it does not have any more is forgotten.
fn replace(workflows: Workflows) {
    let asked_at_ms = runtime::clock().as_millis();
    KNOWN.set(Known { workflows, asked_at_ms });
}

/// Asks the app what it has, behind the answer to the present request.
fn read_again(front: &Front) {
    let front = front.clone();
    let reading = promises::promise(async move {
        // An app that does not answer may be on its way: what is known stays.
        if let Some(workflows) = read(&front).await {
            replace(workflows);
        }
        Ok(JsValue::UNDEFINED)
    });
    if let Err(thrown) = runtime::wait_until(&reading) {
        log::warn!("the workflows are not read again: {}", runtime::message(&thrown));
    }
}

async fn read(front: &Front) -> Option<Workflows> {
    let manifest = front.describe().await?;
    saw(front, &manifest);
    let terms = |workflow: &WorkflowDescription| Terms::of(workflow, front.deployment());
    Some(manifest.workflows.iter().map(|workflow| (workflow.name.clone(), terms(workflow))).collect())
}
