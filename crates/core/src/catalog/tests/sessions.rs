//! What becomes of sessions, and what one key can do to the others with them.

use stepwell_protocol::{
    Code,
    access::{Limits, Scope},
};

use super::{
    super::{
        ApiKey, Desk, Input, Log, Rows as _, SESSION_LIFE_MS_MAX, SESSION_MS, SESSIONS_MAX,
        SESSIONS_PER_KEY_MAX, SIGN_IN_LINES_MAX,
    },
    ROOT, World, at, create, credential, key,
    life::{revoke, sign_in, told, word},
    walk::lets_in,
};
use crate::{
    access::{About, Need},
    cell::{Admission, Cell},
    object::Fault,
};

#[test]
fn a_session_is_good_as_long_as_its_key_and_no_longer_than_its_own_time() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read:greet"])));
    world.must(1, sign_in("s", Some("a")));
    world.must(1, sign_in("t", Some("a")));
    let grant = world.catalog().grant(at(2), &credential("s")).expect("it is good");
    assert_eq!((grant.actor.as_str(), &grant.scopes), ("session:s", &key("a", &["read:greet"]).scopes));
    world.must(3, Input::EndSession { id: "t".into() });
    assert!(!world.is_good(3, "t") && world.is_good(3, "s"));
    assert!(!world.is_good(1 + SESSION_MS, "s"));
    world.must(4, revoke("a"));
    assert!(!world.is_good(4, "s"));
    assert_eq!(world.code(5, sign_in("u", Some("a"))), Some(Code::Unauthorized));
    assert_eq!(world.code(5, sign_in("u", Some("nobody"))), Some(Code::Unauthorized));
}

#[test]
fn a_session_of_a_key_with_an_end_ends_with_it() {
    let mut world = World::default();
    world.must(0, create(ApiKey { expires_at: Some(at(50)), ..key("a", &["read"]) }));
    world.must(1, sign_in("s", Some("a")));
    assert!(world.is_good(49, "s") && !world.is_good(50, "s"));
}

#[test]
fn the_deployments_key_signs_in_as_an_admin() {
    let mut world = World::default();
    world.must(0, sign_in("s", None));
    let grant = world.catalog().grant(at(1), &credential("s")).expect("it is good");
    assert!(grant.allows(Scope::Admin, None));
    assert_eq!(world.catalog().session(at(1), "default", "s").map(|view| view.subject), Some("root".into()));
}

#[test]
fn sessions_of_the_deployments_key_end_when_it_is_changed() {
    let mut world = World::default();
    world.must(0, sign_in("s", None));
    assert!(world.is_good(1, "s"));
    world.desk = Desk::new(vec!["root 2".into(), ROOT.into()]);
    assert!(world.is_good(1, "s"), "the previous key is good beside the current one");
    world.must(1, sign_in("t", None));
    world.desk = Desk::new(vec!["root 2".into()]);
    assert!(!world.is_good(2, "s") && world.is_good(2, "t"));
    let listed: Vec<_> =
        world.catalog().sessions(at(2), "default").into_iter().map(|session| session.id).collect();
    assert_eq!(listed, ["t"]);
    world.desk = Desk::default();
    assert!(!world.is_good(2, "t"), "no deployment's key, no session of it");
}

#[test]
fn who_looks_after_keys_sees_and_ends_the_sessions_of_others() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.must(1, sign_in("s", Some("a")));
    world.must(2, sign_in("t", None));
    let listed: Vec<_> = world.catalog().sessions(at(3), "acme").into_iter().collect();
    let shown: Vec<_> = listed.iter().map(|view| (view.id.as_str(), view.subject.as_str())).collect();
    assert_eq!(shown, [("t", "root"), ("s", "key:a")]);
    let end = |id: &str| Input::RevokeSession { id: id.into() };
    world.must(3, end("s"));
    assert!(!world.is_good(3, "s") && world.is_good(3, "t"));
    for gone in ["s", "never"] {
        assert_eq!(world.code(4, end(gone)), Some(Code::KeyNotFound), "{gone}");
    }
    let lines = world.rows.audit(u64::MAX, 1, true).expect("it can be read");
    assert_eq!((lines[0].action.as_str(), lines[0].subject.as_str()), ("session_revoked", "session:s"));
    assert!(world.rows.audit.borrow().keys().any(|(log, number)| (*log, *number) == (Log::Changes, 2)));
}

#[test]
fn sessions_that_are_over_make_room() {
    let mut world = World::default();
    let keys = SESSIONS_MAX / SESSIONS_PER_KEY_MAX;
    for number in 0..keys {
        let id = format!("k{number}");
        world.must(0, create(key(&id, &["read"])));
        for session in 0..SESSIONS_PER_KEY_MAX {
            world.must(0, sign_in(&format!("s{number}-{session}"), Some(&id)));
        }
    }
    assert_eq!(world.code(1, sign_in("more", None)), Some(Code::TooMany));
    world.must(SESSION_MS, sign_in("more", None));
    assert!(world.is_good(SESSION_MS, "more"));
}

#[test]
fn one_sign_in_too_many_ends_the_oldest_session_of_that_key_and_no_other() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read:greet"])));
    world.must(0, create(key("b", &["read"])));
    world.must(1, sign_in("of-b", Some("b")));
    for number in 0..SESSIONS_PER_KEY_MAX as u64 + 3 {
        world.must(10 + number, sign_in(&format!("s{number}"), Some("a")));
    }
    let now = 100;
    assert_eq!(["s0", "s1", "s2", "s3"].map(|id| world.is_good(now, id)), [false, false, false, true]);
    assert!(world.is_good(now, "of-b"));
    let live =
        (0..SESSIONS_PER_KEY_MAX + 3).filter(|number| world.is_good(now, &format!("s{number}"))).count();
    assert_eq!(live, SESSIONS_PER_KEY_MAX);
}

