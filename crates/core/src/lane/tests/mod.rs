//! The machine by itself: every answer may be lost, every instance may die.

mod own_limits;
mod rates;
mod set_limits;

use std::{cell::RefCell, collections::BTreeMap};

use stepwell_protocol::{
    Payload, Place, RunId, Timestamp,
    lane::{Ask, Flow, Hold, Limit, LimitSpec, SetLimit, Standing, Ticket},
};

use super::{CHECK_MS, Lane, Order, Rows, Telling, Waiter, check_flow, let_in};
use crate::object::{Hosted as _, Machine as _};

/// Rows that survive instances, and may refuse.
#[derive(Default)]
struct Table {
    rows: RefCell<BTreeMap<u64, String>>,
    refuses: RefCell<bool>,
    written: RefCell<usize>,
    set: RefCell<Vec<SetLimit>>,
}

impl Rows for Table {
    type Error = ();

    fn waiters(&self) -> Result<Vec<(u64, Option<Waiter>)>, ()> {
        let rows = self.rows.borrow();
        Ok(rows.iter().map(|(number, text)| (*number, serde_json::from_str(text).ok())).collect())
    }

    fn set_limits(&self) -> Result<Vec<SetLimit>, ()> {
        Ok(self.set.borrow().clone())
    }

    fn write_set_limits(&self, set: &[SetLimit]) -> Result<(), ()> {
        if *self.refuses.borrow() {
            return Err(());
        }
        *self.set.borrow_mut() = set.to_vec();
        Ok(())
    }

    fn write(&self, put: &[(u64, &Waiter)], deleted: &[u64]) -> Result<(), ()> {
        if *self.refuses.borrow() {
            return Err(());
        }
        let mut rows = self.rows.borrow_mut();
        for (number, waiter) in put {
            rows.insert(*number, serde_json::to_string(waiter).expect("a waiter is JSON"));
        }
        for number in deleted {
            rows.remove(number);
        }
        *self.written.borrow_mut() += put.len() + deleted.len();
        Ok(())
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn run(number: u64) -> RunId {
    let place = Place { pool: "default".into(), generation: 1, cell: u32::try_from(number % 3).unwrap_or(0) };
    RunId { place, number, suffix: RunId::suffix_from(number) }
}

fn ticket(number: u64) -> Ticket {
    Ticket::of_run(run(number), 1)
}

fn limit(key: &str, max: u32) -> Limit {
    let by = if key.is_empty() { "" } else { "input.customer" };
    Limit { by: by.into(), key: key.into(), max, per_ms: None, is_own: false }
}

fn ask(number: u64, limits: &[Limit]) -> Ask {
    Ask {
        ticket: ticket(number),
        limits: limits.to_vec(),
        priority: 0,
        share: None,
        hold: Hold::Work,
        since: at(number),
        started: at(number),
        step: None,
    }
}

/// Asks at a time, and gives how it stands.
fn asks(lane: &mut Lane, rows: &Table, ms: u64, asks: Vec<Ask>) -> Vec<Standing> {
    lane.ask(rows, at(ms), asks, &[]).expect("the storage works")
}

fn ends(lane: &mut Lane, rows: &Table, ms: u64, numbers: &[u64]) {
    let over: Vec<_> = numbers.iter().map(|number| ticket(*number)).collect();
    lane.ask(rows, at(ms), Vec::new(), &over).expect("the storage works");
}

fn tellings(lane: &mut Lane) -> Vec<Telling> {
    lane.take_orders().own.into_iter().map(|Order::Tell(telling)| *telling).collect()
}

/// Who is told to have been let in.
fn told(lane: &mut Lane) -> Vec<u64> {
    let mut numbers: Vec<_> = tellings(lane)
        .into_iter()
        .flat_map(|telling| telling.tickets)
        .map(|ticket| ticket.run.number)
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Lets every cell answer what `goes` says, until nothing more is asked.
fn answer_all(lane: &mut Lane, rows: &Table, ms: u64, goes: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut asked = Vec::new();
    for _ in 0..1_000 {
        let tellings = tellings(lane);
        if tellings.is_empty() {
            return asked;
        }
        for Telling { flight, tickets, .. } in tellings {
            let answer: Vec<_> = tickets.iter().map(|ticket| goes(ticket.run.number)).collect();
            asked.extend(tickets.iter().map(|ticket| ticket.run.number));
            lane.told(rows, at(ms), flight, Some(&answer)).expect("the storage works");
        }
    }
    panic!("it asks for ever");
}

fn held(rows: &Table) -> usize {
    rows.waiters()
        .expect("rows")
        .iter()
        .filter(|(_, waiter)| waiter.as_ref().is_some_and(|w| w.is_in))
        .count()
}

#[test]
fn as_many_are_in_as_there_are_slots_and_the_next_follows_when_one_is_over() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let all: Vec<_> = (1..=4).map(|number| ask(number, &[limit("", 2)])).collect();
    assert_eq!(
        asks(&mut lane, &rows, 10, all),
        [Standing::In, Standing::In, Standing::InLine, Standing::InLine]
    );
    assert_eq!(told(&mut lane), [] as [u64; 0], "the answer says it");
    ends(&mut lane, &rows, 20, &[1]);
    assert_eq!(told(&mut lane), [3]);
    assert_eq!(held(&rows), 2);
}

#[test]
fn an_ask_that_comes_again_changes_nothing_and_says_the_same() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let both = || vec![ask(1, &[limit("", 1)]), ask(2, &[limit("", 1)])];
    let first = asks(&mut lane, &rows, 0, both());
    let rows_before = rows.rows.borrow().clone();
    assert_eq!(asks(&mut lane, &rows, 5, both()), first);
    assert_eq!(*rows.rows.borrow(), rows_before);
    // Nor does it after the instance has died.
    assert_eq!(asks(&mut Lane::default(), &rows, 9, both()), first);
}

#[test]
fn a_run_that_wants_to_go_to_work_again_gives_back_what_it_had() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)]), ask(2, &[limit("", 1)])]);
    let again = Ask { ticket: Ticket { number: 2, ..ticket(1) }, ..ask(1, &[limit("", 1)]) };
    assert_eq!(asks(&mut lane, &rows, 50, vec![again.clone()]), [Standing::InLine]);
    assert_eq!(told(&mut lane), [2]);
    // A late word about the first time changes nothing.
    assert_eq!(asks(&mut lane, &rows, 60, vec![ask(1, &[limit("", 1)])]), [Standing::Over]);
    ends(&mut lane, &rows, 70, &[1]);
    assert_eq!(asks(&mut lane, &rows, 80, vec![again]), [Standing::InLine]);
    assert_eq!(rows.rows.borrow().len(), 2);
}

