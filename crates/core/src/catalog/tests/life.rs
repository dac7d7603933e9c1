//! What becomes of keys, sessions, settings, and the audit log.

use stepwell_protocol::{
    Code, RunId,
    access::{Issuer, Limits, NamespaceOf, RunSettings, Scope},
    outbox::MessageHead,
};

use super::{
    super::{
        AUDIT_MAX, AUDIT_MS, ApiKey, Desk, ISSUERS_MAX, Input, KEYS_MAX, LETTER_LINES_MAX, LetterDeed,
        LetterNote, Log, Order, STALE_VERSIONS_MAX, TELL_AGAIN_MS, Word,
    },
    Failed, ROOT, World, at, create, credential, key,
};
use crate::{
    access::{About, Credential, Need},
    catalog::Rows as _,
    object::{Fault, Hosted as _, Machine as _},
};

fn rotate(id: &str, new: &str, overlap_ms: u64) -> Input {
    Input::RotateKey { id: id.into(), new: credential(new), overlap_ms, maker_ends_at: None }
}

pub(super) fn revoke(id: &str) -> Input {
    Input::RevokeKey { id: id.into() }
}

pub(super) fn sign_in(id: &str, with: Option<&str>) -> Input {
    Input::OpenSession { new: credential(id), key: with.map(Into::into) }
}

pub(super) fn told(world: &mut World) -> Option<Vec<Word>> {
    world.desk.take_orders().own.into_iter().find_map(|order| match order {
        Order::Tell(words) => Some(words),
        Order::Distrust(_)
        | Order::Report(_)
        | Order::Touch(_)
        | Order::Delete(_)
        | Order::Empty(_)
        | Order::DeclareTriggers(_)
        | Order::DeclareHandlers(_)
        | Order::DeclareSchedules { .. }
        | Order::Clear { .. } => None,
    })
}

pub(super) fn word(cell: &str, version: u64, ids: Option<&[&str]>) -> Word {
    let ids = ids.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect());
    Word { cell: cell.into(), version, ids }
}

#[test]
fn a_key_is_good_with_its_own_hash_and_with_no_other() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    assert!(world.is_good(1, "a"));
    let other = Credential { id: "a".into(), hash: credential("b").hash };
    assert_eq!(world.catalog().grant(at(1), &other), None);
    assert!(!world.is_good(1, "b"));
}

#[test]
fn one_row_that_cannot_be_read_takes_only_its_own_key_with_it() {
    for (kind, name) in [("session", "s"), ("key", "b"), ("issuer", "i"), ("namespace", "n")] {
        let mut world = World::default();
        world.must(0, create(key("a", &["read"])));
        world.must(0, create(key("b", &["read"])));
        world.rows.rows.borrow_mut().insert((kind.into(), name.into()), "{".into());
        world.desk = Desk::new(vec![ROOT.into()]);
        assert!(world.is_good(1, "a"), "{kind}");
        assert_eq!(world.is_good(1, "b"), kind != "key", "{kind}");
        let reported =
            world.desk.take_orders().own.into_iter().filter(|order| matches!(order, Order::Report(_)));
        assert_eq!(reported.count(), 1, "{kind}");
    }
}

#[test]
fn without_the_rows_that_say_what_was_revoked_no_key_is_good() {
    for (kind, name) in [("version", ""), ("watcher", "default-1-0"), ("stale", "1"), ("limits", "")] {
        let mut world = World::default();
        world.must(0, create(key("a", &["read"])));
        world.rows.rows.borrow_mut().insert((kind.into(), name.into()), "{".into());
        world.desk = Desk::new(vec![ROOT.into()]);
        assert!(matches!(world.desk.catalog(&world.rows), Err(Fault::Storage(Failed::Corrupt(_)))), "{kind}");
    }
}

