//! Letters that are refused, that nobody answers, and that the storage does not take.

use stepwell_core::{
    cell::{Action, Cell, Rows as _, StoredKey, child_key},
    object::{DEAD_AFTER_MS, Delivery, Fault, Letters as _, Receipt, SEND_AGAIN_MS_MAX, Sending},
    run::{End, INVOCATION_KEPT_MS, Phase, Run},
};
use stepwell_protocol::{
    Code, Event, Invocation, Op, OpKind, Place, Problem, Seq,
    program::{Open, Then},
};

use super::children::{Two, done, invocation, invoke, place, waiting, waits};

#[test]
fn a_message_that_its_receiver_cannot_take_holds_up_no_other_to_the_same_cell() {
    let mut two = Two::new();
    two.parent();
    let commands = (0..12).map(|occurrence| invoke(occurrence, invocation())).collect();
    let mut sends = two.report(0, 1, commands, Then::Continue { open: None });
    let first =
        sends.iter().position(|sending| sending.to.name == place(1).to_string()).expect("some go there");
    let hopeless = sends.remove(first);
    two.answer(0, &hopeless, Delivery::Declined);
    while let Some(sending) = sends.pop() {
        assert_ne!(sending, hopeless, "it is not sent again at once");
        let receipt = two.arrive(&sending);
        two.answer(0, &sending, Delivery::Arrived(receipt));
        sends.extend(two.sends(0));
    }
    assert_eq!(two.letters(), 1);
    assert_eq!(two.runs(), 1 + 11, "all others are started");
    let again = two.alarm(0, SEND_AGAIN_MS_MAX);
    assert_eq!(again.len(), 1);
    two.post(again, 0);
    assert_eq!((two.letters(), two.runs()), (0, 1 + 12));
}

#[test]
fn a_storage_that_fails_is_not_asked_again_at_once_and_nothing_is_forgotten() {
    let (mut two, _, sends) = waiting(invocation());
    let receipt = two.arrive(&sends[0]);
    two.rows[0].refuses_letters.set(true);
    let clock = two.clock();
    assert!(two.cells[0].delivered(&two.rows[0], clock, &sends[0], Delivery::Arrived(receipt)).is_err());
    assert!(two.sends(0).is_empty(), "not in the same turn");
    two.rows[0].refuses_letters.set(false);
    let again = two.alarm(0, 1_000);
    assert_eq!(again.len(), 1, "but soon");
    two.post(again, 0);
    assert_eq!((two.letters(), two.runs()), (0, 2));

    // A letter that cannot be laid aside keeps nobody from being sent.
    let (mut two, _, _) = waiting(invocation());
    two.now += DEAD_AFTER_MS;
    two.invoke_in_another_run();
    two.crash(0);
    two.rows[0].refuses_letters.set(true);
    assert_eq!(two.alarm(0, 1).len(), 1, "the fresh one goes out");
    two.rows[0].refuses_letters.set(false);
    two.alarm(0, 6_000);
    assert_eq!(
        two.rows[0].letters(0, 10).expect("readable").len(),
        1,
        "and the dead one is laid aside later"
    );
}

#[test]
fn a_message_that_does_not_arrive_in_six_days_is_dead_and_visibly_there() {
    let (mut two, _, mut sends) = waiting(invocation());
    let mut tries = 0;
    while !two.rows[0].letters.borrow().is_empty() && !two.rows[0].letters.borrow()[&1].1 {
        for sending in std::mem::take(&mut sends) {
            two.answer(0, &sending, Delivery::Failed);
            tries += 1;
        }
        sends = two.alarm(0, SEND_AGAIN_MS_MAX);
        assert!(two.now < 2 * DEAD_AFTER_MS, "it does not die");
    }
    assert!(two.now >= DEAD_AFTER_MS && tries > 1_000, "{tries} tries in {} ms", two.now);
    assert_eq!(two.letters(), 1, "it is still there");
    assert!(two.rows[0].letters(0, 10).expect("readable").is_empty());
    assert!(two.alarm(0, 60_000).is_empty(), "and is not sent any more");
    let clock = two.clock();
    let mut other = two.rows[0].letters.borrow()[&1].clone();
    other.0.id = 2;
    two.rows[0].letters.borrow_mut().insert(2, other);
    assert!(two.cells[0].redeliver(&two.rows[0], clock, 1).expect("it is there"), "it was dead");
    let code = |two: &mut Two, letter| match two.cells[0].discard(&two.rows[0], letter) {
        Ok(heads) => Err(heads.len()),
        Err(Fault::Rejected(problem)) => Ok(problem.code),
        Err(fault) => panic!("{fault}"),
    };
    assert_eq!(code(&mut two, 1), Ok(Code::WrongStatus), "it is on its way");
    assert_eq!(code(&mut two, 2), Err(1), "a dead one can be discarded");
    assert_eq!(code(&mut two, 2), Ok(Code::LetterNotFound), "once");
    let sends = two.sends(0);
    assert_eq!(sends.len(), 1);
    two.post(sends, 0);
    assert_eq!((two.letters(), two.runs()), (0, 2));
    assert!(two.cells[0].redeliver(&two.rows[0], clock, 1).is_err(), "it has arrived");
}

