//! What an app declares in code, as one document, and what a change of it means for a deployment.
//!
//! Owns: the [`Manifest`] that an app answers to `describe`, its content hash, and the [`Plan`] that the engine makes of
//! it. Each kind of thing that an app can declare is a list of its own: a later kind is one more list with a default.
//! Does not own: which of two manifests counts. That is the catalog's decision.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    PROTOCOL, Payload, Timestamp,
    access::RunSettings,
    lane::Flow,
    program::{Dispatch, WorkflowDescription},
    queue::Push,
    schedule::ScheduleSpec,
    text::hex,
    topic::{TriggerSpec, topic_of},
};

/// The binding that tells a Worker its own version: `[version_metadata]` in `wrangler.toml`.
pub const VERSION_BINDING: &str = "CF_VERSION_METADATA";

/// The largest manifest, in bytes of JSON: it is stored in one row.
pub const MANIFEST_BYTES_MAX: usize = 1_000_000;

/// The largest schema of a workflow's input, in bytes of JSON.
pub const SCHEMA_BYTES_MAX: usize = 65_536;

/// What an app declares in code: its answer to `describe`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this document's format: [`PROTOCOL`].
    pub protocol: u32,
    /// A content hash. Builds with the same declarations have the same hash.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The version of the Worker; absent if the Worker does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<WorkerVersion>,
    /// Its workflows, by name.
    pub workflows: Vec<WorkflowDescription>,
    /// Its schedules, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleDescription>,
    /// Its triggers, by topic and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerDescription>,
    /// Its handlers of jobs, by queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobDescription>,
}

/// A handler of a queue's jobs that an app declares.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDescription {
    /// The queue.
    pub queue: String,
    /// How it is called.
    pub push: Push,
}

/// A schedule that an app declares.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleDescription {
    /// Its name: the id of the schedule.
    pub name: String,
    /// What it is to do.
    pub spec: ScheduleSpec,
}

/// A trigger that an app declares.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerDescription {
    /// Its name: the id of the trigger in its topic.
    pub name: String,
    /// What it is to do. The events that it is about say which topic it belongs to.
    pub spec: TriggerSpec,
}

impl TriggerDescription {
    /// The topic that it belongs to; none, if it is about no events.
    pub fn topic(&self) -> Option<&str> {
        topic_of(&self.spec.on)
    }

    /// What it is called among all triggers: `order/charge`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.topic().unwrap_or_default(), self.name)
    }
}

/// A version of a Worker, as Cloudflare knows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerVersion {
    /// Its id.
    pub id: String,
    /// When it was uploaded: a later one is newer.
    pub at: Timestamp,
}

impl Manifest {
    /// What an app declares that has these workflows.
    pub fn new(mut workflows: Vec<WorkflowDescription>, version: Option<WorkerVersion>) -> Self {
        workflows.sort_by(|a, b| a.name.cmp(&b.name));
        let (schedules, triggers, jobs) = (Vec::new(), Vec::new(), Vec::new());
        Self { protocol: PROTOCOL, hash: String::new(), version, workflows, schedules, triggers, jobs }
            .sealed()
    }

    /// The same with these schedules.
    #[must_use]
    pub fn with_schedules(self, mut schedules: Vec<ScheduleDescription>) -> Self {
        schedules.sort_by(|a, b| a.name.cmp(&b.name));
        Self { schedules, ..self }.sealed()
    }

    /// The same with these triggers.
    #[must_use]
    pub fn with_triggers(self, mut triggers: Vec<TriggerDescription>) -> Self {
        triggers.sort_by_cached_key(TriggerDescription::full_name);
        Self { triggers, ..self }.sealed()
    }

    /// The same with these handlers of jobs.
    #[must_use]
    pub fn with_jobs(self, mut jobs: Vec<JobDescription>) -> Self {
        jobs.sort_by(|a, b| a.queue.cmp(&b.queue));
        Self { jobs, ..self }.sealed()
    }

