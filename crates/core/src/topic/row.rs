//! What a topic stores: events and triggers.

use std::cell::OnceCell;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use stepwell_protocol::{
    Code, Payload, Problem, RunId, Timestamp,
    manifest::TriggerDescription,
    topic::{
        CONDITION_BYTES_MAX, DeclaredTrigger, EventView, LastStart, PausedTrigger, TriggerCounts,
        TriggerFailure, TriggerInput, TriggerSpec, TriggerView, Triggered, is_on, topic_of,
    },
};

use crate::expression::{Effort, Expression, Failed};

/// How many failures are shown.
const FAILURES_MAX: usize = 5;

/// What conditions of triggers go by.
const NAMES: [&str; 1] = ["event"];

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Its number in the topic.
    pub number: u64,
    /// When it was accepted.
    pub at: Timestamp,
    /// The generation of the pool that its runs are at home in, whenever they are started.
    pub generation: u32,
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// What it says.
    pub data: Payload,
    /// Who has sent it; nobody in particular, if that is not said.
    pub source: Option<String>,
}

impl EventRow {
    /// As people see it.
    pub fn view(self, topic: &str) -> EventView {
        EventView {
            id: self.id,
            name: self.name,
            at: self.at,
            data: self.data,
            tag: Triggered::tag(topic, self.number),
            source: self.source,
            waits: Vec::new(),
        }
    }

    /// As expressions see it.
    pub fn value(&self) -> Shown<'_> {
        Shown { event: self, value: OnceCell::new(), effort: Effort::default() }
    }
}

/// An event as expressions see it. Its data is looked into once, and only if one of them asks.
#[derive(Debug)]
pub struct Shown<'a> {
    event: &'a EventRow,
    value: OnceCell<Json>,
    /// What all of them may spend together.
    effort: Effort,
}

impl Shown<'_> {
    /// What paths of the event lead into.
    pub(super) fn value(&self) -> Result<&Json, Failed> {
        let EventRow { id, name, at, data, .. } = self.event;
        if data.size() > CONDITION_BYTES_MAX {
            return Err(Failed::TooLarge);
        }
        Ok(self.value.get_or_init(|| {
            // What is no JSON that can be looked into has no data.
            let data = data.read::<Json>().unwrap_or_default();
            json!({"id": id, "name": name, "at": at, "data": data})
        }))
    }

    /// Whether a condition holds on the event, and on what else has a name.
    pub(super) fn meets(&self, when: &Expression, others: &[(&str, &Json)]) -> Result<bool, Failed> {
        let names: Vec<_> = [("event", self.value()?)].into_iter().chain(others.iter().copied()).collect();
        when.holds_within(&self.effort, &names)
    }

    /// Whether anybody has asked.
    #[cfg(test)]
    pub fn was_read(&self) -> bool {
        self.value.get().is_some()
    }
}

/// A trigger as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// By what it is known in its topic.
    pub id: String,
    /// What it is to do.
    pub spec: TriggerSpec,
    /// It is about events after this one.
    pub after: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Who has changed it last.
    pub changed_by: String,
    /// What the code declares, if it is declared in code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredTrigger>,
    /// Since when it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedTrigger>,
    /// What became of its events.
    pub counts: TriggerCounts,
    /// The latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastStart>,
    /// The latest events that started no run, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<TriggerFailure>,
}

/// An event as a run is started with it. What it says is not looked into.
#[derive(Serialize)]
struct Whole<'a> {
    id: &'a str,
    name: &'a str,
    at: Timestamp,
    data: &'a Payload,
}

/// Whether an event is one that a trigger is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meets {
    Yes,
    No,
    /// Its condition has no value.
    Failed(Failed),
}

/// Reads the condition of a trigger.
pub(super) fn condition(topic: &str, spec: &TriggerSpec) -> Result<Option<Expression>, Problem> {
    let bad = |detail: String| Problem::new(Code::InvalidRequest, detail);
    if topic_of(&spec.on) != Some(topic) {
        let detail = format!(
            "`on` names no events of the topic '{topic}'. Write '{topic}/NAME', '{topic}/BEGINNING*' or '{topic}/*'."
        );
        return Err(bad(detail));
    }
    let parsed = spec.when.as_deref().map(|when| Expression::parse(when, &NAMES)).transpose();
    parsed.map_err(|error| bad(format!("`when` is no expression: {error}.")))
}

/// A run that an event starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOf {
    /// The trigger's name.
    pub trigger: String,
    /// The workflow.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
}

/// The runs that an event starts, by these triggers; or what is wrong with one of those.
pub fn runs_of(triggers: &[TriggerDescription], event: &EventRow) -> Result<Vec<RunOf>, String> {
    let value = event.value();
    let mut runs = Vec::new();
    for TriggerDescription { name, spec } in triggers.iter().filter(|trigger| trigger.spec.queue.is_none()) {
        let topic = topic_of(&spec.on).unwrap_or_default();
        let when = condition(topic, spec).map_err(|bad| format!("trigger '{name}': {}", bad.detail))?;
        let trigger = Trigger::new(event.at, 0, name.clone(), spec.clone(), String::new());
        if trigger.meets(when.as_ref(), event, &value) == Meets::Yes {
            let (trigger, input) = (name.clone(), trigger.input(event));
            runs.push(RunOf { trigger, workflow: spec.workflow.clone(), input });
        }
    }
    Ok(runs)
}

impl Trigger {
    /// A new one, for events after this one.
    pub fn new(now: Timestamp, after: u64, id: String, spec: TriggerSpec, by: String) -> Self {
        Self {
            id,
            spec,
            after,
            created_at: now,
            changed_at: now,
            changed_by: by,
            declared: None,
            paused: None,
            counts: TriggerCounts::default(),
            last: None,
            failures: Vec::new(),
        }
    }

