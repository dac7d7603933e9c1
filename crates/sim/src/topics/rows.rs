//! The tables of a topic, and what an instance of it sees of them.
//!
//! What the engine's SQL does, in maps. A [`Write`] is one transaction.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    rc::Rc,
};

use stepwell_core::topic::{
    Bucket, EventRow, Head, Kept, NewRow, Parked, Rows, Topic, Trigger, WaitHead, WaitRow, Webhook,
};
use stepwell_protocol::{
    Epoch, Timestamp,
    topic::{EVENT_RETENTION_MS, MetWait},
};

use super::Planted;
use crate::host::{Disk, Refused, Simulated, View};

/// How long until what is parked is looked at again, at the latest.
const PARKED_MS: u64 = 62_000;

/// How long until a wait is looked back for, at the latest: its cell may be spared, or the storage may refuse.
const LOOK_MS: u64 = 6_000;

/// How long after its end a wait is deleted, at the latest, while the alarm is on time.
const ENDED_MS: u64 = 66_000;

/// Topics.
#[derive(Clone, Copy, Debug)]
pub struct Topics;

impl Simulated for Topics {
    type Machine = Topic;
    type Rows = Board;
    type Disk = Table;
    type Own = ();
}

/// The rows of one topic.
#[derive(Clone, Debug, Default)]
pub struct Table {
    events: BTreeMap<u64, Rc<EventRow>>,
    ids: BTreeMap<String, u64>,
    triggers: BTreeMap<String, String>,
    parked: BTreeSet<(String, u64)>,
    through: u64,
    looked: u64,
    waits: BTreeMap<u64, WaitRow>,
    kinds: BTreeSet<(String, String)>,
    met: BTreeSet<(u64, String, String)>,
    heard: u64,
    webhooks: BTreeMap<String, String>,
    deliveries: BTreeMap<(String, u64), String>,
}

/// One transaction.
#[derive(Clone, Debug)]
pub enum Write {
    /// Triggers are stored, and the revision that they came with.
    Triggers(Option<u64>, Vec<Trigger>),
    /// A trigger is deleted.
    TriggerGone(String),
    /// Events are stored, each with whether its sender gave it its id.
    Events(Vec<(Rc<EventRow>, bool)>),
    /// How far everything is done, and what became of triggers.
    Flush(u64, u64, Vec<Trigger>),
    /// A start is parked.
    Park(Parked),
    /// It is parked no more.
    Unpark(Parked),
    /// What nobody waits for is forgotten.
    Tidy,
    /// A wait is stored.
    Wait(Box<WaitRow>),
    /// Waits are deleted, and which of them got the event.
    Ended(u64, Vec<(WaitRow, bool)>),
    /// Waits are deleted that were over at this time.
    Expired(Timestamp, usize),
    /// Events up to this one are deleted; how far everything is done.
    Expire(u64, u64),
    /// A webhook is stored.
    Webhook(Box<Webhook>),
    /// A webhook is deleted.
    WebhookGone(String),
    /// A delivery is stored.
    Delivery(String, u64, Box<Kept>),
}

impl Disk for Table {
    type Write = Write;

