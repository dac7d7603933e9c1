//! What clients were told must be true, and stay true.

use stepwell_core::run::{End, Phase};
use stepwell_protocol::{Event, Place, RunId, rest::Status};

use super::{Checked, Checker};
use crate::tables::Tables;

impl Checker {
    /// A client was told that its run was started.
    pub fn started(
        &mut self,
        disk: &Tables,
        cell: usize,
        key: Option<&str>,
        fingerprint: &str,
        run: &RunId,
    ) -> Checked {
        if self.is_deleted(cell, run) {
            return Ok(());
        }
        if disk.runs.get(&run.number).is_none_or(|row| *row.suffix != run.suffix) {
            return Err(("1 no run is lost", format!("{run} was acknowledged and is not on disk")));
        }
        self.acked.push((cell, run.clone()));
        let Some(key) = key else { return Ok(()) };
        let (known, first) =
            self.keys.entry(key.to_owned()).or_insert_with(|| (fingerprint.to_owned(), run.clone()));
        if first != run || known != fingerprint {
            let detail = format!("key {key} gave {first} for {known}, and {run} for {fingerprint}");
            return Err(("2 a key gives one run", detail));
        }
        Ok(())
    }

    /// A client was told that its key belongs to another request.
    pub fn key_refused(&self, disk: &Tables, key: Option<&str>, fingerprint: &str) -> Checked {
        let stored = key.and_then(|key| disk.keys.get(key));
        let was_freed = key.is_some_and(|key| self.freed.contains(key));
        if !was_freed && stored.is_none_or(|stored| stored.fingerprint == fingerprint) {
            return Err(("2 a key gives one run", format!("key {key:?} was refused without a reason")));
        }
        Ok(())
    }

    /// A client was told that its signal was received, now or before.
    pub fn signalled(
        &mut self,
        disk: &Tables,
        cell: usize,
        run: &RunId,
        id: Option<&str>,
        payload: u64,
    ) -> Checked {
        if self.is_deleted(cell, run) {
            return Ok(());
        }
        let kept = disk.journal(run.number).iter().any(|row| {
            matches!(row.says(), Event::SignalReceived { id: kept, payload: with, .. }
                if kept.as_deref() == id && with.text() == payload.to_string())
        });
        // Once a life has taken it, it is deleted with that life: that it was there is known.
        let known = self.runs.get(&(cell, run.number));
        let was_there =
            known.is_some_and(|known| known.received.iter().any(|(_, with)| *with == payload.to_string()));
        let is_known = kept || (was_there && disk.erased.contains_key(&run.number));
        if !is_known {
            let detail = format!("{run}: signal {id:?} was acknowledged and is not on disk");
            return Err(("15 an accepted signal is kept", detail));
        }
        self.signals.push((run.clone(), id.map(str::to_owned), payload));
        Ok(())
    }

    /// A client was told that its run was cancelled.
    pub fn cancelled(&mut self, disk: &Tables, cell: usize, place: &Place, run: &RunId) -> Checked {
        if self.was_reopened(cell, run) || self.is_deleted(cell, run) {
            return Ok(());
        }
        let is_cancelled = disk
            .run(place, run.number)
            .is_some_and(|run| matches!(run.phase, Phase::Ended { how: End::Cancelled, .. }));
        if !is_cancelled {
            return Err(("22 a cancellation stands", format!("{run} was cancelled and is not, on disk")));
        }
        self.cancelled.push(run.clone());
        Ok(())
    }

    /// Whether somebody has taken the run back: what was said of its end before may be out of date.
    pub(super) fn was_reopened(&self, cell: usize, run: &RunId) -> bool {
        self.runs.get(&(cell, run.number)).is_some_and(|known| known.reopened)
    }

    /// A client was shown where a run stands. What has ended stays so; anything else may be old news.
    pub fn shown(&self, disk: &Tables, cell: usize, run: &RunId, status: Status) -> Checked {
        if self.was_reopened(cell, run) || self.is_deleted(cell, run) {
            return Ok(());
        }
        let stored = disk.runs.get(&run.number).map(|row| row.status);
        if stored.is_none() || (status.is_terminal() && stored != Some(status.as_str())) {
            let detail = format!("{run} was shown as {}, and is {stored:?}", status.as_str());
            return Err(("21 terminal states never change", detail));
        }
        Ok(())
    }
}
