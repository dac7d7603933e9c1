//! What can go wrong inside a cell.

use stepwell_core::run::Corrupt;
use stepwell_protocol::{Code, Problem};
use wasm_bindgen::JsValue;

use crate::runtime;

/// Why a cell could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The caller's fault.
    #[error(transparent)]
    Rejected(#[from] Problem),
    /// Stored data that cannot be read.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Stored data that is not what its column says.
    #[error("the stored {0} cannot be read")]
    Unreadable(&'static str),
    /// The storage refused.
    #[error("the storage failed: {0}")]
    Storage(String),
}

impl Fault {
    /// What the caller is told.
    pub fn into_problem(self) -> Problem {
        match self {
            Self::Rejected(problem) => problem,
            Self::Corrupt(_) | Self::Unreadable(_) | Self::Storage(_) => {
                worker::console_error!("stepwell: {self}");
                let detail = "Nothing was recorded. Try again; if it stays, the Worker's log says more.";
                Problem::new(Code::Internal, detail)
            }
        }
    }
}

impl From<JsValue> for Fault {
    fn from(thrown: JsValue) -> Self {
        Self::Storage(runtime::message(&thrown))
    }
}
