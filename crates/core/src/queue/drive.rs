//! The one loop of a partition: what it knows, how it commits, what is due. Synchronous, like a cell's.

use stepwell_protocol::{
    Timestamp,
    queue::{JobId, PRIORITY_MAX, QueueSettings},
};

use super::{
    Change, Counts, Found, Head, Hold, Key, LeaseRow, ROUND_MS, Row, Rows, SLICE, Unwell,
    push::{Pushed, Pushing},
    send::Marks,
    settings::stale,
    tell::{Telling, Tells},
};
use crate::{
    object::{Fault, Hosted, LOOK_AGAIN_MS, Machine, Object},
    ordered::{OrdMap, OrdSet},
};

/// How many rows of claims are kept that hold nothing: a fresh instance reads them.
const FREE_ROWS_MAX: u32 = 100;

/// How many rows claims can have at once: each holds a job, and some are written for the last time.
const ROWS_MAX: u32 = 20_000;

/// How often the first partition goes on with the deletion of its queue.
const DELETE_AGAIN_MS: u64 = 5_000;

/// How often a dedupe id is looked at whose time is over and whose job is still there: each look writes its row.
const KEY_AGAIN_MS: u64 = 6 * 3_600_000;

/// What the row of such an id says: from here on it holds only for as long as its job is there.
pub(super) const PUT_OFF: &str = "";

/// How many priorities there are.
pub(super) const PRIORITIES: usize = PRIORITY_MAX as usize + 1;

/// What the host has to do for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Let so many claims that wait look again.
    Wake(usize),
    /// Take a job to its consumer, and say what became of it.
    Push(Box<Pushed>),
    /// Tell another queue of dead letters, and say how far it was told.
    Tell(Box<Telling>),
    /// Go on with the deletion of the queue.
    Delete,
}

/// A partition of a queue, put together with its storage's rows.
#[derive(Clone, Debug)]
pub struct Queue {
    pub(super) object: Object<Order>,
    pub(super) partition: u32,
    /// Nothing until the rows were read, and again when they could not be written.
    pub(super) known: Option<Known>,
}

/// What was read of the rows. All but the head, the leases and their rows may be forgotten at any time.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub head: Head,
    /// The jobs that each claim holds.
    pub leases: OrdMap<String, OrdMap<u64, Hold>>,
    /// Whether the head has changed, and is not stored: it has to be, with the next commit.
    pub is_head_due: bool,
    /// The row of each claim. It keeps its row until that says that it holds nothing.
    lease_rows: OrdMap<String, u32>,
    /// The rows below `rows` that no claim has.
    free_rows: OrdSet<u32>,
    rows: u32,
    /// The claim that holds a job.
    pub by_job: OrdMap<u64, String>,
    /// When leases are over.
    pub ends: OrdSet<(Timestamp, u64)>,
    /// Up to here, each plain job is held.
    pub cursor: u64,
    /// Before when nothing that is in line can be claimed, by priority; nothing if none is in line.
    pub lines: [Option<Timestamp>; PRIORITIES],
    /// When keys have to be looked at.
    pub keys_at: Option<Timestamp>,
    /// When jobs may be too old.
    pub ages_at: Option<Timestamp>,
    /// How far a purge has come: in plain jobs, and in the others.
    pub purged: (u64, u64),
    /// How far a redrive has come.
    pub redriven: (Timestamp, u64),
    /// When this instance has last gone on with the deletion of the queue.
    pub delete_tried_at: Option<Timestamp>,
    /// What it takes to its consumer itself.
    pub pushing: Pushing,
    /// When another queue is told of dead letters.
    pub tells: Tells,
    /// The addresses that are not well.
    pub addresses: OrdMap<String, Unwell>,
    /// The first numbers of the latest requests; nothing until the rows were asked for them.
    pub marks: Option<Marks>,
}

impl Hosted for Queue {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }

    fn begin(&mut self) {
        if let Some(known) = &mut self.known {
            known.pushing.calls = 0;
        }
    }
}

impl<R: Rows> Machine<R> for Queue {
    type Error = R::Error;

    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        if self.read(rows, now)? {
            let done = self.do_due(rows, now);
            self.settle(done)?;
            let is_due = |known: &&mut Known| known.deletes_at(now).is_some_and(|at| at <= now);
            if let Some(known) = self.known.as_mut().filter(is_due) {
                known.delete_tried_at = Some(now);
                self.object.order(Order::Delete);
            }
        }
        Ok(self.next(now))
    }

    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.read(rows, now)?;
        Ok(self.next(now))
    }
}

impl Queue {
    /// The partition with this number.
    pub fn new(partition: u32) -> Self {
        Self { object: Object::new(), partition, known: None }
    }