#[test]
fn a_message_that_nobody_ever_answers_is_dead_after_six_days_too() {
    let (mut two, _, first) = waiting(invocation());
    let mut tries = first.len();
    while !two.rows[0].letters.borrow()[&1].1 {
        tries += two.alarm(0, SEND_AGAIN_MS_MAX).len();
        assert!(two.now < 2 * DEAD_AFTER_MS, "it does not die");
    }
    assert!(two.now >= DEAD_AFTER_MS && tries > 1_000, "{tries} tries in {} ms", two.now);
}

#[test]
fn what_has_arrived_of_a_letter_is_recorded_once_when_the_rest_goes_out_again() {
    let mut two = Two::new();
    let parent = two.parent();
    // Their ends are heard of, so that only the journal tells that they are started.
    let detached = || Invocation { detached: true, ..invocation() };
    let commands = vec![invoke(0, detached()), invoke(1, detached())];
    let sends = two.report(0, 1, commands, Then::Continue { open: None });
    let receipt = two.arrive(&sends[0]);
    two.answer(0, &sends[0], Delivery::Arrived(receipt));
    two.crash(0);
    let again = two.alarm(0, 1);
    assert_eq!(again.len(), 2, "the row has both");
    two.post(again, 0);
    let history = two.rows[0].history(parent.id.number).into_iter();
    let started = history.filter(|record| matches!(record.event, Event::ChildStarted { .. })).count();
    assert_eq!((started, two.letters(), two.runs()), (2, 0, 3));
}

#[test]
fn a_message_that_is_refused_for_good_takes_no_other_of_its_letter_along() {
    let (mut two, parent, sends) = waiting(invocation());
    two.post(sends, 0);
    // A child with children of its own: its end and their cancellations are one letter.
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    let number = child.id.number;
    let commands = (0..3).map(|occurrence| invoke(occurrence, invocation())).collect();
    let sends = two.report(cell, number, commands, Then::Continue { open: None });
    two.post(sends, cell);
    let mut sends = two.report(cell, number, vec![], done(1));
    assert_eq!((sends.len(), two.letters()), (4, 1));
    let at = sends.iter().position(|sending| sending.message.as_str() == "ended").expect("it is among them");
    let ended = sends.remove(at);
    // One of the others has arrived by then.
    let receipt = two.arrive(&sends[0]);
    two.answer(cell, &sends[0], Delivery::Arrived(receipt));
    let problem = Problem::new(Code::InvalidRequest, "It is refused.");
    two.answer(cell, &ended, Delivery::Refused(problem.clone()));
    let dead = |two: &Two| {
        let letters = two.rows[cell].letters.borrow();
        let dead = letters.values().filter(|(_, is_dead)| *is_dead);
        dead.flat_map(|(letter, _)| letter.envelopes.clone()).collect::<Vec<_>>()
    };
    assert_eq!(dead(&two).iter().map(|envelope| envelope.message.as_str()).collect::<Vec<_>>(), ["ended"]);
    let cancels = |two: &Two| {
        let letters = two.rows[cell].letters.borrow();
        let alive = letters.values().filter(|(_, is_dead)| !is_dead);
        let cancels = alive.flat_map(|(letter, _)| letter.envelopes.clone());
        cancels.filter(|envelope| envelope.message.as_str() == "cancel").count()
    };
    assert_eq!(cancels(&two), 3);
    // Late answers are about a letter that is not there any more.
    two.answer(cell, &sends[1], Delivery::Arrived(Receipt::Taken));
    two.answer(cell, &ended, Delivery::Refused(problem));
    assert_eq!((cancels(&two), dead(&two).len()), (3, 1));
    two.crash(cell);
    let sends = two.alarm(cell, 1);
    let is_of_child = |sending: &Sending| *sending.message.from() == child.id;
    let mut of_child = sends.iter().filter(|sending| is_of_child(sending));
    assert!(of_child.all(|sending| sending.message.as_str() == "cancel"), "{sends:?}");
    two.post(sends, cell);
    for invoked in 1..=3 {
        let (_, grandchild) = two.child(&child.id, invoked).expect("it is there");
        assert!(matches!(grandchild.phase, Phase::Ended { how: End::Cancelled, .. }), "{invoked}");
    }
    assert_eq!((two.letters(), dead(&two).len()), (1, 1));
    let dead = *two.rows[cell].letters.borrow().keys().next().expect("it is there");
    let clock = two.clock();
    assert!(two.cells[cell].redeliver(&two.rows[cell], clock, dead).expect("it is there"));
    let sends = two.sends(cell);
    two.post(sends, cell);
    assert_eq!((two.letters(), two.finished(1).len()), (0, 1));
}