#[test]
fn a_cell_that_lost_its_word_is_asked_and_the_slot_comes_back() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)]), ask(2, &[limit("", 1)])]);
    drop(lane.take_orders());
    lane.alarm(&rows, at(CHECK_MS - 1)).expect("the rows can be read");
    assert_eq!(told(&mut lane), [] as [u64; 0]);
    lane.alarm(&rows, at(CHECK_MS)).expect("the rows can be read");
    assert_eq!(answer_all(&mut lane, &rows, CHECK_MS, |number| number != 1), [1, 2]);
    assert_eq!(held(&rows), 1);
}

#[test]
fn a_fresh_instance_asks_about_all_who_are_in() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)]), ask(2, &[limit("", 1)])]);
    ends(&mut lane, &rows, 5, &[1]);
    // It dies before anybody has heard that 2 is in.
    let mut lane = Lane::default();
    lane.found_alarm(None);
    lane.repair(&rows, at(1_000)).expect("the rows can be read");
    assert_eq!(told(&mut lane), [2]);
}

#[test]
fn a_cell_that_does_not_answer_keeps_its_slots_and_is_asked_again() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)]), ask(2, &[limit("", 1)])]);
    let mut now = CHECK_MS;
    for _ in 0..20 {
        drop(lane.take_orders());
        lane.alarm(&rows, at(now)).expect("the rows can be read");
        for Telling { flight, .. } in tellings(&mut lane) {
            lane.told(&rows, at(now), flight, None).expect("the storage works");
        }
        now += 1_000;
    }
    assert_eq!(held(&rows), 1);
    now += 60_000;
    lane.alarm(&rows, at(now)).expect("the rows can be read");
    assert_eq!(answer_all(&mut lane, &rows, now, |number| number != 1), [1, 2]);
}

