//! The consumer of the queue: claims runs, calls their programs, and carries what these say to the cells.
//!
//! Owns: the call of a program, and the session that the program speaks on. Each word goes to the cell in a
//! request of its own, so a cell may die and come back while its program is at work here.
//! Does not own: whether a run is to be called. A message is only a nudge; the cell says what is so.

use std::{cell::Cell, panic::AssertUnwindSafe, rc::Rc, time::Duration};

use futures::{
    future::{Either, join_all, select},
    pin_mut,
};
use stepwell_core::run::{BEAT_MS, CallEnd};
use stepwell_promises as promises;
use stepwell_protocol::{
    Epoch, Payload, Place, Problem, Seq, json,
    program::{Answer, Beat},
    stream::Published,
};
use wasm_bindgen::prelude::*;
use worker::{Delay, Env, MessageBatch, MessageExt as _, RawMessage};

use crate::{
    calls::{
        cell::Operation,
        queue::{Ask, Claimed, End, LISTEN_MS, Nudge},
    },
    http::{Front, has_cell},
    log,
    program::{end_of, why},
    runtime,
};

/// How long a program is called for at the most. The platform ends a consumer after 15 minutes.
const CALL_MS_MAX: u64 = 14 * 60 * 1_000;

/// How long a word to the cell may be under way before it is sent again.
const ANSWER_MS: u64 = 5_000;

/// How long a word is sent again and again. A cell that is loaded anew begins a new lease, so it is worth more
/// patience than one lease.
const PATIENCE_MS: u64 = 30_000;

/// The pause after the first word that got no answer; after each further one it is twice as long.
const PAUSE_MS: u64 = 50;

/// The longest such pause.
const PAUSE_MS_MAX: u64 = 2_000;

/// Takes what the queue delivers.
pub async fn consume(batch: &MessageBatch<String>, env: Env) {
    let (queue, messages): (_, Vec<_>) = (batch.queue(), batch.raw_iter().collect());
    let front = match Front::new(env) {
        Ok(front) => front,
        Err(refusal) => {
            log::error!("nothing is taken from the queue: {}", refusal.0);
            return batch.retry_all();
        }
    };
    let is_only_one = messages.len() == 1;
    let taken = join_all(messages.iter().map(|message| take(&front, &queue, message, is_only_one))).await;
    for (message, taken) in messages.iter().zip(taken) {
        match taken {
            Taken::Done => message.ack(),
            Taken::Failed => message.retry(),
            // A run under suspicion may take down whatever is beside it: here, from now on, nothing is.
            Taken::WantsToBeAlone => match take(&front, &queue, message, true).await {
                Taken::Done => message.ack(),
                Taken::Failed | Taken::WantsToBeAlone => message.retry(),
            },
        }
    }
}

/// What became of a message.
enum Taken {
    Done,
    Failed,
    WantsToBeAlone,
}

async fn take(front: &Front, queue: &str, message: &RawMessage, alone: bool) -> Taken {
    let text = message.body().as_string().unwrap_or_default();
    let Ok(nudge) = json::from_str::<Nudge>(&text) else {
        // It may be meant for a source: whoever has sent it must not lose it by a slip in a variable.
        log::error!(
            "the queue '{queue}' has a message that is none of Stepwell's. If it should become an event, name the \
             queue in STEPWELL_SOURCES"
        );
        return Taken::Failed;
    };
    let (place, number) = (nudge.place(), nudge.number);
    let front = &front.within(&nudge.namespace);
    // Whoever can send to the queue may name any cell; the platform makes one of whatever name it is asked for.
    match has_cell(front, &place).await {
        Ok(true) => {}
        Ok(false) => {
            log::error!("the queue has a message for a cell that is not there; it is dropped");
            return Taken::Done;
        }
        Err(_) => return Taken::Failed,
    }
    let claim = Operation::Consume { ask: Ask::Claim { number, alone } };
    match front.ask_json(&place, claim).await {
        Ok(Claimed::Yours { epoch, activation, life }) => {
            let relay = Rc::new(Relay::new(front.in_life(life), place, number, epoch));
            relay.call_program(&activation).await;
            Taken::Done
        }
        Ok(Claimed::Nothing) => Taken::Done,
        Ok(Claimed::Alone) => Taken::WantsToBeAlone,
        Err(_) => Taken::Failed,
    }
}

