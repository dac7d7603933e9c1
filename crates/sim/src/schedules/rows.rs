//! The table of a station of schedules, and what an instance of it sees of that.

use std::{collections::BTreeMap, ops::Deref, rc::Rc};

use stepwell_core::schedule::{Heard, Rows, Schedule, Schedules};
use stepwell_protocol::Timestamp;

use super::Planted;
use crate::host::{Disk, Refused, Simulated, View};

/// Stations of schedules.
#[derive(Clone, Copy, Debug)]
pub struct Stations;

impl Simulated for Stations {
    type Machine = Schedules;
    type Rows = Board;
    type Disk = Table;
    type Own = ();
}

/// The rows of one station.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: BTreeMap<String, (Option<Timestamp>, String)>,
    heard: Heard,
}

/// One transaction.
#[derive(Clone, Debug)]
pub enum Write {
    /// Schedules are stored, with what was heard of the code.
    Put(Vec<Schedule>, Option<Heard>),
    /// A schedule is deleted.
    Delete(String),
}

impl Disk for Table {
    type Write = Write;

    fn apply(&mut self, write: &Write) -> Result<(), String> {
        match write {
            Write::Put(schedules, heard) => {
                for schedule in schedules {
                    let text = serde_json::to_string(schedule).expect("a schedule is JSON");
                    self.rows.insert(schedule.id.clone(), (schedule.due_at(), text));
                }
                if let Some(heard) = heard {
                    self.heard = heard.clone();
                }
            }
            Write::Delete(id) => drop(self.rows.remove(id)),
        }
        Ok(())
    }
}

impl Table {
    /// A schedule as it is stored.
    pub fn get(&self, id: &str) -> Option<Schedule> {
        let (_, text) = self.rows.get(id)?;
        Some(serde_json::from_str(text).expect("only machines write here"))
    }

    /// All of them, and when each is due.
    pub fn due(&self) -> impl Iterator<Item = (&str, Option<Timestamp>)> {
        self.rows.iter().map(|(id, (due, _))| (id.as_str(), *due))
    }
}

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Board {
    view: View<Table>,
    planted: Option<Planted>,
}

impl Board {
    /// A board on what is on disk.
    pub fn new(disk: Rc<Table>, planted: Option<Planted>) -> Self {
        Self { view: View::new(disk), planted }
    }

    /// What a planted bug makes of a row that is read.
    fn seen(&self, mut schedule: Schedule) -> Schedule {
        match self.planted {
            Some(Planted::PauseForgotten) => schedule.paused = None,
            Some(Planted::OverlapForgotten) => schedule.running.clear(),
            Some(Planted::WindowForgotten) => schedule.spec.catch_up_ms = u64::MAX / 4,
            Some(_) | None => {}
        }
        schedule
    }
}

impl Deref for Board {
    type Target = View<Table>;

    fn deref(&self) -> &View<Table> {
        &self.view
    }
}

impl Rows for Board {
    type Error = Refused;

    fn is_unreadable(_: &Refused) -> bool {
        false
    }

    fn due(&self) -> Result<Vec<(String, Option<Timestamp>)>, Refused> {
        let table = self.view.read()?;
        if self.planted == Some(Planted::PauseForgotten) {
            let all: Vec<_> = table.rows.keys().filter_map(|id| table.get(id)).collect();
            return Ok(all
                .into_iter()
                .map(|one| self.seen(one))
                .map(|one| (one.id.clone(), one.due_at()))
                .collect());
        }
        Ok(table.due().map(|(id, due)| (id.to_owned(), due)).collect())
    }

    fn get(&self, id: &str) -> Result<Option<Schedule>, Refused> {
        Ok(self.view.read()?.get(id).map(|schedule| self.seen(schedule)))
    }

    fn page(&self, after: &str, limit: usize) -> Result<Vec<(String, Option<Schedule>)>, Refused> {
        let table = self.view.read()?;
        let ids = table.rows.keys().filter(|id| id.as_str() > after).take(limit);
        Ok(ids.map(|id| (id.clone(), table.get(id))).collect())
    }

    fn put(&self, schedule: &Schedule) -> Result<(), Refused> {
        self.view.write(Write::Put(vec![schedule.clone()], None))
    }

    fn heard(&self) -> Result<Heard, Refused> {
        Ok(self.view.read()?.heard.clone())
    }

    fn declare(&self, heard: &Heard, schedules: &[Schedule]) -> Result<(), Refused> {
        let is_lost =
            |one: &Schedule| self.planted == Some(Planted::RetirementForgotten) && one.retired_at().is_some();
        let schedules = schedules.iter().filter(|one| !is_lost(one)).cloned().collect();
        self.view.write(Write::Put(schedules, Some(heard.clone())))
    }

    fn delete(&self, id: &str) -> Result<(), Refused> {
        self.view.write(Write::Delete(id.to_owned()))
    }
}