    /// Begins a request that goes by these settings: takes them up if they are news, and ends leases that are over.
    pub(super) fn hear<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
    ) -> Result<(Timestamp, &mut Known), Fault<R::Error>> {
        let now = self.now(clock);
        if !self.read(rows, now)? {
            return Err(stale().into());
        }
        self.take_up(rows, now, settings)?;
        self.reap(rows, now)?;
        Ok((now, self.known.as_mut().ok_or_else(stale)?))
    }

    fn do_due<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        self.reap(rows, now)?;
        self.purge_slice(rows, now)?;
        self.redrive_slice(rows, now)?;
        self.age(rows, now)?;
        self.forget_keys(rows, now)?;
        self.push(rows, now);
        self.tell(rows, now);
        Ok(())
    }

    /// Reads the rows, if that was not done yet. Says whether there is such a partition.
    pub(super) fn read<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<bool, Fault<R::Error>> {
        if self.known.is_some() {
            return Ok(true);
        }
        let Some(head) = rows.head().map_err(Fault::Storage)? else { return Ok(false) };
        let mut known = Known::new(head);
        let latest = rows.latest().map_err(Fault::Storage)?;
        let leases = rows.leases().map_err(Fault::Storage)?;
        let stored = leases.iter().map(|row| row.counts).chain(latest.and_then(|(_, counts)| counts));
        known.head.counts = stored.fold(known.head.counts, Counts::max);
        // Should counts have been lost, no number is used twice.
        known.head.counts.last = known.head.counts.last.max(latest.map_or(0, |(number, _)| number));
        for LeaseRow { id, nonce, holds, .. } in leases {
            known.rows = known.rows.max(id.saturating_add(1));
            if !holds.is_empty() {
                known.lease_rows.insert(nonce.clone(), id);
            }
            for hold in holds {
                known.hold(&nonce, hold);
            }
        }
        // No more claims than that hold jobs: a number beyond is no reason to count up to it.
        known.rows = known.rows.min(ROWS_MAX);
        let taken: OrdSet<_> = known.lease_rows.values().copied().collect();
        known.free_rows.extend((0..known.rows).filter(|id| !taken.contains(id)));
        known.keys_at = rows.keys(1).map_err(Fault::Storage)?.first().map(|(_, key)| round(key.until));
        known.ages_at = known.next_age(rows)?.map(|at| at.max(round(now)));
        if known.head.settings.addressed {
            known.addresses = rows.addresses().map_err(Fault::Storage)?.into_iter().collect();
            let numbers: Vec<_> = known.by_job.keys().copied().collect();
            for number in numbers {
                if let Some(Found::Row(row)) = rows.job(number).map_err(Fault::Storage)? {
                    known.pushing.goes_to(number, row.to);
                }
            }
        }
        known.found_pushes();
        known.pushing.at = known.head.settings.push.is_some().then_some(now);
        let has_told = known.head.settings.dead_to.is_some() && known.head.counts.dead > 0;
        known.tells.at = has_told.then_some(now);
        self.known = Some(known);
        Ok(true)
    }

    /// Stores what has changed. If that fails, the rows are read again: they are the truth.
    pub(super) fn commit<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        changes: &[Change],
    ) -> Result<(), Fault<R::Error>> {
        if !changes.is_empty()
            && let Err(error) = rows.write(changes)
        {
            self.known = None;
            self.object.arm_by(now, now.plus_millis(LOOK_AGAIN_MS));
            return Err(Fault::Storage(error));
        }
        if let Some(at) = self.next(now) {
            self.object.arm_by(now, at);
        }
        Ok(())
    }

    /// After a storage that failed, nothing that is remembered holds: the rows are read again.
    pub(super) fn settle<T, E>(&mut self, result: Result<T, Fault<E>>) -> Result<T, Fault<E>> {
        if let Err(Fault::Storage(_)) = result {
            self.known = None;
        }
        result
    }

    /// There may be something for the partition's own consumer, and so much for claims that wait.
    pub(super) fn wake<R: Rows>(&mut self, rows: &R, now: Timestamp, jobs: usize) {
        self.push(rows, now);
        if jobs > 0 {
            self.object.order(Order::Wake(jobs));
        }
    }

    /// When something is due.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let known = self.known.as_ref()?;
        let lease = known.ends.first().map(|(at, _)| *at);
        let purge = known.head.purging.is_some().then_some(now);
        let redrive = known.head.redriving.as_ref().map(|redriving| redriving.next(now));
        let delete = known.deletes_at(now);
        let awake = known.pushing.awake_by(now);
        let tell = known.tells.at;
        let times =
            [lease, purge, redrive, delete, tell, known.keys_at, known.ages_at, known.pushing.at, awake];
        times.into_iter().flatten().min()
    }

    /// Forgets keys that are over, but for those whose jobs are still there.
    fn forget_keys<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = self.known.as_mut().filter(|known| known.keys_at.is_some_and(|at| at <= now))
        else {
            return Ok(());
        };
        let keys = rows.keys(SLICE).map_err(Fault::Storage)?;
        let is_slice = keys.len() == SLICE;
        let mut changes = Vec::new();
        let mut next = None;
        for (key, value) in keys {
            if value.until > now {
                next = Some(round(value.until));
                break;
            }
            let is_there = value.job > 0 && rows.job(value.job).map_err(Fault::Storage)?.is_some();
            changes.push(if is_there {
                let until = now.plus_millis(known.head.settings.dedupe_ms.max(KEY_AGAIN_MS));
                Change::PutKey { key, value: Key { until, told: Some(PUT_OFF.to_owned()), ..value } }
            } else {
                Change::RemoveKey(key)
            });
        }
        // What was put off is found when all before it is done.
        let again = (!changes.is_empty()).then(|| if is_slice { now } else { now.plus_millis(ROUND_MS) });
        known.keys_at = next.or(again);
        self.commit(rows, now, &changes)
    }
}

