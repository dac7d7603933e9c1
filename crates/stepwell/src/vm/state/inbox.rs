//! The signals that came: who gets them, and which nobody has taken.
//!
//! Of those that nobody has taken, only so much is kept in memory; the rest is in the journal, and is read again for
//! whoever takes it. A workflow must not see which: the payload of every large signal that came before anyone waited
//! follows after the poll in which it was taken, and nothing else happens in between.

use std::{
    collections::{BTreeMap, VecDeque},
    task::{Poll, Waker},
};

use stepwell_protocol::{
    Event, Op, OpKind, Payload, Record, Seq, Shape, topic::EventWait, wait_token::Asked,
};

use super::{
    super::slot::{Answer, Signal, Slot, What},
    State,
};

/// Up to this size, a signal's payload is always kept.
const SMALL_MAX: usize = 1_024;

/// How much of the larger ones is kept, in bytes of JSON.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Signals that nobody has taken.
#[derive(Default)]
pub(super) struct Signals {
    by_name: BTreeMap<String, VecDeque<Signal>>,
    /// Those that came by tokens, by the waits that they are for.
    addressed: BTreeMap<Op, Signal>,
    /// The bytes of the large payloads among them that are here.
    bytes: usize,
    /// The waits whose signal's payload is to follow, in the order in which they took it.
    coming: VecDeque<Op>,
}

impl Signals {
    /// Keeps one at its place in the order in which they came: somebody may have taken it, and others, and given them
    /// back.
    fn keep(&mut self, name: String, mut signal: Signal) {
        self.make_room(&mut signal);
        let kept = self.by_name.entry(name).or_default();
        kept.insert(kept.partition_point(|before| before.seq < signal.seq), signal);
    }

    /// Keeps one that is for this wait only, unless there is one already.
    fn keep_for(&mut self, op: Op, mut signal: Signal) {
        if !self.addressed.contains_key(&op) {
            self.make_room(&mut signal);
            self.addressed.insert(op, signal);
        }
    }

    /// What was kept for this very wait, or for the first that asks.
    fn take(&mut self, op: &Op) -> Option<Signal> {
        let signal = self.addressed.remove(op);
        let signal = signal.or_else(|| self.by_name.get_mut(&op.name).and_then(VecDeque::pop_front))?;
        if is_large(&signal) && signal.payload.is_some() {
            self.bytes -= signal.size;
        }
        Some(signal)
    }

    /// Counts a payload, or leaves it out if it does not fit.
    fn make_room(&mut self, signal: &mut Signal) {
        if !is_large(signal) || signal.payload.is_none() {
            return;
        }
        if self.bytes + signal.size > KEPT_BYTES_MAX {
            signal.payload = None;
        } else {
            self.bytes += signal.size;
        }
    }

    /// Takes a payload that was left out, if there is room by now.
    fn fill(&mut self, name: &str, seq: Seq, payload: Payload) {
        let (bytes, kept) = (&mut self.bytes, self.by_name.get_mut(name).into_iter().flatten());
        for signal in kept
            .chain(self.addressed.values_mut())
            .filter(|signal| signal.seq == seq && signal.payload.is_none())
        {
            if *bytes + signal.size <= KEPT_BYTES_MAX {
                *bytes += signal.size;
                signal.payload = Some(payload);
                return;
            }
        }
    }
}

fn is_large(signal: &Signal) -> bool {
    signal.size > SMALL_MAX
}

/// What a wait is for.
pub(crate) struct Wanted<'a> {
    /// For how long at the most.
    pub timeout_ms: Option<u64>,
    /// What it takes.
    pub shape: &'a Shape,
    /// What somebody with a token is asked.
    pub asked: Option<&'a Asked>,
    /// The events that it is for.
    pub event: Option<&'a EventWait>,
}

/// What became of the next payload that is to follow.
pub(in super::super) enum HandedOver {
    /// There is none.
    None,
    /// Its wait has it, and was woken.
    One,
    /// It has to be read first: see [`State::missing`].
    Missing,
}

