//! What a topic has of its host: rows, and somebody who asks cells.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Payload, Place, Problem, RunId, Timestamp,
    topic::{EventView, MetWait, Triggered},
};

use super::{Bucket, EventRow, Kept, Trigger, WaitRow, Webhook};

/// What a topic needs of its storage. Every method that writes is one transaction.
pub trait Rows {
    /// Why the storage failed.
    type Error;

    /// Where the topic stands.
    fn head(&self) -> Result<Head, Self::Error>;

    /// The bytes that are stored.
    fn bytes(&self) -> Result<u64, Self::Error>;

    /// All triggers by their ids; nothing for one that cannot be read.
    fn triggers(&self) -> Result<Vec<(String, Option<Trigger>)>, Self::Error>;

    /// Stores a trigger in the place of the one that was there. One row.
    fn put_trigger(&self, trigger: &Trigger) -> Result<(), Self::Error>;

    /// Deletes a trigger. What is parked for it goes in slices.
    fn delete_trigger(&self, id: &str) -> Result<(), Self::Error>;

    /// Which revision of what the code declares was heard last.
    fn heard(&self) -> Result<u64, Self::Error>;

    /// Stores that a revision was heard, and the triggers that it has changed.
    fn declare(&self, revision: u64, changed: &[&Trigger]) -> Result<(), Self::Error>;

    /// The number of the event that a sender has given this id.
    fn find(&self, id: &str) -> Result<Option<u64>, Self::Error>;

    /// Stores events: one row each, and one more for an id that its sender gave.
    fn append(&self, events: &[NewRow<'_>]) -> Result<(), Self::Error>;

    /// The ids of the latest events, newest first and at most so many, without those that their senders gave.
    fn latest_ids(&self, limit: usize) -> Result<Vec<String>, Self::Error>;

    /// An event.
    fn event(&self, number: u64) -> Result<Option<EventRow>, Self::Error>;

    /// The generation of the pool that the runs of an event are at home in.
    fn generation(&self, event: u64) -> Result<Option<u32>, Self::Error>;

    /// The events after a number, oldest first; nothing for one that cannot be read.
    fn after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, Self::Error>;

    /// The events before a number, newest first; nothing for one that cannot be read.
    fn before(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<EventRow>)>, Self::Error>;

    /// The numbers of the oldest events, and when each was accepted, as far as that can be read.
    fn oldest(&self, limit: usize) -> Result<Vec<(u64, Option<Timestamp>)>, Self::Error>;

    /// Stores how far the topic is with its events and with its waits, and what became of triggers.
    fn flush(&self, through: u64, looked: u64, triggers: &[&Trigger]) -> Result<(), Self::Error>;

    /// Parks a start. One row.
    fn park(&self, parked: &Parked) -> Result<(), Self::Error>;

    /// The first trigger after this one that has parked starts.
    fn parked_trigger(&self, after: &str) -> Result<Option<String>, Self::Error>;

    /// The events after a number for which starts of a trigger are parked, in order.
    fn parked(&self, trigger: &str, after: u64, limit: usize) -> Result<Vec<u64>, Self::Error>;

    /// Deletes a parked start.
    fn unpark(&self, parked: &Parked) -> Result<(), Self::Error>;

    /// Where the waits stand.
    fn wait_head(&self) -> Result<WaitHead, Self::Error>;

    /// What there are waits for, and the paths that they are found by. Forgets what there are none of any more.
    fn wait_kinds(&self) -> Result<Vec<(String, String)>, Self::Error>;

    /// Stores a wait in the place of one with the same id, and its kind if that is new.
    fn put_wait(&self, wait: &WaitRow, is_new_kind: bool) -> Result<(), Self::Error>;

    /// The first cell after this one that has waits in a bucket.
    fn wait_cell(&self, bucket: Bucket<'_>, after: &str) -> Result<Option<String>, Self::Error>;

    /// The waits of a cell in a bucket after a number, in order; nothing for one that cannot be read.
    fn waits(
        &self,
        bucket: Bucket<'_>,
        cell: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Option<WaitRow>)>, Self::Error>;

    /// The waits after a number, in order; nothing for one that cannot be read.
    fn waits_after(&self, number: u64, limit: usize) -> Result<Vec<(u64, Option<WaitRow>)>, Self::Error>;

    /// A wait by its id; nothing for one that cannot be read.
    fn wait(&self, id: &str) -> Result<Option<WaitRow>, Self::Error>;

    /// Deletes waits, and stores of each that got the event that it did.
    fn end_waits(&self, event: u64, over: &[(&WaitRow, bool)]) -> Result<(), Self::Error>;

    /// Deletes waits that were over at a time, at most so many. Gives when the next one is over.
    fn expire_waits(&self, until: Timestamp, limit: usize) -> Result<Option<Timestamp>, Self::Error>;

    /// The first waits that got an event.
    fn met(&self, event: u64, limit: usize) -> Result<Vec<MetWait>, Self::Error>;

    /// Deletes the events up to this number, with their ids and the waits that they met, whether they can be read or not.
    /// Stores how far the topic is. Starts that are parked for them are found out to be about nothing.
    fn expire(&self, last: u64, through: u64) -> Result<(), Self::Error>;

    /// All webhooks by their ids; nothing for one that cannot be read.
    fn webhooks(&self) -> Result<Vec<(String, Option<Webhook>)>, Self::Error>;

    /// Stores a webhook in the place of the one that was there. One row.
    fn put_webhook(&self, webhook: &Webhook) -> Result<(), Self::Error>;

    /// Deletes a webhook and its deliveries.
    fn delete_webhook(&self, id: &str) -> Result<(), Self::Error>;

    /// Stores a delivery of a webhook in a slot, in the place of the one that was there. One row.
    fn put_delivery(&self, webhook: &str, slot: u64, kept: &Kept) -> Result<(), Self::Error>;

    /// The deliveries of a webhook, without their bodies. At most one for each slot.
    fn deliveries(&self, webhook: &str) -> Result<Vec<Kept>, Self::Error>;

    /// The delivery in a slot, with its body.
    fn delivery(&self, webhook: &str, slot: u64) -> Result<Option<Kept>, Self::Error>;
}

/// Where a topic stands, by its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of the latest event that was ever accepted.
    pub last: u64,
    /// Up to which event everything is done, or parked.
    pub through: u64,
    /// When the oldest event was accepted of which that can be read.
    pub oldest: Option<Timestamp>,
}

/// Where the waits of a topic stand, by its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitHead {
    /// The number of the latest one that there is.
    pub last: u64,
    /// Up to which one the events before it were looked at.
    pub looked: u64,
    /// When the first of them is over.
    pub ends: Option<Timestamp>,
}

/// An event to be stored.
#[derive(Clone, Debug)]
pub struct NewRow<'a> {
    /// It.
    pub event: &'a EventRow,
    /// Whether its sender gave it its id.
    pub has_own_id: bool,
}