#[test]
fn a_key_is_good_until_its_end_and_a_revoked_one_never_again() {
    let mut world = World::default();
    world.must(0, create(ApiKey { expires_at: Some(at(10)), ..key("a", &["read"]) }));
    world.must(0, create(key("b", &["read"])));
    assert!(world.is_good(9, "a") && !world.is_good(10, "a"));
    world.must(5, revoke("b"));
    assert!(!world.is_good(5, "b"));
    world.lose_memory();
    assert!(!world.is_good(6, "b") && world.is_good(6, "a"));
    world.must(7, revoke("b"));
    assert_eq!(world.code(7, revoke("c")), Some(Code::KeyNotFound));
}

#[test]
fn while_a_key_is_rotated_two_are_good_and_never_three() {
    let mut world = World::default();
    world.must(0, create(key("a", &["write"])));
    world.must(10, rotate("a", "b", 100));
    assert!(world.is_good(50, "a") && world.is_good(50, "b"));
    assert_eq!(world.code(50, rotate("a", "x", 100)), Some(Code::WrongStatus), "only its successor can be");
    world.must(60, rotate("b", "c", 100));
    assert_eq!(["a", "b", "c"].map(|id| world.is_good(60, id)), [false, true, true]);
    assert_eq!(["a", "b", "c"].map(|id| world.is_good(160, id)), [false, false, true]);
    let c = world.catalog().key("c").expect("it is there").clone();
    assert_eq!((c.scopes, c.name), (key("a", &["write"]).scopes, "the key a".to_owned()));
}

#[test]
fn a_rotated_key_does_not_outlive_its_own_end() {
    let mut world = World::default();
    world.must(0, create(ApiKey { expires_at: Some(at(1_000)), ..key("a", &["write"]) }));
    world.must(900, rotate("a", "b", 5_000));
    assert!(world.is_good(999, "a") && !world.is_good(1_000, "a"));
    assert!(world.is_good(1_899, "b") && !world.is_good(1_900, "b"), "as long again as the first");
}

#[test]
fn a_key_does_not_outlive_what_made_it() {
    let mut world = World::default();
    world.must(0, create(ApiKey { expires_at: Some(at(5_000)), ..key("short", &["admin"]) }));
    world.must(0, create(key("long", &["admin"])));
    world.must(0, sign_in("of-short", Some("short")));
    world.must(0, sign_in("of-root", None));
    let ends = ["short", "of-short", "long", "of-root"].map(|id| world.catalog().maker_ends_at(id));
    assert_eq!(ends, [Some(at(5_000)), Some(at(5_000)), None, None]);
    let by_short = |key| Input::CreateKey { key, maker_ends_at: Some(at(5_000)) };
    world.must(1, by_short(key("child", &["admin"])));
    assert!(world.is_good(4_999, "child") && !world.is_good(5_000, "child"));
    let later = ApiKey { expires_at: Some(at(5_001)), ..key("later", &["admin"]) };
    assert_eq!(world.code(1, by_short(later)), Some(Code::InvalidRequest));
    world.must(1, by_short(ApiKey { expires_at: Some(at(100)), ..key("sooner", &["admin"]) }));
    assert!(!world.is_good(100, "sooner"));
    // Nor does it live on by taking its own place, or that of another.
    for id in ["short", "long"] {
        let (id, new) = (id.to_owned(), credential(&format!("next-{id}")));
        world.must(4_000, Input::RotateKey { id, new, overlap_ms: 0, maker_ends_at: Some(at(5_000)) });
    }
    assert!(world.is_good(4_999, "next-short") && !world.is_good(5_000, "next-short"));
    assert!(world.is_good(4_999, "next-long") && !world.is_good(5_000, "next-long"));
}

