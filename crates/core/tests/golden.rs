//! The state of a run that was ever stored must be read for ever, and be stored the same again. Lines are
//! only ever added.

use std::collections::BTreeSet;

use stepwell_core::run::{Run, Tail};
use stepwell_protocol::{Place, RunId, Timestamp};

#[test]
fn every_stored_state_reads_as_it_was_written() {
    let mut statuses = BTreeSet::new();
    for line in include_str!("golden/run_state.jsonl").lines() {
        let id = RunId {
            place: Place { pool: "default".into(), generation: 1, cell: 0 },
            number: 1,
            suffix: RunId::suffix_from(7),
        };
        let created_at = Timestamp::from_millis(1_700_000_000_000);
        let run = Run::from_row(id, "order".into(), created_at, line, Tail::default())
            .unwrap_or_else(|corrupt| panic!("{corrupt}: {line}"));
        let row = run.to_row();
        assert_eq!(row.state, line);
        statuses.insert(row.status);
    }
    let all = ["cancelled", "completed", "failed", "paused", "pending", "running", "waiting"];
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), all);
}
