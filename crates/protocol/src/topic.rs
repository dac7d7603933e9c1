//! Events, the topics that they belong to, and what they trigger.
//!
//! An event has a name of two parts, `order/paid`. The first names its topic.

use serde::{Deserialize, Serialize};

use crate::{Epoch, Event, Op, Outcome, Payload, Problem, RunId, Timestamp};

/// The most events that one request sends.
pub const BATCH_MAX: usize = 100;

/// The most characters of a topic.
pub const TOPIC_LENGTH_MAX: usize = 40;

/// The most characters of the rest of a name.
pub const PART_LENGTH_MAX: usize = 64;

/// The most bytes of what an event says.
pub const EVENT_BYTES_MAX: usize = 1_000_000;

/// The most bytes of what an event says that conditions look into.
pub const CONDITION_BYTES_MAX: usize = 131_072;

/// The most bytes of an event's id.
pub const EVENT_ID_LENGTH_MAX: usize = 128;

/// How long events are kept, and known by their ids: seven days.
pub const EVENT_RETENTION_MS: u64 = 7 * 86_400_000;

/// How long before a wait an event may have come that it still gets, unless the wait says more.
pub const LOOK_BACK_MS: u64 = 10_000;

/// The shortest time that a wait looks back: cell and topic go by different clocks.
pub const LOOK_BACK_MS_MIN: u64 = 1_000;

/// The longest time that a wait may look back: events are not kept for longer.
pub const LOOK_BACK_MS_MAX: u64 = EVENT_RETENTION_MS;

/// What the ids of events begin with that runs emit.
pub const RUN_PREFIX: &str = "run:";

/// What the ids of events begin with that messages of Cloudflare Queues have become.
pub const QUEUE_PREFIX: &str = "queue:";

/// What the names of waits for events begin with.
pub const WAIT_PREFIX: &str = "event:";

/// The most waits that an event is shown with.
pub const MET_SHOWN_MAX: usize = 100;

/// An event to be sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewEvent {
    /// Its name: a topic and what has happened, such as `order/paid`.
    pub name: String,
    /// By what it is known: an event with an id that the topic knows is not stored again. Without one, it gets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What it says.
    #[serde(default)]
    pub data: Payload,
}

impl NewEvent {
    /// One that a run emits: the same for the same run, life and operation.
    pub fn of_run(run: &RunId, life: u32, op: &Op, name: String, data: Payload) -> Self {
        let part = name.split_once('/').map_or("", |(_, part)| part);
        let life = if life == 1 { String::new() } else { format!(".{life}") };
        let id = format!("{RUN_PREFIX}{run}{life}.{}.{part}", op.occurrence);
        Self { name, id: Some(id), data }
    }

    /// What the journal has of an event that a run emits: a step whose result is the event's id.
    pub fn recorded(&self, op: Op) -> Event {
        let outcome = Outcome::Ok(Payload::encode(&self.id).unwrap_or_default());
        Event::StepFinished { op, attempt: 1, outcome, took_ms: None }
    }
}

/// What a wait for an event is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventWait {
    /// The events: `order/paid`, or all that begin alike, `order/*`.
    pub on: String,
    /// A condition on `event` and on `input`, what the run was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// How long before the wait an event may have come; [`LOOK_BACK_MS`], if that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looking_back_ms: Option<u64>,
    /// Whether the event cancels the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancels: bool,
}

/// A run that waits for an event, as its cell says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The run.
    pub run: RunId,
    /// Which life of it.
    pub life: u32,
    /// The wait.
    pub op: Op,
    /// In which activation it began. What is said of an earlier one does not end it.
    pub epoch: Epoch,
    /// The events.
    pub on: String,
    /// A condition on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// As much of the run's input as the condition goes by.
    #[serde(default)]
    pub input: Payload,
    /// The first time of an event that counts.
    pub from: Timestamp,
    /// When the wait is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The number of the event that does not count: it has started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<u64>,
    /// Whether the event cancels the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancels: bool,
}

/// Several events to be sent: the body of `POST /api/events`, unless it is one event.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBatch {
    /// The events, up to 100.
    pub events: Vec<NewEvent>,
}