#[test]
fn keys_that_make_no_sense_are_refused() {
    let mut world = World::default();
    for bad in [
        ApiKey { name: String::new(), ..key("a", &["read"]) },
        ApiKey { name: "a\nb".into(), ..key("a", &["read"]) },
        ApiKey { name: "x".repeat(129), ..key("a", &["read"]) },
        key("a", &[]),
        ApiKey { environment: "prod".into(), ..key("a", &["read"]) },
        ApiKey { expires_at: Some(at(0)), ..key("a", &["read"]) },
    ] {
        assert_eq!(world.code(0, create(bad.clone())), Some(Code::InvalidRequest), "{bad:?}");
    }
    let too_long = rotate("a", "b", u64::MAX);
    world.must(0, create(key("a", &["read"])));
    assert_eq!(world.code(0, too_long), Some(Code::InvalidRequest));
    assert_eq!(world.code(0, create(key("a", &["read"]))), Some(Code::Internal), "an id is one key's");
}

#[test]
fn keys_that_are_over_make_room_and_good_ones_never_do() {
    let mut world = World::default();
    for number in 0..KEYS_MAX {
        world.must(0, create(key(&format!("k{number}"), &["read"])));
    }
    assert_eq!(world.code(1, create(key("more", &["read"]))), Some(Code::TooMany));
    world.must(2, revoke("k7"));
    world.must(3, create(key("more", &["read"])));
    assert!(world.is_good(4, "more") && world.is_good(4, "k0") && world.catalog().key("k7").is_none());
}

#[test]
fn a_cell_that_is_far_behind_forgets_everything_and_the_list_stays_short() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.desk.confirm(&world.rows, at(1), &credential("a"), None, "default-1-0").expect("good");
    for number in 0..=STALE_VERSIONS_MAX as u64 {
        world.must(number, sign_in("s", None));
        world.must(number, Input::EndSession { id: "s".into() });
    }
    let words = world.catalog().words();
    assert_eq!(words, [word("default-1-0", STALE_VERSIONS_MAX as u64 + 1, None)]);
    let stored = |world: &World| world.rows.rows.borrow().keys().filter(|(kind, _)| kind == "stale").count();
    assert_eq!(stored(&world), STALE_VERSIONS_MAX);
    world.must(999, Input::Heard { cell: "default-1-0".into(), version: u64::MAX });
    world.must(999, sign_in("s", None));
    world.must(999, Input::EndSession { id: "s".into() });
    assert_eq!(stored(&world), 1, "what everybody has heard of is dropped");
}

#[test]
fn a_cell_that_remembers_is_told_of_every_change_until_it_has_heard() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    let confirmed =
        world.desk.confirm(&world.rows, at(1), &credential("a"), None, "default-1-3").expect("good");
    assert_eq!(confirmed.version, 0);
    assert_eq!(told(&mut world), None, "a new key is no news");
    world.must(2, revoke("a"));
    assert_eq!(told(&mut world), Some(vec![word("default-1-3", 1, Some(&["a"]))]));
    world.desk.alarm(&world.rows, at(2 + TELL_AGAIN_MS)).expect("it can be written");
    assert_eq!(told(&mut world), Some(vec![word("default-1-3", 1, Some(&["a"]))]), "nobody has answered");
    world.must(3_000, Input::Heard { cell: "default-1-3".into(), version: 0 });
    assert_eq!(world.catalog().behind().count(), 1, "what it has heard of before is not enough");
    world.must(3_001, Input::Heard { cell: "default-1-3".into(), version: 1 });
    assert_eq!(world.catalog().behind().count(), 0);
    world.desk.alarm(&world.rows, at(4_000)).expect("it can be written");
    assert_eq!(told(&mut world), None);
}

#[test]
fn a_catalog_that_died_before_it_has_told_everybody_goes_on_with_it() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.desk.confirm(&world.rows, at(1), &credential("a"), None, "default-1-3").expect("good");
    world.must(2, revoke("a"));
    world.lose_memory();
    // A request comes before the alarm does.
    world.must(3, create(key("b", &["read"])));
    let orders = world.desk.take_orders();
    assert!(orders.own.contains(&Order::Tell(vec![word("default-1-3", 1, Some(&["a"]))])), "{orders:?}");
    assert_eq!(orders.arm, Some(at(3 + TELL_AGAIN_MS)), "and its alarm is not put off");
}

