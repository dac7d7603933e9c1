//! What the app declares, and what people have done to it: which manifest holds, what was retired, what is paused.
//!
//! Owns: the three layers of a declared thing. What the code *declares* comes by a sync; what an operator has *changed*
//! (a pause here, settings in the catalog) is in rows of its own, which no sync touches; what is *effective* is both
//! together ([`Layers::views`]).
//!
//! Invariants: a manifest with a mistake changes nothing. One that is older than the one that holds does not take its
//! place, unless a person asks for it or nothing newer was seen for [`ROLLBACK_MS`]. No sync un-pauses anything.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepwell_protocol::{
    Code, PROTOCOL, Payload, Timestamp,
    access::{RunSettings, Settings},
    manifest::{
        ChangedItem, Item, ItemKind, MANIFEST_BYTES_MAX, Manifest, Outcome, Paused, Plan, SCHEMA_BYTES_MAX,
        WorkerVersion, WorkflowStatus, WorkflowView,
    },
    program::{RESERVED_PREFIX, WorkflowDescription, is_reserved},
    queue::URL_LENGTH_MAX,
    text::is_visible,
};

use super::{
    Rejection, TIME_MS_MAX, TopicRevision, WORKFLOWS_MAX, audit::changed, handlers::check_handlers,
    schedules::check_schedules, triggers::check_triggers,
};
use crate::{
    lane::{check_flow, check_shared},
    ordered::{OrdMap, OrdSet},
    sorting::{sort, sort_by},
};

/// For how long nothing newer was seen before an older manifest takes the place of the one that holds: a rollback.
pub const ROLLBACK_MS: u64 = 600_000;

/// How long what was retired is kept: 30 days.
pub const RETIRED_MS: u64 = 30 * 86_400_000;

/// The most workflows of a manifest.
pub const DECLARED_MAX: usize = 1_000;

/// The most workflows that are kept after they were retired. The oldest are forgotten first.
pub const RETIRED_MAX: usize = 1_000;

/// How many mistakes of a manifest are named.
const MISTAKES_NAMED_MAX: usize = 20;

/// The longest name of a workflow, in bytes.
pub(super) const NAME_LENGTH_MAX: usize = 128;

/// What the app declares, and what people have done to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// The manifest that holds.
    pub(super) holds: Option<Rc<Holds>>,
    pub(super) retired: OrdMap<String, Rc<Retired>>,
    pub(super) paused: OrdMap<String, Paused>,
    /// Which revision of the schedules their station has heard of.
    pub(super) heard: u64,
    /// How far topics are with their triggers.
    pub(super) topics: OrdMap<String, TopicRevision>,
    /// How far queues are with their handlers.
    pub(super) queues: OrdMap<String, TopicRevision>,
}

/// The manifest that holds, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// What is declared.
    pub manifest: Manifest,
    /// Since when an older one comes and this one does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_since: Option<Timestamp>,
    /// Grows whenever other schedules are declared; 0, if none ever were.
    #[serde(default)]
    pub revision: u64,
}

/// A workflow that is not declared any more, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// What was declared last.
    pub workflow: WorkflowDescription,
    /// When it was found to be declared no more.
    pub at: Timestamp,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The app declares this.
    Sync {
        /// What.
        manifest: Box<Manifest>,
        /// Whether a person has asked for it: then an older one counts too.
        is_explicit: bool,
        /// The zones of its schedules that nobody knows.
        unknown_zones: Vec<String>,
    },
    /// The station of schedules knows what this revision declares.
    Heard {
        /// Which.
        revision: u64,
    },
    /// A topic knows which triggers this revision declares for it.
    TopicHeard {
        /// The topic.
        topic: String,
        /// Which.
        revision: u64,
    },
    /// A queue knows which handler this revision declares for it.
    QueueHeard {
        /// The queue.
        queue: String,
        /// Which.
        revision: u64,
    },
    /// Refuse starts of a workflow.
    Pause {
        /// Which.
        workflow: String,
    },
    /// Refuse them no more.
    Resume {
        /// Which.
        workflow: String,
    },
}

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// This manifest holds. What it changes is for the audit log; nothing, if nothing that is declared has changed.
    Holds(Rc<Holds>, Option<String>),
    /// A workflow was retired.
    Retired(Rc<Retired>),
    /// A workflow is not retired any more: it has come back, or was forgotten.
    Unretired(String),
    /// A workflow was paused.
    Paused(String, Paused),
    /// A workflow was resumed.
    Resumed(String),
    /// The station of schedules has heard of a revision.
    Heard(u64),
    /// How far a topic is with its triggers; nothing, if that need not be remembered any more.
    Topic(String, Option<TopicRevision>),
    /// How far a queue is with its handler; nothing, if that need not be remembered any more.
    Queue(String, Option<TopicRevision>),
}

