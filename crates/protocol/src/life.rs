//! The lives of a run: one that begins anew goes on under the same id, with a new input and an empty journal.

use serde::{Deserialize, Serialize};

use crate::{Epoch, Timestamp};

/// A life of a run, from the second on.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Which one it is, from 2.
    pub number: u32,
    /// When it began.
    pub began_at: Timestamp,
    /// The last activation before it.
    pub after: Epoch,
}

impl Life {
    /// Whether an activation is the first one in it: no code was anywhere in this life before.
    pub fn begins_with(&self, epoch: Epoch) -> bool {
        self.after.next() == epoch
    }
}
