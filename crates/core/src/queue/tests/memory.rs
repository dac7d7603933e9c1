//! Rows in memory: they survive instances, may refuse, and may have a bug.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use stepwell_protocol::Timestamp;

use crate::queue::{Change, Content, Counts, Found, Head, Key, LeaseRow, Plain, Row, Rows, Unwell};

/// What is planted, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    AckNotStored,
    LeaseNotStored,
    LeasesNotRead,
    LeaseNotShrunk,
    AnyoneOfGroupInLine,
    GroupBackwards,
    DedupeForgotten,
    RequestForgotten,
    DeadLetterLost,
    AttemptsNotCounted,
    PurgeTooFar,
    PurgeTakesHeld,
    CountsNotStored,
    CountsNotRead,
    DelayIgnored,
    GiveBackForgotten,
    MarksNotRead,
}

impl Bug {
    pub const ALL: [Self; 17] = [
        Self::AckNotStored,
        Self::LeaseNotStored,
        Self::LeasesNotRead,
        Self::LeaseNotShrunk,
        Self::AnyoneOfGroupInLine,
        Self::GroupBackwards,
        Self::DedupeForgotten,
        Self::RequestForgotten,
        Self::DeadLetterLost,
        Self::AttemptsNotCounted,
        Self::PurgeTooFar,
        Self::PurgeTakesHeld,
        Self::CountsNotStored,
        Self::CountsNotRead,
        Self::DelayIgnored,
        Self::GiveBackForgotten,
        Self::MarksNotRead,
    ];
}

#[derive(Clone, Default)]
pub struct Memory {
    pub head: RefCell<Option<Head>>,
    pub plain: RefCell<BTreeMap<u64, Plain>>,
    pub rows: RefCell<BTreeMap<u64, Row>>,
    pub contents: RefCell<BTreeMap<u64, Content>>,
    pub marks: RefCell<BTreeMap<u64, (String, u64)>>,
    /// The counts that plain jobs came with.
    pub counts: RefCell<BTreeMap<u64, Counts>>,
    pub leases: RefCell<BTreeMap<u32, LeaseRow>>,
    pub keys: RefCell<BTreeMap<String, Key>>,
    pub addresses: RefCell<BTreeMap<String, Unwell>>,
    /// How many rows were written and read.
    pub written: Cell<usize>,
    pub read: Cell<usize>,
    /// Writes fail.
    pub refuses: Cell<bool>,
    /// The next write happens, and its answer is lost.
    pub loses_answer: Cell<bool>,
    /// Whether no body can be read.
    pub has_bad_bodies: Cell<bool>,
    pub bug: Cell<Option<Bug>>,
}

impl Memory {
    fn has(&self, bug: Bug) -> bool {
        self.bug.get() == Some(bug)
    }

    fn seen<T>(&self, found: Vec<T>) -> Vec<T> {
        self.read.set(self.read.get() + found.len());
        found
    }

    /// The counts that hold.
    pub fn counts_that_hold(&self) -> Counts {
        let head = self.head.borrow().as_ref().map(|head| head.counts);
        let leases = self.leases.borrow();
        let latest = self.latest().ok().flatten().and_then(|(_, counts)| counts);
        let stored = leases.values().map(|row| row.counts).chain(head).chain(latest);
        stored.max().unwrap_or_default()
    }

    /// What a planted bug makes of counts.
    fn written(&self, counts: Counts) -> Counts {
        if !self.has(Bug::CountsNotStored) {
            return counts;
        }
        let Counts { alive, dead, .. } = self.counts_that_hold();
        Counts { alive, dead, ..counts }
    }

    /// The jobs that claims hold, by their nonces.
    pub fn held(&self) -> BTreeMap<String, usize> {
        let leases = self.leases.borrow();
        let held = leases.values().filter(|row| !row.holds.is_empty());
        held.map(|row| (row.nonce.clone(), row.holds.len())).collect()
    }

    fn select(
        &self,
        is_meant: impl Fn(&Row) -> bool,
        order: impl Fn(u64, &Row) -> (u64, u64),
        limit: usize,
    ) -> Vec<(u64, Row)> {
        let rows = self.rows.borrow();
        let mut found: Vec<_> = rows
            .iter()
            .filter(|(_, row)| is_meant(row))
            .map(|(number, row)| (*number, row.clone()))
            .collect();
        found.sort_by_key(|(number, row)| order(*number, row));
        found.truncate(limit);
        self.seen(found)
    }