#[test]
fn a_storage_that_refuses_lets_nobody_in() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)])]);
    *rows.refuses.borrow_mut() = true;
    let over = [ticket(1)];
    assert!(lane.ask(&rows, at(5), vec![ask(2, &[limit("", 1)])], &over).is_err());
    assert_eq!(told(&mut lane), [] as [u64; 0]);
    *rows.refuses.borrow_mut() = false;
    assert_eq!(asks(&mut lane, &rows, 9, vec![ask(2, &[limit("", 1)])]), [Standing::InLine]);
}

#[test]
fn a_run_under_two_limits_waits_for_both_and_holds_up_nobody_else() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let both = |key: &str| [limit(key, 1), limit("", 2)];
    // A hundred of A, of which only one may be in; B comes last and has room.
    let mut all: Vec<_> = (1..=100).map(|number| ask(number, &both("a"))).collect();
    all.push(ask(101, &both("b")));
    let standings = asks(&mut lane, &rows, 200, all);
    assert_eq!(standings.iter().filter(|standing| **standing == Standing::In).count(), 2);
    assert_eq!(standings.last(), Some(&Standing::In));
    // C waits for the wide limit; whoever is over lets it in before the rest of A that waits for its own.
    assert_eq!(asks(&mut lane, &rows, 210, vec![ask(102, &both("c"))]), [Standing::InLine]);
    ends(&mut lane, &rows, 220, &[101]);
    assert_eq!(told(&mut lane), [102]);
    ends(&mut lane, &rows, 230, &[1]);
    assert_eq!(told(&mut lane), [2]);
}

#[test]
fn priority_goes_first_and_waiting_makes_up_for_it() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let with = |number: u64, priority: i8, since: u64| Ask {
        priority,
        since: at(since),
        ..ask(number, &[limit("", 1)])
    };
    asks(&mut lane, &rows, 0, vec![with(1, 0, 0)]);
    asks(&mut lane, &rows, 25_000, vec![with(2, 0, 0), with(3, 2, 25_000), with(4, 3, 25_000)]);
    let mut order = Vec::new();
    for number in [1, 4, 2] {
        ends(&mut lane, &rows, 30_000, &[number]);
        order.append(&mut told(&mut lane));
    }
    // Number 3 is worth twenty seconds, and number 2 has waited for longer than that.
    assert_eq!(order, [4, 2, 3]);
}

#[test]
fn shares_take_turns_and_without_them_the_first_thousand_come_first() {
    for (fair, expected) in [(true, 1..=3), (false, 1_000..=1_001)] {
        let (mut lane, rows) = (Lane::default(), Table::default());
        let of = |number: u64, share: &str| Ask {
            share: fair.then(|| share.into()),
            ..ask(number, &[limit("", 1)])
        };
        asks(&mut lane, &rows, 5_000, (1..=1_000).map(|number| of(number, "a")).collect());
        asks(&mut lane, &rows, 6_000, vec![of(1_001, "b")]);
        let mut ended = 0;
        let mut at_work = 1;
        while at_work != 1_001 {
            ends(&mut lane, &rows, 7_000, &[at_work]);
            ended += 1;
            let next = answer_all(&mut lane, &rows, 7_000, |_| true);
            at_work = next.first().copied().expect("somebody follows");
        }
        assert!(expected.contains(&ended), "{ended} came before it");
    }
}

#[test]
fn a_limit_that_grows_lets_in_those_who_wait_and_one_that_shrinks_sends_nobody_away() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 10, (1..=3).map(|number| ask(number, &[limit("", 1)])).collect());
    assert_eq!(asks(&mut lane, &rows, 20, vec![ask(4, &[limit("", 3)])]), [Standing::InLine]);
    assert_eq!(told(&mut lane), [2, 3]);
    asks(&mut lane, &rows, 30, vec![ask(5, &[limit("", 1)])]);
    // One that was started before that, and still has the old number, does not bring it back.
    asks(&mut lane, &rows, 35, vec![Ask { started: at(0), ..ask(6, &[limit("", 9)]) }]);
    ends(&mut lane, &rows, 40, &[1, 2]);
    assert_eq!(answer_all(&mut lane, &rows, 40, |_| true), [] as [u64; 0]);
    ends(&mut lane, &rows, 50, &[3]);
    assert_eq!(told(&mut lane), [4]);
}

