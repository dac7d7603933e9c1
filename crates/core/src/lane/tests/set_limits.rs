//! Limits that people set while runs work and wait.

use stepwell_protocol::lane::{LimitChange, SET_LIMITS_MAX};

use super::{
    super::{LINE_MAX, check_change},
    *,
};

fn change(key: Option<&str>, max: Option<u32>) -> LimitChange {
    LimitChange { by: "input.customer".into(), key: key.map(Into::into), per_ms: None, max }
}

fn set(lane: &mut Lane, rows: &Table, ms: u64, change: LimitChange) -> Option<Vec<SetLimit>> {
    let set = lane.set_limit(rows, at(ms), change, "key:ops".into()).expect("the storage works");
    set.map(|set| set.set)
}

fn is_in(lane: &mut Lane, rows: &Table, number: u64) -> bool {
    let page = lane.page(rows, at(9_000), 0, 100).expect("the storage works");
    page.shown.iter().any(|shown| shown.waiter.ticket.run == run(number) && shown.waits_at.is_none())
}

#[test]
fn a_key_that_is_set_to_0_waits_and_others_go_on_also_after_an_eviction() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    assert_eq!(set(&mut lane, &rows, 0, change(Some("acme"), Some(0))).map(|set| set.len()), Some(1));
    for mut lane in [lane, Lane::default()] {
        let of_acme = asks(&mut lane, &rows, 10, vec![ask(1, &[limit("acme", 2)])]);
        assert_eq!(of_acme, [Standing::InLine]);
        assert_eq!(asks(&mut lane, &rows, 20, vec![ask(2, &[limit("umbrella", 2)])]), [Standing::In]);
        let shown = lane.page(&rows, at(30), 0, 100).expect("the storage works");
        assert_eq!(shown.set.len(), 1);
        assert_eq!(shown.shown[0].waiter.limits[0].max, 0);
    }
    // Back to what the code says.
    let mut lane = Lane::default();
    assert_eq!(set(&mut lane, &rows, 40, change(Some("acme"), None)), Some(vec![]));
    assert!(is_in(&mut lane, &rows, 1));
    assert!(is_in(&mut Lane::default(), &rows, 1));
}

#[test]
fn a_limit_that_is_set_higher_lets_in_those_who_wait_and_one_key_can_differ() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    for (number, key) in [(1, "acme"), (2, "acme"), (3, "acme"), (4, "umbrella"), (5, "umbrella")] {
        asks(&mut lane, &rows, number, vec![ask(number, &[limit(key, 1)])]);
    }
    set(&mut lane, &rows, 20, change(Some("umbrella"), Some(1)));
    set(&mut lane, &rows, 30, change(None, Some(3)));
    let working: Vec<_> = (1..=5).filter(|number| is_in(&mut lane, &rows, *number)).collect();
    assert_eq!(working, [1, 2, 3, 4]);
    // A deploy does not bring back what the code says.
    asks(&mut lane, &rows, 40, vec![ask(6, &[limit("umbrella", 10)])]);
    assert!(!is_in(&mut lane, &rows, 5));
    // One that is set for all keys goes, and that of the one key stays.
    set(&mut lane, &rows, 50, change(None, None));
    assert!(!is_in(&mut lane, &rows, 5));
    set(&mut lane, &rows, 60, change(Some("umbrella"), None));
    assert!(is_in(&mut lane, &rows, 5) && is_in(&mut lane, &rows, 6));
}

#[test]
fn a_rate_that_is_set_to_0_drops_every_start() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let rate = Limit { by: String::new(), key: String::new(), max: 5, per_ms: Some(1_000), is_own: false };
    let stop = LimitChange { per_ms: Some(1_000), max: Some(0), ..LimitChange::default() };
    set(&mut lane, &rows, 0, stop);
    let admitted = lane.admit(&rows, at(10), run(1), vec![rate.clone()]).expect("the storage works");
    assert!(admitted.is_some());
    set(&mut lane, &rows, 20, LimitChange { per_ms: Some(1_000), ..LimitChange::default() });
    assert_eq!(lane.admit(&rows, at(30), run(1), vec![rate]).expect("the storage works"), None);
}

#[test]
fn what_cannot_be_stored_is_not_in_effect_and_there_are_so_many() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    *rows.refuses.borrow_mut() = true;
    lane.set_limit(&rows, at(0), change(Some("acme"), Some(0)), "root".into()).expect_err("it refuses");
    *rows.refuses.borrow_mut() = false;
    assert_eq!(asks(&mut lane, &rows, 10, vec![ask(1, &[limit("acme", 1)])]), [Standing::In]);
    for number in 0..SET_LIMITS_MAX {
        set(&mut lane, &rows, 20, change(Some(&number.to_string()), Some(0))).expect("there is room");
    }
    assert_eq!(set(&mut lane, &rows, 30, change(Some("one more"), Some(0))), None);
    set(&mut lane, &rows, 40, change(Some("7"), Some(1))).expect("it is one of them");
}

