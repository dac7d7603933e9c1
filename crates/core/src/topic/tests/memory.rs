//! Rows in memory, as a database has them, with what storages and cells may do wrong.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use stepwell_protocol::{Timestamp, topic::MetWait};

use super::hooks::HookRows;
use crate::topic::{Bucket, EventRow, Head, Kept, NewRow, Parked, Rows, Trigger, WaitHead, WaitRow, Webhook};

#[derive(Debug, PartialEq)]
pub(super) struct Full;

/// What the storage or the cells do wrong, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// Events are accepted that are not stored.
    AckBeforeStored,
    /// Ids of events are forgotten.
    ForgetIds,
    /// The watermark is ahead of what is done.
    WatermarkAhead,
    /// Parked starts are forgotten.
    ForgetParked,
    /// Cells do not know runs by their keys.
    StartWithoutKey,
    /// Runs are at home in the latest generation, whichever that is.
    ForgetGeneration,
    /// Nobody looks at the events before a wait.
    ForgetLookBack,
    /// A cell takes an event for a wait that is over.
    TakeTwice,
}

/// Rows as a database has them.
#[derive(Default)]
pub(super) struct Memory {
    pub events: RefCell<BTreeMap<u64, EventRow>>,
    pub ids: RefCell<BTreeMap<String, u64>>,
    pub triggers: RefCell<BTreeMap<String, String>>,
    pub parked: RefCell<BTreeSet<Parked>>,
    pub hooks: HookRows,
    /// How many parked starts were read.
    pub parked_read: Cell<usize>,
    /// Events that cannot be read.
    pub unreadable: RefCell<BTreeSet<u64>>,
    pub waits: RefCell<BTreeMap<u64, WaitRow>>,
    /// The latest number of each wait, whether it is still there or not.
    wait_numbers: RefCell<BTreeMap<String, u64>>,
    pub met: RefCell<BTreeMap<u64, Vec<MetWait>>>,
    pub looked: Cell<u64>,
    /// Waits that cannot be read.
    pub unreadable_waits: RefCell<BTreeSet<u64>>,
    /// How many waits were read.
    pub waits_read: Cell<usize>,
    /// How many events were read backwards.
    pub events_read: Cell<usize>,
    pub last: Cell<u64>,
    /// The latest revision of what the code declares.
    pub heard: Cell<u64>,
    pub through: Cell<u64>,
    pub is_full: Cell<bool>,
    pub written: Cell<usize>,
    pub bug: Cell<Option<Bug>>,
    /// Whether the next events are not stored, and nobody is told.
    pub loses_events: Cell<bool>,
    /// The latest generation of the pool.
    pub generation: Cell<u32>,
}

impl Memory {
    pub fn has(&self, bug: Bug) -> bool {
        self.bug.get() == Some(bug)
    }

    fn read(&self, event: &EventRow) -> Option<EventRow> {
        if self.unreadable.borrow().contains(&event.number) {
            return None;
        }
        let generation =
            if self.has(Bug::ForgetGeneration) { self.generation.get() } else { event.generation };
        Some(EventRow { generation, ..event.clone() })
    }

    fn read_wait(&self, wait: &WaitRow) -> Option<WaitRow> {
        (!self.unreadable_waits.borrow().contains(&wait.number)).then(|| wait.clone())
    }

    fn write(&self, rows: usize) -> Result<(), Full> {
        if self.is_full.get() {
            return Err(Full);
        }
        self.written.set(self.written.get() + rows);
        Ok(())
    }
}

impl Rows for Memory {
    type Error = Full;

    fn head(&self) -> Result<Head, Full> {
        let oldest = self.events.borrow().values().find_map(|event| self.read(event)).map(|event| event.at);
        Ok(Head { last: self.last.get(), through: self.through.get(), oldest })
    }

    fn bytes(&self) -> Result<u64, Full> {
        Ok(0)
    }

    fn triggers(&self) -> Result<Vec<(String, Option<Trigger>)>, Full> {
        let triggers = self.triggers.borrow();
        Ok(triggers.iter().map(|(id, text)| (id.clone(), serde_json::from_str(text).ok())).collect())
    }

    fn put_trigger(&self, trigger: &Trigger) -> Result<(), Full> {
        self.write(1)?;
        let text = serde_json::to_string(trigger).expect("it is JSON");
        self.triggers.borrow_mut().insert(trigger.id.clone(), text);
        Ok(())
    }

    fn delete_trigger(&self, id: &str) -> Result<(), Full> {
        self.write(1)?;
        self.triggers.borrow_mut().remove(id);
        Ok(())
    }

    fn heard(&self) -> Result<u64, Full> {
        Ok(self.heard.get())
    }