#[test]
fn a_row_that_cannot_be_read_keeps_nobody_waiting() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)]), ask(2, &[limit("", 1)])]);
    rows.rows.borrow_mut().insert(1, "{".into());
    let mut lane = Lane::default();
    assert_eq!(asks(&mut lane, &rows, 9, vec![ask(2, &[limit("", 1)])]), [Standing::In]);
    assert_eq!(rows.rows.borrow().len(), 1);
}

#[test]
fn who_need_not_wait_costs_two_rows_and_who_waits_one_more() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("a", 1), limit("", 9)])]);
    ends(&mut lane, &rows, 5, &[1]);
    assert_eq!(*rows.written.borrow(), 2);
    asks(&mut lane, &rows, 10, vec![ask(2, &[limit("a", 1)])]);
    asks(&mut lane, &rows, 11, vec![ask(3, &[limit("a", 1)])]);
    *rows.written.borrow_mut() = 0;
    ends(&mut lane, &rows, 15, &[2]);
    ends(&mut lane, &rows, 16, &[3]);
    // One for the end of 2, one that lets in 3, one for its end; it was one when it came.
    assert_eq!(*rows.written.borrow(), 3);
}

#[test]
fn no_limit_is_exceeded_and_nobody_is_forgotten_whatever_is_lost() {
    for seed in 1..=80_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let rows = Table::default();
        let mut lane = Lane::default();
        // What cells know: which runs want to work, which are at work, which are done.
        let mut wants: BTreeMap<u64, Vec<Limit>> = BTreeMap::new();
        let mut at_work: BTreeMap<u64, Vec<Limit>> = BTreeMap::new();
        let (mut next, mut done, mut now) = (1, 0, 0);
        for round in 0..3_000 {
            now += draw(2_000);
            let breaks = round < 1_500;
            match draw(6) {
                0 | 1 if next <= 60 => {
                    let key = ["a", "b", "c"][usize::try_from(draw(3)).unwrap_or(0)];
                    wants.insert(next, vec![limit(key, 1), limit("", 2)]);
                    next += 1;
                }
                2 if !wants.is_empty() => {
                    // A cell asks for all its runs; the answer may be lost.
                    let numbers: Vec<_> = wants.keys().copied().collect();
                    let all = numbers.iter().map(|number| ask(*number, &wants[number])).collect();
                    if let Ok(standings) = lane.ask(&rows, at(now), all, &[])
                        && !(breaks && draw(3) == 0)
                    {
                        for (number, standing) in numbers.into_iter().zip(standings) {
                            if standing == Standing::In {
                                at_work.extend(wants.remove_entry(&number));
                            }
                        }
                    }
                }
                3 if !at_work.is_empty() => {
                    let number =
                        at_work.keys().copied().nth(usize::try_from(draw(at_work.len() as u64)).unwrap_or(0));
                    let number = number.expect("it is below the length");
                    at_work.remove(&number);
                    done += 1;
                    if !(breaks && draw(2) == 0) {
                        let _ = lane.ask(&rows, at(now), Vec::new(), &[ticket(number)]);
                    }
                }
                4 => drop(lane.alarm(&rows, at(now))),
                5 if breaks && draw(4) == 0 => lane = Lane::default(),
                _ => *rows.refuses.borrow_mut() = breaks && draw(8) == 0,
            }
            for Telling { flight, tickets, .. } in tellings(&mut lane) {
                let answer: Vec<_> = tickets
                    .iter()
                    .map(|ticket| {
                        let number = ticket.run.number;
                        at_work.extend(wants.remove_entry(&number));
                        at_work.contains_key(&number)
                    })
                    .collect();
                let lost = breaks && draw(3) == 0;
                drop(lane.told(&rows, at(now), flight, (!lost).then_some(&answer[..])));
            }
            assert!(at_work.len() <= 2, "seed {seed}: {} are at work", at_work.len());
            for key in ["a", "b", "c"] {
                let of = at_work.values().filter(|limits| limits[0].key == key).count();
                assert!(of <= 1, "seed {seed}: {of} of {key} are at work");
            }
        }
        let all = next - 1;
        assert!(done + at_work.len() as u64 + 3 >= all.min(done + 3), "seed {seed}");
        assert!(done > 20, "seed {seed}: only {done} of {all} came through");
    }
}

