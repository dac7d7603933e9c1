//! The counts are those of the rows, whatever happens to the runs while they are counted.

use std::collections::BTreeMap;

use stepwell_core::{
    cell::{Action, COUNT_SLICE, Cell, Rows as _},
    object::Machine as _,
};
use stepwell_protocol::{
    Op, OpKind, Payload, Seq,
    program::{Open, Then},
    rest::{Counts, Status},
};

use crate::{at, memory::Memory, new_run, said};

/// What the rows say.
fn in_rows(rows: &Memory) -> BTreeMap<String, Counts> {
    let mut workflows = BTreeMap::<String, Counts>::new();
    let tally = rows.tally(u64::MAX, usize::MAX).expect("they can be counted");
    for (workflow, status, count) in tally.counts {
        *workflows.entry(workflow).or_default().entry(status).or_default() += count;
    }
    workflows
}

fn assert_counted(cell: &mut Cell, rows: &Memory) {
    let counted = cell.count(rows).expect("the rows can be read");
    assert!(counted.is_all());
    assert_eq!(counted.workflows().iter().collect::<BTreeMap<_, _>>(), in_rows(rows).iter().collect());
}

#[test]
fn counts_follow_every_change_of_a_run() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    assert_counted(&mut cell, &rows);
    let mut ids = Vec::new();
    for workflow in ["a", "b", "a", "b", "c"] {
        let new = stepwell_core::cell::NewRun { workflow: workflow.into(), ..new_run(None) };
        ids.push(cell.start(&rows, at(0), new).expect("it is accepted").run.id);
        assert_counted(&mut cell, &rows);
    }
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait {
        op,
        signal: "s".into(),
        timeout_ms: None,
        shape: stepwell_protocol::Shape::Any,
        asked: None,
        event: None,
    }];
    let epoch = rows.get(1).epoch;
    cell.commit(&rows, at(1), 1, epoch, said(Seq(0), vec![], Then::Suspend { open }), 1).expect("in turn");
    assert_eq!(in_rows(&rows)["a"][&Status::Waiting], 1);
    assert_counted(&mut cell, &rows);
    cell.act(&rows, at(2), &ids[0], "root", Action::Pause).expect("it can be paused");
    assert_counted(&mut cell, &rows);
    cell.act(&rows, at(3), &ids[0], "root", Action::Resume).expect("it can go on");
    assert_counted(&mut cell, &rows);
    for id in &ids {
        cell.act(&rows, at(4), id, "root", Action::Cancel).expect("it can be cancelled");
        assert_counted(&mut cell, &rows);
    }
    cell.act(&rows, at(5), &ids[4], "root", Action::Restart { from: None }).expect("it can be restarted");
    assert_counted(&mut cell, &rows);
}

#[test]
fn runs_that_are_deleted_do_not_count() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    for _ in 0..3 {
        let new = stepwell_core::cell::NewRun { retention_ms: Some(1), ..new_run(None) };
        let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
        cell.act(&rows, at(1), &id, "root", Action::Cancel).expect("it can be cancelled");
    }
    assert_counted(&mut cell, &rows);
    assert_eq!(in_rows(&rows)["w"][&Status::Cancelled], 3);
    for ms in 0..10 {
        cell.alarm(&rows, at(3_600_000 + ms)).expect("the rows can be read");
        assert_counted(&mut cell, &rows);
    }
    assert_eq!(rows.runs(), 0);
    assert_eq!(in_rows(&rows), BTreeMap::new());
}

#[test]
fn a_large_cell_is_counted_in_slices_and_changes_between_them_count_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let runs = COUNT_SLICE + 500;
    let ids: Vec<_> =
        (0..runs).map(|_| cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id).collect();
    assert!(!cell.count(&rows).expect("the rows can be read").is_all());
    // One that was not counted, one that was, and a new one.
    for id in [&ids[3], &ids[runs - 3]] {
        cell.act(&rows, at(1), id, "root", Action::Cancel).expect("it can be cancelled");
    }
    cell.start(&rows, at(1), new_run(None)).expect("it is accepted");
    assert_counted(&mut cell, &rows);
    let epoch = rows.get(1).epoch;
    let end = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    cell.commit(&rows, at(2), 1, epoch, end, 1).expect("in turn");
    assert_eq!(in_rows(&rows)["w"][&Status::Completed], 1);
    assert_counted(&mut cell, &rows);
}

/// A limit of them is about the runs that have not ended, which are the newest.
#[test]
fn a_fresh_instance_counts_the_newest_runs_first() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    for n in 0..COUNT_SLICE + 500 {
        let id = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id;
        if n < COUNT_SLICE {
            cell.act(&rows, at(0), &id, "root", Action::Cancel).expect("it can be cancelled");
        }
    }
    let mut fresh = Cell::new(2);
    let counted = fresh.count(&rows).expect("the rows can be read");
    assert_eq!((counted.is_all(), counted.live()), (false, 500));
    assert_counted(&mut fresh, &rows);
}
