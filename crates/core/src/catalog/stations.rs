//! The register of a namespace's stations: which objects there are besides its cells and its catalog.
//!
//! The platform has no list of objects that a Worker could read, and a station's name may come from anywhere. So a station
//! is registered with the catalog of its namespace before it stores anything, and stays registered until the namespace, or
//! the queue that it belongs to, is deleted. The sweep and the deletion of a namespace go by this list.
//!
//! Owns: the rows of the register, and which stations are touched next.
//! Does not own: what a station stores. The register is not kept in memory: it is read in pages, as it is needed.
//!
//! Invariant: a station that has stored something is in the register.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Code, Problem, Timestamp, lane::STEPS_PREFIX};

use super::{Catalog, Decision, Desk, Entry, Input, Order, Rejection, Rows};
use crate::object::{Address, Fault, Hosted as _, Kind};

/// How many stations a catalog touches at the most when it is touched itself. The next time it goes on behind them.
pub const TOUCHED_AT_ONCE: usize = 32;

/// The most topics of a namespace: each of them is an object for good.
pub const TOPICS_MAX: usize = 1_000;

/// The most queues of a namespace.
pub const QUEUES_MAX: usize = 1_000;

/// Stations that people have given a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Named {
    /// Queues, by their first partitions.
    Queues,
    /// Topics.
    Topics,
    /// Lanes of steps.
    StepLanes,
}

impl Named {
    /// What they begin with in the register.
    fn prefix(self) -> String {
        match self {
            Self::Queues => format!("{}/0/", Kind::Queue.as_str()),
            Self::Topics => format!("{}/", Kind::Topic.as_str()),
            Self::StepLanes => format!("{}/{STEPS_PREFIX}", Kind::Lane.as_str()),
        }
    }
}

/// The longest name of a station.
const NAME_LENGTH_MAX: usize = 512;

/// A station, as its namespace knows it: `schedules/3` is the station at `schedules/acme/3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Station {
    kind: String,
    name: String,
}

/// What a station is told when it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The life of the namespace that it belongs to. A namespace that is deleted and made again has another one.
    pub life: u64,
}

/// A text that names no station.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no station")]
pub struct NotAStation(String);

impl Station {
    /// The station at an address.
    pub fn at(address: &Address) -> Self {
        Self { kind: address.kind.as_str().to_owned(), name: address.name.clone() }
    }

    /// Its address in a namespace; nothing if this release does not know its kind.
    pub fn address(&self, namespace: &str) -> Option<Address> {
        let Self { kind, name } = self;
        let text = if name.is_empty() {
            format!("{kind}/{namespace}")
        } else {
            format!("{kind}/{namespace}/{name}")
        };
        text.parse().ok()
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl FromStr for Station {
    type Err = NotAStation;

    fn from_str(text: &str) -> Result<Self, NotAStation> {
        match text.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && text.len() <= NAME_LENGTH_MAX => {
                Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
            }
            Some(_) | None => Err(NotAStation(text.to_owned())),
        }
    }
}

impl Catalog {
    /// A station that is registered twice is registered once: the row is the same.
    pub(super) fn register(station: Station) -> Result<Decision, Rejection> {
        if station.to_string().len() > NAME_LENGTH_MAX {
            let detail = format!("The name of a station has at most {NAME_LENGTH_MAX} bytes.");
            return Err(Rejection::new(Code::InvalidRequest, detail));
        }
        Ok(vec![Entry::StationRegistered(station)])
    }
}

impl Desk {
    /// Registers a station. It may store something once this is acknowledged.
    pub fn register<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        station: Station,
    ) -> Result<Registered, Fault<R::Error>> {
        Self::check_topics(rows, &station)?;
        Self::check_queues(rows, &station)?;
        self.drive(rows, clock, "", Input::Register(station))?;
        Ok(Registered { life: self.catalog(rows)?.life() })
    }

    /// Refuses one topic more than a namespace has. Read once in the life of a topic.
    fn check_topics<R: Rows>(rows: &R, station: &Station) -> Result<(), Fault<R::Error>> {
        if station.kind != Kind::Topic.as_str() {
            return Ok(());
        }
        let topics = Self::named(rows, Named::Topics, "", TOPICS_MAX)?;
        if topics.len() < TOPICS_MAX || topics.contains(&station.name) {
            return Ok(());
        }
        let detail = format!(
            "A namespace has at most {TOPICS_MAX} topics. The topic is the first part of an event's name: put what differs \
             between events into their data."
        );
        Err(Problem::new(Code::TooMany, detail).into())
    }

    /// Refuses one queue more than a namespace has. Read once in the life of a queue.
    fn check_queues<R: Rows>(rows: &R, station: &Station) -> Result<(), Fault<R::Error>> {
        let name = station.to_string();
        let Some(queue) = name.strip_prefix(&Named::Queues.prefix()) else { return Ok(()) };
        let queues = Self::named(rows, Named::Queues, "", QUEUES_MAX)?;
        if queues.len() < QUEUES_MAX || queues.iter().any(|known| known == queue) {
            return Ok(());
        }
        let detail = format!("A namespace has at most {QUEUES_MAX} queues. Delete one that you do not need.");
        Err(Problem::new(Code::LimitReached, detail).into())
    }

    /// Stations of the namespace by the names that people gave them, from behind this one on.
    pub fn named<R: Rows>(
        rows: &R,
        which: Named,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, Fault<R::Error>> {
        let prefix = which.prefix();
        let stations = rows.stations(&format!("{prefix}{after}"), limit).map_err(Fault::Storage)?;
        let names = stations.iter().map_while(|name| name.strip_prefix(&prefix));
        Ok(names.map(str::to_owned).collect())
    }

    /// Forgets a station that has deleted all that it stored.
    pub fn forget<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        station: Station,
    ) -> Result<(), Fault<R::Error>> {
        self.drive(rows, clock, "", Input::Forget(station))?;
        Ok(())
    }

    /// Whether a station is registered: if not, it has stored nothing.
    pub fn has_station<R: Rows>(&self, rows: &R, station: &Station) -> Result<bool, Fault<R::Error>> {
        rows.has_station(&station.to_string()).map_err(Fault::Storage)
    }

    /// Stations by name, from behind this one on.
    pub fn stations<R: Rows>(
        &self,
        rows: &R,
        after: Option<&Station>,
        limit: usize,
    ) -> Result<Vec<Station>, Fault<R::Error>> {
        let after = after.map(ToString::to_string).unwrap_or_default();
        let names = rows.stations(&after, limit).map_err(Fault::Storage)?;
        // A name that cannot be read belongs to no station that could be found by it.
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The sweep is here: lets the next stations look after their alarms. Where there are more than can be touched at
    /// once, a row keeps how far this has come.
    pub fn touch<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<R::Error>> {
        self.now(clock);
        let before = self.catalog(rows)?.touched().cloned();
        let after = before.as_ref().map(ToString::to_string).unwrap_or_default();
        let names = rows.stations(&after, TOUCHED_AT_ONCE).map_err(Fault::Storage)?;
        let page: Vec<Station> = names.iter().filter_map(|name| name.parse().ok()).collect();
        // A name that cannot be read does not make a full page the last one.
        let last = page.last().filter(|_| names.len() == TOUCHED_AT_ONCE).cloned();
        if last != before {
            self.drive(rows, clock, "", Input::Touch { last })?;
        }
        if !page.is_empty() {
            self.object().order(Order::Touch(page));
        }
        Ok(())
    }
}
