//! Runs that events start. Each event starts one for each of its triggers, within the limits, settings and pauses of its
//! namespace.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Payload, Place, Timestamp, lane::Flow, program::Dispatch, topic::Triggered};

use super::{Cell, Chance, Joins, KeyRow, NewRun, Rows, access::Unasked};
use crate::{
    object::{Fault, Hosted as _, Receipt},
    topic::event_key,
};

/// The run of an event, to be started on these terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggeredRun {
    /// By what it is known.
    pub triggered: Triggered,
    /// The workflow.
    pub workflow: String,
    /// What it is started with.
    pub input: Payload,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
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
    /// Starts the run of an event, unless that was done before: whatever it is started with, the same trigger and event
    /// are the same start.
    pub fn start_triggered<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        place: Place,
        chance: Chance,
        run: TriggeredRun,
    ) -> Result<Receipt, Fault<R::Error>> {
        let TriggeredRun { triggered, workflow, input, tags, dispatch, .. } = run;
        let key = event_key(&triggered);
        if let Some(known) = Self::known_start(rows, &place, &key)? {
            return Ok(known);
        }
        let unasked = Unasked {
            workflow: &workflow,
            bytes: input.size(),
            timeout_ms: run.timeout_ms,
            retention_ms: run.retention_ms,
            retention_is_default: run.retention_is_default,
        };
        let now = self.now(clock);
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
            by: Some(format!("trigger:{}/{}", triggered.topic, triggered.trigger)),
            parent: None,
            trace: None,
            ticked: None,
            triggered: Some(triggered),
            starts_at: None,
            callback: run.callback,
            flow: run.flow,
            joins: run.joins,
        };
        self.start_or_move(rows, clock, new, run.spare)
    }
}
