//! Asks the app what it has, and calls its programs.

use serde::Deserialize;
use stepwell_protocol::{Code, Payload, json, manifest::Manifest};
use wasm_bindgen::JsValue;

use super::Front;
use crate::{
    http::error::Refusal,
    program::{activate, app},
    runtime,
};

impl Front {
    /// What the app declares; nothing, if there is none or it does not answer.
    pub async fn describe(&self) -> Option<Manifest> {
        let answer = app(&self.env, runtime::own_entrypoint())?.describe().ok()?;
        let text = runtime::settle(answer).await.ok()?.as_string()?;
        json::from_str(&text).ok()
    }

    /// What the app declares, for whoever can do nothing without it.
    pub async fn manifest(&self) -> Result<Manifest, Refusal> {
        self.describe().await.ok_or_else(|| {
            Refusal::new(Code::AppUnreachable, "The app did not say which workflows it has. Try again.")
        })
    }

    /// Calls the program that an activation is for; nothing, if there is none.
    pub fn activate(&self, activation: &Payload, session: &JsValue) -> Option<Result<JsValue, JsValue>> {
        #[derive(Deserialize)]
        struct Named {
            workflow: String,
        }
        let Named { workflow } = activation.read().ok()?;
        activate(&self.env, runtime::own_entrypoint(), &workflow, activation.text(), session)
    }
}
