//! The same run with a crash at every commit.

use serde::Serialize;
use stepwell_protocol::{
    Payload,
    program::{Answer, Command, Commit, Then},
};

use super::{
    Outcome, Scenario, Test,
    engine::{Death, Ended, Engine},
};
use crate::App;

/// What to look at when two runs of the same differ.
const LIKELY_CAUSE: &str = "A likely cause is code outside of steps that does not do the same each time: the clock, \
                            random numbers, the order of a HashMap, a static or thread-local variable, or an await of \
                            something that is neither a step, a sleep nor a wait. Move it into a step, or use \
                            ctx.now(), ctx.random(), ctx.uuid() and a BTreeMap.";

/// [`Test::crash_everywhere`] for a workflow that needs neither mocks nor signals.
#[track_caller]
pub fn crash_everywhere<I: Serialize + ?Sized>(app: App, workflow: &str, input: &I) -> Outcome {
    Test::new(app).crash_everywhere(workflow, input)
}

impl Engine {
    /// Takes a commit, unless it dies before or after it.
    pub(super) fn commit_or_die(&mut self, commit: &Commit) -> Option<Answer> {
        let number = self.commits.len() + 1;
        if self.death == Death::Before(number) {
            self.commits.push(commit.clone());
            self.die();
            return None;
        }
        let head = self.run.head;
        let answer = self.commit(commit);
        let dies = match self.death {
            Death::After(at) => at == number,
            Death::AfterEachRecord => self.run.head > head && !commit.commands.is_empty(),
            Death::Never | Death::Before(_) => false,
        };
        if dies {
            self.die();
            return None;
        }
        Some(answer)
    }
}

impl Scenario {
    #[track_caller]
    pub(super) fn crash_everywhere(&self) -> Outcome {
        let calm = self.play(Death::Never);
        if let Ended::Paused(_) | Ended::Waiting(_) | Ended::Stuck(_) = &calm.ended {
            panic!("without any crash, the run does not end: {}", calm.describe());
        }
        if let Err(difference) = &calm.replay {
            panic!("without any crash, {difference}.\n{LIKELY_CAUSE}");
        }
        for (number, commit) in (1..).zip(&calm.commits) {
            for (death, when) in [(Death::Before(number), "before"), (Death::After(number), "after")] {
                let crashed = self.play(death);
                if let Some(difference) = difference(&calm, &crashed) {
                    panic!(
                        "with a crash {when} commit {number} of {} ({}), {difference}.\n{LIKELY_CAUSE}",
                        calm.commits.len(),
                        describe(commit),
                    );
                }
            }
        }
        calm
    }
}

/// How a run with a crash differs from the one without, if it does.
fn difference(calm: &Outcome, crashed: &Outcome) -> Option<String> {
    if let Some(contradiction) = crashed.effects.contradiction() {
        return Some(contradiction);
    }
    if crashed.is_interrupted()
        && !matches!(crashed.ended, Ended::Paused(_) | Ended::Waiting(_) | Ended::Stuck(_))
    {
        // A step that must not run twice has gone the way that it goes then, and the workflow with it.
        return crashed.replay.clone().err();
    }
    if crashed.inputs != calm.inputs {
        let lives = |outcome: &Outcome| {
            let inputs: Vec<_> = outcome.inputs.iter().map(Payload::text).collect();
            inputs.join(", ")
        };
        return Some(format!(
            "the lives of the run are started with {}; without it, with {}",
            lives(crashed),
            lives(calm)
        ));
    }
    if crashed.ended != calm.ended {
        return Some(format!(
            "the run ends otherwise: {}; without it, {}",
            crashed.describe(),
            calm.describe()
        ));
    }
    if let Err(difference) = &crashed.replay {
        return Some(difference.clone());
    }
    if crashed.emitted != calm.emitted {
        let names = |outcome: &Outcome| {
            let names: Vec<_> = outcome.emitted.iter().map(|event| event.name.as_str()).collect();
            names.join(", ")
        };
        return Some(format!("the run emits [{}]; without it, [{}]", names(crashed), names(calm)));
    }
    if crashed.jobs != calm.jobs {
        let queues = |outcome: &Outcome| {
            let queues: Vec<_> = outcome.jobs.iter().map(|job| job.queue.as_str()).collect();
            queues.join(", ")
        };
        return Some(format!("the run sends jobs to [{}]; without it, [{}]", queues(crashed), queues(calm)));
    }
    crashed.effects.difference(&calm.effects)
}

/// What a commit says, for a person who looks for the place in the code.
fn describe(commit: &Commit) -> String {
    let mut parts: Vec<_> = commit
        .commands
        .iter()
        .map(|command| match command {
            Command::StepBegun { op } => format!("step '{}' is about to run", op.name),
            Command::StepSucceeded { op, .. } => format!("the result of step '{}'", op.name),
            Command::StepFailed { op, attempt, .. } => {
                format!("attempt {attempt} of step '{}' has failed", op.name)
            }
            Command::ChildInvoked { op, .. } => format!("child '{}' is invoked", op.name),
            Command::Emitted { event, .. } => format!("event '{}' is emitted", event.name),
            Command::JobSent { job, .. } => format!("a job is sent to '{}'", job.queue),
        })
        .collect();
    match &commit.then {
        Then::Suspend { open } => {
            let open = open.iter().map(|open| format!("{} '{}'", open.op().kind.as_str(), open.op().name));
            parts.push(format!("it waits for {}", open.collect::<Vec<_>>().join(", ")));
        }
        Then::Complete { .. } => parts.push("it returns".into()),
        Then::Fail { .. } => parts.push("it fails".into()),
        Then::Pause { .. } => parts.push("it cannot go on".into()),
        Then::Anew { .. } => parts.push("it begins anew".into()),
        Then::Yield { .. } => parts.push("it goes on in another activation".into()),
        Then::Continue { .. } if parts.is_empty() => parts.push("it goes on".into()),
        Then::Continue { .. } => {}
    }
    parts.join(", ")
}
