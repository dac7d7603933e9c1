//! What became of a run in a test.

use std::time::Duration;

use serde::de::DeserializeOwned;
use stepwell_protocol::{
    Code, Event, Failure, Outcome as StepOutcome, Payload, Problem, Record, Timestamp, program::Commit,
    queue::SentJob, rest::Status, stream::Item, topic::NewEvent,
};

use super::{
    effects::Effects,
    engine::{Ended, Engine},
};

/// What became of a run in a test.
pub struct Outcome {
    pub(super) ended: Ended,
    pub(super) commits: Vec<Commit>,
    pub(super) effects: Effects,
    /// What a replay of the whole journal has against it.
    pub(super) replay: Result<(), String>,
    children: Vec<(String, Outcome)>,
    pub(super) inputs: Vec<Payload>,
    published: Vec<Item>,
    pub(super) emitted: Vec<NewEvent>,
    pub(super) jobs: Vec<SentJob>,
    history: Vec<Record>,
    ran: Vec<String>,
    status: Status,
    took: Duration,
    slept: Duration,
}

impl Outcome {
    pub(super) fn new(ended: Ended, start: Timestamp, engine: Engine, effects: Effects) -> Self {
        let children = engine.family.ran.iter().map(|(_, child)| child.replay.clone());
        let replay = children.fold(engine.replay_once_more(), Result::and);
        let took = engine.now.as_millis() - start.as_millis();
        Self {
            slept: Duration::from_millis(engine.asleep_ms),
            status: engine.run.status(),
            replay,
            ended,
            commits: engine.commits,
            inputs: engine.inputs,
            published: engine.published,
            emitted: engine.events.emitted,
            jobs: engine.jobs,
            effects,
            children: engine.family.ran,
            history: engine.journal,
            ran: engine.ran,
            took: Duration::from_millis(took),
        }
    }

    /// What the workflow returned.
    ///
    /// # Panics
    /// If it did not return, or returned something of another type.
    #[track_caller]
    pub fn output<T: DeserializeOwned>(&self) -> T {
        let Ended::Completed(text) = &self.ended else {
            panic!("the run did not return: {}", self.describe())
        };
        let payload = Payload::from_text(text.clone()).expect("it was recorded as JSON");
        match payload.decode() {
            Ok(output) => output,
            Err(error) => panic!("the run returned {text}, which is of another type: {error}"),
        }
    }

    /// What the run failed with.
    ///
    /// # Panics
    /// If it did not fail.
    #[track_caller]
    pub fn error(&self) -> &Failure {
        match &self.ended {
            Ended::Failed(failure) => failure,
            Ended::Completed(_)
            | Ended::Paused(_)
            | Ended::Halted
            | Ended::Cancelled
            | Ended::Waiting(_)
            | Ended::Stuck(_) => {
                panic!("the run did not fail: {}", self.describe())
            }
        }
    }

    /// Why the run cannot continue, if it cannot.
    pub fn problem(&self) -> Option<&Problem> {
        if let Ended::Paused(problem) = &self.ended { Some(problem) } else { None }
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        self.status
    }

    /// How many lives it has had: one, unless it has continued as new.
    pub fn lives(&self) -> usize {
        self.inputs.len()
    }

    /// What each of its lives was started with.
    ///
    /// # Panics
    /// If that is of another type.
    #[track_caller]
    pub fn inputs<T: DeserializeOwned>(&self) -> Vec<T> {
        let decode = |input: &Payload| match input.decode() {
            Ok(value) => value,
            Err(error) => {
                panic!("a life was started with {}, which is of another type: {error}", input.text())
            }
        };
        self.inputs.iter().map(decode).collect()
    }

    /// Its journal, of all its lives.
    pub fn history(&self) -> &[Record] {
        &self.history
    }

    /// The logs and chunks that it has published, in order: see [`crate::Ctx::log`] and [`crate::Ctx::publish`].
    pub fn published(&self) -> &[Item] {
        &self.published
    }

    /// The messages of its log, in order.
    pub fn logs(&self) -> Vec<&str> {
        let lines = self.published.iter();
        lines
            .filter_map(|item| if let Item::Log(line) = item { Some(line.message.as_str()) } else { None })
            .collect()
    }

    /// The children that it has invoked and that ran, in the order in which it did: what each invocation is called, and
    /// what became of the child. One that was mocked is not among them.
    pub fn children(&self) -> &[(String, Outcome)] {
        &self.children
    }

    /// How long it took, in virtual time.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// For how much of that it slept, was waiting, or was between two attempts of a step: all but the time that
    /// its steps took.
    pub fn slept(&self) -> Duration {
        self.slept
    }

    /// The steps whose code or mock has run, by their names, in order; one that was tried three times is there
    /// three times.
    pub fn ran(&self) -> Vec<&str> {
        // An operation is written `step:0:name`.
        self.ran.iter().filter_map(|op| op.splitn(3, ':').nth(2)).collect()
    }

    /// The effects of its steps: see [`super::effect`].
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Whether a step that must not run twice was cut short.
    pub(super) fn is_interrupted(&self) -> bool {
        self.history.iter().any(|record| {
            matches!(&record.event, Event::StepFinished { outcome: StepOutcome::Err(failure), .. }
                if failure.code == Some(Code::StepInterrupted))
        })
    }

    /// The steps whose code has run, of its children and theirs too.
    pub(super) fn all_ran(&self) -> Vec<&str> {
        let children = self.children.iter().flat_map(|(_, child)| child.all_ran());
        self.ran().into_iter().chain(children).collect()
    }

    /// How it ended, in words.
    pub(super) fn describe(&self) -> String {
        self.ended.describe()
    }
}