impl Declared {
    /// What to record about a change.
    pub(super) fn decide(
        &self,
        now: Timestamp,
        actor: &str,
        change: Change,
    ) -> Result<Vec<Changed>, Rejection> {
        match change {
            Change::Sync { manifest, is_explicit, unknown_zones } => {
                self.sync(now, *manifest, is_explicit, &unknown_zones)
            }
            Change::Heard { revision } if revision > self.heard => Ok(vec![Changed::Heard(revision)]),
            Change::TopicHeard { topic, revision } => Ok(self.topic_heard(&topic, revision)),
            Change::QueueHeard { queue, revision } => Ok(self.queue_heard(&queue, revision)),
            Change::Pause { workflow } if self.paused.contains_key(&workflow) => Ok(Vec::new()),
            Change::Pause { workflow } => {
                if self.paused.len() >= WORKFLOWS_MAX {
                    let detail = format!("{WORKFLOWS_MAX} workflows of the namespace are paused.");
                    return Err(Rejection::new(Code::TooMany, detail));
                }
                Ok(vec![Changed::Paused(workflow, Paused { at: now, by: actor.to_owned() })])
            }
            Change::Resume { workflow } if self.paused.contains_key(&workflow) => {
                Ok(vec![Changed::Resumed(workflow)])
            }
            Change::Heard { .. } | Change::Resume { .. } => Ok(Vec::new()),
        }
    }

    fn sync(
        &self,
        now: Timestamp,
        manifest: Manifest,
        is_explicit: bool,
        unknown_zones: &[String],
    ) -> Result<Vec<Changed>, Rejection> {
        check_manifest(&manifest, unknown_zones)?;
        let older_since = match self.verdict(now, &manifest, is_explicit) {
            Verdict::Holds => {
                let plan = self.plan(&manifest, Outcome::Applied);
                let mut entries = self.retire(now, &manifest);
                entries.extend(self.retell(now, &manifest));
                entries.extend(self.retell_queues(now, &manifest));
                let said = plan.changes_something().then(|| in_words(&plan));
                let revision = self.revision_of(now, &manifest);
                entries.push(Changed::Holds(Rc::new(Holds { manifest, older_since: None, revision }), said));
                return Ok(entries);
            }
            // The one that holds is still there: whatever is older beside it is on its way out.
            Verdict::HeldBefore => None,
            Verdict::Waits { since } => Some(since),
        };
        let stays = self.holds.as_deref().filter(|holds| holds.older_since != older_since);
        let stays = stays.map(|holds| Holds { older_since, ..holds.clone() });
        Ok(stays.map(|holds| Changed::Holds(Rc::new(holds), None)).into_iter().collect())
    }

    /// What a sync says about a manifest, before it is let in.
    pub fn preview(
        &self,
        now: Timestamp,
        manifest: &Manifest,
        is_explicit: bool,
        dry_run: bool,
        unknown_zones: &[String],
    ) -> Result<Plan, Rejection> {
        check_manifest(manifest, unknown_zones)?;
        let outcome = match self.verdict(now, manifest, is_explicit) {
            Verdict::Holds | Verdict::HeldBefore | Verdict::Waits { .. } if dry_run => Outcome::Planned,
            Verdict::Holds | Verdict::HeldBefore => Outcome::Applied,
            Verdict::Waits { .. } => Outcome::Older,
        };
        Ok(self.plan(manifest, outcome))
    }