/// Stands between a program and the cell of its run, for one activation.
struct Relay {
    front: Front,
    place: Place,
    number: u64,
    epoch: Epoch,
    /// How many commits the program has made.
    turns: Cell<u32>,
    /// When the cell last heard of the activation, by this side's clock.
    heard_at_ms: Cell<u64>,
    /// Whether a word did not reach the cell: then the program's end says nothing about the program.
    is_broken: Cell<bool>,
}

impl Relay {
    fn new(front: Front, place: Place, number: u64, epoch: Epoch) -> Self {
        Self {
            front,
            place,
            number,
            epoch,
            turns: Cell::default(),
            heard_at_ms: Cell::new(runtime::clock().as_millis()),
            is_broken: Cell::default(),
        }
    }

    /// Calls the program, and says how that ended.
    async fn call_program(self: &Rc<Self>, activation: &Payload) {
        let number = self.number;
        let Some(mut end) = self.until_it_ends(activation).await else {
            log::warn!("run {number} was taken from its consumer");
            return;
        };
        if self.is_broken.get() {
            end = CallEnd::Lost("its cell could not be reached".into());
        }
        if let Some(why) = why(&end) {
            log::warn!("the program of run {number} stopped: {why}");
        }
        let (epoch, end) = (self.epoch, End::from(end));
        // If even that does not arrive, the lease ends by itself.
        let _ = self.say(ANSWER_MS, || Ask::Ended { number, epoch, end: end.clone() }).await;
    }

    /// Nothing if the run was taken away meanwhile.
    async fn until_it_ends(self: &Rc<Self>, activation: &Payload) -> Option<CallEnd> {
        // A panic leaves nothing in it that anybody relies on.
        let relay = AssertUnwindSafe(self.clone());
        // Lives as long as the call: a word after that is an error for whoever says it.
        let carry = Closure::<dyn Fn(u32, f64, u32, String) -> js_sys::Promise>::new(
            move |method: u32, _: f64, _: u32, argument: String| {
                let relay = relay.clone();
                let carried = async move { relay.carry(method, argument).await };
                promises::promise(carried)
            },
        );
        #[expect(clippy::cast_precision_loss, reason = "run numbers are below 2^53")]
        let session = runtime::new_session(carry.as_ref(), self.number as f64, self.epoch.0);
        let call = match self.front.activate(activation, &session) {
            Some(Ok(answer)) => runtime::settle(answer),
            Some(Err(thrown)) => return Some(end_of(Err(thrown))),
            None => return Some(CallEnd::Lost("there is no app".into())),
        };
        let (beats, time) = (self.beat(), Delay::from(Duration::from_millis(CALL_MS_MAX)));
        pin_mut!(call, beats, time);
        match select(call, select(beats, time)).await {
            Either::Left((answer, _)) => Some(end_of(answer)),
            Either::Right((Either::Left(((), _)), _)) => None,
            Either::Right((Either::Right(((), _)), _)) => {
                Some(CallEnd::Lost("a consumer of the queue may not call it for longer".into()))
            }
        }
    }

