//! Rates: how many begin within a time.

use std::collections::BTreeSet;

use stepwell_protocol::{
    Payload,
    lane::{Flow, Limit, LimitSpec, Standing, StartRule},
};

use super::{Table, answer_all, ask, asks, at, ends, held, limit, told};
use crate::{
    lane::{Lane, Order, check_flow, let_in, start_id},
    object::{Hosted as _, Machine as _},
};

fn rate(key: &str, max: u32, per_ms: u64) -> Limit {
    Limit { per_ms: Some(per_ms), ..limit(key, max) }
}

/// A few numbers that look like chance.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn no_more_begin_within_any_minute_than_a_rate_says_whatever_dies() {
    const MAX: usize = 100;
    for seed in 1..=5 {
        let (mut lane, rows, mut dice) = (Lane::default(), Table::default(), Dice(seed));
        let (mut begun, mut alarm): (Vec<(u64, u64)>, Option<u64>) = (Vec::new(), None);
        let (mut waiting, mut next) = (BTreeSet::new(), 1);
        for tenth in 0..6_000 {
            let now = tenth * 100;
            let mut wanted = Vec::new();
            // Three times as many as the rate lets in.
            while next <= tenth / 2 + 1 {
                wanted.push(ask(next, &[limit("a", 50), rate("", 100, 60_000)]));
                waiting.insert(next);
                next += 1;
            }
            let numbers: Vec<_> = wanted.iter().map(|ask| ask.ticket.run.number).collect();
            let standings = asks(&mut lane, &rows, now, wanted);
            let mut let_in: Vec<_> = numbers
                .into_iter()
                .zip(standings)
                .filter(|(_, s)| *s == Standing::In)
                .map(|(n, _)| n)
                .collect();
            if alarm.is_some_and(|at| at <= now) {
                alarm = None;
                lane.alarm(&rows, at(now)).expect("the rows can be read");
            }
            let orders = lane.take_orders();
            let armed = orders.arm.map(|time| time.as_millis() - at(0).as_millis());
            alarm = [alarm, armed].into_iter().flatten().min();
            for Order::Tell(telling) in orders.own {
                let numbers: Vec<_> = telling.tickets.iter().map(|ticket| ticket.run.number).collect();
                let_in.extend(numbers.iter().filter(|number| waiting.contains(number)));
                let goes: Vec<_> = numbers.iter().map(|number| waiting.contains(number)).collect();
                lane.told(&rows, at(now), telling.flight, Some(&goes)).expect("the storage works");
            }
            for number in let_in {
                if waiting.remove(&number) {
                    begun.push((now, number));
                    ends(&mut lane, &rows, now, &[number]);
                }
            }
            if dice.draw(50) == 0 {
                // Only the rows and the alarm are left.
                lane = Lane::default();
                lane.found_alarm(alarm.map(at));
                lane.repair(&rows, at(now)).expect("the rows can be read");
            }
        }
        let times: Vec<_> = begun.iter().map(|(at, _)| *at).collect();
        for (place, time) in times.iter().enumerate() {
            let within = times[place..].iter().take_while(|other| **other < time + 60_000).count();
            assert!(within <= MAX, "{within} from {time} on, with seed {seed}");
        }
        assert!(begun.len() >= 950, "only {} in ten minutes, with seed {seed}", begun.len());
        assert!(rows.rows.borrow().len() <= MAX + waiting.len(), "what is over is forgotten");
    }
}

#[test]
fn whoever_leaves_before_being_let_in_has_not_begun() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    // The first holds what the second one waits for.
    let both = [limit("", 1), rate("", 2, 10_000)];
    asks(&mut lane, &rows, 0, vec![ask(1, &both), ask(2, &both)]);
    ends(&mut lane, &rows, 1, &[2]);
    ends(&mut lane, &rows, 2, &[1]);
    drop(lane.take_orders());
    assert_eq!(asks(&mut lane, &rows, 3, vec![ask(3, &both)]), [Standing::In], "one of two has begun");
    ends(&mut lane, &rows, 4, &[3]);
    assert_eq!(asks(&mut lane, &rows, 5, vec![ask(4, &both)]), [Standing::InLine]);
    assert_eq!(
        lane.page(&rows, at(6), 0, 10).expect("the storage works").shown.len(),
        1,
        "who is over is not shown"
    );
    lane.alarm(&rows, at(10_499)).expect("the rows can be read");
    assert_eq!(told(&mut lane), [] as [u64; 0]);
    lane.alarm(&rows, at(10_500)).expect("the rows can be read");
    assert_eq!(told(&mut lane), [4]);
}

