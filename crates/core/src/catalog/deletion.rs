//! The deletion of a namespace, by two catalogs.
//!
//! The deployment's catalog has the name. It marks it, and asks the namespace's own catalog to delete what is there, again
//! and again, until that one says that nothing is left; only then is the name free. The namespace's own catalog refuses
//! everything from then on, and makes its cells forget all keys. It empties each cell of the pool and each station of its
//! register, and at the end itself.
//!
//! Each *life* of a name has a number that is never used again. Whoever is told to delete something is told which life of
//! the namespace is meant, so a word that comes late does nothing to the next life.
//!
//! Owns: which cells and stations are still to be emptied, and how many of them at once.
//! Does not own: how an object is emptied.
//!
//! Invariant: a catalog with a deletion in its rows grants nothing and registers nobody; and its rows go last.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Code, Place, Timestamp};

use super::{
    Catalog, DEFAULT_NAMESPACE, Decision, Desk, Entry, Input, Namespace, Order, Rejection, Rows, Station,
};
use crate::{
    object::{Fault, Hosted as _},
    ordered::OrdSet,
};

/// How many cells, and how many stations, are emptied at once.
pub const EMPTIED_AT_ONCE: usize = 8;

/// How many cells that did not answer are put aside at the most, before those behind them have to wait.
pub const BEHIND_MAX: usize = 256;

/// How long the host may take to empty what it was ordered to. After that it is ordered again.
pub const EMPTIED_MS_MAX: u64 = 30_000;

/// How many batches one invocation of the platform begins: it may make only so many calls. The alarm goes on.
pub const BATCHES_MAX: u32 = 2;

/// How often a catalog that is asked to delete its namespace is asked again.
pub const DELETE_AGAIN_MS: u64 = 1_000;

/// How many catalogs are asked at once.
const DELETING_AT_ONCE: usize = 16;

/// The pause after cells and stations of which none could be emptied; after each further time it is twice as long.
const PAUSE_MS: u64 = 500;

/// The longest such pause.
const PAUSE_MS_MAX: u64 = 30_000;

/// The deletion of a catalog's own namespace, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// Which life of the namespace is deleted.
    pub life: u64,
    /// Since when.
    pub since: Timestamp,
    /// The pool.
    pub pool: String,
    /// How many cells each of its generations has, oldest first.
    pub cells: Vec<u32>,
    /// The cells before this one, counted through all generations, are empty, but for those in `behind`.
    pub next: u32,
    /// Cells that did not answer.
    #[serde(default, skip_serializing_if = "OrdSet::is_empty")]
    pub behind: OrdSet<u32>,
}

/// A name on its way out of the deployment's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Since when.
    pub since: Timestamp,
    /// On whose behalf.
    pub by: String,
}

/// What has to be emptied next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which life of the namespace is deleted.
    pub life: u64,
    /// Cells, by their number through all generations.
    pub cells: Vec<(u32, Place)>,
    /// Stations.
    pub stations: Vec<Station>,
}

/// What became of a [`Batch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Which life of the namespace is deleted.
    pub life: u64,
    /// Cells that are empty.
    pub cells: OrdSet<u32>,
    /// Cells that did not answer.
    pub silent: OrdSet<u32>,
    /// Stations that are empty.
    pub stations: Vec<Station>,
}

/// How far this instance has come. The rows know what is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Emptying {
    /// Until when the host may be at work.
    until: Option<Timestamp>,
    /// Not before this time, because nobody has answered.
    not_before: Timestamp,
    failures: u32,
    /// How many batches this invocation has begun.
    pub(super) batches: u32,
    /// The last cell of those behind that was tried.
    cell: Option<u32>,
    /// The last station that was tried.
    station: Option<Station>,
}

/// Which catalogs this instance has asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Asking {
    at: Option<Timestamp>,
    last: Option<String>,
}

impl Deletion {
    /// How many cells are not known to be empty.
    pub fn cells_left(&self) -> u32 {
        let ahead = self.total().saturating_sub(self.next);
        ahead.saturating_add(u32::try_from(self.behind.len()).unwrap_or(u32::MAX))
    }

    fn total(&self) -> u32 {
        self.cells.iter().fold(0, |sum, cells| sum.saturating_add(*cells))
    }

    fn place(&self, cell: u32) -> Option<Place> {
        let mut left = cell;
        for (cells, generation) in self.cells.iter().zip(1..) {
            if left < *cells {
                return Some(Place { pool: self.pool.clone(), generation, cell: left });
            }
            left -= cells;
        }
        None
    }

