//! What a cell does for the consumers of its queue, and what it sends them.

use std::{rc::Rc, time::Duration};

use futures::future::select;
use stepwell_core::cell::Claim;
use stepwell_protocol::{
    Code, Epoch, Payload, Place, Problem, Seq,
    program::{Answer, Commit},
};
use wasm_bindgen::JsCast;
use worker::Delay;

use super::{Host, session::hash};
use crate::{
    calls::queue::{Ask, Claimed, LISTEN_MS, Nudge},
    log,
    object::{Answered, Fault},
    runtime::{self, Queue},
    settings::QUEUE_BINDING,
};

/// How many messages go into one batch; the platform takes no more.
const BATCH_MAX: usize = 100;

impl Host {
    /// Sends messages, once the commit before them is durable. One that is lost is sent again by and by: the
    /// machine sees that nobody has claimed the run.
    pub(super) fn send_nudges(self: &Rc<Self>, numbers: Vec<u64>) {
        let host = self.clone();
        self.go_on_with(async move {
            for numbers in numbers.chunks(BATCH_MAX) {
                if let Err(fault) = host.send_batch(numbers).await {
                    log::warn!("the queue did not take {} runs: {fault}", numbers.len());
                }
            }
        });
    }

    async fn send_batch(&self, numbers: &[u64]) -> Result<(), Fault> {
        let Some(Place { pool, generation, cell }) = self.store.place()? else { return Ok(()) };
        let namespace = self.store.namespace()?;
        let texts = numbers.iter().map(|&number| {
            let nudge = Nudge { pool: pool.clone(), generation, cell, namespace: namespace.clone(), number };
            serde_json::to_string(&nudge).expect("a message holds only what JSON can say")
        });
        let queue: Queue = runtime::property(&self.env, QUEUE_BINDING).unchecked_into();
        runtime::settle(queue.send_batch(&runtime::messages(texts))?).await?;
        Ok(())
    }

    /// Answers a consumer. What it is refused is an answer, so that a failure is one of the cell or of the way
    /// there, and worth another try.
    pub(super) async fn answer_consumer(self: &Rc<Self>, ask: Ask) -> Result<Answered, Fault> {
        match ask {
            Ask::Claim { number, alone } => {
                let claimed = self.turn(|machine, store, now| Ok(machine.claim(store, now, number, alone)?));
                let claimed = match claimed {
                    Ok(Claim::Yours(activation)) => Claimed::Yours {
                        epoch: activation.epoch,
                        // The consumer calls the program at once: a signature lives no longer than that takes.
                        activation: Payload::encode(&self.signed(*activation)?)
                            .expect("an activation holds only what JSON can say"),
                        life: self.own_life(&self.store.namespace()?)?,
                    },
                    Ok(Claim::Nothing) | Err(Fault::Rejected(_)) => Claimed::Nothing,
                    Ok(Claim::Alone) => Claimed::Alone,
                    Err(fault @ (Fault::Store(_) | Fault::Moved(_))) => return Err(fault),
                };
                Ok(Answered::new(200, &claimed))
            }
            Ask::Commit { number, epoch, turn, commit } => {
                answered(self.commit_for(number, epoch, turn, &commit))
            }
            Ask::Page { number, epoch, after } => {
                let page =
                    self.turn(|machine, store, now| Ok(machine.page_for(store, now, number, epoch, after)?))?;
                Ok(Answered::new(200, &page))
            }
            Ask::Listen { number, epoch, after } => answered(self.listen_for(number, epoch, after).await),
            Ask::Publish { number, epoch, published } => answered(self.turn(|machine, store, now| {
                machine.renew(store, now, number, epoch)?;
                Ok(machine.told(store, now, number, epoch, published)?)
            })),
            Ask::Beat { number, epoch, beat } => answered(self.turn(|machine, store, now| match beat {
                Some(beat) => Ok(machine.beat(store, now, number, epoch, beat)?),
                None => {
                    machine.renew(store, now, number, epoch)?;
                    Ok(Answer::go(now, Vec::new()))
                }
            })),
            Ask::Ended { number, epoch, end } => {
                let ended = self.turn(|machine, store, now| {
                    Ok(machine.call_ended(store, now, number, epoch, end.into())?)
                });
                self.listeners.borrow_mut().forget_program(number);
                answered(ended.map(|()| Answer::Stop))
            }
        }
    }

    fn commit_for(
        self: &Rc<Self>,
        number: u64,
        epoch: Epoch,
        turn: u32,
        text: &Payload,
    ) -> Result<Answer, Fault> {
        let commit: Commit = text.read().map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("The commit cannot be read: {error}."))
        })?;
        let (commit, hash) = (Commit { turn, ..commit }, hash(text.text()));
        self.turn(|machine, store, now| Ok(machine.commit(store, now, number, epoch, commit, hash)?))
    }

    async fn listen_for(self: &Rc<Self>, number: u64, epoch: Epoch, after: Seq) -> Result<Answer, Fault> {
        let news = || {
            self.turn(|machine, store, now| {
                machine.renew(store, now, number, epoch)?;
                Ok(machine.news(store, now, number, epoch, after)?)
            })
        };
        let first = news()?;
        if !matches!(&first, Answer::Go { news, .. } if news.is_empty()) {
            return Ok(first);
        }
        let told = self.listeners.borrow_mut().program(number);
        select(told, Delay::from(Duration::from_millis(LISTEN_MS))).await;
        news()
    }
}

fn answered(answer: Result<Answer, Fault>) -> Result<Answered, Fault> {
    match answer {
        Ok(answer) => Ok(Answered::new(200, &answer)),
        Err(Fault::Rejected(problem)) => Ok(Answered::new(200, &Answer::Refused { problem })),
        Err(fault @ (Fault::Store(_) | Fault::Moved(_))) => Err(fault),
    }
}
