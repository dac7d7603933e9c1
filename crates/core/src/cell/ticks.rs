//! Runs that schedules start. Each tick starts one, within the limits, settings and pauses of its namespace.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Payload, Place, Timestamp, lane::Flow, program::Dispatch, schedule::Ticked};

use super::{Cell, Chance, Joins, KeyRow, NewRun, Rows, access::Unasked};
use crate::{
    object::{Fault, Hosted as _, Receipt},
    schedule::tick_key,
};

/// The run of a tick, to be started on these terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TickRun {
    /// By what it is known.
    pub ticked: Ticked,
    /// The workflow.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether it is given up: if it has not been started, it never is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// The cell that gets it if this one is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<Place>,
    /// How its program is called.
    #[serde(default, skip_serializing_if = "Dispatch::is_direct")]
    pub dispatch: Dispatch,
    /// The address that is called when it ends, if its workflow names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// The limits of its workflow, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Box<Flow>>,
    /// Which starts it may become one run with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<Joins>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long it is kept after its end; for ever, if that is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// Whether that is what the deployment says of all runs.
    #[serde(default)]
    pub retention_is_default: bool,
}

impl Cell {
    /// Starts the run of a tick, unless that was done before: whatever it is started with, the same tick is the same
    /// start. Gone, if the tick was given up before it had a run: a question that comes late starts it no more.
    pub fn start_tick<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        place: Place,
        chance: Chance,
        tick: TickRun,
    ) -> Result<Receipt, Fault<R::Error>> {
        let TickRun { ticked, workflow, input, tags, dispatch, .. } = tick;
        let key = tick_key(&ticked);
        if let Some(known) = Self::known_start(rows, &place, &key)? {
            return Ok(known);
        }
        let now = self.now(clock);
        if tick.given_up {
            if let Some(to) = tick.joins.and_then(|joins| joins.to) {
                return Ok(Receipt::Moved { to });
            }
            self.give_up(rows, now, &key)?;
            return Ok(Receipt::Gone);
        }
        let unasked = Unasked {
            workflow: &workflow,
            bytes: input.size(),
            timeout_ms: tick.timeout_ms,
            retention_ms: tick.retention_ms,
            retention_is_default: tick.retention_is_default,
        };
        let (timeout_ms, retention_ms) = self.admit_unasked(rows, now, &unasked)?;
        let new = NewRun {
            place,
            suffix: chance.suffix.clone(),
            seed: chance.seed,
            workflow,
            input,
            dispatch,
            timeout_ms,
            retention_ms,
            tags,
            key: Some(KeyRow { key, fingerprint: chance.suffix }),
            by: Some(format!("schedule:{}", ticked.schedule)),
            parent: None,
            trace: None,
            ticked: Some(ticked),
            starts_at: None,
            triggered: None,
            callback: tick.callback,
            flow: tick.flow,
            joins: tick.joins,
        };
        self.start_or_move(rows, clock, new, tick.spare)
    }
}
