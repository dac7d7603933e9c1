//! What there is by name: queues, topics and lanes of steps, as the catalog of the namespace has them in its register.

use stepwell_core::catalog::Named;
use stepwell_protocol::{Code, lane::LaneList, topic::TopicList};

use super::{body::shown, error::Refusal, front::Front, request::pairs, response::Response};
use crate::calls::catalog::Request;

/// How many names a page has.
const PAGE: usize = 100;

/// `GET /api/topics`
pub async fn topics(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (topics, next) = list(front, Named::Topics, query).await?;
    Ok(Response::of(200, &TopicList { topics, next }))
}

/// `GET /api/lanes`
pub async fn lanes(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (lanes, next) = list(front, Named::StepLanes, query).await?;
    Ok(Response::of(200, &LaneList { lanes, next }))
}

/// A page of names, and where the next one begins.
pub async fn list(
    front: &Front,
    which: Named,
    query: &str,
) -> Result<(Vec<String>, Option<String>), Refusal> {
    let mut after = String::new();
    for (name, value) in pairs(query) {
        if name != "after" {
            let detail = format!("There is no parameter `{}`: use `after`.", shown(&name));
            return Err(Refusal::new(Code::InvalidRequest, detail));
        }
        after = value;
    }
    let names: Vec<String> = front.ask_catalog(Request::Names { which, after, limit: PAGE }).await?;
    let next = names.last().filter(|_| names.len() == PAGE).cloned();
    Ok((names, next))
}
