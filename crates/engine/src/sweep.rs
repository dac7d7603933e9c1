//! The last net: looks after cells, catalogs and other stations that nobody asks anything.
//!
//! An object wakes by its alarm. Should the platform ever lose one, the next request to the object arms it again; a cell
//! that only holds sleeping runs may get none for a year. So the deployment's cron trigger touches them, a bounded
//! number each time (`stepwell_core::sweep`). Where one invocation does not reach all of them, the first cell of the
//! default namespace keeps the cursor. What the app declares is read too, for apps whose runs nobody starts.

use futures::stream::{self, StreamExt as _};
use stepwell_core::sweep::{Part, Target, part};
use stepwell_protocol::{Place, access::NamespaceList};
use worker::Env;

use crate::{
    calls::{catalog::Request, cell::Operation},
    http::{Front, pull},
    log,
    settings::DEFAULT_NAMESPACE,
};

/// How many objects are touched at once: what one invocation may have under way.
const AT_ONCE: usize = 5;

/// Lets the next objects compare their alarms with their rows.
pub async fn sweep(env: Env) {
    let front = match Front::new(env) {
        Ok(front) => front,
        Err(refusal) => return log::error!("nothing was touched: {}", refusal.0),
    };
    let places: Vec<_> = front.cells().collect();
    let names = namespaces(&front).await;
    let plan =
        |after| part(names.clone(), &places, front.has_catalog(), after, front.deployment().sweep_calls);
    let first = plan(None);
    let Part { targets, next } = match (&first.next, places.first()) {
        (Some(_), Some(keeper)) => plan(cursor(&front, keeper).await.as_ref()),
        (None, _) | (_, None) => first,
    };
    let count = targets.len();
    let touched = stream::iter(targets).map(|target| {
        let front = front.within(&target.namespace);
        // What went wrong is in the log; the others are touched all the same, and this one the next time.
        async move { touch(&front, target).await }
    });
    let failed = touched.buffer_unordered(AT_ONCE).filter(|ok| std::future::ready(!ok)).count().await;
    if failed > 0 {
        log::error!("{failed} objects could not be touched");
    }
    log::info!("the sweep has touched {count} objects, of which {failed} did not answer");
    if front.has_catalog() {
        pull(&front).await;
    }
    if let (Some(next), Some(keeper)) = (next, places.first()) {
        let kept = front.ask(keeper, Operation::KeepSweep { cursor: next.to_string() }).await;
        if let Err(refusal) = kept {
            log::error!("the next sweep begins where this one did: {}", refusal.0);
        }
    }
}

async fn touch(front: &Front, Target { place, .. }: Target) -> bool {
    match place {
        // A cell that cannot read its rows answers, too.
        Some(place) => front.ask(&place, Operation::Touch).await.is_ok_and(|answer| answer.is_success()),
        // It touches the stations of its namespace in turn: some of them each time, with calls of its own.
        None => front.ask_catalog::<()>(Request::Touch).await.is_ok(),
    }
}

/// Where the last sweep has stopped.
async fn cursor(front: &Front, keeper: &Place) -> Option<stepwell_core::sweep::Cursor> {
    match front.ask_json::<Option<String>>(keeper, Operation::ShowSweep).await {
        Ok(cursor) => cursor.and_then(|text| text.parse().ok()),
        Err(refusal) => {
            log::error!("the sweep begins anew: {}", refusal.0);
            None
        }
    }
}

/// All namespaces. A deployment without a catalog has only the default one.
async fn namespaces(front: &Front) -> Vec<String> {
    let mut names = vec![DEFAULT_NAMESPACE.to_owned()];
    if front.has_catalog() {
        match front.ask_catalog::<NamespaceList>(Request::ListNamespaces).await {
            Ok(list) => names.extend(list.namespaces.into_iter().map(|namespace| namespace.name)),
            Err(refusal) => log::error!("only one namespace is touched: {}", refusal.0),
        }
    }
    names
}