/// What became of an event that was sent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// What.
    pub status: AcceptedStatus,
    /// Its name.
    pub name: String,
    /// Its id, if it was accepted, now or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// Whether an event was accepted.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AcceptedStatus {
    /// It is stored.
    #[serde(rename = "accepted")]
    Accepted,
    /// It was stored before, and has no further effect.
    #[serde(rename = "duplicate")]
    Duplicate,
    /// It was refused.
    #[serde(rename = "refused")]
    Refused,
}

/// What became of several events, in their order.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptedList {
    /// One for each.
    pub results: Vec<Accepted>,
}

/// An event, as `GET /api/events/{topic}/{event}` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When it was accepted.
    pub at: Timestamp,
    /// What it says.
    pub data: Payload,
    /// The tag of the runs that it has started: `GET /api/executions?tag=…` lists them.
    pub tag: String,
    /// Who has sent it: `run:` and a run's id, `webhook:` and a webhook's, `queue:` and a Cloudflare Queue's name, or a key;
    /// absent for the deployment's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The first waits that got it; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<MetWait>,
}

/// A wait that got an event.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetWait {
    /// The run that waited.
    pub run: RunId,
    /// The wait, as the run's journal names it; the event has cancelled the run if it begins with `cancel`.
    pub wait: String,
}

/// The topics that have ever had an event, a trigger or a webhook, by name: `GET /api/topics`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicList {
    /// Their names.
    pub topics: Vec<String>,
    /// Pass it as `after` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Events of a topic, newest first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventList {
    /// The events.
    pub events: Vec<EventView>,
    /// Where the next page begins: pass it on as `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// What a trigger is to do: the body of `PUT /api/triggers/{topic}/{trigger}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerSpec {
    /// The events that it is about: `order/paid`, or all that begin alike, `order/*`.
    pub on: String,
    /// A condition on the event, if not every one counts: `event.data.amount > 100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The workflow that each of the events starts a run of; either this or `queue`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workflow: String,
    /// The queue that each of the events becomes a job of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What the runs are started with, and what the jobs say.
    #[serde(default, skip_serializing_if = "TriggerInput::is_data")]
    pub input: TriggerInput,
    /// The tags of the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// What a run is started with by an event.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TriggerInput {
    /// What the event says.
    #[default]
    #[serde(rename = "data")]
    Data,
    /// The event: `id`, `name`, `at` and `data`.
    #[serde(rename = "event")]
    Event,
}

impl TriggerInput {
    /// Whether it is what nobody has to say.
    pub fn is_data(&self) -> bool {
        *self == Self::Data
    }
}

/// A trigger, as `GET /api/triggers/{topic}/{trigger}` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerView {
    /// Its topic.
    pub topic: String,
    /// Its id.
    pub id: String,
    /// What it is to do.
    pub spec: TriggerSpec,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Who has changed it last.
    pub changed_by: String,
    /// What the code declares, if it is declared in code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredTrigger>,
    /// Since when and by whom it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedTrigger>,
    /// What became of its events so far.
    pub counts: TriggerCounts,
    /// The latest event that has started a run, or become a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastStart>,
    /// The latest events that started no run, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<TriggerFailure>,
}

/// What the code declares of a trigger, and what became of that.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredTrigger {
    /// What the code declares.
    pub spec: TriggerSpec,
    /// Whether an operator has changed it: then `spec` of the trigger is the operator's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    /// When it was removed from the code. It starts no more runs, and is deleted 30 days later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
}

/// Since when a trigger is paused.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedTrigger {
    /// Since when.
    pub at: Timestamp,
    /// Who has paused it.
    pub by: String,
}

/// What became of a trigger's events. Kept about once a second: a crash may lose or repeat the last of them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerCounts {
    /// How many have started a run, or become a job.
    pub started: u64,
    /// How many would have started a run that was refused for good, or could not be started for six days.
    pub refused: u64,
    /// For how many the condition failed: a field was missing, or of another type.
    pub failed: u64,
    /// How many wait, because a limit was reached, the workflow is paused, or a cell did not answer.
    pub waiting: u64,
}

/// The latest event of a trigger that has had its effect.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStart {
    /// The event's id.
    pub event: String,
    /// When that was.
    pub at: Timestamp,
    /// The run that it has started; absent if it has become a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

/// Why an event has started no run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerFailure {
    /// The event's id.
    pub event: String,
    /// When that was found.
    pub at: Timestamp,
    /// The reason.
    pub why: String,
}

