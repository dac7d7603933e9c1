//! What a route takes of its caller, and of which workflow.

use stepwell_core::access::{About, Need};
use stepwell_protocol::{
    Code,
    access::Scope,
    routes::{self, Entry, Route, Subject},
};
use worker::Url;

use super::{
    caller::Caller,
    error::Refusal,
    manifest,
    request::{Names, pairs},
};
use crate::settings::KEY;

/// What a route takes. A path that is no route takes a good key, so that nobody else can try them out.
pub fn of(route: Option<Route>, url: &Url) -> Need {
    let Some(Entry { scope, subject, path: pattern, .. }) = route.map(Route::entry) else {
        return Need { scope: Scope::Read, about: About::Visible };
    };
    let about = match subject {
        Subject::Run => About::Run,
        Subject::Visible => About::Visible,
        Subject::Whole => About::Whole,
        Subject::Workflow => workflow_of(pattern, url.path()).map_or(About::Whole, About::Workflow),
        Subject::Selected => selected(url.query().unwrap_or_default()).map_or(About::Whole, About::Workflow),
    };
    match scope {
        routes::Scope::Open | routes::Scope::Read => Need { scope: Scope::Read, about },
        // A dry run only says what would change.
        routes::Scope::Write if route == Some(Route::Sync) && is_dry_run(url) => {
            Need { scope: Scope::Read, about }
        }
        routes::Scope::Write => Need { scope: Scope::Write, about },
        routes::Scope::Admin => Need { scope: Scope::Admin, about },
        // Refused by `check_root`, once the key was found good.
        routes::Scope::Root => Need { scope: Scope::Read, about: About::Visible },
    }
}

/// Whether a sync stores nothing, as its handler reads the query. One that makes no sense needs as much as one that
/// stores something.
fn is_dry_run(url: &Url) -> bool {
    manifest::dry_run(url.query().unwrap_or_default()).unwrap_or(false)
}

/// Refuses what only the deployment's own key may do.
pub fn check_root(route: Option<Route>, caller: &Caller) -> Result<(), Refusal> {
    let is_for_root = route.is_some_and(|route| route.entry().scope == routes::Scope::Root);
    match caller {
        Caller::Bearer { .. } | Caller::Nobody if is_for_root => {
            let detail = format!("This needs the deployment's own key, {KEY}.");
            Err(Refusal::new(Code::Forbidden, detail))
        }
        Caller::Root | Caller::Bearer { .. } | Caller::Nobody => Ok(()),
    }
}

/// The workflow in a path, as its handler gets it.
pub fn workflow_of(pattern: &'static str, path: &str) -> Option<String> {
    let workflow = Names::of(pattern, path)?.take("workflow");
    (!workflow.is_empty()).then_some(workflow)
}

/// The workflow that a query selects. More than one is none, so that nobody is let in by one and answered by another.
pub fn selected(query: &str) -> Option<String> {
    let mut named = pairs(query).filter(|(name, _)| name == "workflow").map(|(_, value)| value);
    named.next().filter(|_| named.next().is_none())
}
