//! How a repeat of a commit is known.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Epoch, Seq};

use super::{Children, Held, hex};

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

/// What the last event of a journal says besides itself: all that a cell has to know of the journal to go on, so that
/// it reads one event, however many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// The program's last commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The signals that came.
    #[serde(default, skip_serializing_if = "Inbox::is_empty")]
    pub inbox: Inbox,
    /// The children that have not ended.
    #[serde(default, skip_serializing_if = "Children::is_empty")]
    pub children: Children,
    /// The steps that were let in by their lanes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
}

/// The signals that a run was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbox {
    /// How many of them its program has not taken, as far as anybody knows.
    #[serde(default)]
    pub unread: u32,
    /// How many bytes all of them have.
    #[serde(default)]
    pub bytes: u64,
}

impl Inbox {
    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_uncounted(turn: &u32) -> bool {
    *turn == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_not(erred: &bool) -> bool {
    !erred
}