    fn declare(&self, revision: u64, changed: &[&Trigger]) -> Result<(), Full> {
        self.write(1)?;
        self.heard.set(revision);
        changed.iter().try_for_each(|trigger| self.put_trigger(trigger))
    }

    fn find(&self, id: &str) -> Result<Option<u64>, Full> {
        Ok(self.ids.borrow().get(id).copied().filter(|_| !self.has(Bug::ForgetIds)))
    }

    fn append(&self, events: &[NewRow<'_>]) -> Result<(), Full> {
        self.write(events.len() + events.iter().filter(|row| row.has_own_id).count())?;
        if self.has(Bug::AckBeforeStored) && self.loses_events.replace(false) {
            return Ok(());
        }
        for row in events {
            self.events.borrow_mut().insert(row.event.number, row.event.clone());
            self.last.set(row.event.number);
            if row.has_own_id {
                self.ids.borrow_mut().insert(row.event.id.clone(), row.event.number);
            }
        }
        Ok(())
    }

    fn event(&self, number: u64) -> Result<Option<EventRow>, Full> {
        Ok(self.events.borrow().get(&number).and_then(|event| self.read(event)))
    }

    fn latest_ids(&self, limit: usize) -> Result<Vec<String>, Full> {
        let ids = self.ids.borrow();
        let events = self.events.borrow();
        let latest =
            events.values().rev().take(limit).filter(|event| ids.get(&event.id) != Some(&event.number));
        Ok(latest.map(|event| event.id.clone()).collect())
    }

    fn generation(&self, number: u64) -> Result<Option<u32>, Full> {
        Ok(self.event(number)?.map(|event| event.generation))
    }

    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, Full> {
        let events = self.events.borrow();
        Ok(events
            .range(number + 1..)
            .map(|(number, event)| (*number, self.read(event)))
            .take(limit)
            .collect())
    }

    fn before(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, Full> {
        if self.has(Bug::ForgetLookBack) {
            return Ok(Vec::new());
        }
        let events = self.events.borrow();
        let before = events.range(..number).rev().map(|(number, event)| (*number, self.read(event)));
        let before: Vec<_> = before.take(limit).collect();
        self.events_read.set(self.events_read.get() + before.len());
        Ok(before)
    }

    fn oldest(&self, limit: usize) -> Result<Vec<(u64, Option<Timestamp>)>, Full> {
        let events = self.events.borrow();
        let at = |event| self.read(event).map(|event: EventRow| event.at);
        Ok(events.iter().map(|(number, event)| (*number, at(event))).take(limit).collect())
    }

    fn flush(&self, through: u64, looked: u64, triggers: &[&Trigger]) -> Result<(), Full> {
        self.write(1)?;
        self.looked.set(looked);
        self.through.set(if self.has(Bug::WatermarkAhead) { self.last.get() } else { through });
        triggers.iter().try_for_each(|trigger| self.put_trigger(trigger))
    }

    fn park(&self, parked: &Parked) -> Result<(), Full> {
        self.write(1)?;
        if !self.has(Bug::ForgetParked) {
            self.parked.borrow_mut().insert(parked.clone());
        }
        Ok(())
    }

    fn parked_trigger(&self, after: &str) -> Result<Option<String>, Full> {
        let parked = self.parked.borrow();
        let triggers = parked.iter().map(|parked| parked.trigger.as_str());
        Ok(triggers.filter(|trigger| *trigger > after).min().map(ToOwned::to_owned))
    }

    fn parked(&self, trigger: &str, after: u64, limit: usize) -> Result<Vec<u64>, Full> {
        let parked = self.parked.borrow();
        let of_trigger = parked.iter().filter(|parked| parked.trigger == trigger && parked.event > after);
        self.parked_read.set(self.parked_read.get() + limit.min(parked.len()));
        Ok(of_trigger.map(|parked| parked.event).take(limit).collect())
    }

    fn unpark(&self, parked: &Parked) -> Result<(), Full> {
        self.write(1)?;
        self.parked.borrow_mut().remove(parked);
        Ok(())
    }

    fn wait_head(&self) -> Result<WaitHead, Full> {
        let waits = self.waits.borrow();
        let ends = waits.values().filter_map(|wait| wait.waiter.until).min();
        Ok(WaitHead { last: waits.keys().next_back().copied().unwrap_or(0), looked: self.looked.get(), ends })
    }

    fn wait_kinds(&self) -> Result<Vec<(String, String)>, Full> {
        let waits = self.waits.borrow();
        let kinds: BTreeSet<_> =
            waits.values().map(|wait| (wait.waiter.on.clone(), wait.path.clone())).collect();
        Ok(kinds.into_iter().collect())
    }

    fn put_wait(&self, wait: &WaitRow, _: bool) -> Result<(), Full> {
        self.write(1)?;
        let mut waits = self.waits.borrow_mut();
        if let Some(before) = self.wait_numbers.borrow_mut().insert(wait.id(), wait.number) {
            waits.remove(&before);
        }
        waits.insert(wait.number, wait.clone());
        Ok(())
    }

    fn wait_cell(&self, bucket: Bucket<'_>, after: &str) -> Result<Option<String>, Full> {
        let waits = self.waits.borrow();
        let cells = waits.values().filter(|wait| is_in(wait, bucket)).map(cell_of);
        Ok(cells.filter(|cell| cell.as_str() > after).min())
    }

    fn waits(
        &self,
        bucket: Bucket<'_>,
        cell: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Option<WaitRow>)>, Full> {
        let waits = self.waits.borrow();
        let found = waits.range(after + 1..).map(|(_, wait)| wait).filter(|wait| is_in(wait, bucket));
        let found = found.filter(|wait| cell_of(wait) == cell).take(limit);
        let found: Vec<_> = found.map(|wait| (wait.number, self.read_wait(wait))).collect();
        self.waits_read.set(self.waits_read.get() + found.len());
        Ok(found)
    }

    fn waits_after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<WaitRow>)>, Full> {
        let waits = self.waits.borrow();
        let after = waits.range(number + 1..).take(limit);
        Ok(after.map(|(number, wait)| (*number, self.read_wait(wait))).collect())
    }

    fn wait(&self, id: &str) -> Result<Option<WaitRow>, Full> {
        let number = self.wait_numbers.borrow().get(id).copied();
        Ok(number.and_then(|number| self.waits.borrow().get(&number).cloned()))
    }

    fn end_waits(&self, event: u64, over: &[(&WaitRow, bool)]) -> Result<(), Full> {
        self.write(over.len())?;
        for (wait, is_met) in over {
            if *is_met {
                let met = MetWait { run: wait.waiter.run.clone(), wait: wait.waiter.op.to_string() };
                self.met.borrow_mut().entry(event).or_default().push(met);
            }
            self.waits.borrow_mut().remove(&wait.number);
        }
        Ok(())
    }

    fn expire_waits(&self, until: Timestamp, limit: usize) -> Result<Option<Timestamp>, Full> {
        let over = |wait: &WaitRow| wait.waiter.until.is_some_and(|end| end <= until);
        let old: Vec<_> =
            self.waits.borrow().iter().filter(|(_, wait)| over(wait)).map(|(n, _)| *n).take(limit).collect();
        self.write(old.len())?;
        self.waits.borrow_mut().retain(|number, _| !old.contains(number));
        Ok(self.wait_head()?.ends)
    }

    fn met(&self, event: u64, limit: usize) -> Result<Vec<MetWait>, Full> {
        let met = self.met.borrow();
        Ok(met.get(&event).into_iter().flatten().take(limit).cloned().collect())
    }

    fn expire(&self, last: u64, _: u64) -> Result<(), Full> {
        self.write(1)?;
        self.events.borrow_mut().retain(|number, _| *number > last);
        self.ids.borrow_mut().retain(|_, number| *number > last);
        self.met.borrow_mut().retain(|number, _| *number > last);
        Ok(())
    }

    fn webhooks(&self) -> Result<Vec<(String, Option<Webhook>)>, Full> {
        Ok(self.hooks.webhooks())
    }

    fn put_webhook(&self, webhook: &Webhook) -> Result<(), Full> {
        self.write(1).map(|()| self.hooks.put(webhook))
    }

    fn delete_webhook(&self, id: &str) -> Result<(), Full> {
        self.write(1).map(|()| self.hooks.delete(id))
    }

    fn put_delivery(&self, webhook: &str, slot: u64, kept: &Kept) -> Result<(), Full> {
        self.write(1).map(|()| self.hooks.put_delivery(webhook, slot, kept))
    }

    fn deliveries(&self, webhook: &str) -> Result<Vec<Kept>, Full> {
        Ok(self.hooks.deliveries(webhook))
    }

    fn delivery(&self, webhook: &str, slot: u64) -> Result<Option<Kept>, Full> {
        Ok(self.hooks.delivery(webhook, slot))
    }
}

fn is_in(wait: &WaitRow, bucket: Bucket<'_>) -> bool {
    wait.waiter.on == bucket.on && wait.path == bucket.path && wait.value == bucket.value
}

fn cell_of(wait: &WaitRow) -> String {
    wait.waiter.run.place.to_string()
}
