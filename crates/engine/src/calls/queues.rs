//! What Workers and partitions ask of a partition of a queue.

use serde::{Deserialize, Serialize};
use stepwell_core::{
    object::{Address, Message},
    queue::{Content, End, Post, Wanted},
};
use stepwell_protocol::{
    Payload, Timestamp,
    queue::{JobId, Lease, Push, QueuePatch, QueueSettings, QueueState, Redrive, SentJob},
};
use wasm_bindgen::JsValue;
use worker::Env;

use crate::object;

/// A request to a partition.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// The settings of the queue, as far as whoever asks knows them: a partition may not have heard of the latest ones.
    /// Nothing, if it asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<QueueSettings>,
    /// What to do.
    pub request: Request,
}

/// What is asked of a partition.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Of the first: give the settings of the queue.
    Open {
        /// Whether to make the queue if there is none.
        create: bool,
    },
    /// Of the first: change the settings, and make the queue if there is none.
    Configure {
        /// What to change.
        patch: QueuePatch,
        /// What may be done with the queue from now on.
        state: Option<QueueState>,
        /// Whether to make the queue if there is none.
        create: bool,
    },
    /// Of the first: take up which handler the code declares, and make the queue if there is one.
    Declare {
        /// Which revision of what it declares.
        revision: u64,
        /// How the handler is called; nothing, if there is none any more.
        handler: Option<Push>,
    },
    /// Of the first: delete the queue.
    Delete {
        /// Also if it has jobs.
        with_jobs: bool,
    },
    /// Of the others: take up the settings, and be made if it was not yet.
    Adopt,
    /// Of the others: take no more jobs, and say how many there are.
    Close,
    /// Of the others: delete all that is stored.
    Erase {
        /// Also if there are jobs.
        with_jobs: bool,
    },
    /// Store jobs.
    Send {
        /// What the request is known by, if it is delivered twice.
        mark: String,
        /// What its sender knows it by.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// The jobs.
        posts: Vec<Post>,
    },
    /// Of the queue of webhooks: tell an address of an alert.
    Tell {
        /// What it is known by, if it comes again.
        id: String,
        /// The address.
        url: String,
        /// What it is told.
        body: Payload,
    },
    /// Take what another object writes.
    Receive {
        /// It.
        message: Message,
    },
    /// Of the first: take the job that a trigger sends.
    Take {
        /// What it is known by.
        letter: String,
        /// It.
        job: Box<SentJob>,
    },
    /// Hand out jobs.
    Claim(Wanted),
    /// Say what there is for a claim.
    Look {
        /// What it is known by.
        nonce: String,
    },
    /// Say when there is something for a claim.
    Wait {
        /// What it is known by.
        nonce: String,
        /// How long to wait for it.
        ms: u64,
    },
    /// End leases, or extend them.
    End {
        /// Them.
        leases: Vec<Lease>,
        /// How.
        end: End,
    },
    /// Count jobs.
    Counts,
    /// Show a job.
    Job {
        /// Its id.
        id: JobId,
    },
    /// List dead letters.
    Dead {
        /// After this time and number.
        after: (Timestamp, u64),
        /// So many.
        limit: usize,
    },
    /// Give a dead letter another body.
    Edit {
        /// Its id.
        id: JobId,
        /// The body.
        content: Content,
    },
    /// Delete a dead letter.
    Discard {
        /// Its id.
        id: JobId,
    },
    /// Queue a dead letter again.
    RedriveOne {
        /// Its id.
        id: JobId,
    },
    /// Queue dead letters again.
    Redrive(Redrive),
    /// Delete jobs.
    Purge {
        /// Those that are dead, or those that are queued.
        dead: bool,
    },
}

/// What is said to a claim that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Whether there may be something for it.
    pub is_ready: bool,
    /// Whether too many wait already.
    pub is_full: bool,
}

/// Asks a partition of a queue: a status and a body.
pub async fn ask(
    env: &Env,
    namespace: &str,
    queue: &str,
    partition: u32,
    call: &Call,
) -> Result<(u16, String), JsValue> {
    object::ask(env, &Address::queue(namespace, queue, partition), call).await
}
