//! What went wrong with a run since its program last wrote something.
//!
//! Owns: the counts. Does not own: what follows from them, which is decided in `decide.rs`.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Code, Seq};

/// After being orphaned this often without progress, a run is activated alone.
pub const SUSPICION_ALONE: u32 = 2;

/// After dying this often without progress, and by nobody else's fault, a run is failed.
pub const STRIKES_MAX: u32 = 10;

/// After so many activations in a row whose report the storage did not take, a run is paused: each of them may have
/// run the same steps again. Only those count after which the storage did take a note of that for this very run. So an
/// outage of the whole storage counts nobody anything: a note that is not taken is not counted, and no program is
/// called either. With the pauses between them, ten take about a minute, which a disturbance that refuses one run and
/// spares its notes rarely lasts.
pub const UNSTORED_MAX: u32 = 10;

/// What went wrong since the program last wrote something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The position up to which the program had written when this was counted. Once it has written more,
    /// all of this is void.
    #[serde(default)]
    pub since: Seq,
    /// Deaths that are the run's own: its program threw, or its cell died while it ran alone.
    #[serde(default)]
    pub strikes: u32,
    /// Times that the cell died while it ran: it may have been this run, or a neighbour, or the platform.
    #[serde(default)]
    pub suspicion: u32,
    /// Times that the program could not be reached, or its connection broke, or it refused to be called.
    #[serde(default)]
    pub losses: u32,
    /// Times that the storage did not take what the program reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unstored: u32,
    /// Why it refused, if that is how its latest call ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Code>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
