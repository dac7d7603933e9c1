//! Asks cells to start the runs of ticks, and to cancel those that are in the way of one.

use std::{pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    cell::{Action, TickRun},
    object::{ANSWER_MS, Address, Delivery, Receipt},
    schedule::{Seen, StartEnd, TickStart, tick_key},
};
use stepwell_protocol::{
    Place, Problem, RunId, json,
    rest::{RunView, Status},
};
use wasm_bindgen::JsValue;
use worker::Delay;

use super::Host;
use crate::{
    calls::cell::{Call, Operation},
    joining::{Meeting, check_rates},
    log, object, runtime,
    settings::Deployment,
    terms::Terms,
};

impl Host {
    /// Lets a cell start the run of a tick. The machine hears what became of it.
    pub(super) fn start(self: &Rc<Self>, start: TickStart) {
        let host = self.clone();
        self.go_on_with(async move {
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let answer = match select(pin!(host.ask_to_start(&start)), time).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => Answer::End(StartEnd::Failed),
            };
            let heard = host.turn(|machine, store, now| match answer {
                Answer::End(end) => Ok(machine.answered(store, now, &start, end)?),
                // Others have started that run, and its end is no tick's: this one is done.
                Answer::Joined(run) => {
                    machine.answered(store, now, &start, StartEnd::Started(run.clone()))?;
                    machine.run_ended(store, now, &start.ticked, &run, Status::Completed)?;
                    Ok(())
                }
            });
            if let Err(fault) = heard {
                let id = &start.ticked.schedule;
                log::error!("a tick of the schedule '{id}' is asked for again: {fault}");
            }
        });
    }

    async fn ask_to_start(&self, start: &TickStart) -> Answer {
        let terms = match self.terms(&start.workflow).await {
            Ok(terms) => terms,
            // Whatever becomes of its workflow: a tick that is given up starts nothing.
            Err(_) if start.given_up => Terms { flow: self.known.flow(&start.workflow), ..Terms::default() },
            Err(problem) => return Answer::End(StartEnd::Declined(problem)),
        };
        let (key, of_start) = (tick_key(&start.ticked), (terms.flow.as_deref(), &start.input));
        let namespace = &self.address.namespace;
        if !start.given_up
            && let Err(problem) = check_rates(&self.env, namespace, &start.workflow, of_start, &key).await
        {
            return Answer::End(refused(problem));
        }
        let run = TickRun {
            ticked: start.ticked.clone(),
            workflow: start.workflow.clone(),
            input: start.input.clone(),
            tags: start.tags.clone(),
            given_up: start.given_up,
            spare: start.spare.clone(),
            dispatch: terms.dispatch,
            callback: terms.callback,
            flow: terms.flow,
            joins: None,
            timeout_ms: terms.timeout_ms,
            retention_ms: terms.retention_ms,
            retention_is_default: terms.retention_is_default,
        };
        let Ok(deployment) = Deployment::known(&self.env) else { return Answer::End(StartEnd::Failed) };
        let mut meeting = Meeting::of(&deployment, &run.workflow, run.flow.as_deref(), &run.input);
        loop {
            let (to, joins) = meeting.as_ref().map_or_else(
                || (start.to.clone(), None),
                |meeting| {
                    let (to, joins) = meeting.ask();
                    (to, Some(joins))
                },
            );
            let run = TickRun { joins, ..run.clone() };
            match (self.ask_to_start_at(&to, run).await, &mut meeting) {
                (Answer::End(StartEnd::Moved(to)), Some(meeting)) => {
                    if !meeting.sent_on(to) {
                        return Answer::End(StartEnd::Failed);
                    }
                }
                (answer, _) => return answer,
            }
        }
    }

    async fn ask_to_start_at(&self, to: &Place, run: TickRun) -> Answer {
        Answer::End(match self.ask_cell(to, Operation::Tick { run: Box::new(run) }).await {
            Ok((200, body)) => match json::from_str(&body) {
                Ok(Receipt::Joined { run }) => return Answer::Joined(run),
                Ok(Receipt::Started { run }) => StartEnd::Started(run),
                Ok(Receipt::Moved { to }) => StartEnd::Moved(to),
                Ok(Receipt::Gone) => StartEnd::Never,
                Ok(Receipt::Taken | Receipt::Passed | Receipt::Later) | Err(_) => StartEnd::Failed,
            },
            Ok((_, body)) => json::from_str::<Problem>(&body).map_or(StartEnd::Failed, refused),
            Err(thrown) => {
                let why = runtime::message(&thrown);
                log::warn!("cell {to} did not start the run of a tick yet: {why}");
                StartEnd::Failed
            }
        })
    }

    /// Lets a cell cancel a run. The machine hears whether there was nothing to cancel; otherwise the cell writes when it
    /// has ended.
    pub(super) fn cancel(self: &Rc<Self>, schedule: String, run: RunId) {
        self.see(schedule, run, true);
    }

    /// Asks a cell whether a run has ended, and tells the machine.
    pub(super) fn look(self: &Rc<Self>, schedule: String, run: RunId) {
        self.see(schedule, run, false);
    }

    fn see(self: &Rc<Self>, schedule: String, run: RunId, cancels: bool) {
        let host = self.clone();
        self.go_on_with(async move {
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let seen = match select(pin!(host.ask_about(&run, cancels)), time).await {
                Either::Left((Ok(seen), _)) => seen,
                Either::Left((Err(thrown), _)) => {
                    let why = runtime::message(&thrown);
                    log::warn!("nobody knows whether {run} has ended: {why}");
                    Seen::Failed
                }
                Either::Right(_) => Seen::Failed,
            };
            let heard =
                host.turn(|machine, store, now| Ok(machine.run_seen(store, now, &schedule, &run, seen)?));
            if let Err(fault) = heard {
                log::error!("{fault}");
            }
        });
    }

    async fn ask_about(&self, run: &RunId, cancels: bool) -> Result<Seen, JsValue> {
        let RunId { place, number, suffix } = run.clone();
        if cancels {
            let operation = Operation::Act { number, suffix: suffix.clone(), action: Action::Cancel };
            match self.ask_cell(&place, operation).await?.0 {
                404 => return Ok(Seen::Over(Status::Cancelled)),
                // It has ended before, in some way.
                409 => {}
                _ => return Ok(Seen::Open),
            }
        }
        let (status, body) = self.ask_cell(&place, Operation::Get { number, suffix, wait_ms: 0 }).await?;
        let ended = json::from_str::<RunView>(&body).ok().map(|view| view.status);
        Ok(match ended.filter(|ended| status == 200 && ended.is_terminal()) {
            Some(ended) => Seen::Over(ended),
            None if status == 404 => Seen::Over(Status::Cancelled),
            None => Seen::Open,
        })
    }

    async fn ask_cell(&self, to: &Place, operation: Operation) -> Result<(u16, String), JsValue> {
        let namespace = &self.address.namespace;
        let life = self.life().map_err(|fault| JsValue::from_str(&fault.to_string()))?;
        let call = Call::new(namespace, to, None, operation).in_life(life);
        object::ask(&self.env, &Address::cell(namespace, to), &call).await
    }

    /// How the runs of a workflow are treated; or why none can be started for now.
    async fn terms(&self, workflow: &str) -> Result<Terms, Problem> {
        self.known.terms(&self.env, self.state.as_raw(), &self.address.namespace, workflow).await
    }
}

/// What a cell says to a tick.
enum Answer {
    End(StartEnd),
    /// It has become part of this run.
    Joined(RunId),
}

/// What it means for a tick that its run was not started.
fn refused(problem: Problem) -> StartEnd {
    match Delivery::refused(problem.clone()) {
        Delivery::Refused(problem) => StartEnd::Refused(problem),
        Delivery::Arrived(_) | Delivery::Declined | Delivery::Postponed | Delivery::Failed => {
            StartEnd::Declined(problem)
        }
    }
}
