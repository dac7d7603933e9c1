//! The program protocol: what a cell and a program say to each other.
//!
//! The cell *activates* the program with an [`Activation`] and a session. On the session the program
//! reads further [`Page`]s, sends [`Commit`]s and gets [`Answer`]s, and may *listen* for news while a step
//! is under way. While its steps take long, it [`Beat`]s. The messages are the same over RPC and over HTTP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Awaits, Epoch, Failure, Life, Op, Payload, Problem, Record, RunId, Seq, Shape, Timestamp,
    lane::{Flow, StepLane},
    signature::Signature,
    stream::Published,
    topic::EventWait,
    trace::Traced,
    wait_token::{Asked, Issuer},
};

pub use crate::command::Command;
pub use crate::progress::{Attributes, Progress, Since, Units};

/// How much journal goes into one page, in bytes of JSON.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// The largest input, step result or signal, in bytes of JSON. A row holds 2 MB; the rest is for the
/// names and times around it.
pub const PAYLOAD_BYTES_MAX: usize = 2_000_000 - 16_384;

/// 'Run this': everything a program needs to go on with a run. A cell fills in a [`RawPage`], a program
/// reads a [`Page`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Activation<P = Page> {
    /// The protocol's version: [`crate::PROTOCOL`].
    pub protocol: u32,
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Which activation this is.
    pub epoch: Epoch,
    /// The seed of the run's random numbers, in hexadecimal: JavaScript has no exact 64-bit numbers.
    pub seed: String,
    /// The engine's clock.
    pub now: Timestamp,
    /// When the run was accepted.
    pub started_at: Timestamp,
    /// Its present life; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
    /// What the run, or its present life, was started with.
    pub input: Payload,
    /// The patches that the run's code has said it applies: see [`Commit::patches`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<String>,
    /// The attributes that the run has: see [`Commit::attributes`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// What makes its wait tokens; absent where the engine has no public address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Box<Issuer>>,
    /// How much it may do; without one, as much as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Its steps that lanes have let in; absent if none ever asked one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_in: Option<Box<LetIn>>,
    /// Where its spans belong, if anybody traces them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<Traced>>,
    /// Whether somebody follows the run: see [`Answer::Go`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub followed: bool,
    /// The first page of its journal.
    pub journal: P,
    /// The cell's word that it has made this. A program verifies it before it does anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
}

/// Which of the words in a journal that a lane has let in a step still hold. A run that stops or suspends gives its places
/// back, and its steps have to be let in again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetIn {
    /// The tickets of the steps that have their places.
    pub tickets: Vec<u32>,
    /// Up to where the journal was looked at for this. What comes later holds.
    pub through: Seq,
}

impl LetIn {
    /// Whether the word at this position, about this ticket, still holds.
    pub fn holds(&self, seq: Seq, ticket: u32) -> bool {
        seq > self.through || self.tickets.contains(&ticket)
    }
}

/// How much one activation may do before it says [`Then::Yield`]: the platform bounds what one invocation may,
/// and cuts off what goes beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Calls on its session. The pages of a replay count too, but leave a quarter of it for the rest.
    pub commits: u32,
    /// Time, by the engine's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// How long one attempt of a step may take, unless the step says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_timeout_ms: Option<u64>,
}

/// How long one attempt of a step may take, unless the step or the deployment says otherwise.
pub const STEP_TIMEOUT_MS: u64 = 300_000;

/// How long a program says nothing before it *beats*, and the pause between two beats. An engine gives up on a call
/// that it has not heard of for three times as long.
pub const BEAT_EVERY_MS: u64 = 20_000;

/// 'I am at work': what a program says on its session while its steps take long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The steps that are under way, the one that began first comes first; at most [`Self::STEPS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepAtWork>,
}

impl Beat {
    /// Reads one. What is too long is not even parsed: it would be kept in a cell's memory.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > Self::BYTES_MAX {
            return Err(format!("it has more than {} bytes", Self::BYTES_MAX));
        }
        crate::json::from_str(text).map_err(|error| error.to_string())
    }

    /// The most steps that one beat names.
    pub const STEPS_MAX: usize = 16;

    /// The longest beat in JSON, by far more than so many steps take.
    pub const BYTES_MAX: usize = 64 << 10;

    /// How long a program waits before it beats while its run is followed and steps are under way that it has not named
    /// yet. Quicker ones end before.
    pub const SOON_MS: u64 = 500;
}

