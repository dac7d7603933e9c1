//! The session: what a program may do to its run, and to no other.

use std::rc::Rc;

use sha2::{Digest, Sha256};
use stepwell_core::run::{Decision, Entry, Input, Reply};
use stepwell_protocol::{
    Code, Epoch, Event, Outcome, Problem, Record, Seq,
    program::{Answer, Commit, News},
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
                    host.session_call(&method, number as u64, Epoch(epoch), &argument)
                },
            );
            call.into_js_value()
        });
        #[expect(clippy::cast_precision_loss, reason = "run numbers are below 2^53")]
        runtime::new_session(call, number as f64, epoch.0)
    }

    fn session_call(
        self: &Rc<Self>,
        method: &str,
        number: u64,
        epoch: Epoch,
        argument: &str,
    ) -> Result<JsValue, JsValue> {
        match method {
            "commit" => Ok(text(&self.commit(number, epoch, argument))),
            "page" => {
                let after = Seq(argument.parse().unwrap_or_default());
                let page = self.store.page(number, after).map_err(thrown)?;
                Ok(text(&page))
            }
            "listen" => {
                let after = Seq(argument.parse().unwrap_or_default());
                let host = self.clone();
                let listening = async move { Ok(text(&host.listen(number, epoch, after).await)) };
                Ok(future_to_promise(std::panic::AssertUnwindSafe(listening)).into())
            }
            _ => Err(JsError::new("a session has no such method").into()),
        }
    }

    fn commit(self: &Rc<Self>, number: u64, epoch: Epoch, argument: &str) -> Answer {
        match self.try_commit(number, epoch, argument) {
            Ok(answer) => answer,
            Err(fault) => Answer::Refused { problem: fault.into_problem() },
        }
    }

    fn try_commit(self: &Rc<Self>, number: u64, epoch: Epoch, argument: &str) -> Result<Answer, Fault> {
        let mut commit: Commit = serde_json::from_str(argument).map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("The commit cannot be read: {error}."))
        })?;
        // The session says whose it is; the message cannot claim another.
        commit.epoch = epoch;
        let base = commit.base;
        let head = self.run(number)?.head;
        let hash = hash(argument);
        let decision = self.drive(number, |_| Input::Commit { commit, hash })?;
        match decision.reply {
            Reply::Go => self.go(number, base, head, decision),
            Reply::Done | Reply::Stop | Reply::Unchanged => Ok(Answer::Stop),
        }
    }

    /// What happened after a commit's base, in order. The program's own results are not sent back to it.
    fn go(&self, number: u64, base: Seq, head: Seq, decision: Decision) -> Result<Answer, Fault> {
        let mut news: Vec<_> =
            self.store.records(number, base, head)?.into_iter().map(News::Record).collect();
        let recorded = decision.entries.into_iter().filter_map(|entry| match entry {
            Entry::Recorded { record, .. } => Some(record),
            Entry::Marked(_)
            | Entry::OpenChanged(_)
            | Entry::Troubled(_)
            | Entry::Queued { .. }
            | Entry::Activated { .. }
            | Entry::Orphaned { .. }
            | Entry::Suspended
            | Entry::Paused(_)
            | Entry::Completed { .. }
            | Entry::Failed { .. }
            | Entry::Cancelled { .. } => None,
        });
        news.extend(recorded.enumerate().map(|(command, record)| match record {
            Record { seq, at, event: Event::StepFinished { outcome: Outcome::Ok(_), .. } } => {
                News::Yours { seq, at, command }
            }
            record => News::Record(record),
        }));
        Ok(Answer::Go { now: self.now(), news })
    }

    /// Waits until something happens after a position, and says what.
    async fn listen(self: &Rc<Self>, number: u64, epoch: Epoch, after: Seq) -> Answer {
        let news = match self.run(number) {
            Ok(run) if run.is_held_by(epoch) && run.head == after => {
                Some(self.listeners.borrow_mut().program(number))
            }
            Ok(_) | Err(_) => None,
        };
        if let Some(news) = news {
            // Cancelled when the program's call is over: it is not there to hear the answer.
            let _ = news.await;
        }
        self.news(number, epoch, after)
            .unwrap_or_else(|fault| Answer::Refused { problem: fault.into_problem() })
    }

    fn news(&self, number: u64, epoch: Epoch, after: Seq) -> Result<Answer, Fault> {
        let run = self.run(number)?;
        if !run.is_held_by(epoch) {
            let detail = format!("The run is {} at activation {}.", run.status().as_str(), run.epoch.0);
            return Err(Problem::new(Code::StaleEpoch, detail).into());
        }
        let news = self.store.records(number, after, run.head)?.into_iter().map(News::Record).collect();
        Ok(Answer::Go { now: self.now(), news })
    }
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
