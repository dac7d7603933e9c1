//! Names of things: runs, places, operations, pools.

use std::collections::BTreeSet;

use stepwell_core::pools::{Ask, CELLS_MAX, Found, GENERATIONS_MAX, Pool, Walk};
use stepwell_protocol::{Op, Place, RunId, Timestamp};

use crate::{json, text};

/// How many cells of a pool are looked at: there may be many, and all are alike.
const PLACES_LOOKED_AT: usize = 64;

/// Ids of runs, and places of cells: each has one spelling.
pub fn run_id(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(id) = text.parse::<RunId>() {
        assert_eq!(id.to_string(), text);
        assert_eq!(id.place.to_string().parse(), Ok(id.place.clone()));
        assert!((1..=1 << 53).contains(&id.number) && id.place.generation > 0);
        assert!(text.parse::<Place>().is_err(), "{text} is a run's id and a place");
        let name = id.place.object_name("acme");
        assert_eq!(name.matches('/').count(), 3, "{name} leads elsewhere");
    }
    if let Ok(place) = text.parse::<Place>() {
        assert_eq!(place.to_string(), text);
        let id = format!("{text}-1-{}", RunId::suffix_from(7));
        assert_eq!(id.parse::<RunId>().is_ok(), place.generation > 0, "{id}");
    }
}

/// Operations, as a journal names them.
pub fn operation(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(op) = text.parse::<Op>() else { return };
    assert_eq!(op.to_string().parse(), Ok(op.clone()));
    assert_eq!(json::read_back::<Op>(&json::write(&op)), Some(op));
}

/// The generations of a pool, as a deployment writes them.
pub fn pool(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(pool) = Pool::parse("default", text) else { return };
    assert!((1..=CELLS_MAX).contains(&pool.cells_of_latest()));
    let places: Vec<_> = pool.places().take(PLACES_LOOKED_AT).collect();
    assert!(!places.is_empty() && places.iter().all(|place| pool.find(place) == Found::Yes));
    assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len(), "two cells have one place");
    let hash = data.iter().fold(7_u64, |hash, byte| hash.rotate_left(9) ^ u64::from(*byte));
    assert_eq!(pool.find(&pool.any(hash)), Found::Yes);
    for now in [0, 1_800_000_000_000, u64::MAX] {
        walk(&pool, hash, Timestamp::from_millis(now));
    }
}

/// A key's way goes up the generations and ends in the latest.
fn walk(pool: &Pool, hash: u64, now: Timestamp) {
    let mut walk = Walk::new(pool, hash, now, 30);
    for _ in 0..GENERATIONS_MAX {
        match walk.ask() {
            Ask::Reserve { at, to } => {
                assert_eq!([pool.find(&at), pool.find(&to)], [Found::Yes; 2]);
                assert_eq!(to.generation, at.generation + 1);
                assert!(!walk.clone().sent_on(at), "it goes in circles");
                assert!(walk.sent_on(to));
            }
            Ask::Start { at } => {
                assert_eq!(at.generation, pool.any(hash).generation);
                return;
            }
        }
    }
    panic!("it does not end");
}
