//! Stored rows: what this release wrote, or another one, or nobody.

use stepwell_core::{
    access::Credential,
    catalog::{Catalog, Numbers, Row},
    run::{Run, Tail, Trailer},
    stream::{PublishedMark, Reader},
};
use stepwell_protocol::{Event, Place, RunId, Seq, Timestamp, rest::RunView};

use crate::{json, parted, text};

/// The state of a run, and in the next line the last position of its journal.
pub fn run_row(data: &[u8]) {
    let Some(text) = text(data) else { return };
    json::check::<Event>(text);
    json::check::<Trailer>(text);
    json::check::<PublishedMark>(text);
    json::check::<Reader>(text);
    let (state, head) = parted(text);
    let tail =
        Tail { head: Seq(head.parse().unwrap_or_default()), trailer: Trailer::default(), quarantined: false };
    let Some(run) = read(state, tail.clone()) else { return };
    let row = run.to_row();
    let again = read(&row.state, tail).expect("it was just written").to_row();
    json::assert_same(&row.state, &again.state);
    assert_eq!((row.status, row.wake_at, row.ended_at), (again.status, again.wake_at, again.ended_at));
    assert!(row.wake_at.is_none_or(|at| at <= Timestamp::MAX));
    assert!(json::read_back::<RunView>(&json::write(&RunView::from(&run))).is_some());
    json::write(&run.why(Timestamp::from_millis(1_700_000_000_000)));
}

fn read(state: &str, tail: Tail) -> Option<Run> {
    let place = Place { pool: "default".into(), generation: 1, cell: 0 };
    let id = RunId { place, number: 1, suffix: RunId::suffix_from(7) };
    let created_at = Timestamp::from_millis(1_700_000_000_000);
    Run::from_row(id, "order".into(), created_at, state, tail).ok()
}

/// Rows of a catalog, a line each: kind, name and value.
pub fn catalog_rows(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let rows: Vec<_> = text.lines().map(row).collect();
    let Ok(catalog) = Catalog::from_rows(&rows, Numbers { seq: 7, ..Numbers::default() }) else { return };
    let now = Timestamp::from_millis(1_700_000_000_000);
    assert!(
        json::read_back::<stepwell_protocol::access::Settings>(&json::write(&catalog.settings())).is_some()
    );
    for view in catalog.keys(now) {
        let key = catalog.key(&view.id);
        let stranger = Credential { id: view.id.clone(), hash: "no hash has this form".into() };
        assert_eq!(catalog.grant(now, &stranger), None, "a key is good without its secret");
        if let Some(key) = key {
            let brought = Credential { id: key.id.clone(), hash: key.hash.clone() };
            if let Some(grant) = catalog.grant(now, &brought) {
                assert!(!grant.is_over(now));
            }
        }
    }
}

fn row(line: &str) -> Row {
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
    Row { kind: kind.into(), name: name.into(), value: (!value.is_empty()).then(|| value.into()) }
}
