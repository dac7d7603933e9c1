//! A run in words: what it is, and why it is where it is.

use std::collections::BTreeSet;

use stepwell_protocol::{
    Code, OpKind, Problem, Timestamp,
    export::{CutView, ReplayFacts},
    lane::shared_name,
    rest::{Deed, RunView, TroubleView, WaitsFor, Why},
    signature::APP_KEY,
};

use super::{End, Entry, OpenOp, PauseWhy, Phase, Run, Transport, Trouble};
use crate::{access::ROOT, cell::readable_again, lane::limit_in_words, schedule::civil::shown};

/// How many names a warning shows.
const WARNING_NAMES_MAX: usize = 8;

impl Run {
    /// What its program is given beside its input and journal: all that a replay elsewhere needs.
    pub fn replay_facts(&self) -> ReplayFacts {
        ReplayFacts {
            seed: format!("{:016x}", self.seed),
            patches: self.patches.clone(),
            cuts: self.cuts.iter().map(|cut| CutView { after: cut.after, through: cut.through }).collect(),
            life: self.life,
        }
    }
}

impl From<&Run> for RunView {
    /// A run as people see it, without its result, which is in the row.
    fn from(run: &Run) -> Self {
        let (mut ended_at, mut problem) = (None, None);
        match &run.phase {
            Phase::Ended { at, .. } => ended_at = Some(*at),
            Phase::Paused { why: PauseWhy::Problem(at) } => problem = Some(at.clone()),
            Phase::Pending { .. } => problem = run.refusal(),
            Phase::Paused { why: PauseWhy::Request } | Phase::Running { .. } | Phase::Suspended => {}
        }
        if run.quarantined {
            problem = Some(readable_again());
        }
        Self {
            id: run.id.clone(),
            workflow: run.workflow.clone(),
            status: run.status(),
            created_at: run.created_at,
            ended_at,
            starts_at: run.begins_at().filter(|_| !run.quarantined),
            wakes_at: run.wakes_by_itself().filter(|_| !run.quarantined),
            waits_for: run.open.iter().filter_map(|open| open.signal.clone()).collect(),
            retrying: run.retrying(),
            output: None,
            error: None,
            problem,
            last_error: run.last_error.clone(),
            progress: run.progress.clone(),
            deadline: run.deadline,
            expires_at: run.expires_at(),
            head: run.head,
            life: run.life,
            parent: run.parent.as_ref().map(|parent| parent.run.clone()),
            callback: run.callback.clone(),
            children: run.children.count(),
            activations: run.epoch.0,
            tags: run.tags.clone(),
            attributes: run.attributes.clone(),
            started_by: run.started_by.clone(),
            acts: run.acts.clone(),
            meter: run.meter(),
            current_step: None,
            working: Vec::new(),
        }
    }
}

/// A view with the result that is among these entries.
pub(crate) fn with_result(mut view: RunView, entries: &[Entry]) -> RunView {
    for entry in entries {
        if let Entry::Completed { output, .. } = entry {
            view.output = Some(output.clone());
        } else if let Entry::Failed { failure, .. } = entry {
            view.error = Some(failure.clone());
        }
    }
    view
}

impl Run {
    /// The steps that have failed and wait for their next attempt.
    fn retrying(&self) -> Vec<String> {
        let is_retry = |open: &&OpenOp| open.op.kind == OpKind::Step && open.visit.is_none();
        // While its program runs, what was due when it began is under way.
        let is_due = |open: &&OpenOp| match self.phase {
            Phase::Running { since, .. } => open.until.is_none_or(|until| until <= since),
            Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => false,
        };
        let waits = self.open.iter().filter(is_retry).filter(|open| !is_due(open));
        waits.map(|open| open.op.name.clone()).collect()
    }