    /// Whether it starts runs: it is neither paused nor retired.
    pub(super) fn is_active(&self) -> bool {
        self.paused.is_none() && self.retired_at().is_none()
    }

    /// Whether an event may be one that it is about, whatever its condition says.
    pub(super) fn is_about(&self, event: &EventRow) -> bool {
        self.is_active() && event.number > self.after && is_on(&self.spec.on, &event.name)
    }

    pub(super) fn meets(&self, when: Option<&Expression>, event: &EventRow, value: &Shown<'_>) -> Meets {
        if !self.is_about(event) {
            return Meets::No;
        }
        match when.map_or(Ok(true), |when| value.meets(when, &[])) {
            Ok(true) => Meets::Yes,
            Ok(false) => Meets::No,
            Err(failed) => Meets::Failed(failed),
        }
    }

    /// What a run is started with by an event.
    pub(super) fn input(&self, event: &EventRow) -> Payload {
        match self.spec.input {
            TriggerInput::Data => event.data.clone(),
            TriggerInput::Event => {
                let EventRow { id, name, at, data, .. } = event;
                Payload::encode(&Whole { id, name, at: *at, data }).unwrap_or_default()
            }
        }
    }

    /// Counts an event that has started a run, or become a job.
    pub(super) fn started(&mut self, now: Timestamp, event: &str, run: Option<RunId>) {
        self.counts.started = self.counts.started.saturating_add(1);
        self.last = Some(LastStart { event: event.to_owned(), at: now, run });
    }

    /// Counts an event that starts none.
    pub(super) fn refused(&mut self, now: Timestamp, event: &str, why: String) {
        self.counts.refused = self.counts.refused.saturating_add(1);
        self.note(now, event, why);
    }

    /// Counts an event for which the condition has no value.
    pub(super) fn failed(&mut self, now: Timestamp, event: &str, failed: Failed) {
        self.counts.failed = self.counts.failed.saturating_add(1);
        self.note(now, event, format!("{failed}."));
    }

    /// Remembers why an event has started no run, or has not yet.
    pub(super) fn note(&mut self, now: Timestamp, event: &str, why: String) {
        self.failures.retain(|known| known.event != event);
        self.failures.insert(0, TriggerFailure { event: event.to_owned(), at: now, why });
        self.failures.truncate(FAILURES_MAX);
    }

    /// As people see it.
    pub fn view(&self, topic: &str) -> TriggerView {
        TriggerView {
            topic: topic.to_owned(),
            id: self.id.clone(),
            spec: self.spec.clone(),
            created_at: self.created_at,
            changed_at: self.changed_at,
            changed_by: self.changed_by.clone(),
            declared: self.declared.clone(),
            paused: self.paused.clone(),
            counts: self.counts,
            last: self.last.clone(),
            failures: self.failures.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> EventRow {
        let data = Payload::from_text(data.to_owned()).expect("it is JSON");
        EventRow {
            number: 2,
            at: Timestamp::from_millis(1),
            generation: 1,
            name: name.into(),
            id: "e".into(),
            data,
            source: None,
        }
    }

    fn trigger(on: &str, when: Option<&str>) -> (Trigger, Option<Expression>) {
        let spec = TriggerSpec {
            on: on.into(),
            when: when.map(str::to_owned),
            workflow: "w".into(),
            queue: None,
            input: TriggerInput::Data,
            tags: Vec::new(),
        };
        let when = condition("order", &spec).expect("it can be read");
        (Trigger::new(Timestamp::from_millis(1), 1, "t".into(), spec, "key:1".into()), when)
    }

    #[test]
    fn data_is_looked_into_only_for_a_condition_on_such_an_event() {
        let paid = event("order/paid", r#"{"amount": 7}"#);
        for (on, when, meets, was_read) in [
            ("order/*", None, Meets::Yes, false),
            ("order/shipped", Some("event.data.amount == 7"), Meets::No, false),
            ("order/paid", Some("event.data.amount == 7"), Meets::Yes, true),
        ] {
            let ((trigger, when), value) = (trigger(on, when), paid.value());
            assert_eq!(trigger.meets(when.as_ref(), &paid, &value), meets, "{on}");
            assert_eq!(value.was_read(), was_read, "{on}");
        }
    }

    #[test]
    fn data_that_is_too_large_for_conditions_starts_runs_without_one() {
        let large = |bytes: usize| event("order/paid", &format!("\"{}\"", "x".repeat(bytes - 2)));
        let condition = "event.name == 'order/paid'";
        for (bytes, when, meets) in [
            (CONDITION_BYTES_MAX, Some(condition), Meets::Yes),
            (CONDITION_BYTES_MAX + 1, Some(condition), Meets::Failed(Failed::TooLarge)),
            (CONDITION_BYTES_MAX + 1, None, Meets::Yes),
        ] {
            let (event, (trigger, when)) = (large(bytes), trigger("order/*", when));
            assert_eq!(trigger.meets(when.as_ref(), &event, &event.value()), meets, "{bytes}");
        }
    }

    #[test]
    fn all_conditions_on_an_event_share_what_they_may_compare() {
        let list = format!("{:?}", vec![0; 30_000]);
        let event = event("order/paid", &format!(r#"{{"a":{list},"b":1}}"#));
        let (trigger, when) = trigger("order/*", Some("event.data.a == event.data.a"));
        let value = event.value();
        let meets: Vec<_> = (0..100).map(|_| trigger.meets(when.as_ref(), &event, &value)).collect();
        assert!(
            meets.starts_with(&[Meets::Yes; 8]) && meets.ends_with(&[Meets::Failed(Failed::TooMuch); 80])
        );
    }
}
