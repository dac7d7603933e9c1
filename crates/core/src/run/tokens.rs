//! Tokens of a run's waits: which wait a signal is for, and which tokens nobody waits for any more.
//!
//! A token is not stored. What is stored is that it was completed, by the id of its signal, or that its wait is over.

use stepwell_protocol::{Event, Op, OpKind, wait_token::WaitToken};

use super::{Entry, OpenOp, Phase, Run};
use crate::ordered::OrdSet;

/// The longest id of a key, in bytes.
pub(super) const TOKEN_KEY_LENGTH_MAX: usize = 64;

impl OpenOp {
    /// Whether it takes a signal of this name. One that came by a token is for one wait only.
    pub(super) fn takes(&self, signal: &str, to: Option<u32>) -> bool {
        self.signal.as_deref() == Some(signal) && to.is_none_or(|to| self.op.occurrence == to)
    }
}

impl Run {
    /// Which life it is in, from 1.
    pub fn life_number(&self) -> u32 {
        self.life.map_or(1, |life| life.number)
    }

    /// The wait of a token, while the run waits for it.
    pub fn wait_of(&self, token: &WaitToken) -> Option<&OpenOp> {
        let takes = |open: &&OpenOp| open.takes(&token.name, Some(token.occurrence));
        self.open.iter().find(takes).filter(|_| token.life == self.life_number())
    }

    /// Whether it does nothing but wait, and for this token among others.
    pub fn is_asleep_for(&self, token: &WaitToken) -> bool {
        matches!(self.phase, Phase::Suspended) && self.wait_of(token).is_some()
    }

    /// What the answer to a token is known by, if an event is one. Also if it was received again: then the event does not
    /// say so.
    pub(crate) fn answer_id(&self, event: &Event) -> Option<String> {
        let Event::SignalReceived { name, to: Some(occurrence), .. } = event else { return None };
        let op = Op { kind: OpKind::Wait, name: name.clone(), occurrence: *occurrence };
        Some(WaitToken::answer_id(self.life_number(), &op))
    }

    /// The waits with tokens that are not among these any more.
    pub(super) fn tokens_over(&self, open: &[OpenOp]) -> impl Iterator<Item = Entry> {
        // A run may wait for thousands of them.
        let open: OrdSet<_> = open.iter().map(|open| &open.op).collect();
        let gone = move |known: &&OpenOp| known.asked.is_some() && !open.contains(&known.op);
        self.open.iter().filter(gone).map(|known| self.token_over(&known.op))
    }

    /// Adds to what a commit says that nobody waits for these any more, whether the engine was told of them or not.
    pub(super) fn give_up(&self, over: Vec<Op>, entries: &mut Vec<Entry>) {
        // No token of a run that has ended is good.
        let is_end = |entry: &Entry| matches!(entry, Entry::Completed { .. } | Entry::Failed { .. });
        if over.is_empty() || entries.iter().any(is_end) {
            return;
        }
        let over: OrdSet<_> = over.into_iter().filter(|op| op.kind == OpKind::Wait).collect();
        let ids: OrdSet<_> = over.iter().map(|op| WaitToken::over_id(self.life_number(), op)).collect();
        entries.retain(|entry| !matches!(entry, Entry::SignalNoted(id) if ids.contains(id)));
        entries.extend(ids.into_iter().map(Entry::SignalNoted));
        // What an earlier activation has waited for may still be there.
        let is_told = entries.iter().any(|entry| matches!(entry, Entry::OpenChanged(_)));
        if !is_told && self.open.iter().any(|open| over.contains(&open.op)) {
            let open = self.open.iter().filter(|open| !over.contains(&open.op)).cloned();
            entries.push(Entry::OpenChanged(open.collect()));
        }
    }

    /// Nobody waits for a token any more.
    pub(super) fn token_over(&self, op: &Op) -> Entry {
        Entry::SignalNoted(WaitToken::over_id(self.life_number(), op))
    }
}
