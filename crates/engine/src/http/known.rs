//! The app's workflows as this isolate remembers them. Starts are served from here without a call of the app; what is
//! older than [`FRESH_MS`] is served as it is and read again behind the answer, so a deployment of the app is noticed.
//!
//! Owns: what is remembered, and when to ask again. Does not own: asking ([`super::Front`]).

use std::{cell::RefCell, collections::BTreeMap};

use super::forward::Terms;
use crate::runtime;

/// How long what the app said is taken for what it would say.
const FRESH_MS: u64 = 10_000;

/// The app's workflows by name.
pub type Workflows = BTreeMap<String, Terms>;

#[derive(Default)]
struct Known {
    workflows: Workflows,
    /// When the app was last asked, whether it has answered or not: one question at a time.
    asked_at_ms: u64,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// How runs of a workflow are treated, if it is known; and whether the app should be asked again behind the answer.
pub fn find(name: &str) -> Option<(Terms, bool)> {
    let now_ms = runtime::clock().as_millis();
    KNOWN.with_borrow_mut(|known| {
        let terms = *known.workflows.get(name)?;
        let is_stale = now_ms.saturating_sub(known.asked_at_ms) >= FRESH_MS;
        if is_stale {
            known.asked_at_ms = now_ms;
        }
        Some((terms, is_stale))
    })
}

/// The app has said what it has. What it does not have any more is forgotten.
pub fn replace(workflows: Workflows) {
    let asked_at_ms = runtime::clock().as_millis();
    KNOWN.set(Known { workflows, asked_at_ms });
}
