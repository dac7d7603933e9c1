//! The Workers transport: the cell calls `activate` over RPC and passes a session that is a capability.

use std::rc::Rc;

use js_sys::{Error, Promise};
use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Seq,
    program::{Activation, Answer, Commit, Page},
};
use wasm_bindgen::prelude::*;

use crate::{App, drive, executor, vm::Timer};

#[wasm_bindgen]
extern "C" {
    /// The stub of the cell's session object.
    type Stub;

    #[wasm_bindgen(method, catch)]
    fn commit(this: &Stub, commit: &str) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn page(this: &Stub, after: u32) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, catch)]
    fn listen(this: &Stub, after: u32) -> Result<Promise, JsValue>;

    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &js_sys::Function, ms: f64);
}

struct RpcSession(Stub);

impl drive::Session for RpcSession {
    type Lost = JsValue;

    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Answer, JsValue>> + 'static {
        receive(encode(commit).and_then(|text| self.0.commit(&text)))
    }

    fn page(&self, after: Seq) -> impl Future<Output = Result<Page, JsValue>> + 'static {
        receive(self.0.page(after.0))
    }

    fn listen(&self, after: Seq) -> impl Future<Output = Result<Answer, JsValue>> + 'static {
        receive(self.0.listen(after.0))
    }

    fn timer(&self) -> Option<Timer> {
        Some(Rc::new(|ms| {
            #[expect(clippy::cast_precision_loss, reason = "a time-out of 2^53 ms is for ever")]
            let promise = Promise::new(&mut |resolve, _| set_timeout(&resolve, ms as f64));
            Box::pin(async move {
                let _ = executor::settled(&promise).await;
            })
        }))
    }
}

/// What the exported `activate` does.
pub fn activate(app: Rc<App>, activation: &str, session: JsValue) -> Promise {
    let activation: Activation = match decode(activation) {
        Ok(activation) => activation,
        Err(error) => return Promise::reject(&error),
    };
    let session = RpcSession(session.unchecked_into());
    executor::promise(async move {
        drive::drive(&app, activation, &session).await?;
        Ok(JsValue::UNDEFINED)
    })
}

async fn receive<T: DeserializeOwned>(promise: Result<Promise, JsValue>) -> Result<T, JsValue> {
    let promise = promise?;
    let answer = executor::settled(&promise).await?;
    decode(&answer.as_string().ok_or_else(|| Error::new("the cell answered with something else than text"))?)
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, JsValue> {
    serde_json::from_str(text).map_err(|error| {
        let text = format!("engine and app do not speak the same protocol: {error}");
        Error::new(&text).into()
    })
}

fn encode<T: Serialize>(message: &T) -> Result<String, JsValue> {
    serde_json::to_string(message).map_err(|error| Error::new(&error.to_string()).into())
}
