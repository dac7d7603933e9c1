//! The routes of lanes: who works, who waits to be let in, and limits that people set.

use stepwell_core::{
    catalog::Station,
    lane::{PAGE_MAX, Page, Shown, check_change, check_step_change},
    object::Address,
};
use stepwell_protocol::{
    Code, json,
    lane::{Flow, LaneRun, LaneView, LimitChange, SET_LIMITS_MAX, SetLimits, StepLane},
};

use super::{
    body::read,
    error::Refusal,
    front::Front,
    request::{check_name, pairs},
    response::Response,
    workflows,
};
use crate::calls::{catalog, lanes::Call};

/// How many runs a page has, unless the request says it.
const PAGE: usize = 50;

/// `GET /api/workflows/{workflow}/lane`
pub async fn show(front: &Front, workflow: &str, query: &str) -> Result<Response, Refusal> {
    check_name("workflow", workflow)?;
    let asked = Asked::read(query)?;
    front.asker().await?;
    // One that has left the code may still have a lane of its own.
    let flow = workflows::terms(front, workflow).await.ok().and_then(|terms| terms.flow);
    if flow.as_ref().is_some_and(|flow| flow.lane.is_some()) {
        // Runs of other workflows are in it.
        front.about_all().asker().await?;
    }
    page(front, &address(front, workflow, flow.as_deref()), asked).await
}

/// `GET /api/lanes/{lane}`
pub async fn show_steps(front: &Front, lane: &str, query: &str) -> Result<Response, Refusal> {
    check_name("lane", lane)?;
    let asked = Asked::read(query)?;
    front.asker().await?;
    page(front, &Address::lane(front.namespace(), &StepLane::object(lane)), asked).await
}

/// A page of a lane.
struct Asked {
    after: u64,
    limit: usize,
}

impl Asked {
    fn read(query: &str) -> Result<Self, Refusal> {
        let wrong = |detail: String| Refusal::new(Code::InvalidRequest, detail);
        let (mut after, mut limit) = (0, PAGE);
        for (name, value) in pairs(query) {
            match name.as_str() {
                "cursor" => {
                    after =
                        value.parse().map_err(|_| wrong("`cursor` is the `next` of another page.".into()))?;
                }
                "limit" => {
                    let number = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                    limit =
                        number.ok_or_else(|| wrong(format!("`limit` is a number from 1 to {PAGE_MAX}.")))?;
                }
                other => {
                    let detail = format!("There is no parameter `{other}`: there are `cursor` and `limit`.");
                    return Err(wrong(detail));
                }
            }
        }
        Ok(Self { after, limit })
    }
}

async fn page(front: &Front, lane: &Address, Asked { after, limit }: Asked) -> Result<Response, Refusal> {
    // One that has stored nothing is not asked: that would make it.
    let station = Station::at(lane).to_string();
    if !front.ask_catalog::<bool>(catalog::Request::HasStation { station }).await? {
        return Ok(Response::of(200, &LaneView::default()));
    }
    let (status, body) = front.call_lane(lane, &Call::Page { after, limit }).await?;
    let Ok(Page { shown, set }) = json::from_str::<Page>(&body) else {
        return Ok(Response::of_object(status, body));
    };
    let last = shown.last().map(|shown| shown.number.to_string());
    let next = last.filter(|_| shown.len() == limit);
    let runs = shown.into_iter().map(|Shown { waiter, waits_at, .. }| LaneRun {
        waits_for: waits_at.and_then(|at| waiter.limits.get(at).cloned()),
        step: waiter.step,
        run: waiter.ticket.run,
        since: waiter.since,
        limits: waiter.limits,
    });
    Ok(Response::of(200, &LaneView { runs: runs.collect(), set, next }))
}

/// `PUT /api/workflows/{workflow}/lane/limit`
pub async fn set_limit(front: &Front, workflow: &str, body: &str) -> Result<Response, Refusal> {
    check_name("workflow", workflow)?;
    let change = read(body)?;
    let who = front.asker().await?;
    let flow = workflows::terms(front, workflow).await?.flow;
    let change = check_change(workflow, flow.as_deref(), change).map_err(Refusal)?;
    set(front, workflow, &address(front, workflow, flow.as_deref()), change, who).await
}

/// `PUT /api/lanes/{lane}/limit`
pub async fn set_step_limit(front: &Front, lane: &str, body: &str) -> Result<Response, Refusal> {
    check_name("lane", lane)?;
    let change = read(body)?;
    let who = front.asker().await?;
    let change = check_step_change(change).map_err(Refusal)?;
    set(front, lane, &Address::lane(front.namespace(), &StepLane::object(lane)), change, who).await
}

async fn set(
    front: &Front,
    name: &str,
    lane: &Address,
    change: LimitChange,
    who: String,
) -> Result<Response, Refusal> {
    let (status, body) = front.call_lane(lane, &Call::SetLimit { change, who }).await?;
    match json::from_str::<Option<SetLimits>>(&body) {
        Ok(Some(set)) => Ok(Response::of(200, &set)),
        Ok(None) => {
            let detail = format!(
                "{SET_LIMITS_MAX} limits of '{name}' are set to another number, which is as many as there can be. Reset \
                 those that are no longer needed."
            );
            Err(Refusal::new(Code::TooMany, detail))
        }
        Err(_) => Ok(Response::of_object(status, body)),
    }
}

/// The lane of a workflow that declares this.
fn address(front: &Front, workflow: &str, flow: Option<&Flow>) -> Address {
    let lane = flow.map_or_else(|| workflow.to_owned(), |flow| flow.lane_of(workflow));
    Address::lane(front.namespace(), &lane)
}
