//! Letters that are refused, that nobody answers, and that the storage does not take.

use stepwell_core::object::{DEAD_AFTER_MS, Delivery, Letters as _, SEND_AGAIN_MS_MAX};
use stepwell_protocol::{Event, Invocation, program::Then};

use super::children::{Two, invocation, invoke, place, waiting};

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
    assert!(two.cells[0].redeliver(&two.rows[0], clock, 1).expect("it is there"), "it was dead");
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
