//! What a run waits for.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Op, Shape, Timestamp, topic::EventWait, wait_token::Asked};

use super::{OpenChild, Run, Visit};

/// Something that a run waits for, with the time that the engine's clock set for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOp {
    /// The sleep, wait or step.
    pub op: Op,
    /// When it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// When the engine first heard of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The signal that a wait is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// What that signal's payload must be.
    #[serde(default, skip_serializing_if = "Shape::is_any")]
    pub shape: Shape,
    /// The child that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<OpenChild>,
    /// What somebody with a token of this wait is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Box<Asked>>,
    /// The events that a wait is for, if it is for events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<EventWait>>,
    /// The lane that a step waits to be let in by, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visit: Option<Box<Visit>>,
}

impl OpenOp {
    /// One that has no time and waits for nothing.
    pub(crate) fn plain(op: Op) -> Self {
        Self {
            op,
            until: None,
            since: None,
            signal: None,
            shape: Shape::Any,
            child: None,
            asked: None,
            event: None,
            visit: None,
        }
    }
}

impl Run {
    /// The earliest time at which something that it waits for happens, and not only a lane is asked again.
    pub fn wakes_by_itself(&self) -> Option<Timestamp> {
        self.open.iter().filter(|open| open.visit.is_none()).filter_map(|open| open.until).min()
    }

    /// The earliest time among the things it waits for.
    pub fn next_open(&self) -> Option<Timestamp> {
        self.open.iter().filter_map(|open| open.until).min()
    }
}
