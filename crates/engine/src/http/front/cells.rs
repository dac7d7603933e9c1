//! Asks cells, and passes their answers on.

use js_sys::Array;
use serde::de::DeserializeOwned;
use stepwell_protocol::{Code, Place, json};
use wasm_bindgen::{JsCast as _, JsValue};

use super::{Front, unreadable};
use crate::{
    calls::cell::{Call, Operation},
    http::{
        error::Refusal,
        response::{ROWS_READ, ROWS_WRITTEN, Response},
    },
    log,
    object::{self, in_time},
    runtime::{self, ObjectStub},
};

/// The headers in an object's answer.
const HEADERS: [&str; 3] = ["location", ROWS_WRITTEN, ROWS_READ];

impl Front {
    /// Asks a cell for something that is not simply passed on.
    pub async fn ask_json<T: DeserializeOwned>(
        &self,
        place: &Place,
        operation: Operation,
    ) -> Result<T, Refusal> {
        read(&self.ask_text(place, operation).await?)
    }

    /// Asks a cell that the answers of the others are worth something without: nobody waits for one that hangs.
    pub async fn ask_in_time<T: DeserializeOwned>(
        &self,
        place: &Place,
        operation: Operation,
    ) -> Result<T, Refusal> {
        read(&self.ask_text_in_time(place, operation).await?)
    }

    /// Asks a cell for a text, unless it takes too long.
    pub async fn ask_text_in_time(&self, place: &Place, operation: Operation) -> Result<String, Refusal> {
        let answer = in_time(async { Ok(self.ask_text(place, operation).await) });
        answer.await.unwrap_or_else(|_| Err(no_answer(place, "it takes too long")))
    }

    /// Asks a cell for a text; what it refuses is a refusal here too.
    pub async fn ask_text(&self, place: &Place, operation: Operation) -> Result<String, Refusal> {
        let response = self.ask(place, operation).await?;
        if response.is_success() {
            return Ok(response.into_text());
        }
        Err(json::from_str(&response.into_text()).map_or_else(|_| unreadable(), Refusal))
    }

    /// Asks a cell.
    pub async fn ask(&self, place: &Place, operation: Operation) -> Result<Response, Refusal> {
        let call = self.call(place, operation)?;
        match self.send(place, &call).await {
            Ok(response) => {
                self.hear(response.status);
                Ok(response)
            }
            Err(thrown) => Err(no_answer(place, &runtime::message(&thrown))),
        }
    }

    /// What a cell is asked, as a text, with whoever asks for it.
    pub fn call(&self, place: &Place, operation: Operation) -> Result<String, Refusal> {
        self.check_somebody()?;
        let access = self.access.as_deref().cloned();
        let call = Call::new(&self.namespace, place, access, operation)
            .in_life(self.life)
            .of_request(self.request.as_deref());
        Ok(serde_json::to_string(&call).expect("a call holds only what JSON can say"))
    }

    /// A cell, as an object to be called.
    pub fn cell(&self, place: &Place) -> Result<ObjectStub, JsValue> {
        object::cell_stub(&self.env, &self.namespace, place)
    }

    async fn send(&self, place: &Place, call: &str) -> Result<Response, JsValue> {
        let stub = self.cell(place)?;
        let answer: Array = runtime::settle(stub.ask(call)?).await?.unchecked_into();
        Ok(passed_on(&answer))
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Refusal> {
    json::from_str(text).map_err(|_| unreadable())
}

fn no_answer(place: &Place, why: &str) -> Refusal {
    log::error!("cell {place} did not answer: {why}");
    let detail = "The cell that holds the run did not answer. Try again; with the same Idempotency-Key that is always safe.";
    Refusal::new(Code::Internal, detail)
}

/// An object's answer, as it is passed on.
pub(super) fn passed_on(answer: &Array) -> Response {
    let mut response = Response::of_object(object::status(answer), object::body(answer));
    for (name, index) in HEADERS.into_iter().zip(2..answer.length()) {
        if let Some(value) = answer.get(index).as_string() {
            response = response.with(name, value);
        }
    }
    response
}
