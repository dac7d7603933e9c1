//! The tables of a partition, and what an instance of it sees of them.

use std::{collections::BTreeMap, ops::Deref, rc::Rc};

use stepwell_core::queue::{
    Change, Content, Counts, Found, Head, Hold, Key, LeaseRow, Mark, Plain, Queue, Row, Rows, Unwell,
};
use stepwell_protocol::{Timestamp, queue::QueueState};

use super::Planted;
use crate::host::{Disk, Refused, Simulated, View};

/// Partitions of queues.
#[derive(Clone, Copy, Debug)]
pub struct Queues;

impl Simulated for Queues {
    type Machine = Queue;
    type Rows = Entries;
    type Disk = Tables;
    type Own = ();
}

/// The tables of one partition.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub head: Option<Head>,
    pub plain: BTreeMap<u64, Plain>,
    pub rows: BTreeMap<u64, Row>,
    pub contents: BTreeMap<u64, Content>,
    pub marks: BTreeMap<u64, Mark>,
    pub counts: BTreeMap<u64, Counts>,
    pub leases: BTreeMap<u32, LeaseRow>,
    pub keys: BTreeMap<String, Key>,
}

impl Disk for Tables {
    type Write = Vec<Change>;

    fn apply(&mut self, write: &Vec<Change>) -> Result<(), String> {
        write.iter().try_for_each(|change| self.take(change))
    }
}

impl Tables {
    fn take(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Head(head) => self.head = Some((**head).clone()),
            Change::AddPlain { number, sent_at, mark, content, counts } => {
                self.add(*number, mark, content)?;
                self.counts.extend(counts.map(|counts| (*number, counts)));
                let plain = Plain { number: *number, sent_at: *sent_at, size: content.size() };
                self.plain.insert(*number, plain);
            }
            Change::Add { number, mark, row, content } => {
                self.add(*number, mark, content)?;
                self.rows.insert(*number, (**row).clone());
            }
            Change::Demote { number, row } => {
                self.plain.remove(number).ok_or_else(|| format!("{number} was not plain"))?;
                self.counts.remove(number);
                self.rows.insert(*number, (**row).clone());
            }
            Change::Update { number, row } => {
                self.rows.insert(*number, (**row).clone());
            }
            Change::Edit { number, content } => {
                self.contents.insert(*number, content.clone());
            }
            Change::Remove { number, is_plain } => {
                let was_plain = self.plain.remove(number).is_some();
                let had_row = self.rows.remove(number).is_some();
                if was_plain != *is_plain || had_row == *is_plain {
                    return Err(format!("{number} is removed from where it is not"));
                }
                self.contents.remove(number);
                self.marks.remove(number);
                self.counts.remove(number);
            }
            Change::Lease(row) => drop(self.leases.insert(row.id, row.clone())),
            Change::RemoveLease(id) => drop(self.leases.remove(id)),
            Change::PutKey { key, value } => drop(self.keys.insert(key.clone(), value.clone())),
            Change::RemoveKey(key) => drop(self.keys.remove(key)),
            // Callbacks are tested in core.
            Change::Address { address, .. } => return Err(format!("no job here has the address {address}")),
        }
        Ok(())
    }

    fn add(&mut self, number: u64, mark: &Mark, content: &Content) -> Result<(), String> {
        self.marks.insert(number, mark.clone());
        match self.contents.insert(number, content.clone()) {
            None => Ok(()),
            Some(_) => Err(format!("{number} is two jobs")),
        }
    }

    /// All jobs, in order. One that is plain has the state that it would get.
    pub fn jobs(&self) -> BTreeMap<u64, Row> {
        let plain = self.plain.iter().map(|(number, plain)| (*number, Row::of_plain(*plain)));
        plain.chain(self.rows.iter().map(|(number, row)| (*number, row.clone()))).collect()
    }

    /// Who holds jobs.
    pub fn holds(&self) -> impl Iterator<Item = (&str, &Hold)> {
        self.leases.values().flat_map(|row| row.holds.iter().map(move |hold| (row.nonce.as_str(), hold)))
    }

    /// The latest plain job's number, and the counts that it came with.
    fn latest(&self) -> Option<(u64, Option<Counts>)> {
        let (number, _) = self.plain.last_key_value()?;
        Some((*number, self.counts.get(number).copied()))
    }

    /// The counts that hold.
    pub fn counts_that_hold(&self) -> Counts {
        let latest = self.latest().and_then(|(_, counts)| counts);
        let stored = self.head.iter().map(|head| head.counts).chain(latest);
        stored.chain(self.leases.values().map(|row| row.counts)).max().unwrap_or_default()
    }

    /// What a job's body says.
    pub fn text(&self, number: u64) -> &str {
        self.contents.get(&number).map_or("", |content| content.data.as_str())
    }

    fn select<K: Ord>(
        &self,
        is_meant: impl Fn(&Row) -> bool,
        order: impl Fn(u64, &Row) -> K,
        limit: usize,
    ) -> Vec<(u64, Row)> {
        let found = self.rows.iter().filter(|(_, row)| is_meant(row));
        let mut found: Vec<_> = found.map(|(number, row)| (*number, row.clone())).collect();
        found.sort_by_key(|(number, row)| order(*number, row));
        found.truncate(limit);
        found
    }
}

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Entries {
    view: View<Tables>,
    planted: Option<Planted>,
}

