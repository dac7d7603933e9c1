//! Which generations the pool has, as far as this isolate has seen.
//!
//! While a growth is deployed, some Workers do not know of it yet, and get ids of runs that others have started. The
//! platform makes an object of whatever name it is asked for, so a cell cannot be asked whether it is there. The
//! deployment's catalog can: whoever starts runs in a pool that has grown has told it of all generations before. What
//! was once confirmed is remembered, because a number never changes.

use std::cell::{Cell, RefCell};

use stepwell_core::pools::Found;
use stepwell_protocol::{Code, Place, RunId};

use super::{error::Refusal, front::Front, known_namespaces};
use crate::calls::catalog::Request;

thread_local! {
    // Whether the catalog knows all generations that this Worker knows.
    static IS_TOLD: Cell<bool> = const { Cell::new(false) };
    // How many cells each generation has, as the catalog has said.
    static SEEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Lets the catalog know of all generations, before a run is started in one of them. Refuses numbers that do not go
/// on from those that it knows. A pool that has never grown is what everybody knows.
pub async fn tell(front: &Front) -> Result<(), Refusal> {
    if !front.deployment().pool.has_grown() || IS_TOLD.get() {
        return Ok(());
    }
    let cells = front.deployment().pool.cells();
    let () = front.registry().ask_catalog(Request::UsePool { cells }).await?;
    IS_TOLD.set(true);
    Ok(())
}

/// A run's id, if a cell of this deployment could hold it. No cell is made for any other.
pub async fn locate(front: &Front, id: &str) -> Result<RunId, Refusal> {
    if let Ok(id) = id.parse::<RunId>()
        && has(front, &id.place).await?
    {
        return Ok(id);
    }
    let detail =
        "There is no run with this id. Check that the id is complete and belongs to this deployment.";
    Err(Refusal::new(Code::RunNotFound, detail))
}

/// Whether this deployment has the namespace, and a cell at a place. Makes neither.
pub async fn has_cell(front: &Front, place: &Place) -> Result<bool, Refusal> {
    Ok(known_namespaces::has(front.env(), front.namespace()).await? && has(front, place).await?)
}

/// Whether there is a cell at a place. Makes none.
async fn has(front: &Front, place: &Place) -> Result<bool, Refusal> {
    match front.deployment().pool.find(place) {
        Found::Yes => Ok(true),
        Found::No => Ok(false),
        Found::Unknown if SEEN.with_borrow(|seen| Found::of(seen, place)) == Found::Yes => Ok(true),
        Found::Unknown if !front.has_catalog() => Ok(false),
        Found::Unknown => {
            let cells: Vec<u32> = front.registry().ask_catalog(Request::ShowPool).await?;
            let found = Found::of(&cells, place);
            SEEN.set(cells);
            Ok(found == Found::Yes)
        }
    }
}
