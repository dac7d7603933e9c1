//! The routes of alerts.

use serde::de::IgnoredAny;
use stepwell_core::{alert::check_alert, catalog::Station, object::Address, ordered::OrdMap};
use stepwell_protocol::{
    Code,
    alert::{AlertList, AlertSpec},
};

use super::{
    body::{read, shown},
    error::Refusal,
    front::Front,
    request::check_name,
    response::Response,
};
use crate::{
    calls::{
        alerts::{Call, Request},
        catalog,
    },
    log, object, outbound, runtime,
};

/// `GET /api/alerts`
pub async fn list(front: &Front) -> Result<Response, Refusal> {
    match ask(front, Request::List).await? {
        Some(response) => Ok(response),
        None => Ok(Response::of(200, &AlertList::default())),
    }
}

/// `GET /api/alerts/{alert}`
pub async fn show(front: &Front, id: String) -> Result<Response, Refusal> {
    ask(front, Request::Get { id }).await?.ok_or_else(no_alert)
}

/// `PUT /api/alerts/{alert}`
pub async fn put(front: &Front, id: String, body: &str) -> Result<Response, Refusal> {
    check_name("alert", &id)?;
    let spec: AlertSpec = read(body)?;
    check_fields(&spec, &read(body)?)?;
    check_alert(&spec).map_err(Refusal)?;
    outbound::check("url", &spec.url, front.deployment().is_dev).map_err(Refusal)?;
    ask(front, Request::Put { id, spec: Box::new(spec) }).await?.ok_or_else(no_alert)
}

/// `DELETE /api/alerts/{alert}`
pub async fn delete(front: &Front, id: String) -> Result<Response, Refusal> {
    ask(front, Request::Delete { id }).await?.ok_or_else(no_alert)
}

/// Refuses fields that the alert does not have: a typo would leave a figure at its default.
fn check_fields(spec: &AlertSpec, given: &OrdMap<String, IgnoredAny>) -> Result<(), Refusal> {
    let own = spec.watched.fields();
    let is_known = |name: &&String| {
        ["on", "url", "for_minutes"].contains(&name.as_str()) || own.contains(&name.as_str())
    };
    match given.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let detail = format!(
                "The alert has no field `{}`. It takes `on`, `url`, `for_minutes`, and: {}.",
                shown(name),
                own.join(", ")
            );
            Err(Refusal::new(Code::InvalidRequest, detail))
        }
    }
}

/// Asks the station on the caller's behalf. One that has stored nothing is not asked: that would make it.
async fn ask(front: &Front, request: Request) -> Result<Option<Response>, Refusal> {
    let by = front.asker().await?;
    let to = Address::alerts(front.namespace());
    if !matches!(request, Request::Put { .. }) {
        let station = Station::at(&to).to_string();
        if !front.itself().ask_catalog::<bool>(catalog::Request::HasStation { station }).await? {
            return Ok(None);
        }
    }
    let asked = object::ask(front.env(), &to, &Call { by, request }).await;
    let (status, body) = asked.map_err(|thrown| {
        log::error!("the alerts did not answer: {}", runtime::message(&thrown));
        Refusal::new(Code::Internal, "The alerts of the namespace did not answer. Try again.")
    })?;
    Ok(Some(Response::of_object(status, body)))
}

fn no_alert() -> Refusal {
    Refusal(stepwell_core::alert::no_alert())
}
