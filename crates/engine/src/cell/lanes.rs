//! Asks lanes who may go to work.

use std::{pin::pin, rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    cell::LaneQuestion,
    object::{ANSWER_MS, Address},
};
use stepwell_protocol::{json, lane::Standing};
use wasm_bindgen::JsValue;
use worker::Delay;

use super::Host;
use crate::{calls::lanes::Call, log, object, runtime};

impl Host {
    /// Asks a lane. The machine hears the answer.
    pub(super) fn ask_lane(self: &Rc<Self>, question: LaneQuestion) {
        let host = self.clone();
        self.go_on_with(async move {
            let LaneQuestion { lane, flight, asks, over } = question;
            let time = Delay::from(Duration::from_millis(ANSWER_MS));
            let call = Call::Ask { asks, over };
            let answer = match select(pin!(host.lane(&lane, &call)), time).await {
                Either::Left((Ok((200, body)), _)) => json::from_str::<Vec<Standing>>(&body).ok(),
                Either::Left((Ok((_, body)), _)) => {
                    log::warn!("the lane '{lane}' refuses: {body}");
                    None
                }
                Either::Left((Err(thrown), _)) => {
                    let why = runtime::message(&thrown);
                    log::warn!("the lane '{lane}' did not answer: {why}");
                    None
                }
                Either::Right(_) => None,
            };
            let heard = host.turn(|machine, store, now| {
                Ok(machine.lane_answered(store, now, &lane, flight, answer.as_deref())?)
            });
            if let Err(fault) = heard {
                log::error!("{fault}");
            }
        });
    }

    async fn lane(&self, lane: &str, call: &Call) -> Result<(u16, String), JsValue> {
        let namespace = self.store.namespace().map_err(|error| JsValue::from_str(&error.to_string()))?;
        object::ask(&self.env, &Address::lane(&namespace, lane), call).await
    }
}
