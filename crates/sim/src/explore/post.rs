//! The post between cells: each message may arrive, arrive twice, at an older instance, be lost with or without anybody's
//! knowing, and be late.

use std::rc::Rc;

use stepwell_core::{
    cell::Chance,
    object::{Delivery, Fault, Letters as _, Message as Said, Receipt, Sending},
};
use stepwell_protocol::{Event, Place, RunId};

use super::state::{Message, World};
use crate::{
    check::Disks,
    host::{self, Cause, Refused},
    sabotage::Sabotage,
    tables::{JournalRow, Write},
};

/// The cell that a message goes to.
pub(super) fn receiver(sending: &Sending) -> usize {
    let place: Place = sending.to.name.parse().expect("cells write to cells");
    usize::try_from(place.cell).expect("small")
}

impl World {
    /// Lets messages go out with the commit.
    pub(super) fn send_mail(&mut self, cell: usize, id: u64, cause: Cause, sendings: Vec<Sending>) {
        for sending in sendings {
            let letter = sending.letter;
            self.send(cell, id, Message::Letter { cell, id, sending: Rc::new(sending) });
            if self.is(Sabotage::LetterGoneEarly) && self.sites[cell].instance(id).is_some() {
                let _ = self
                    .turn(cell, id, cause, |_, store, _| store.forget_letter(letter).map_err(Fault::Storage));
            }
        }
    }

    /// A message arrives at an instance of its cell.
    pub(super) fn on_letter(&mut self, (from, sender): (usize, u64), sending: &Rc<Sending>, id: u64) {
        let cell = receiver(sending);
        self.note(|| format!("'{}' arrives at cell {cell}.{id}", sending.message.as_str()));
        let receipt =
            |delivery| Message::Receipt { cell: from, id: sender, sending: sending.clone(), delivery };
        if self.repair(cell, id).is_err() || self.sites[cell].instance(id).is_none() {
            self.wire.push(receipt(Delivery::Failed));
            return;
        }
        let delivery = if self.is(Sabotage::AnsweredWithoutEffect) {
            Delivery::Arrived(Receipt::Gone)
        } else {
            self.receive(cell, id, sending)
        };
        if self.sites[cell].instance(id).is_some() {
            self.send(cell, id, receipt(delivery));
        } else {
            self.wire.push(receipt(Delivery::Failed));
        }
    }

    fn receive(&mut self, cell: usize, id: u64, sending: &Sending) -> Delivery {
        let place = self.sites[cell].place.clone();
        let drawn = 100 + self.sites[cell].disk.runs.len() as u64;
        let chance = Chance { suffix: RunId::suffix_from(drawn), seed: drawn };
        let message = sending.message.clone();
        let received = self.turn(cell, id, Cause::Request, |machine, store, now| {
            machine.receive(store, now, place, chance, message)
        });
        self.tell_again(cell, id, &sending.message, &received);
        host::delivery(received, self.sites[cell].is_stale(id))
    }

    /// What a planted bug does with a child's end that comes again.
    fn tell_again(
        &mut self,
        cell: usize,
        id: u64,
        message: &Said,
        received: &Result<Receipt, Fault<Refused>>,
    ) {
        let Said::Ended { parent, run, outcome } = message else { return };
        let is_gone = matches!(received, Ok(Receipt::Gone)) && self.sites[cell].instance(id).is_some();
        let journal = self.sites[cell].disk.journal(parent.run.number).iter().map(JournalRow::says);
        let was_told = journal
            .into_iter()
            .any(|event| matches!(event, Event::ChildFinished { invoked, run: Some(_), .. } if *invoked == parent.invoked));
        let tells = self.is(Sabotage::ParentToldTwice) && was_told
            || self.is(Sabotage::ToldAfterTheWait) && !was_told;
        if is_gone && tells {
            let event = Event::ChildFinished {
                op: parent.op.clone(),
                invoked: parent.invoked,
                run: Some(run.clone()),
                outcome: outcome.clone(),
            };
            let (number, clock) = (parent.run.number, self.clock());
            let _ = self.turn(cell, id, Cause::Request, |_, store, _| {
                store.write_anyway(number, clock, &event);
                Ok(())
            });
        }
    }

    /// What became of a message arrives at its sender.
    pub(super) fn on_receipt(&mut self, cell: usize, id: u64, sending: &Sending, delivery: Delivery) {
        if self.sites[cell].instance(id).is_none() {
            return;
        }
        self.note(|| format!("cell {cell}.{id} hears of '{}': {delivery:?}", sending.message.as_str()));
        // What the storage does not take is sent again.
        let _ = self.turn(cell, id, Cause::Request, |machine, store, now| {
            machine.delivered(store, now, sending, delivery)
        });
    }

    /// Whatever leaves an outbox has had its effect.
    pub(super) fn check_mail(&mut self, cell: usize, write: &Write) {
        if write.mail.done.is_none() && write.letter.is_none() {
            return;
        }
        let checked = self.check.mail_leaves(&self.disks(), &self.sites[cell].disk, write);
        self.must(checked);
    }

    /// What all cells have on disk.
    pub(super) fn disks(&self) -> Disks<'_> {
        Disks(self.sites.iter().map(|site| (&site.place, site.disk.as_ref())).collect())
    }
}
