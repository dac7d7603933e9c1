//! Triggers that an app declares: the events that start runs of its workflows, or become jobs of its queues.

use stepwell_protocol::{
    manifest::TriggerDescription,
    topic::{TriggerInput, TriggerSpec, topic_of},
};

/// The events that start runs of a workflow, or become jobs of a queue. `#[workflow(on = "…")]` and [`crate::App::on`] make one.
///
/// The engine reads the condition when it reads what the app declares, and refuses an app with a mistake in it.
#[derive(Clone, Debug)]
pub struct Trigger {
    name: Option<String>,
    spec: TriggerSpec,
}

impl Trigger {
    /// By events of this name, or by all that begin alike: `order/paid`, `order/*`. A run is started with what the event
    /// says.
    ///
    /// # Panics
    /// If the name is none of events: a mistake in the program.
    pub fn on(events: &str) -> Self {
        assert!(topic_of(events).is_some(), "'{events}' names no events: write 'order/paid' or 'order/*'");
        let spec = TriggerSpec {
            on: events.to_owned(),
            when: None,
            workflow: String::new(),
            queue: None,
            input: TriggerInput::Data,
            tags: Vec::new(),
        };
        Self { name: None, spec }
    }

    /// Only if this holds: an expression over `event`, such as `event.data.amount > 100`.
    #[must_use]
    pub fn when(mut self, condition: &str) -> Self {
        self.spec.when = Some(condition.to_owned());
        self
    }

    /// Its id in the topic; the name of the workflow or queue, if that is not said.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Starts runs with the event, and not only with its data: an object with `id`, `name`, `at` and `data`, which
    /// [`crate::Event`] reads.
    #[must_use]
    pub fn with_event(mut self) -> Self {
        self.spec.input = TriggerInput::Event;
        self
    }

    /// Adds a tag to its runs.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.spec.tags.push(tag.to_owned());
        self
    }

    /// As the app's manifest has it.
    pub(crate) fn describe(self, workflow: &str) -> TriggerDescription {
        let name = self.name.unwrap_or_else(|| workflow.to_owned());
        TriggerDescription { name, spec: TriggerSpec { workflow: workflow.to_owned(), ..self.spec } }
    }

    /// The same for the jobs of a queue.
    pub(crate) fn describe_for(self, queue: &str) -> TriggerDescription {
        let name = self.name.unwrap_or_else(|| queue.to_owned());
        TriggerDescription { name, spec: TriggerSpec { queue: Some(queue.to_owned()), ..self.spec } }
    }
}
