//! What a Worker asks of a cell: the body of the one internal request.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stepwell_core::{
    alert::Span,
    cell::{Action, Joins, TickRun, TokenAnswer, TriggeredRun},
    object::Message,
    stream::{Cursor, Kinds, Only},
};
use stepwell_protocol::{
    Payload, Place, Seq, Timestamp,
    access::Limits,
    filter::Filter,
    lane::{Flow, Ticket},
    outbox::MessageHead,
    program::Dispatch,
    rest::{BulkAction, RunView},
    text::hex,
    topic::{EventView, Waiter},
    trace::TraceParent,
    wait_token::{NewToken, WaitToken},
};

use super::{figures::Answers, queue::Ask};
use crate::{access::Access, settings::DEFAULT_NAMESPACE};

/// A request to a cell.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// The cell's own place. An object does not always know its name; this one stores it.
    pub pool: String,
    /// See [`Place`].
    pub generation: u32,
    /// See [`Place`].
    pub cell: u32,
    /// The cell's own namespace.
    #[serde(default = "default_namespace", skip_serializing_if = "is_default_namespace")]
    pub namespace: String,
    /// The life of the namespace that is meant, for whoever belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<u64>,
    /// On whose behalf; none for the deployment's own key, and for Stepwell itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The id of the request that asks, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What to do.
    pub operation: Operation,
}

pub(super) fn default_namespace() -> String {
    DEFAULT_NAMESPACE.into()
}

pub(super) fn is_default_namespace(namespace: &str) -> bool {
    namespace == DEFAULT_NAMESPACE
}

/// What a Worker asks of a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Look after the alarm, and nothing else.
    Touch,
    /// Show where the last sweep has stopped.
    ShowSweep,
    /// Keep where a sweep has stopped.
    KeepSweep {
        /// The last object that it has visited.
        cursor: String,
    },
    /// Start a run.
    Start(Start),
    /// Send a key on to its next home, unless it has started a run here.
    Reserve {
        /// The idempotency key.
        key: String,
        /// A hash of what it stands for.
        fingerprint: String,
        /// The place of its next home.
        to: String,
        /// How long the caller waits for the end of the run, if there is one.
        wait_ms: u64,
    },
    /// Do something to the run that a key has started here.
    ByKey {
        /// The workflow that the key belongs to.
        workflow: String,
        /// The idempotency key, as the caller knows it.
        key: String,
        /// What.
        ask: ByKey,
    },
    /// Show a run.
    Get {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// How long the caller waits for the end.
        wait_ms: u64,
    },
    /// Say why a run is where it is.
    Why {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
    },
    /// Show runs, newest first.
    List {
        /// Which ones.
        filter: Filter,
        /// Only those with a smaller number.
        below: u64,
        /// How many at the most.
        limit: u32,
    },
    /// Do something to the newest runs that fit.
    ActOnAll {
        /// Which ones.
        filter: Filter,
        /// Only those with a smaller number.
        below: u64,
        /// How many at the most.
        limit: u32,
        /// What.
        action: BulkAction,
        /// On whose behalf.
        by: String,
        /// What the namespace may use: runs that live again count like new ones.
        #[serde(default)]
        limits: Limits,
    },
    /// Count the runs.
    Count,
    /// Say what Prometheus is told.
    Measure,
    /// Keep what the Workers in front have answered.
    CountAnswers {
        /// Since they have told last.
        answers: Answers,
    },
    /// Say what alert rules look at, with what has happened.
    Sum {
        /// Of which workflows, and within how many minutes.
        spans: Vec<Span>,
    },
    /// List what has happened since a time, to the runs of one workflow or of all.
    ListMinutes {
        /// Since when.
        since: Timestamp,
        /// Of which workflow.
        workflow: Option<String>,
    },
    /// Say what has happened since a time, or ever, to the runs of each workflow.
    Total {
        /// Since when.
        since: Option<Timestamp>,
        /// Of which workflow; absent for each of them.
        workflow: Option<String>,
    },
    /// List groups of failed runs, of one workflow or of all.
    ListFailures {
        /// Of which workflow.
        workflow: Option<String>,
    },
    /// Show a run's history.
    History {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// The position after which to begin.
        after: Seq,
        /// How many events at most; absent for as many as go into a page.
        #[serde(default)]
        limit: Option<usize>,
        /// Whether to leave payloads out.
        #[serde(default)]
        outline: bool,
        /// Whether to say what a replay needs.
        #[serde(default)]
        replay: bool,
    },
    /// Send a run a signal.
    Signal {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// The signal's name.
        name: String,
        /// The sender's id for it.
        id: Option<String>,
        /// Drawn once for each client request: a call that is delivered again is known by it.
        #[serde(default)]
        nonce: Option<String>,
        /// What comes with it.
        payload: Payload,
    },
    /// Make a wait token of a run.
    NewToken {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// Of which wait, and for how long.
        new: NewToken,
    },
    /// Show how the wait of a token stands.
    ShowToken {
        /// The token, which whoever asks has verified.
        token: WaitToken,
    },
    /// Complete the wait of a token.
    CompleteToken {
        /// The token, which whoever asks has verified.
        token: WaitToken,
        /// What somebody answers.
        answer: TokenAnswer,
    },
    /// Do something to a run.
    Act {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// What.
        action: Action,
    },
    /// Follow a run, or all of them. Only a request that opens a socket can.
    Follow {
        /// What.
        follow: Follow,
    },
    /// Forget what the catalog has said of keys before this version.
    ForgetKeys {
        /// The version.
        version: u64,
        /// Of these keys and sessions only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ids: Option<Vec<String>>,
    },
    /// Show what has not arrived of what this cell has written.
    ShowOutbox {
        /// Whether only what nobody sends any more.
        only_dead: bool,
        /// Only letters with a larger number.
        #[serde(default)]
        after: u64,
        /// How many letters at the most.
        limit: u32,
    },
    /// Send a letter again.
    Redeliver {
        /// Its number.
        letter: u64,
    },
    /// Delete a dead letter.
    Discard {
        /// Its number.
        letter: u64,
    },
    /// Start the run of a tick of a schedule.
    Tick {
        /// It.
        run: Box<TickRun>,
    },
    /// Start the run of an event.
    Triggered {
        /// It.
        run: Box<TriggeredRun>,
    },
    /// Give an event to runs that wait for it.
    Meet {
        /// The event.
        event: Box<EventView>,
        /// The waits.
        waits: Vec<Waiter>,
    },
    /// Let these runs go to work, and say which of them still do.
    LetIn {
        /// Their tickets.
        tickets: Vec<Ticket>,
    },
    /// Take what another cell has written.
    Receive {
        /// What it says.
        message: Message,
    },
    /// What a consumer of the queue asks for.
    Consume {
        /// What.
        ask: Ask,
    },
}

