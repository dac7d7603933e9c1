//! The outbox: what an object has written to others, until it has arrived.
//!
//! Owns: which message goes out when, how many at once, when one is sent again, and when it is *dead*. Does not own: the
//! rows ([`Letters`]), which are the truth; this is a cache of their heads, and an instance that is made anew sends all
//! that is left. Nor does it own the calls: the host performs [`Sending`]s and says what became of them.
//!
//! A letter is a row. When the last of its messages has arrived, the row is deleted; until then, a repeat does no harm.
//! Memory has no messages, and only so many letters: where a peer that does not answer or takes nothing has filled it, its
//! letters make room for those behind them, and are read again in the next lap.
//!
//! Invariant: while there is a letter that is not dead, the alarm is at most [`DEAD_MAN_MS`] away.

mod rows;

use std::{collections::VecDeque, ops::Bound};

pub use rows::{Discarded, Letters, Slip};
use stepwell_protocol::Timestamp;

use super::{Address, DEAD_MAN_MS, Letter, Message};
use crate::ordered::OrdMap;

/// How many messages are under way at once.
pub const IN_FLIGHT_MAX: usize = 16;

/// How many bytes they say together, unless one alone says more: all of them are in memory.
pub const IN_FLIGHT_BYTES_MAX: usize = 8 << 20;

/// How many of them go to the same object.
pub const IN_FLIGHT_TO_ONE_MAX: usize = 4;

/// How many bytes are under way to an object that gets no more: one that hangs must not take the room of all others.
const IN_FLIGHT_TO_ONE_BYTES: usize = IN_FLIGHT_BYTES_MAX / 4;

/// How many messages go out before the alarm has to go on with it: see [`crate::cell::CALLS_MAX`].
pub const SENDS_MAX: u32 = 16;

/// How long the answer to a message takes at the most: after that it is sent again.
pub const ANSWER_MS: u64 = 30_000;

/// When a message that has not arrived is dead: nobody sends it any more before a person says so.
pub const DEAD_AFTER_MS: u64 = 6 * 86_400_000;

/// The longest pause before a message is sent again.
pub const SEND_AGAIN_MS_MAX: u64 = 60_000;

/// The first one.
const SEND_AGAIN_MS: u64 = 250;

/// How many messages are known at once; the others stay rows.
pub const KNOWN_MAX: usize = 4_096;

/// How often a message is sent on at once: more often than there are cells that it can come to.
const SENT_ON_MAX: u32 = 128;

/// How many letters are read at once.
const READ_SLICE: usize = 64;

/// A message that has to go out now.
#[derive(Clone, Debug, PartialEq)]
pub struct Sending {
    /// The letter that it is of.
    pub letter: u64,
    /// Which of its messages.
    pub index: usize,
    /// The object that gets it.
    pub to: Address,
    /// The object that its letter names: another one, if that has sent it on.
    pub home: Address,
    /// What it says.
    pub message: Message,
}

/// What an instance knows of its letters.
#[derive(Clone, Debug)]
pub struct Outbox {
    letters: OrdMap<u64, Known>,
    peers: OrdMap<Address, Peer>,
    /// The peer that was served last: the others come first.
    last_served: Option<Address>,
    /// The number of the latest letter, once that was looked at.
    last: Option<u64>,
    /// The largest number of a letter that was known here. An answer to it may still be under way when its row is gone:
    /// no other letter gets that number.
    seen: u64,
    /// Letters after this one may not be known; nothing if all are.
    unread_after: Option<u64>,
    /// Whether letters before that one were left out as well, to make room: another lap has to look for them.
    left_out: bool,
    /// Whether some of these were declined: they wait for as long as they would have in memory.
    left_declined: bool,
    /// When that may begin.
    next_lap: Timestamp,
    /// When room is made again.
    next_room: Timestamp,
    /// How many messages are known.
    known: usize,
    /// How many are under way.
    in_flight: usize,
    /// How many bytes those have.
    in_flight_bytes: usize,
    /// Whether the next one has to wait until some of them have been answered.
    is_crowded: bool,
    /// How many went out since the last request or alarm.
    sent: u32,
}

/// A letter that has not arrived.
#[derive(Clone, Debug)]
struct Known {
    posted_at: Timestamp,
    /// How many of its messages are known and have not arrived.
    left: usize,
    /// Whether all that have not arrived are known.
    is_whole: bool,
}