#[test]
fn rows_of_those_who_have_begun_are_deleted_when_their_time_is_over() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    for number in 1..=5 {
        let time = number * 1_000;
        assert_eq!(asks(&mut lane, &rows, time, vec![ask(number, &[rate("", 10, 10_000)])]), [Standing::In]);
        ends(&mut lane, &rows, time, &[number]);
    }
    assert_eq!((held(&rows), rows.rows.borrow().len()), (5, 5));
    let written = *rows.written.borrow();
    assert_eq!(written, 10, "one row each to come, and one to be over");
    drop(lane.take_orders());
    // Nobody waits, so one alarm deletes all of them.
    lane.alarm(&rows, at(15_500)).expect("the rows can be read");
    assert_eq!((rows.rows.borrow().len(), *rows.written.borrow()), (0, 15));
    assert!(lane.is_empty());
}

#[test]
fn a_rate_and_a_limit_of_the_same_key_are_two() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let both = [limit("a", 5), rate("a", 2, 10_000)];
    let all = (1..=3).map(|number| ask(number, &both)).collect();
    assert_eq!(asks(&mut lane, &rows, 5, all), [Standing::In, Standing::In, Standing::InLine]);
    let flow = |limits| Flow { limits, ..Flow::default() };
    let by = |per_ms| LimitSpec { max: 2, key: Some("input.a".into()), per_ms, drop: false, max_by: None };
    assert_eq!(check_flow("w", &flow(vec![by(None), by(Some(60_000))])), Ok(()));
    assert_eq!(
        check_flow("w", &flow(vec![by(Some(1_000)), by(Some(2_000))])),
        Ok(()),
        "two times are two rates"
    );
    for wrong in [vec![by(Some(9))], vec![by(Some(86_400_001))], vec![by(Some(1_000)), by(Some(1_000))]] {
        assert!(check_flow("w", &flow(wrong)).is_err());
    }
    let many = LimitSpec { max: 10_001, key: None, per_ms: Some(1_000), drop: false, max_by: None };
    assert!(check_flow("w", &flow(vec![many])).is_err());
    let limits =
        let_in(&flow(vec![by(Some(1_000)), by(None)]), &Payload::null()).expect("it has limits").limits;
    assert!(limits[0].per_ms.is_none() && limits[1].per_ms.is_some(), "the same width");
    let all = LimitSpec { max: 5, key: None, per_ms: None, drop: false, max_by: None };
    let limits = let_in(&flow(vec![all, by(Some(1_000))]), &Payload::null()).expect("it has limits").limits;
    assert!(limits[0].per_ms.is_some(), "who waits for one customer's rate holds no place of all");
}

#[test]
fn all_slots_of_one_who_is_over_come_back_however_many_rates_there_are() {
    for (first_ms, second_ms) in [(10_000, 10_000), (1_000, 60_000), (60_000, 1_000)] {
        let (mut lane, rows) = (Lane::default(), Table::default());
        let both = [rate("a", 1, first_ms), rate("", 1, second_ms)];
        for round in 0..5 {
            let now = round * 61_000;
            assert_eq!(asks(&mut lane, &rows, now, vec![ask(round + 1, &both)]), [Standing::In], "{round}");
            ends(&mut lane, &rows, now + 1, &[round + 1]);
            drop(lane.take_orders());
            lane.alarm(&rows, at(now + 60_600)).expect("the rows can be read");
        }
        assert!(rows.rows.borrow().is_empty() && lane.is_empty());
    }
}

#[test]
fn a_word_that_comes_after_the_time_of_a_rate_leaves_nothing_behind() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[rate("", 1, 10_000)])]);
    drop(lane.take_orders());
    // It dies, and asks about all who are in.
    let mut lane = Lane::default();
    lane.repair(&rows, at(9_000)).expect("the rows can be read");
    lane.alarm(&rows, at(9_001)).expect("the rows can be read");
    assert_eq!(answer_all(&mut lane, &rows, 10_600, |_| false), [1]);
    assert_eq!(asks(&mut lane, &rows, 10_700, vec![ask(2, &[rate("", 1, 10_000)])]), [Standing::In]);
}

