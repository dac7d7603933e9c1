//! Asks the app what it has, and calls its programs.

use serde::Deserialize;
use stepwell_protocol::{Payload, program::Description};
use wasm_bindgen::JsValue;

use super::Front;
use crate::{
    program::{activate, app},
    runtime,
};

impl Front {
    /// What the app says about itself; nothing, if there is none or it does not answer.
    pub async fn describe(&self) -> Option<Description> {
        let answer = app(&self.env, runtime::own_entrypoint())?.describe().ok()?;
        let text = runtime::settle(answer).await.ok()?.as_string()?;
        serde_json::from_str(&text).ok()
    }

    /// Calls the program that an activation is for; nothing, if there is none.
    pub fn activate(&self, activation: &Payload, session: &JsValue) -> Option<Result<JsValue, JsValue>> {
        #[derive(Deserialize)]
        struct Named {
            workflow: String,
        }
        let Named { workflow } = activation.decode().ok()?;
        activate(&self.env, runtime::own_entrypoint(), &workflow, activation.text(), session)
    }
}