/// A run to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The workflow to run.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// The idempotency key, which belongs to the workflow: see [`stepwell_core::cell::scoped_key`].
    pub key: Option<String>,
    /// The random part of the run's id, drawn once for each client request: a call that is delivered again is
    /// known by it.
    #[serde(default)]
    pub nonce: Option<String>,
    /// How its program is called.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// How long it is kept after its end; for ever, if that is not said.
    #[serde(default)]
    pub retention_ms: Option<u64>,
    /// Whether that is what the deployment says of all runs, and not the workflow's own word.
    #[serde(default)]
    pub retention_is_default: bool,
    /// What people call it by.
    pub tags: Vec<String>,
    /// It does not begin before; at once, if that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Timestamp>,
    /// The address that is called when it ends, if somebody has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// The span that it happens within, if whoever starts it has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// How many runs of its workflow are at work at once, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Box<Flow>>,
    /// Which starts it may become one run with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<Joins>,
    /// Whether a repeat is refused while the first request with its key waits for the end.
    #[serde(default)]
    pub is_strict: bool,
    /// How long the caller waits for the end.
    pub wait_ms: u64,
}

/// What is done to a run that is known by its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByKey {
    /// Show it.
    Get {
        /// How long the caller waits for the end.
        wait_ms: u64,
    },
    /// Send it a signal.
    Signal {
        /// The signal's name.
        name: String,
        /// The sender's id for it.
        id: Option<String>,
        /// Drawn once for each client request: a call that is delivered again is known by it.
        nonce: Option<String>,
        /// What comes with it.
        payload: Payload,
    },
    /// Do something to it.
    Act {
        /// What.
        action: Action,
    },
    /// Answer a start that is repeated while no new run may be started.
    Again {
        /// A hash of what the key stands for.
        fingerprint: String,
        /// See [`Start::is_strict`].
        is_strict: bool,
        /// How long the caller waits for the end.
        wait_ms: u64,
    },
}

/// What somebody wants to follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Follow {
    /// One run.
    Run {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// From where on.
        cursor: Cursor,
        /// What of it.
        kinds: Kinds,
        /// Whether only what is there already.
        #[serde(default)]
        leaves: bool,
    },
    /// The statuses of all runs.
    Cell {
        /// From where on, as a [`stepwell_core::stream::CellCursor`]; from now on, if that is not said.
        from: Option<String>,
        /// Which of them.
        #[serde(default)]
        only: Only,
    },
}

/// The answer about a key that is at home in another cell, with the status 308.
#[derive(Debug, Serialize, Deserialize)]
pub struct Moved {
    /// The place of that cell.
    pub to: String,
}

/// A cell's part of what has not arrived.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedLetters {
    /// The letters, in the order of their numbers.
    pub letters: Vec<ListedLetter>,
    /// Whether none comes after them.
    pub is_all: bool,
}

/// A letter that has not arrived.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedLetter {
    /// Its number.
    pub number: u64,
    /// When it was written.
    pub posted_at: Timestamp,
    /// Whether nobody sends it any more.
    pub dead: bool,
    /// What its messages are about.
    pub heads: Vec<MessageHead>,
}

/// A cell's part of a list.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listed {
    /// The runs, newest first.
    pub runs: Vec<RunView>,
    /// Where to go on; absent at the end.
    pub next: Option<Reached>,
}