    /// Whether a manifest takes the place of the one that holds.
    fn verdict(&self, now: Timestamp, manifest: &Manifest, is_explicit: bool) -> Verdict {
        let since = self.holds.as_deref().and_then(|holds| holds.older_since);
        match (self.age(manifest), since) {
            (Age::Same, _) => Verdict::HeldBefore,
            (Age::Newer, _) => Verdict::Holds,
            (Age::Older, _) if is_explicit => Verdict::Holds,
            (Age::Older, Some(since)) if since.plus_millis(ROLLBACK_MS) <= now => Verdict::Holds,
            (Age::Older, since) => Verdict::Waits { since: since.unwrap_or(now) },
        }
    }

    /// How a manifest compares with the one that holds.
    fn age(&self, manifest: &Manifest) -> Age {
        let Some(holds) = self.holds.as_deref() else { return Age::Newer };
        let time = |version: &Option<WorkerVersion>| version.as_ref().map(|version| version.at);
        let (held, came) = (&holds.manifest.version, &manifest.version);
        let is_same = held.as_ref().map(|version| &version.id) == came.as_ref().map(|version| &version.id)
            && holds.manifest.identity() == manifest.identity();
        match (time(held), time(came)) {
            _ if is_same => Age::Same,
            // Who does not know its version comes before all who do; among themselves, the last one counts.
            (Some(_), None) => Age::Older,
            (Some(held), Some(came)) if came < held => Age::Older,
            (None, None | Some(_)) | (Some(_), Some(_)) => Age::Newer,
        }
    }

    fn plan(&self, manifest: &Manifest, outcome: Outcome) -> Plan {
        let before = self.by_name();
        let mut plan = Plan {
            outcome,
            hash: manifest.identity(),
            version: manifest.version.clone(),
            added: Vec::new(),
            changed: Vec::new(),
            retired: Vec::new(),
            kept_paused: Vec::new(),
        };
        for workflow in &manifest.workflows {
            let item = Item::workflow(&workflow.name);
            if self.paused.contains_key(&workflow.name) {
                plan.kept_paused.push(item.clone());
            }
            match before.get(workflow.name.as_str()) {
                None => plan.added.push(item),
                Some(declared) if *declared == workflow => {}
                Some(declared) => {
                    // Schemas are compared as texts first; one that is only written otherwise is the same.
                    let changes = changed(&fields(declared), &fields(workflow));
                    if !changes.is_empty() {
                        plan.changed.push(ChangedItem { item, changes });
                    }
                }
            }
        }
        let after: OrdSet<_> = manifest.workflows.iter().map(|workflow| workflow.name.as_str()).collect();
        plan.retired = before.into_keys().filter(|name| !after.contains(name)).map(Item::workflow).collect();
        self.plan_schedules(manifest, &mut plan);
        self.plan_triggers(manifest, &mut plan);
        self.plan_handlers(manifest, &mut plan);
        plan
    }

    /// What is declared now, by name.
    fn by_name(&self) -> OrdMap<&str, &WorkflowDescription> {
        let workflows = self.holds.iter().flat_map(|holds| &holds.manifest.workflows);
        workflows.map(|workflow| (workflow.name.as_str(), workflow)).collect()
    }

