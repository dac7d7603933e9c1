//! Children obey their namespace: its limits, its settings, its pauses.

use stepwell_core::{
    access::{About, Credential, Grant, Need, ROOT, Rules},
    catalog::Confirmation,
    cell::{Action, Admission, Cell, NO_WORKFLOW},
    object::{DEAD_AFTER_MS, Delivery, Fault, Receipt, SEND_AGAIN_MS_MAX, Sending},
};
use stepwell_protocol::{
    Code, Invocation, Outcome, Payload, Place,
    access::{Limits, RunSettings, Scope},
};

use super::{
    at,
    children::{Two, done, invocation, waiting},
    memory::Memory,
    new_run,
};

fn rules(limits: Limits, runs: RunSettings, paused: &[&str]) -> Rules {
    let grant = Grant {
        actor: ROOT.into(),
        scopes: Vec::new(),
        expires_at: None,
        limits,
        runs,
        workflows: [("own".to_owned(), RunSettings { timeout_ms: Some(7), ..RunSettings::default() })].into(),
    };
    Rules { grant, paused: paused.iter().map(|name| (*name).to_owned()).collect(), version: 1 }
}

fn limited(limits: Limits) -> Rules {
    rules(limits, RunSettings::default(), &[])
}

impl Two {
    /// Both cells are told what holds.
    fn obey(&mut self, rules: &Rules) {
        let clock = self.clock();
        for cell in &mut self.cells {
            cell.remember_rules(clock, rules.clone());
        }
    }

    /// What becomes of a message, as its sender hears it.
    fn deliver(&mut self, sending: &Sending) -> Delivery {
        match self.hand_over(sending) {
            Ok(receipt) => Delivery::Arrived(receipt),
            Err(Fault::Rejected(problem)) => Delivery::refused(problem),
            Err(other) => panic!("{other}"),
        }
    }

    fn refusal(&mut self, sending: &Sending) -> Option<Code> {
        match self.hand_over(sending) {
            Ok(_) => None,
            Err(Fault::Rejected(problem)) => Some(problem.code),
            Err(other) => panic!("{other}"),
        }
    }
}

fn cell_of(sending: &Sending) -> usize {
    sending.to.name.parse::<Place>().expect("a cell").cell as usize
}

#[test]
fn a_child_counts_like_any_run_that_has_not_ended() {
    let (mut two, parent, sends) = waiting(invocation());
    let to = cell_of(&sends[0]);
    // One for each of the two cells.
    two.obey(&limited(Limits { live_runs: Some(2), ..Limits::default() }));
    let clock = two.clock();
    let other = two.cells[to].start(&two.rows[to], clock, new_run(None)).expect("it is accepted").run;
    assert_eq!(two.refusal(&sends[0]), Some(Code::LimitReached));
    assert_eq!(two.deliver(&sends[0]), Delivery::Postponed);
    two.answer(0, &sends[0], Delivery::Postponed);
    two.report(to, other.id.number, vec![], done(1));
    if to == 0 {
        // The parent is one itself.
        two.obey(&limited(Limits { live_runs: Some(4), ..Limits::default() }));
    }
    let again = two.alarm(0, SEND_AGAIN_MS_MAX);
    two.post(again, 0);
    assert!(two.child(&parent.id, 1).is_some(), "there is room again");
    // What was started stays so, whatever holds later.
    two.obey(&limited(Limits { live_runs: Some(1), ..Limits::default() }));
    assert!(matches!(two.deliver(&sends[0]), Delivery::Arrived(Receipt::Started { .. })));
}

#[test]
fn starts_of_children_take_part_in_the_rates() {
    for limits in [
        Limits { requests_per_second: Some(2), ..Limits::default() },
        Limits { payload_bytes_per_second: Some(2), ..Limits::default() },
    ] {
        let (mut two, _, sends) = waiting(invocation());
        two.obey(&limited(limits));
        let mut started = 0;
        for invoked in 1..100 {
            let mut sending = sends[0].clone();
            let stepwell_core::object::Message::Start { parent, .. } = &mut sending.message else {
                panic!("it starts a run")
            };
            parent.invoked = stepwell_protocol::Seq(invoked);
            match two.refusal(&sending) {
                None => started += 1,
                Some(code) => assert_eq!(code, Code::LimitReached),
            }
        }
        assert!((1..=4).contains(&started), "{started} within a burst: {limits:?}");
    }
}

#[test]
fn a_child_of_a_paused_workflow_waits_for_weeks_and_is_started_when_it_is_resumed() {
    let (mut two, parent, mut sends) = waiting(invocation());
    let paused = rules(Limits::default(), RunSettings::default(), &["child"]);
    let mut tries = 0;
    while two.now < 3 * DEAD_AFTER_MS {
        two.obey(&paused);
        for sending in std::mem::take(&mut sends) {
            let delivery = two.deliver(&sending);
            assert_eq!(delivery, Delivery::Postponed);
            two.answer(0, &sending, delivery);
            tries += 1;
        }
        sends = two.alarm(0, SEND_AGAIN_MS_MAX);
    }
    // Another instance knows as much.
    two.crash(0);
    let sends = two.alarm(0, SEND_AGAIN_MS_MAX);
    assert!(tries > 1_000 && two.letters() == 1, "{tries} tries");
    two.obey(&limited(Limits::default()));
    two.post(sends, 0);
    assert!(two.child(&parent.id, 1).is_some());
    assert_eq!(two.letters(), 0);
}

