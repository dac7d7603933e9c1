//! How a station gets into the register of its namespace.
//!
//! A station calls [`register`] before it stores anything: `register(&host, &address).await?`. The first instance that
//! stores something asks the catalog; the answer is kept in a row, so no later call or instance asks again.
//!
//! The rows of a station are then begun: its table `meta` is there, with its address, and it makes its own tables beside
//! it. A namespace that is being deleted registers nobody, so nothing is stored in it any more.

use std::rc::Rc;

use stepwell_core::{
    catalog::{Registered, Station},
    object::Address,
};
use stepwell_protocol::{Code, Problem, json};

use crate::{
    calls::catalog::{Call, Request, ask},
    log,
    object::{Fault, Host, Kind, in_time},
    runtime,
};

/// Makes sure that a station is in the register of its namespace.
pub async fn register<K: Kind>(host: &Rc<Host<K>>, address: &Address) -> Result<(), Fault> {
    if host.life()?.is_some() {
        return Ok(());
    }
    let request = Request::Register { station: Station::at(address).to_string() };
    let call = Call::new(&address.namespace, request);
    let (status, body) = in_time(ask(&host.env, &call)).await.map_err(|thrown| {
        log::error!("the catalog did not answer: {}", runtime::message(&thrown));
        unanswered()
    })?;
    if status != 200 {
        return Err(json::from_str(&body).unwrap_or_else(|_| unanswered()).into());
    }
    let Registered { life } = json::from_str(&body).map_err(|_| unanswered())?;
    host.begin(address, life)
}

fn unanswered() -> Problem {
    Problem::new(
        Code::Internal,
        "The catalog of the namespace did not answer. Nothing was recorded. Try again.",
    )
}
