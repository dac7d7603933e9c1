//! The routes of queues: which partitions are asked, and what is made of their answers.
//!
//! Owns: what this isolate remembers of the settings of queues. A partition that goes by later settings, or knows nothing
//! of the queue, says so; then the first partition is asked again, once.

pub mod claims;
pub mod jobs;
pub mod sends;
pub mod settings;

use std::cell::RefCell;

use futures::future::LocalBoxFuture;
use js_sys::Array;
use serde::de::DeserializeOwned;
use stepwell_core::{
    catalog::Station,
    object::Address,
    ordered::OrdMap,
    queue::{is_stale, no_queue},
};
use stepwell_protocol::{
    Code, Timestamp, json,
    program::{RESERVED_PREFIX, is_reserved},
    queue::{QueueSettings, is_queue},
};

use super::{error::Refusal, front::Front};
use crate::{
    calls::{
        catalog,
        queues::{Call, Request},
    },
    log, object, runtime,
};

/// How long settings are remembered.
const KNOWN_MS: u64 = 5_000;

/// How many queues are remembered.
const KNOWN_MAX: usize = 1_000;

/// Settings, and when they were asked for, by namespace and queue.
type Known = OrdMap<(String, String), (Timestamp, QueueSettings)>;

thread_local! {
    static KNOWN: RefCell<Known> = const { RefCell::new(OrdMap::new()) };
}

/// Refuses what no queue can be called.
fn check_queue(queue: &str) -> Result<(), Refusal> {
    if is_queue(queue) {
        return Ok(());
    }
    let detail = "The name of a queue has 1 to 64 letters, digits, '-', '_' or '.', and begins with a letter or digit.";
    Err(Refusal::new(Code::InvalidRequest, detail))
}

/// Refuses what only Stepwell itself does with a queue of its own.
fn check_own(queue: &str) -> Result<(), Refusal> {
    check_queue(queue)?;
    if !is_reserved(queue) {
        return Ok(());
    }
    let detail = format!(
        "Queues that begin with '{RESERVED_PREFIX}' are Stepwell's own. You can show, pause and resume them, and redrive or \
         delete their dead letters."
    );
    Err(Refusal::new(Code::InvalidRequest, detail))
}

/// The settings of a queue. Whether the caller may know them was found out before.
async fn settings(front: &Front, queue: &str, create: bool) -> Result<QueueSettings, Refusal> {
    let name = (front.namespace().to_owned(), queue.to_owned());
    let now = runtime::clock();
    let known = KNOWN.with_borrow(|known| {
        let found = known.get(&name).filter(|(at, _)| at.plus_millis(KNOWN_MS) > now);
        found.map(|(_, settings)| settings.clone())
    });
    if let Some(known) = known {
        return Ok(known);
    }
    if !create {
        // One that has stored nothing is not asked: that would make it.
        let station = Station::at(&Address::queue(front.namespace(), queue, 0)).to_string();
        let request = catalog::Request::HasStation { station };
        if !front.itself().ask_catalog::<bool>(request).await? {
            return Err(Refusal(no_queue()));
        }
    }
    let settings: QueueSettings = read_answer(&ask(front, queue, 0, None, Request::Open { create }).await?)?;
    remember(front, queue, Some(settings.clone()));
    Ok(settings)
}

/// Remembers the settings of a queue, or forgets them.
fn remember(front: &Front, queue: &str, settings: Option<QueueSettings>) {
    let name = (front.namespace().to_owned(), queue.to_owned());
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        match settings {
            Some(settings) => known.insert(name, (runtime::clock(), settings)),
            None => known.remove(&name),
        };
    });
}

/// Asks a partition: all of its answer.
async fn call(front: &Front, queue: &str, partition: u32, call: &Call) -> Result<Array, Refusal> {
    let to = Address::queue(front.namespace(), queue, partition);
    object::ask_whole(front.env(), &to, call).await.map_err(|thrown| {
        log::error!("a queue did not answer: {}", runtime::message(&thrown));
        is_silent()
    })
}

/// The same, if it does not refuse.
async fn answer_of(
    front: &Front,
    queue: &str,
    partition: u32,
    settings: Option<&QueueSettings>,
    request: Request,
) -> Result<Array, Refusal> {
    let asked = Call { settings: settings.cloned(), request };
    let answer = call(front, queue, partition, &asked).await?;
    if object::status(&answer) < 400 {
        return Ok(answer);
    }
    Err(json::from_str(&object::body(&answer)).map_or_else(|_| unreadable(), Refusal))
}

/// Asks a partition for something: the text of its answer. What is only passed on is not read.
async fn ask(
    front: &Front,
    queue: &str,
    partition: u32,
    settings: Option<&QueueSettings>,
    request: Request,
) -> Result<String, Refusal> {
    Ok(object::body(&answer_of(front, queue, partition, settings, request).await?))
}

/// Reads what a partition has answered.
fn read_answer<T: DeserializeOwned>(text: &str) -> Result<T, Refusal> {
    json::from_str(text).map_err(|_| unreadable())
}

/// Something that is done with the settings of a queue, and gives a text. Behind a pointer, so that each has its code once.
type Act<'a> = &'a dyn Fn(QueueSettings) -> LocalBoxFuture<'a, Result<String, Refusal>>;

/// Does something with the settings of a queue. If they do not hold any more, it is done once more with others.
async fn with_settings<'a>(front: &'a Front, queue: &'a str, act: Act<'a>) -> Result<String, Refusal> {
    check_queue(queue)?;
    for _ in 0..2 {
        match act(settings(front, queue, false).await?).await {
            Err(refusal) if is_stale(refusal.0.status) => remember(front, queue, None),
            done => return done,
        }
    }
    Err(Refusal(no_queue()))
}

fn is_silent() -> Refusal {
    Refusal::new(Code::Internal, "The queue did not answer. Try again.")
}

fn unreadable() -> Refusal {
    Refusal::new(Code::Internal, "The queue gave an answer that could not be read. Try again.")
}
