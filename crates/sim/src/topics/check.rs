//! What must hold of topics: what people were told, what is on the disks of the topic and of the cells, and in which order
//! it came there.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::{
    object::Message,
    topic::{EventRow, event_key, wait_id},
};
use stepwell_protocol::{
    Code, Timestamp,
    manifest::TriggerDescription,
    topic::{Accepted, AcceptedStatus, NewEvent, TriggerSpec, Triggered, is_on},
};

use super::{
    people::{Act, Answered, OVERLAP_MS},
    rows::{Table, Write},
    topic::TOPIC,
    waits::Waits,
};
use crate::check::Checked;

/// How long a start is under way at the most, until it is parked.
const UNDER_WAY_MS: u64 = 120_000;

/// When something became durable: in which order, and at what time of the world.
pub type When = (u64, u64);

/// An event that was ever accepted.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its row.
    pub row: EventRow,
    /// When it became durable.
    pub when: When,
}

/// What is known of a trigger beside its row.
#[derive(Clone, Debug)]
struct Known {
    spec: TriggerSpec,
    /// Whether its maker knows that it is there.
    is_made: bool,
    /// Whether an operator knows that it starts nothing.
    is_off: bool,
    /// Whether anybody pauses, deletes or changes it at any time: some of its events may start nothing.
    is_touched: bool,
}

/// What is known beside the rows.
#[derive(Debug, Default)]
pub struct Model {
    /// All events that were ever accepted, by number.
    pub log: BTreeMap<u64, Logged>,
    /// Waits of runs.
    pub waits: Waits,
    triggers: BTreeMap<String, Known>,
    /// What the code declares, by revision.
    revisions: BTreeMap<u64, Vec<TriggerDescription>>,
    /// The latest revision that the catalog has sent, and the latest that was answered.
    declared: (u64, u64),
    /// When each was first sent.
    sent_at: BTreeMap<u64, u64>,
    /// Starts that must be, and starts that must not be.
    wanted: BTreeSet<(String, u64)>,
    forbidden: BTreeSet<(String, u64)>,
    /// Starts that cells refuse for good, by their keys.
    pub refused: BTreeSet<String>,
    /// The runs of events.
    pub runs: BTreeMap<(String, u64), String>,
    /// In which turn the topic was last told of a wait.
    pub told: BTreeMap<String, u64>,
    /// Which secret was last set, which was last answered, and when that was at the latest.
    hook: (Option<usize>, Option<usize>, Timestamp),
    /// The waits that tokens have completed: run and wait.
    tokens: BTreeSet<(String, String)>,
}

/// Whether an event is one that a trigger is about. Nothing, if its condition has no value.
fn meets(spec: &TriggerSpec, event: &EventRow) -> Option<bool> {
    if !is_on(&spec.on, &event.name) {
        return Some(false);
    }
    match spec.when.as_deref() {
        None => Some(true),
        Some(_) => event.data.decode::<serde_json::Value>().ok()?.get("odd")?.as_bool(),
    }
}

impl Model {
    /// A trigger that somebody will make, and whether somebody will touch it later.
    pub fn expect(&mut self, id: &str, spec: &TriggerSpec, is_touched: bool) {
        let known = Known { spec: spec.clone(), is_made: false, is_off: false, is_touched };
        self.triggers.insert(id.to_owned(), known);
    }

    /// What the code will declare.
    pub fn expect_revision(&mut self, revision: u64, triggers: &[TriggerDescription]) {
        self.revisions.insert(revision, triggers.to_vec());
    }

    /// Whether whoever makes a trigger knows that it is there.
    pub fn was_made(&self, id: &str) -> bool {
        self.triggers.get(id).is_some_and(|known| known.is_made)
    }

    /// Whether whoever makes the webhook knows that it is there.
    pub fn has_hook(&self) -> bool {
        self.hook.1.is_some()
    }

    /// Whether an event has started a run.
    pub fn has_run(&self, triggered: &Triggered) -> bool {
        self.runs.contains_key(&(triggered.trigger.clone(), triggered.event))
    }

    /// Somebody does something: from here on it may take effect.
    pub fn begins(&mut self, act: &Act, now_ms: u64) {
        match act {
            Act::Resume(id) => {
                if let Some(known) = self.triggers.get_mut(id) {
                    known.is_off = false;
                }
            }
            Act::Declare(revision, _) => {
                self.declared.0 = self.declared.0.max(*revision);
                self.sent_at.entry(*revision).or_insert(now_ms);
            }
            Act::Hook(secret) => self.hook.0 = self.hook.0.max(Some(*secret)),
            Act::Send(..)
            | Act::Put(..)
            | Act::Pause(_)
            | Act::Delete(_)
            | Act::Deliver(..)
            | Act::Redeliver(..)
            | Act::Start(..)
            | Act::Manage(..)
            | Act::Token(..) => {}
        }
    }

