//! Many letters, large letters, and peers that do not answer.

use std::{cell::RefCell, collections::BTreeMap, convert::Infallible};

use stepwell_protocol::{
    Invocation, OnClose, Op, OpKind, Parent, Payload, Place, RunId, Seq, program::Dispatch,
};

use super::*;
use crate::object::Envelope;

/// Letters in memory, of which all but one go to a cell that takes nothing.
struct Rows(RefCell<BTreeMap<u64, Letter>>);

fn cell(cell: u32) -> Place {
    Place { pool: "default".into(), generation: 1, cell }
}

impl Rows {
    fn with_one_behind(silent: u64) -> Self {
        let parent = RunId { place: cell(0), number: 1, suffix: RunId::suffix_from(7) };
        let letter = |id| {
            let to = Address::cell("default", &cell(if id > silent { 2 } else { 1 }));
            let message = Message::Cancel { parent: parent.clone(), invoked: Seq(1) };
            (id, Letter { id, posted_at: at(0), envelopes: vec![Envelope { to, message }] })
        };
        Self(RefCell::new((1..=silent + 1).map(letter).collect()))
    }
}

impl Letters for Rows {
    type Error = Infallible;

    fn last_letter(&self) -> Result<u64, Infallible> {
        Ok(self.0.borrow().keys().last().copied().unwrap_or_default())
    }

    fn letters(&self, after: u64, limit: usize) -> Result<Vec<Slip>, Infallible> {
        Ok(self.0.borrow().range(after + 1..).take(limit).map(|(_, letter)| letter.into()).collect())
    }

    fn letter(&self, id: u64) -> Result<Option<Letter>, Infallible> {
        Ok(self.0.borrow().get(&id).cloned())
    }

    fn forget_letter(&self, id: u64) -> Result<(), Infallible> {
        self.0.borrow_mut().remove(&id);
        Ok(())
    }

    fn bury_letter(&self, id: u64) -> Result<(), Infallible> {
        self.forget_letter(id)
    }

    fn split_letter(&self, id: u64, _: &Letter, rest: Option<&Letter>) -> Result<(), Infallible> {
        self.0.borrow_mut().extend(rest.map(|rest| (rest.id, rest.clone())));
        self.forget_letter(id)
    }

    fn discard_letter(&self, _: u64) -> Result<Option<Discarded>, Infallible> {
        Ok(None)
    }

