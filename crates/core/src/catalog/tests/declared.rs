//! Which manifest holds, what was retired, what is paused.

use stepwell_protocol::{
    Code, Payload, Timestamp,
    access::RunSettings,
    manifest::{Item, Manifest, Outcome, Plan, SCHEMA_BYTES_MAX, WorkerVersion, WorkflowStatus},
    program::WorkflowDescription,
};

use super::{
    super::{
        Change, Input, SYNC_LINES_MAX,
        declared::{RETIRED_MS, ROLLBACK_MS},
    },
    World, at,
};
use crate::{
    access::APP,
    object::{Fault, Machine as _},
};

/// A manifest of the version that was uploaded at this time, with these workflows.
pub(super) fn manifest(uploaded: u64, names: &[&str]) -> Manifest {
    let version = WorkerVersion { id: format!("v{uploaded}"), at: Timestamp::from_millis(uploaded) };
    let workflows = names.iter().map(|name| WorkflowDescription::named(name)).collect();
    Manifest::new(workflows, Some(version))
}

pub(super) fn sync(manifest: Manifest, is_explicit: bool) -> Input {
    Input::Declared(Change::Sync { manifest: Box::new(manifest), is_explicit, unknown_zones: Vec::new() })
}

fn pause(workflow: &str) -> Input {
    Input::Declared(Change::Pause { workflow: workflow.into() })
}

impl World {
    fn declares(&mut self) -> Vec<String> {
        let holds = self.catalog().declared().holds().expect("a manifest holds");
        holds.workflows.iter().map(|workflow| workflow.name.clone()).collect()
    }

    fn preview(&mut self, ms: u64, manifest: &Manifest, is_explicit: bool) -> Plan {
        let plan = self.catalog().declared().preview(at(ms), manifest, is_explicit, false, &[]);
        plan.expect("it has no mistakes")
    }

    fn is_paused(&mut self, workflow: &str) -> bool {
        self.catalog().declared().paused().any(|(paused, _)| paused == workflow)
    }

    fn status(&mut self, workflow: &str) -> Option<WorkflowStatus> {
        let declared = self.catalog().declared().holds().map(|holds| holds.workflows.clone());
        let views = self.catalog().layers().views(declared.unwrap_or_default());
        views.into_iter().find(|view| view.declared.name == workflow).map(|view| view.status)
    }
}

#[test]
fn an_older_version_does_not_win() {
    let mut world = World::default();
    world.must(0, sync(manifest(2, &["a", "b"]), false));
    assert_eq!(world.preview(1, &manifest(1, &["a"]), false).outcome, Outcome::Older);
    world.must(1, sync(manifest(1, &["a"]), false));
    assert_eq!(world.declares(), ["a", "b"]);
    world.must(2, sync(manifest(3, &["c"]), false));
    assert_eq!(world.declares(), ["c"], "a newer one does");
}

/// A workflow with this schema.
fn with_schema(schema: &str) -> Manifest {
    let input_schema = Some(Payload::from_text(schema.into()).expect("it is JSON"));
    Manifest::new(vec![WorkflowDescription { input_schema, ..WorkflowDescription::named("a") }], None)
}

#[test]
fn a_schema_that_is_too_large_or_too_deep_is_refused() {
    let of_bytes = |bytes: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(bytes - 12));
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for (schema, mistake) in [
        (of_bytes(SCHEMA_BYTES_MAX), None),
        ("true".into(), None),
        (of_bytes(SCHEMA_BYTES_MAX + 1), Some("65537 bytes; the most is 65536")),
        (deep, Some("nested too deeply")),
        (r#"{"maximum":1e999}"#.into(), Some("a number that is too large")),
        ("7".into(), Some("no object")),
    ] {
        let mut world = World::default();
        let planned = world.catalog().declared().preview(at(0), &with_schema(&schema), true, true, &[]);
        let refused = planned.err().map(|problem| (problem.code, problem.detail));
        assert_eq!(refused.is_some(), mistake.is_some(), "{refused:?}");
        if let Some((code, detail)) = refused {
            assert_eq!(code, Code::InvalidManifest);
            assert!(detail.contains(mistake.unwrap_or_default()), "{detail}");
        }
    }
}