#[test]
fn what_a_workflow_declares_becomes_the_limits_of_a_run() {
    let flow = Flow {
        limits: vec![
            LimitSpec { max: 10, key: None, per_ms: None, drop: false, max_by: None },
            LimitSpec {
                max: 2,
                key: Some("input.customer.id".into()),
                per_ms: None,
                drop: false,
                max_by: None,
            },
        ],
        priority: Some("input.paid ? 50 : 0".into()),
        fair_by: Some("input.customer.id".into()),
        hold: Hold::Run,
        starts: None,
        lane: None,
    };
    check_flow("orders", &flow).expect("it is well-formed");
    let input = Payload::encode(&serde_json::json!({"customer": {"id": 42}, "paid": true})).expect("JSON");
    let found = let_in(&flow, &input).expect("it has limits");
    assert_eq!(
        found.limits.iter().map(|limit| (limit.key.as_str(), limit.max)).collect::<Vec<_>>(),
        [("42", 2), ("", 10)]
    );
    assert_eq!((found.priority, found.share.as_deref(), found.hold), (50, Some("42"), Hold::Run));
    // An input that says nothing of it has the empty key.
    let found = let_in(&flow, &Payload::default()).expect("it has limits");
    assert_eq!((found.limits[0].key.as_str(), found.priority, found.share.as_deref()), ("", 0, Some("")));
    assert_eq!(let_in(&Flow::default(), &input), None);
}

#[test]
fn what_no_workflow_can_declare_is_refused_with_the_reason() {
    let one = |max: u32, key: Option<&str>| LimitSpec {
        max,
        key: key.map(Into::into),
        per_ms: None,
        drop: false,
        max_by: None,
    };
    for (limits, says) in [
        (vec![], "1 to 8"),
        (vec![one(0, None)], "is 0"),
        (vec![one(1, None), one(2, None)], "same key"),
        (vec![one(1, Some("event.data"))], "no expression"),
    ] {
        let flow = Flow { limits, ..Flow::default() };
        let problem = check_flow("orders", &flow).expect_err("it is refused");
        assert!(problem.detail.contains(says), "{}", problem.detail);
    }
}

#[test]
fn keys_that_look_alike_are_counted_apart() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let odd =
        |by: &str, key: &str| Limit { by: by.into(), key: key.into(), max: 1, per_ms: None, is_own: false };
    let limits = [odd("a", "b\nc"), odd("a\nb", "c"), odd("a b", "c"), odd("a", " bc")];
    let all = limits.into_iter().zip(1..).map(|(limit, number)| ask(number, &[limit]));
    assert_eq!(asks(&mut lane, &rows, 10, all.collect()), [Standing::In; 4]);
}

#[test]
fn a_full_lane_says_so_and_takes_the_next_when_one_is_over() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let count = super::TICKETS_MAX as u64;
    let all = (1..=count).map(|number| ask(number, &[limit("", 1)])).collect();
    assert_eq!(asks(&mut lane, &rows, 10, all).len(), super::TICKETS_MAX);
    assert_eq!(asks(&mut lane, &rows, 20, vec![ask(count + 1, &[limit("", 1)])]), [Standing::Full]);
    ends(&mut lane, &rows, 30, &[1]);
    assert_eq!(asks(&mut lane, &rows, 40, vec![ask(count + 1, &[limit("", 1)])]), [Standing::InLine]);
    assert_eq!(held(&rows), 1);
}