/// A step whose code is running.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepAtWork {
    /// The step.
    pub op: Op,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The engine's clock when the attempt began, as far as the program knew it.
    pub since: Timestamp,
}

/// Why an activation was cut short, when that was not by its own code. What `activate` answers is this, or
/// nothing if it has come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutShort {
    /// Another run's code has stopped the instance that they shared.
    #[serde(rename = "beside")]
    Beside,
    /// Something has stopped the instance, perhaps this run's code.
    #[serde(rename = "unknown")]
    Unknown,
    /// The program takes no calls, or not this one: nothing was done.
    #[serde(rename = "refused")]
    Refused(Problem),
}

/// What an app declares about a workflow.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowDescription {
    /// Its name.
    pub name: String,
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long a run is kept after its end; 0 is forever, and the default is the deployment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// How its program is called.
    #[serde(default, skip_serializing_if = "Dispatch::is_direct")]
    pub dispatch: Dispatch,
    /// Whether starting a run requires an idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub key_required: bool,
    /// The https address that is called when one of its runs ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// How many of its runs are at work at once, and in which order they are let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Box<Flow>>,
    /// The JSON Schema of its input, if known. Clients can check inputs against it; the engine does not.
    // Kept as a text: as a tree, it can take a hundred times its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub input_schema: Option<Payload>,
}

impl WorkflowDescription {
    /// A workflow that says nothing but its name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            timeout_ms: None,
            retention_ms: None,
            dispatch: Dispatch::default(),
            key_required: false,
            callback: None,
            flow: None,
            input_schema: None,
        }
    }
}

/// What the names of the engine's own workflows begin with: no app's are called so.
pub const RESERVED_PREFIX: &str = "stepwell.";

/// The engine's own workflow that does something to many runs.
pub const BULK_WORKFLOW: &str = "stepwell.bulk";

/// Whether a workflow of this name is the engine's own.
pub fn is_reserved(workflow: &str) -> bool {
    workflow.starts_with(RESERVED_PREFIX)
}

/// How a run's program is called.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dispatch {
    /// By the run's cell, or through the queue when the cell has no free place.
    #[default]
    #[serde(rename = "direct")]
    Direct,
    /// Through the queue, if the deployment has one.
    #[serde(rename = "queued")]
    Queued,
}

impl Dispatch {
    /// Whether it is what nobody has to say.
    pub fn is_direct(&self) -> bool {
        *self == Self::Direct
    }
}

/// A piece of a journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    /// Events in order.
    pub events: Vec<Record>,
    /// Whether there are more after these.
    pub more: bool,
}

/// A piece of a journal as it is stored: the same JSON as a [`Page`], with events that nobody looked into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RawPage {
    /// Events in order.
    pub events: Vec<RawRecord>,
    /// Whether there are more after these.
    pub more: bool,
}

/// A stored event at its place in the journal: the same JSON as a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RawRecord {
    /// Its position.
    pub seq: Seq,
    /// When the engine recorded it.
    pub at: Timestamp,
    /// The text of an [`crate::Event`].
    pub event: Payload,
}

/// What a program reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// The activation that speaks.
    pub epoch: Epoch,
    /// The last position that the program knows. What the engine recorded later, from outside, comes with
    /// the answer.
    pub base: Seq,
    /// What was done.
    #[serde(default)]
    pub commands: Vec<Command>,
    /// Patches that the run's code applies from here on: on every replay they apply again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<String>,
    /// How far the run has come, for people; the latest counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<Progress>>,
    /// Attributes that the run has from here on, to find it by; those that it had before stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The id of the key that the run has made tokens with: its next activations get the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_key: Option<String>,
    /// Waits with tokens that nobody in it awaits any more, and that no token has completed; and steps whose lane has let
    /// them in, and that nobody awaits any more. The engine may not have been told of them while they were open; it may
    /// also have been told that they are over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<Op>,
    /// Logs and chunks, for people: no replay sees them.
    #[serde(default, skip_serializing_if = "Published::is_empty")]
    pub published: Published,
    /// What the program does next.
    pub then: Then,
    /// If the workflow failed: the first position from which on steps failed and nothing was begun. A retry takes all
    /// of these steps back, because the workflow has gone on from none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<Seq>,
    /// The program has gone on as if its commands were recorded next to the base, with this time. If they cannot be,
    /// they are recorded all the same, but what it does next does not count: the run is activated again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foresees: Option<Timestamp>,
    /// How many signals the program knows of that nobody in it has taken.
    #[serde(default, skip_serializing_if = "is_uncounted")]
    pub unread: u32,
    /// Which commit of its activation this is, from 1: whoever carries commits over a way on which a copy may
    /// come late counts them. 0 if nobody does.
    #[serde(default, skip_serializing_if = "is_uncounted")]
    pub turn: u32,
}

