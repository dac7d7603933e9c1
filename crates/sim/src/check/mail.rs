//! What must hold of messages between cells: each takes effect once, or is visibly dead.

use std::{collections::BTreeMap, rc::Rc};

use stepwell_core::{
    cell::child_key,
    object::{Envelope, Letter, Message},
    run::{Phase, Run},
};
use stepwell_protocol::{Code, Event, OnClose, Outcome, Place, RunId, Seq};

use super::{Checked, Checker, Known};
use crate::family::FAMILY;
use crate::tables::{LetterChange, Tables, Write};

/// The rule that an outbox is for.
const RULE: &str = "27 each message takes effect once, or is visibly dead";

/// What has become of a child's key.
enum Child {
    /// Its cell has not heard of it.
    Unknown,
    /// Its run was deleted, or it was given up before it began.
    Gone,
    /// Its run.
    Run(Rc<Run>),
}

/// The disks of all cells.
pub struct Disks<'a>(pub BTreeMap<&'a Place, &'a Tables>);

impl Disks<'_> {
    fn run(&self, id: &RunId) -> Option<Rc<Run>> {
        self.0.get(&id.place)?.run(&id.place, id.number).filter(|run| run.id == *id)
    }

    /// What has become of a child's key.
    fn child(&self, to: &Place, parent: &RunId, invoked: Seq) -> Child {
        let Some(disk) = self.0.get(to) else { return Child::Unknown };
        let key = child_key(parent, invoked);
        match disk.keys.get(&key) {
            _ if disk.given_up.contains(&key) => Child::Gone,
            Some(stored) => disk.run(to, stored.number).map_or(Child::Gone, Child::Run),
            None => Child::Unknown,
        }
    }

    /// Whether a message has had its effect, as far as anybody will ever see.
    fn has_had_effect(&self, envelope: &Envelope) -> bool {
        let Ok(to) = envelope.to.name.parse::<Place>() else { return false };
        match &envelope.message {
            Message::Start { parent, .. } => {
                !matches!(self.child(&to, &parent.run, parent.invoked), Child::Unknown)
            }
            Message::Ended { parent, .. } => {
                self.run(&parent.run).is_none_or(|run| !run.children.contains(parent.invoked))
            }
            Message::Cancel { parent, invoked } => match self.child(&to, parent, *invoked) {
                Child::Run(run) => matches!(run.phase, Phase::Ended { .. }),
                Child::Gone => true,
                Child::Unknown => false,
            },
            // No world has schedules or topics, or cells that are full.
            Message::TickEnded { .. }
            | Message::Emitted { .. }
            | Message::Waits { .. }
            | Message::WaitOver { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. }
            | Message::Unbind { .. } => false,
        }
    }
}

impl Checker {
    /// A transaction of a cell is about to reach its disk: whatever leaves the outbox has had its effect.
    pub fn mail_leaves(&self, disks: &Disks<'_>, before: &Tables, write: &Write) -> Checked {
        let done = write.mail.done.into_iter();
        let gone = done.chain(write.letter.and_then(|change| match change {
            LetterChange::Forgotten(letter) => Some(letter),
            LetterChange::Buried(_) => None,
        }));
        for letter in gone {
            let Some((Letter { envelopes, .. }, _)) = before.letters.get(&letter) else { continue };
            for envelope in envelopes {
                // A start that is refused for good is known to its parent by the same transaction.
                let is_refused = write
                    .records
                    .iter()
                    .any(|row| matches!(row.says(), Event::ChildFinished { run: None, .. }));
                let is_kept = write.mail.post.iter().any(|letter| letter.envelopes.contains(envelope));
                if !is_refused && !is_kept && !disks.has_had_effect(envelope) {
                    let detail =
                        format!("'{}' to {} is gone without effect", envelope.message.as_str(), envelope.to);
                    return Err((RULE, detail));
                }
            }
        }
        Ok(())
    }

    /// Nothing is left in any outbox but what is dead, and every parent has what its children gave.
    pub fn mail_at_end(&self, disks: &Disks<'_>) -> Checked {
        for (place, disk) in &disks.0 {
            for (letter, is_dead) in disk.letters.values() {
                if !is_dead {
                    return Err((
                        RULE,
                        format!("cell {place}: letter {} has not arrived: {letter:?}", letter.id),
                    ));
                }
            }
            for number in disk.runs.keys() {
                let Some(run) = disk.run(place, *number) else { continue };
                Self::family_at_end(disks, disk, &run)?;
            }
        }
        Ok(())
    }

    fn family_at_end(disks: &Disks<'_>, disk: &Tables, run: &Run) -> Checked {
        let has_dead = disks.0.values().flat_map(|disk| disk.letters.values()).any(|(_, is_dead)| *is_dead);
        if run.workflow == FAMILY && run.phase == Phase::Suspended && !has_dead {
            return Err(("11 every run comes to rest", format!("run {} waits for {:?}", run.id, run.open)));
        }
        let journal = disk.journal(run.id.number);
        for record in journal {
            let Event::ChildInvoked { to, on_close, detached, .. } = record.says() else { continue };
            let child = disks.child(to, &run.id, record.seq);
            let about = format!("run {}, child {}", run.id, record.seq.0);
            let is_dead = disks.0.values().any(|disk| disk.has_dead_letter_about(&run.id, record.seq));
            if is_dead {
                continue;
            }
            let child = match child {
                Child::Run(child) => Some(child),
                Child::Gone => None,
                // A parent whose start was refused knows of it.
                Child::Unknown if run.children.contains(record.seq) => {
                    return Err(("23 no child is lost", format!("{about} was never started")));
                }
                Child::Unknown => continue,
            };
            let has_ended = child.as_ref().is_none_or(|child| matches!(child.phase, Phase::Ended { .. }));
            if run.children.contains(record.seq) && has_ended {
                return Err(("23 each child's end is heard of", format!("{about} has ended unheard")));
            }
            let is_let_go = !run.children.contains(record.seq)
                && (matches!(run.phase, Phase::Ended { .. }) || !run.counts(record.seq));
            if is_let_go && *on_close == OnClose::Cancel && !has_ended {
                return Err(("23 no child is left alone", format!("{about} goes on without its parent")));
            }
            let given = journal.iter().find_map(|other| {
                if let Event::ChildFinished { invoked, outcome, .. } = other.says()
                    && *invoked == record.seq
                {
                    Some(outcome)
                } else {
                    None
                }
            });
            let child = child.filter(|child| !child.emptied);
            if let (Some(Outcome::Ok(given)), Some(child), false) = (given, child, *detached) {
                let place = &child.id.place;
                let row = disks.0.get(place).and_then(|disk| disk.runs.get(&child.id.number));
                if row.and_then(|row| row.result.as_deref()) != Some(given.text()) {
                    return Err(("23 a parent hears what its child gave", about));
                }
            }
        }
        Ok(())
    }
}

impl Known {
    /// A child's end is recorded once, and only while its parent waits for it.
    pub(super) fn child_finished(
        &mut self,
        before: Option<&Run>,
        invoked: Seq,
        outcome: &Outcome,
    ) -> Checked {
        if !self.finished_children.insert(invoked) {
            return Err(("23 each child's end is heard once", format!("child {} ended twice", invoked.0)));
        }
        let is_open = before.is_some_and(|before| before.children.contains(invoked));
        let at_once = matches!(outcome, Outcome::Err(failure) if failure.code == Some(Code::TooManyChildren));
        if !is_open && !at_once {
            let text = format!("child {} is heard of after nobody waits for it", invoked.0);
            return Err(("23 a child is heard of while somebody waits", text));
        }
        Ok(())
    }
}