    /// Why it is where it is.
    pub fn why(&self, now: Timestamp) -> Why {
        let waits_for: Vec<_> = self
            .open
            .iter()
            .map(|open| {
                let event = open.event.as_deref();
                let kind = match event {
                    Some(event) if event.cancels => "cancel_on",
                    Some(_) => "event",
                    None if open.asked.is_some() => "token",
                    None if open.visit.is_some() => "lane",
                    None => open.op.kind.as_str(),
                };
                WaitsFor {
                    kind: kind.into(),
                    name: event.map_or(&open.op.name, |event| &event.on).clone(),
                    since: open.since,
                    // It is only asked again then.
                    until: open.until.filter(|_| open.visit.is_none()),
                    expects: (!open.shape.is_any()).then(|| open.shape.describe()),
                    when: event.and_then(|event| event.when.clone()),
                }
            })
            .collect();
        let next_wake = match self.phase {
            Phase::Pending { not_before } => Some(not_before),
            Phase::Running { .. } => self.next_due(),
            Phase::Suspended => [self.wakes_by_itself(), self.deadline].into_iter().flatten().min(),
            Phase::Paused { .. } | Phase::Ended { .. } => None,
        };
        let next_wake = next_wake.filter(|_| !self.quarantined);
        let Trouble { strikes, suspicion, losses, unstored, .. } = self.current_trouble();
        let losses = losses + unstored;
        let trouble =
            (strikes + suspicion + losses > 0).then_some(TroubleView { strikes, suspicion, losses });
        let (status, because) = (self.status(), self.because(now));
        Why {
            status,
            because,
            life: self.life,
            lane: None,
            waits_for,
            next_wake,
            trouble,
            current_step: None,
        }
    }

    /// What to tell whoever sends a signal that it does not wait for.
    pub fn warning_about(&self, signal: &str) -> Option<String> {
        let waits_for = self.open.iter().filter(|open| open.signal.is_some());
        if waits_for.clone().any(|open| open.signal.as_deref() == Some(signal)) {
            return None;
        }
        let shown: Vec<_> = waits_for
            .take(WARNING_NAMES_MAX)
            .map(|open| match &open.event {
                Some(event) => format!("event {}", event.on),
                None => open.signal.clone().unwrap_or_default(),
            })
            .collect();
        let others =
            if shown.is_empty() { String::new() } else { format!(" It waits for: {}.", shown.join(", ")) };
        Some(format!(
            "The run does not wait for signal '{signal}' yet. The signal is kept until it does.{others}"
        ))
    }