    /// The same with the hash of its content.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { hash: self.content_hash(), ..self }
    }

    /// The hash that it says it has; that of its content, if it says none.
    pub fn identity(&self) -> String {
        if self.hash.is_empty() { self.content_hash() } else { self.hash.clone() }
    }

    /// SHA-256 of all that is declared, whichever Worker and version declares it.
    fn content_hash(&self) -> String {
        let Self { protocol: _, hash: _, version: _, workflows, schedules, triggers, jobs } = self;
        let mut digest = Sha256::new();
        digest.update(r#"{"workflows":["#);
        // One at a time, so that the tree of no more than one schema is in memory.
        for (index, workflow) in workflows.iter().enumerate() {
            digest.update(if index == 0 { "" } else { "," });
            digest.update(canonical(workflow));
        }
        digest.update("]");
        // What an app without any of these declares has the hash that it always had.
        digest_list(&mut digest, "schedules", schedules);
        digest_list(&mut digest, "triggers", triggers);
        digest_list(&mut digest, "jobs", jobs);
        digest.update("}");
        hex(&digest.finalize())
    }

    /// Every item that is declared.
    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        let workflows = self.workflows.iter().map(|workflow| Item::workflow(&workflow.name));
        let schedules = self.schedules.iter().map(|schedule| Item::schedule(&schedule.name));
        let jobs = self.jobs.iter().map(|job| Item::job(&job.queue));
        workflows.chain(schedules).chain(self.triggers.iter().map(Item::trigger)).chain(jobs)
    }
}

/// Adds a list of declarations, unless it is empty.
fn digest_list<T: Serialize>(digest: &mut Sha256, name: &str, declared: &[T]) {
    for (index, one) in declared.iter().enumerate() {
        digest.update(if index == 0 { format!(r#","{name}":["#) } else { ",".into() });
        digest.update(canonical(one));
    }
    digest.update(if declared.is_empty() { "" } else { "]" });
}

/// A declaration as text that has its fields in order. A schema that is no sensible JSON stays as it came: whoever takes
/// the manifest refuses it.
fn canonical<T: Serialize>(declared: &T) -> String {
    let mut text = String::new();
    match serde_json::to_value(declared) {
        Ok(value) => write_canonical(&value, &mut text),
        Err(_) => text = serde_json::to_string(declared).unwrap_or_default(),
    }
    text
}

/// Writes JSON with the fields of objects in order: what else is built along decides how `serde_json` orders them.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string());
        }
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                write_canonical(value, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
    }
}

/// Something that an app declares.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Item {
    /// What it is.
    pub kind: ItemKind,
    /// Its name among those of its kind.
    pub name: String,
}

impl Item {
    /// A workflow.
    pub fn workflow(name: &str) -> Self {
        Self { kind: ItemKind::Workflow, name: name.to_owned() }
    }

    /// A schedule.
    pub fn schedule(name: &str) -> Self {
        Self { kind: ItemKind::Schedule, name: name.to_owned() }
    }

    /// A handler of jobs.
    pub fn job(queue: &str) -> Self {
        Self { kind: ItemKind::Job, name: queue.to_owned() }
    }

    /// A trigger.
    pub fn trigger(trigger: &TriggerDescription) -> Self {
        Self { kind: ItemKind::Trigger, name: trigger.full_name() }
    }
}

/// What an app can declare.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A workflow.
    Workflow,
    /// A schedule.
    Schedule,
    /// A trigger, by its topic and its name in it: `order/charge`.
    Trigger,
    /// A handler of jobs, by its queue.
    Job,
}

impl ItemKind {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Schedule => "schedule",
            Self::Trigger => "trigger",
            Self::Job => "job",
        }
    }
}