/// Which messages of a letter go out.
fn indexes(sends: &[Sending], letter: u64) -> Vec<usize> {
    let mut found: Vec<_> =
        sends.iter().filter(|sending| sending.letter == letter).map(|sending| sending.index).collect();
    found.sort_unstable();
    found
}

#[test]
fn a_letter_that_is_sent_again_starts_no_child_twice() {
    const DAY_MS: u64 = 86_400_000;
    let mut two = Two::new();
    let parent = two.parent();
    let short = || Invocation { retention_ms: Some(1_000), ..invocation() };
    let commands = vec![invoke(0, short()), invoke(1, short())];
    let mut sends = two.report(0, 1, commands, Then::Continue { open: None });
    sends.sort_by_key(|sending| sending.index);
    let receipt = two.arrive(&sends[0]);
    two.answer(0, &sends[0], Delivery::Arrived(receipt));
    two.now += DEAD_AFTER_MS;
    two.answer(0, &sends[1], Delivery::Failed);
    assert!(two.rows[0].letters.borrow()[&1].1, "it is dead");
    let clock = two.clock();
    assert!(two.cells[0].redeliver(&two.rows[0], clock, 1).expect("it is there"));
    let mut sends = two.sends(0);
    assert_eq!(indexes(&sends, 1), [0, 1], "its parent waits for both");
    sends.sort_by_key(|sending| sending.index);
    let receipt = two.arrive(&sends[0]);
    two.answer(0, &sends[0], Delivery::Arrived(receipt));
    two.answer(0, &sends[1], Delivery::Declined);
    // The first child ends, and all trace of it is deleted, while its letter is still under way for the second.
    let (cell, child) = two.child(&parent.id, 1).expect("it is started");
    let ended = two.report(cell, child.id.number, vec![], done(1));
    two.post(ended, cell);
    for after_ms in [2_000, 2_000, DAY_MS, 2_000, 2_000] {
        two.alarm(cell, after_ms);
    }
    let known = two.rows[cell].key(&child_key(&parent.id, Seq(1))).expect("readable");
    assert_eq!((known, two.finished(1).len()), (None, 1));
    two.crash(0);
    let sends = two.alarm(0, SEND_AGAIN_MS_MAX);
    assert_eq!(indexes(&sends, 1), [1]);
    two.post(sends, 0);
    assert_eq!((two.letters(), two.runs()), (0, 2));
}

