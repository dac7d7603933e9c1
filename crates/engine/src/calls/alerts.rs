//! What Workers ask of the station of a namespace's alerts.

use serde::{Deserialize, Serialize};
use stepwell_protocol::alert::AlertSpec;

/// A request to the station.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Who asks. Whether they may was found out before.
    pub by: String,
    /// What to do.
    pub request: Request,
}

/// What is asked of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// List the rules.
    List,
    /// Show a rule.
    Get {
        /// Its id.
        id: String,
    },
    /// Make a rule, or let it watch something else.
    Put {
        /// Its id.
        id: String,
        /// What it is to watch.
        spec: Box<AlertSpec>,
    },
    /// Delete a rule.
    Delete {
        /// Its id.
        id: String,
    },
}