#[test]
fn the_limit_of_the_latest_run_holds_also_after_a_restart_and_when_an_old_one_asks_alone() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 10, vec![ask(5, &[limit("", 2)]), ask(6, &[limit("", 2)])]);
    let old = Ask { started: at(0), ..ask(1, &[limit("", 9)]) };
    assert_eq!(asks(&mut Lane::default(), &rows, 20, vec![old.clone()]), [Standing::InLine]);
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 10, vec![ask(5, &[limit("", 1)])]);
    ends(&mut lane, &rows, 11, &[5]);
    asks(&mut lane, &rows, 12, vec![old]);
    let older = Ask { started: at(0), ..ask(2, &[limit("", 9)]) };
    assert_eq!(asks(&mut lane, &rows, 13, vec![older]), [Standing::InLine]);
}

#[test]
fn a_slot_that_is_held_for_a_whole_run_is_asked_about_soon_and_then_seldom() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let whole = Ask { hold: Hold::Run, ..ask(1, &[limit("", 1)]) };
    asks(&mut lane, &rows, 0, vec![whole]);
    lane.alarm(&rows, at(CHECK_MS)).expect("the rows can be read");
    assert_eq!(answer_all(&mut lane, &rows, CHECK_MS, |_| true), [1]);
    lane.alarm(&rows, at(3 * CHECK_MS)).expect("the rows can be read");
    assert_eq!(answer_all(&mut lane, &rows, 3 * CHECK_MS, |_| true), [] as [u64; 0]);
    lane.alarm(&rows, at(CHECK_MS + super::CHECK_WHOLE_MS)).expect("the rows can be read");
    assert_eq!(answer_all(&mut lane, &rows, CHECK_MS + super::CHECK_WHOLE_MS, |_| false), [1]);
    assert_eq!(rows.rows.borrow().len(), 0);
}

#[test]
fn owners_who_come_for_the_first_time_do_not_overtake_for_ever() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let of = |number: u64, share: &str| Ask { share: Some(share.into()), ..ask(number, &[limit("", 1)]) };
    asks(&mut lane, &rows, 10, vec![of(1, "a"), of(2, "a")]);
    let mut at_work = 1;
    for number in 10..30 {
        // As many come as go.
        asks(&mut lane, &rows, 20 + number, vec![of(number, &format!("new {number}"))]);
        ends(&mut lane, &rows, 20 + number, &[at_work]);
        at_work =
            answer_all(&mut lane, &rows, 20 + number, |_| true).first().copied().expect("somebody follows");
        if at_work == 2 {
            return;
        }
    }
    panic!("the second one never had its turn");
}

#[test]
fn an_input_that_is_too_much_and_keys_that_are_too_long_do_no_harm() {
    let by =
        |text: &str| LimitSpec { max: 1, key: Some(text.into()), per_ms: None, drop: false, max_by: None };
    let long = format!("input.{}", "a".repeat(200));
    let flow = Flow {
        limits: vec![by(&format!("{long}.b")), by(&format!("{long}.c")), by("input.key")],
        ..Flow::default()
    };
    let (one, other) = ("k".repeat(300), format!("{}!", "k".repeat(299)));
    let keys = |key: &str| {
        let input = Payload::encode(&serde_json::json!({ "key": key })).expect("JSON");
        let found = let_in(&flow, &input).expect("it has limits");
        found.limits.into_iter().map(|limit| (limit.by, limit.key)).collect::<Vec<_>>()
    };
    let (first, second) = (keys(&one), keys(&other));
    assert!(first.iter().all(|(by, key)| by.len() <= 128 && key.len() <= 128));
    assert_eq!(first.iter().map(|(by, _)| by).collect::<std::collections::BTreeSet<_>>().len(), 3);
    assert_ne!(first, second, "two long keys are two");
    let text = format!(r#"{{"key":"a","x":[{}1]}}"#, r#"{"":0},"#.repeat(200_000));
    let hostile = Payload::from_text(text).expect("JSON");
    let found = let_in(&flow, &hostile).expect("it has limits");
    assert!(found.limits.iter().all(|limit| limit.key.is_empty()));
}

#[test]
fn an_answer_that_lets_a_cell_forget_a_ticket_leaves_only_with_a_write() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[limit("", 1)])]);
    drop(lane.take_orders());
    // An instance that was superseded does not know of it: its answer must not reach the cell.
    ends(&mut lane, &rows, 5, &[7]);
    assert!(lane.take_orders().arm.is_some());
}