#[test]
fn a_catalog_whose_alarm_could_not_be_set_sets_another_with_the_next_request() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.desk.confirm(&world.rows, at(1), &credential("a"), None, "default-1-3").expect("good");
    world.must(2, revoke("a"));
    assert_eq!(world.desk.take_orders().arm, Some(at(2 + TELL_AGAIN_MS)));
    world.desk.not_armed();
    // A request that changes nothing, and one more.
    for arms in [Some(at(4)), None] {
        world.desk.repair(&world.rows, at(3)).expect("the rows can be read");
        let orders = world.desk.take_orders();
        assert_eq!(orders.arm, arms);
        let tells = vec![Order::Tell(vec![word("default-1-3", 1, Some(&["a"]))])];
        assert_eq!(orders.own, if arms.is_some() { tells } else { Vec::new() });
    }
}

#[test]
fn a_cell_that_is_not_known_cannot_remember_a_bad_key_and_is_no_watcher() {
    let mut world = World::default();
    let refused = world.desk.confirm(&world.rows, at(1), &credential("a"), None, "default-1-3");
    assert!(matches!(refused, Err(Fault::Rejected(problem)) if problem.code == Code::Unauthorized));
    assert!(!world.catalog().is_watched_by("default-1-3"));
    assert!(world.rows.rows.borrow().is_empty(), "a key that nobody made writes nothing");
}

#[test]
fn settings_and_limits_reach_whoever_has_a_key() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.desk.confirm(&world.rows, at(1), &credential("a"), None, "default-1-0").expect("good");
    let limits = Limits { live_runs: Some(5), ..Limits::default() };
    let runs = RunSettings { timeout_ms: Some(1_000), ..RunSettings::default() };
    world.must(2, Input::SetLimits(limits));
    assert_eq!(told(&mut world), Some(vec![word("default-1-0", 1, None)]));
    world.must(3, Input::SetRuns(runs));
    world.must(3, Input::SetWorkflow { workflow: "greet".into(), settings: Some(runs) });
    world.must(4, Input::SetRuns(runs));
    assert_eq!(world.catalog().version(), 3, "what changes nothing is no news");
    let grant = world.catalog().grant(at(5), &credential("a")).expect("good");
    assert_eq!((grant.limits, grant.runs, grant.workflows.len()), (limits, runs, 1));
    world.must(6, Input::SetWorkflow { workflow: "greet".into(), settings: None });
    assert!(world.catalog().settings().workflows.is_empty());
    let none = Limits { requests_per_second: Some(0), ..Limits::default() };
    assert_eq!(world.code(7, Input::SetLimits(none)), Some(Code::InvalidRequest));
    let never = RunSettings { timeout_ms: Some(0), ..RunSettings::default() };
    assert_eq!(world.code(7, Input::SetRuns(never)), Some(Code::InvalidRequest));
}

#[test]
fn a_namespace_is_made_once() {
    let mut world = World::default();
    let add = |name: &str| Input::AddNamespace { name: name.into() };
    world.must(0, add("acme"));
    for taken in ["acme", "default"] {
        assert_eq!(world.code(1, add(taken)), Some(Code::NamespaceExists), "{taken}");
    }
    for bad in ["", "Acme", "a/b", "a_b", "-a"] {
        assert_eq!(world.code(1, add(bad)), Some(Code::InvalidRequest), "{bad}");
    }
    world.lose_memory();
    assert!(world.catalog().namespace("acme").is_some());
}