    fn put(&self, number: u64, row: &Row) {
        let mut row = row.clone();
        if self.has(Bug::AnyoneOfGroupInLine) && row.group.is_some() && row.death.is_none() {
            row.is_in_line = true;
        }
        if self.has(Bug::AttemptsNotCounted) {
            row.attempts = 0;
        }
        if self.has(Bug::DelayIgnored) {
            row.due = row.sent_at;
        }
        if self.has(Bug::DeadLetterLost) && row.death.is_some() {
            self.rows.borrow_mut().remove(&number);
            return;
        }
        self.rows.borrow_mut().insert(number, row);
    }

    fn apply(&self, change: &Change) {
        match change {
            Change::Head(head) => {
                let mut head = (**head).clone();
                head.counts = self.written(head.counts);
                *self.head.borrow_mut() = Some(head);
            }
            Change::AddPlain { number, sent_at, mark, content, counts } => {
                if let Some(counts) = counts {
                    let counts = self.written(*counts);
                    self.counts.borrow_mut().insert(*number, counts);
                }
                self.marks.borrow_mut().insert(*number, (mark.request.clone(), mark.first));
                let plain = Plain { number: *number, sent_at: *sent_at, size: content.size() };
                assert!(self.plain.borrow_mut().insert(*number, plain).is_none(), "a number is used twice");
                self.contents.borrow_mut().insert(*number, content.clone());
            }
            Change::Add { number, mark, row, content } => {
                self.marks.borrow_mut().insert(*number, (mark.request.clone(), mark.first));
                self.put(*number, row);
                self.contents.borrow_mut().insert(*number, content.clone());
            }
            Change::Demote { number, row } => {
                if !self.has(Bug::GiveBackForgotten) {
                    self.put(*number, row);
                }
                self.plain.borrow_mut().remove(number);
            }
            Change::Update { number, row } => self.put(*number, row),
            Change::Edit { number, content } => {
                self.contents.borrow_mut().insert(*number, content.clone());
            }
            Change::Remove { number, is_plain } => {
                if self.has(Bug::AckNotStored) {
                    return;
                }
                let was_there = if *is_plain {
                    self.plain.borrow_mut().remove(number).is_some()
                } else {
                    self.rows.borrow_mut().remove(number).is_some()
                };
                assert!(was_there || self.bug.get().is_some(), "{number} is removed from where it is not");
                self.contents.borrow_mut().remove(number);
                self.marks.borrow_mut().remove(number);
            }
            Change::Lease(row) => {
                let counts = self.written(row.counts);
                let mut leases = self.leases.borrow_mut();
                let had =
                    leases.get(&row.id).filter(|had| had.nonce == row.nonce).map(|had| had.holds.clone());
                let is_shrunk = had.as_ref().is_some_and(|had| had.len() > row.holds.len());
                let mut holds = row.holds.clone();
                if self.has(Bug::LeaseNotStored) || (self.has(Bug::LeaseNotShrunk) && is_shrunk) {
                    holds = had.unwrap_or_default();
                }
                leases.insert(row.id, LeaseRow { holds, counts, ..row.clone() });
            }
            Change::RemoveLease(id) => {
                self.leases.borrow_mut().remove(id);
            }
            Change::PutKey { key, value } => {
                let bug = if value.job == 0 { Bug::RequestForgotten } else { Bug::DedupeForgotten };
                if !self.has(bug) {
                    self.keys.borrow_mut().insert(key.clone(), value.clone());
                }
            }
            Change::Address { address, unwell } => {
                match unwell {
                    Some(unwell) => self.addresses.borrow_mut().insert(address.clone(), *unwell),
                    None => self.addresses.borrow_mut().remove(address),
                };
            }
            Change::RemoveKey(key) => {
                self.keys.borrow_mut().remove(key);
            }
        }
    }
}

impl Rows for Memory {
    type Error = ();

    fn head(&self) -> Result<Option<Head>, ()> {
        let mut head = self.head.borrow().clone();
        if let Some(Head { purging: Some(purging), .. }) = &mut head
            && self.has(Bug::PurgeTooFar)
        {
            purging.queued = self.counts_that_hold().last;
        }
        Ok(head)
    }

    fn bytes(&self) -> Result<u64, ()> {
        Ok(0)
    }

    fn latest(&self) -> Result<Option<(u64, Option<Counts>)>, ()> {
        let plain = self.plain.borrow();
        let Some(number) = plain.keys().next_back() else { return Ok(None) };
        let counts = self.counts.borrow().get(number).copied();
        Ok(Some((*number, counts.filter(|_| !self.has(Bug::CountsNotRead)))))
    }

    fn leases(&self) -> Result<Vec<LeaseRow>, ()> {
        let mut leases: Vec<_> = self.leases.borrow().values().cloned().collect();
        if self.has(Bug::LeasesNotRead) {
            for row in &mut leases {
                row.holds.clear();
            }
        }
        if self.has(Bug::CountsNotRead) {
            for row in &mut leases {
                row.counts = Counts::default();
            }
        }
        Ok(self.seen(leases))
    }