impl State {
    /// A signal's payload, or nothing when the time is over.
    pub fn poll_wait(&mut self, op: &Op, wanted: &Wanted<'_>, waker: &Waker) -> Poll<Option<Payload>> {
        if !self.slots.contains_key(op) {
            // What came before anyone waited was kept.
            let signal = self.signals.take(op);
            if wanted.asked.is_some() && signal.as_ref().is_some_and(|signal| !signal.is_addressed) {
                // The engine was never told of this wait, and its token is still good.
                self.asides.end_wait(op.clone(), true);
            }
            let answer = match signal {
                None => Answer::None,
                Some(signal) if is_large(&signal) => {
                    self.signals.coming.push_back(op.clone());
                    Answer::Coming(signal)
                }
                Some(signal) => Answer::Signal(signal),
            };
            self.begin(op, || What::Wait {
                timeout_ms: wanted.timeout_ms,
                shape: wanted.shape.clone(),
                asked: wanted.asked.cloned().map(Box::new),
                event: wanted.event.cloned().map(Box::new),
                answer,
            });
        }
        let slot = self.slots.get_mut(op).expect("begun just above");
        slot.waker = Some(waker.clone());
        match &mut slot.what {
            What::Wait { answer: Answer::None | Answer::Coming(_) | Answer::Taken, .. }
            | What::Step { .. }
            | What::Sleep { .. }
            | What::Child(_) => Poll::Pending,
            What::Wait { answer, .. } => match std::mem::replace(answer, Answer::Taken) {
                Answer::Signal(signal) => {
                    if wanted.asked.is_some() && !signal.is_addressed {
                        // The engine has seen that it is for this wait, if it knew of the wait.
                        self.asides.end_wait(op.clone(), false);
                    }
                    Poll::Ready(signal.payload)
                }
                Answer::None | Answer::Coming(_) | Answer::TimedOut | Answer::Taken => Poll::Ready(None),
            },
        }
    }

    /// A wait was consumed or dropped. One with a token may never have been polled.
    pub fn forget_wait(&mut self, op: &Op, is_token: bool) {
        let is_over = match self.slots.get(op).map(|slot| &slot.what) {
            Some(What::Wait { answer: Answer::Signal(signal) | Answer::Coming(signal), .. }) => {
                !signal.is_addressed
            }
            Some(What::Wait { answer: Answer::None, .. }) | None => true,
            Some(
                What::Wait { answer: Answer::TimedOut | Answer::Taken, .. }
                | What::Step { .. }
                | What::Sleep { .. }
                | What::Child(_),
            ) => false,
        };
        if is_token && is_over {
            self.asides.end_wait(op.clone(), true);
        }
        self.forget(op);
    }

    /// Gives the next payload that is to follow to its wait. To be asked when the workflow was polled and is quiet.
    pub(in super::super) fn hand_over(&mut self) -> HandedOver {
        while let Some(op) = self.signals.coming.front() {
            // It may have been dropped since.
            if let Some(What::Wait { answer: answer @ Answer::Coming(_), .. }) =
                self.slots.get_mut(op).map(|slot| &mut slot.what)
                && let Answer::Coming(signal) = std::mem::replace(answer, Answer::None)
            {
                if signal.payload.is_none() {
                    *answer = Answer::Coming(signal);
                    return HandedOver::Missing;
                }
                *answer = Answer::Signal(signal);
                if let Some(waker) = self.slots.get(op).and_then(|slot| slot.waker.as_ref()) {
                    waker.wake_by_ref();
                }
                self.signals.coming.pop_front();
                return HandedOver::One;
            }
            self.signals.coming.pop_front();
        }
        HandedOver::None
    }

    /// Where the journal has the payload that has to be read before anything else can happen.
    pub(in super::super) fn missing(&self) -> Option<Seq> {
        let op = self.signals.coming.front()?;
        match &self.slots.get(op)?.what {
            What::Wait { answer: Answer::Coming(signal), .. } if signal.payload.is_none() => Some(signal.seq),
            What::Wait { .. } | What::Step { .. } | What::Sleep { .. } | What::Child(_) => None,
        }
    }