#[test]
fn issuers_are_set_and_taken_away() {
    let issuer = |number: usize| Issuer {
        issuer: format!("https://{number}.example"),
        audience: "stepwell".into(),
        jwks_url: "https://example/jwks".into(),
        namespace: NamespaceOf::Fixed("acme".into()),
        namespaces: Vec::new(),
        scopes_claim: None,
        scopes_max: Vec::new(),
        scopes: Vec::new(),
    };
    let mut world = World::default();
    (0..ISSUERS_MAX).for_each(|number| world.must(0, Input::SetIssuer(issuer(number))));
    assert_eq!(world.code(1, Input::SetIssuer(issuer(99))), Some(Code::TooMany));
    let elsewhere = Issuer { namespace: NamespaceOf::Fixed("No".into()), ..issuer(0) };
    assert_eq!(world.code(1, Input::SetIssuer(elsewhere)), Some(Code::InvalidRequest));
    let claim = |namespaces: &[&str]| Issuer {
        namespace: NamespaceOf::Claim("tenant".into()),
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        ..issuer(0)
    };
    for bad in [
        claim(&[]),
        claim(&["No"]),
        claim(&["a*b"]),
        claim(&["**"]),
        Issuer { namespaces: vec!["acme".into()], ..issuer(0) },
        Issuer { scopes_claim: Some("scope".into()), ..issuer(0) },
    ] {
        assert_eq!(world.code(1, Input::SetIssuer(bad.clone())), Some(Code::InvalidRequest), "{bad:?}");
    }
    world.must(1, Input::SetIssuer(claim(&["acme", "team-*", "*"])));
    world.must(1, Input::RemoveIssuer { issuer: issuer(0).issuer });
    world.lose_memory();
    assert_eq!(world.catalog().issuers().count(), ISSUERS_MAX - 1);
}

