//! Knows a start that is delivered again.
//!
//! A start without an idempotency key carries a nonce, which the front draws once for each client request: the random
//! part of the new run's id. If the connection breaks after the commit, the runtime may deliver the same call once
//! more, to this instance or to the next one. The nonce leads that call to the run it has started.
//!
//! Owns: the nonces of the latest runs, in memory. The runs' rows already have them, so there is no further row, no
//! index and no read for each start: a fresh instance reads the latest [`LOOK_BACK`] of them once.
//!
//! Invariant: a call that is delivered again finds its run if fewer than [`LOOK_BACK`] runs were accepted between its
//! commit and the death of the instance, and fewer than [`NONCES_MAX`] since.

use std::collections::VecDeque;

use stepwell_protocol::RunId;

use super::{Cell, Rows};
use crate::{object::Fault, ordered::OrdMap, run::Run};

/// How many runs a fresh instance looks back. Only answers that were still held back when the last instance died can
/// be asked for again, which is what a cell accepts within a fraction of a second.
pub const LOOK_BACK: usize = 256;

/// How many nonces an instance remembers: at a thousand starts a second, those of eight seconds.
pub const NONCES_MAX: usize = 8_192;

/// The latest runs by a hash of their nonces.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    numbers: OrdMap<u64, u64>,
    /// Oldest first.
    order: VecDeque<u64>,
    is_loaded: bool,
}

impl Recent {
    fn note(&mut self, number: u64, nonce: &str) {
        let hash = hash(nonce);
        if self.numbers.insert(hash, number).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > NONCES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.numbers.remove(&oldest);
        }
    }

    fn find(&self, nonce: &str) -> Option<u64> {
        self.numbers.get(&hash(nonce)).copied()
    }
}

impl Cell {
    /// The run that a call with this nonce has started before. Like a key, a nonce is known for as long as its run is.
    pub(super) fn started_by_nonce<R: Rows>(
        &mut self,
        rows: &R,
        nonce: &str,
    ) -> Result<Option<Run>, Fault<R::Error>> {
        if !self.recent.is_loaded {
            let latest = rows.latest(LOOK_BACK).map_err(Fault::Storage)?;
            for (number, nonce) in latest.iter().rev() {
                self.recent.note(*number, nonce);
            }
            self.recent.is_loaded = true;
        }
        let Some(number) = self.recent.find(nonce) else { return Ok(None) };
        Ok(self.kept(rows, number)?.filter(|run| run.id.suffix == nonce))
    }

    pub(super) fn note_start(&mut self, id: &RunId) {
        self.recent.note(id.number, &id.suffix);
    }
}

/// Two nonces of one hash do no harm: the run that is found has to have the right one.
fn hash(nonce: &str) -> u64 {
    nonce.bytes().fold(0, |hash: u64, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
}
