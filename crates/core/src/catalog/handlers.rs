//! The handlers of jobs that the app declares, on their way to the queues that have them.
//!
//! As with [triggers](super::triggers), each queue is told how its handler is called, by a revision that grows whenever that
//! changes, until it has heard of it. A queue without a handler any more is told so, too.

use stepwell_protocol::{
    Timestamp,
    manifest::{ItemKind, JobDescription, Manifest, Plan},
    program::{RESERVED_PREFIX, is_reserved},
    queue::{Push, is_queue},
};

use super::{
    Declared, TopicRevision,
    declared::{Changed, NAME_LENGTH_MAX, plan_kind},
};
use crate::{ordered::OrdSet, queue::check_handler};

/// The most handlers of a manifest: their queues are told at once.
pub const HANDLERS_MAX: usize = 100;

/// What a queue has yet to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueWord {
    /// The queue.
    pub queue: String,
    /// Which revision it is.
    pub revision: u64,
    /// How its handler is called; nothing, if the code has none.
    pub handler: Option<Push>,
}

impl Declared {
    /// What queues have yet to hear of.
    pub fn untold_queues(&self) -> Vec<QueueWord> {
        let behind = self.queues.iter().filter(|(_, told)| told.heard < told.revision);
        let word = |(queue, told): (&String, &TopicRevision)| QueueWord {
            queue: queue.clone(),
            revision: told.revision,
            handler: self.holds().and_then(|holds| of_queue(holds, queue)).cloned(),
        };
        behind.map(word).collect()
    }

    /// Which queues a manifest concerns that holds from now on. Revisions go by the clock: see [`Self::retell`].
    pub(super) fn retell_queues(&self, now: Timestamp, manifest: &Manifest) -> Vec<Changed> {
        let before = self.holds();
        let declared = [before, Some(manifest)].into_iter().flatten().flat_map(|manifest| &manifest.jobs);
        let mut queues: OrdSet<_> = declared.map(|job| job.queue.as_str()).collect();
        queues.extend(self.queues.keys().map(String::as_str));
        let is_other =
            |queue: &&str| before.is_none_or(|before| of_queue(before, queue) != of_queue(manifest, queue));
        let told = queues.into_iter().filter(is_other).map(|queue| {
            let known = self.queues.get(queue);
            let heard = known.map_or(0, |told| told.heard);
            let latest = known.map_or(0, |told| told.revision.max(told.heard));
            let told = TopicRevision { revision: (latest + 1).max(now.as_millis()), heard };
            Changed::Queue(queue.to_owned(), Some(told))
        });
        told.collect()
    }

    /// A queue knows what a revision declares. One without a handler need not be remembered.
    pub(super) fn queue_heard(&self, queue: &str, revision: u64) -> Vec<Changed> {
        let told = self.queues.get(queue).filter(|told| told.heard < revision);
        let told = told.map(|told| {
            let has_handler = self.holds().is_some_and(|holds| of_queue(holds, queue).is_some());
            let is_over = revision >= told.revision && !has_handler;
            (!is_over).then_some(TopicRevision { heard: revision, ..*told })
        });
        told.map(|told| Changed::Queue(queue.to_owned(), told)).into_iter().collect()
    }

    /// Adds to a plan what it changes in handlers.
    pub(super) fn plan_handlers(&self, manifest: &Manifest, plan: &mut Plan) {
        let before = self.holds().into_iter().flat_map(|holds| &holds.jobs);
        plan_kind(plan, ItemKind::Job, before.map(by_queue), manifest.jobs.iter().map(by_queue));
    }
}

fn by_queue(job: &JobDescription) -> (String, &Push) {
    (job.queue.clone(), &job.push)
}

/// How the handler of a queue is called.
fn of_queue<'a>(manifest: &'a Manifest, queue: &str) -> Option<&'a Push> {
    manifest.jobs.iter().find(|job| job.queue == queue).map(|job| &job.push)
}

/// What is wrong with the handlers of a manifest.
pub(super) fn check_handlers(manifest: &Manifest, mut note: impl FnMut(String)) {
    let count = manifest.jobs.len();
    if count > HANDLERS_MAX {
        return note(format!("there are {count} handlers of jobs; the most is {HANDLERS_MAX}"));
    }
    let mut names = OrdSet::new();
    for JobDescription { queue, push } in &manifest.jobs {
        let shown: String = queue.chars().take(NAME_LENGTH_MAX).collect();
        if !is_queue(queue) {
            note(format!("a queue is named {shown:?}; use 1 to 64 letters, digits, '-', '_' or '.'"));
        } else if is_reserved(queue) {
            note(format!("the queue '{shown}' begins with '{RESERVED_PREFIX}', which is Stepwell's own"));
        } else if !names.insert(queue) {
            note(format!("the queue '{shown}' has two handlers"));
        }
        if let Err(problem) = check_handler(push) {
            note(format!("the handler of queue '{shown}': {}", problem.detail.trim_end_matches('.')));
        }
    }
}