#[test]
fn a_key_signs_in_once_a_second_and_others_do_not_wait_for_it() {
    let mut world = World::default();
    for id in ["a", "b"] {
        world.must(0, create(key(id, &["read"])));
    }
    let mut try_as = |ms: u64, id: String, with: &str| {
        let World { rows, desk } = &mut world;
        let result = desk.sign_in(rows, at(ms), "key", credential(&id), Some(with.into()));
        result.map_err(|fault| match fault {
            Fault::Rejected(problem) => problem.code,
            other @ (Fault::Storage(_) | Fault::Moved(_)) => panic!("{other}"),
        })
    };
    let opened = (0..100).filter(|number| try_as(0, format!("s{number}"), "a").is_ok()).count();
    assert_eq!(opened, 3, "a burst of two seconds");
    assert_eq!(try_as(0, "more".into(), "a"), Err(Code::LimitReached));
    assert_eq!(try_as(0, "other".into(), "b"), Ok(()));
    assert_eq!(try_as(1_001, "more".into(), "a"), Ok(()));
}

#[test]
fn sign_ins_never_push_out_a_line_about_a_change() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read:greet"])));
    for number in 0..2 * SIGN_IN_LINES_MAX {
        let id = format!("s{number}");
        world.must(number, sign_in(&id, Some("a")));
        world.must(number, Input::EndSession { id });
        if number == 77 {
            world.lose_memory();
        }
    }
    let kept = world.rows.audit(u64::MAX, u32::MAX, true).expect("it can be read");
    let (last, first) = (kept.first().expect("a line"), kept.last().expect("a line"));
    assert_eq!(kept.len() as u64, SIGN_IN_LINES_MAX + 1);
    assert_eq!((first.action.as_str(), first.seq), ("key_created", 1));
    assert_eq!((last.action.as_str(), last.seq), ("session_ended", 4 * SIGN_IN_LINES_MAX + 1));
}

#[test]
fn ending_a_session_concerns_that_session_alone() {
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.must(0, create(key("b", &["read"])));
    for session in ["s", "t"] {
        world.must(1, sign_in(session, Some("a")));
    }
    let mut cell = Cell::new(1);
    for id in ["a", "b", "s", "t"] {
        let confirmed = world.desk.confirm(&world.rows, at(2), &credential(id), None, "default-1-0");
        cell.remember_key(at(2), &credential(id), confirmed.expect("it is good"));
    }
    let remembers = |cell: &mut Cell| ["a", "b", "s", "t"].map(|id| lets_in(cell, 3, id));
    world.must(3, Input::EndSession { id: "s".into() });
    assert_eq!(told(&mut world), Some(vec![word("default-1-0", 1, Some(&["s"]))]));
    cell.forget_keys(1, Some(&["s".into()]));
    assert_eq!(remembers(&mut cell), [true, true, false, true]);
    // The cell has not answered, so it is told of both.
    world.must(4, revoke("a"));
    assert_eq!(told(&mut world), Some(vec![word("default-1-0", 2, Some(&["s", "a", "t"]))]));
    world.must(5, Input::Heard { cell: "default-1-0".into(), version: 1 });
    let limits = Limits { live_runs: Some(5), ..Limits::default() };
    world.must(6, Input::SetLimits(limits));
    assert_eq!(told(&mut world), Some(vec![word("default-1-0", 3, None)]), "this one is about everybody");
}

#[test]
fn a_session_that_is_used_lasts_longer_but_not_for_ever() {
    const HOUR_MS: u64 = 3_600_000;
    let mut world = World::default();
    world.must(0, create(key("a", &["read"])));
    world.must(0, sign_in("used", Some("a")));
    world.must(0, sign_in("idle", Some("a")));
    let (mut writes, mut now, mut before) = (0, 0, None);
    let uses = |world: &mut World, ms| {
        world.desk.confirm(&world.rows, at(ms), &credential("used"), None, "default-1-0").is_ok()
    };
    while now <= SESSION_LIFE_MS_MAX + HOUR_MS && uses(&mut world, now) {
        let row = world.rows.rows.borrow().get(&("session".into(), "used".into())).cloned();
        writes += u64::from(row != before);
        before = row;
        now += 60_000;
    }
    assert!(!world.is_good(SESSION_MS, "idle"));
    assert!(now <= SESSION_LIFE_MS_MAX && now > SESSION_LIFE_MS_MAX - 2 * HOUR_MS, "it was good until {now}");
    assert!(writes <= SESSION_LIFE_MS_MAX / HOUR_MS, "{writes} writes");
}

#[test]
fn a_cell_asks_again_about_a_session_whose_end_it_knows() {
    let mut world = World::default();
    world.must(0, sign_in("s", None));
    let mut cell = Cell::new(1);
    let almost = SESSION_MS - 1_000;
    // The cell heard of the end as it was at first.
    let confirmed =
        world.desk.confirm(&world.rows, at(1), &credential("s"), None, "default-1-0").expect("good");
    cell.remember_key(at(almost), &credential("s"), confirmed);
    assert!(lets_in(&mut cell, almost, "s"));
    world
        .desk
        .confirm(&world.rows, at(almost), &credential("s"), None, "default-1-1")
        .expect("it is extended");
    let need = Need { scope: Scope::Read, about: About::Whole };
    let admitted = cell.admit(at(SESSION_MS), &credential("s"), &need, 0, 1);
    assert_eq!(admitted, Ok(Admission::Unknown), "the catalog knows better by now");
    assert!(world.is_good(SESSION_MS, "s"));
}
