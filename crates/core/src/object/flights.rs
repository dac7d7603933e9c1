//! Questions to cells that are under way: how many at once, to whom, and how large they are. In memory only.
//!
//! Owns: which cell may be asked now, and the pauses of those that do not answer. Does not own: what is asked, when it is
//! due, and what an answer means: those are the business of whoever asks. Letters have the same bounds in their
//! [`Outbox`](super::Outbox).

use stepwell_protocol::{Place, Timestamp};

use super::outbox::{ANSWER_MS, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, IN_FLIGHT_TO_ONE_MAX, pause_ms};
use crate::ordered::OrdMap;

/// How many questions are asked before the alarm has to go on with it: see [`crate::cell::CALLS_MAX`].
pub const ASKS_MAX: u32 = 32;

/// For how long a cell does not answer until it counts as silent.
const SILENT_MS: u64 = 10_000;

/// Something that a cell is asked.
#[derive(Clone, Debug)]
struct Flight<W> {
    what: W,
    to: Place,
    bytes: usize,
    /// Until when an answer may come.
    until: Timestamp,
}

/// A cell that is asked, or has not answered.
#[derive(Clone, Debug, Default)]
struct Peer {
    in_flight: usize,
    /// How often in a row it has not answered, and since when.
    failures: u32,
    since: Option<Timestamp>,
    /// It is asked nothing before.
    not_before: Timestamp,
}

/// What an instance asks cells.
#[derive(Clone, Debug)]
pub struct Flights<W> {
    asking: OrdMap<u64, Flight<W>>,
    peers: OrdMap<Place, Peer>,
    /// How many bytes are under way.
    bytes: usize,
    /// The number of the latest question.
    last: u64,
    /// How many were asked since the last request or alarm.
    asked: u32,
}

impl<W> Default for Flights<W> {
    fn default() -> Self {
        Self { asking: OrdMap::new(), peers: OrdMap::new(), bytes: 0, last: 0, asked: 0 }
    }
}

impl<W> Flights<W> {
    /// A request or an alarm has come.
    pub fn begin(&mut self) {
        self.asked = 0;
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.asking.is_empty()
    }

    /// Whether nothing more may be under way before an answer comes.
    pub fn is_full(&self) -> bool {
        self.asking.len() >= IN_FLIGHT_MAX
    }

    /// Whether some cell may be asked something in this turn.
    pub fn may_ask(&self) -> bool {
        !self.is_full() && self.asked < ASKS_MAX
    }

    /// Whether a question of so many bytes has to wait for answers to others. Those behind it should wait too, or it might
    /// wait for ever.
    pub fn is_too_much(&self, bytes: usize) -> bool {
        !self.asking.is_empty() && self.bytes + bytes > IN_FLIGHT_BYTES_MAX
    }

    /// From when on a cell may be asked; nothing while it has to answer first.
    pub fn free_at(&self, to: &Place) -> Option<Timestamp> {
        let Some(peer) = self.peers.get(to) else { return Some(Timestamp::default()) };
        // One that does not answer is asked once until it does.
        let most = if peer.failures > 0 { 1 } else { IN_FLIGHT_TO_ONE_MAX };
        (peer.in_flight < most).then_some(peer.not_before)
    }

    /// Whether a cell has not answered for long.
    pub fn is_silent(&self, now: Timestamp, to: &Place) -> bool {
        let since = self.peers.get(to).and_then(|peer| peer.since);
        since.is_some_and(|since| since.plus_millis(SILENT_MS) <= now)
    }

    /// How often in a row a cell has not answered.
    pub fn failures(&self, to: &Place) -> u32 {
        self.peers.get(to).map_or(0, |peer| peer.failures)
    }

    /// What is under way.
    pub fn all(&self) -> impl Iterator<Item = &W> {
        self.asking.values().map(|flight| &flight.what)
    }

    /// The number of a question that is under way.
    pub fn find(&self, is_it: impl Fn(&W) -> bool) -> Option<u64> {
        self.asking.iter().find(|(_, flight)| is_it(&flight.what)).map(|(number, _)| *number)
    }

    /// A cell is asked. Gives the number of the question.
    pub fn ask(&mut self, now: Timestamp, to: Place, bytes: usize, what: W) -> u64 {
        self.last += 1;
        self.asked += 1;
        self.bytes += bytes;
        self.peers.get_or_default(to.clone()).in_flight += 1;
        let until = now.plus_millis(ANSWER_MS);
        self.asking.insert(self.last, Flight { what, to, bytes, until });
        self.last
    }