    /// The topic has written.
    pub fn topic_wrote(&mut self, write: &Write, when: When) -> Checked {
        match write {
            Write::Events(events) => events.iter().try_for_each(|(event, _)| self.accepted(event, when)),
            Write::Wait(wait) => {
                self.waits.registered(&wait.id(), wait.waiter.epoch, when);
                Ok(())
            }
            Write::Triggers(..)
            | Write::TriggerGone(_)
            | Write::Flush(..)
            | Write::Park(_)
            | Write::Unpark(_)
            | Write::Tidy
            | Write::Ended(..)
            | Write::Expired(..)
            | Write::Expire(..)
            | Write::Webhook(_)
            | Write::WebhookGone(_)
            | Write::Delivery(..) => Ok(()),
        }
    }

    fn accepted(&mut self, event: &EventRow, when: When) -> Checked {
        if let Some(known) = self.log.values().find(|known| known.row.id == event.id) {
            let detail = format!("{} is event {} and event {}", event.id, known.row.number, event.number);
            return Err(("15 an id counts once", detail));
        }
        // Each event of a caller says which one it is.
        let sent = |row: &EventRow| row.data.decode::<serde_json::Value>().ok()?.get("sent")?.as_u64();
        let is_same = |known: &&Logged| sent(event).is_some() && sent(&known.row) == sent(event);
        let is_once = event.source.as_deref().is_none_or(|source| !source.starts_with("webhook:"));
        if let Some(known) = self.log.values().find(is_same).filter(|_| is_once) {
            let detail = format!("{} and {} are of the same request", known.row.id, event.id);
            return Err(("3 a request that comes again is the same", detail));
        }
        for (id, known) in &self.triggers {
            let (does_meet, what) = (meets(&known.spec, event) == Some(true), (id.clone(), event.number));
            if known.is_off || !does_meet && !known.is_touched {
                self.forbidden.insert(what);
            } else if known.is_made && does_meet && !known.is_touched {
                self.wanted.insert(what);
            }
        }
        self.declared_for(event);
        self.log.insert(event.number, Logged { row: event.clone(), when });
        Ok(())
    }

    /// Which triggers that the code declares must start nothing for an event.
    fn declared_for(&mut self, event: &EventRow) {
        let (sent, answered) = self.declared;
        // A later one may have taken effect.
        if sent != answered {
            return;
        }
        let of_code: BTreeSet<_> =
            self.revisions.values().flatten().map(|trigger| trigger.name.clone()).collect();
        let now = self.revisions.get(&answered).cloned().unwrap_or_default();
        for name in of_code {
            let spec = now.iter().find(|trigger| trigger.name == name).map(|trigger| &trigger.spec);
            if spec.is_none_or(|spec| meets(spec, event) != Some(true)) {
                self.forbidden.insert((name, event.number));
            }
        }
    }

    /// Whether a trigger was changed to be about an event while the starts of that were under way.
    fn is_changed_for(&self, trigger: &str, event: u64) -> bool {
        let Some(Logged { row, when }) = self.log.get(&event) else { return false };
        let is_about = |revision: &u64| {
            let triggers = self.revisions.get(revision).into_iter().flatten();
            triggers.filter(|one| one.name == trigger).any(|one| meets(&one.spec, row) == Some(true))
        };
        let soon = when.1..when.1 + UNDER_WAY_MS;
        self.sent_at.iter().any(|(revision, at)| soon.contains(at) && is_about(revision))
    }

    /// A cell has started the run of an event.
    pub fn started(&mut self, triggered: &Triggered, run: &str) -> Checked {
        let Triggered { topic, trigger, event } = triggered;
        let what = (trigger.clone(), *event);
        if topic != TOPIC || !self.log.contains_key(event) {
            return Err(("8 nothing is started before its event is stored", format!("{what:?} has {run}")));
        }
        if self.forbidden.contains(&what) && !self.is_changed_for(trigger, *event) {
            return Err((
                "a trigger starts what it is about, and nothing while it is off",
                format!("{what:?}"),
            ));
        }
        if let Some(before) = self.runs.insert(what.clone(), run.to_owned()) {
            return Err((
                "16 an event starts one run by each trigger",
                format!("{what:?}: {before} and {run}"),
            ));
        }
        Ok(())
    }

    /// A token has completed a wait.
    pub fn token_taken(&mut self, run: &str, id: &str) -> Checked {
        if self.tokens.insert((run.to_owned(), id.to_owned())) {
            return Ok(());
        }
        Err(("16 a token completes its wait once", format!("{run} {id:?}")))
    }

    /// A run is taken back: what it has taken counts no more.
    pub fn taken_back(&mut self, run: &str) {
        self.tokens.retain(|(of, _)| of != run);
    }