    /// Takes events of the journal that were read again for what is missing, and what else was left out of memory.
    /// Says whether the missing one is among them.
    pub(in super::super) fn read_again(&mut self, events: Vec<Record>) -> bool {
        let mut is_found = false;
        for Record { seq, event, .. } in events {
            let Event::SignalReceived { name, payload, .. } = event else { continue };
            if self.missing() == Some(seq)
                && let Some(op) = self.signals.coming.front()
                && let Some(What::Wait { answer: Answer::Coming(signal), .. }) =
                    self.slots.get_mut(op).map(|slot| &mut slot.what)
            {
                signal.payload = Some(payload);
                is_found = true;
            } else {
                self.signals.fill(&name, seq, payload);
            }
        }
        is_found
    }

    /// How many signals nobody has taken.
    pub fn unread_signals(&self) -> u32 {
        let unread: usize = self.signals.by_name.values().map(VecDeque::len).sum();
        u32::try_from(unread + self.signals.addressed.len()).unwrap_or(u32::MAX)
    }

    /// Where those are in the journal, in order, and how many bytes they have. One that was given to a wait which nobody
    /// has polled since is among them; one that came by a token is not, because the wait that it is for is not in another
    /// life.
    pub fn unread(&self) -> (Vec<Seq>, u64) {
        let given = self.slots.values().filter_map(|slot| match &slot.what {
            What::Wait { answer: Answer::Signal(signal) | Answer::Coming(signal), .. } => {
                Some(signal).filter(|signal| !signal.is_addressed)
            }
            What::Wait { .. } | What::Step { .. } | What::Sleep { .. } | What::Child(_) => None,
        });
        let unread = self.signals.by_name.values().flatten().chain(given);
        let (mut positions, mut bytes) = (Vec::new(), 0);
        for signal in unread {
            positions.push(signal.seq);
            bytes += signal.size as u64;
        }
        positions.sort_unstable();
        (positions, bytes)
    }

    /// Gives a signal to the wait that it is for, or keeps it until that comes.
    pub(super) fn receive_signal(&mut self, name: String, to: Option<u32>, signal: Signal) {
        let Some(occurrence) = to else {
            if let Some(Answer::Signal(signal)) = self.offer_signal(&name, Answer::Signal(signal)) {
                self.signals.keep(name, signal);
            }
            return;
        };
        let op = Op { kind: OpKind::Wait, name, occurrence };
        if self.slots.get(&op).is_some_and(Slot::waits) {
            self.answer_wait(&op, Answer::Signal(signal));
        } else {
            self.signals.keep_for(op, signal);
        }
    }

    /// A signal was given to a wait that nobody awaits any more: it is for the next one, unless it was for that wait
    /// only.
    pub(super) fn give_back(&mut self, op: &Op, answer: Answer) {
        match answer {
            Answer::Signal(signal) | Answer::Coming(signal) if signal.is_addressed => {
                self.signals.keep_for(op.clone(), signal);
            }
            answer @ (Answer::None
            | Answer::Coming(_)
            | Answer::Signal(_)
            | Answer::TimedOut
            | Answer::Taken) => {
                if let Some(Answer::Signal(signal) | Answer::Coming(signal)) =
                    self.offer_signal(&op.name, answer)
                {
                    self.signals.keep(op.name.clone(), signal);
                }
            }
        }
    }

    /// Gives a signal to the oldest wait for it, or hands it back.
    fn offer_signal(&mut self, name: &str, signal: Answer) -> Option<Answer> {
        let op = |occurrence| Op { kind: OpKind::Wait, name: name.to_owned(), occurrence };
        let waits = self.slots.range(op(0)..=op(u32::MAX)).filter(|(_, slot)| slot.waits());
        let Some(oldest) = waits.min_by_key(|(_, slot)| slot.order).map(|(op, _)| op.clone()) else {
            return Some(signal);
        };
        self.answer_wait(&oldest, signal);
        None
    }

    fn answer_wait(&mut self, op: &Op, signal: Answer) {
        if let Answer::Coming(_) = &signal {
            self.signals.coming.push_back(op.clone());
        }
        self.change(op, |slot| {
            if let What::Wait { answer, .. } = &mut slot.what {
                *answer = signal;
            }
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
        });
    }
}