#[test]
fn the_audit_log_says_who_did_what_and_only_what_was_done() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.must(1, rotate("a", "b", 10));
    world.must(2, revoke("b"));
    world.must(2, revoke("b"));
    assert_eq!(world.code(3, revoke("c")), Some(Code::KeyNotFound));
    let lines = world.rows.audit(u64::MAX, 10, true).expect("it can be read");
    let lines: Vec<_> = lines
        .iter()
        .rev()
        .map(|line| (line.actor.as_str(), line.action.as_str(), line.subject.as_str()))
        .collect();
    let expected = [
        ("root", "key_created", "key:a"),
        ("root", "key_rotated", "key:a"),
        ("root", "key_created", "key:b"),
        ("root", "key_revoked", "key:b"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn the_audit_log_is_bounded_by_number_and_by_age() {
    let mut world = World::default();
    let set =
        |timeout_ms| Input::SetRuns(RunSettings { timeout_ms: Some(timeout_ms), ..RunSettings::default() });
    for number in 1..=AUDIT_MAX + 50 {
        world.must(number, set(number));
        if number == 40 {
            world.lose_memory();
        }
    }
    let kept: Vec<_> = world.rows.audit.borrow().keys().copied().collect();
    let changes = |number| (Log::Changes, number);
    assert_eq!(
        (kept.len() as u64, kept.first(), kept.last()),
        (AUDIT_MAX, Some(&changes(51)), Some(&changes(AUDIT_MAX + 50)))
    );
    world.desk.alarm(&world.rows, at(5_000 + AUDIT_MS)).expect("it can be written");
    assert_eq!(world.rows.audit.borrow().keys().next(), Some(&changes(5_000)));
    world.desk.alarm(&world.rows, at(2 * AUDIT_MS)).expect("it can be written");
    let kept: Vec<_> = world.rows.audit.borrow().keys().copied().collect();
    assert_eq!(kept, [changes(AUDIT_MAX + 50)], "the numbers go on from the latest");
}

#[test]
fn the_audit_log_says_what_was_changed_and_shows_no_hash() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read", "write:greet"])));
    let limits = Limits { live_runs: Some(5), ..Limits::default() };
    world.must(1, Input::SetLimits(limits));
    world.must(2, Input::SetLimits(Limits { live_runs: Some(6), payload_bytes_max: Some(9), ..limits }));
    let own = RunSettings { timeout_ms: Some(1_000), ..RunSettings::default() };
    world.must(3, Input::SetWorkflow { workflow: "greet".into(), settings: Some(own) });
    world.must(4, Input::SetWorkflow { workflow: "greet".into(), settings: None });
    let lines = world.rows.audit(u64::MAX, 10, true).expect("it can be read");
    let details: Vec<_> = lines.iter().rev().map(|line| line.detail.clone().unwrap_or_default()).collect();
    let expected = [
        "environment: none -> live, name: none -> the key a, scopes: none -> [\"read\",\"write:greet\"]",
        "live_runs: none -> 5",
        "live_runs: 5 -> 6, payload_bytes_max: none -> 9",
        "timeout_ms: none -> 1000",
        "timeout_ms: 1000 -> none",
    ];
    assert_eq!(details, expected);
    assert!(details.iter().all(|detail| !detail.contains("hash of")));
}

#[test]
fn what_belongs_to_the_deployment_is_shown_to_its_own_key_alone() {
    let mut world = World::default();
    world.must(0, Input::AddNamespace { name: "secret-customer".into() });
    world.must(1, create(key("a", &["admin"])));
    world.must(2, Input::UsePool { cells: vec![16, 64] });
    let lines = |with_registry| world.rows.audit(u64::MAX, 10, with_registry).expect("it can be read");
    assert_eq!(lines(false).iter().map(|line| line.action.as_str()).collect::<Vec<_>>(), ["key_created"]);
    assert_eq!(lines(true).len(), 3);
}

#[test]
fn refusals_are_counted_and_stored_once_a_minute() {
    let mut world = World::default();
    let need = |scope| Need { scope, about: About::Whole };
    let ask = |world: &mut World, ms: u64, id: &str, scope| {
        world.desk.admit(&world.rows, at(ms), &credential(id), None, &need(scope)).is_ok()
    };
    assert!(!ask(&mut world, 0, "forged", Scope::Read));
    assert!(world.rows.rows.borrow().is_empty(), "whoever makes up keys makes no rows");
    world.must(0, create(key("a", &["read"])));
    for ms in 1..=100 {
        assert!(!ask(&mut world, ms, "forged", Scope::Read));
        assert!(!ask(&mut world, ms, "a", Scope::Admin));
    }
    let refused = world.desk.refused(&world.rows).expect("it can be read");
    assert_eq!((refused.unauthorized, refused.forbidden, refused.since), (101, 100, Some(at(0))));
    let stored = |world: &mut World| world.catalog().refused();
    assert_eq!(stored(&mut world).unauthorized, 2, "one write, and no other within a minute");
    assert!(!ask(&mut world, 60_001, "forged", Scope::Read));
    assert_eq!((stored(&mut world).unauthorized, stored(&mut world).forbidden), (102, 100));
    world.lose_memory();
    assert_eq!(stored(&mut world).unauthorized, 102);
    assert!(world.rows.audit(u64::MAX, 10, true).expect("it can be read").len() == 1, "not a line for each");
}

#[test]
fn events_count_as_requests_and_what_they_say_as_payloads() {
    let mut world = World::default();
    world.must(0, create(key("a", &["write"])));
    let limits = Limits {
        requests_per_second: Some(10),
        payload_bytes_per_second: Some(1_000),
        payload_bytes_max: Some(500),
        ..Limits::default()
    };
    world.must(1, Input::SetLimits(limits));
    let need = Need { scope: Scope::Write, about: About::Whole };
    let mut send = |ms: u64, events: usize, bytes: usize, largest: usize| {
        let admitted = world.desk.admit(&world.rows, at(ms), &credential("a"), None, &need);
        let grant = admitted.map_err(|fault| match fault {
            Fault::Rejected(problem) => problem.code,
            other @ (Fault::Storage(_) | Fault::Moved(_)) => panic!("{other}"),
        })?;
        world.desk.take_events(at(ms), &grant, events, bytes, largest).map_err(|problem| problem.code)
    };
    assert_eq!(send(1_000, 1, 501, 501), Err(Code::PayloadTooLarge));
    assert_eq!(send(1_000, 100, 100, 1), Ok(()));
    assert_eq!(send(1_000, 1, 1, 1), Err(Code::LimitReached), "a hundred events are a hundred requests");
    assert_eq!(send(20_000, 8, 4_000, 500), Ok(()));
    assert_eq!(send(21_000, 1, 500, 500), Err(Code::LimitReached), "their bytes count");
    assert_eq!(send(21_000, 1, 0, 0), Ok(()));
}

#[test]
fn what_could_not_be_stored_has_not_happened() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.rows.fails.set(true);
    assert!(matches!(world.drive(1, revoke("a")), Err(Fault::Storage(_))));
    assert!(world.is_good(2, "a"));
    assert_eq!(told(&mut world), None);
}

