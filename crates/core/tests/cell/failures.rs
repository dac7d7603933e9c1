//! Failed runs are counted in groups, by one row each, and outlive the runs.

use stepwell_core::{
    cell::{Action, Cell, FAILURE_GROUPS_MAX, FAILURES_KEPT_MS, NewRun},
    object::Hosted as _,
    run::CallEnd,
};
use stepwell_protocol::{
    Code, Failure, Op, OpKind, Payload, RunId, Seq,
    failures::FailureGroup,
    program::{Command, Retry, Then},
};

use crate::{at, memory::Memory, new_run, said};

fn step(name: &str) -> Op {
    Op { kind: OpKind::Step, name: name.into(), occurrence: 0 }
}

/// A run of this workflow whose program ends like this.
fn run(rows: &Memory, cell: &mut Cell, ms: u64, workflow: &str, commands: Vec<Command>, then: Then) -> RunId {
    let new = NewRun { workflow: workflow.into(), ..new_run(None) };
    let id = cell.start(rows, at(ms), new).expect("it is accepted").run.id;
    end(rows, cell, ms, &id, commands, then);
    id
}

fn end(rows: &Memory, cell: &mut Cell, ms: u64, id: &RunId, commands: Vec<Command>, then: Then) {
    let run = rows.get(id.number);
    cell.commit(rows, at(ms), id.number, run.epoch, said(run.head, commands, then), ms).expect("in turn");
    cell.call_ended(rows, at(ms), id.number, run.epoch, CallEnd::Returned).expect("it is recorded");
    cell.begin();
}

fn fail(message: &str) -> Then {
    Then::Fail { failure: Failure::new(message) }
}

fn failures(rows: &Memory, cell: &mut Cell, ms: u64, workflow: Option<&str>) -> Vec<FailureGroup> {
    cell.failures(rows, at(ms), workflow).expect("they can be read")
}

#[test]
fn failures_that_are_alike_are_one_group_of_one_row_and_others_write_none() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    run(&rows, &mut cell, 1, "pay", vec![], Then::Complete { output: Payload::null() });
    assert_eq!(rows.failures.writes.get(), 0, "a run that completes writes none");
    let first = run(&rows, &mut cell, 2, "pay", vec![], fail("order 17 is unknown"));
    let second = run(&rows, &mut cell, 9, "pay", vec![], fail("order 4711 is unknown"));
    assert_eq!(rows.failures.writes.get(), 2, "a failed run writes one");
    let [group] = &failures(&rows, &mut cell, 10, None)[..] else { panic!("one group") };
    assert_eq!((group.message.as_str(), group.count), ("order <n> is unknown", 2));
    assert_eq!((group.first_at, group.last_at), (at(2), at(9)));
    assert_eq!(group.runs, [second, first], "the latest first");
    assert_eq!((group.workflow.as_str(), &group.step, group.code), ("pay", &None, None));
}

#[test]
fn workflow_step_code_and_message_tell_groups_apart() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let broken = || Command::StepFailed {
        op: step("charge"),
        attempt: 1,
        failure: Failure::terminal("busy"),
        retry: Retry::default(),
        retry_after_ms: None,
        took_ms: None,
    };
    run(&rows, &mut cell, 1, "pay", vec![], fail("busy"));
    run(&rows, &mut cell, 2, "ship", vec![], fail("busy"));
    run(&rows, &mut cell, 3, "pay", vec![broken()], fail("step 'charge' failed: busy"));
    let timed_out = Then::Fail { failure: Failure::coded(Code::StepTimedOut, "busy") };
    run(&rows, &mut cell, 4, "pay", vec![], timed_out);
    // Another failure than that of the step, which the workflow has survived.
    run(&rows, &mut cell, 5, "pay", vec![broken()], fail("busy"));
    let all = failures(&rows, &mut cell, 6, None);
    let mut told: Vec<_> = all
        .iter()
        .map(|group| {
            (group.workflow.as_str(), group.step.as_deref(), group.code, group.message.as_str(), group.count)
        })
        .collect();
    told.sort_by_key(|(workflow, step, code, ..)| (*workflow, *step, code.is_some()));
    assert_eq!(
        told,
        [
            ("pay", None, None, "busy", 2),
            ("pay", None, Some(Code::StepTimedOut), "busy", 1),
            ("pay", Some("charge"), None, "busy", 1),
            ("ship", None, None, "busy", 1),
        ]
    );
    let of_ship = failures(&rows, &mut cell, 6, Some("ship"));
    assert!(of_ship.iter().all(|group| group.workflow == "ship") && of_ship.len() == 1, "{of_ship:?}");
}

#[test]
fn a_run_that_fails_again_is_counted_again_and_named_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let id = run(&rows, &mut cell, 1, "pay", vec![], fail("busy"));
    cell.act(&rows, at(5), &id, "root", Action::Restart { from: None }).expect("it may");
    end(&rows, &mut cell, 6, &id, vec![], fail("busy"));
    let [group] = &failures(&rows, &mut cell, 7, None)[..] else { panic!("one group") };
    assert_eq!((group.count, group.runs.as_slice()), (2, [id].as_slice()));
}

/// A word of its own for each number.
fn word(number: u64) -> String {
    number.to_string().chars().map(|digit| char::from(digit as u8 + 49)).collect()
}

#[test]
fn a_workflow_that_fails_in_many_ways_pushes_out_no_other() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    run(&rows, &mut cell, 0, "ship", vec![], fail("busy"));
    for n in 1..2 * FAILURE_GROUPS_MAX as u64 {
        run(&rows, &mut cell, n, "pay", vec![], fail(&format!("{} is down", word(n))));
    }
    assert_eq!(failures(&rows, &mut cell, 2_000, Some("ship")).len(), 1);
    assert_eq!(failures(&rows, &mut cell, 2_000, None).len(), FAILURE_GROUPS_MAX);
}

#[test]
fn as_many_groups_are_kept_as_there_is_room_for_and_as_long_as_they_may_be() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    for n in 0..FAILURE_GROUPS_MAX as u64 + 3 {
        run(&rows, &mut cell, n, "pay", vec![], fail(&format!("{} is down", word(n))));
    }
    let kept = failures(&rows, &mut cell, 1_000, None);
    assert_eq!(kept.len(), FAILURE_GROUPS_MAX);
    assert_eq!(kept.iter().map(|group| group.last_at).min(), Some(at(3)), "the oldest are gone");
    let later = FAILURES_KEPT_MS + 500;
    assert!(failures(&rows, &mut cell, later, None).iter().all(|group| group.last_at >= at(500)));
    run(&rows, &mut cell, FAILURES_KEPT_MS * 2, "pay", vec![], fail("new"));
    assert_eq!(rows.failures.all().len(), 1, "what nobody is shown is deleted with the next new one");
}

#[test]
fn a_run_fails_even_if_that_cannot_be_counted() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    rows.failures.refuses.set(true);
    let id = run(&rows, &mut cell, 1, "pay", vec![], fail("busy"));
    assert_eq!(rows.get(id.number).status().as_str(), "failed");
    assert_eq!(failures(&rows, &mut cell, 2, None), []);
    assert_eq!(rows.get(id.number).head, Seq(0));
}