    /// What leaves the code is kept for a while; what comes back is not retired any more.
    fn retire(&self, now: Timestamp, manifest: &Manifest) -> Vec<Changed> {
        let after: OrdSet<_> = manifest.workflows.iter().map(|workflow| workflow.name.as_str()).collect();
        let gone = self.by_name().into_iter().filter(|(name, _)| !after.contains(name));
        let gone = gone.map(|(_, workflow)| Rc::new(Retired { workflow: workflow.clone(), at: now }));
        let mut entries: Vec<_> = gone.map(Changed::Retired).collect();
        let excess = (self.retired.len() + entries.len()).saturating_sub(RETIRED_MAX);
        let mut oldest: Vec<_> = self.retired.iter().map(|(name, retired)| (retired.at, name)).collect();
        sort(&mut oldest);
        let forgotten: OrdSet<_> = oldest.into_iter().take(excess).map(|(_, name)| name).collect();
        let is_over = |name: &&String| after.contains(name.as_str()) || forgotten.contains(name);
        entries.extend(self.retired.keys().filter(is_over).cloned().map(Changed::Unretired));
        entries
    }

    /// Forgets what was retired long ago.
    pub(super) fn tidy(&self, now: Timestamp) -> impl Iterator<Item = Changed> {
        let over = self.retired.iter().filter(move |(_, retired)| retired.at.plus_millis(RETIRED_MS) <= now);
        over.map(|(name, _)| Changed::Unretired(name.clone()))
    }

    pub(super) fn apply(&mut self, changed: &Changed) {
        match changed {
            Changed::Holds(holds, _) => self.holds = Some(holds.clone()),
            Changed::Retired(retired) => {
                self.retired.insert(retired.workflow.name.clone(), retired.clone());
            }
            Changed::Unretired(name) => {
                self.retired.remove(name);
            }
            Changed::Paused(workflow, paused) => {
                self.paused.insert(workflow.clone(), paused.clone());
            }
            Changed::Resumed(workflow) => {
                self.paused.remove(workflow);
            }
            Changed::Heard(revision) => self.heard = *revision,
            Changed::Topic(topic, Some(told)) => {
                self.topics.insert(topic.clone(), *told);
            }
            Changed::Topic(topic, None) => {
                self.topics.remove(topic);
            }
            Changed::Queue(queue, Some(told)) => {
                self.queues.insert(queue.clone(), *told);
            }
            Changed::Queue(queue, None) => {
                self.queues.remove(queue);
            }
        }
    }

    /// The workflows whose starts are refused.
    pub fn paused(&self) -> impl Iterator<Item = (&str, &Paused)> {
        self.paused.iter().map(|(workflow, paused)| (workflow.as_str(), paused))
    }

    /// The manifest that holds.
    pub fn holds(&self) -> Option<&Manifest> {
        self.holds.as_deref().map(|holds| &holds.manifest)
    }

    /// What people have changed, and what was retired.
    pub(super) fn layers(&self, settings: Settings) -> Layers {
        let retired = self.retired.values().map(|retired| Retired::clone(retired)).collect();
        Layers { settings, paused: self.paused.clone(), retired }
    }
}

/// What is around the layer that the code declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// What is set in the namespace.
    pub settings: Settings,
    /// What people have paused.
    pub paused: OrdMap<String, Paused>,
    /// What is not declared any more.
    pub retired: Vec<Retired>,
}

impl Layers {
    /// All layers of these workflows, and of those that were retired, by name.
    pub fn views(&self, declared: Vec<WorkflowDescription>) -> Vec<WorkflowView> {
        let names: OrdSet<_> = declared.iter().map(|workflow| workflow.name.clone()).collect();
        let gone = self.retired.iter().filter(|retired| !names.contains(&retired.workflow.name));
        let gone = gone.map(|retired| self.view(retired.workflow.clone(), Some(retired.at)));
        let mut views: Vec<_> = gone.collect();
        views.extend(declared.into_iter().map(|workflow| self.view(workflow, None)));
        sort_by(&mut views, |a, b| a.declared.name.cmp(&b.declared.name));
        views
    }