    /// The next cells: first those that nobody has tried yet, then those behind, after the last one that was tried.
    fn batch(&self, last: Option<u32>) -> Vec<(u32, Place)> {
        let size = u32::try_from(EMPTIED_AT_ONCE).unwrap_or(1);
        let end = self.next.saturating_add(size).min(self.total());
        let numbers: Vec<u32> = if self.next < end && self.behind.len() + EMPTIED_AT_ONCE <= BEHIND_MAX {
            (self.next..end).collect()
        } else {
            let from = last.map_or(0, |last| last.saturating_add(1));
            self.behind
                .range(from..)
                .chain(self.behind.range(..from))
                .take(EMPTIED_AT_ONCE)
                .copied()
                .collect()
        };
        numbers.into_iter().filter_map(|cell| Some((cell, self.place(cell)?))).collect()
    }

    /// The deletion after this was heard.
    fn after(&self, emptied: &Emptied) -> Self {
        let heard = emptied.cells.iter().chain(&emptied.silent);
        let next = heard.max().map_or(self.next, |last| self.next.max(last.saturating_add(1)));
        let mut behind = self.behind.clone();
        behind.extend(emptied.silent.iter().copied());
        behind.retain(|cell| !emptied.cells.contains(cell));
        Self { next, behind, ..self.clone() }
    }
}

/// What everybody is told who asks for something in a namespace that is being deleted.
pub fn namespace_deleting() -> Rejection {
    let detail = "The namespace is being deleted, with all that is in it. `GET /api/namespaces/{namespace}` shows how far \
                  that is. Its name can be used again after that.";
    Rejection::new(Code::NamespaceDeleting, detail)
}

impl Input {
    /// Whether it may happen while the namespace is being deleted: nothing that anybody could ask for from outside.
    pub(super) fn goes_with_deletion(&self) -> bool {
        matches!(
            self,
            Self::Delete(_)
                | Self::Emptied(_)
                | Self::Heard { .. }
                | Self::Distrust { .. }
                | Self::CountRefusals(_)
                | Self::Forget(_)
                | Self::Touch { .. }
        )
    }
}

/// In the catalog of the namespace.
impl Catalog {
    /// The deletion that is going on.
    pub fn deletion(&self) -> Option<&Deletion> {
        self.deletion.as_ref()
    }

    /// Whether this namespace has ever been begun.
    fn is_there(&self) -> bool {
        self.life > 0 || self.has_history()
    }

    pub(super) fn begin(&self, life: u64) -> Decision {
        if self.is_there() { Vec::new() } else { vec![Entry::Begun(life)] }
    }

    pub(super) fn delete(&self, deletion: Deletion) -> Decision {
        if self.deletion.is_some() {
            return Vec::new();
        }
        // Cells forget all keys, and end their streams.
        vec![Entry::DeletionWent(deletion), Entry::VersionRaised]
    }

    pub(super) fn emptied(&self, emptied: Emptied) -> Decision {
        let Some(deletion) = self.deletion.as_ref().filter(|deletion| deletion.life == emptied.life) else {
            return Vec::new();
        };
        let after = deletion.after(&emptied);
        let went = (after != *deletion).then_some(Entry::DeletionWent(after));
        went.into_iter().chain(emptied.stations.into_iter().map(Entry::StationForgotten)).collect()
    }
}

/// In the deployment's catalog.
impl Catalog {
    /// The names that are on their way out.
    pub fn leaving(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces().filter(|namespace| namespace.leaving.is_some())
    }

    pub(super) fn delete_namespace(
        &self,
        now: Timestamp,
        by: &str,
        name: &str,
    ) -> Result<Decision, Rejection> {
        if name == DEFAULT_NAMESPACE {
            let detail =
                format!("'{DEFAULT_NAMESPACE}' is the deployment's own namespace, and is always there.");
            return Err(Rejection::new(Code::InvalidRequest, detail));
        }
        let namespace = self.namespace(name).ok_or_else(no_such_namespace)?;
        if namespace.leaving.is_some() {
            return Ok(Vec::new());
        }
        let leaving = Leaving { since: now, by: by.to_owned() };
        Ok(vec![Entry::NamespaceLeft(Namespace { leaving: Some(leaving), ..namespace.clone() })])
    }

    /// Nothing is left of it. A word about an earlier life says nothing.
    pub(super) fn namespace_gone(&self, name: &str, life: u64) -> Decision {
        let is_it = |known: &Namespace| known.leaving.is_some() && known.life == life;
        if !self.namespace(name).is_some_and(is_it) {
            return Vec::new();
        }
        let relations = self.relations.keys().filter(|relation| relation.namespace == name);
        let ended = relations.map(|relation| Entry::RelationEnded(relation.clone()));
        ended.chain([Entry::NamespaceRemoved(name.to_owned())]).collect()
    }

    /// Whether a name is in this life, and nobody has asked for its deletion.
    pub fn is_alive(&self, name: &str, life: u64) -> bool {
        self.namespace(name).is_some_and(|namespace| namespace.life == life && namespace.leaving.is_none())
    }
}

/// What somebody is told who names a namespace that is not there.
pub fn no_such_namespace() -> Rejection {
    let detail = "The deployment has no namespace with this name. `GET /api/namespaces` lists them.";
    Rejection::new(Code::NamespaceNotFound, detail)
}

