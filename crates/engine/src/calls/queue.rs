//! What goes through the queue, and what its consumers ask of cells.

use serde::{Deserialize, Serialize};
use stepwell_core::run::CallEnd;
use stepwell_protocol::{Epoch, Payload, Place, Problem, Seq, program::Beat, stream::Published};

use super::cell::{default_namespace, is_default_namespace};

/// How long a program that listens through a consumer waits for news before it is told that there is none: a call
/// to a cell that is gone must not wait for ever.
pub const LISTEN_MS: u64 = 20_000;

/// The message: which run of which cell is due.
#[derive(Debug, Serialize, Deserialize)]
pub struct Nudge {
    /// See [`Place`].
    pub pool: String,
    /// See [`Place`].
    pub generation: u32,
    /// See [`Place`].
    pub cell: u32,
    /// The cell's namespace.
    #[serde(default = "default_namespace", skip_serializing_if = "is_default_namespace")]
    pub namespace: String,
    /// The run's number.
    pub number: u64,
}

/// What a consumer asks of a cell, each time in a request of its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Give me this run.
    Claim {
        /// Its number.
        number: u64,
        /// Whether the consumer has nothing else under way.
        alone: bool,
    },
    /// My program reports.
    Commit {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// Which commit of it this is.
        turn: u32,
        /// What the program says, as it has said it.
        commit: Payload,
    },
    /// My program reads its journal.
    Page {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// After which position.
        after: Seq,
    },
    /// My program waits for news.
    Listen {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// After which position.
        after: Seq,
    },
    /// My program publishes something.
    Publish {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// What.
        published: Published,
    },
    /// My program is at work.
    Beat {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// What the program says about it, if it was the program that said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beat: Option<Beat>,
    },
    /// The call of my program is over.
    Ended {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// How it ended.
        end: End,
    },
}

/// What a consumer gets for a claim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimed {
    /// The run is its own.
    Yours {
        /// The activation.
        epoch: Epoch,
        /// What to call the program with.
        activation: Payload,
        /// The life of the cell's namespace; nothing in the default one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        life: Option<u64>,
    },
    /// There is nothing to do.
    Nothing,
    /// It should be claimed again when nothing else is under way.
    Alone,
}

/// How the call of a program ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It returned.
    Returned,
    /// It threw.
    Threw(String),
    /// It could not be reached, or the connection broke.
    Lost(String),
    /// What it ran in died, perhaps by its fault.
    Died(String),
    /// It takes no such calls.
    Refused(Problem),
}

impl From<CallEnd> for End {
    fn from(end: CallEnd) -> Self {
        match end {
            CallEnd::Returned => Self::Returned,
            CallEnd::Threw(message) => Self::Threw(message),
            CallEnd::Lost(message) => Self::Lost(message),
            CallEnd::Died(message) => Self::Died(message),
            // Only a cell gives up on a call, and only on one that it holds itself.
            CallEnd::Silent => Self::Lost("nothing was heard of it".into()),
            // Its cell knows that by itself.
            CallEnd::Unstored => Self::Lost("the storage failed".into()),
            CallEnd::Refused(problem) => Self::Refused(problem),
        }
    }
}

impl From<End> for CallEnd {
    fn from(end: End) -> Self {
        match end {
            End::Returned => Self::Returned,
            End::Threw(message) => Self::Threw(message),
            End::Lost(message) => Self::Lost(message),
            End::Died(message) => Self::Died(message),
            End::Refused(problem) => Self::Refused(problem),
        }
    }
}

impl Nudge {
    /// The cell that holds the run.
    pub fn place(&self) -> Place {
        Place { pool: self.pool.clone(), generation: self.generation, cell: self.cell }
    }
}
