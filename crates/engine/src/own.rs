//! The engine's own program: drives [`stepwell_core::bulk`] on the session of its run.
//!
//! It is called like any app's program, as a method of this Worker's own entrypoint, and speaks the same protocol.

use std::time::Duration;

use js_sys::Promise;
use serde::de::DeserializeOwned;
use stepwell_core::bulk::{Acted, Allowance, Next, Progressing, SLICE};
use stepwell_protocol::{
    Epoch, Failure,
    program::{Activation, Answer, Command, Commit, News, Page, Then},
    rest::Bulk,
};
use wasm_bindgen::prelude::*;
use worker::Delay;

use crate::{
    cell::Operation,
    guard,
    http::Front,
    runtime::{self, SessionStub},
};

/// Goes on with a run of one of the engine's own workflows.
#[wasm_bindgen(js_name = stepwellActivate)]
pub fn activate_own(activation: &JsValue, session: JsValue, namespace: &JsValue) -> Promise {
    let (activation, namespace) = (activation.as_string().unwrap_or_default(), namespace.as_string());
    guard::promise(async move {
        let activation: Activation = decode(&activation)?;
        let front =
            Front::new(runtime::own_env().into()).map_err(|refusal| thrown(&refusal.0.to_string()))?;
        let Some(namespace) = namespace else { return Err(thrown("a bulk has to know its namespace")) };
        let front = front.within(&namespace);
        drive(&front, activation, &session.unchecked_into()).await?;
        Ok(JsValue::UNDEFINED)
    })
}

async fn drive(front: &Front, activation: Activation, session: &SessionStub) -> Result<(), JsValue> {
    let bulk: Bulk = activation
        .input
        .decode()
        .map_err(|error| thrown(&format!("the input is none of this workflow: {error}")))?;
    let (action, by) = (bulk.action, format!("bulk:{}", activation.run));
    let mut bulk = Progressing::new(bulk, front.cells().collect(), activation.started_at);
    let mut page = activation.journal;
    loop {
        for record in &page.events {
            bulk.learn(record);
        }
        if !page.more {
            break;
        }
        page = receive::<Page>(session.page(bulk.known().0)).await?;
    }
    let mut now = activation.now;
    let mut allowance = Allowance::of(activation.budget, now);
    loop {
        let command = match bulk.next(now) {
            Next::Say(then) => {
                say(session, activation.epoch, &bulk, None, then).await?;
                return Ok(());
            }
            Next::Ask { place, below } => {
                // A slice takes as long as many commits: whoever else asks gets a turn before the next.
                Delay::from(Duration::ZERO).await;
                let filter = bulk.filter().clone();
                let ask = Operation::ActOnAll { filter, below, limit: SLICE, action, by: by.clone() };
                match front.ask_json::<Acted>(&place, ask).await {
                    Ok(acted) => bulk.done(acted),
                    Err(refusal) => bulk.lost(Failure::new(refusal.0.detail)),
                }
            }
        };
        // By the time of the answer before: the slice itself is short, and there is room for it.
        let then = allowance.spend(now);
        match say(session, activation.epoch, &bulk, Some(&command), then).await? {
            Answer::Go { now: later, news } => {
                now = later;
                learn(&mut bulk, &command, news);
            }
            Answer::Stop | Answer::Refused { .. } => return Ok(()),
        }
    }
}

fn learn(bulk: &mut Progressing, command: &Command, news: Vec<News>) {
    for news in news {
        match news {
            News::Record(record) => bulk.learn(&record),
            News::Yours { seq, .. } => bulk.recorded(seq, command),
            // Its next commit is refused for what it has not seen, and its next activation reads all of it.
            News::More => {}
        }
    }
}

async fn say(
    session: &SessionStub,
    epoch: Epoch,
    bulk: &Progressing,
    command: Option<&Command>,
    then: Then,
) -> Result<Answer, JsValue> {
    let progress = command.map(|command| Box::new(bulk.progress(command)));
    let commands = command.cloned().into_iter().collect();
    let commit = Commit { progress, ..Commit::new(epoch, bulk.known(), commands, then) };
    let text = serde_json::to_string(&commit).expect("a commit holds only what JSON can say");
    receive(session.commit(&text)).await
}

async fn receive<T: DeserializeOwned>(answer: Result<JsValue, JsValue>) -> Result<T, JsValue> {
    decode(&runtime::settle(answer?).await?.as_string().unwrap_or_default())
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, JsValue> {
    serde_json::from_str(text)
        .map_err(|error| thrown(&format!("engine and cell do not speak the same protocol: {error}")))
}

fn thrown(message: &str) -> JsValue {
    JsError::new(message).into()
}
