//! How a repeat of a commit is known.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Epoch, Seq};

use super::hex;

/// The last commit that was recorded, so that a repeat of it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The activation that committed.
    pub epoch: Epoch,
    /// The commit's base.
    pub base: Seq,
    /// A hash of the commit.
    #[serde(with = "hex")]
    pub hash: u64,
    /// The last position that the program itself has written.
    pub through: Seq,
    /// The commit's turn, if somebody counts them.
    #[serde(default, skip_serializing_if = "is_uncounted")]
    pub turn: u32,
    /// Whether it foresaw what did not come: its program was told to stop.
    #[serde(default, skip_serializing_if = "is_not")]
    pub erred: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_uncounted(turn: &u32) -> bool {
    *turn == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_not(erred: &bool) -> bool {
    !erred
}