impl Entries {
    /// On what is on disk.
    pub fn new(disk: Rc<Tables>, planted: Option<Planted>) -> Self {
        Self { view: View::new(disk), planted }
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// What a planted bug makes of a row that is stored; nothing if it is lost.
    fn stored(&self, row: &Row) -> Option<Box<Row>> {
        let mut row = row.clone();
        match self.planted {
            Some(Planted::AnyoneOfGroupInLine) if row.group.is_some() && row.death.is_none() => {
                row.is_in_line = true;
            }
            Some(Planted::AttemptsNotCounted) => row.attempts = 0,
            Some(Planted::DelayIgnored) => row.due = row.sent_at,
            Some(Planted::PriorityIgnored) => row.priority = 0,
            Some(Planted::DeadLetterLost) if row.death.is_some() => return None,
            Some(_) | None => {}
        }
        Some(Box::new(row))
    }

    /// What a planted bug makes of counts that are stored.
    fn counts(&self, counts: Counts) -> Counts {
        if !self.is(Planted::CountsNotStored) {
            return counts;
        }
        let Counts { alive, dead, .. } = self.view.all().counts_that_hold();
        Counts { alive, dead, ..counts }
    }

    /// What a planted bug makes of something that is written.
    fn written(&self, change: &Change) -> Option<Change> {
        let removed = |number: u64, is_plain: bool| Some(Change::Remove { number, is_plain });
        Some(match change {
            Change::Head(head) => {
                Change::Head(Box::new(Head { counts: self.counts(head.counts), ..(**head).clone() }))
            }
            Change::AddPlain { number, sent_at, mark, content, counts } => Change::AddPlain {
                number: *number,
                sent_at: *sent_at,
                mark: mark.clone(),
                content: content.clone(),
                counts: counts.map(|counts| self.counts(counts)),
            },
            Change::Add { number, mark, row, content } => {
                let (mark, content) = (mark.clone(), content.clone());
                Change::Add { number: *number, mark, row: self.stored(row)?, content }
            }
            Change::Demote { number, .. } if self.is(Planted::GiveBackForgotten) => {
                return removed(*number, true);
            }
            Change::Demote { number, row } => match self.stored(row) {
                Some(row) => Change::Demote { number: *number, row },
                None => return removed(*number, true),
            },
            Change::Update { number, row } => match self.stored(row) {
                Some(row) => Change::Update { number: *number, row },
                None => return removed(*number, false),
            },
            Change::Remove { .. } if self.is(Planted::AckNotStored) => return None,
            Change::Lease(row) => {
                let tables = self.view.all();
                let before = tables.leases.get(&row.id).filter(|before| before.nonce == row.nonce);
                let before = before.map(|before| before.holds.clone()).unwrap_or_default();
                let mut holds = row.holds.clone();
                let is_shrunk = before.len() > holds.len();
                if self.is(Planted::LeaseNotStored) || (self.is(Planted::LeaseNotShrunk) && is_shrunk) {
                    holds.clone_from(&before);
                }
                if self.is(Planted::ExtensionLost) {
                    for hold in &mut holds {
                        let same = before.iter().find(|same| same.job == hold.job);
                        hold.until = same.map_or(hold.until, |same| same.until);
                    }
                }
                Change::Lease(LeaseRow { holds, counts: self.counts(row.counts), ..row.clone() })
            }
            Change::PutKey { value, .. } if value.job == 0 && self.is(Planted::RequestForgotten) => {
                return None;
            }
            Change::PutKey { value, .. } if value.job > 0 && self.is(Planted::DedupeForgotten) => {
                return None;
            }
            Change::Edit { .. }
            | Change::RemoveLease(_)
            | Change::Remove { .. }
            | Change::PutKey { .. }
            | Change::Address { .. }
            | Change::RemoveKey(_) => change.clone(),
        })
    }
}

impl Deref for Entries {
    type Target = View<Tables>;

    fn deref(&self) -> &View<Tables> {
        &self.view
    }
}

impl Rows for Entries {
    type Error = Refused;

    fn head(&self) -> Result<Option<Head>, Refused> {
        let mut head = self.view.read()?.head.clone();
        if let Some(head) = &mut head {
            match self.planted {
                Some(Planted::PurgeTooFar) => {
                    let last = self.view.all().counts_that_hold().last;
                    head.purging.iter_mut().for_each(|purging| purging.queued = last);
                }
                Some(Planted::PauseForgotten) if head.settings.state == QueueState::Paused => {
                    head.settings.state = QueueState::Active;
                }
                Some(Planted::RedriveForgotten) => head.redriving = None,
                Some(Planted::DeathsTakenForTold) => {
                    head.told = (Timestamp::from_millis(head.told.0.as_millis() + 60_000), 0);
                }
                Some(_) | None => {}
            }
        }
        Ok(head)
    }