    fn apply(&mut self, write: &Write) -> Result<(), String> {
        match write {
            Write::Triggers(heard, triggers) => {
                self.heard = heard.unwrap_or(self.heard);
                self.put_triggers(triggers);
            }
            Write::TriggerGone(id) => drop(self.triggers.remove(id)),
            Write::Events(events) => return self.append(events),
            Write::Flush(through, looked, triggers) => {
                self.through = self.through.max(*through);
                self.looked = self.looked.max(*looked);
                self.put_triggers(triggers);
            }
            Write::Park(parked) => drop(self.parked.insert((parked.trigger.clone(), parked.event))),
            Write::Unpark(parked) => drop(self.parked.remove(&(parked.trigger.clone(), parked.event))),
            Write::Tidy => {
                let used: BTreeSet<_> = self.waits.values().map(kind_of).collect();
                self.kinds.retain(|kind| used.contains(kind));
            }
            Write::Wait(wait) => {
                let id = wait.id();
                self.waits.retain(|_, known| known.id() != id);
                self.kinds.insert(kind_of(wait));
                self.waits.insert(wait.number, (**wait).clone());
            }
            Write::Ended(event, over) => {
                for (wait, is_met) in over {
                    self.waits.remove(&wait.number);
                    if *is_met {
                        let (run, op) = (wait.waiter.run.to_string(), wait.waiter.op.to_string());
                        self.met.insert((*event, run, op));
                    }
                }
            }
            Write::Expired(until, limit) => {
                let over =
                    self.waits.iter().filter(|(_, wait)| wait.waiter.until.is_some_and(|at| at <= *until));
                let over: Vec<_> = over.map(|(number, _)| *number).take(*limit).collect();
                self.waits.retain(|number, _| !over.contains(number));
            }
            Write::Expire(last, through) => {
                self.through = self.through.max(*through);
                self.events.retain(|number, _| number > last);
                self.ids.retain(|_, number| *number > *last);
                self.met.retain(|(event, _, _)| event > last);
            }
            Write::Webhook(webhook) => {
                self.webhooks.insert(webhook.id.clone(), text(&**webhook));
            }
            Write::WebhookGone(id) => {
                self.webhooks.remove(id);
                self.deliveries.retain(|(of, _), _| of != id);
            }
            Write::Delivery(webhook, slot, kept) => {
                self.deliveries.insert((webhook.clone(), *slot), text(&**kept));
            }
        }
        Ok(())
    }
}

fn text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("it holds only what JSON can say")
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("only machines write here")
}

fn kind_of(wait: &WaitRow) -> (String, String) {
    (wait.waiter.on.clone(), wait.path.clone())
}

impl Table {
    fn put_triggers(&mut self, triggers: &[Trigger]) {
        for trigger in triggers {
            self.triggers.insert(trigger.id.clone(), text(trigger));
        }
    }