#[test]
fn a_manifest_full_of_mistakes_is_refused_in_few_words() {
    let mut world = World::default();
    let mut detail = |names: &[&str]| {
        let planned = world.catalog().declared().preview(at(0), &manifest(1, names), true, true, &[]);
        planned.expect_err("it has mistakes").detail
    };
    let many = detail(&vec![""; 80_000]);
    assert!(many.len() < 2_000, "{} bytes", many.len());
    // That there are too many is one of them.
    assert!(many.starts_with("80001 mistakes") && many.ends_with("; and 79981 more."), "{many}");
    let long = detail(&["\u{1}".repeat(100_000).as_str()]);
    assert!(long.starts_with("1 mistake,") && long.len() < 1_000, "{} bytes", long.len());
}

#[test]
fn a_schema_that_is_only_written_otherwise_has_not_changed() {
    let mut world = World::default();
    world.must(0, sync(with_schema(r#"{"type":"object","required":["x"]}"#), true));
    let plan = world.preview(1, &with_schema(r#"{"required": ["x"], "type": "object"}"#), true);
    assert_eq!(plan.changed, []);
    let plan = world.preview(1, &with_schema(r#"{"type":"object"}"#), true);
    assert_eq!(plan.changed.len(), 1);
}

#[test]
fn a_worker_that_does_not_know_its_version_is_older_than_one_that_does() {
    let mut world = World::default();
    let unversioned = |names: &[&str]| Manifest { version: None, ..manifest(0, names) };
    world.must(0, sync(unversioned(&["a"]), false));
    world.must(1, sync(unversioned(&["b"]), false));
    assert_eq!(world.declares(), ["b"], "among those that do not, the last one counts");
    world.must(2, sync(manifest(1, &["c"]), false));
    world.must(3, sync(unversioned(&["d"]), false));
    assert_eq!(world.declares(), ["c"]);
}

#[test]
fn an_older_version_wins_if_a_person_asks_for_it() {
    let mut world = World::default();
    world.must(0, sync(manifest(2, &["a", "b"]), false));
    assert_eq!(world.preview(1, &manifest(1, &["a"]), true).outcome, Outcome::Applied);
    world.must(1, sync(manifest(1, &["a"]), true));
    assert_eq!(world.declares(), ["a"]);
}

#[test]
fn an_older_version_wins_when_nothing_newer_was_seen_for_ten_minutes() {
    let (old, new) = (manifest(1, &["a"]), manifest(2, &["b"]));
    let mut world = World::default();
    world.must(0, sync(new.clone(), false));
    world.must(1_000, sync(old.clone(), false));
    world.lose_memory();
    world.must(ROLLBACK_MS + 999, sync(old.clone(), false));
    assert_eq!(world.declares(), ["b"], "a millisecond too early");
    // The newer one is still there: both are being served for a while.
    world.must(ROLLBACK_MS + 999, sync(new, false));
    world.must(ROLLBACK_MS + 1_000, sync(old.clone(), false));
    assert_eq!(world.declares(), ["b"], "the newer one was just seen");
    world.must(2 * ROLLBACK_MS + 1_000, sync(old.clone(), false));
    assert_eq!(world.declares(), ["a"]);
    assert_eq!(world.preview(2 * ROLLBACK_MS + 2_000, &old, false).outcome, Outcome::Applied);
}

#[test]
fn a_deploy_does_not_unpause_what_a_person_has_paused() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a", "b"]), false));
    world.must(1, pause("a"));
    let next = manifest(2, &["a", "c"]);
    assert_eq!(world.preview(2, &next, false).kept_paused, [Item::workflow("a")]);
    world.must(2, sync(next, false));
    world.must(3, sync(manifest(1, &["a", "b"]), true));
    // Not even one without it, and then one with it.
    world.must(4, sync(manifest(3, &[]), false));
    world.must(5, sync(manifest(4, &["a"]), false));
    world.lose_memory();
    assert!(world.is_paused("a"));
    assert_eq!(world.status("a"), Some(WorkflowStatus::Paused));
    world.must(6, Input::Declared(Change::Resume { workflow: "a".into() }));
    assert_eq!(world.status("a"), Some(WorkflowStatus::Active), "a person does");
}

#[test]
fn what_the_app_declares_by_itself_pushes_no_other_line_out_of_the_audit_log() {
    let mut world = World::default();
    let unversioned = |names: &[&str]| Manifest { version: None, ..manifest(0, names) };
    world.must(0, sync(unversioned(&["a"]), true));
    world.must(0, pause("a"));
    let in_turn = [unversioned(&["b"]), unversioned(&["c"])];
    for ms in 1..=2 * SYNC_LINES_MAX {
        let came = sync(in_turn[usize::from(ms % 2 == 0)].clone(), false);
        world.desk.drive(&world.rows, at(ms), APP, came).expect("it is allowed");
    }
    let lines = world.desk.audit(&world.rows, u64::MAX, u32::MAX, true).expect("the rows can be read");
    let count = |actor: &str, action: &str| {
        lines.iter().filter(|line| line.actor == actor && line.action == action).count() as u64
    };
    assert_eq!(count("root", "workflow_paused"), 1);
    assert_eq!(count("root", "manifest_synced"), 1, "a person has asked for this one");
    assert_eq!(count("app", "manifest_synced"), SYNC_LINES_MAX);
    world.lose_memory();
    let came = sync(in_turn[0].clone(), true);
    world.must(3 * SYNC_LINES_MAX, came);
    let last = world.desk.audit(&world.rows, u64::MAX, 1, true).expect("the rows can be read");
    assert_eq!(
        last.iter().map(|line| line.actor.as_str()).collect::<Vec<_>>(),
        ["root"],
        "the numbers go on"
    );
}

#[test]
fn cells_that_start_children_hear_of_a_pause_and_keep_their_keys() {
    let mut world = World::default();
    let rules = world.desk.rules(&world.rows, at(0), "default-1-0").expect("the rows can be read");
    assert!(rules.paused.is_empty());
    world.must(1, pause("a"));
    let words = world.catalog().words();
    assert_eq!(words.len(), 1);
    assert_eq!((words[0].cell.as_str(), words[0].ids.as_deref()), ("default-1-0", Some(&[][..])));
    assert!(words[0].version > rules.version);
    let rules = world.desk.rules(&world.rows, at(2), "default-1-0").expect("the rows can be read");
    assert_eq!((rules.paused, rules.version), (["a".to_owned()].into(), words[0].version));
    world.must(3, Input::Declared(Change::Resume { workflow: "a".into() }));
    assert!(world.catalog().version() > rules.version);
}

#[test]
fn a_manifest_with_mistakes_changes_nothing_and_names_all_of_them() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a"]), false));
    let before = world.rows.rows.borrow().clone();
    let mut bad = manifest(2, &["b", "c", "c", "stepwell.d", ""]);
    bad.workflows[1].timeout_ms = Some(0);
    bad.protocol = 99;
    let Err(Fault::Rejected(problem)) = world.drive(1, sync(bad.clone(), true)) else {
        panic!("it was let in")
    };
    assert_eq!(problem.code, Code::InvalidManifest);
    for mistake in ["form 99", "'c' is declared twice", "'stepwell.d'", "\"\"", "timeout of 0"] {
        assert!(problem.detail.contains(mistake), "{mistake} is not named in {}", problem.detail);
    }
    assert!(problem.detail.starts_with("5 mistakes"), "{}", problem.detail);
    assert_eq!(world.catalog().declared().preview(at(1), &bad, true, true, &[]), Err(problem));
    assert_eq!(*world.rows.rows.borrow(), before);
    assert_eq!(world.declares(), ["a"]);
}

#[test]
fn what_leaves_the_code_is_retired_and_comes_back_when_it_is_declared_again() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a", "b"]), false));
    let next = manifest(2, &["b"]);
    assert_eq!(world.preview(1, &next, false).retired, [Item::workflow("a")]);
    world.must(1, sync(next, false));
    world.lose_memory();
    assert_eq!(world.status("a"), Some(WorkflowStatus::Retired));
    assert_eq!(world.status("b"), Some(WorkflowStatus::Active));
    let back = manifest(3, &["a", "b"]);
    assert_eq!(world.preview(2, &back, false).added, [Item::workflow("a")]);
    world.must(2, sync(back, false));
    assert_eq!(world.status("a"), Some(WorkflowStatus::Active));
    assert!(world.rows.rows.borrow().keys().all(|(kind, _)| kind != "retired"), "its row is left behind");
}

#[test]
fn what_was_retired_is_forgotten_after_thirty_days() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a"]), false));
    world.must(1, sync(manifest(2, &[]), false));
    world.must(RETIRED_MS, Input::Tidy);
    assert_eq!(world.status("a"), Some(WorkflowStatus::Retired));
    world.must(RETIRED_MS + 1, Input::Tidy);
    assert_eq!(world.status("a"), None);
    assert!(world.desk.due(&world.rows, at(RETIRED_MS + 2)).is_ok());
}

#[test]
fn a_plan_says_which_terms_have_changed() {
    let mut world = World::default();
    let mut before = manifest(1, &["a", "b"]);
    before.workflows[0].timeout_ms = Some(60_000);
    world.must(0, sync(before.sealed(), false));
    let mut after = manifest(2, &["a", "b"]);
    after.workflows[0].retention_ms = Some(0);
    let plan = world.preview(1, &after.sealed(), false);
    let [changed] = &plan.changed[..] else { panic!("{plan:?}") };
    assert_eq!(changed.item, Item::workflow("a"));
    assert_eq!(changed.changes, ["retention_ms: none -> 0", "timeout_ms: 60000 -> none"]);
    assert!(plan.added.is_empty() && plan.retired.is_empty() && plan.kept_paused.is_empty());
}

#[test]
fn the_manifest_that_holds_writes_nothing_when_it_comes_again() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a"]), false));
    let (before, lines) = (world.rows.rows.borrow().clone(), world.rows.audit.borrow().len());
    world.must(1, sync(manifest(1, &["a"]), false));
    world.must(2, sync(manifest(1, &["a"]), true));
    assert_eq!((world.rows.rows.borrow().clone(), world.rows.audit.borrow().len()), (before, lines));
}

#[test]
fn what_an_operator_has_set_counts_more_than_what_the_code_declares() {
    let mut world = World::default();
    let mut declared = manifest(1, &["a", "b"]);
    declared.workflows[0].timeout_ms = Some(1);
    world.must(0, sync(declared.clone().sealed(), false));
    let settings = RunSettings { timeout_ms: Some(2), ..RunSettings::default() };
    world.must(1, Input::SetWorkflow { workflow: "a".into(), settings: Some(settings) });
    world.must(2, Input::SetRuns(RunSettings { timeout_ms: Some(3), ..RunSettings::default() }));
    let views = world.catalog().layers().views(declared.workflows);
    let [a, b] = &views[..] else { panic!("{views:?}") };
    assert_eq!((a.declared.timeout_ms, a.effective.timeout_ms), (Some(1), Some(2)));
    assert_eq!((a.changed, b.changed), (Some(settings), None));
    assert_eq!((b.declared.timeout_ms, b.effective.timeout_ms), (None, Some(3)));
}

#[test]
fn who_has_paused_and_synced_what_is_in_the_audit_log() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a"]), false));
    world.must(1, pause("a"));
    world.must(2, pause("a"));
    world.must(3, Input::Declared(Change::Resume { workflow: "a".into() }));
    let lines = world.desk.audit(&world.rows, u64::MAX, 10, false).expect("they can be read");
    let said: Vec<_> = lines.iter().map(|line| (line.action.as_str(), line.subject.as_str())).collect();
    let expected = [
        ("workflow_resumed", "workflow:a"),
        ("workflow_paused", "workflow:a"),
        ("manifest_synced", "manifest"),
    ];
    assert_eq!(said, expected);
    assert_eq!(lines[2].detail.as_deref(), Some("added: a"));
}
