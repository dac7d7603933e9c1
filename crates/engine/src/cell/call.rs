//! What a Worker asks of a cell: the body of the one internal request.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Payload, Place, Seq};

/// A request to a cell.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// The cell's own place. An object does not always know its name; this one stores it.
    pub pool: String,
    /// See [`Place`].
    pub generation: u32,
    /// See [`Place`].
    pub cell: u32,
    /// What to do.
    pub operation: Operation,
}

/// What a Worker asks of a cell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Start a run.
    Start {
        /// The workflow to run.
        workflow: String,
        /// What it is started with.
        input: Payload,
        /// The idempotency key.
        key: Option<String>,
        /// How long the caller waits for the end.
        wait_ms: u64,
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
    /// Show a run's history.
    History {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
        /// The position after which to begin.
        after: Seq,
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
        /// What comes with it.
        payload: Payload,
    },
    /// Cancel a run.
    Cancel {
        /// Its number.
        number: u64,
        /// The random part of its id.
        suffix: String,
    },
}

impl Call {
    /// A request to the cell at this place.
    pub fn new(place: &Place, operation: Operation) -> Self {
        let Place { pool, generation, cell } = place.clone();
        Self { pool, generation, cell, operation }
    }

    /// Where the caller believes the cell to be.
    pub fn place(&self) -> Place {
        Place { pool: self.pool.clone(), generation: self.generation, cell: self.cell }
    }
}