/// An object that messages go to.
#[derive(Clone, Debug, Default)]
struct Peer {
    waiting: VecDeque<Waiting>,
    /// What is under way, by letter and place in it.
    in_flight: OrdMap<(u64, usize), Flight>,
    /// How often in a row it has not answered.
    failures: u32,
    /// It gets nothing before.
    not_before: Timestamp,
}

/// A message that has not gone out.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    letter: u64,
    index: usize,
    /// How often its receiver said that it comes too early.
    early: u32,
    not_before: Timestamp,
    /// How many bytes it has; 0 until it was read.
    bytes: usize,
}

/// A message that is under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Until when an answer may come.
    until: Timestamp,
    /// See [`Waiting`].
    early: u32,
    bytes: usize,
}

/// What the answer to a message means for its letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// All of it has arrived: its row has to go.
    Whole,
    /// More of it has to.
    Part,
    /// This instance does not know of it, or not any more.
    Unknown,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            letters: OrdMap::new(),
            peers: OrdMap::new(),
            last_served: None,
            last: None,
            seen: 0,
            unread_after: Some(0),
            left_out: false,
            left_declined: false,
            next_lap: Timestamp::default(),
            next_room: Timestamp::default(),
            known: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            is_crowded: false,
            sent: 0,
        }
    }
}

impl Outbox {
    /// A request or an alarm has come: a fresh invocation of the platform.
    pub fn begin(&mut self) {
        self.sent = 0;
    }

    /// A number for the next letter.
    pub fn next_id<R: Letters>(&mut self, rows: &R) -> Result<u64, R::Error> {
        let last = match self.last {
            Some(last) => last,
            None => rows.last_letter()?.max(self.seen),
        };
        self.last = Some(last);
        Ok(last + 1)
    }

    /// A letter was stored.
    pub fn posted(&mut self, letter: &Letter) {
        self.last = self.last.max(Some(letter.id));
        // Behind others that are not known, it waits for its turn; but not for those that wait for the next lap.
        if self.unread_after.is_none() || self.next_lap > letter.posted_at {
            self.take(Slip::from(letter));
        }
    }

    /// A letter was stored that nobody sends.
    pub fn laid_aside(&mut self, letter: &Letter) {
        self.last = self.last.max(Some(letter.id));
    }

