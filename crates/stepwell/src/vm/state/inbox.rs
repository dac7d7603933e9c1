//! The signals that came: who gets them, and which nobody has taken.

use std::{
    collections::{BTreeMap, VecDeque},
    task::{Poll, Waker},
};

use stepwell_protocol::{Op, OpKind, Payload, Seq, Shape};

use super::{
    super::slot::{Answer, Signal, What},
    State,
};

/// Signals that nobody has taken, by name.
pub(super) type Signals = BTreeMap<String, VecDeque<Signal>>;

impl State {
    /// A signal's payload, or nothing when the time is over.
    pub fn poll_wait(
        &mut self,
        op: &Op,
        timeout_ms: Option<u64>,
        shape: &Shape,
        waker: &Waker,
    ) -> Poll<Option<Payload>> {
        if !self.slots.contains_key(op) {
            // What came before anyone waited was kept for the first who asks.
            let kept = self.signals.get_mut(&op.name).and_then(VecDeque::pop_front);
            let answer = kept.map_or(Answer::None, Answer::Signal);
            self.begin(op, || What::Wait { timeout_ms, shape: shape.clone(), answer });
        }
        let slot = self.slots.get_mut(op).expect("begun just above");
        slot.waker = Some(waker.clone());
        match &mut slot.what {
            What::Wait { answer: Answer::None | Answer::Taken, .. }
            | What::Step { .. }
            | What::Sleep { .. }
            | What::Child(_) => Poll::Pending,
            What::Wait { answer, .. } => match std::mem::replace(answer, Answer::Taken) {
                Answer::Signal(signal) => Poll::Ready(Some(signal.payload)),
                Answer::None | Answer::TimedOut | Answer::Taken => Poll::Ready(None),
            },
        }
    }

    /// How many signals nobody has taken.
    pub fn unread_signals(&self) -> u32 {
        let unread: usize = self.signals.values().map(VecDeque::len).sum();
        u32::try_from(unread).unwrap_or(u32::MAX)
    }

    /// Where those are in the journal, in order, and how many bytes they have. One that was given to a wait which nobody
    /// has polled since is among them.
    pub fn unread(&self) -> (Vec<Seq>, u64) {
        let given = self.slots.values().filter_map(|slot| match &slot.what {
            What::Wait { answer: Answer::Signal(signal), .. } => Some(signal),
            What::Wait { .. } | What::Step { .. } | What::Sleep { .. } | What::Child(_) => None,
        });
        let unread = self.signals.values().flatten().chain(given);
        let (mut positions, mut bytes) = (Vec::new(), 0);
        for signal in unread {
            positions.push(signal.seq);
            bytes += signal.payload.size() as u64;
        }
        positions.sort_unstable();
        (positions, bytes)
    }

    /// Gives a signal to the oldest wait for it, or hands it back.
    pub(super) fn offer_signal(&mut self, name: &str, signal: Signal) -> Option<Signal> {
        let op = |occurrence| Op { kind: OpKind::Wait, name: name.to_owned(), occurrence };
        let waits = self.slots.range(op(0)..=op(u32::MAX)).filter(|(_, slot)| slot.waits());
        let Some(oldest) = waits.min_by_key(|(_, slot)| slot.order).map(|(op, _)| op.clone()) else {
            return Some(signal);
        };
        self.change(&oldest, |slot| {
            if let What::Wait { answer, .. } = &mut slot.what {
                *answer = Answer::Signal(signal);
            }
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
        });
        None
    }
}
