//! The method `activate` of the Worker's default entrypoint: a program that commits through the session
//! it was handed, and tells an HTTP server of the test what it saw.

use std::time::Duration;

use serde::Deserialize;
use wasm_bindgen::prelude::*;
use worker::{Delay, Fetch, Url};

use crate::runtime::{self, SessionStub};

/// What the program is asked to do.
#[derive(Deserialize)]
struct Order {
    /// How many commits to make; their texts are `1`, `2`, and so on.
    commits: u32,
    /// Waits this long before each commit.
    #[serde(default)]
    delay_ms: u64,
    /// Where to tell of each outcome; the program goes on when the answer has come.
    report: Option<String>,
}

/// Makes the commits of `order` one after another, and stops at the first that is refused.
#[wasm_bindgen]
pub async fn activate(order: String, session: JsValue) -> Result<JsValue, JsValue> {
    let order: Order = serde_json::from_str(&order).map_err(|error| JsError::new(&error.to_string()))?;
    let session: SessionStub = session.unchecked_into();
    for number in 1..=order.commits {
        if order.delay_ms > 0 {
            Delay::from(Duration::from_millis(order.delay_ms)).await;
        }
        let outcome = match session.commit(&number.to_string()) {
            Ok(answer) => runtime::settle(answer).await,
            Err(thrown) => Err(thrown),
        };
        match outcome {
            Ok(_) => report(&order, "acknowledged", &number.to_string()).await?,
            Err(thrown) => {
                let text = runtime::describe(&thrown);
                report(&order, "refused", &text).await?;
                return Ok(format!("refused at {number}: {text}").into());
            }
        }
    }
    Ok(format!("committed {}", order.commits).into())
}

async fn report(order: &Order, what: &str, text: &str) -> Result<(), JsError> {
    let Some(base) = &order.report else {
        return Ok(());
    };
    let mut url = Url::parse(base)?;
    url.query_pairs_mut().append_pair(what, text);
    let mut answer = Fetch::Url(url).send().await?;
    answer.text().await?;
    Ok(())
}