impl Commit {
    /// One that says what was done and what comes next, and nothing else.
    pub fn new(epoch: Epoch, base: Seq, commands: Vec<Command>, then: Then) -> Self {
        Self {
            epoch,
            base,
            commands,
            patches: Vec::new(),
            progress: None,
            attributes: BTreeMap::new(),
            token_key: None,
            over: Vec::new(),
            published: Published::default(),
            then,
            failed_since: None,
            foresees: None,
            unread: 0,
            turn: 0,
        }
    }

    /// How many of its commands come back as news: who foresees has gone on with them already.
    pub fn told(&self) -> usize {
        if self.foresees.is_some() { 0 } else { self.commands.len() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_uncounted(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

/// What a program does after a commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Then {
    /// It goes on: steps are under way. The times that an earlier activation has set come only after the first commit
    /// of this one.
    #[serde(rename = "continue")]
    Continue {
        /// What it waits for besides; absent when that has not changed. Not recorded when there is news
        /// after the commit's base: the answer has that news, and the program says it again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open: Option<Vec<Open>>,
    },
    /// It has nothing to do until one of these happens.
    #[serde(rename = "suspend")]
    Suspend {
        /// All that it waits for.
        open: Vec<Open>,
    },
    /// Its budget is used up and there is more to do: it wants to be activated again.
    #[serde(rename = "yield")]
    Yield {
        /// What it waits for besides; absent when that has not changed. Not recorded when there is news after the
        /// commit's base: the next activation sees that news, and says it again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open: Option<Vec<Open>>,
    },
    /// It begins anew, in a new life of the same run: with this input, and a journal of which only the signals are left
    /// that nobody in it has taken. Not recorded when there is news after the commit's base: the answer has that news,
    /// and the program says it again.
    #[serde(rename = "anew")]
    Anew {
        /// What the new life is started with.
        input: Payload,
        /// Where the signals are that nobody has taken, in order: they count in the new life.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keeps: Vec<Seq>,
        /// How many bytes their payloads have.
        #[serde(default, skip_serializing_if = "is_nothing")]
        keeps_bytes: u64,
    },
    /// The workflow returned.
    #[serde(rename = "complete")]
    Complete {
        /// What it returned.
        output: Payload,
    },
    /// The workflow failed.
    #[serde(rename = "fail")]
    Fail {
        /// Why.
        failure: Failure,
    },
    /// The program cannot go on with this journal; a person has to look.
    #[serde(rename = "pause")]
    Pause {
        /// What a person should know.
        problem: Problem,
    },
}

/// Something a program waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Open {
    /// A sleep. The engine's clock counts it, from when it first hears of it.
    #[serde(rename = "sleep")]
    Sleep {
        /// The sleep.
        op: Op,
        /// How long.
        ms: u64,
    },
    /// A sleep until a certain time.
    #[serde(rename = "sleep_until")]
    SleepUntil {
        /// The sleep.
        op: Op,
        /// When it ends.
        at: Timestamp,
    },
    /// A wait for a signal.
    #[serde(rename = "wait")]
    Wait {
        /// The wait.
        op: Op,
        /// The signal's name.
        signal: String,
        /// For how long at the most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// What it takes.
        #[serde(default, skip_serializing_if = "Shape::is_any")]
        shape: Shape,
        /// What somebody with a token is asked, if the wait has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Box<Asked>>,
        /// The events that it is for, if it is for events.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<Box<EventWait>>,
    },
    /// The next attempt of a step.
    #[serde(rename = "retry")]
    Retry {
        /// The step.
        op: Op,
        /// When it may begin.
        at: Timestamp,
    },
    /// To be let in by a step's lane, for the next attempt of the step.
    #[serde(rename = "lane")]
    Lane {
        /// The step.
        op: Op,
        /// The lane.
        lane: Box<StepLane>,
    },
    /// A child.
    #[serde(rename = "child")]
    Child {
        /// The invocation.
        op: Op,
        /// Where that is in the journal.
        invoked: Seq,
        /// What of it.
        #[serde(default, skip_serializing_if = "Awaits::is_finished")]
        awaits: Awaits,
        /// For how long at the most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
}

impl Open {
    /// What it names.
    pub fn op(&self) -> &Op {
        match self {
            Self::Sleep { op, .. }
            | Self::SleepUntil { op, .. }
            | Self::Wait { op, .. }
            | Self::Retry { op, .. }
            | Self::Lane { op, .. }
            | Self::Child { op, .. } => op,
        }
    }
}

/// How often a step is tried, and how long apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all, at least 1.
    pub attempts: u32,
    /// The first delay.
    pub initial_ms: u64,
    /// By what the delay grows with each attempt.
    pub factor: f64,
    /// The longest delay.
    pub max_ms: u64,
    /// How much of a delay is left to chance, from 0 to 1.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 3, initial_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.1 }
    }
}

impl Retry {
    /// The longest delay that an error may ask for: 30 days.
    pub const AFTER_MS_MAX: u64 = 30 * 86_400_000;
}

/// What the engine says to a commit, or to a program that listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Recorded. Here is all that happened after the commit's base, in order.
    #[serde(rename = "go")]
    Go {
        /// The engine's clock.
        now: Timestamp,
        /// What happened.
        news: Vec<News>,
        /// Whether somebody follows the run, and wants to see soon which steps are under way: see [`Beat::SOON_MS`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        followed: bool,
    },
    /// Recorded; this activation has nothing left to do.
    #[serde(rename = "stop")]
    Stop,
    /// Not recorded: this activation may not write. It should end without another word.
    #[serde(rename = "refused")]
    Refused {
        /// Why.
        problem: Problem,
    },
}

