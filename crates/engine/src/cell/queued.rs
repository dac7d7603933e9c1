//! What a cell does for the consumers of its queue, and what it sends them.

use std::{rc::Rc, time::Duration};

use futures::future::select;
use serde::{Deserialize, Serialize};
use stepwell_core::{cell::Claim, run::CallEnd};
use stepwell_protocol::{
    Code, Epoch, Payload, Place, Problem, Seq,
    program::{Answer, Beat, Commit},
    stream::Published,
};
use wasm_bindgen::JsCast;
use worker::Delay;

use super::{
    Host,
    call::{default_namespace, is_default_namespace},
    fault::Fault,
    requests::Answered,
    session::hash,
};
use crate::{
    runtime::{self, Queue},
    settings::QUEUE_BINDING,
};

/// How long a program that listens through a consumer waits for news before it is told that there is none: a call
/// to a cell that is gone must not wait for ever.
pub const LISTEN_MS: u64 = 20_000;

/// How many messages go into one batch; the platform takes no more.
const BATCH_MAX: usize = 100;

/// The message: which run of which cell is due.
#[derive(Debug, Serialize, Deserialize)]
pub struct Nudge {
    /// See [`Place`].
    pub pool: String,
    /// See [`Place`].
    pub generation: u32,
    /// See [`Place`].
    pub cell: u32,
    /// The cell's namespace.
    #[serde(default = "default_namespace", skip_serializing_if = "is_default_namespace")]
    pub namespace: String,
    /// The run's number.
    pub number: u64,
}

/// What a consumer asks of a cell, each time in a request of its own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Give me this run.
    Claim {
        /// Its number.
        number: u64,
        /// Whether the consumer has nothing else under way.
        alone: bool,
    },
    /// My program reports.
    Commit {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// Which commit of it this is.
        turn: u32,
        /// What the program says, as it has said it.
        commit: Payload,
    },
    /// My program reads its journal.
    Page {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// After which position.
        after: Seq,
    },
    /// My program waits for news.
    Listen {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// After which position.
        after: Seq,
    },
    /// My program publishes something.
    Publish {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// What.
        published: Published,
    },
    /// My program is at work.
    Beat {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// What the program says about it, if it was the program that said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beat: Option<Beat>,
    },
    /// The call of my program is over.
    Ended {
        /// The run's number.
        number: u64,
        /// The activation.
        epoch: Epoch,
        /// How it ended.
        end: End,
    },
}

/// What a consumer gets for a claim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimed {
    /// The run is its own.
    Yours {
        /// The activation.
        epoch: Epoch,
        /// What to call the program with.
        activation: Payload,
    },
    /// There is nothing to do.
    Nothing,
    /// It should be claimed again when nothing else is under way.
    Alone,
}

/// How the call of a program ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It returned.
    Returned,
    /// It threw.
    Threw(String),
    /// It could not be reached, or the connection broke.
    Lost(String),
    /// What it ran in died, perhaps by its fault.
    Died(String),
    /// It takes no such calls.
    Refused(Problem),
}

impl From<CallEnd> for End {
    fn from(end: CallEnd) -> Self {
        match end {
            CallEnd::Returned => Self::Returned,
            CallEnd::Threw(message) => Self::Threw(message),
            CallEnd::Lost(message) => Self::Lost(message),
            CallEnd::Died(message) => Self::Died(message),
            // Only a cell gives up on a call, and only on one that it holds itself.
            CallEnd::Silent => Self::Lost("nothing was heard of it".into()),
            // Its cell knows that by itself.
            CallEnd::Unstored => Self::Lost("the storage failed".into()),
            CallEnd::Refused(problem) => Self::Refused(problem),
        }
    }
}

impl From<End> for CallEnd {
    fn from(end: End) -> Self {
        match end {
            End::Returned => Self::Returned,
            End::Threw(message) => Self::Threw(message),
            End::Lost(message) => Self::Lost(message),
            End::Died(message) => Self::Died(message),
            End::Refused(problem) => Self::Refused(problem),
        }
    }
}

impl Nudge {
    /// The cell that holds the run.
    pub fn place(&self) -> Place {
        Place { pool: self.pool.clone(), generation: self.generation, cell: self.cell }
    }
}

impl Host {
    /// Sends messages, once the commit before them is durable. One that is lost is sent again by and by: the
    /// machine sees that nobody has claimed the run.
    pub(super) fn send_nudges(self: &Rc<Self>, numbers: Vec<u64>) {
        let host = self.clone();
        self.go_on_with(async move {
            for numbers in numbers.chunks(BATCH_MAX) {
                if let Err(fault) = host.send_batch(numbers).await {
                    worker::console_warn!("stepwell: the queue did not take {} runs: {fault}", numbers.len());
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
                    Ok(Answer::Go { now, news: Vec::new() })
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
        let commit: Commit = text.decode().map_err(|error| {
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