/// What a manifest changes in a deployment: the answer to `POST /api/sync`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What happened to the manifest.
    pub outcome: Outcome,
    /// Its hash.
    pub hash: String,
    /// The version of the Worker that declares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<WorkerVersion>,
    /// New declarations, including retired ones that are declared again.
    pub added: Vec<Item>,
    /// Changed declarations.
    pub changed: Vec<ChangedItem>,
    /// Removed declarations.
    pub retired: Vec<Item>,
    /// Declarations that stay paused, because a person paused them.
    pub kept_paused: Vec<Item>,
}

impl Plan {
    /// Whether it changes anything that is declared.
    pub fn changes_something(&self) -> bool {
        !(self.added.is_empty() && self.changed.is_empty() && self.retired.is_empty())
    }
}

/// What happened to a manifest.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is in effect.
    Applied,
    /// It was only compared; nothing was stored.
    Planned,
    /// It is older than the one in effect, which stays in effect.
    Older,
}

/// Something whose declaration has changed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedItem {
    /// What.
    #[serde(flatten)]
    pub item: Item,
    /// The changed fields, with old and new value: `timeout_ms: 60000 -> none`.
    pub changes: Vec<String>,
}

/// A workflow: what the code declares, what an operator has changed, and what is in effect.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkflowView {
    /// What the code declares.
    #[serde(flatten)]
    pub declared: WorkflowDescription,
    /// Whether runs of it can be started.
    pub status: WorkflowStatus,
    /// Who paused it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// When it was removed from the code. It is deleted 30 days later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
    /// Settings by an operator, which take precedence over the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<RunSettings>,
    /// The settings in effect for runs that are started with a key of the namespace.
    pub effective: RunSettings,
}

/// A [`WorkflowView`] on its way in, with every field by its name: a text that is kept as it is cannot be read through
/// `serde(flatten)`.
#[derive(Deserialize)]
struct FlatView {
    name: String,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    retention_ms: Option<u64>,
    #[serde(default)]
    dispatch: Dispatch,
    #[serde(default)]
    key_required: bool,
    #[serde(default)]
    callback: Option<String>,
    #[serde(default)]
    flow: Option<Box<Flow>>,
    #[serde(default)]
    input_schema: Option<Payload>,
    status: WorkflowStatus,
    #[serde(default)]
    paused: Option<Paused>,
    #[serde(default)]
    retired_at: Option<Timestamp>,
    #[serde(default)]
    changed: Option<RunSettings>,
    effective: RunSettings,
}

impl<'de> Deserialize<'de> for WorkflowView {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let flat = FlatView::deserialize(deserializer)?;
        let FlatView { name, timeout_ms, retention_ms, dispatch, key_required, flow, .. } = flat;
        let FlatView { callback, input_schema, status, paused, retired_at, changed, effective, .. } = flat;
        let declared = WorkflowDescription {
            name,
            timeout_ms,
            retention_ms,
            dispatch,
            key_required,
            callback,
            flow,
            input_schema,
        };
        Ok(Self { declared, status, paused, retired_at, changed, effective })
    }
}

/// Whether runs of a workflow can be started.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowStatus {
    /// Runs can be started.
    Active,
    /// A person paused it. Starts are refused until a person resumes it.
    Paused,
    /// The code no longer declares it.
    Retired,
}

/// Whether a workflow is paused.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedWorkflow {
    /// The workflow.
    pub name: String,
    /// Who paused it, and when; absent if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
}