#[test]
fn the_clock_may_be_set_back_and_the_log_stays_in_order() {
    let mut world = World::default();
    world.must(1_000, create(key("a", &["read"])));
    world.must(10, create(key("b", &["read"])));
    let lines = world.rows.audit(u64::MAX, 10, true).expect("it can be read");
    assert!(lines[0].at >= lines[1].at, "{lines:?}");
}

#[test]
fn a_pool_grows_at_its_end_and_in_no_other_way() {
    let using = |cells: &[u32]| Input::UsePool { cells: cells.to_vec() };
    let mut world = World::default();
    assert!(world.catalog().pool().is_empty());
    world.must(0, using(&[16, 64]));
    world.lose_memory();
    for before in [&[16, 64][..], &[16], &[]] {
        world.must(1, using(before));
        assert_eq!(world.catalog().pool(), [16, 64]);
    }
    for wrong in [&[16, 32][..], &[8, 64], &[64], &[16, 65, 128]] {
        assert_eq!(world.code(2, using(wrong)), Some(Code::Internal), "{wrong:?}");
        assert_eq!(world.catalog().pool(), [16, 64]);
    }
    world.must(3, using(&[16, 64, 128]));
    assert_eq!(world.catalog().pool(), [16, 64, 128]);
    let lines = world.rows.audit(u64::MAX, 10, true).expect("memory does not fail");
    let lines: Vec<_> = lines.iter().map(|line| (line.action.as_str(), line.subject.as_str())).collect();
    assert_eq!(lines, [("pool_grown", "pool:16,64,128"), ("pool_grown", "pool:16,64")]);
}

#[test]
fn who_sends_letters_again_or_discards_them_is_in_the_audit_log_and_pushes_out_nothing_else() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    let from: RunId = "default-1-0-7-bvyaw3bemryy".parse().expect("it is a run's id");
    let note = |letter: &str, deed| {
        let head =
            MessageHead { what: "ended".into(), from: from.clone(), to: "cell/default/default-1-1".into() };
        Input::NoteLetter(LetterNote { letter: letter.into(), deed, heads: vec![head] })
    };
    let (before, now) = (world.rows.rows.borrow().clone(), at(1));
    world
        .desk
        .drive(&world.rows, now, "key:a", note("default-1-0-3", LetterDeed::Redeliver))
        .expect("they may");
    world.desk.drive(&world.rows, now, "root", note("default-1-0-4", LetterDeed::Discard)).expect("they may");
    assert_eq!(*world.rows.rows.borrow(), before, "a line is all that is written");
    let lines = world.desk.audit(&world.rows, u64::MAX, 2, false).expect("the rows can be read");
    let said = lines.iter().map(|line| (line.actor.as_str(), line.action.as_str(), line.subject.as_str()));
    let expected = [
        ("root", "letter_discarded", "letter:default-1-0-4"),
        ("key:a", "letter_redelivered", "letter:default-1-0-3"),
    ];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    let detail = format!("ended from {from} to cell/default/default-1-1");
    assert_eq!(lines[0].detail, Some(detail));
    for ms in 2..=LETTER_LINES_MAX + 10 {
        world.must(ms, note("default-1-0-3", LetterDeed::Redeliver));
    }
    let lines = world.desk.audit(&world.rows, u64::MAX, u32::MAX, false).expect("the rows can be read");
    let count = |of: &str| lines.iter().filter(|line| line.action.starts_with(of)).count() as u64;
    assert_eq!((count("letter_"), count("key_created")), (LETTER_LINES_MAX, 1));
}