impl Answer {
    /// All that has happened, while nobody follows the run.
    pub fn go(now: Timestamp, news: Vec<News>) -> Self {
        Self::Go { now, news, followed: false }
    }

    /// The answer to nearly every commit in short: everything was recorded as it was sent, at this time and next to the
    /// commit's base, and nothing else has happened. `None` if there is more to say.
    pub fn in_short(&self, base: Seq, commands: usize) -> Option<Timestamp> {
        let Self::Go { now, news, followed: false } = self else { return None };
        let expected = |(news, index): (&News, usize)| {
            *news == News::Yours { seq: next_to(base, index), at: *now, command: index }
        };
        (news.len() == commands && news.iter().zip(0..).all(expected)).then_some(*now)
    }

    /// What [`Self::in_short`] stands for.
    pub fn from_short(now: Timestamp, base: Seq, commands: usize) -> Self {
        let yours = |command| News::Yours { seq: next_to(base, command), at: now, command };
        Self::go(now, (0..commands).map(yours).collect())
    }
}

/// The position of a commit's command that was recorded next to its base.
fn next_to(base: Seq, command: usize) -> Seq {
    let command = u32::try_from(command).expect("a message holds fewer commands than 2^32");
    Seq(base.0 + 1 + command)
}

/// One thing that happened after a commit's base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// The command at this index of the commit was recorded as it was sent: its content is not sent back.
    #[serde(rename = "yours")]
    Yours {
        /// Its position in the journal.
        seq: Seq,
        /// When the engine recorded it.
        at: Timestamp,
        /// Which of the commit's commands.
        command: usize,
    },
    /// An event that the program has not seen.
    #[serde(rename = "record")]
    Record(Record),
    /// More has happened than one answer holds, the commit's own commands included: the program reads on by pages
    /// before it does anything else. Always the last one.
    #[serde(rename = "more")]
    More,
}

#[cfg(test)]
mod tests;