    fn view(&self, declared: WorkflowDescription, retired_at: Option<Timestamp>) -> WorkflowView {
        let Settings { runs, workflows, .. } = &self.settings;
        let changed = workflows.get(&declared.name).copied();
        let of = changed.unwrap_or_default();
        let effective = RunSettings {
            timeout_ms: of.timeout_ms.or(declared.timeout_ms).or(runs.timeout_ms),
            retention_ms: of.retention_ms.or(declared.retention_ms).or(runs.retention_ms),
            payload_bytes_max: of.payload_bytes_max.or(runs.payload_bytes_max),
        };
        let paused = self.paused.get(&declared.name).cloned();
        let status = match (retired_at, &paused) {
            (Some(_), _) => WorkflowStatus::Retired,
            (None, Some(_)) => WorkflowStatus::Paused,
            (None, None) => WorkflowStatus::Active,
        };
        WorkflowView { declared, status, paused, retired_at, changed, effective }
    }
}

/// How a manifest compares with the one that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// It is the one that holds.
    Same,
    /// It comes after it.
    Newer,
    /// It comes before it.
    Older,
}

/// What becomes of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It holds from now on.
    Holds,
    /// It is the one that holds.
    HeldBefore,
    /// It is older, and holds if nothing newer is seen long enough after this time.
    Waits { since: Timestamp },
}

/// Mistakes of a manifest: as many as people can read in words, and the number of all.
#[derive(Default)]
struct Mistakes {
    named: Vec<String>,
    count: usize,
}

impl Mistakes {
    fn note(&mut self, mistake: impl FnOnce() -> String) {
        self.count += 1;
        if self.named.len() < MISTAKES_NAMED_MAX {
            self.named.push(mistake());
        }
    }

    fn into_result(self) -> Result<(), Rejection> {
        let Self { named, count } = self;
        if count == 0 {
            return Ok(());
        }
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        let mut detail = format!("{count} {noun}, so nothing was changed: {}", named.join("; "));
        if count > named.len() {
            detail = format!("{detail}; and {} more", count - named.len());
        }
        Err(Rejection::new(Code::InvalidManifest, format!("{detail}.")))
    }
}

/// Refuses a manifest that has mistakes.
pub fn check_manifest(manifest: &Manifest, unknown_zones: &[String]) -> Result<(), Rejection> {
    let mut mistakes = Mistakes::default();
    if manifest.protocol != PROTOCOL {
        mistakes.note(|| {
            format!(
                "the manifest has the form {}, and this engine reads {PROTOCOL}; deploy an engine of the same release",
                manifest.protocol
            )
        });
    }
    let bytes = serde_json::to_string(manifest).map_or(usize::MAX, |text| text.len());
    if bytes > MANIFEST_BYTES_MAX {
        mistakes.note(|| format!("the manifest has {bytes} bytes; the most is {MANIFEST_BYTES_MAX}"));
    }
    let count = manifest.workflows.len();
    if count > DECLARED_MAX {
        mistakes.note(|| format!("there are {count} workflows; the most is {DECLARED_MAX}"));
    }
    let mut names = OrdSet::new();
    for workflow in &manifest.workflows {
        check_workflow(workflow, names.insert(&workflow.name), &mut mistakes);
    }
    let flows = manifest.workflows.iter().take(DECLARED_MAX);
    let flows = flows.filter_map(|workflow| Some((workflow.name.as_str(), workflow.flow.as_deref()?)));
    if let Err(problem) = check_shared(flows) {
        mistakes.note(|| problem.detail);
    }
    check_schedules(manifest, unknown_zones, |mistake| mistakes.note(|| mistake));
    check_triggers(manifest, |mistake| mistakes.note(|| mistake));
    check_handlers(manifest, |mistake| mistakes.note(|| mistake));
    mistakes.into_result()
}

