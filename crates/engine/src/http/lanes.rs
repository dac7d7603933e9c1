//! The route of lanes: who works, and who waits to be let in.

use stepwell_core::{
    catalog::Station,
    lane::{PAGE_MAX, Shown},
    object::Address,
};
use stepwell_protocol::{
    Code, json,
    lane::{LaneRun, LaneView},
};

use super::{
    error::Refusal,
    front::Front,
    request::{check_name, pairs},
    response::Response,
};
use crate::calls::{catalog, lanes::Call};

/// How many runs a page has, unless the request says it.
const PAGE: usize = 50;

/// `GET /api/workflows/{workflow}/lane`
pub async fn show(front: &Front, workflow: &str, query: &str) -> Result<Response, Refusal> {
    check_name("workflow", workflow)?;
    let wrong = |detail: String| Refusal::new(Code::InvalidRequest, detail);
    let (mut after, mut limit) = (0, PAGE);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "cursor" => {
                after = value.parse().map_err(|_| wrong("`cursor` is the `next` of another page.".into()))?;
            }
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                limit = number.ok_or_else(|| wrong(format!("`limit` is a number from 1 to {PAGE_MAX}.")))?;
            }
            other => {
                let detail = format!("There is no parameter `{other}`: there are `cursor` and `limit`.");
                return Err(wrong(detail));
            }
        }
    }
    front.asker().await?;
    // One that has stored nothing is not asked: that would make it.
    let address = Address::lane(front.namespace(), workflow);
    let station = Station::at(&address).to_string();
    if !front.ask_catalog::<bool>(catalog::Request::HasStation { station }).await? {
        return Ok(Response::of(200, &LaneView::default()));
    }
    let (status, body) = front.call_lane(&address, &Call::Page { after, limit }).await?;
    let Ok(shown) = json::from_str::<Vec<Shown>>(&body) else {
        return Ok(Response::of_object(status, body));
    };
    let last = shown.last().map(|shown| shown.number.to_string());
    let next = last.filter(|_| shown.len() == limit);
    let runs = shown.into_iter().map(|Shown { waiter, waits_at, .. }| LaneRun {
        waits_for: waits_at.and_then(|at| waiter.limits.get(at).cloned()),
        run: waiter.ticket.run,
        since: waiter.since,
        limits: waiter.limits,
    });
    Ok(Response::of(200, &LaneView { runs: runs.collect(), next }))
}