    /// Says that the program is at work, whenever nothing else was said for a while. Ready when the cell does not
    /// want to hear it any more.
    async fn beat(&self) {
        let (number, epoch) = (self.number, self.epoch);
        loop {
            let silent_ms = runtime::clock().as_millis().saturating_sub(self.heard_at_ms.get());
            if silent_ms < BEAT_MS {
                Delay::from(Duration::from_millis(BEAT_MS - silent_ms)).await;
                continue;
            }
            match self.try_once(BEAT_MS, Ask::Beat { number, epoch, beat: None }).await {
                Said::Answered(text) => {
                    if let Ok(Answer::Stop | Answer::Refused { .. }) = json::from_str(&text) {
                        return;
                    }
                }
                Said::Refused(_) => return,
                // It may be on its way back.
                Said::Nothing => Delay::from(Duration::from_millis(BEAT_MS / 4)).await,
            }
        }
    }

    /// Carries a word of the program to the cell, and the answer back.
    async fn carry(&self, method: u32, argument: String) -> Result<JsValue, JsValue> {
        let (number, epoch) = (self.number, self.epoch);
        let after = Seq(argument.parse().unwrap_or_default());
        let answer = match method {
            runtime::COMMIT | runtime::COMMIT_SHORT => {
                let commit = Payload::from_text(argument)
                    .map_err(|error| JsError::new(&format!("the commit is no JSON: {error}")))?;
                self.turns.set(self.turns.get() + 1);
                let turn = self.turns.get();
                self.say(ANSWER_MS, || Ask::Commit { number, epoch, turn, commit: commit.clone() }).await
            }
            runtime::PAGE => self.say(ANSWER_MS, || Ask::Page { number, epoch, after }).await,
            runtime::LISTEN => self.say(LISTEN_MS + ANSWER_MS, || Ask::Listen { number, epoch, after }).await,
            runtime::PUBLISH => {
                let published: Published = json::from_str(&argument)
                    .map_err(|error| JsError::new(&format!("what is published cannot be read: {error}")))?;
                self.say(ANSWER_MS, || Ask::Publish { number, epoch, published: published.clone() }).await
            }
            runtime::BEAT => {
                let beat = Beat::read(&argument)
                    .map_err(|error| JsError::new(&format!("the beat cannot be read: {error}")))?;
                self.say(ANSWER_MS, || Ask::Beat { number, epoch, beat: Some(beat.clone()) }).await
            }
            _ => return Err(JsError::new("a session has no such method").into()),
        };
        match answer {
            Said::Answered(text) => Ok(JsValue::from_str(&text)),
            Said::Refused(problem) => Err(JsError::new(&problem.to_string()).into()),
            Said::Nothing => {
                self.is_broken.set(true);
                Err(JsError::new("the cell of the run did not answer").into())
            }
        }
    }

    /// Says something until the cell has answered. What it hears twice changes nothing there.
    async fn say(&self, answer_ms: u64, ask: impl Fn() -> Ask) -> Said {
        let give_up_at_ms = runtime::clock().as_millis() + PATIENCE_MS;
        let mut pause_ms = PAUSE_MS;
        loop {
            let said = self.try_once(answer_ms, ask()).await;
            if !matches!(said, Said::Nothing) || runtime::clock().as_millis() + pause_ms > give_up_at_ms {
                return said;
            }
            Delay::from(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
        }
    }

    async fn try_once(&self, answer_ms: u64, ask: Ask) -> Said {
        let said = self.front.ask_text(&self.place, Operation::Consume { ask });
        let time = Delay::from(Duration::from_millis(answer_ms));
        pin_mut!(said, time);
        match select(said, time).await {
            Either::Left((Ok(text), _)) => {
                self.heard_at_ms.set(runtime::clock().as_millis());
                Said::Answered(text)
            }
            Either::Left((Err(refusal), _)) if refusal.0.status < 500 => Said::Refused(refusal.0),
            Either::Left((Err(_), _)) | Either::Right(_) => Said::Nothing,
        }
    }
}

/// What came back from the cell.
enum Said {
    /// An answer.
    Answered(String),
    /// It is not to be said again.
    Refused(Problem),
    /// Nothing, or that something went wrong there.
    Nothing,
}
