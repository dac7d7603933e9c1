//! What cells and Workers ask of a lane.

use serde::{Deserialize, Serialize};
use stepwell_core::object::Message;
use stepwell_protocol::{
    RunId,
    lane::{Ask, Limit, LimitChange, Ticket},
};

/// A request to a lane.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Some tickets of a cell are over, and others want to be let in.
    Ask {
        /// Who wants to be let in.
        asks: Vec<Ask>,
        /// Whose tickets are over.
        over: Vec<Ticket>,
    },
    /// A start wants to become a run.
    Admit {
        /// What it is known by.
        start: RunId,
        /// The rates that it is dropped by, if they have no room.
        limits: Vec<Limit>,
    },
    /// A cell has written.
    Receive {
        /// What.
        message: Message,
    },
    /// Somebody sets a limit.
    SetLimit {
        /// Which, and to what.
        change: LimitChange,
        /// Who.
        who: String,
    },
    /// Say why a run waits.
    Why {
        /// Which.
        run: RunId,
    },
    /// Show who is let in and who waits.
    Page {
        /// After this number.
        after: u64,
        /// So many.
        limit: usize,
    },
}
