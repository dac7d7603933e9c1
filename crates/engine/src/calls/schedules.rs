//! What Workers and cells ask of a station of schedules.

use js_sys::Array;
use serde::{Deserialize, Serialize};
use stepwell_core::object::{Address, Message};
use stepwell_protocol::{
    manifest::ScheduleDescription,
    schedule::{Backfill, ScheduleSpec},
};
use wasm_bindgen::JsValue;
use worker::Env;

use crate::object;

/// The one station of a namespace.
pub const SHARD: &str = "0";

/// A request to a station of schedules.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Who asks. Whether they may was found out before.
    pub by: String,
    /// What to do.
    pub request: Request,
}

/// What is asked of a station of schedules.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// List schedules.
    List {
        /// After this id.
        after: String,
        /// So many.
        limit: usize,
    },
    /// Show a schedule.
    Get {
        /// Its id.
        id: String,
    },
    /// Make a schedule, or let it do something else.
    Put {
        /// Its id.
        id: String,
        /// What it is to do.
        spec: Box<ScheduleSpec>,
    },
    /// Delete a schedule.
    Delete {
        /// Its id.
        id: String,
    },
    /// Let it tick no more.
    Pause {
        /// Its id.
        id: String,
    },
    /// Let it tick again.
    Resume {
        /// Its id.
        id: String,
    },
    /// Start a run of it now.
    Trigger {
        /// Its id.
        id: String,
        /// What the request is known by.
        mark: String,
    },
    /// Start a range of its ticks again.
    Backfill {
        /// Its id.
        id: String,
        /// The range.
        range: Backfill,
    },
    /// Say when it ticks next.
    Next {
        /// Its id.
        id: String,
    },
    /// The code declares these, and no others.
    Declare {
        /// Which of the catalog's words this is: a later one takes its place.
        revision: u64,
        /// All of them.
        schedules: Vec<ScheduleDescription>,
    },
    /// A cell has written.
    Receive {
        /// What.
        message: Message,
    },
}

/// Asks the station of a namespace: a status and a body.
pub async fn ask(env: &Env, namespace: &str, call: &Call) -> Result<(u16, String), JsValue> {
    object::ask(env, &Address::schedules(namespace, SHARD), call).await
}

/// The same, with all of its answer.
pub async fn ask_whole(env: &Env, namespace: &str, call: &Call) -> Result<Array, JsValue> {
    object::ask_whole(env, &Address::schedules(namespace, SHARD), call).await
}