/// A pause by a person.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Since when.
    pub at: Timestamp,
    /// Who paused it, as in the audit log.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workflow(name: &str, schema: &str) -> WorkflowDescription {
        let schema = serde_json::from_str(schema).expect("it is JSON");
        WorkflowDescription { input_schema: schema, ..WorkflowDescription::named(name) }
    }

    #[test]
    fn the_hash_is_that_of_what_is_declared_in_whatever_order() {
        let (a, b) = (r#"{"type":"object","required":["x"]}"#, r#"{"required":["x"],"type":"object"}"#);
        let one = Manifest::new(vec![workflow("a", a), workflow("b", "null")], None);
        let version = WorkerVersion { id: "v".into(), at: Timestamp::from_millis(7) };
        let other = Manifest::new(vec![workflow("b", "null"), workflow("a", b)], Some(version));
        assert_eq!(one.hash, other.hash);
        assert_eq!(one.hash.len(), 64);
        let changed = Manifest::new(vec![workflow("a", a), workflow("b", "true")], None);
        assert_ne!(one.hash, changed.hash);
    }

    #[test]
    fn a_schema_is_kept_as_the_text_that_it_came_as() {
        let text = r#"{"type":"object", "required":["x"]}"#;
        let manifest = Manifest::new(vec![workflow("a", text)], None);
        let sent = serde_json::to_string(&manifest).expect("it can be written");
        assert!(sent.contains(text), "{sent}");
        let read: Manifest = serde_json::from_str(&sent).expect("it can be read");
        let schema = read.workflows.into_iter().next().and_then(|workflow| workflow.input_schema);
        assert_eq!(schema.as_ref().map(Payload::text), Some(text));
    }

    #[test]
    fn a_schema_that_is_no_sensible_json_has_a_hash_all_the_same() {
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        for schema in ["1e999", deep.as_str()] {
            let manifest = Manifest::new(vec![workflow("a", schema)], None);
            assert_eq!(manifest.hash.len(), 64);
        }
    }

    #[test]
    fn a_view_with_all_of_its_fields_is_read_as_it_was_written() {
        let paused = Paused { at: Timestamp::from_millis(1), by: "key:a".into() };
        let settings = RunSettings { timeout_ms: Some(1), retention_ms: Some(2), payload_bytes_max: Some(3) };
        let view = WorkflowView {
            declared: WorkflowDescription {
                timeout_ms: Some(7),
                retention_ms: Some(8),
                dispatch: Dispatch::Queued,
                key_required: true,
                callback: Some("https://example.com/done".into()),
                ..workflow("a", r#"{"type": "string"}"#)
            },
            status: WorkflowStatus::Paused,
            paused: Some(paused),
            retired_at: Some(Timestamp::from_millis(9)),
            changed: Some(settings),
            effective: settings,
        };
        let text = serde_json::to_string(&view).expect("it can be written");
        assert_eq!(serde_json::from_str::<WorkflowView>(&text).expect("it can be read"), view);
    }

    #[test]
    fn an_app_that_says_no_hash_gets_that_of_its_content() {
        let sealed = Manifest::new(vec![workflow("a", "null")], None);
        let unsealed = Manifest { hash: String::new(), ..sealed.clone() };
        assert_eq!(unsealed.identity(), sealed.hash);
    }

    #[test]
    fn schedules_are_part_of_the_hash_in_whatever_order() {
        let plain = Manifest::new(vec![workflow("a", "null")], None);
        let schedule = |name: &str| ScheduleDescription {
            name: name.into(),
            spec: serde_json::from_str(r#"{"workflow":"a","when":"every day"}"#).expect("a spec"),
        };
        let one = plain.clone().with_schedules(vec![schedule("x"), schedule("y")]);
        let other = plain.clone().with_schedules(vec![schedule("y"), schedule("x")]);
        assert_eq!(one, other);
        assert_ne!(one.hash, plain.hash);
        assert_eq!(
            one.items().map(|item| item.kind.as_str()).collect::<Vec<_>>(),
            ["workflow", "schedule", "schedule"]
        );
    }

    #[test]
    fn the_hash_of_a_manifest_stays_the_same_over_releases() {
        let manifest = Manifest::new(vec![workflow("greet", r#"{"type":"string"}"#)], None);
        let hash = "514de952daa806af6620ae595cf35d706a6f7715d4da2747d1484caad64938e3";
        assert_eq!(manifest.hash, hash);
    }
}