#[test]
fn a_letter_that_is_sent_again_starts_no_child_of_a_parent_that_has_let_go_of_it() {
    let (mut two, parent, sends) = waiting(invocation());
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    two.now += DEAD_AFTER_MS;
    two.answer(0, &sends[0], Delivery::Failed);
    let clock = two.clock();
    assert!(two.cells[0].redeliver(&two.rows[0], clock, 1).expect("it is there"), "it was dead");
    assert!(indexes(&two.sends(0), 1).is_empty());
    assert!(!two.rows[0].letters.borrow().contains_key(&1), "nothing is left of it to be sent");
    assert_eq!(two.runs(), 1);
}

/// A parent in the first cell that has invoked this many children, while the second cell is full.
fn beside_a_full_cell(children: u32) -> (Two, Run, Vec<Sending>) {
    let mut two = Two::new();
    let parent = two.parent();
    two.fill(1);
    let commands = (0..children).map(|occurrence| invoke(occurrence, invocation())).collect();
    let sends = two.report(0, 1, commands, Then::Continue { open: None });
    assert!(sends.iter().any(|sending| cell_of(sending) == 1), "some go there first");
    (two, parent, sends)
}

fn cell_of(sending: &Sending) -> u32 {
    sending.to.name.parse::<Place>().expect("a cell").cell
}

#[test]
fn children_of_a_full_cell_are_started_in_another_one_and_can_be_cancelled_there() {
    let (mut two, parent, sends) = beside_a_full_cell(6);
    two.post(sends, 0);
    assert_eq!((two.letters(), two.rows[0].runs(), two.rows[1].runs()), (0, 1 + 6, 0));
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    let sends = two.alarm(0, 1);
    assert!(sends.iter().any(|sending| cell_of(sending) == 1), "the journal names the first cell");
    two.post(sends, 0);
    for invoked in 1..=6 {
        let (_, child) = two.child(&parent.id, invoked).expect("it is there");
        assert!(matches!(child.phase, Phase::Ended { how: End::Cancelled, .. }), "{invoked}");
    }
    assert_eq!(two.letters(), 0);
}

#[test]
fn a_child_that_a_full_cell_has_sent_on_is_never_started_there() {
    let (mut two, _, sends) = beside_a_full_cell(6);
    let first = sends.iter().find(|sending| cell_of(sending) == 1).expect("one goes there").clone();
    let moved = Receipt::Moved { to: place(0) };
    assert_eq!(two.arrive(&first), moved);
    // Nobody hears of it, both cells die, and there is room again: it may be anywhere, but only once.
    two.crash(0);
    two.crash(1);
    let again = two.alarm(0, 1);
    assert_eq!(two.arrive(&first), moved, "a copy that is late");
    two.post(again, 0);
    assert_eq!(two.arrive(&first), moved);
    assert_eq!((two.letters(), two.runs()), (0, 1 + 6));
    assert!(two.rows[1].runs() > 0, "the others find room there");
    assert_eq!(two.arrive(&Sending { to: first.home.clone(), ..first }), moved);
}

/// How many keys a cell has sent on.
fn sent_on(two: &Two, cell: usize) -> usize {
    let keys = two.rows[cell].keys.borrow();
    keys.values().filter(|key| matches!(key, StoredKey::Moved(_))).count()
}

#[test]
fn a_full_cell_forgets_the_children_that_it_has_sent_on_a_week_after_their_end() {
    let (mut two, parent, sends) = beside_a_full_cell(6);
    let late = sends.iter().find(|sending| cell_of(sending) == 1).expect("one goes there").clone();
    two.post(sends, 0);
    let before = sent_on(&two, 1);
    assert!(before > 0 && sent_on(&two, 0) == 0);
    // For as long as they are at work, somebody may want to cancel them.
    two.alarm(1, 100 * INVOCATION_KEPT_MS);
    assert_eq!(sent_on(&two, 1), before);
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    let sends = two.alarm(0, 1);
    two.post(sends, 0);
    for invoked in 1..=6 {
        let (_, child) = two.child(&parent.id, invoked).expect("it is there");
        assert!(matches!(child.phase, Phase::Ended { how: End::Cancelled, .. }), "{invoked}");
    }
    assert_eq!((two.letters(), two.rows[1].unbound.borrow().len()), (0, before));
    // A copy of a start that comes late starts nothing, and an instance that is made anew forgets nothing.
    two.crash(1);
    two.alarm(1, INVOCATION_KEPT_MS - 60_000);
    assert_eq!(two.arrive(&late), Receipt::Moved { to: place(0) });
    assert_eq!(sent_on(&two, 1), before);
    two.alarm(1, 60_000);
    assert_eq!((sent_on(&two, 1), two.rows[1].unbound.borrow().len()), (0, 0));
    let keys = two.rows[0].keys.borrow().len();
    assert_eq!((keys, two.runs()), (6, 1 + 6), "the children are kept, and so are their keys");
}