    /// Whether nothing is left to be sent, as far as this instance knows.
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.unread_after.is_none()
    }

    fn take(&mut self, slip: Slip) {
        if self.known + slip.to.len() > KNOWN_MAX && !self.letters.is_empty() {
            let before = slip.id - 1;
            self.unread_after = Some(self.unread_after.map_or(before, |after| after.min(before)));
            return;
        }
        self.known += slip.to.len();
        self.seen = self.seen.max(slip.id);
        self.letters
            .insert(slip.id, Known { posted_at: slip.posted_at, left: slip.to.len(), is_whole: true });
        for (index, to) in slip.to.into_iter().enumerate() {
            let not_before = Timestamp::default();
            let waiting = Waiting { letter: slip.id, index, early: 0, not_before, bytes: 0 };
            self.peers.get_or_default(to).waiting.push_back(waiting);
        }
    }

    /// Reads letters that are not known, as far as there is room for them.
    fn read_on<R: Letters>(&mut self, rows: &R, now: Timestamp) -> Result<(), R::Error> {
        // As many as there is room for, and not more than that of dead ones, which take none.
        for _ in 0..KNOWN_MAX / READ_SLICE {
            let may_read = self.next_lap <= now && self.known <= KNOWN_MAX / 2;
            let Some(after) = self.unread_after.filter(|_| may_read) else { break };
            let slips = rows.letters(after, READ_SLICE)?;
            let is_last = slips.len() < READ_SLICE;
            // Whoever finds no room sets it anew.
            self.unread_after = slips.last().filter(|_| !is_last).map(|slip| slip.id);
            // What the storage does not take now is looked at again in the next lap.
            let mut bury = |id| self.left_out |= rows.bury_letter(id).is_err();
            let (dead, alive): (Vec<_>, Vec<_>) =
                slips.into_iter().partition(|slip| slip.to.is_empty() || is_dead(slip.posted_at, now));
            for slip in dead {
                bury(slip.id);
            }
            for slip in alive {
                if let Some(known) = self.letters.get(&slip.id) {
                    self.left_out |= !known.is_whole;
                } else {
                    self.take(slip);
                }
            }
            if self.unread_after.is_none() && std::mem::take(&mut self.left_out) {
                let is_long = std::mem::take(&mut self.left_declined);
                let pause_ms = if is_long { SEND_AGAIN_MS_MAX } else { DEAD_MAN_MS };
                (self.unread_after, self.next_lap) = (Some(0), now.plus_millis(pause_ms));
            }
        }
        Ok(())
    }

    /// Leaves out what waits for peers that do not answer, and what was declined, if that keeps letters behind it from
    /// being known.
    fn make_room(&mut self, now: Timestamp) {
        if self.unread_after.is_none() || self.known <= KNOWN_MAX / 2 || self.next_room > now {
            return;
        }
        // Not at every turn: each time, as many letters are read.
        self.next_room = now.plus_millis(DEAD_MAN_MS);
        let (letters, known) = (&mut self.letters, &mut self.known);
        let mut dropped = Vec::new();
        for peer in self.peers.values_mut() {
            let is_silent = peer.not_before > now;
            // What was not sent yet stays, even to a peer that has declined all before it: each is tried once in a lap.
            peer.waiting.retain(|waiting| {
                let is_declined = waiting.not_before > Timestamp::default();
                self.left_declined |= is_declined;
                if is_silent || is_declined {
                    dropped.push(waiting.letter);
                }
                !is_silent && !is_declined
            });
        }
        self.left_out |= !dropped.is_empty();
        for letter in dropped {
            *known -= 1;
            if let Some(known) = letters.get_mut(&letter) {
                // The row has all of its messages, so those that have arrived go out once more.
                (known.left, known.is_whole) = (known.left - 1, false);
                if known.left == 0 {
                    letters.remove(&letter);
                }
            }
        }
        self.peers.retain(|_, peer| peer.not_before > now || !peer.is_idle());
    }

    /// Adds what has to go out now; also if the storage fails on the way.
    pub fn send<R: Letters>(
        &mut self,
        rows: &R,
        now: Timestamp,
        sendings: &mut Vec<Sending>,
    ) -> Result<(), R::Error> {
        if self.is_empty() {
            return Ok(());
        }
        for letter in self.give_up_late(now) {
            rows.bury_letter(letter)?;
            self.drop_letter(letter);
        }
        self.make_room(now);
        self.read_on(rows, now)?;
        while self.in_flight < IN_FLIGHT_MAX
            && self.sent < SENDS_MAX
            && !self.is_crowded
            && let Some((to, waiting)) = self.next(now)
        {
            let Waiting { letter, index, early, .. } = waiting;
            if self.is_too_much(waiting.bytes) {
                self.put_back(to, waiting);
                break;
            }
            let read = rows.letter(letter).and_then(|found| {
                let envelope = found.and_then(|found| found.envelopes.into_iter().nth(index));
                // It has gone, or cannot be read.
                if envelope.is_none() {
                    rows.bury_letter(letter)?;
                }
                Ok(envelope)
            });
            let envelope = match read {
                Ok(Some(envelope)) => envelope,
                Ok(None) => {
                    self.drop_letter(letter);
                    continue;
                }
                Err(error) => {
                    self.put_back(to, waiting);
                    return Err(error);
                }
            };
            let bytes = envelope.message.size();
            if self.is_too_much(bytes) {
                self.put_back(to, Waiting { bytes, ..waiting });
                break;
            }
            let peer = self.peers.get_or_default(to.clone());
            let until = now.plus_millis(ANSWER_MS);
            peer.in_flight.insert((letter, index), Flight { until, early, bytes });
            self.in_flight += 1;
            self.in_flight_bytes += bytes;
            self.sent += 1;
            self.last_served = Some(to.clone());
            sendings.push(Sending { letter, index, to, home: envelope.to, message: envelope.message });
        }
        Ok(())
    }

    /// Whether a message of so many bytes has to wait for others. Those behind it wait too, or it might wait for ever.
    fn is_too_much(&mut self, bytes: usize) -> bool {
        self.is_crowded = self.in_flight > 0 && self.in_flight_bytes + bytes > IN_FLIGHT_BYTES_MAX;
        self.is_crowded
    }

    fn put_back(&mut self, to: Address, waiting: Waiting) {
        self.peers.get_or_default(to).waiting.push_front(waiting);
    }

    /// A message is not under way any more.
    fn land(&mut self, to: &Address, letter: u64, index: usize) -> Option<(&mut Peer, Flight)> {
        let peer = self.peers.get_mut(to)?;
        let flight = peer.in_flight.remove(&(letter, index))?;
        self.in_flight -= 1;
        self.in_flight_bytes -= flight.bytes;
        self.is_crowded = false;
        Some((peer, flight))
    }

    /// The next message that may go out: of the peer after the one that was served last.
    fn next(&mut self, now: Timestamp) -> Option<(Address, Waiting)> {
        let is_ready = |(_, peer): &(&Address, &Peer)| peer.ready(now).is_some();
        let beyond = |last| self.peers.range((Bound::Excluded(last), Bound::Unbounded)).find(is_ready);
        let after = self.last_served.as_ref().and_then(beyond);
        let to = after.or_else(|| self.peers.iter().find(is_ready)).map(|(to, _)| to.clone())?;
        let peer = self.peers.get_mut(&to)?;
        let at = peer.ready(now)?;
        let waiting = peer.waiting.remove(at)?;
        Some((to, waiting))
    }

    /// Gives up on answers that have not come: their messages go out again. Gives the letters that are dead by now.
    fn give_up_late(&mut self, now: Timestamp) -> Vec<u64> {
        let late = self.peers.iter().flat_map(|(to, peer)| {
            let late = peer.in_flight.iter().filter(|(_, flight)| flight.until <= now);
            late.map(|(&(letter, index), _)| (to.clone(), letter, index))
        });
        let late: Vec<_> = late.collect();
        let dead = late.into_iter().filter(|(to, letter, index)| self.failed(now, to, *letter, *index));
        dead.map(|(_, letter, _)| letter).collect()
    }

    /// What it means for its letter if this message has arrived: to be asked before that is stored.
    pub fn would_arrive(&self, to: &Address, letter: u64, index: usize) -> Arrival {
        let is_under_way =
            self.peers.get(to).is_some_and(|peer| peer.in_flight.contains_key(&(letter, index)));
        match self.letters.get(&letter) {
            Some(Known { left: 1, is_whole: true, .. }) if is_under_way => Arrival::Whole,
            Some(_) if is_under_way => Arrival::Part,
            Some(_) | None => Arrival::Unknown,
        }
    }

    /// A message has arrived, or was refused for good.
    pub fn arrived(&mut self, to: &Address, letter: u64, index: usize) {
        let Some((peer, _)) = self.land(to, letter, index) else { return };
        (peer.failures, peer.not_before) = (0, Timestamp::default());
        self.known -= 1;
        self.forget_idle(to);
        if let Some(known) = self.letters.get_mut(&letter) {
            known.left -= 1;
            if known.left == 0 {
                self.letters.remove(&letter);
            }
        }
    }

    /// Nobody knows whether a message has arrived, or its receiver cannot take it now. Says whether its letter is dead
    /// by now.
    pub fn failed(&mut self, now: Timestamp, to: &Address, letter: u64, index: usize) -> bool {
        let Some((peer, Flight { early, bytes, .. })) = self.land(to, letter, index) else { return false };
        peer.failures = peer.failures.saturating_add(1);
        peer.not_before = now.plus_millis(pause_ms(peer.failures));
        let not_before = Timestamp::default();
        // It may be this very message that its receiver does not survive: the next try is for another one.
        peer.waiting.push_back(Waiting { letter, index, early, not_before, bytes });
        self.letters.get(&letter).is_some_and(|known| is_dead(known.posted_at, now))
    }

    /// Whether half of the time is over after which a letter is dead.
    pub fn is_old(&self, now: Timestamp, letter: u64) -> bool {
        self.letters.get(&letter).is_some_and(|known| known.posted_at.plus_millis(DEAD_AFTER_MS / 2) <= now)
    }

    /// A message came too early, or its receiver cannot take it now. Says whether its letter is dead by now.
    pub fn early(&mut self, now: Timestamp, to: &Address, letter: u64, index: usize) -> bool {
        let Some((peer, Flight { early, bytes, .. })) = self.land(to, letter, index) else { return false };
        peer.failures = 0;
        let early = early.saturating_add(1);
        let not_before = now.plus_millis(pause_ms(early));
        peer.waiting.push_back(Waiting { letter, index, early, not_before, bytes });
        self.letters.get(&letter).is_some_and(|known| is_dead(known.posted_at, now))
    }

    /// The receiver of a message has sent it on. No row says so: an instance that does not know asks the same receiver,
    /// and gets the same answer.
    pub fn sent_on(&mut self, now: Timestamp, from: &Address, letter: u64, index: usize, to: Address) {
        let Some((peer, Flight { early, bytes, .. })) = self.land(from, letter, index) else { return };
        (peer.failures, peer.not_before) = (0, Timestamp::default());
        self.forget_idle(from);
        let early = early.saturating_add(1);
        let not_before =
            if early > SENT_ON_MAX { now.plus_millis(pause_ms(early)) } else { Timestamp::default() };
        let waiting = Waiting { letter, index, early, not_before, bytes };
        self.peers.get_or_default(to).waiting.push_back(waiting);
    }

    /// A letter is dead, or has gone.
    pub fn drop_letter(&mut self, letter: u64) {
        if self.letters.remove(&letter).is_none() {
            return;
        }
        for peer in self.peers.values_mut() {
            let before = peer.waiting.len() + peer.in_flight.len();
            peer.waiting.retain(|waiting| waiting.letter != letter);
            for (_, flight) in peer.in_flight.iter().filter(|((of, _), _)| *of == letter) {
                self.in_flight -= 1;
                self.in_flight_bytes -= flight.bytes;
            }
            peer.in_flight.retain(|(of, _), _| *of != letter);
            self.known -= before - peer.waiting.len() - peer.in_flight.len();
        }
        self.is_crowded = false;
    }

    /// Nothing waits for its time any more.
    pub fn hurry(&mut self) {
        for peer in self.peers.values_mut() {
            (peer.failures, peer.not_before) = (0, Timestamp::default());
            peer.waiting.iter_mut().for_each(|waiting| waiting.not_before = Timestamp::default());
        }
        self.look_again();
    }

    /// A dead letter shall be sent again, or any other may have come: all rows are looked at.
    pub fn look_again(&mut self) {
        (self.unread_after, self.next_lap) = (Some(0), Timestamp::default());
    }

    fn forget_idle(&mut self, to: &Address) {
        if self.peers.get(to).is_some_and(Peer::is_idle) {
            self.peers.remove(to);
        }
    }

    /// When to look again.
    pub fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        if self.is_empty() {
            return None;
        }
        let dead_man = now.plus_millis(DEAD_MAN_MS);
        let can_send = self.in_flight < IN_FLIGHT_MAX && !self.is_crowded;
        let waiting = self.peers.values().filter(|_| can_send).filter_map(Peer::next);
        let unread =
            self.unread_after.filter(|_| self.known <= KNOWN_MAX / 2).map(|_| self.next_lap.max(now));
        waiting.chain(unread).min().map_or(Some(dead_man), |at| Some(at.min(dead_man)))
    }
}

