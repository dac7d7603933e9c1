//! The routes of single jobs and of dead letters.

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use stepwell_core::queue::{DEAD_PAGE_MAX, check_content, check_redrive, no_job};
use stepwell_protocol::{
    Code, Payload, Timestamp,
    queue::{EditJob, JobId, Purge, QueueSettings, Redrive},
};

use super::{ask, check_own, read_answer, settings::unknown, with_settings};
use crate::{
    calls::queues::Request,
    http::{
        body::{is_empty, read},
        error::Refusal,
        front::Front,
        request::pairs,
        response::Response,
    },
};

/// How many dead letters a page has, unless the request says it.
const PAGE: usize = 50;

/// `GET /api/queues/{queue}/jobs/{job}`
pub async fn show(front: &Front, queue: &str, job: &str) -> Result<Response, Refusal> {
    one(front, queue, job, &|id| Request::Job { id }).await
}

/// `PUT /api/queues/{queue}/jobs/{job}`
pub async fn edit(front: &Front, queue: &str, job: &str, body: String) -> Result<Response, Refusal> {
    check_own(queue)?;
    let EditJob { body, text, base64, content_type } = read(&body)?;
    let content = check_content(body, text, base64, content_type).map_err(Refusal)?;
    one(front, queue, job, &|id| Request::Edit { id, content: content.clone() }).await
}

/// `POST /api/queues/{queue}/jobs/{job}/redrive`
pub async fn redrive_one(front: &Front, queue: &str, job: &str) -> Result<Response, Refusal> {
    one(front, queue, job, &|id| Request::RedriveOne { id }).await
}

/// `DELETE /api/queues/{queue}/jobs/{job}`
pub async fn discard(front: &Front, queue: &str, job: &str) -> Result<Response, Refusal> {
    one(front, queue, job, &|id| Request::Discard { id }).await
}

/// Asks the partition of a job.
async fn one(
    front: &Front,
    queue: &str,
    job: &str,
    request: &dyn Fn(JobId) -> Request,
) -> Result<Response, Refusal> {
    front.asker().await?;
    let id = &wanted(job)?;
    let answer = with_settings(front, queue, &|settings| {
        Box::pin(async move {
            check_home(&settings, id)?;
            ask(front, queue, id.partition, Some(&settings), request(id.clone())).await
        })
    })
    .await?;
    Ok(Response::json(200, answer))
}

fn wanted(job: &str) -> Result<JobId, Refusal> {
    job.parse().map_err(|_| Refusal(no_job()))
}

/// Refuses a job of a partition that is not there: asking it would make it.
fn check_home(settings: &QueueSettings, id: &JobId) -> Result<(), Refusal> {
    let is_there = id.made == settings.made_at && id.partition < settings.partitions;
    if is_there { Ok(()) } else { Err(Refusal(no_job())) }
}

/// `GET /api/queues/{queue}/dead`
pub async fn dead(front: &Front, queue: &str, query: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    let wrong = |detail: String| Refusal::new(Code::InvalidRequest, detail);
    let (mut cursor, mut limit) = ((0, Timestamp::default(), 0), PAGE);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "cursor" => {
                let read = read_cursor(&value);
                cursor = read.ok_or_else(|| wrong("`cursor` is the `next` of another page.".into()))?;
            }
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=DEAD_PAGE_MAX).contains(limit));
                limit =
                    number.ok_or_else(|| wrong(format!("`limit` is a number from 1 to {DEAD_PAGE_MAX}.")))?;
            }
            other => return Err(unknown(other, "`cursor` and `limit`")),
        }
    }
    let list = with_settings(front, queue, &|settings| {
        Box::pin(async move {
            let mut list = Page::default();
            let (mut partition, at, number) = cursor;
            let mut after = (at, number);
            // One after the other, and as few as fill the page.
            while partition < settings.partitions && list.jobs.len() < limit {
                let request = Request::Dead { after, limit: limit - list.jobs.len() };
                let page: Page = read_answer(&ask(front, queue, partition, Some(&settings), request).await?)?;
                list.jobs.extend(page.jobs);
                list.next = page.next.map(|next| format!("{partition}-{next}"));
                (partition, after) = (partition + 1, (Timestamp::default(), 0));
            }
            if list.next.is_none() && partition < settings.partitions {
                list.next = Some(format!("{partition}-0-0"));
            }
            Ok(serde_json::to_string(&list).expect("a page holds only what JSON can say"))
        })
    })
    .await?;
    Ok(Response::json(200, list))
}

/// A page of dead letters, which are not read.
#[derive(Default, Serialize, Deserialize)]
struct Page {
    jobs: Vec<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn read_cursor(text: &str) -> Option<(u32, Timestamp, u64)> {
    let mut parts = text.splitn(3, '-');
    let partition = parts.next()?.parse().ok()?;
    let at = Timestamp::from_millis(parts.next()?.parse().ok()?);
    let number = parts.next()?.parse().ok().filter(|number| *number < 1 << 53)?;
    Some((partition, at, number))
}

/// `POST /api/queues/{queue}/purge`
pub async fn purge(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    let Purge { dead } = if is_empty(body) { Purge::default() } else { read(body)? };
    if !dead {
        check_own(queue)?;
    }
    all(front, queue, &|| Request::Purge { dead }).await
}

/// `POST /api/queues/{queue}/redrive`
pub async fn redrive(front: &Front, queue: &str, body: &str) -> Result<Response, Refusal> {
    front.asker().await?;
    let redrive: Redrive = if is_empty(body) { Redrive::default() } else { read(body)? };
    check_redrive(&redrive).map_err(Refusal)?;
    all(front, queue, &|| Request::Redrive(redrive.clone())).await
}

/// Asks all partitions to begin something. Asking again is safe.
async fn all(front: &Front, queue: &str, request: &dyn Fn() -> Request) -> Result<Response, Refusal> {
    let begun = with_settings(front, queue, &|settings| {
        Box::pin(async move {
            let asked = (0..settings.partitions)
                .map(|partition| ask(front, queue, partition, Some(&settings), request()));
            for answer in join_all(asked).await {
                answer?;
            }
            Ok("{}".to_owned())
        })
    })
    .await?;
    Ok(Response::json(202, begun))
}