    /// What a question was about, unless it was given up. Its cell has answered, whatever it said.
    pub fn answered(&mut self, flight: u64) -> Option<W> {
        let (what, to) = self.land(flight)?;
        if let Some(Peer { in_flight, .. }) = self.peers.remove(&to)
            && in_flight > 0
        {
            self.peers.insert(to, Peer { in_flight, ..Peer::default() });
        }
        Some(what)
    }

    /// What a question was about, unless it was given up. Nobody knows whether its cell has heard it.
    pub fn failed(&mut self, now: Timestamp, flight: u64) -> Option<W> {
        let (what, to) = self.land(flight)?;
        let peer = self.peers.get_or_default(to);
        peer.failures = peer.failures.saturating_add(1);
        peer.since.get_or_insert(now);
        peer.not_before = now.plus_millis(pause_ms(peer.failures));
        Some(what)
    }

    /// Gives up on answers that have not come.
    pub fn give_up_late(&mut self, now: Timestamp) -> Vec<W> {
        let late = self.asking.iter().filter(|(_, flight)| flight.until <= now);
        let late: Vec<_> = late.map(|(number, _)| *number).collect();
        late.into_iter().filter_map(|number| self.failed(now, number)).collect()
    }

    /// Answers to these come too late.
    pub fn forget(&mut self, is_gone: impl Fn(&W) -> bool) {
        let gone = self.asking.iter().filter(|(_, flight)| is_gone(&flight.what));
        let gone: Vec<_> = gone.map(|(number, _)| *number).collect();
        for number in gone {
            self.land(number);
        }
    }

    fn land(&mut self, flight: u64) -> Option<(W, Place)> {
        let Flight { what, to, bytes, .. } = self.asking.remove(&flight)?;
        self.bytes -= bytes;
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.in_flight -= 1;
            if peer.in_flight == 0 && peer.failures == 0 {
                self.peers.remove(&to);
            }
        }
        Some((what, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(cell: u32) -> Place {
        Place { pool: "default".into(), generation: 1, cell }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn is_free(flights: &Flights<u32>, ms: u64, to: u32) -> bool {
        flights.free_at(&cell(to)).is_some_and(|free| free <= at(ms))
    }

    #[test]
    fn a_cell_that_hangs_takes_no_more_than_its_share() {
        let mut flights = Flights::default();
        let first: Vec<_> = (0..4).map(|what| flights.ask(at(0), cell(7), 10, what)).collect();
        assert!(!is_free(&flights, 0, 7) && is_free(&flights, 0, 8) && flights.may_ask());
        assert_eq!(flights.give_up_late(at(ANSWER_MS)), [0, 1, 2, 3]);
        assert_eq!(flights.answered(first[0]), None, "it comes too late");
        assert!(!is_free(&flights, ANSWER_MS, 7) && is_free(&flights, ANSWER_MS + 60_000, 7));
        assert!(!flights.is_silent(at(ANSWER_MS), &cell(7)));
        assert!(
            flights.is_silent(at(ANSWER_MS + SILENT_MS), &cell(7)) && !flights.is_silent(at(0), &cell(8))
        );
        let probe = flights.ask(at(100_000), cell(7), 10, 9);
        assert!(!is_free(&flights, 200_000, 7), "one at a time");
        assert_eq!(flights.answered(probe), Some(9));
        assert!(is_free(&flights, 100_000, 7) && !flights.is_silent(at(100_000), &cell(7)));
        assert!(flights.peers.is_empty() && flights.bytes == 0);
    }

    #[test]
    fn what_is_under_way_has_bounds() {
        let mut flights = Flights::default();
        assert!(!flights.is_too_much(IN_FLIGHT_BYTES_MAX * 2), "one alone may be larger");
        flights.ask(at(0), cell(0), IN_FLIGHT_BYTES_MAX - 1, 0);
        assert!(!flights.is_too_much(1) && flights.is_too_much(2));
        for number in 1..16 {
            assert!(flights.may_ask());
            flights.ask(at(0), cell(number), 0, number);
        }
        assert!(flights.is_full() && !flights.may_ask());
        flights.forget(|what| *what == 3);
        assert!(flights.may_ask() && flights.all().count() == 15);
        for number in 0..16 {
            flights.forget(|what| *what == number);
            flights.ask(at(0), cell(number), 0, number);
        }
        assert!(!flights.may_ask(), "the alarm goes on with it");
        flights.forget(|_| true);
        flights.begin();
        assert!(flights.may_ask() && flights.is_empty() && flights.peers.is_empty());
    }
}
