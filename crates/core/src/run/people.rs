//! What people send to a run and do to it, and that it remembers who they were.

use stepwell_protocol::{
    Code, Event, Op, Outcome, Payload, Problem, Record, Timestamp,
    rest::{Act, LastError},
    topic::{EventView, WAIT_PREFIX},
};

use super::{Rejection, Run};

/// How many acts a run remembers: the latest ones.
pub const ACTS_MAX: usize = 20;

/// With what the ids begin that delivered events are known by. No header can bring it, so no caller's id is the same.
const DELIVERED: &str = "\nevent:";

/// A signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// The sender's id for it.
    pub id: Option<String>,
    /// What tells two requests apart if the sender gave no id.
    pub nonce: Option<String>,
    /// What comes with it.
    pub payload: Payload,
    /// Who has sent it; nobody in particular, if that is not said.
    pub by: Option<String>,
    /// Which wait of its name it is for, if it came by a token; whichever comes first, if that is not said.
    pub to: Option<u32>,
}

impl Signal {
    /// One without an id, from nobody in particular.
    pub fn new(name: impl Into<String>, payload: Payload) -> Self {
        Self { name: name.into(), id: None, nonce: None, payload, by: None, to: None }
    }

    /// The signal that an event is about.
    pub fn of(event: &Event) -> Option<Self> {
        if let Event::SignalReceived { name, id, payload, by, to, .. } = event.clone() {
            Some(Self { name, id, nonce: None, payload, by, to })
        } else {
            None
        }
    }

    /// An event that is delivered to a wait for it.
    pub fn of_event(event: &EventView, wait: Op) -> Self {
        Self {
            id: Some(Self::event_id(event, &wait.name)),
            name: wait.name,
            nonce: None,
            payload: Payload::encode(event).unwrap_or_default(),
            by: Some(event.tag.clone()),
            to: Some(wait.occurrence),
        }
    }

    /// What an event is known by to the waits of one name.
    pub fn event_id(event: &EventView, wait: &str) -> String {
        // The tag begins with its kind.
        format!("\n{}/{wait}", event.tag)
    }

    /// Refuses one that is for a wait for events and is no event.
    pub(crate) fn check_sender(&self) -> Result<(), Rejection> {
        let is_event = self.id.as_deref().is_some_and(|id| id.starts_with(DELIVERED));
        if is_event { Ok(()) } else { check_signal_name(&self.name) }
    }

    /// What it is known by if it comes again.
    pub fn known_by(&self) -> Option<&str> {
        self.id.as_deref().or(self.nonce.as_deref())
    }

    pub(super) fn received(self, since: Option<Timestamp>) -> Event {
        let Self { name, id, payload, by, to, nonce: _ } = self;
        Event::SignalReceived { name, id, payload, by, since, to }
    }
}

/// Refuses the name of a wait for events where a caller names a signal: nobody but the topic says that an event has come.
pub fn check_signal_name(name: &str) -> Result<(), Rejection> {
    if !name.starts_with(WAIT_PREFIX) {
        return Ok(());
    }
    let detail = "A name that begins with 'event:' belongs to a wait for an event. Signals and links do not complete such \
                  a wait. Send the event instead, with `POST /api/events`.";
    Err(Problem::new(Code::InvalidRequest, detail))
}

impl Run {
    /// Remembers an attempt that failed. It is stored whenever the row is: no row more.
    pub(super) fn remember_error(&mut self, record: &Record) {
        let (op, attempt, failure) = match &record.event {
            Event::StepRetrying { op, attempt, failure, .. }
            | Event::StepFinished { op, attempt, outcome: Outcome::Err(failure), .. } => {
                (op, *attempt, failure)
            }
            Event::StepFinished { outcome: Outcome::Ok(_), .. }
            | Event::StepBegun { .. }
            | Event::StepLetIn { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => return,
        };
        let mut message = failure.message.clone();
        if message.len() > LastError::MESSAGE_LENGTH_MAX {
            let end = (0..=LastError::MESSAGE_LENGTH_MAX).rev().find(|&at| message.is_char_boundary(at));
            message.truncate(end.unwrap_or_default());
        }
        self.last_error = Some(LastError {
            step: op.name.clone(),
            attempt,
            message,
            code: failure.code,
            at: record.at,
            count: self.last_error.as_ref().map_or(0, |before| before.count).saturating_add(1),
        });
    }

    pub(super) fn remember_act(&mut self, act: &Act) {
        if self.acts.len() >= ACTS_MAX {
            self.acts.drain(..=self.acts.len() - ACTS_MAX);
        }
        self.acts.push(act.clone());
    }
}
