//! Asks cells to start the runs of events, and tells them of events that their runs wait for.

use std::{pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    cell::TriggeredRun,
    object::{ANSWER_MS, Address, Delivery, Receipt},
    topic::{EventStart, Meeting as Met, StartEnd, event_key},
};
use stepwell_protocol::{Payload, Place, Problem, json, queue::SentJob, topic::Waiter};
use wasm_bindgen::JsValue;
use worker::Delay;

use super::Host;
use crate::{
    calls::{
        cell::{Call, Operation},
        queues,
    },
    joining::{Meeting, check_rates},
    log, object, runtime,
    settings::Deployment,
};

impl Host {
    /// Lets a cell start the run of an event, or a queue take its job. The machine hears what became of it.
    pub(super) fn start(self: &Rc<Self>, start: EventStart) {
        let host = self.clone();
        self.go_on_with(async move {
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let asked = async {
                match &start.queue {
                    Some(queue) => host.send_to(queue, &start).await,
                    None => host.ask_to_start(&start).await,
                }
            };
            let end = match select(pin!(asked), time).await {
                Either::Left((end, _)) => end,
                Either::Right(_) => StartEnd::Failed,
            };
            let heard = host.turn(|machine, store, now| Ok(machine.answered(store, now, &start, end)?));
            if let Err(fault) = heard {
                let trigger = &start.triggered.trigger;
                log::error!("a run or job of the trigger '{trigger}' is asked for again: {fault}");
            }
        });
    }

    /// Tells a cell of an event that runs of it wait for. The machine hears what it answers.
    pub(super) fn meet(self: &Rc<Self>, meeting: Met) {
        let host = self.clone();
        self.go_on_with(async move {
            let waits = meeting.waits.iter().map(|wait| {
                // Its cell knows the rest.
                Waiter { when: None, input: Payload::default(), ..wait.waiter.clone() }
            });
            let event = Box::new(meeting.event.clone());
            let operation = Operation::Meet { event, waits: waits.collect() };
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let receipts = match select(pin!(host.ask_cell(&meeting.to, operation)), time).await {
                Either::Left((Ok((200, body)), _)) => json::from_str(&body).ok(),
                Either::Left(_) | Either::Right(_) => None,
            };
            let heard = host.turn(|machine, store, now| Ok(machine.met(store, now, &meeting, receipts)?));
            if let Err(fault) = heard {
                let (to, event) = (&meeting.to, &meeting.event.id);
                log::error!("cell {to} is told of event '{event}' again: {fault}");
            }
        });
    }

    /// Sends the job of an event to its queue.
    async fn send_to(&self, queue: &str, start: &EventStart) -> StartEnd {
        let job = Box::new(SentJob::new(queue.to_owned(), start.input.clone()));
        let request = queues::Request::Take { letter: event_key(&start.triggered), job };
        let call = queues::Call { settings: None, request };
        match queues::ask(&self.env, &self.address.namespace, queue, 0, &call).await {
            Ok((200, _)) => StartEnd::Sent,
            Ok((_, body)) => json::from_str::<Problem>(&body).map_or(StartEnd::Failed, refused),
            Err(thrown) => {
                let why = runtime::message(&thrown);
                log::warn!("queue '{queue}' did not take the job of an event yet: {why}");
                StartEnd::Failed
            }
        }
    }

    async fn ask_to_start(&self, start: &EventStart) -> StartEnd {
        let namespace = &self.address.namespace;
        let terms = self.known.terms(&self.env, self.state.as_raw(), namespace, &start.workflow).await;
        let terms = match terms {
            Ok(terms) => terms,
            Err(problem) => return StartEnd::Declined(problem),
        };
        let key = event_key(&start.triggered);
        let of_start = (terms.flow.as_deref(), &start.input);
        if let Err(problem) = check_rates(&self.env, namespace, &start.workflow, of_start, &key).await {
            return refused(problem);
        }
        let run = TriggeredRun {
            triggered: start.triggered.clone(),
            workflow: start.workflow.clone(),
            input: start.input.clone(),
            tags: start.tags.clone(),
            spare: start.spare.clone(),
            dispatch: terms.dispatch,
            callback: terms.callback,
            flow: terms.flow,
            joins: None,
            timeout_ms: terms.timeout_ms,
            retention_ms: terms.retention_ms,
            retention_is_default: terms.retention_is_default,
        };
        let Ok(deployment) = Deployment::known(&self.env) else { return StartEnd::Failed };
        let mut meeting = Meeting::of(&deployment, &run.workflow, run.flow.as_deref(), &run.input);
        loop {
            let (to, joins) = meeting.as_ref().map_or_else(
                || (start.to.clone(), None),
                |meeting| {
                    let (to, joins) = meeting.ask();
                    (to, Some(joins))
                },
            );
            let run = TriggeredRun { joins, ..run.clone() };
            let end = self.ask_to_start_at(&to, run).await;
            match (end, &mut meeting) {
                (StartEnd::Moved(to), Some(meeting)) => {
                    if !meeting.sent_on(to) {
                        return StartEnd::Failed;
                    }
                }
                (end, _) => return end,
            }
        }
    }

    async fn ask_to_start_at(&self, to: &Place, run: TriggeredRun) -> StartEnd {
        match self.ask_cell(to, Operation::Triggered { run: Box::new(run) }).await {
            Ok((200, body)) => match json::from_str(&body) {
                Ok(Receipt::Started { run } | Receipt::Joined { run }) => StartEnd::Started(run),
                Ok(Receipt::Moved { to }) => StartEnd::Moved(to),
                Ok(Receipt::Gone | Receipt::Taken | Receipt::Passed | Receipt::Later) | Err(_) => {
                    StartEnd::Failed
                }
            },
            Ok((_, body)) => match json::from_str::<Problem>(&body) {
                Ok(problem) => refused(problem),
                Err(_) => StartEnd::Failed,
            },
            Err(thrown) => {
                let why = runtime::message(&thrown);
                log::warn!("cell {to} did not start the run of an event yet: {why}");
                StartEnd::Failed
            }
        }
    }

    async fn ask_cell(&self, to: &Place, operation: Operation) -> Result<(u16, String), JsValue> {
        let namespace = &self.address.namespace;
        let life = self.life().map_err(|fault| JsValue::from_str(&fault.to_string()))?;
        let call = Call::new(namespace, to, None, operation).in_life(life);
        object::ask(&self.env, &Address::cell(namespace, to), &call).await
    }
}

/// What it means for an event that its run was not started.
fn refused(problem: Problem) -> StartEnd {
    match Delivery::refused(problem.clone()) {
        Delivery::Refused(problem) => StartEnd::Refused(problem),
        Delivery::Arrived(_) | Delivery::Declined | Delivery::Postponed | Delivery::Failed => {
            StartEnd::Declined(problem)
        }
    }
}
