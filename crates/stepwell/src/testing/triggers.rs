//! Events that start runs, by the triggers that an app declares.

use serde::Serialize;
use stepwell_core::topic::{EventRow, RunOf, runs_of};
use stepwell_protocol::Timestamp;

use super::{
    Outcome, Scenario, Test, encode,
    engine::{Death, START_MS},
};

/// A run that an event has started.
pub struct Triggered {
    /// The trigger's name.
    pub trigger: String,
    /// What became of the run.
    pub outcome: Outcome,
}

impl Test {
    /// Sends an event, and gives the runs that the app's triggers start for it, by the names of the triggers. Each goes to
    /// its end, or until it waits for something that will not come.
    ///
    /// # Panics
    /// If the app declares no trigger, or one that the engine would refuse.
    #[must_use]
    #[track_caller]
    pub fn triggered_by<T: Serialize + ?Sized>(self, name: &str, data: &T) -> Vec<Triggered> {
        self.started_by(name, data, |scenario| scenario.play(Death::Never))
    }

    /// The same as [`Self::triggered_by`], with a crash before and after each commit of each run, as with
    /// [`Self::crash_everywhere`].
    ///
    /// # Panics
    /// As both of these.
    #[must_use]
    #[track_caller]
    pub fn triggered_by_with_crashes<T: Serialize + ?Sized>(self, name: &str, data: &T) -> Vec<Triggered> {
        self.started_by(name, data, |scenario| scenario.crash_everywhere())
    }

    #[track_caller]
    fn started_by<T: Serialize + ?Sized>(
        self,
        name: &str,
        data: &T,
        play: impl Fn(&Scenario) -> Outcome,
    ) -> Vec<Triggered> {
        let scenario = self.around();
        let declared: Vec<_> = scenario.app.triggers().cloned().collect();
        assert!(!declared.is_empty(), "the app declares no trigger");
        let event = EventRow {
            number: 1,
            at: Timestamp::from_millis(START_MS),
            generation: 1,
            name: name.to_owned(),
            id: "event-1".to_owned(),
            data: encode(data),
            source: None,
        };
        let runs = runs_of(&declared, &event).unwrap_or_else(|bad| panic!("{bad}"));
        let started = runs.into_iter().map(|RunOf { trigger, workflow, input }| {
            let timeout_ms = scenario.timeout_ms.or_else(|| scenario.app.timeout_ms(&workflow));
            let scenario = Scenario { workflow, input, timeout_ms, ..scenario.clone() };
            Triggered { trigger, outcome: play(&scenario) }
        });
        started.collect()
    }
}