    fn plain(&self, after: u64, limit: usize) -> Result<Vec<Plain>, ()> {
        Ok(self.seen(self.plain.borrow().range(after + 1..).map(|(_, plain)| *plain).take(limit).collect()))
    }

    fn line(&self, priority: u8, by: Option<Timestamp>, limit: usize) -> Result<Vec<(u64, Row)>, ()> {
        let is_due = |row: &Row| by.is_none_or(|by| row.due <= by);
        let is_meant = |row: &Row| row.is_in_line && row.priority == priority && is_due(row);
        Ok(self.select(is_meant, |_, row| (row.due.as_millis(), row.place), limit))
    }

    fn delayed(&self, now: Timestamp, limit: usize) -> Result<u64, ()> {
        let is_meant = |row: &Row| row.is_in_line && row.due > now;
        Ok(self.select(is_meant, |number, _| (number, 0), limit).len() as u64)
    }

    fn jobs(&self, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, ()> {
        let rows = self.rows.borrow();
        let found = rows.range(after + 1..).take(limit).map(|(number, row)| {
            let since = if self.has(Bug::PurgeTakesHeld) { 0 } else { row.since };
            (*number, Row { since, ..row.clone() })
        });
        Ok(self.seen(found.collect()))
    }

    fn dead(&self, after: (Timestamp, u64), limit: usize) -> Result<Vec<(u64, Row)>, ()> {
        let at = |row: &Row| row.death.as_ref().map(|death| death.at);
        let rows = self.rows.borrow();
        let mut found: Vec<_> = rows
            .iter()
            .filter(|(number, row)| at(row).is_some_and(|at| (at, **number) > after))
            .map(|(number, row)| (*number, row.clone()))
            .collect();
        found.sort_by_key(|(number, row)| (at(row), *number));
        found.truncate(limit);
        Ok(self.seen(found))
    }

    fn group(&self, group: &str, after: u64, limit: usize) -> Result<Vec<(u64, Row)>, ()> {
        let is_meant =
            |row: &Row| row.group.as_deref() == Some(group) && row.death.is_none() && row.place > after;
        let is_backwards = self.has(Bug::GroupBackwards);
        let order = |_, row: &Row| (if is_backwards { u64::MAX - row.place } else { row.place }, 0);
        Ok(self.select(is_meant, order, limit))
    }

    fn back(&self, address: &str, limit: usize) -> Result<Vec<(u64, Row)>, ()> {
        let rows = self.rows.borrow();
        let is_back = |row: &&Row| row.is_back && row.death.is_none() && row.to.as_deref() == Some(address);
        let back = rows.iter().filter(|(_, row)| is_back(row));
        let mut back: Vec<_> = back.map(|(number, row)| (*number, row.clone())).collect();
        back.sort_by_key(|(_, row)| row.place);
        back.truncate(limit);
        Ok(back)
    }

    fn addresses(&self) -> Result<Vec<(String, Unwell)>, ()> {
        Ok(self.addresses.borrow().iter().map(|(address, unwell)| (address.clone(), *unwell)).collect())
    }

    fn job(&self, number: u64) -> Result<Option<Found>, ()> {
        self.read.set(self.read.get() + 1);
        let plain = self.plain.borrow().get(&number).copied().map(Found::Plain);
        Ok(plain.or_else(|| self.rows.borrow().get(&number).cloned().map(Found::Row)))
    }

    fn marks(&self, after: u64) -> Result<Vec<(String, u64)>, ()> {
        if self.has(Bug::MarksNotRead) {
            return Ok(Vec::new());
        }
        Ok(self.seen(self.marks.borrow().range(after + 1..).map(|(_, mark)| mark.clone()).collect()))
    }

    fn content(&self, number: u64) -> Result<Option<Content>, ()> {
        self.read.set(self.read.get() + 1);
        if self.has_bad_bodies.get() { Err(()) } else { Ok(self.contents.borrow().get(&number).cloned()) }
    }

    fn key(&self, key: &str) -> Result<Option<Key>, ()> {
        Ok(self.keys.borrow().get(key).cloned())
    }

    fn keys(&self, limit: usize) -> Result<Vec<(String, Key)>, ()> {
        let keys = self.keys.borrow();
        let mut found: Vec<_> = keys.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        found.sort_by_key(|(key, value)| (value.until, key.clone()));
        found.truncate(limit);
        Ok(self.seen(found))
    }

    fn write(&self, changes: &[Change]) -> Result<(), ()> {
        if self.refuses.get() {
            return Err(());
        }
        self.written.set(self.written.get() + changes.len());
        for change in changes {
            self.apply(change);
        }
        if self.loses_answer.take() { Err(()) } else { Ok(()) }
    }
}