    fn append(&mut self, events: &[(Rc<EventRow>, bool)]) -> Result<(), String> {
        let mut refused = None;
        for (event, has_own_id) in events {
            if self.events.insert(event.number, event.clone()).is_some() {
                refused = Some(format!("event {} is inserted twice", event.number));
            }
            if *has_own_id && self.ids.insert(event.id.clone(), event.number).is_some() {
                refused = Some(format!("the id {} is inserted twice", event.id));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// The wait of this id.
    pub fn wait(&self, id: &str) -> Option<&WaitRow> {
        self.waits.values().find(|wait| wait.id() == id)
    }

    /// What is parked.
    pub fn parked(&self) -> &BTreeSet<(String, u64)> {
        &self.parked
    }

    /// When the alarm has to be set for, at the latest, if the instance has seen this time.
    pub fn due_by(&self, latest: Timestamp) -> Option<(Timestamp, String)> {
        let parked =
            self.parked.first().map(|what| (latest.plus_millis(PARKED_MS), format!("{what:?} is parked")));
        let last = self.waits.last_key_value().map_or(0, |(number, _)| *number);
        let looks =
            (self.looked < last).then(|| (latest.plus_millis(LOOK_MS), format!("wait {last} looks back")));
        let ends = self.waits.values().filter_map(|wait| wait.waiter.until).min();
        let ends = ends.map(|at| (at.max(latest).plus_millis(ENDED_MS), "a wait is over".to_owned()));
        let oldest =
            self.events.values().next().map(|event| event.at.plus_millis(EVENT_RETENTION_MS + 61_000));
        let oldest = oldest.map(|at| (at.max(latest.plus_millis(5_000)), "an event expires".to_owned()));
        [parked, looks, ends, oldest].into_iter().flatten().min()
    }
}

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Board {
    view: View<Table>,
    planted: Option<Planted>,
    /// Whether another instance was there before.
    is_second: bool,
}

impl Board {
    /// A board on what is on disk.
    pub fn new(disk: Rc<Table>, is_second: bool, planted: Option<Planted>) -> Self {
        Self { view: View::new(disk), planted, is_second }
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn is_in(wait: &WaitRow, bucket: Bucket<'_>) -> bool {
        wait.waiter.on == bucket.on && wait.path == bucket.path && wait.value == bucket.value
    }
}

impl Deref for Board {
    type Target = View<Table>;

    fn deref(&self) -> &View<Table> {
        &self.view
    }
}

fn row(event: &Rc<EventRow>) -> EventRow {
    event.as_ref().clone()
}

impl Rows for Board {
    type Error = Refused;

    fn head(&self) -> Result<Head, Refused> {
        let table = self.view.read()?;
        let last = table.events.last_key_value().map_or(0, |(number, _)| *number).max(table.through);
        let oldest = table.events.values().next().map(|event| event.at);
        Ok(Head { last, through: table.through, oldest })
    }

    fn bytes(&self) -> Result<u64, Refused> {
        self.view.read().map(|_| 0)
    }

    fn triggers(&self) -> Result<Vec<(String, Option<Trigger>)>, Refused> {
        let table = self.view.read()?;
        let seen = |mut trigger: Trigger| {
            if self.is(Planted::PauseForgotten) {
                trigger.paused = None;
            }
            trigger
        };
        Ok(table.triggers.iter().map(|(id, text)| (id.clone(), Some(seen(read(text))))).collect())
    }

    fn put_trigger(&self, trigger: &Trigger) -> Result<(), Refused> {
        self.view.write(Write::Triggers(None, vec![trigger.clone()]))
    }

    fn delete_trigger(&self, id: &str) -> Result<(), Refused> {
        let id = if self.is(Planted::DeletionForgotten) { "" } else { id };
        self.view.write(Write::TriggerGone(id.to_owned()))
    }

    fn heard(&self) -> Result<u64, Refused> {
        let heard = self.view.read()?.heard;
        Ok(if self.is(Planted::OlderRevisionWins) { 0 } else { heard })
    }

    fn declare(&self, revision: u64, changed: &[&Trigger]) -> Result<(), Refused> {
        self.view.write(Write::Triggers(Some(revision), changed.iter().copied().cloned().collect()))
    }

    fn find(&self, id: &str) -> Result<Option<u64>, Refused> {
        Ok(self.view.read()?.ids.get(id).copied())
    }

    fn append(&self, events: &[NewRow<'_>]) -> Result<(), Refused> {
        let is_hook =
            |event: &EventRow| event.source.as_deref().is_some_and(|source| source.starts_with("webhook:"));
        let is_lost =
            |event: &EventRow| self.is(Planted::IdLost) || self.is(Planted::DeliveryIdLost) && is_hook(event);
        let rows =
            events.iter().map(|row| (Rc::new(row.event.clone()), row.has_own_id && !is_lost(row.event)));
        self.view.write(Write::Events(rows.collect()))
    }

    fn latest_ids(&self, limit: usize) -> Result<Vec<String>, Refused> {
        let table = self.view.read()?;
        if self.is(Planted::MarksForgotten) {
            return Ok(Vec::new());
        }
        let latest = table.events.values().rev().take(limit);
        let given = latest.filter(|event| table.ids.get(&event.id) != Some(&event.number));
        Ok(given.map(|event| event.id.clone()).collect())
    }

    fn event(&self, number: u64) -> Result<Option<EventRow>, Refused> {
        Ok(self.view.read()?.events.get(&number).map(row))
    }

    fn generation(&self, event: u64) -> Result<Option<u32>, Refused> {
        Ok(self.view.read()?.events.get(&event).map(|event| event.generation))
    }

    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, Refused> {
        let table = self.view.read()?;
        Ok(table
            .events
            .range(number + 1..)
            .take(limit)
            .map(|(number, event)| (*number, Some(row(event))))
            .collect())
    }

    fn before(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, Refused> {
        let table = self.view.read()?;
        if self.is(Planted::LookBackSkipped) {
            return Ok(Vec::new());
        }
        let before = table.events.range(..number).rev().take(limit);
        Ok(before.map(|(number, event)| (*number, Some(row(event)))).collect())
    }

    fn oldest(&self, limit: usize) -> Result<Vec<(u64, Option<Timestamp>)>, Refused> {
        let table = self.view.read()?;
        Ok(table.events.iter().take(limit).map(|(number, event)| (*number, Some(event.at))).collect())
    }

    fn flush(&self, through: u64, looked: u64, triggers: &[&Trigger]) -> Result<(), Refused> {
        let (last, last_wait) = {
            let table = self.view.all();
            let last_wait = table.waits.last_key_value().map_or(0, |(number, _)| *number);
            (table.events.last_key_value().map_or(0, |(number, _)| *number), last_wait)
        };
        let through = if self.is(Planted::WatermarkAhead) { last.max(through) } else { through };
        let looked = if self.is(Planted::LookedAhead) { last_wait.max(looked) } else { looked };
        self.view.write(Write::Flush(through, looked, triggers.iter().copied().cloned().collect()))?;
        if self.is(Planted::EventGone) {
            self.view.write(Write::Expire(through, through))?;
        }
        Ok(())
    }

    fn park(&self, parked: &Parked) -> Result<(), Refused> {
        self.view.write(Write::Park(parked.clone()))
    }

    fn parked_trigger(&self, after: &str) -> Result<Option<String>, Refused> {
        let table = self.view.read()?;
        if self.is(Planted::ParkedForgotten) && self.is_second {
            return Ok(None);
        }
        let mut triggers = table.parked.iter().map(|(trigger, _)| trigger);
        Ok(triggers.find(|trigger| trigger.as_str() > after).cloned())
    }

    fn parked(&self, trigger: &str, after: u64, limit: usize) -> Result<Vec<u64>, Refused> {
        let table = self.view.read()?;
        let of_trigger = table.parked.range((trigger.to_owned(), after + 1)..);
        let of_trigger = of_trigger.take_while(|(of, _)| of == trigger);
        Ok(of_trigger.map(|(_, event)| *event).take(limit).collect())
    }

    fn unpark(&self, parked: &Parked) -> Result<(), Refused> {
        self.view.write(Write::Unpark(parked.clone()))
    }

    fn wait_head(&self) -> Result<WaitHead, Refused> {
        let table = self.view.read()?;
        let ends = table.waits.values().filter_map(|wait| wait.waiter.until).min();
        let last = table.waits.last_key_value().map_or(0, |(number, _)| *number);
        Ok(WaitHead { last, looked: table.looked, ends })
    }

    fn wait_kinds(&self) -> Result<Vec<(String, String)>, Refused> {
        let is_used = {
            let table = self.view.read()?;
            let used: BTreeSet<_> = table.waits.values().map(kind_of).collect();
            table.kinds.iter().all(|kind| used.contains(kind))
        };
        if !is_used {
            self.view.write(Write::Tidy)?;
        }
        Ok(self.view.read()?.kinds.iter().cloned().collect())
    }

    fn put_wait(&self, wait: &WaitRow, _: bool) -> Result<(), Refused> {
        self.view.write(Write::Wait(Box::new(wait.clone())))
    }

    fn wait_cell(&self, bucket: Bucket<'_>, after: &str) -> Result<Option<String>, Refused> {
        let table = self.view.read()?;
        let cells = table.waits.values().filter(|wait| Self::is_in(wait, bucket));
        let cells = cells.map(|wait| wait.waiter.run.place.to_string());
        Ok(cells.filter(|cell| cell.as_str() > after).min())
    }

    fn waits(
        &self,
        bucket: Bucket<'_>,
        cell: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Option<WaitRow>)>, Refused> {
        let table = self.view.read()?;
        let found = table.waits.range(after + 1..).filter(|(_, wait)| Self::is_in(wait, bucket));
        let found = found.filter(|(_, wait)| wait.waiter.run.place.to_string() == cell).take(limit);
        Ok(found.map(|(number, wait)| (*number, Some(wait.clone()))).collect())
    }

    fn waits_after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<WaitRow>)>, Refused> {
        let table = self.view.read()?;
        Ok(table
            .waits
            .range(number + 1..)
            .take(limit)
            .map(|(number, wait)| (*number, Some(wait.clone())))
            .collect())
    }

    fn wait(&self, id: &str) -> Result<Option<WaitRow>, Refused> {
        let found = self.view.read()?.wait(id).cloned();
        Ok(found.map(|mut wait| {
            if self.is(Planted::OldWaitWins) {
                wait.waiter.epoch = Epoch(0);
            }
            wait
        }))
    }

    fn end_waits(&self, event: u64, over: &[(&WaitRow, bool)]) -> Result<(), Refused> {
        if over.is_empty() {
            return Ok(());
        }
        self.view.write(Write::Ended(
            event,
            over.iter().map(|(wait, is_met)| ((*wait).clone(), *is_met)).collect(),
        ))
    }

    fn expire_waits(&self, until: Timestamp, limit: usize) -> Result<Option<Timestamp>, Refused> {
        self.view.write(Write::Expired(until, limit))?;
        Ok(self.wait_head()?.ends)
    }

    fn met(&self, event: u64, limit: usize) -> Result<Vec<MetWait>, Refused> {
        let table = self.view.read()?;
        let met =
            table.met.range((event, String::new(), String::new())..).take_while(|(of, _, _)| *of == event);
        let read = |(_, run, wait): &(u64, String, String)| {
            Some(MetWait { run: run.parse().ok()?, wait: wait.clone() })
        };
        Ok(met.take(limit).filter_map(read).collect())
    }

    fn expire(&self, last: u64, through: u64) -> Result<(), Refused> {
        self.view.write(Write::Expire(last, through))
    }

    fn webhooks(&self) -> Result<Vec<(String, Option<Webhook>)>, Refused> {
        let table = self.view.read()?;
        let seen = |mut webhook: Webhook| {
            if self.is(Planted::SecretForever) {
                webhook.secrets.iter_mut().for_each(|sealed| sealed.until = None);
            }
            webhook
        };
        Ok(table.webhooks.iter().map(|(id, text)| (id.clone(), Some(seen(read(text))))).collect())
    }

    fn put_webhook(&self, webhook: &Webhook) -> Result<(), Refused> {
        self.view.write(Write::Webhook(Box::new(webhook.clone())))
    }

    fn delete_webhook(&self, id: &str) -> Result<(), Refused> {
        self.view.write(Write::WebhookGone(id.to_owned()))
    }

    fn put_delivery(&self, webhook: &str, slot: u64, kept: &Kept) -> Result<(), Refused> {
        self.view.write(Write::Delivery(webhook.to_owned(), slot, Box::new(kept.clone())))
    }

    fn deliveries(&self, webhook: &str) -> Result<Vec<Kept>, Refused> {
        let table = self.view.read()?;
        let of_webhook = table.deliveries.iter().filter(|((of, _), _)| of == webhook);
        let without_body = |mut kept: Kept| {
            kept.delivery.body = None;
            kept
        };
        Ok(of_webhook.map(|(_, text)| without_body(read(text))).collect())
    }

    fn delivery(&self, webhook: &str, slot: u64) -> Result<Option<Kept>, Refused> {
        Ok(self.view.read()?.deliveries.get(&(webhook.to_owned(), slot)).map(|text| read(text)))
    }
}
