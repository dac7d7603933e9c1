//! The triggers that the app declares, on their way to the topics that have them.
//!
//! Each topic is told all triggers that the code declares for it, by a revision that grows whenever they change. The
//! catalog keeps which revision a topic has heard of, and tells it until it has. What an operator does to a trigger is
//! the topic's.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Timestamp,
    manifest::{ItemKind, Manifest, Plan, TriggerDescription},
    program::is_reserved,
    text::is_visible,
    topic::TriggerSpec,
};

use super::{
    Declared,
    declared::{Changed, NAME_LENGTH_MAX, plan_kind},
};
use crate::{
    ordered::{OrdMap, OrdSet},
    topic::{TRIGGERS_MAX as TOPIC_TRIGGERS_MAX, check_trigger},
};

/// The most triggers of a manifest.
pub const TRIGGERS_MAX: usize = 1_000;

/// The most topics that they belong to: all are told at once.
pub const TOPICS_MAX: usize = 100;

/// How far a topic is with what the code declares: one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRevision {
    /// The revision that holds.
    pub revision: u64,
    /// The latest that the topic has heard of.
    pub heard: u64,
}

/// What a topic has yet to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicWord {
    /// The topic.
    pub topic: String,
    /// Which revision it is.
    pub revision: u64,
    /// All triggers that the code declares for it.
    pub triggers: Vec<TriggerDescription>,
}

impl Declared {
    /// What topics have yet to hear of.
    pub fn untold_topics(&self) -> Vec<TopicWord> {
        let behind = self.topics.iter().filter(|(_, told)| told.heard < told.revision);
        let word = |(topic, told): (&String, &TopicRevision)| TopicWord {
            topic: topic.clone(),
            revision: told.revision,
            triggers: self.holds().map(|holds| of_topic(holds, topic).cloned().collect()).unwrap_or_default(),
        };
        behind.map(word).collect()
    }

    /// Whom a manifest that holds from now on concerns. Revisions go by the clock, so that they grow even if what was
    /// stored cannot be read any more, or was forgotten.
    pub(super) fn retell(&self, now: Timestamp, manifest: &Manifest) -> Vec<Changed> {
        let before = self.holds();
        let declared = [before, Some(manifest)].into_iter().flatten().flat_map(|manifest| &manifest.triggers);
        let mut topics: OrdSet<_> = declared.filter_map(TriggerDescription::topic).collect();
        topics.extend(self.topics.keys().map(String::as_str));
        let is_other =
            |topic: &&str| before.is_none_or(|before| of_topic(before, topic).ne(of_topic(manifest, topic)));
        let told = topics.into_iter().filter(is_other).map(|topic| {
            let known = self.topics.get(topic);
            let heard = known.map_or(0, |told| told.heard);
            let latest = known.map_or(0, |told| told.revision.max(told.heard));
            let told = TopicRevision { revision: (latest + 1).max(now.as_millis()), heard };
            Changed::Topic(topic.to_owned(), Some(told))
        });
        told.collect()
    }

    /// A topic knows what a revision declares. One without triggers need not be remembered.
    pub(super) fn topic_heard(&self, topic: &str, revision: u64) -> Vec<Changed> {
        let told = self.topics.get(topic).filter(|told| told.heard < revision);
        let told = told.map(|told| {
            let is_over = revision >= told.revision
                && self.holds().is_none_or(|holds| of_topic(holds, topic).next().is_none());
            (!is_over).then_some(TopicRevision { heard: revision, ..*told })
        });
        told.map(|told| Changed::Topic(topic.to_owned(), told)).into_iter().collect()
    }

    /// Adds to a plan what it changes in triggers.
    pub(super) fn plan_triggers(&self, manifest: &Manifest, plan: &mut Plan) {
        let before = self.holds().into_iter().flat_map(|holds| &holds.triggers);
        plan_kind(plan, ItemKind::Trigger, before.map(by_name), manifest.triggers.iter().map(by_name));
    }
}

fn by_name(trigger: &TriggerDescription) -> (String, &TriggerSpec) {
    (trigger.full_name(), &trigger.spec)
}

/// The triggers of a topic.
fn of_topic<'a>(manifest: &'a Manifest, topic: &str) -> impl Iterator<Item = &'a TriggerDescription> {
    manifest.triggers.iter().filter(move |trigger| trigger.topic() == Some(topic))
}

/// What is wrong with the triggers of a manifest.
pub(super) fn check_triggers(manifest: &Manifest, mut note: impl FnMut(String)) {
    let count = manifest.triggers.len();
    if count > TRIGGERS_MAX {
        return note(format!("there are {count} triggers; the most is {TRIGGERS_MAX}"));
    }
    let workflows: OrdSet<_> = manifest.workflows.iter().map(|workflow| workflow.name.as_str()).collect();
    let (mut names, mut topics) = (OrdSet::new(), OrdMap::<&str, usize>::new());
    for trigger in &manifest.triggers {
        let TriggerDescription { name, spec } = trigger;
        // One that is too long is not said whole.
        let short = |text: &str| text.chars().take(NAME_LENGTH_MAX).collect::<String>();
        let shown = short(name);
        if name.is_empty() || name.len() > NAME_LENGTH_MAX || !is_visible(name) {
            note(format!(
                "a trigger is named {shown:?}; use 1 to {NAME_LENGTH_MAX} bytes without invisible characters"
            ));
        }
        let Some(topic) = trigger.topic() else {
            let on = short(&spec.on);
            note(format!(
                "trigger '{shown}' is about '{on}'; name events by two parts: 'order/paid', 'order/*'"
            ));
            continue;
        };
        if !names.insert((topic, name)) {
            note(format!("trigger '{shown}' of the topic '{topic}' is declared twice"));
        }
        *topics.get_or_default(topic) += 1;
        let is_of_app = !is_reserved(&spec.workflow) && workflows.contains(spec.workflow.as_str());
        if spec.queue.is_none() && !is_of_app {
            let workflow = short(&spec.workflow);
            note(format!("trigger '{shown}' starts workflow '{workflow}', which the app does not have"));
        }
        if let Err(problem) = check_trigger(topic, spec) {
            note(format!("trigger '{shown}': {}", problem.detail.trim_end_matches('.')));
        }
    }
    if topics.len() > TOPICS_MAX {
        note(format!("the triggers belong to {} topics; the most is {TOPICS_MAX}", topics.len()));
    }
    for (topic, count) in topics.iter().filter(|(_, count)| **count > TOPIC_TRIGGERS_MAX) {
        note(format!("the topic '{topic}' has {count} triggers; the most is {TOPIC_TRIGGERS_MAX}"));
    }
}