impl Known {
    pub fn new(head: Head) -> Self {
        Self {
            head,
            leases: OrdMap::new(),
            is_head_due: false,
            lease_rows: OrdMap::new(),
            free_rows: OrdSet::new(),
            rows: 0,
            by_job: OrdMap::new(),
            ends: OrdSet::new(),
            cursor: 0,
            lines: [Some(Timestamp::default()); PRIORITIES],
            keys_at: None,
            ages_at: None,
            purged: (0, 0),
            redriven: (Timestamp::default(), 0),
            delete_tried_at: None,
            pushing: Pushing::default(),
            tells: Tells::default(),
            addresses: OrdMap::new(),
            marks: None,
        }
    }

    /// When it goes on with the deletion of the queue.
    fn deletes_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.head.deleting?;
        Some(self.delete_tried_at.map_or(now, |at| at.plus_millis(DELETE_AGAIN_MS)))
    }

    /// The id of a job.
    pub fn id(&self, partition: u32, number: u64) -> JobId {
        JobId { made: self.head.settings.made_at, partition, number }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.head.counts.last += 1;
        self.head.counts.last
    }

    /// A claim holds a job.
    pub fn hold(&mut self, nonce: &str, hold: Hold) {
        self.leases.get_or_default(nonce.to_owned()).insert(hold.job, hold);
        self.by_job.insert(hold.job, nonce.to_owned());
        self.ends.insert((hold.until, hold.job));
        self.pushing.count(nonce, hold.job, true);
    }

    /// Nobody holds a job any more. Gives the claim that did.
    pub fn let_go(&mut self, job: u64) -> Option<(String, Hold)> {
        let nonce = self.by_job.remove(&job)?;
        let holds = self.leases.get_mut(&nonce)?;
        let hold = holds.remove(&job)?;
        if holds.is_empty() {
            self.leases.remove(&nonce);
        }
        self.ends.remove(&(hold.until, job));
        self.pushing.count(&nonce, job, false);
        Some((nonce, hold))
    }

    /// Stores what a claim holds, with the counts. A row that says that nothing is held is there for the next claim.
    pub fn store_lease(&mut self, nonce: &str) -> Change {
        let row = self.lease_rows.remove(nonce).or_else(|| self.free_rows.pop_first());
        let id = row.unwrap_or_else(|| {
            self.rows += 1;
            self.rows - 1
        });
        let holds = self.leases.get(nonce).map(|holds| holds.values().copied().collect());
        let holds: Vec<_> = holds.unwrap_or_default();
        if holds.is_empty() {
            self.free_rows.insert(id);
            if id >= FREE_ROWS_MAX {
                // Its counts go with the head.
                self.is_head_due = true;
                return Change::RemoveLease(id);
            }
        } else {
            self.lease_rows.insert(nonce.to_owned(), id);
        }
        Change::Lease(LeaseRow { id, nonce: nonce.to_owned(), holds, counts: self.store_counts() })
    }

    /// The counts, to be stored: nothing is counted in the same commit after that.
    pub fn store_counts(&mut self) -> Counts {
        self.head.counts.version += 1;
        self.head.counts
    }

    /// The head with the counts, to be stored.
    pub fn store_head(&mut self) -> Change {
        self.store_counts();
        self.is_head_due = false;
        Change::Head(Box::new(self.head.clone()))
    }

    /// The same, if it has to be.
    pub fn store_due_head(&mut self) -> Option<Change> {
        self.is_head_due.then(|| self.store_head())
    }

    /// The consumer is well, which the next instance has to know if this one has stored something else.
    pub fn recovers(&mut self) {
        self.is_head_due |= self.head.failures > 0;
        self.head.failures = 0;
    }

    /// A job is in line: its priority has to be looked at by then.
    pub fn lines_up(&mut self, row: &Row) {
        if row.is_in_line
            && let Some(first) = self.lines.get_mut(usize::from(row.priority))
        {
            *first = Some(first.map_or(row.due, |first| first.min(row.due)));
        }
    }

    /// What is queued from now on is too old by then.
    pub fn will_age(&mut self, at: Timestamp) {
        self.ages_at = Some(self.ages_at.map_or(at, |known| known.min(at)));
    }
}

/// What is over by then is looked at together with what is over a little later.
pub(super) fn round(at: Timestamp) -> Timestamp {
    Timestamp::from_millis((at.as_millis() / ROUND_MS + 1) * ROUND_MS)
}
