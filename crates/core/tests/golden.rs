//! What was ever stored of a run, in its row and beside the last event of its journal, must be read for ever, and be
//! stored the same again. Lines are only ever added.

use std::collections::BTreeSet;

use stepwell_core::run::{Inbox, Mark, Run, Tail, Trailer};
use stepwell_protocol::{Epoch, Place, RunId, Seq, Timestamp};

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

#[test]
fn every_stored_trailer_reads_as_it_was_written() {
    let read = include_str!("golden/trailer.jsonl").lines().map(|line| {
        let trailer: Trailer = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(serde_json::to_string(&trailer).expect("it came from JSON"), line);
        trailer
    });
    let trailers: Vec<_> = read.collect();
    let mark = Mark {
        epoch: Epoch(2),
        base: Seq(7),
        hash: 0xfedc_ba98_7654_3210,
        through: Seq(9),
        turn: 3,
        erred: true,
    };
    assert_eq!(trailers[3].mark, Some(mark), "each field is read as what it is");
    assert_eq!(trailers[4], Trailer { inbox: Inbox { unread: 2, bytes: 17 }, ..Trailer::default() });
    // Every field is there and left out.
    let has = |found: fn(&Trailer) -> bool| trailers.iter().any(found) && !trailers.iter().all(found);
    assert!(has(|trailer| trailer.mark.is_some()) && has(|trailer| !trailer.inbox.is_empty()));
    assert!(has(|trailer| trailer.children.count() == 5));
    assert!(has(|trailer| trailer.mark.is_some_and(|mark| mark.turn > 0)));
    assert!(has(|trailer| trailer.mark.is_some_and(|mark| mark.erred)));
}
