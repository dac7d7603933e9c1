//! What every object answers, whatever its kind.

use std::rc::Rc;

use js_sys::Promise;
use serde::{Deserialize, Serialize};
use stepwell_core::object::Address;
use wasm_bindgen::JsValue;
use worker::Env;

use super::{Answered, Answering, Fault, Host, Kind, StoreError, Tables, ask};
use crate::runtime;

/// What any object can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Look after the alarm, and nothing else.
    Touch,
    /// Delete all that is stored here, the alarm too: this life of the namespace is over.
    Empty {
        /// Its number.
        life: u64,
    },
}

/// How a word is written: no call of any kind of object begins like it.
#[derive(Serialize, Deserialize)]
struct KernelCall {
    kernel: Word,
}

const BEGINNING: &str = "{\"kernel\":";

/// Tells an object something that every object understands: a status and a body.
pub async fn tell(env: &Env, to: &Address, word: Word) -> Result<(u16, String), JsValue> {
    ask(env, to, &KernelCall { kernel: word }).await
}

impl<K: Kind> Host<K> {
    /// The answer to a call that is such a word; nothing for all others.
    pub(super) fn heard(self: &Rc<Self>, call: &str) -> Option<Answering> {
        if !call.starts_with(BEGINNING) {
            return None;
        }
        let (host, told) = (self.clone(), stepwell_protocol::json::from_str::<KernelCall>(call));
        Some(Box::pin(async move {
            let answered = match told {
                Ok(KernelCall { kernel }) => host.hear(kernel).await,
                Err(error) => Err(Answered::foreign(&error)),
            };
            answered.unwrap_or_else(Answered::from).into_array(None)
        }))
    }

    async fn hear(self: &Rc<Self>, word: Word) -> Result<Answered, Fault> {
        match word {
            Word::Touch => self.repair().await?,
            Word::Empty { life } => self.empty(life).await?,
        }
        Ok(Answered::new(200, &()))
    }

    /// Deletes everything. This instance does nothing any more, and ends after its answer: whatever it has in memory or
    /// under way, the sessions of programs above all, must not meet the next life of the namespace.
    pub async fn empty(self: &Rc<Self>, life: u64) -> Result<(), Fault> {
        let own = match Tables::new(self.storage.clone(), false).life() {
            Ok(own) => own,
            // The catalog of the life that ends takes nothing for another one: what cannot be read goes with the rest.
            Err(StoreError::Unreadable(_)) => None,
            Err(error) => return Err(error.into()),
        };
        if own.is_some_and(|own| own > life) {
            // The word comes late.
            return Ok(());
        }
        self.is_over.set(true);
        K::end(self);
        let stored = async {
            for promise in self.delete_storage()? {
                runtime::settle(promise.into()).await?;
            }
            Ok::<_, StoreError>(())
        };
        let stored = stored.await;
        // Even if it failed: the next instance finds what is left.
        runtime::abort_soon(
            self.state.as_raw().as_ref(),
            "stepwell: the namespace of this object was deleted",
        );
        Ok(stored?)
    }

    /// Deletes everything, and begins again with a machine that knows nothing: unlike after [`Self::empty`], the same name
    /// may be used at once.
    pub async fn erase(self: &Rc<Self>, machine: K::Machine) -> Result<(), Fault> {
        self.check_open()?;
        let deleted = self.delete_storage()?;
        // Without an await between: nothing that comes next sees the one without the other.
        self.life.set(None);
        *self.machine.borrow_mut() = machine;
        for promise in deleted {
            runtime::settle(promise.into()).await?;
        }
        Ok(())
    }

    /// Deletes all that is stored, the alarm too, before it returns. What it gives is settled when that is durable.
    fn delete_storage(&self) -> Result<[Promise; 3], StoreError> {
        Ok([self.storage.delete_alarm()?, self.storage.delete_all()?, self.storage.sync()?])
    }
}