impl Peer {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Whether it gets nothing before it has answered.
    fn is_busy(&self) -> bool {
        let bytes: usize = self.in_flight.values().map(|flight| flight.bytes).sum();
        self.in_flight.len() >= IN_FLIGHT_TO_ONE_MAX
            || bytes >= IN_FLIGHT_TO_ONE_BYTES
            // One that does not answer is asked once until it does.
            || self.failures > 0 && !self.in_flight.is_empty()
    }

    /// Which of its messages may go out.
    fn ready(&self, now: Timestamp) -> Option<usize> {
        if self.not_before > now || self.is_busy() {
            return None;
        }
        self.waiting.iter().position(|waiting| waiting.not_before <= now)
    }

    /// When the next of its messages may go out.
    fn next(&self) -> Option<Timestamp> {
        if self.is_busy() {
            return None;
        }
        self.waiting.iter().map(|waiting| waiting.not_before.max(self.not_before)).min()
    }
}

/// How long until the next try, after so many.
pub fn pause_ms(tries: u32) -> u64 {
    (SEND_AGAIN_MS << tries.saturating_sub(1).min(16)).min(SEND_AGAIN_MS_MAX)
}

fn is_dead(posted_at: Timestamp, now: Timestamp) -> bool {
    posted_at.plus_millis(DEAD_AFTER_MS) <= now
}

#[cfg(test)]
mod tests;
