//! What every object answers, whatever its kind.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stepwell_core::object::Address;
use wasm_bindgen::JsValue;
use worker::Env;

use super::{Answered, Answering, Fault, Host, Kind, ask};

/// What any object can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Look after the alarm, and nothing else.
    Touch,
}

/// How a word is written: no call of any kind of object begins like it.
#[derive(Serialize, Deserialize)]
struct Told {
    kernel: Word,
}

const BEGINNING: &str = "{\"kernel\":";

/// Tells an object something that every object understands: a status and a body.
pub async fn tell(env: &Env, to: &Address, word: Word) -> Result<(u16, String), JsValue> {
    ask(env, to, &Told { kernel: word }).await
}

impl<K: Kind> Host<K> {
    /// The answer to a call that is such a word; nothing for all others.
    pub(super) fn heard(self: &Rc<Self>, call: &str) -> Option<Answering> {
        if !call.starts_with(BEGINNING) {
            return None;
        }
        let (host, told) = (self.clone(), serde_json::from_str::<Told>(call));
        Some(Box::pin(async move {
            let answered = match told {
                Ok(Told { kernel }) => host.hear(kernel).await,
                Err(error) => Err(Answered::foreign(&error)),
            };
            answered.unwrap_or_else(Answered::from).into_array(None)
        }))
    }

    async fn hear(self: &Rc<Self>, word: Word) -> Result<Answered, Fault> {
        match word {
            Word::Touch => self.repair().await?,
        }
        Ok(Answered::new(200, &()))
    }
}