/// How far a cell has looked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reached {
    /// The number of the last run that it has looked at.
    pub number: u64,
    /// When that run was accepted: all that is left is older.
    pub created_at: Timestamp,
}

impl Operation {
    /// The run that it is about, by number and the random part of its id.
    pub fn run(&self) -> Option<(u64, &str)> {
        match self {
            Self::Get { number, suffix, .. }
            | Self::Why { number, suffix }
            | Self::History { number, suffix, .. }
            | Self::Signal { number, suffix, .. }
            | Self::NewToken { number, suffix, .. }
            | Self::Act { number, suffix, .. }
            | Self::Follow { follow: Follow::Run { number, suffix, .. } } => Some((*number, suffix)),
            Self::Touch
            | Self::ShowSweep
            | Self::KeepSweep { .. }
            | Self::Start(_)
            | Self::Reserve { .. }
            | Self::ByKey { .. }
            | Self::List { .. }
            | Self::Count
            | Self::Measure
            | Self::CountAnswers { .. }
            | Self::Sum { .. }
            | Self::ListMinutes { .. }
            | Self::Total { .. }
            | Self::ListFailures { .. }
            | Self::ActOnAll { .. }
            | Self::ShowToken { .. }
            | Self::CompleteToken { .. }
            | Self::Follow { follow: Follow::Cell { .. } }
            | Self::ForgetKeys { .. }
            | Self::ShowOutbox { .. }
            | Self::Redeliver { .. }
            | Self::Discard { .. }
            | Self::Receive { .. }
            | Self::Tick { .. }
            | Self::Triggered { .. }
            | Self::Meet { .. }
            | Self::LetIn { .. }
            | Self::Consume { .. } => None,
        }
    }

    /// Whether it makes sense only if the pool has the cells that it always had.
    pub fn depends_on_cells(&self) -> bool {
        match self {
            Self::Start(_)
            | Self::Reserve { .. }
            | Self::ByKey { .. }
            | Self::List { .. }
            | Self::ActOnAll { .. }
            | Self::Count
            | Self::Measure
            | Self::Sum { .. }
            | Self::ListMinutes { .. }
            | Self::Total { .. }
            | Self::ListFailures { .. } => true,
            Self::Touch
            | Self::ShowSweep
            | Self::KeepSweep { .. }
            | Self::Get { .. }
            | Self::Why { .. }
            | Self::History { .. }
            | Self::Signal { .. }
            | Self::NewToken { .. }
            | Self::ShowToken { .. }
            | Self::CompleteToken { .. }
            | Self::CountAnswers { .. }
            | Self::Act { .. }
            | Self::Follow { .. }
            | Self::ForgetKeys { .. }
            | Self::ShowOutbox { .. }
            | Self::Redeliver { .. }
            | Self::Discard { .. }
            | Self::Receive { .. }
            | Self::Tick { .. }
            | Self::Triggered { .. }
            | Self::Meet { .. }
            | Self::LetIn { .. }
            | Self::Consume { .. } => false,
        }
    }

    /// Whether it may be what a cell stores first.
    pub fn may_be_first(&self) -> bool {
        matches!(
            self,
            Self::Start(_)
                | Self::Reserve { .. }
                | Self::CountAnswers { .. }
                | Self::Receive { .. }
                | Self::Tick { .. }
                | Self::Triggered { .. }
        )
    }

    /// The workflow that it names.
    pub fn workflow(&self) -> Option<&str> {
        if let Self::Start(Start { workflow, .. }) | Self::ByKey { workflow, .. } = self {
            Some(workflow)
        } else {
            None
        }
    }

    /// How many bytes of a payload come with it.
    pub fn payload_bytes(&self) -> usize {
        if let Self::Start(Start { input: payload, .. })
        | Self::Signal { payload, .. }
        | Self::ByKey { ask: ByKey::Signal { payload, .. }, .. } = self
        {
            payload.text().len()
        } else {
            0
        }
    }
}

impl Call {
    /// A request to the cell at this place.
    pub fn new(namespace: &str, place: &Place, access: Option<Access>, operation: Operation) -> Self {
        let Place { pool, generation, cell } = place.clone();
        let namespace = namespace.to_owned();
        Self { pool, generation, cell, namespace, life: None, access, request: None, operation }
    }

    /// The same, meant for this life of the namespace.
    #[must_use]
    pub fn in_life(self, life: Option<u64>) -> Self {
        Self { life, ..self }
    }

    /// The same for a request.
    #[must_use]
    pub fn of_request(self, id: Option<&str>) -> Self {
        Self { request: id.map(str::to_owned), ..self }
    }

    /// Where the caller believes the cell to be.
    pub fn place(&self) -> Place {
        Place { pool: self.pool.clone(), generation: self.generation, cell: self.cell }
    }
}

/// What a key stands for: the same key with another workflow or input is a mistake.
pub fn fingerprint(workflow: &str, input: &Payload) -> String {
    let mut hash = Sha256::new();
    hash.update((workflow.len() as u64).to_be_bytes());
    hash.update(workflow.as_bytes());
    hash.update(input.text().as_bytes());
    hex(&hash.finalize())
}
