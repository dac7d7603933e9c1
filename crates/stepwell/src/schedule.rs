//! Schedules that an app declares: when runs of its workflows start by themselves.

use stepwell_protocol::{
    Payload,
    manifest::ScheduleDescription,
    schedule::{CatchUp, Overlap, ScheduleSpec},
};

/// When runs of a workflow start by themselves. `#[workflow(cron = "…")]` and [`crate::App::cron`] make one.
///
/// The engine reads the times when it reads what the app declares, and refuses an app with a mistake in them.
#[derive(Clone, Debug)]
pub struct Schedule {
    name: Option<String>,
    spec: ScheduleSpec,
}

impl Schedule {
    /// By a cron expression: `0 9 * * MON-FRI`. With six fields, seconds come first.
    pub fn cron(expression: &str) -> Self {
        Self::of(expression)
    }

    /// At intervals or on days: `5 minutes`, `weekday at 9:00 in Europe/Berlin`.
    pub fn every(interval: &str) -> Self {
        Self::of(&format!("every {interval}"))
    }

    fn of(when: &str) -> Self {
        Self { name: None, spec: ScheduleSpec::new("", when) }
    }

    /// Its id; the name of the workflow, if that is not said.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// The time zone whose clocks it goes by; UTC, if that is not said.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Self {
        self.spec.zone = Some(zone.to_owned());
        self
    }

    /// What happens while the run of an earlier tick has not ended.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.spec.overlap = overlap;
        self
    }

    /// Starts a run for every tick that was missed, and not only for the latest.
    #[must_use]
    pub fn catch_up_all(mut self) -> Self {
        self.spec.catch_up = CatchUp::All;
        self
    }

    /// As the app's manifest has it.
    pub(crate) fn describe(self, workflow: &str, input: Payload) -> ScheduleDescription {
        let name = self.name.unwrap_or_else(|| workflow.to_owned());
        ScheduleDescription { name, spec: ScheduleSpec { workflow: workflow.to_owned(), input, ..self.spec } }
    }
}
