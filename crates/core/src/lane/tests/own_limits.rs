//! Keys with numbers of their own, and lanes that workflows share.

use serde_json::json;

use super::{super::check_shared, *};

/// A limit whose number a run's input says.
fn own(key: &str, max: u32) -> Limit {
    Limit { is_own: true, ..limit(key, max) }
}

#[test]
fn the_number_of_a_limit_comes_from_the_input_and_from_the_code_where_that_says_none() {
    let spec = |per_ms| LimitSpec {
        max: 3,
        max_by: Some("input.plan == 'pro' ? input.seats : 1".into()),
        key: Some("input.customer".into()),
        per_ms,
        drop: false,
    };
    let max = |per_ms, input: serde_json::Value| {
        let flow = Flow { limits: vec![spec(per_ms)], ..Flow::default() };
        check_flow("import", &flow).expect("it can be declared");
        let limits =
            let_in(&flow, &Payload::encode(&input).expect("it is JSON")).expect("it has limits").limits;
        assert!(limits[0].is_own);
        limits[0].max
    };
    assert_eq!(max(None, json!({ "customer": "a", "plan": "pro", "seats": 12 })), 12);
    assert_eq!(max(None, json!({ "customer": "a", "plan": "free" })), 1);
    assert_eq!(max(None, json!({ "plan": "pro", "seats": "many" })), 3, "no number");
    assert_eq!(max(None, json!({ "plan": "pro", "seats": -5 })), 1, "one goes always");
    assert_eq!(max(Some(1_000), json!({ "plan": "pro", "seats": 1e9 })), 10_000, "more are not remembered");
    let wrong = LimitSpec { max_by: Some("input.".into()), ..spec(None) };
    check_flow("import", &Flow { limits: vec![wrong], ..Flow::default() }).expect_err("no expression");
}

#[test]
fn each_key_has_its_own_number_and_the_run_that_was_started_last_says_it() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let mut standings = Vec::new();
    for (number, key, max) in
        [(1, "small", 1), (2, "large", 3), (3, "small", 1), (4, "large", 3), (5, "large", 3)]
    {
        standings.append(&mut asks(&mut lane, &rows, number, vec![ask(number, &[own(key, max)])]));
    }
    let (inside, in_line) = (Standing::In, Standing::InLine);
    assert_eq!(standings, [inside, inside, in_line, inside, inside]);
    // Another instance knows the same.
    let mut lane = Lane::default();
    assert_eq!(asks(&mut lane, &rows, 10, vec![ask(6, &[own("large", 3)])]), [in_line]);
    // The customer buys more.
    assert_eq!(asks(&mut lane, &rows, 20, vec![ask(7, &[own("small", 3)])]), [inside]);
    let page = lane.page(&rows, at(30), 0, 100).expect("the storage works");
    let waits: Vec<_> = page.shown.iter().filter(|shown| shown.waits_at.is_some()).collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!(waits[0].waiter.limits[0].key, "large");
    // An older run does not bring the old number back.
    let older = Ask { started: at(1), ..ask(8, &[own("small", 1)]) };
    assert_eq!(asks(&mut lane, &rows, 40, vec![older]), [in_line]);
    lane.ask(&rows, at(50), Vec::new(), &[ticket(1)]).expect("the storage works");
    let page = lane.page(&rows, at(60), 0, 100).expect("the storage works");
    assert_eq!(page.shown.iter().filter(|shown| shown.waits_at.is_some()).count(), 1);
}

#[test]
fn numbers_of_keys_are_forgotten_with_their_last_run() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    for number in 1..=5_000 {
        let key = format!("customer {number}");
        asks(&mut lane, &rows, number, vec![ask(number, &[own(&key, 2)])]);
        lane.ask(&rows, at(number), Vec::new(), &[ticket(number)]).expect("the storage works");
    }
    assert_eq!(lane.own_numbers(), 0);
    assert!(rows.rows.borrow().is_empty());
}

#[test]
fn workflows_that_share_a_lane_agree_on_its_limits() {
    let spec = |max, key: Option<&str>| LimitSpec {
        max,
        max_by: None,
        key: key.map(Into::into),
        per_ms: None,
        drop: false,
    };
    let flow = |lane: Option<&str>, limits| Flow { lane: lane.map(Into::into), limits, ..Flow::default() };
    let one = flow(Some("partner"), vec![spec(5, None), spec(1, Some("input.a"))]);
    let same = flow(Some("partner"), vec![spec(5, None), spec(1, Some("input.b"))]);
    let elsewhere = flow(None, vec![spec(7, None)]);
    let check = |other| {
        let flows = [("charge", &one), ("refund", other)];
        check_shared(flows.into_iter()).map_err(|problem| problem.detail)
    };
    check(&same).expect("they agree");
    check(&elsewhere).expect("it is another lane");
    let differs = check(&flow(Some("partner"), vec![spec(6, None)])).expect_err("they do not agree");
    let told = "workflows 'charge' and 'refund' share the lane 'partner' and declare different numbers for its limit \
                without a key";
    assert_eq!(differs, told);
    check_flow("charge", &flow(Some(""), vec![spec(1, None)])).expect_err("a lane has a name");
    assert_eq!(one.lane_of("charge"), same.lane_of("refund"));
    assert_ne!(one.lane_of("charge"), elsewhere.lane_of("partner"));
}

#[test]
fn a_thousand_workflows_of_one_lane_are_looked_at_once() {
    let limits = |of: usize| {
        (0..8).map(move |number| LimitSpec {
            max: 1,
            max_by: None,
            key: Some(format!("input.of{of}.key{number}")),
            per_ms: None,
            drop: false,
        })
    };
    let flow = |of: usize| Flow { lane: Some("all".into()), limits: limits(of).collect(), ..Flow::default() };
    let flows: Vec<_> = (0..1_000).map(|of| (format!("w{of}"), flow(of))).collect();
    let began = std::time::Instant::now();
    check_shared(flows.iter().map(|(name, flow)| (name.as_str(), flow))).expect("they agree");
    assert!(began.elapsed().as_millis() < 500, "{:?}", began.elapsed());
}