#[test]
fn what_has_begun_by_a_rate_with_another_time_does_not_count() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    asks(&mut lane, &rows, 0, vec![ask(1, &[rate("", 1, 86_400_000)])]);
    assert_eq!(asks(&mut lane, &rows, 5, vec![ask(2, &[rate("", 1, 1_000)])]), [Standing::In]);
}

#[test]
fn starts_beyond_a_rate_that_drops_them_are_refused_until_there_is_room() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let admit = |lane: &mut Lane, ms: u64, key: &str| {
        let limits = vec![rate("", 2, 10_000), rate("a", 2, 1_000)];
        lane.admit(&rows, at(ms), start_id(key), limits).expect("the storage works")
    };
    assert_eq!([admit(&mut lane, 0, "a"), admit(&mut lane, 100, "b")], [None, None]);
    assert_eq!(admit(&mut lane, 200, "c"), Some(at(10_500)), "when the first one's time is over");
    assert_eq!(admit(&mut lane, 300, "a"), None, "it came before");
    assert_eq!(
        lane.page(&rows, at(300), 0, 10).expect("the storage works").shown.len(),
        0,
        "they are no runs"
    );
    // Another instance knows as much.
    let mut lane = Lane::default();
    assert_eq!(admit(&mut lane, 400, "b"), None);
    assert_eq!(admit(&mut lane, 10_499, "c"), Some(at(10_500)));
    assert_eq!(admit(&mut lane, 10_500, "c"), None);
    assert_eq!(admit(&mut lane, 10_501, "a"), Some(at(10_600)), "by now it is another start");
    // One that comes back when all is over has forgotten all of them.
    let mut lane = Lane::default();
    assert_eq!([admit(&mut lane, 30_000, "c"), admit(&mut lane, 30_001, "d")], [None, None]);
    assert!(admit(&mut lane, 30_002, "b").is_some());
    lane.alarm(&rows, at(60_000)).expect("the rows can be read");
    assert!(rows.rows.borrow().is_empty() && lane.is_empty());
}

#[test]
fn in_no_minute_are_more_starts_admitted_than_a_rate_says_although_the_lane_dies() {
    let (mut lane, rows) = (Lane::default(), Table::default());
    let (mut admitted, mut now, mut state) = (Vec::new(), 0_u64, 88_172_645_463_325_252_u64);
    for number in 0.. {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Three times as many as there is room for.
        now += state % 400;
        if now > 600_000 {
            break;
        }
        if state.is_multiple_of(50) {
            lane = Lane::default();
        }
        let limits = vec![rate("", 100, 60_000)];
        let dropped = lane.admit(&rows, at(now), start_id(&format!("{number}")), limits);
        if dropped.expect("the storage works").is_none() {
            admitted.push(now);
        }
    }
    let most = admitted.windows(101).map(|times| times[100] - times[0]).min();
    assert!(most.is_some_and(|most| most >= 60_000), "{most:?}");
    assert!(admitted.len() >= 950, "{}", admitted.len());
}

#[test]
fn what_no_workflow_can_say_of_its_starts_is_refused() {
    let ok = |starts| check_flow("w", &Flow { starts: Some(starts), ..Flow::default() });
    let batch = |max, wait_ms| StartRule::Batch { key: None, max, wait_ms };
    let debounce = |wait_ms, max_ms, leading| StartRule::Debounce { key: None, wait_ms, max_ms, leading };
    let keyed = |key: &str| StartRule::Singleton { key: Some(key.into()), cancel: false };
    for right in [
        batch(1_000, 100),
        debounce(1_000, Some(1_000), false),
        debounce(1_000, None, true),
        keyed("input.a"),
    ] {
        assert_eq!(ok(right.clone()), Ok(()), "{right:?}");
    }
    for wrong in [
        batch(1, 1_000),
        batch(1_001, 1_000),
        batch(2, 99),
        batch(2, 7 * 86_400_000 + 1),
        debounce(99, None, false),
        debounce(1_000, Some(999), false),
        debounce(1_000, Some(2_000), true),
        keyed("event.a"),
    ] {
        assert!(ok(wrong.clone()).is_err(), "{wrong:?}");
    }
    let drop = LimitSpec { max: 1, key: None, per_ms: None, drop: true, max_by: None };
    assert!(check_flow("w", &Flow { limits: vec![drop], ..Flow::default() }).is_err());
}
