//! Events in a test: what somebody sends, what the run emits, and the waits that get them. There is one topic for all
//! names, and nothing but the run is at it.

use std::{collections::BTreeSet, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_core::{
    run::{Input, OpenOp, Phase, Signal},
    topic::{Conditions, EventRow, from_when, input_for},
};
use stepwell_protocol::topic::{NewEvent, Waiter, topic_of};

use super::{
    Outcome, Test, encode,
    engine::{Engine, Outside},
};

/// The events of a test.
#[derive(Clone, Default)]
pub(super) struct Events {
    /// What will be sent as soon as somebody waits for it, and has not been.
    awaited: Vec<NewEvent>,
    /// What was sent, in order.
    sent: Vec<EventRow>,
    /// What the run has emitted.
    pub emitted: Vec<NewEvent>,
    /// Which events the waits of which name have had.
    had: BTreeSet<(u64, String)>,
}

impl Events {
    pub fn awaiting(awaited: Vec<NewEvent>) -> Self {
        Self { awaited, ..Self::default() }
    }

    /// For a child: what the test sends is sent to each run that waits for it.
    pub fn beside(&self) -> Self {
        Self::awaiting(self.awaited.clone())
    }
}

impl Test {
    /// Sends an event as soon as the run waits for one like it, and to each child as soon as that does.
    #[must_use]
    pub fn emit<T: Serialize + ?Sized>(mut self, name: &str, data: &T) -> Self {
        self.events.push(NewEvent { name: name.to_owned(), id: None, data: encode(data) });
        self
    }

    /// Sends an event so long after the start, whether the run waits for it or not.
    #[must_use]
    pub fn emit_after<T: Serialize + ?Sized>(self, after: Duration, name: &str, data: &T) -> Self {
        let event = NewEvent { name: name.to_owned(), id: None, data: encode(data) };
        self.happens(after, Outside::Event(Box::new(event)))
    }
}

impl Outcome {
    /// What the events of this name say that the run has emitted, in order: see [`crate::Ctx::emit`].
    ///
    /// # Panics
    /// If that is of another type.
    #[track_caller]
    pub fn emitted<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        let events = self.emitted.iter().filter(|event| event.name == name);
        let decode = |event: &NewEvent| match event.data.decode() {
            Ok(data) => data,
            Err(error) => {
                panic!("event '{name}' says {}, which is of another type: {error}", event.data.text())
            }
        };
        events.map(decode).collect()
    }
}

impl Engine {
    pub(super) fn events_when_waiting(mut self, events: Vec<NewEvent>) -> Self {
        self.events = Events::awaiting(events);
        self
    }

    /// An event has come. One that the topic knows has no effect.
    pub(super) fn event_comes(&mut self, event: NewEvent) {
        let number = self.events.sent.len() as u64 + 1;
        let id = event.id.unwrap_or_else(|| format!("{number}-test"));
        if self.events.sent.iter().all(|known| known.id != id) {
            let NewEvent { name, data, .. } = event;
            let row = EventRow { number, at: self.now, generation: 1, name, id, data, source: None };
            self.events.sent.push(row);
        }
    }

    /// The run has emitted an event.
    pub(super) fn emitted(&mut self, event: NewEvent) {
        self.events.emitted.push(event.clone());
        self.event_comes(event);
    }

    /// Gives a wait an event, if there is one for it: one that was sent, or one that the test sends now.
    pub(super) fn meet_a_wait(&mut self) -> bool {
        if let Phase::Ended { .. } | Phase::Paused { .. } = self.run.phase {
            return false;
        }
        let open: Vec<_> = self.run.open.iter().filter(|open| open.event.is_some()).cloned().collect();
        let waiters: Vec<_> = open.iter().filter_map(|open| self.waiter(open)).collect();
        let mut conditions = Conditions::default();
        for waiter in &waiters {
            let found = self.events.sent.iter().find(|event| {
                let had = (event.number, waiter.op.name.clone());
                !self.events.had.contains(&had)
                    && conditions.meets(waiter, u64::MAX, event, &event.value()) == Ok(true)
            });
            if let Some(event) = found.cloned() {
                self.meet(waiter, &event);
                return true;
            }
        }
        let next = self.events.awaited.iter().position(|event| {
            let NewEvent { name, data, .. } = event.clone();
            let row = EventRow {
                number: u64::MAX,
                at: self.now,
                generation: 1,
                name,
                id: String::new(),
                data,
                source: None,
            };
            waiters.iter().any(|waiter| conditions.meets(waiter, u64::MAX, &row, &row.value()) == Ok(true))
        });
        let Some(next) = next else { return false };
        let event = self.events.awaited.remove(next);
        self.event_comes(event);
        self.meet_a_wait()
    }

    fn waiter(&self, open: &OpenOp) -> Option<Waiter> {
        let wait = open.event.as_deref()?;
        let since = if wait.cancels { self.run.created_at } else { open.since.unwrap_or(self.now) };
        Some(Waiter {
            run: self.run.id.clone(),
            life: self.run.life_number(),
            op: open.op.clone(),
            epoch: self.run.epoch,
            on: wait.on.clone(),
            when: wait.when.clone(),
            input: input_for(wait, self.inputs.last()).ok()?,
            from: from_when(wait, since),
            until: open.until,
            except: None,
            cancels: wait.cancels,
        })
    }

    fn meet(&mut self, waiter: &Waiter, event: &EventRow) {
        self.events.had.insert((event.number, waiter.op.name.clone()));
        let view = event.clone().view(topic_of(&waiter.on).unwrap_or_default());
        let input = if waiter.cancels {
            Input::Cancel
        } else {
            Input::Signal { signal: Signal::of_event(&view, waiter.op.clone()), slot: None }
        };
        self.give(input).expect("a run that waits takes it");
    }
}