/// A start that has to wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parked {
    /// The event's number.
    pub event: u64,
    /// The trigger.
    pub trigger: String,
}

/// What the host has to do for a topic.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Ask a cell to start the run of an event, or a queue to take its job, and say what became of it.
    Start(Box<EventStart>),
    /// Tell a cell of an event that runs of it wait for, and say what it answers.
    Meet(Box<Meeting>),
}

/// An event that runs of a cell wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Meeting {
    /// The number of the question.
    pub flight: u64,
    /// The cell.
    pub to: Place,
    /// The event.
    pub event: EventView,
    /// The waits.
    pub waits: Vec<WaitRow>,
}

/// A run to be started for an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventStart {
    /// The number of the question.
    pub flight: u64,
    /// The cell that gets it.
    pub to: Place,
    /// The cell that gets it if that one is full; nothing if it has to wait.
    #[serde(default)]
    pub spare: Option<Place>,
    /// By what it is known.
    pub triggered: Triggered,
    /// The workflow.
    pub workflow: String,
    /// The queue that gets a job instead, if the event does not start a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What it is started with.
    pub input: Payload,
    /// Its tags.
    pub tags: Vec<String>,
}

/// What became of such a question.
#[derive(Clone, Debug, PartialEq)]
pub enum StartEnd {
    /// The run is started, now or before.
    Started(RunId),
    /// The queue has the job, now or since before.
    Sent,
    /// It was refused, and would be refused again.
    Refused(Problem),
    /// It is at home in another cell, for good: that one has to be asked.
    Moved(Place),
    /// It was answered with no, for now.
    Declined(Problem),
    /// Nobody knows.
    Failed,
}