#[test]
fn only_limits_that_the_workflow_has_are_set_and_their_keys_are_short() {
    let spec =
        |max, key: &str, per_ms| LimitSpec { max, key: Some(key.into()), per_ms, drop: false, max_by: None };
    let limits = vec![spec(2, "input.customer", None), spec(5, "input.customer", Some(1_000))];
    let flow = Flow { limits, ..Flow::default() };
    let check = |change| check_change("import", Some(&flow), change).map_err(|problem| problem.detail);
    check(change(Some("acme"), Some(0))).expect("it has that one");
    let long = check(change(Some(&"a".repeat(500)), Some(0))).expect("it is made short");
    let runs = let_in(
        &flow,
        &Payload::encode(&serde_json::json!({ "customer": "a".repeat(500) })).expect("it is JSON"),
    );
    assert_eq!(long.key, runs.map(|runs| runs.limits[0].key.clone()));
    let wrong =
        check(LimitChange { max: Some(1), ..LimitChange::default() }).expect_err("it has none of that kind");
    let told = "The workflow 'import' has no such limit. It has: `by` input.customer; `by` input.customer and `per_ms` 1000.";
    assert_eq!(wrong, told);
    check(LimitChange::default()).expect("what has left the code can be reset");
    let key = LimitChange { key: Some("acme".into()), ..LimitChange::default() };
    check(key).expect_err("a key of no limit");
    let rate = LimitChange { per_ms: Some(1_000), max: Some(10_001), ..change(None, None) };
    check(rate).expect_err("too many to be remembered");
}

#[test]
fn runs_of_a_customer_who_is_stopped_do_not_fill_the_lane() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    set(&mut lane, &rows, 0, change(Some("bad"), Some(0)));
    let mut full = 0;
    for number in 1..=2_000 {
        full += usize::from(
            asks(&mut lane, &rows, number, vec![ask(number, &[limit("bad", 1)])]) == [Standing::Full],
        );
    }
    assert_eq!(full, 1_000, "the others wait in their cells");
    assert_eq!(asks(&mut lane, &rows, 3_000, vec![ask(3_000, &[limit("good", 1)])]), [Standing::In]);
    // They come as soon as they may.
    set(&mut lane, &rows, 4_000, change(Some("bad"), None));
    assert_ne!(asks(&mut lane, &rows, 5_000, vec![ask(2_000, &[limit("bad", 1)])]), [Standing::Full]);
}

#[test]
fn no_customer_fills_more_than_a_part_of_the_lane() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let most = LINE_MAX as u64;
    for number in 0..=most {
        let all = vec![ask(number + 1, &[limit("many", 1)])];
        assert_ne!(asks(&mut lane, &rows, number, all), [Standing::Full], "{number}");
    }
    assert_eq!(asks(&mut lane, &rows, most, vec![ask(most + 2, &[limit("many", 1)])]), [Standing::Full]);
    assert_eq!(asks(&mut lane, &rows, most, vec![ask(most + 3, &[limit("other", 1)])]), [Standing::In]);
}

#[test]
fn a_lane_takes_fewer_tickets_if_their_keys_are_long() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let mut taken = 0;
    for number in 1..=40_000_u64 {
        let limits: Vec<_> = (0..8)
            .map(|place| Limit {
                by: format!("{place}{}", "b".repeat(120)),
                key: format!("{number}{}", "k".repeat(110)),
                ..limit("", 1)
            })
            .collect();
        taken += usize::from(asks(&mut lane, &rows, 1, vec![ask(number, &limits)]) != [Standing::Full]);
    }
    assert!((10_000..25_000).contains(&taken), "{taken}");
    // Another instance knows as much, and whoever leaves makes room.
    let mut lane = Lane::default();
    let one = |number: u64| vec![ask(number, &[limit("x", 1)])];
    assert_eq!(asks(&mut lane, &rows, 2, one(50_000)), [Standing::Full]);
    let gone: Vec<_> = (1..=10).map(ticket).collect();
    lane.ask(&rows, at(3), Vec::new(), &gone).expect("the storage works");
    assert_eq!(asks(&mut lane, &rows, 4, one(50_000)), [Standing::In]);
}

#[test]
fn why_names_the_limit_in_effect_who_has_set_it_and_how_many_wait_before() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let why = |lane: &mut Lane, number| lane.why(&rows, at(9), &run(number), "import").expect("readable");
    for number in 1..=3 {
        asks(&mut lane, &rows, number, vec![ask(number, &[limit("acme", 1), limit("", 4)])]);
    }
    assert_eq!(why(&mut lane, 1), None, "it works");
    let waits = "It waits to be let in: 1 at once for those with input.customer = 'acme'.";
    assert_eq!(why(&mut lane, 2), Some(format!("{waits} It is the next one.")));
    assert_eq!(why(&mut lane, 3), Some(format!("{waits} One waits before it.")));
    set(&mut lane, &rows, 4, change(None, Some(7)));
    set(&mut lane, &rows, 4, change(Some("acme"), Some(0)));
    let stopped = "It waits to be let in: 0 at once for those with input.customer = 'acme', as key:ops has set it at \
                   2023-11-14T22:13:20Z. It is the next one.";
    asks(&mut lane, &rows, 5, vec![ask(4, &[limit("acme", 1), limit("", 4)])]);
    assert_eq!(why(&mut lane, 4).as_deref(), Some(stopped));
    let unknown = why(&mut lane, 99).expect("it asks again");
    assert!(unknown.contains("is not in line yet"), "{unknown}");
}
