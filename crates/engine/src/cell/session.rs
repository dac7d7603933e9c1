//! The session: the object by which a program reaches its run, and no other.

use std::{panic::AssertUnwindSafe, rc::Rc, time::Duration};

use stepwell_promises as promises;
use stepwell_protocol::{
    Code, Epoch, Problem, Seq, json,
    program::{Answer, Beat, Commit},
    stream::Published,
};
use wasm_bindgen::prelude::*;
use worker::Delay;

use super::Host;
use crate::{
    object::{Fault, time},
    runtime,
};

/// How many commits are answered in a row before the runtime looks at its sockets.
pub(super) const BREATH_EVERY: u32 = 128;

impl Host {
    /// A session for one activation of one run.
    pub(super) fn session(self: &Rc<Self>, number: u64, epoch: Epoch) -> JsValue {
        let call = self.session_call.get_or_init(|| {
            // Weak: the function lives in the host, and must not keep the host alive in turn.
            // What a panic leaves in memory is only a cache of rows.
            let host = AssertUnwindSafe(Rc::downgrade(self));
            let call = Closure::<dyn Fn(u32, f64, u32, String) -> Result<JsValue, JsValue>>::new(
                move |method: u32, number: f64, epoch: u32, argument: String| {
                    let host = host.upgrade().ok_or_else(|| JsError::new("this cell is gone"))?;
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "run numbers are whole, positive and below 2^53"
                    )]
                    host.on_session(method, number as u64, Epoch(epoch), &argument)
                },
            );
            call.into_js_value()
        });
        #[expect(clippy::cast_precision_loss, reason = "run numbers are below 2^53")]
        runtime::new_session(call, number as f64, epoch.0)
    }

    fn on_session(
        self: &Rc<Self>,
        method: u32,
        number: u64,
        epoch: Epoch,
        argument: &str,
    ) -> Result<JsValue, JsValue> {
        let after = Seq(argument.parse().unwrap_or_default());
        self.machine.borrow_mut().heard_from(runtime::clock(), number, epoch);
        match method {
            runtime::COMMIT => {
                let (answered, _) = self.commit(number, epoch, argument);
                Ok(self.breathe(1, answer(answered)))
            }
            runtime::COMMIT_SHORT => {
                let (answered, base) = self.commit(number, epoch, argument);
                let short = answered.as_ref().ok().zip(base);
                let short = short.and_then(|(answer, (base, commands))| answer.in_short(base, commands));
                let answer = short.map_or_else(|| answer(answered), |now| time(Some(now)));
                Ok(self.breathe(1, answer))
            }
            runtime::PAGE => {
                let page = self.machine.borrow().page(&self.store, number, epoch, after).map_err(Fault::from);
                if let Err(Fault::Store(_)) = &page {
                    self.blameless.borrow_mut().insert((number, epoch));
                }
                Ok(self.breathe(BREATH_EVERY, text(&page.map_err(thrown)?)))
            }
            runtime::LISTEN => {
                let host = self.clone();
                let listening = async move { Ok(answer(host.listen(number, epoch, after).await)) };
                Ok(promises::promise(listening).into())
            }
            runtime::PUBLISH => Ok(self.breathe(1, answer(self.publish(number, epoch, argument)))),
            runtime::BEAT => Ok(answer(self.beat(number, epoch, argument))),
            _ => Err(JsError::new("a session has no such method").into()),
        }
    }

    /// Lets the runtime look at its sockets now and then. Where app and storage are at hand, the next call follows from
    /// the answer without it, and a run of quick steps would keep all requests waiting until it ends. A page of the
    /// journal takes as long as many commits.
    fn breathe(&self, commits: u32, answer: JsValue) -> JsValue {
        if !self.needs_breath(commits) {
            return answer;
        }
        let later = async move {
            Delay::from(Duration::ZERO).await;
            Ok(answer)
        };
        promises::promise(later).into()
    }

    /// Counts what takes as long as this many commits. Says whether the runtime has to look at its sockets before the next.
    pub(super) fn needs_breath(&self, commits: u32) -> bool {
        let since_last = self.since_breath.get() + commits;
        let is_due = since_last >= BREATH_EVERY;
        self.since_breath.set(if is_due { 0 } else { since_last });
        is_due
    }

    /// Takes a commit; gives the answer, and the commit's base and what it is told of, if it could be read.
    fn commit(
        self: &Rc<Self>,
        number: u64,
        epoch: Epoch,
        argument: &str,
    ) -> (Result<Answer, Fault>, Option<(Seq, usize)>) {
        let commit: Commit = match json::from_str(argument) {
            Ok(commit) => commit,
            Err(error) => {
                let detail = format!("The commit cannot be read: {error}.");
                return (Err(Problem::new(Code::InvalidRequest, detail).into()), None);
            }
        };
        let (base, commands) = (commit.base, commit.told());
        let hash = hash(argument);
        let answer =
            self.turn(|machine, store, now| Ok(machine.commit(store, now, number, epoch, commit, hash)?));
        (answer, Some((base, commands)))
    }

    fn beat(self: &Rc<Self>, number: u64, epoch: Epoch, argument: &str) -> Result<Answer, Fault> {
        let beat = Beat::read(argument).map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("The beat cannot be read: {error}."))
        })?;
        self.turn(|machine, store, now| Ok(machine.beat(store, now, number, epoch, beat)?))
    }

    fn publish(self: &Rc<Self>, number: u64, epoch: Epoch, argument: &str) -> Result<Answer, Fault> {
        let published: Published = json::from_str(argument).map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("What is published cannot be read: {error}."))
        })?;
        self.turn(|machine, store, now| Ok(machine.told(store, now, number, epoch, published)?))
    }

    /// Waits until something happens after a position, and says what.
    async fn listen(self: &Rc<Self>, number: u64, epoch: Epoch, after: Seq) -> Result<Answer, Fault> {
        let news = || self.turn(|machine, store, now| Ok(machine.news(store, now, number, epoch, after)?));
        let first = news()?;
        if !matches!(&first, Answer::Go { news, .. } if news.is_empty()) {
            return Ok(first);
        }
        let told = self.listeners.borrow_mut().program(number);
        // Cancelled when the program's call is over: it is not there to hear the answer.
        let _ = told.await;
        news()
    }
}

fn answer(answer: Result<Answer, Fault>) -> JsValue {
    text(&answer.unwrap_or_else(|fault| Answer::Refused { problem: fault.into_problem() }))
}

/// Tells commits apart at one position of one run (FNV-1a): 64 bits are plenty for that, and it is stored, so it
/// must never change.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn text<T: serde::Serialize>(message: &T) -> JsValue {
    JsValue::from_str(&serde_json::to_string(message).expect("messages hold only what JSON can say"))
}

fn thrown(fault: Fault) -> JsValue {
    JsError::new(&fault.into_problem().to_string()).into()
}