impl Desk {
    /// Deletes this life of the namespace. Gives how far that is; nothing, if nothing is left of that life.
    pub fn delete<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        life: u64,
        pool: &str,
        cells: &[u32],
    ) -> Result<Option<Deletion>, Fault<R::Error>> {
        let now = self.now(clock);
        let catalog = self.catalog(rows)?;
        if !catalog.is_there() || catalog.life > life {
            return Ok(None);
        }
        if catalog.deletion.is_none() {
            let (pool, cells) = (pool.to_owned(), cells.to_vec());
            let deletion = Deletion { life, since: now, pool, cells, next: 0, behind: OrdSet::new() };
            self.drive(rows, now, "", Input::Delete(deletion))?;
        }
        self.empty_next(rows, now)?;
        Ok(self.catalog(rows)?.deletion.clone())
    }

    /// Hears what was emptied, and goes on.
    pub fn emptied<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        emptied: Emptied,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let has_done = !emptied.cells.is_empty() || !emptied.stations.is_empty();
        self.emptying.until = None;
        self.emptying.failures = if has_done { 0 } else { self.emptying.failures.saturating_add(1) };
        let pause_ms = match self.emptying.failures.checked_sub(1) {
            Some(times) => (PAUSE_MS << times.min(16)).min(PAUSE_MS_MAX),
            None => 0,
        };
        self.emptying.not_before = now.plus_millis(pause_ms);
        let heard = self.drive(rows, clock, "", Input::Emptied(emptied));
        // What was not stored is emptied again, which does no harm.
        self.empty_next(rows, now).and(heard)
    }

    /// Whether this life of the namespace is being deleted, and nothing but the catalog itself is left of it.
    pub fn is_last<R: Rows>(&mut self, rows: &R, life: u64) -> Result<bool, Fault<R::Error>> {
        let catalog = self.catalog(rows)?;
        let is_over = catalog
            .deletion
            .as_ref()
            .is_some_and(|deletion| deletion.life == life && deletion.cells_left() == 0);
        Ok(is_over && self.stations(rows, None, 1)?.is_empty())
    }

    /// Lets the host empty the next cells and stations, unless it is at work; and this object itself at the end.
    pub(super) fn empty_next<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(deletion) = self.catalog(rows)?.deletion.clone() else { return Ok(()) };
        let at_work = self.emptying.until.unwrap_or_default().max(self.emptying.not_before);
        if now < at_work {
            self.object().arm_by(now, at_work);
            return Ok(());
        }
        if self.emptying.batches >= BATCHES_MAX {
            self.object().arm_by(now, now);
            return Ok(());
        }
        let until = now.plus_millis(EMPTIED_MS_MAX);
        // Before anything else: should the rows not be readable, somebody looks again.
        self.object().arm_by(now, until);
        let cells = deletion.batch(self.emptying.cell);
        let behind = self.emptying.station.take();
        let mut stations = self.stations(rows, behind.as_ref(), EMPTIED_AT_ONCE)?;
        if stations.is_empty() && behind.is_some() {
            stations = self.stations(rows, None, EMPTIED_AT_ONCE)?;
        }
        self.emptying.cell = cells.last().map(|(cell, _)| *cell);
        self.emptying.station = stations.last().cloned();
        let life = deletion.life;
        if cells.is_empty() && stations.is_empty() {
            self.object().order(Order::Clear { life });
        } else {
            self.emptying.until = Some(until);
            self.emptying.batches += 1;
            self.object().order(Order::Empty(Batch { life, cells, stations }));
        }
        Ok(())
    }

    /// Asks the catalogs of names that are on their way out how far they are. Says whether there are any.
    pub(super) fn ask_leaving(&mut self, now: Timestamp) -> bool {
        let Some(catalog) = &self.catalog else { return false };
        let mut names: Vec<_> = catalog.leaving().map(|one| (one.name.clone(), one.life)).collect();
        if names.is_empty() {
            self.asking = Asking::default();
            return false;
        }
        let next = self.asking.at.map_or(now, |at| at.plus_millis(DELETE_AGAIN_MS));
        if now < next {
            self.object().arm_by(now, next);
            return true;
        }
        // In turn, however many there are.
        let first = names.partition_point(|(name, _)| Some(name) <= self.asking.last.as_ref());
        names.rotate_left(first);
        names.truncate(DELETING_AT_ONCE);
        self.asking = Asking { at: Some(now), last: names.last().map(|(name, _)| name.clone()) };
        self.object().order(Order::Delete(names));
        self.object().arm_by(now, now.plus_millis(DELETE_AGAIN_MS));
        true
    }

    /// One more name is on its way out: its catalog is asked at once.
    pub(super) fn ask_anew(&mut self) {
        self.asking.at = None;
    }
}
