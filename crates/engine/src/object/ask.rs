//! How Workers and objects ask an object: a text in, a status and a text out.

use std::{pin::pin, time::Duration};

use futures::future::{Either, select};
use js_sys::Array;
use serde::Serialize;
use stepwell_core::object::{Address, Kind};
use stepwell_protocol::{Code, Place, Problem};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::{Delay, Env};

use super::Fault;
use crate::{
    runtime::{self, ObjectStub, Objects},
    settings::{CELL_BINDING, STATION_BINDING},
};

/// What an object answers: a status and a JSON text, and where a new thing is found.
pub struct Answered {
    pub status: u16,
    pub body: String,
    pub location: Option<String>,
}

impl Answered {
    pub fn new<T: Serialize>(status: u16, body: &T) -> Self {
        let body = serde_json::to_string(body).expect("answers hold only what JSON can say");
        Self { status, body, location: None }
    }

    /// What somebody is told who asks in a way that this object does not know.
    pub fn foreign(error: &serde_json::Error) -> Fault {
        let detail = format!("Worker and object do not speak the same protocol: {error}.");
        Problem::new(Code::Internal, detail).into()
    }

    /// What crosses over to whoever asks: status, body, location, rows written and read.
    pub fn into_array(self, rows: Option<(u64, u64)>) -> JsValue {
        let answer = Array::of2(&self.status.into(), &self.body.into());
        if self.location.is_some() || rows.is_some() {
            answer.push(&self.location.map_or(JsValue::UNDEFINED, JsValue::from));
        }
        if let Some((written, read)) = rows {
            answer.push(&written.to_string().into());
            answer.push(&read.to_string().into());
        }
        answer.into()
    }
}

impl From<Fault> for Answered {
    fn from(fault: Fault) -> Self {
        let problem = fault.into_problem();
        Self::new(problem.status, &problem)
    }
}

/// How long another object may take to answer. It might hang, and whoever waits for it would hang too.
const ANSWER_MS_MAX: u64 = 5_000;

/// What another object answers, unless it takes too long.
pub async fn in_time<T>(answer: impl Future<Output = Result<T, JsValue>>) -> Result<T, JsValue> {
    let time = Delay::from(Duration::from_millis(ANSWER_MS_MAX));
    match select(pin!(answer), time).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(JsValue::from_str("no answer in time")),
    }
}

/// Asks an object: a status and a body.
pub async fn ask<T: Serialize>(env: &Env, to: &Address, call: &T) -> Result<(u16, String), JsValue> {
    let answer = ask_whole(env, to, call).await?;
    Ok((status(&answer), body(&answer)))
}

/// Asks an object: all of what [`Answered::into_array`] gives.
pub async fn ask_whole<T: Serialize>(env: &Env, to: &Address, call: &T) -> Result<Array, JsValue> {
    let text = serde_json::to_string(call).expect("a call holds only what JSON can say");
    let stub = stub(env, to)?;
    let answer =
        if to.kind == Kind::Cell { stub.ask(&text)? } else { stub.ask_station(&to.to_string(), &text)? };
    // It may be megabytes, and whoever is asked has a copy.
    drop(text);
    Ok(runtime::settle(answer).await?.unchecked_into())
}

/// The status in an object's answer.
pub fn status(answer: &Array) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a status of HTTP")]
    let status = answer.get(0).as_f64().unwrap_or_default() as u16;
    status
}

/// The text in an object's answer.
pub fn body(answer: &Array) -> String {
    answer.get(1).as_string().unwrap_or_default()
}

/// The rows that an object has written and read, where that is metered.
pub fn rows(answer: &Array) -> Option<(u64, u64)> {
    let count = |index| answer.get(index).as_string()?.parse().ok();
    Some((count(3)?, count(4)?))
}

/// The cell at a place, to be called.
pub fn cell_stub(env: &Env, namespace: &str, place: &Place) -> Result<ObjectStub, JsValue> {
    runtime::property(env, CELL_BINDING)
        .unchecked_into::<Objects>()
        .get_by_name(&place.object_name(namespace))
}

/// An object, to be called.
fn stub(env: &Env, to: &Address) -> Result<ObjectStub, JsValue> {
    if to.kind == Kind::Cell {
        let place = to.name.parse().map_err(|_| JsValue::from_str("this is no place of a cell"))?;
        return cell_stub(env, &to.namespace, &place);
    }
    let stations = runtime::property(env, STATION_BINDING);
    if stations.is_undefined() {
        let detail = format!("there is no station: bind the class Station as {STATION_BINDING}");
        return Err(JsValue::from_str(&detail));
    }
    stations.unchecked_into::<Objects>().get_by_name(&to.to_string())
}