    /// A cell is told that a letter has arrived.
    pub fn letter_taken(&self, disk: &Table, message: &Message, turn: u64) -> Checked {
        match message {
            Message::Emitted { event, .. } => self.is_accepted(event.id.as_deref().unwrap_or_default()),
            Message::Waits { waiter } => {
                let id = wait_id(&waiter.run, waiter.life, &waiter.op);
                if self.waits.was_registered(&id, waiter.epoch) {
                    return Ok(());
                }
                Err(("14 a wait that was acknowledged is registered", format!("{id} of {:?}", waiter.epoch)))
            }
            Message::WaitOver { run, life, op, epoch } => {
                let id = wait_id(run, *life, op);
                let is_back = self.told.get(&id).is_some_and(|told| *told >= turn);
                let is_there = disk.wait(&id).is_some_and(|wait| wait.waiter.epoch <= *epoch);
                if is_there && !is_back {
                    return Err(("27 what has arrived has had its effect", format!("{id} is still there")));
                }
                Ok(())
            }
            Message::Start { .. }
            | Message::Ended { .. }
            | Message::TickEnded { .. }
            | Message::Cancel { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. }
            | Message::Unbind { .. } => Ok(()),
        }
    }

    fn is_accepted(&self, id: &str) -> Checked {
        if self.log.values().any(|known| known.row.id == id) {
            return Ok(());
        }
        Err(("1 an event that was acknowledged is stored", id.to_owned()))
    }

    /// Somebody was answered.
    pub fn answered(&mut self, act: &Act, answered: &Answered, latest: Timestamp) -> Checked {
        match (act, answered) {
            (Act::Send(_, events), Answered::Events(accepted)) => self.sent(events, accepted),
            (Act::Redeliver(..), Answered::Events(accepted)) => {
                accepted.iter().try_for_each(|one| self.is_accepted(one.id.as_deref().unwrap_or_default()))
            }
            (Act::Put(id, _), Answered::Done) => {
                if let Some(known) = self.triggers.get_mut(id) {
                    known.is_made = true;
                }
                Ok(())
            }
            (Act::Pause(id), Answered::Done)
            | (Act::Delete(id), Answered::Done | Answered::Refused(Code::TriggerNotFound)) => {
                if let Some(known) = self.triggers.get_mut(id) {
                    known.is_off = true;
                }
                Ok(())
            }
            (Act::Declare(revision, _), Answered::Done) => {
                self.declared.1 = self.declared.1.max(*revision);
                Ok(())
            }
            (Act::Hook(secret), Answered::Done) => {
                if self.hook.1 < Some(*secret) {
                    (self.hook.1, self.hook.2) = (Some(*secret), latest);
                }
                Ok(())
            }
            (Act::Deliver(event, secret), Answered::Delivered(accepted, at)) => {
                self.delivered(event, *secret, accepted.as_ref(), *at)
            }
            (_, _) => Ok(()),
        }
    }

    fn sent(&self, events: &[NewEvent], accepted: &[Accepted]) -> Checked {
        if events.len() != accepted.len() {
            return Err((
                "15 each event of a batch is answered",
                format!("{} of {}", accepted.len(), events.len()),
            ));
        }
        for (event, accepted) in events.iter().zip(accepted) {
            let id = accepted.id.as_deref().unwrap_or_default();
            let found = self.log.values().find(|known| known.row.id == id);
            let Some(found) = found else {
                return Err(("1 an event that was acknowledged is stored", format!("{id} of {event:?}")));
            };
            let is_its = event.id.as_ref().is_none_or(|own| own == id) && event.name == accepted.name;
            let is_known = accepted.status == AcceptedStatus::Duplicate && event.id.is_some();
            if !is_its || !is_known && found.row.data != event.data {
                return Err((
                    "15 each event of a batch has its own answer",
                    format!("{event:?} {accepted:?}"),
                ));
            }
        }
        Ok(())
    }

    fn delivered(
        &self,
        event: &NewEvent,
        secret: usize,
        accepted: Option<&Accepted>,
        at: Timestamp,
    ) -> Checked {
        let (set, answered, since) = self.hook;
        let is_replaced = answered.is_some_and(|answered| answered > secret);
        // One more was set since: it was good for as long as the overlap, or not at all.
        let is_over = is_replaced && since.plus_millis(OVERLAP_MS) <= at;
        match accepted {
            Some(_) if is_over => {
                Err(("a secret that was replaced signs nothing", format!("{secret} at {}", at.as_millis())))
            }
            Some(accepted) => self.is_accepted(accepted.id.as_deref().unwrap_or_default()),
            None if set == answered && answered == Some(secret) => {
                Err(("15 what is signed is accepted", format!("{:?} with secret {secret}", event.id)))
            }
            None => Ok(()),
        }
    }

    /// Everything has been well for long.
    pub fn at_rest(&self, disk: &Table) -> Checked {
        for (trigger, event) in &self.wanted {
            let triggered = Triggered { topic: TOPIC.into(), trigger: trigger.clone(), event: *event };
            let is_refused = self.refused.contains(&event_key(&triggered));
            if !is_refused && !self.has_run(&triggered) {
                let detail = format!("event {event} has no run by trigger {trigger}");
                return Err(("15 an accepted event starts the runs of its triggers", detail));
            }
        }
        // One that was parked just before everything was well, and again, is tried every minute.
        if let Some(parked) = disk.parked().first() {
            return Err(("27 what is parked is done once all is well", format!("{parked:?}")));
        }
        self.waits.at_rest(&self.log)
    }
}