    fn because(&self, now: Timestamp) -> String {
        if self.quarantined {
            return readable_again().detail;
        }
        let ago = |since: Timestamp| now.as_millis().saturating_sub(since.as_millis());
        if let (Phase::Pending { .. }, Some(problem)) = (&self.phase, self.refusal()) {
            return problem.detail;
        }
        match &self.phase {
            Phase::Pending { not_before } if *not_before > now && self.begins_at().is_some() => {
                format!("It starts at {}{}.", shown(*not_before), self.gathered())
            }
            Phase::Pending { not_before } if *not_before > now => {
                "Its program stopped without a result; it is called again after a pause.".into()
            }
            Phase::Pending { .. } => {
                "It is due, and waits for a place among the programs that its cell calls.".into()
            }
            Phase::Running { session: Transport::Token, lease: None, .. } => {
                "Its cell came back and waits to hear of its program; after that it is called again.".into()
            }
            Phase::Running { session: Transport::Token, since, .. } => format!(
                "Its program has been at work for {} ms, called by a consumer of the queue.",
                ago(*since)
            ),
            Phase::Running { session: Transport::Capability, since, .. } => {
                format!("Its program has been at work for {} ms.", ago(*since))
            }
            Phase::Suspended => {
                let of = |kind| self.open.iter().filter(|open| open.op.kind == kind).count();
                let tokens = self.open.iter().filter(|open| open.asked.is_some());
                let tokens: Vec<_> = tokens.map(|open| format!("for token '{}'", open.op.name)).collect();
                let events = self.open.iter().filter_map(|open| open.event.as_deref());
                let events = events.filter(|event| !event.cancels);
                let signals = self.open.iter().filter(|open| open.event.is_none() && open.asked.is_none());
                let signals: BTreeSet<_> = signals.filter_map(|open| open.signal.as_deref()).collect();
                let kept = if signals.is_empty() { 0 } else { self.inbox.unread };
                let signals = signals.first().map(|name| match signals.len() {
                    1 => format!("for signal '{name}'"),
                    more => format!("for {more} signals, '{name}' among them"),
                });
                let tokens = signals
                    .into_iter()
                    .chain(tokens)
                    .chain(events.map(|event| format!("for event '{}'", event.on)));
                let visits = self.open.iter().filter_map(|open| {
                    let visit = open.visit.as_deref()?;
                    let limits: Vec<_> =
                        visit.limits.iter().map(|limit| limit_in_words(limit, &visit.lane)).collect();
                    let lane = shared_name(&visit.lane);
                    let (step, limits) = (&open.op.name, limits.join(", "));
                    Some(format!("for the lane '{lane}' to let in step '{step}' ({limits})"))
                });
                let visits: Vec<_> = visits.collect();
                let (sleeps, retries) = (of(OpKind::Sleep), self.retrying().len());
                let children: Vec<_> = self.open.iter().filter(|open| open.child.is_some()).collect();
                let children = match children.as_slice() {
                    [] => None,
                    [one] => Some(format!("for child '{}'", one.op.name)),
                    [one, ..] => {
                        Some(format!("for {} children, '{}' among them", children.len(), one.op.name))
                    }
                };
                let parts = [(sleeps, "for a time"), (retries, "for the next attempt of a step")];
                let parts = parts.iter().filter(|(n, _)| *n > 0).map(|(_, what)| (*what).to_owned());
                let shown = tokens.chain(visits).take(WARNING_NAMES_MAX);
                let parts: Vec<_> = shown.chain(parts).chain(children).collect();
                let waits = format!("It waits {}.", parts.join(" or "));
                let waits = match kept {
                    0 => waits,
                    1 => format!("{waits} It has received one signal that it has not taken."),
                    more => format!("{waits} It has received {more} signals that it has not taken."),
                };
                match self.last_error.as_ref().filter(|_| retries > 0) {
                    Some(last) => format!("{waits} Step '{}' failed: {}", last.step, last.message),
                    None => waits,
                }
            }
            Phase::Paused { why: PauseWhy::Request } => {
                format!("{} paused it. Resume it to continue.", self.who(Deed::Pause))
            }
            Phase::Paused { why: PauseWhy::Problem(problem) } => problem.detail.clone(),
            Phase::Ended { how: End::Completed, .. } => "It has returned.".into(),
            Phase::Ended { how: End::Failed, .. } => "It has failed; its error says why.".into(),
            Phase::Ended { how: End::Cancelled, .. } => {
                format!("{} has cancelled it.", self.who(Deed::Cancel))
            }
        }
    }

    /// Why its program refuses to be called, if it does, and how somebody can change that.
    fn refusal(&self) -> Option<Problem> {
        let code = self.current_trouble().refused?;
        let why = if code == Code::AppKeyMissing {
            format!("{APP_KEY} is not set on it")
        } else {
            "it cannot verify that they come from this engine".into()
        };
        let detail = format!(
            "The app refuses calls: {why}. Set the same {APP_KEY} on engine and app, and the run continues."
        );
        Some(Problem::new(code, detail))
    }

    /// Who was the last to do something to it; the deployment itself is nobody in particular.
    fn who(&self, deed: Deed) -> &str {
        let act = self.acts.iter().rfind(|act| act.what == deed);
        act.filter(|act| act.by != ROOT).map_or("Someone", |act| &act.by)
    }
}