fn check_workflow(workflow: &WorkflowDescription, is_first: bool, mistakes: &mut Mistakes) {
    let name = &workflow.name;
    // One that is too long is not said whole.
    let shown = || name.chars().take(NAME_LENGTH_MAX).collect::<String>();
    if name.is_empty() || name.len() > NAME_LENGTH_MAX || !is_visible(name) {
        mistakes.note(|| {
            let shown = shown();
            format!(
                "a workflow is named {shown:?}; use 1 to {NAME_LENGTH_MAX} bytes without invisible characters"
            )
        });
    } else if is_reserved(name) {
        mistakes
            .note(|| format!("workflow '{name}' begins with '{RESERVED_PREFIX}', which is Stepwell's own"));
    } else if !is_first {
        mistakes.note(|| format!("workflow '{name}' is declared twice"));
    }
    if workflow.timeout_ms == Some(0) {
        mistakes.note(|| format!("workflow '{}' has a timeout of 0 ms; use at least 1", shown()));
    }
    for (what, ms) in [("timeout", workflow.timeout_ms), ("retention", workflow.retention_ms)] {
        if ms.is_some_and(|ms| ms > TIME_MS_MAX) {
            mistakes.note(|| format!("workflow '{}' has a {what} of more than a hundred years", shown()));
        }
    }
    if workflow.callback.as_ref().is_some_and(|url| url.len() > URL_LENGTH_MAX) {
        mistakes
            .note(|| format!("workflow '{}' has a callback of more than {URL_LENGTH_MAX} bytes", shown()));
    }
    if let Some(Err(problem)) = workflow.flow.as_ref().map(|flow| check_flow(&shown(), flow)) {
        mistakes.note(|| problem.detail);
    }
    if let Some(mistake) = workflow.input_schema.as_ref().and_then(mistake_of_schema) {
        mistakes.note(|| format!("workflow '{}' has an input schema {mistake}", shown()));
    }
}

/// What is wrong with a schema. Nobody makes a tree of one that is too large.
fn mistake_of_schema(schema: &Payload) -> Option<String> {
    if schema.size() > SCHEMA_BYTES_MAX {
        return Some(format!("of {} bytes; the most is {SCHEMA_BYTES_MAX}", schema.size()));
    }
    match schema.read() {
        Ok(Value::Object(_) | Value::Bool(_)) => None,
        Ok(Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Some("that is no object".into())
        }
        Err(_) => Some("that is nested too deeply or has a number that is too large".into()),
    }
}

/// The fields of something that is declared.
fn fields<T: Serialize>(declared: &T) -> Value {
    serde_json::to_value(declared).unwrap_or_default()
}

/// Adds to a plan what becomes of everything of a kind, by its name and by what it is to do.
pub(super) fn plan_kind<'a, T: Serialize + PartialEq + 'a>(
    plan: &mut Plan,
    kind: ItemKind,
    before: impl Iterator<Item = (String, &'a T)>,
    after: impl Iterator<Item = (String, &'a T)>,
) {
    let mut before: OrdMap<_, _> = before.collect();
    for (name, spec) in after {
        let declared = before.remove(&name);
        let item = Item { kind, name };
        match declared {
            None => plan.added.push(item),
            Some(declared) if declared == spec => {}
            Some(declared) => {
                let changes = changed(&fields(declared), &fields(spec));
                if !changes.is_empty() {
                    plan.changed.push(ChangedItem { item, changes });
                }
            }
        }
    }
    plan.retired.extend(before.into_keys().map(|name| Item { kind, name }));
}

/// A plan for the audit log.
fn in_words(plan: &Plan) -> String {
    let name = |item: &Item| match item.kind {
        ItemKind::Workflow => item.name.clone(),
        ItemKind::Schedule | ItemKind::Trigger | ItemKind::Job => {
            format!("{} {}", item.kind.as_str(), item.name)
        }
    };
    let names = |items: &[Item]| items.iter().map(name).collect::<Vec<_>>().join(", ");
    let changed: Vec<_> = plan.changed.iter().map(|changed| changed.item.clone()).collect();
    let parts = [("added", &plan.added), ("changed", &changed), ("retired", &plan.retired)];
    let parts = parts.into_iter().filter(|(_, items)| !items.is_empty());
    parts.map(|(what, items)| format!("{what}: {}", names(items))).collect::<Vec<_>>().join("; ")
}