/// Triggers of a topic, by their ids.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TriggerList {
    /// The triggers.
    pub triggers: Vec<TriggerView>,
    /// The ids of those that this release cannot read. Replace or delete them, or deploy the release that stored them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// What has started a run, if an event has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triggered {
    /// The topic.
    pub topic: String,
    /// The trigger.
    pub trigger: String,
    /// The number of the event in its topic.
    pub event: u64,
}

impl Triggered {
    /// By which tag the runs of an event are found.
    pub fn tag(topic: &str, event: u64) -> String {
        format!("event:{topic}/{event}")
    }
}

/// Whether a text may be a topic.
pub fn is_topic(text: &str) -> bool {
    text.len() <= TOPIC_LENGTH_MAX && is_part(text)
}

/// Whether a text may be the rest of an event's name.
pub fn is_part(text: &str) -> bool {
    (1..=PART_LENGTH_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The topic and the rest of an event's name, if it is one.
pub fn parts(name: &str) -> Option<(&str, &str)> {
    name.split_once('/').filter(|(topic, rest)| is_topic(topic) && is_part(rest))
}

/// Whether a text may be an event's id.
pub fn is_event_id(text: &str) -> bool {
    (1..=EVENT_ID_LENGTH_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b'?' | b'#' | b'%' | b'"' | b'\\'))
        && !matches!(text, "." | "..")
}

/// Whether an id looks like those that events of runs have, or those that topics give to events that come without one: a
/// number, the mark of the request, and the place in it. No caller may choose such a one: it could be that of another event.
pub fn is_given_id(text: &str) -> bool {
    if text.starts_with(RUN_PREFIX) || text.starts_with(QUEUE_PREFIX) {
        return true;
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = text.split('-');
    let (number, mark, place) = (parts.next(), parts.next(), parts.next());
    number.is_some_and(is_number)
        && mark.is_some_and(RunId::is_suffix)
        && place.is_some_and(is_number)
        && parts.next().is_none()
}

/// Whether a trigger is about events of this name. The last character of a pattern may stand for any that follow.
pub fn is_on(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

/// The topic of a trigger's pattern, if it is one.
pub fn topic_of(pattern: &str) -> Option<&str> {
    let (topic, rest) = pattern.split_once('/').filter(|(topic, _)| is_topic(topic))?;
    let is_pattern = match rest.strip_suffix('*') {
        Some("") => true,
        Some(beginning) => is_part(beginning),
        None => is_part(rest),
    };
    is_pattern.then_some(topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_two_parts() {
        assert_eq!(parts("order/paid"), Some(("order", "paid")));
        for name in ["", "order", "order/", "/paid", "order/paid/x", "order/*", "or der/paid", ".order/paid"]
        {
            assert_eq!(parts(name), None, "{name}");
        }
    }

    #[test]
    fn ids_that_topics_give_are_told_from_those_of_callers() {
        let given = format!("17-{}-0", RunId::suffix_from(7));
        assert!(is_event_id(&given) && is_given_id(&given));
        let op = Op { kind: crate::OpKind::Step, name: "emit".into(), occurrence: 3 };
        let run = "default-1-0-7-1hnsfgvjpac3".parse().expect("a run");
        let emitted = NewEvent::of_run(&run, 2, &op, "order/paid".into(), Payload::null());
        let id = emitted.id.expect("it has one");
        assert!(is_event_id(&id) && is_given_id(&id), "{id}");
        for own in ["17", "evt_1", "2026-11-16", "1-2-3", "17-evt-0", "17-1hnsfgvjpac3", "x-1hnsfgvjpac3-0"] {
            assert!(is_event_id(own) && !is_given_id(own), "{own}");
        }
    }

    #[test]
    fn patterns_end_with_what_may_follow() {
        for (pattern, name, is) in [
            ("order/paid", "order/paid", true),
            ("order/paid", "order/paid2", false),
            ("order/*", "order/paid", true),
            ("order/pa*", "order/paid", true),
            ("order/pa*", "order/shipped", false),
        ] {
            assert_eq!(is_on(pattern, name), is, "{pattern} {name}");
            assert_eq!(topic_of(pattern), Some("order"));
        }
        for pattern in ["*", "*/paid", "order", "order/", "order/*d", "order/**", "order/a/*", "or*/paid"] {
            assert_eq!(topic_of(pattern), None, "{pattern}");
        }
    }
}
