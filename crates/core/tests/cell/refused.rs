//! A storage that does not take what is written: rows that are too large, and runs that it takes nothing of.

use stepwell_core::{
    cell::{Action, Cell, Fault, NewRun},
    run::{CallEnd, UNSTORED_MAX},
};
use stepwell_protocol::{
    Code, Payload,
    program::{Command, Then},
    rest::{RunView, Status},
};

use crate::{Memory, at, calls, memory::Failed, new_run, said, step};

/// A row of the platform's storage.
const ROW_BYTES: usize = 2_000_000;

fn text(bytes: usize) -> Payload {
    Payload::from_text(format!("\"{}\"", "x".repeat(bytes - 2))).expect("a string is JSON")
}

/// Calls a program again and again that runs a step and commits this; says how often the step has run.
fn runs_until_it_stops(rows: &Memory, cell: &mut Cell, commands: &[Command], then: &Then) -> u32 {
    let (mut now, mut runs) = (at(0), 0);
    for _ in 0..200 {
        for (number, epoch) in calls(cell) {
            cell.activation(rows, now, number, epoch).expect("it is there");
            runs += 1;
            cell.heard_from(now, number, epoch);
            let commit = said(rows.get(number).head, commands.to_vec(), then.clone());
            let committed = cell.commit(rows, now, number, epoch, commit, 1);
            let end = match committed {
                Ok(_) => CallEnd::Returned,
                Err(Fault::Storage(Failed::Refused)) => CallEnd::Lost("the storage failed".into()),
                Err(fault) => panic!("{fault:?}"),
            };
            cell.call_ended(rows, now, number, epoch, end).expect("it is recorded");
        }
        now = now.plus_millis(40_000);
        cell.alarm(rows, now).expect("the rows can be read");
    }
    runs
}

#[test]
fn an_output_that_does_not_fit_beside_the_input_fails_the_run_and_its_step_runs_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    rows.row_bytes_max.set(Some(ROW_BYTES));
    let new = NewRun { input: text(1_200_000), ..new_run(None) };
    cell.start(&rows, at(0), new).expect("it is accepted");
    let then = Then::Complete { output: text(1_200_000) };
    let runs = runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then);
    assert_eq!(runs, 1, "the step's side effect");
    assert_eq!(rows.get(1).status(), Status::Failed);
    let result = rows.result(1);
    assert!(result.contains("payload_too_large") && result.contains("79"), "{result}");
    assert_eq!(rows.events(1), 1, "what the step gave is on record");
}

#[test]
fn a_run_whose_commits_the_storage_never_takes_is_paused_and_says_so() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id;
    // A row that the machine takes for small: whatever the reason, the storage takes no output of this size.
    rows.row_bytes_max.set(Some(10_000));
    let then = Then::Complete { output: text(20_000) };
    let runs = runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then);
    assert_eq!(runs, UNSTORED_MAX);
    let run = rows.get(1);
    let view = RunView::from(&run);
    let problem = view.problem.expect("it says why");
    assert!(view.status == Status::Paused && problem.detail.contains("storage"), "{problem:?}");
    assert_eq!(problem.code, Code::Internal);
    // A person has mended the storage.
    rows.row_bytes_max.set(None);
    cell.act(&rows, at(9_000_000), &id, "root", Action::Resume).expect("it goes on");
    assert_eq!(runs_until_it_stops(&rows, &mut cell, &[step("charge")], &then), 1);
    assert_eq!(rows.get(1).status(), Status::Completed);
}
