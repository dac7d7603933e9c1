//! How many runs are in which status, as the API counts them.

use serde::Deserialize;
use stepwell_protocol::rest::Status;

use crate::map::Map;

/// The counts of all workflows.
#[derive(Default, Deserialize)]
pub struct Metrics {
    /// All together.
    pub statuses: Counts,
    /// By workflow.
    pub workflows: Map<String, Counts>,
    /// Whether all runs were counted.
    pub complete: bool,
}

/// How many runs are in which status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Counts {
    pending: u64,
    running: u64,
    sleeping: u64,
    waiting: u64,
    paused: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
}

impl Counts {
    /// Those in a status.
    pub fn of(&self, status: Status) -> u64 {
        match status {
            Status::Pending => self.pending,
            Status::Running => self.running,
            Status::Sleeping => self.sleeping,
            Status::Waiting => self.waiting,
            Status::Paused => self.paused,
            Status::Completed => self.completed,
            Status::Failed => self.failed,
            Status::Cancelled => self.cancelled,
        }
    }

    /// Those that have ended.
    pub fn ended(&self) -> u64 {
        self.completed + self.failed + self.cancelled
    }

    /// Those that have not.
    pub fn live(&self) -> u64 {
        self.pending + self.running + self.sleeping + self.waiting + self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_count() {
        let protocols: stepwell_protocol::rest::Counts = Status::ALL.into_iter().zip(1..).collect();
        let text = serde_json::to_string(&protocols).expect("it is JSON");
        let counts: Counts = serde_json::from_str(&text).expect("they are counts");
        for (status, count) in protocols {
            assert_eq!(counts.of(status), count);
        }
        assert_eq!((counts.live(), counts.ended()), (15, 21));
        let text =
            format!(r#"{{"total":1,"statuses":{text},"workflows":{{"b":{text},"a":{{}}}},"complete":true}}"#);
        let metrics: Metrics = serde_json::from_str(&text).expect("they are metrics");
        assert_eq!(metrics.workflows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(metrics.statuses, counts);
    }
}
