//! The table of a lane, and what an instance of it sees of that.

use std::{collections::BTreeMap, ops::Deref, rc::Rc};

use stepwell_core::lane::{Lane, Rows, Waiter};
use stepwell_protocol::{Timestamp, lane::SetLimit};

use super::Planted;
use crate::host::{Disk, Refused, Simulated, View};

/// Lanes.
#[derive(Clone, Copy, Debug)]
pub struct Lanes;

impl Simulated for Lanes {
    type Machine = Lane;
    type Rows = Waiters;
    type Disk = Table;
    type Own = ();
}

/// The rows of one lane.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<u64, String>);

/// One transaction: what is stored, and what is deleted.
#[derive(Clone, Debug)]
pub struct Write(Vec<(u64, String)>, Vec<u64>);

impl Disk for Table {
    type Write = Write;

    fn apply(&mut self, Write(put, deleted): &Write) -> Result<(), String> {
        self.0.extend(put.iter().cloned());
        self.0.retain(|number, _| !deleted.contains(number));
        Ok(())
    }
}

impl Table {
    /// Who is stored.
    pub fn waiters(&self) -> impl Iterator<Item = (u64, Waiter)> {
        let read = |text: &str| serde_json::from_str(text).expect("only machines write here");
        self.0.iter().map(move |(number, text)| (*number, read(text)))
    }
}

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Waiters {
    view: View<Table>,
    planted: Option<Planted>,
}

impl Waiters {
    /// On what is on disk.
    pub fn new(disk: Rc<Table>, planted: Option<Planted>) -> Self {
        Self { view: View::new(disk), planted }
    }

    /// What a planted bug makes of a row that is read.
    fn seen(&self, number: u64, mut waiter: Waiter) -> Option<(u64, Option<Waiter>)> {
        match self.planted {
            Some(Planted::HoldersForgotten) if waiter.is_in => return None,
            Some(Planted::WaiterHidden) if !waiter.is_in && number.is_multiple_of(2) => return None,
            Some(Planted::BeginningForgotten) => waiter.since = Timestamp::default(),
            Some(_) | None => {}
        }
        Some((number, Some(waiter)))
    }
}

impl Deref for Waiters {
    type Target = View<Table>;

    fn deref(&self) -> &View<Table> {
        &self.view
    }
}

impl Rows for Waiters {
    type Error = Refused;

    fn waiters(&self) -> Result<Vec<(u64, Option<Waiter>)>, Refused> {
        let table = self.view.read()?;
        Ok(table.waiters().filter_map(|(number, waiter)| self.seen(number, waiter)).collect())
    }

    fn set_limits(&self) -> Result<Vec<SetLimit>, Refused> {
        // People set none here: the machine's own tests do.
        Ok(Vec::new())
    }

    fn write_set_limits(&self, _: &[SetLimit]) -> Result<(), Refused> {
        Ok(())
    }

    fn write(&self, put: &[(u64, &Waiter)], deleted: &[u64]) -> Result<(), Refused> {
        let is = |planted| self.planted == Some(planted);
        let is_lost = |waiter: &Waiter| {
            is(Planted::LetInLost) && waiter.is_in || is(Planted::RateForgotten) && waiter.is_over
        };
        let stored = put.iter().filter(|(_, waiter)| !is_lost(waiter));
        let text = |waiter: &Waiter| serde_json::to_string(waiter).expect("a waiter is JSON");
        let stored = stored.map(|(number, waiter)| (*number, text(waiter))).collect();
        let mut deleted = deleted.to_vec();
        if is(Planted::RowStays) {
            deleted.clear();
        }
        if is(Planted::RateForgotten) {
            deleted.extend(put.iter().filter(|(_, waiter)| waiter.is_over).map(|(number, _)| *number));
        }
        self.view.write(Write(stored, deleted))
    }
}
