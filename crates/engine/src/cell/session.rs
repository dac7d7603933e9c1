//! The session: the object by which a program reaches its run, and no other.

use std::rc::Rc;

use sha2::{Digest, Sha256};
use stepwell_protocol::{
    Code, Epoch, Problem, Seq,
    program::{Answer, Commit},
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::{Host, fault::Fault};
use crate::runtime;

impl Host {
    /// A session for one activation of one run.
    pub(super) fn session(self: &Rc<Self>, number: u64, epoch: Epoch) -> JsValue {
        let call = self.session_call.get_or_init(|| {
            // Weak: the function lives in the host, and must not keep the host alive in turn.
            let host = Rc::downgrade(self);
            let call = Closure::<dyn Fn(String, f64, u32, String) -> Result<JsValue, JsValue>>::new(
                move |method: String, number: f64, epoch: u32, argument: String| {
                    let host = host.upgrade().ok_or_else(|| JsError::new("this cell is gone"))?;
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "run numbers are whole, positive and below 2^53"
                    )]
                    host.on_session(&method, number as u64, Epoch(epoch), &argument)
                },
            );
            call.into_js_value()
        });
        #[expect(clippy::cast_precision_loss, reason = "run numbers are below 2^53")]
        runtime::new_session(call, number as f64, epoch.0)
    }

    fn on_session(
        self: &Rc<Self>,
        method: &str,
        number: u64,
        epoch: Epoch,
        argument: &str,
    ) -> Result<JsValue, JsValue> {
        let after = Seq(argument.parse().unwrap_or_default());
        match method {
            "commit" => Ok(answer(self.commit(number, epoch, argument))),
            "page" => {
                let page = self.machine.borrow().page(&self.store, number, after);
                Ok(text(&page.map_err(|fault| thrown(fault.into()))?))
            }
            "listen" => {
                let host = self.clone();
                let listening = async move { Ok(answer(host.listen(number, epoch, after).await)) };
                Ok(future_to_promise(std::panic::AssertUnwindSafe(listening)).into())
            }
            _ => Err(JsError::new("a session has no such method").into()),
        }
    }

    fn commit(self: &Rc<Self>, number: u64, epoch: Epoch, argument: &str) -> Result<Answer, Fault> {
        let commit: Commit = serde_json::from_str(argument).map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("The commit cannot be read: {error}."))
        })?;
        let hash = hash(argument);
        let answer =
            self.turn(|machine, store, now| Ok(machine.commit(store, now, number, epoch, commit, hash)?));
        if let Err(Fault::Store(_)) = &answer {
            self.blameless.borrow_mut().insert((number, epoch));
        }
        answer
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

/// Tells commits apart at one position of one run; 64 bits are plenty for that.
fn hash(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}

fn text<T: serde::Serialize>(message: &T) -> JsValue {
    JsValue::from_str(&serde_json::to_string(message).expect("messages hold only what JSON can say"))
}

fn thrown(fault: Fault) -> JsValue {
    JsError::new(&fault.into_problem().to_string()).into()
}