    fn revive_letter(&self, _: u64, _: Timestamp) -> Result<Option<bool>, Infallible> {
        Ok(None)
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

#[test]
fn no_number_is_given_again_while_an_answer_to_it_may_be_under_way() {
    let (rows, mut outbox, mut sent) = (Rows::with_one_behind(0), Outbox::default(), Vec::new());
    let Ok(()) = outbox.send(&rows, at(0), &mut sent);
    let [Sending { letter, index, to, .. }] = &sent[..] else { panic!("{sent:?}") };
    outbox.arrived(to, *letter, *index);
    let Ok(()) = rows.forget_letter(*letter);
    assert_eq!(outbox.next_id(&rows), Ok(*letter + 1));
}

#[test]
fn ten_times_as_many_letters_as_memory_holds_keep_nobody_behind_them_waiting_for_ever() {
    let silent = 10 * KNOWN_MAX as u64;
    let (rows, mut outbox) = (Rows::with_one_behind(silent), Outbox::default());
    let (mut arrived, mut now, mut sent) = (None, 0, Vec::new());
    while arrived.is_none() {
        assert!(now < 600_000, "it waits for ever");
        outbox.begin();
        let Ok(()) = outbox.send(&rows, at(now), &mut sent);
        assert!(outbox.known <= KNOWN_MAX, "{}", outbox.known);
        for Sending { letter, index, to, .. } in sent.drain(..) {
            if letter > silent {
                outbox.arrived(&to, letter, index);
                arrived = Some(now);
            } else {
                outbox.failed(at(now), &to, letter, index);
            }
        }
        now += 5_000;
    }
    assert!(arrived.is_some_and(|ms| ms <= 200_000), "after {arrived:?} ms");
    assert!(!outbox.is_empty(), "the others are not forgotten");
    // A lap later they are known again.
    let mut again = 0;
    for _ in 0..40 {
        outbox.begin();
        let Ok(()) = outbox.send(&rows, at(now), &mut sent);
        for Sending { letter, index, to, .. } in sent.drain(..) {
            again += 1;
            outbox.failed(at(now), &to, letter, index);
        }
        now += 60_000;
    }
    assert!(again >= 20, "{again}");
}

/// Sends for a while, twenty milliseconds a turn; the first cell declines everything, and the other takes it. Says when it
/// has first got something, and how often the first one was asked.
fn decline(rows: &Rows, outbox: &mut Outbox, from_ms: u64, for_ms: u64) -> (Option<u64>, usize) {
    let (full, mut first, mut asked) = (Address::cell("default", &cell(1)), None, 0);
    for now in (from_ms..from_ms + for_ms).step_by(20) {
        outbox.begin();
        let mut sent = Vec::new();
        let Ok(()) = outbox.send(rows, at(now), &mut sent);
        assert!(outbox.known <= KNOWN_MAX, "{}", outbox.known);
        for Sending { letter, index, to, .. } in sent {
            if to == full {
                asked += 1;
                outbox.early(at(now), &to, letter, index);
            } else {
                assert_eq!(outbox.would_arrive(&to, letter, index), Arrival::Whole);
                outbox.arrived(&to, letter, index);
                let Ok(()) = rows.forget_letter(letter);
                first = first.or(Some(now - from_ms));
            }
        }
    }
    (first, asked)
}

#[test]
fn a_cell_that_declines_more_letters_than_memory_holds_keeps_nobody_behind_them_waiting_for_ever() {
    let full = 2 * KNOWN_MAX as u64;
    let (rows, mut outbox) = (Rows::with_one_behind(full), Outbox::default());
    let (arrived, _) = decline(&rows, &mut outbox, 0, 75_000);
    assert!(arrived.is_some_and(|ms| ms <= 60_000), "after {arrived:?} ms");
    // Between two laps, what is written anew does not wait for the next one.
    let lap = outbox.next_lap.as_millis() - at(0).as_millis();
    assert!(outbox.unread_after == Some(0) && lap > 76_000, "{lap}");
    let (mut fresh, id) = (Rows::with_one_behind(0).0.into_inner(), full + 2);
    let letter = Letter { id, posted_at: at(75_000), ..fresh.remove(&1).expect("it is there") };
    rows.0.borrow_mut().insert(id, letter.clone());
    outbox.posted(&letter);
    let (arrived, _) = decline(&rows, &mut outbox, 75_000, 1_000);
    assert_eq!(arrived, Some(0));
    // None is forgotten, and none is sent more often than one that memory holds.
    let (minutes, mut asked) = (5, 0);
    for minute in 0..minutes {
        asked += decline(&rows, &mut outbox, 76_000 + minute * 60_000, 60_000).1;
    }
    let rounds = asked as u64 / full;
    assert!((1..=2 * minutes).contains(&rounds), "{asked}");
    assert_eq!(rows.0.borrow().len() as u64, full);
}

#[test]
fn letters_that_have_died_meanwhile_are_laid_aside_a_bounded_number_at_a_time() {
    let (rows, mut outbox) = (Rows::with_one_behind(3 * KNOWN_MAX as u64), Outbox::default());
    let (mut sent, mut turns) = (Vec::new(), 0);
    while !outbox.is_empty() {
        let (before, now) = (rows.0.borrow().len(), at(DEAD_AFTER_MS + turns));
        outbox.begin();
        let Ok(()) = outbox.send(&rows, now, &mut sent);
        let buried = before - rows.0.borrow().len();
        assert!(buried <= KNOWN_MAX, "{buried} in one turn");
        assert!(outbox.is_empty() || outbox.next_look(now) == Some(now), "the alarm goes on at once");
        turns += 1;
    }
    assert_eq!((turns, sent.len(), rows.0.borrow().len()), (4, 0, 0));
}

/// Letters to cells of their own, each with a start of so many bytes.
fn of_sizes(sizes: &[usize]) -> Rows {
    let parent = RunId { place: cell(0), number: 1, suffix: RunId::suffix_from(7) };
    let letter = |(id, size): (u64, &usize)| {
        let invocation = Invocation {
            workflow: "w".into(),
            input: Payload::encode(&"x".repeat(*size)).expect("JSON"),
            detached: false,
            on_close: OnClose::Cancel,
            timeout_ms: None,
            retention_ms: None,
            dispatch: Dispatch::Direct,
            callback: None,
            flow: None,
        };
        let parent = Parent {
            run: parent.clone(),
            op: Op { kind: OpKind::Child, name: "c".into(), occurrence: 0 },
            invoked: Seq(1),
            depth: 1,
            abandoned: false,
            home: None,
            trace: None,
        };
        let to = Address::cell("default", &cell(u32::try_from(id).expect("small")));
        let message =
            Message::Start { parent, invocation: Box::new(invocation), spare: None, revived: false };
        (id, Letter { id, posted_at: at(0), envelopes: vec![Envelope { to, message }] })
    };
    Rows(RefCell::new((1..).zip(sizes).map(letter).collect()))
}

#[test]
fn what_is_under_way_is_bounded_by_its_bytes_and_what_is_larger_goes_alone() {
    const MIB: usize = 1 << 20;
    let sizes = [3 * MIB, 3 * MIB, 3 * MIB, 9 * MIB, 1, 1, 1];
    let (rows, mut outbox) = (of_sizes(&sizes), Outbox::default());
    let (mut under_way, mut order) = (Vec::<Sending>::new(), Vec::new());
    for turn in 0..100 {
        outbox.begin();
        let before = under_way.len();
        let Ok(()) = outbox.send(&rows, at(turn), &mut under_way);
        order.extend(under_way[before..].iter().map(|sending| sending.letter));
        let bytes: usize = under_way.iter().map(|sending| sending.message.size()).sum();
        assert!(bytes <= IN_FLIGHT_BYTES_MAX || under_way.len() == 1, "{bytes} in {}", under_way.len());
        assert_eq!(bytes, outbox.in_flight_bytes);
        if under_way.is_empty() {
            break;
        }
        if outbox.is_crowded {
            assert!(
                outbox.next_look(at(turn)) > Some(at(turn)),
                "it looks again when there is room, not at once"
            );
        }
        let Sending { letter, index, to, .. } = under_way.remove(0);
        // One is answered with no, one not at all.
        let is_dead = match turn {
            0 => outbox.early(at(turn), &to, letter, index),
            1 => outbox.failed(at(turn), &to, letter, index),
            _ => {
                outbox.arrived(&to, letter, index);
                let Ok(()) = rows.forget_letter(letter);
                false
            }
        };
        assert!(!is_dead);
    }
    assert_eq!(order[..2], [1, 2], "the third does not fit");
    assert!(rows.0.borrow().is_empty() || !outbox.is_empty(), "nothing is forgotten");
    // Those that were answered with no go out after their pause.
    outbox.begin();
    let Ok(()) = outbox.send(&rows, at(10_000), &mut under_way);
    assert_eq!(under_way.iter().map(|sending| sending.letter).collect::<Vec<_>>(), [1, 2]);
    for Sending { letter, index, to, .. } in under_way {
        outbox.arrived(&to, letter, index);
    }
    assert_eq!((outbox.in_flight, outbox.in_flight_bytes, outbox.known), (0, 0, 0));
}

#[test]
fn a_message_that_is_never_answered_holds_up_no_other_to_the_same_object() {
    let (rows, mut outbox) = (Rows::with_one_behind(2), Outbox::default());
    let (mut now, mut sent) = (0, Vec::new());
    let mut arrived = false;
    while !arrived {
        assert!(now < 600_000, "it waits for ever");
        outbox.begin();
        let Ok(()) = outbox.send(&rows, at(now), &mut sent);
        for Sending { letter, index, to, .. } in sent.drain(..).rev() {
            if letter == 2 && now > 0 {
                outbox.arrived(&to, letter, index);
                arrived = true;
            } else {
                // Both at first, then the first one always.
                outbox.failed(at(now), &to, letter, index);
            }
        }
        now += 1_000;
    }
}
