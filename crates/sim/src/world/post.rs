//! The post between cells: messages that are lost, doubled, late, overtaken, and reach whoever has the name.

use stepwell_core::{
    cell::Chance,
    object::{Delivery, Fault, Message, Receipt, Sending},
};
use stepwell_protocol::{Code, Event as JournalEvent, Place, Problem, RunId};

use super::{
    World,
    events::{Event, Outgoing},
};
use crate::{
    check::Disks,
    host::{self, Cause, Refused},
    sabotage::Sabotage,
    tables::Write,
};

/// How long until a sender hears that a message or its answer was lost, if it hears so at all.
const BROKEN_MS: u64 = 200;

/// A message on its way, and the instance that waits for the answer.
#[derive(Clone, Debug)]
pub struct Post {
    /// The sender's cell.
    pub cell: usize,
    /// Its instance: if it dies, nobody waits any more.
    pub id: u64,
    /// The message.
    pub sending: Sending,
}

impl World {
    /// Lets messages go out with the commit.
    pub(super) fn send_mail(&mut self, cell: usize, id: u64, cause: Cause, sendings: Vec<Sending>) {
        for sending in sendings {
            let letter = sending.letter;
            self.send(cell, id, Outgoing::Letter(Post { cell, id, sending }));
            if self.is(Sabotage::LetterGoneEarly) && self.sites[cell].instance(id).is_some() {
                let _ = self.turn(cell, id, cause, |_, store, _| {
                    stepwell_core::object::Letters::forget_letter(store, letter).map_err(Fault::Storage)
                });
            }
        }
    }

    /// A message leaves. Whoever sends it may see the connection break, or nothing at all.
    pub(super) fn release_letter(&mut self, post: &Post, copies: &[u64]) {
        if copies.is_empty() && self.rng.percent(50) {
            self.put(BROKEN_MS, Event::Receipt(post.clone(), Delivery::Failed));
        }
        for delay_ms in copies {
            self.put(*delay_ms, Event::Letter(post.clone()));
        }
    }

    /// An answer leaves.
    pub(super) fn release_receipt(&mut self, post: &Post, delivery: &Delivery, copies: &[u64]) {
        if copies.is_empty() && self.rng.percent(50) {
            self.put(BROKEN_MS, Event::Receipt(post.clone(), Delivery::Failed));
        }
        for delay_ms in copies {
            self.put(*delay_ms, Event::Receipt(post.clone(), delivery.clone()));
        }
    }

    /// A message arrives at its cell.
    pub(super) fn on_letter(&mut self, post: &Post) {
        let place: Place = post.sending.to.name.parse().expect("cells write to cells");
        let cell = usize::try_from(place.cell).expect("small");
        let stale = self.sites[cell].stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            // Whoever still has the old address reaches the instance that has lost the name.
            Some(stale) if self.rng.percent(30) => stale,
            Some(_) | None => self.load(cell),
        };
        let word = post.sending.message.as_str();
        self.note(|| format!("'{word}' of cell {} arrives at cell {cell}.{id}", post.cell));
        if self.repair(cell, id).is_err() || self.sites[cell].instance(id).is_none() {
            self.put(1, Event::Receipt(post.clone(), Delivery::Failed));
            return;
        }
        let is_start = matches!(post.sending.message, Message::Start { .. });
        let delivery =
            if !self.healed && !is_start && self.rng.percent(u64::from(self.script.refuses_letters)) {
                self.count("message refused for good");
                Delivery::Refused(Problem::new(Code::InvalidRequest, "It is refused."))
            } else if self.is(Sabotage::AnsweredWithoutEffect) {
                Delivery::Arrived(Receipt::Gone)
            } else {
                self.receive(cell, id, place, &post.sending.message)
            };
        if self.sites[cell].instance(id).is_some() {
            self.send(cell, id, Outgoing::Receipt(post.clone(), delivery));
        } else {
            self.put(1, Event::Receipt(post.clone(), Delivery::Failed));
        }
    }

    fn receive(&mut self, cell: usize, id: u64, place: Place, message: &Message) -> Delivery {
        let drawn = self.rng.bits();
        let chance = Chance { suffix: RunId::suffix_from(drawn), seed: drawn };
        let received = self.turn(cell, id, Cause::Request, |machine, store, now| {
            machine.receive(store, now, place, chance, message.clone())
        });
        self.tell_again(cell, id, message, &received);
        host::delivery(received, self.sites[cell].is_stale(id))
    }

    /// What planted bugs do with a child's end that nobody waits for.
    fn tell_again(
        &mut self,
        cell: usize,
        id: u64,
        message: &Message,
        received: &Result<Receipt, Fault<Refused>>,
    ) {
        let Message::Ended { parent, run, outcome } = message else { return };
        if !matches!(received, Ok(Receipt::Gone)) || self.sites[cell].instance(id).is_none() {
            return;
        }
        let Some(known) = self.sites[cell].instance(id).and_then(|known| known.store.peek(parent.run.number))
        else {
            return;
        };
        let journal = self.sites[cell].disk.journal(parent.run.number).iter();
        let was_told = journal.map(crate::tables::JournalRow::says).any(
            |event| matches!(event, JournalEvent::ChildFinished { invoked, run: Some(_), .. } if *invoked == parent.invoked),
        );
        let tells = self.is(Sabotage::ParentToldTwice) && was_told
            || self.is(Sabotage::ToldAfterTheWait) && !was_told && known.id == parent.run;
        if tells {
            let clock = self.sites[cell].clock(self.now_ms);
            let event = JournalEvent::ChildFinished {
                op: parent.op.clone(),
                invoked: parent.invoked,
                run: Some(run.clone()),
                outcome: outcome.clone(),
            };
            let _ = self.turn(cell, id, Cause::Request, |_, store, _| {
                store.write_anyway(parent.run.number, clock, &event);
                Ok(())
            });
        }
    }

    /// What became of a message arrives at its sender.
    pub(super) fn on_receipt(&mut self, post: &Post, delivery: Delivery) {
        let Post { cell, id, sending } = post;
        if self.sites[*cell].instance(*id).is_none() {
            return;
        }
        self.note(|| {
            format!(
                "cell {cell}.{id} hears of '{}' ({}): {delivery:?}",
                sending.message.as_str(),
                sending.letter
            )
        });
        // What the storage does not take is sent again.
        let _ = self.turn(*cell, *id, Cause::Request, |machine, store, now| {
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