#[test]
fn a_child_has_the_terms_that_its_namespace_sets() {
    let runs = RunSettings { timeout_ms: Some(500), retention_ms: Some(9_000), payload_bytes_max: None };
    let terms = |invocation: Invocation| {
        let (mut two, parent, sends) = waiting(invocation);
        two.obey(&rules(Limits::default(), runs, &[]));
        two.post(sends, 0);
        let (_, child) = two.child(&parent.id, 1).expect("it is started");
        (child.timeout_ms, child.retention_ms)
    };
    assert_eq!(terms(invocation()), (Some(500), Some(9_000)), "where its code says nothing");
    let says = Invocation { timeout_ms: Some(80), retention_ms: Some(0), ..invocation() };
    assert_eq!(terms(says.clone()), (Some(80), None), "its code says it");
    assert_eq!(
        terms(Invocation { workflow: "own".into(), ..says }),
        (Some(7), None),
        "the settings say more"
    );
}

#[test]
fn a_child_that_would_be_refused_again_fails_its_invocation() {
    let large = Invocation { input: Payload::encode(&"x".repeat(100)).expect("JSON"), ..invocation() };
    let (mut two, _, sends) = waiting(large);
    two.obey(&limited(Limits { payload_bytes_max: Some(50), ..Limits::default() }));
    let delivery = two.deliver(&sends[0]);
    two.answer(0, &sends[0], delivery);
    let finished = two.finished(1);
    let [(_, Outcome::Err(failure))] = &finished[..] else { panic!("{finished:?}") };
    assert_eq!(failure.code, Some(Code::PayloadTooLarge));
    assert_eq!((two.letters(), two.runs()), (0, 1));
}

#[test]
fn rules_are_remembered_until_something_changes() {
    let (mut two, _, sends) = waiting(invocation());
    let (clock, cell) = (two.clock(), cell_of(&sends[0]));
    assert!(two.cells[cell].wants_rules(clock));
    two.obey(&rules(Limits::default(), RunSettings::default(), &["child"]));
    assert!(!two.cells[cell].wants_rules(clock));
    two.cells[cell].forget_keys(1, None);
    assert!(!two.cells[cell].wants_rules(clock), "they are as new as that");
    two.cells[cell].forget_keys(2, Some(&[]));
    assert!(two.cells[cell].wants_rules(clock));
    two.obey(&limited(Limits::default()));
    assert!(two.cells[cell].wants_rules(clock), "an answer from before the change does not count");
}

#[test]
fn whoever_brings_a_link_is_held_to_the_limits_of_the_namespace() {
    let (mut two, ..) = waiting(invocation());
    let clock = two.clock();
    let cell = &mut two.cells[0];
    assert_eq!(cell.admit_link(clock, None, 1_000_000), Ok(()), "a cell that was told of no rules has none");
    let limits = Limits { requests_per_second: Some(2), payload_bytes_max: Some(100), ..Limits::default() };
    two.obey(&limited(limits));
    let cell = &mut two.cells[0];
    let refused = |result: Result<(), stepwell_protocol::Problem>| result.err().map(|problem| problem.code);
    assert_eq!(refused(cell.admit_link(clock, Some("own"), 101)), Some(Code::PayloadTooLarge));
    let taken = (0..100).filter(|_| cell.admit_link(clock, None, 100).is_ok()).count();
    assert!((1..10).contains(&taken), "{taken} requests at once");
    assert_eq!(refused(cell.admit_link(clock, None, 0)), Some(Code::LimitReached));
}

#[test]
fn links_and_keys_do_not_use_up_what_is_for_the_others() {
    let (mut two, ..) = waiting(invocation());
    let clock = two.clock();
    let limits =
        Limits { requests_per_second: Some(2), payload_bytes_per_second: Some(1_000), ..Limits::default() };
    let rules = limited(limits);
    two.obey(&rules);
    let [of_links, of_keys] = &mut two.cells;
    let key = Credential { id: "a".into(), hash: "hash of a".into() };
    let asks = |cell: &mut Cell| {
        let need = Need { scope: Scope::Read, about: About::Whole };
        matches!(cell.admit(clock, &key, &need, 100, 1), Ok(Admission::Granted(_)))
    };
    for cell in [&mut *of_links, &mut *of_keys] {
        let grant = Grant { scopes: vec!["read".parse().expect("a scope")], ..rules.grant.clone() };
        assert!(cell.remember_key(clock, &key, Confirmation { grant, version: 1 }));
    }
    while of_links.admit_link(clock, None, 10_000).is_ok() {}
    assert!(asks(of_links), "a link that everybody has keeps nobody with a key out");
    while asks(of_keys) {}
    assert_eq!(of_keys.admit_link(clock, None, 100), Ok(()), "nor is a link worth less for what keys ask");
}

#[test]
fn what_limits_refuse_is_counted_and_a_flood_of_it_writes_nothing() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    let limits = Limits { requests_per_second: Some(1), ..Limits::default() };
    let key = Credential { id: "a".into(), hash: "hash of a".into() };
    let grant = Grant { scopes: vec!["read".parse().expect("a scope")], ..limited(limits).grant };
    assert!(cell.remember_key(at(0), &key, Confirmation { grant, version: 1 }));
    let need = Need { scope: Scope::Read, about: About::Whole };
    let refused = (0..1_000).filter(|_| cell.admit(at(0), &key, &need, 0, 1).is_err()).count();
    assert!(refused > 900, "{refused} of 1000 requests at once");
    assert_eq!(rows.minute_writes.get(), 0);
    // They are stored with what happens to a run.
    cell.start(&rows, at(1), new_run(None)).expect("it is accepted");
    cell.act(&rows, at(2), &rows.get(1).id, ROOT, Action::Cancel).expect("it can be");
    assert_eq!(rows.minute_writes.get(), 1);
    let counted =
        cell.totals(&rows).expect("they can be read").get(NO_WORKFLOW).cloned().expect("they are there");
    assert_eq!(counted.refused, refused as u64);
}