    fn bytes(&self) -> Result<u64, Refused> {
        Ok(0)
    }

    fn latest(&self) -> Result<Option<(u64, Option<Counts>)>, Refused> {
        let latest = self.view.read()?.latest();
        Ok(latest.map(|(number, counts)| (number, counts.filter(|_| !self.is(Planted::CountsNotRead)))))
    }

    fn leases(&self) -> Result<Vec<LeaseRow>, Refused> {
        let tables = self.view.read()?;
        let seen = tables.leases.values().cloned().map(|row| match self.planted {
            Some(Planted::LeaseRowsMistaken) => LeaseRow { id: row.id + 1, ..row },
            Some(Planted::LeasesNotRead) => LeaseRow { holds: Vec::new(), ..row },
            Some(Planted::CountsNotRead) => LeaseRow { counts: Counts::default(), ..row },
            // Whoever reads them takes them for a consumer's.
            Some(Planted::PushesNotCounted) => LeaseRow { nonce: row.nonce.replace(' ', "_"), ..row },
            Some(_) | None => row,
        });
        Ok(seen.collect())
    }

    fn plain(&self, after: u64, limit: usize) -> Result<Vec<Plain>, Refused> {
        Ok(self.view.read()?.plain.range(after + 1..).map(|(_, plain)| *plain).take(limit).collect())
    }

    fn line(&self, priority: u8, by: Option<Timestamp>, limit: usize) -> Result<Vec<(u64, Row)>, Refused> {
        let is_due = |row: &Row| by.is_none_or(|by| row.due <= by);
        let is_meant = |row: &Row| row.is_in_line && row.priority == priority && is_due(row);
        Ok(self.view.read()?.select(is_meant, |_, row| (row.due, row.place), limit))
    }

    fn delayed(&self, now: Timestamp, limit: usize) -> Result<u64, Refused> {
        let is_meant = |row: &Row| row.is_in_line && row.due > now;
        Ok(self.view.read()?.select(is_meant, |number, _| number, limit).len() as u64)
    }

    fn jobs(&self, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, Refused> {
        let tables = self.view.read()?;
        let found = tables.rows.range(after + 1..).take(limit);
        let seen = found.map(|(number, row)| {
            let since = if self.is(Planted::PurgeTakesAll) { 0 } else { row.since };
            (*number, Row { since, ..row.clone() })
        });
        Ok(seen.collect())
    }

    fn dead(&self, after: (Timestamp, u64), limit: usize) -> Result<Vec<(u64, Row)>, Refused> {
        let at = |row: &Row| row.death.as_ref().map(|death| death.at);
        let found =
            self.view.read()?.select(|row| row.death.is_some(), |number, row| (at(row), number), usize::MAX);
        let found = found.into_iter().filter(|(number, row)| at(row).is_some_and(|at| (at, *number) > after));
        Ok(found.take(limit).collect())
    }

    fn group(&self, group: &str, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, Refused> {
        let is_meant =
            |row: &Row| row.group.as_deref() == Some(group) && row.death.is_none() && row.place > after;
        let is_backwards = self.is(Planted::GroupBackwards);
        let order = |_, row: &Row| if is_backwards { u64::MAX - row.place } else { row.place };
        Ok(self.view.read()?.select(is_meant, order, limit))
    }

    fn back(&self, _: &str, _: usize) -> Result<Vec<(u64, Row)>, Refused> {
        self.view.read().map(|_| Vec::new())
    }

    fn addresses(&self) -> Result<Vec<(String, Unwell)>, Refused> {
        self.view.read().map(|_| Vec::new())
    }

    fn job(&self, number: u64) -> Result<Option<Found>, Refused> {
        let tables = self.view.read()?;
        let plain = tables.plain.get(&number).copied().map(Found::Plain);
        Ok(plain.or_else(|| tables.rows.get(&number).cloned().map(Found::Row)))
    }

    fn marks(&self, after: u64) -> Result<Vec<(String, u64)>, Refused> {
        if self.is(Planted::MarksNotRead) {
            return Ok(Vec::new());
        }
        let tables = self.view.read()?;
        Ok(tables.marks.range(after + 1..).map(|(_, mark)| (mark.request.clone(), mark.first)).collect())
    }

    fn content(&self, number: u64) -> Result<Option<Content>, Refused> {
        Ok(self.view.read()?.contents.get(&number).cloned())
    }

    fn key(&self, key: &str) -> Result<Option<Key>, Refused> {
        Ok(self.view.read()?.keys.get(key).cloned())
    }

    fn keys(&self, limit: usize) -> Result<Vec<(String, Key)>, Refused> {
        let tables = self.view.read()?;
        let mut found: Vec<_> = tables.keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        found.sort_by_key(|(key, value)| (value.until, key.clone()));
        found.truncate(limit);
        Ok(found)
    }

    fn write(&self, changes: &[Change]) -> Result<(), Refused> {
        let written = changes.iter().filter_map(|change| self.written(change)).collect();
        self.view.write(written)
    }
}
