//! The way to the ledger: a server outside that writes down every attempt of every step.

use stepwell::{Ctx, Error, Result, StepInfo};
use wasm_bindgen::JsValue;
use worker::{Fetch, Method, Request, RequestInit};

/// The way to the ledger, for one run.
pub struct Ledger {
    address: String,
    run: String,
}

impl Ledger {
    pub fn new(ctx: &Ctx, address: &str) -> Self {
        Self { address: address.to_owned(), run: ctx.run_id().to_string() }
    }

    /// Writes down that a step's code has run, and gives the number of that entry.
    pub async fn write(&self, step: &str, info: &StepInfo) -> Result<u64> {
        let body = serde_json::json!({
            "run": self.run,
            "step": step,
            "key": info.idempotency_key,
            "attempt": info.attempt,
        });
        let mut init = RequestInit::new();
        init.with_method(Method::Post).with_body(Some(JsValue::from_str(&body.to_string())));
        let request = Request::new_with_init(&self.address, &init).map_err(Error::msg)?;
        let mut response = Fetch::Request(request).send().await.map_err(Error::msg)?;
        let text = response.text().await.map_err(Error::msg)?;
        text.trim().parse().map_err(|_| Error::msg(format!("the ledger answered: {text}")))
    }
}

/// Asks an address, and gives the status of its answer.
pub async fn ask(address: &str) -> Result<u16> {
    let address = address.parse().map_err(Error::msg)?;
    let response = Fetch::Url(address).send().await.map_err(Error::msg)?;
    Ok(response.status_code())
}
