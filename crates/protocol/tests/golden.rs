//! What was ever written must be read for ever, and be written the same again. Lines are only ever added.

use std::{collections::BTreeSet, fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Code, Event, Problem, Record,
    export::{Export, FORMAT, ReplayReport},
    manifest::Manifest,
    program::{Activation, Answer, Commit, Then},
    rest::{History, RunView, Status},
    stream::{Kind, StreamEvent},
};

/// The values of a file, after a check that each is read and written as it stands there.
fn golden<T: Serialize + DeserializeOwned>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.jsonl"));
    let text = fs::read_to_string(path).expect("the golden files are part of the crate");
    let read = text.lines().map(|line| {
        let value: T = serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
        assert_eq!(serde_json::to_string(&value).expect("it came from JSON"), line, "{name}");
        value
    });
    read.collect()
}

/// The names of all variants among these: an enum's text begins with its variant's name.
fn tags<'a, T: Serialize + 'a>(values: impl IntoIterator<Item = &'a T>) -> BTreeSet<String> {
    let tag = |value: &T| {
        let text = serde_json::to_string(value).expect("it came from JSON");
        text.split('"').nth(1).expect("a variant has a name").to_owned()
    };
    values.into_iter().map(tag).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn every_form_of_an_event_reads_as_it_was_written() {
    let events = golden::<Event>("event");
    let all = names(&[
        "step_finished",
        "step_retrying",
        "step_begun",
        "step_let_in",
        "timer_fired",
        "signal_received",
        "child_invoked",
        "child_started",
        "child_finished",
    ]);
    assert_eq!(tags(&events), all);
    golden::<Record>("record");
}

#[test]
fn every_form_of_a_commit_reads_as_it_was_written() {
    let commits = golden::<Commit>("commit");
    let then = tags(commits.iter().map(|commit| &commit.then));
    assert_eq!(then, names(&["continue", "suspend", "yield", "anew", "complete", "fail", "pause"]));
    let commands = tags(commits.iter().flat_map(|commit| &commit.commands));
    assert_eq!(commands, names(&["step_begun", "step_succeeded", "step_failed", "child_invoked"]));
    let open = tags(commits.iter().flat_map(|commit| match &commit.then {
        Then::Suspend { open } => open.as_slice(),
        Then::Continue { open } | Then::Yield { open } => open.as_deref().unwrap_or_default(),
        Then::Anew { .. } | Then::Complete { .. } | Then::Fail { .. } | Then::Pause { .. } => &[],
    }));
    assert_eq!(open, names(&["sleep", "sleep_until", "wait", "retry", "child"]));
    assert!(commits.iter().any(|commit| !commit.patches.is_empty() && commit.progress.is_some()));
}

#[test]
fn a_commit_without_commands_may_leave_them_out() {
    let commit: Commit =
        serde_json::from_str(r#"{"epoch":1,"base":0,"then":{"continue":{}}}"#).expect("it has a default");
    assert!(commit.commands.is_empty());
}

#[test]
fn every_form_of_an_answer_reads_as_it_was_written() {
    assert_eq!(tags(&golden::<Answer>("answer")), names(&["go", "stop", "refused"]));
}

#[test]
fn an_activation_reads_as_it_was_written() {
    golden::<Activation>("activation");
    golden::<Manifest>("manifest");
}

#[test]
fn every_status_of_a_run_reads_as_it_was_written() {
    let runs = golden::<RunView>("run_view");
    let mut shown: Vec<_> = runs.iter().map(|run| run.status).collect();
    shown.dedup();
    assert_eq!(shown.len(), 8);
    for status in shown {
        assert_eq!(tags([&status]), names(&[status.as_str()]), "its word is the same everywhere");
    }
    assert!(runs.iter().all(|run| run.ended_at.is_some() == run.status.is_terminal()));
    assert!(!Status::Paused.is_terminal());
    golden::<History>("history");
}

#[test]
fn an_exported_run_and_a_report_read_as_they_were_written() {
    let exports = golden::<Export>("export");
    assert!(exports.iter().all(|export| export.format == FORMAT));
    let cut = exports.iter().find(|export| export.events.len() > export.counted().count());
    assert!(cut.is_some(), "none of them was taken back");
    golden::<ReplayReport>("replay_report");
}

#[test]
fn every_problem_reads_as_it_was_written_and_has_its_status() {
    let problems = golden::<Problem>("problem");
    assert_eq!(problems.iter().map(|problem| problem.code).collect::<Vec<_>>(), Code::ALL);
    for problem in problems {
        assert_eq!(problem.status, problem.code.status());
        assert_eq!(problem.title, problem.code.title());
        assert_eq!(tags([&problem.code]), names(&[problem.code.as_str()]), "its text is the same everywhere");
        assert!(problem.page.is_empty() || problem.page == problem.code.page());
    }
}

#[test]
fn every_event_of_a_stream_reads_as_it_was_written() {
    let events = golden::<StreamEvent>("stream_event");
    let kinds: BTreeSet<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds.len(), 11);
    assert!(kinds.iter().all(|kind| tags([kind]) == names(&[kind.as_str()])));
    assert!(Kind::SELECTABLE.iter().all(|kind| kinds.contains(kind) && kind.as_str().parse() == Ok(*kind)));
}
