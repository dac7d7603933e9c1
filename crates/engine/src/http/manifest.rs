//! What the app declares, on its way to the catalog of the default namespace, which decides what holds.
//!
//! A person asks for that (`POST /api/sync`), the sweep does, and so does whoever reads the terms of the app's workflows
//! and finds a manifest that this isolate has not passed on: behind its answer, so nobody waits for it.

use std::cell::RefCell;

use stepwell_promises as promises;
use stepwell_protocol::{
    Code,
    manifest::{Manifest, Outcome, Plan},
    program::WorkflowDescription,
};
use wasm_bindgen::JsValue;

use super::{
    body::{is_empty, read, shown},
    error::Refusal,
    front::Front,
    request::pairs,
    response::Response,
};
use crate::{calls::catalog::Request, log, outbound, runtime, settings::DEFAULT_NAMESPACE};

/// After how long a manifest is passed on again that was passed on before: an older one holds only when nothing newer
/// was seen for ten minutes, so a newer one has to show itself more often than that.
const AGAIN_MS: u64 = 240_000;

/// How long nothing is passed on after something was: while two versions of the app answer in turn, each answer is news.
const PAUSE_MS: u64 = 5_000;

thread_local! {
    static PASSED_ON: RefCell<Option<PassedOn>> = const { RefCell::new(None) };
}

/// What was last passed on, and when.
struct PassedOn {
    /// Nothing, if it was not taken.
    name: Option<String>,
    at_ms: u64,
}

impl PassedOn {
    /// Whether a manifest of this name has to wait, or was passed on a short while ago.
    fn holds_back(&self, name: &str, now_ms: u64) -> bool {
        let is_same = self.name.as_deref() == Some(name);
        now_ms.saturating_sub(self.at_ms) < if is_same { AGAIN_MS } else { PAUSE_MS }
    }
}

/// `POST /api/sync`
pub async fn sync(front: &Front, query: &str, body: &str) -> Result<Response, Refusal> {
    let is_dry = dry_run(query)?;
    if front.namespace() != DEFAULT_NAMESPACE {
        let detail = format!(
            "What the app declares belongs to the namespace '{DEFAULT_NAMESPACE}'. Use the deployment's own key, or \
             one that it makes with `POST /api/namespaces/{DEFAULT_NAMESPACE}/keys` and scope `write`."
        );
        return Err(Refusal::new(Code::Forbidden, detail));
    }
    let manifest = match (is_empty(body), is_dry) {
        (true, _) => front.manifest().await?,
        (false, true) => read(body)?,
        (false, false) => {
            let detail = "The manifest comes from the app itself. Send no body; or add `?dry_run=true` to see what \
                          the manifest in the body would change.";
            return Err(Refusal::new(Code::InvalidRequest, detail));
        }
    };
    check_callbacks(&manifest, front.deployment().is_dev)?;
    front.pass_on(Request::Sync { manifest: Box::new(manifest), is_explicit: true, dry_run: is_dry }).await
}

/// Refuses a manifest that names addresses which must not be called.
fn check_callbacks(manifest: &Manifest, is_dev: bool) -> Result<(), Refusal> {
    for WorkflowDescription { name, callback, .. } in &manifest.workflows {
        let checked = callback.as_ref().map_or(Ok(()), |url| outbound::check("callback", url, is_dev));
        if let Err(problem) = checked {
            let detail = format!("Workflow '{}': {}", shown(name), problem.detail);
            return Err(Refusal::new(Code::InvalidManifest, detail));
        }
    }
    Ok(())
}

/// Whether a sync stores nothing.
pub fn dry_run(query: &str) -> Result<bool, Refusal> {
    let mut is_dry = false;
    for (name, value) in pairs(query) {
        is_dry = match (name.as_str(), value.as_str()) {
            ("dry_run", "true") => true,
            ("dry_run", "false") => false,
            (_, _) => {
                let detail = "The only parameter is `dry_run`, which is `true` or `false`.";
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        };
    }
    Ok(is_dry)
}

/// For the sweep: reads what the app declares, and passes it on.
pub async fn pull(front: &Front) {
    if let Some(manifest) = front.describe().await {
        pass_on(front, manifest).await;
    }
}

/// The app has said what it declares. Passes it on behind the answer to the present request, if this isolate has not
/// done so a short while ago.
pub fn saw(front: &Front, manifest: &Manifest) {
    if !front.has_catalog() || !is_news(manifest) {
        return;
    }
    let (front, manifest) = (front.clone(), manifest.clone());
    let passing = promises::promise(async move {
        pass_on(&front, manifest).await;
        Ok(JsValue::UNDEFINED)
    });
    if let Err(thrown) = runtime::wait_until(&passing) {
        log::warn!("the manifest is not passed on: {}", runtime::message(&thrown));
    }
}

/// Whether a manifest has to be passed on. Whoever is told so does it: nobody else is told the same.
fn is_news(manifest: &Manifest) -> bool {
    let now_ms = runtime::clock().as_millis();
    let version = manifest.version.as_ref().map(|version| version.id.as_str()).unwrap_or_default();
    let name = format!("{} {version}", manifest.identity());
    PASSED_ON.with_borrow_mut(|before| {
        let is_news = !before.as_ref().is_some_and(|before| before.holds_back(&name, now_ms));
        if is_news {
            *before = Some(PassedOn { name: Some(name), at_ms: now_ms });
        }
        is_news
    })
}

async fn pass_on(front: &Front, manifest: Manifest) {
    let request = Request::Sync { manifest: Box::new(manifest), is_explicit: false, dry_run: false };
    match front.registry().ask_catalog::<Plan>(request).await {
        Ok(plan) if plan.outcome == Outcome::Older => {
            log::info!("an older version of the app is still answering");
        }
        Ok(_) => {}
        Err(refusal) => {
            log::error!("what the app declares was not taken: {}", refusal.0);
            // Mistakes stay until the next deployment; anything else is tried again.
            if refusal.0.code != Code::InvalidManifest {
                PASSED_ON.with_borrow_mut(|before| {
                    if let Some(before) = before {
                        before.name = None;
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_manifests_in_turn_are_passed_on_once_in_a_few_seconds() {
        let passed_on = PassedOn { name: Some("a".into()), at_ms: 1_000_000 };
        for (name, later_ms, is_held_back) in [
            ("a", 0, true),
            ("a", AGAIN_MS - 1, true),
            ("a", AGAIN_MS, false),
            ("b", 0, true),
            ("b", PAUSE_MS - 1, true),
            ("b", PAUSE_MS, false),
        ] {
            let now_ms = passed_on.at_ms + later_ms;
            assert_eq!(passed_on.holds_back(name, now_ms), is_held_back, "{name} {later_ms}");
        }
    }

    #[test]
    fn what_was_not_taken_is_tried_again_a_few_seconds_later() {
        let not_taken = PassedOn { name: None, at_ms: 0 };
        assert!(not_taken.holds_back("a", PAUSE_MS - 1));
        assert!(!not_taken.holds_back("a", PAUSE_MS));
    }
}
