//! Children that are cancelled before they are started.

use stepwell_core::{
    cell::Action,
    object::{Address, Delivery, Message, Receipt, Sending},
    run::{INVOCATION_KEPT_MS, Run},
};
use stepwell_protocol::Place;

use super::children::{Two, invocation, place, waiting};

/// A parent that was cancelled before its child was started: what starts the child, and what cancels it.
fn cancelled_before_its_child() -> (Two, Run, Sending, Sending) {
    let (mut two, parent, mut sends) = waiting(invocation());
    let clock = two.clock();
    two.cells[0].act(&two.rows[0], clock, &parent.id, "me", Action::Cancel).expect("it can be");
    let cancel = two.sends(0).remove(0);
    (two, parent, sends.remove(0), cancel)
}

#[test]
fn a_child_whose_cancel_overtakes_its_start_never_begins() {
    let (mut two, parent, start, cancel) = cancelled_before_its_child();
    assert_eq!((two.arrive(&cancel), two.arrive(&cancel)), (Receipt::Gone, Receipt::Gone));
    two.answer(0, &cancel, Delivery::Arrived(Receipt::Gone));
    // Not in another instance either, however late it comes.
    two.crash(1);
    two.alarm(1, INVOCATION_KEPT_MS - 60_000);
    assert_eq!((two.arrive(&start), two.arrive(&cancel)), (Receipt::Gone, Receipt::Gone));
    two.answer(0, &start, Delivery::Arrived(Receipt::Gone));
    assert_eq!((two.letters(), two.runs()), (0, 1), "nothing is left to be sent, and there is no child");
    assert!(two.child(&parent.id, 1).is_none());
    let kept = |two: &Two| two.rows.iter().map(|rows| rows.keys.borrow().len()).sum::<usize>();
    assert_eq!(kept(&two), 1);
    two.alarm(0, 120_000);
    two.alarm(1, 120_000);
    assert_eq!(kept(&two), 0, "nobody asks for it any more");
}

#[test]
fn a_child_that_a_full_cell_has_sent_on_is_given_up_where_it_would_begin() {
    let (mut two, _, start, cancel) = cancelled_before_its_child();
    let full = cell_of(&start);
    two.fill(full);
    // The start is lost on its way to the other cell, and the cancel is first there.
    let other = Receipt::Moved { to: place(1 - u32::try_from(full).expect("small")) };
    let start = Sending { message: with_spare(&start.message, &other), ..start };
    assert_eq!((two.arrive(&start), two.arrive(&cancel)), (other.clone(), other.clone()));
    let Receipt::Moved { to } = other else { unreachable!() };
    let there = |sending: &Sending| {
        let to = Address::cell(&sending.to.namespace, &to);
        Sending { to, ..sending.clone() }
    };
    assert_eq!(two.arrive(&there(&cancel)), Receipt::Gone);
    assert_eq!((two.arrive(&there(&start)), two.runs()), (Receipt::Gone, 1));
}

fn cell_of(sending: &Sending) -> usize {
    sending.to.name.parse::<Place>().expect("a cell").cell as usize
}

/// The same start, with the place where it goes if its cell is full.
fn with_spare(message: &Message, to: &Receipt) -> Message {
    let (Message::Start { parent, invocation, revived, .. }, Receipt::Moved { to }) = (message, to) else {
        panic!("{message:?}");
    };
    let (parent, invocation) = (parent.clone(), invocation.clone());
    Message::Start { parent, invocation, spare: Some(to.clone()), revived: *revived }
}
