//! What can go wrong inside an object.

use stepwell_core::{catalog, object, run::Corrupt};
use stepwell_protocol::{Code, Place, Problem};
use wasm_bindgen::JsValue;

use crate::{log, runtime};

/// Why an object could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The caller's fault.
    #[error(transparent)]
    Rejected(#[from] Problem),
    /// The storage's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody's: another cell has to be asked.
    #[error("the key has gone to cell {0}")]
    Moved(Place),
}

/// Why the rows could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Stored data that no release has written.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The same of a catalog.
    #[error(transparent)]
    CorruptCatalog(#[from] catalog::Corrupt),
    /// Stored data that is not what its column says.
    #[error("the stored {0} cannot be read")]
    Unreadable(&'static str),
    /// The platform refused.
    #[error("the storage failed: {0}")]
    Refused(String),
}

impl Fault {
    /// What the caller is told.
    pub fn into_problem(self) -> Problem {
        match self {
            Self::Rejected(problem) => problem,
            Self::Moved(place) => Problem::new(Code::Internal, format!("The key has gone to cell {place}.")),
            Self::Store(error) => {
                log::error!("{error}");
                let detail = "Nothing was recorded. Try again; if it persists, read the Worker's log.";
                Problem::new(Code::Internal, detail)
            }
        }
    }
}

impl From<object::Fault<StoreError>> for Fault {
    fn from(fault: object::Fault<StoreError>) -> Self {
        match fault {
            object::Fault::Rejected(problem) => Self::Rejected(problem),
            object::Fault::Storage(error) => Self::Store(error),
            object::Fault::Moved(place) => Self::Moved(place),
        }
    }
}

impl From<JsValue> for StoreError {
    fn from(thrown: JsValue) -> Self {
        Self::Refused(runtime::message(&thrown))
    }
}

impl From<JsValue> for Fault {
    fn from(thrown: JsValue) -> Self {
        Self::Store(thrown.into())
    }
}
