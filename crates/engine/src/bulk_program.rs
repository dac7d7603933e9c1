//! The program of bulks, which is the engine's own: drives [`stepwell_core::bulk`] on the session of its run.
//!
//! It is called like any app's program, as a method of this Worker's own entrypoint, and speaks the same protocol. Any
//! Worker with a service binding can call that method, so it acts on nothing that a cell of this deployment has not
//! signed, and each of its loops has an end whatever the session answers.

use std::time::Duration;

use js_sys::Promise;
use serde::de::DeserializeOwned;
use stepwell_core::bulk::{Acted, Allowance, Next, Progressing, SLICE};
use stepwell_protocol::{
    Epoch, Failure,
    access::{Limits, Settings},
    json,
    program::{Activation, Answer, Command, Commit, CutShort, News, Page, Then},
    rest::Bulk,
};
use wasm_bindgen::prelude::*;
use worker::{Delay, Env};

use crate::{
    calls::{catalog::Request, cell::Operation},
    guard,
    http::Front,
    keyring::Keyring,
    runtime::{self, SessionStub},
};

/// How many pages of its journal it reads. One has up to a mebibyte, and all cells of a pool hold less than so many.
const PAGES_MAX: u32 = 10_000;

/// Goes on with a run of one of the engine's own workflows.
#[wasm_bindgen(js_name = stepwellActivate)]
pub fn activate_own(activation: &JsValue, session: JsValue) -> Promise {
    let activation = activation.as_string().unwrap_or_default();
    guard::promise(async move {
        let activation: Activation = decode(&activation)?;
        let env: Env = runtime::own_env().into();
        let namespace = match Keyring::of(&env).verify_own(&activation, runtime::clock()) {
            Ok(namespace) => namespace.to_owned(),
            Err(unverified) => {
                let refused = serde_json::to_string(&CutShort::Refused(unverified.into()));
                return Ok(refused.expect("a problem holds only what JSON can say").into());
            }
        };
        let front = Front::new(env).map_err(|refusal| thrown(&refusal.0.to_string()))?;
        drive(&front.within(&namespace), activation, &session.unchecked_into()).await?;
        Ok(JsValue::UNDEFINED)
    })
}

async fn drive(front: &Front, activation: Activation, session: &SessionStub) -> Result<(), JsValue> {
    let bulk: Bulk = activation
        .input
        .read()
        .map_err(|error| thrown(&format!("the input is none of this workflow: {error}")))?;
    let (action, by) = (bulk.action, format!("bulk:{}", activation.run));
    let mut bulk = Progressing::new(bulk, front.cells().collect(), activation.started_at);
    read_journal(&mut bulk, activation.journal, session).await?;
    // Runs that live again count like new ones.
    let limits = limits(front).await?;
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
                let ask = Operation::ActOnAll { filter, below, limit: SLICE, action, by: by.clone(), limits };
                match front.ask_json::<Acted>(&place, ask).await {
                    Ok(acted) => bulk.done(acted),
                    Err(refusal) => bulk.lost(Failure::new(refusal.0.detail)),
                }
            }
        };
        // By the time of the answer before: the slice itself is short, and there is room for it.
        let then = allowance.spend(now);
        // The allowance ends this loop: whatever the session says to the last word, nothing follows it.
        let is_last = matches!(then, Then::Yield { .. });
        match say(session, activation.epoch, &bulk, Some(&command), then).await? {
            Answer::Go { now: later, news, .. } if !is_last => {
                now = later;
                learn(&mut bulk, &command, news);
            }
            Answer::Go { .. } | Answer::Stop | Answer::Refused { .. } => return Ok(()),
        }
    }
}

/// Learns what is in the journal, from its first page on.
async fn read_journal(bulk: &mut Progressing, first: Page, session: &SessionStub) -> Result<(), JsValue> {
    let mut page = first;
    for _ in 0..PAGES_MAX {
        for record in &page.events {
            bulk.learn(record);
        }
        if !page.more {
            return Ok(());
        }
        page = receive::<Page>(session.page(bulk.known().0)).await?;
        // No cell answers that.
        if page.more && page.events.is_empty() {
            break;
        }
    }
    Err(thrown("the journal does not end"))
}

/// What the namespace may use. A deployment without a catalog has no limits.
async fn limits(front: &Front) -> Result<Limits, JsValue> {
    if !front.has_catalog() {
        return Ok(Limits::default());
    }
    let settings: Settings = front
        .ask_catalog(Request::ShowSettings)
        .await
        .map_err(|refusal| thrown(&format!("the limits of the namespace cannot be read: {}", refusal.0)))?;
    Ok(settings.limits)
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
    json::from_str(text)
        .map_err(|error| thrown(&format!("engine and cell do not speak the same protocol: {error}")))
}

fn thrown(message: &str) -> JsValue {
    JsError::new(message).into()
}
