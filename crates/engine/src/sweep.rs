//! The last net: looks after cells that nobody asks anything.
//!
//! A cell wakes by its alarm. Should the platform ever lose one, the next request to the cell arms it again; a cell
//! that only holds sleeping runs may get none for a year. So the deployment's cron trigger touches every cell.

use futures::stream::{self, StreamExt as _};
use stepwell_protocol::access::NamespaceList;
use worker::Env;

use crate::{catalog::Request, cell::Operation, http::Front, settings::DEFAULT_NAMESPACE};

/// How many cells are touched at once: what one invocation may have under way.
const AT_ONCE: usize = 5;

/// Lets every cell compare its alarm with its rows.
pub async fn sweep(env: Env) {
    let front = match Front::new(env) {
        Ok(front) => front,
        Err(refusal) => return worker::console_error!("stepwell: nothing was touched: {}", refusal.0),
    };
    let cells = namespaces(&front).await.into_iter().flat_map(|name| {
        let front = front.within(&name);
        front.cells().map(move |place| (front.clone(), place))
    });
    let touched = stream::iter(cells).map(|(front, place)| {
        // What went wrong is in the log; the others are touched all the same, and this one the next time.
        async move { front.ask(&place, Operation::Touch).await.is_ok() }
    });
    let failed = touched.buffer_unordered(AT_ONCE).filter(|ok| std::future::ready(!ok)).count().await;
    if failed > 0 {
        worker::console_error!("stepwell: {failed} cells could not be touched");
    }
}

/// All namespaces. A deployment without a catalog has only the default one.
async fn namespaces(front: &Front) -> Vec<String> {
    let mut names = vec![DEFAULT_NAMESPACE.to_owned()];
    if front.has_catalog() {
        match front.ask_catalog::<NamespaceList>(Request::ListNamespaces).await {
            Ok(list) => names.extend(list.namespaces.into_iter().map(|namespace| namespace.name)),
            Err(refusal) => worker::console_error!("stepwell: only one namespace is touched: {}", refusal.0),
        }
    }
    names
}
