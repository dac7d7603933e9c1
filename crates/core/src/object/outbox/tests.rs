//! Many letters, large letters, and peers that do not answer.

use std::{cell::RefCell, convert::Infallible};

use stepwell_protocol::{Place, RunId, Seq};

use super::*;
use crate::object::Envelope;

/// Letters in memory, of which all but one go to a cell that never answers.
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

    fn revive_letter(&self, _: u64, _: Timestamp) -> Result<Option<bool>, Infallible> {
        Ok(None)
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
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