#[test]
fn a_child_waits_for_room_if_all_cells_that_it_may_come_to_are_full() {
    let (mut two, _, _) = beside_a_full_cell(6);
    two.rows[0].bytes.set(90);
    two.crash(0);
    two.cells[0] = std::mem::replace(&mut two.cells[0], Cell::new(1)).with_storage(100);
    for _ in 0..20 {
        for sending in two.alarm(0, SEND_AGAIN_MS_MAX) {
            let delivery = match two.hand_over(&sending) {
                Ok(receipt) => Delivery::Arrived(receipt),
                Err(Fault::Rejected(problem)) => Delivery::refused(problem),
                Err(fault) => panic!("{fault}"),
            };
            two.answer(0, &sending, delivery);
        }
    }
    assert_eq!((two.letters(), two.runs()), (1, 1), "nothing is lost");
    two.rows[0].bytes.set(10);
    two.rows[1].bytes.set(10);
    let sends = two.alarm(0, SEND_AGAIN_MS_MAX);
    two.post(sends, 0);
    assert_eq!((two.letters(), two.runs()), (0, 1 + 6));
}

#[test]
fn a_hung_cell_holds_up_nobody_else() {
    let mut two = Two::new();
    two.parent();
    let commands = (0..200).map(|occurrence| invoke(occurrence, invocation())).collect();
    let mut sends = two.report(0, 1, commands, Then::Continue { open: None });
    let (mut hung, mut arrived) = (0, 0);
    for _ in 0..200 {
        for sending in std::mem::take(&mut sends) {
            if sending.to.name == place(1).to_string() {
                hung += 1;
            } else {
                let receipt = two.arrive(&sending);
                two.answer(0, &sending, Delivery::Arrived(receipt));
                arrived += 1;
            }
            sends.extend(two.sends(0));
        }
        if sends.is_empty() {
            sends = two.alarm(0, 1);
        }
    }
    assert_eq!(hung, 4, "only so many are under way to one cell");
    assert!(arrived > 60, "{arrived}");
    assert_eq!(two.rows[0].runs() - 1, arrived);
}

#[test]
fn what_went_with_the_start_of_a_paused_workflow_is_not_said_twice_years_later() {
    let mut two = Two::new();
    let parent = two.parent();
    let commands = vec![invoke(0, invocation()), invoke(1, invocation())];
    let mut sends = two.report(0, 1, commands, Then::Continue { open: None });
    let open = vec![waits(0, 1), waits(1, 2)];
    assert!(two.report(0, 1, vec![], Then::Suspend { open }).is_empty());
    let first = sends.remove(0);
    let receipt = two.arrive(&first);
    two.answer(0, &first, Delivery::Arrived(receipt));
    let started = [1, 2].into_iter().find_map(|invoked| two.child(&parent.id, invoked));
    let (cell, child) = started.expect("it is started");
    let op = Op { kind: OpKind::Sleep, name: "nap".into(), occurrence: 0 };
    let open = vec![Open::Sleep { op, ms: 10 * DEAD_AFTER_MS }];
    assert!(two.report(cell, child.id.number, vec![], Then::Suspend { open }).is_empty());
    while two.now < 2 * DEAD_AFTER_MS {
        for sending in std::mem::take(&mut sends) {
            two.answer(0, &sending, Delivery::Postponed);
        }
        sends = two.alarm(0, 3_600_000);
    }
    two.crash(0);
    let sends = two.alarm(0, SEND_AGAIN_MS_MAX);
    assert_eq!(sends.len(), 1, "only the one that is left: {sends:?}");
    two.post(sends, 0);
    assert_eq!((two.letters(), two.runs()), (0, 3));
}
