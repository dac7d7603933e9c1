//! The route that sends jobs.
//!
//! Jobs of a group, or with a dedupe id, go to the partition that these choose. All others of a request go to one partition
//! together, so that they are stored as a whole.

use futures::future::join_all;
use stepwell_core::{
    ordered::OrdMap,
    queue::{Post, check_post, home, is_stale, no_queue},
};
use stepwell_protocol::{
    Code, Problem, json,
    queue::{JOBS_MAX, NewJob, QueueSettings, SendJobs, Sent, SentList, SentStatus},
};

use super::{call, check_own, remember, settings, settings::unknown};
use crate::{
    calls::queues::{Call, Request},
    http::{
        body::read,
        error::Refusal,
        front::Front,
        request::{Headers, idempotency_key, pairs},
        response::Response,
        starts::nonce,
    },
    object, runtime,
};

/// A job on its way, and its place in the request.
type Item = (usize, Post);

/// `POST /api/queues/{queue}/jobs`
pub async fn send(
    front: &Front,
    queue: &str,
    query: &str,
    headers: &Headers,
    raw: Vec<(String, String)>,
    body: String,
) -> Result<Response, Refusal> {
    check_own(queue)?;
    let key = idempotency_key(headers)?;
    let (jobs, is_one) = match raw.into_iter().next() {
        Some((form, content_type)) => (vec![raw_job(query, &form, content_type, body)?], true),
        None => {
            if let Some((name, _)) = pairs(query).next() {
                return Err(unknown(&name, "the fields of the job"));
            }
            let read = jobs(read(&body)?)?;
            // The jobs are a copy of it.
            drop(body);
            read
        }
    };
    if !(1..=JOBS_MAX).contains(&jobs.len()) {
        let detail = format!("`jobs` has {} jobs. Send 1 to {JOBS_MAX} at once.", jobs.len());
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    let mut results: Vec<Sent> = jobs.iter().map(|_| unanswered()).collect();
    let mut items: Vec<Item> = Vec::new();
    for (index, job) in jobs.into_iter().enumerate() {
        match check_post(job) {
            Ok(post) => items.push((index, post)),
            Err(problem) if is_one => return Err(Refusal(problem)),
            Err(problem) => refuse(&mut results, &[index], &problem),
        }
    }
    let sizes = || items.iter().map(|(_, post)| post.content.size());
    front.sender_of(items.len(), sizes().sum(), sizes().max().unwrap_or_default()).await?;
    let sending = Sending { front, queue, key: key.as_deref(), mark: nonce(), any: runtime::random() };
    if !items.is_empty() {
        let left = sending.send(settings(front, queue, true).await?, items, &mut results).await;
        if !left.is_empty() {
            // The queue was deleted, or made again, since its settings were asked for.
            remember(front, queue, None);
            let left = sending.send(settings(front, queue, true).await?, left, &mut results).await;
            let left: Vec<_> = left.into_iter().map(|(index, _)| index).collect();
            refuse(&mut results, &left, &no_queue());
        }
    }
    if !is_one {
        return Ok(Response::of(200, &SentList { results }));
    }
    match results.pop() {
        Some(Sent { problem: Some(problem), .. }) => Err(Refusal(problem)),
        Some(sent) => Ok(Response::of(if sent.status == SentStatus::Accepted { 201 } else { 200 }, &sent)),
        None => Err(super::unreadable()),
    }
}

/// A job whose body is that of the request: the rest of it is in the query.
fn raw_job(query: &str, form: &str, content_type: String, body: String) -> Result<NewJob, Refusal> {
    let mut job = NewJob { content_type: Some(content_type), ..NewJob::default() };
    if form == "text" {
        job.text = Some(body);
    } else {
        job.base64 = Some(body);
    }
    for (name, value) in pairs(query) {
        let wrong = |what| Refusal::new(Code::InvalidRequest, format!("`{name}` is {what}."));
        match name.as_str() {
            "delay_ms" => job.delay_ms = value.parse().map_err(|_| wrong("a number of milliseconds"))?,
            "priority" => job.priority = value.parse().map_err(|_| wrong("0 to 9"))?,
            "group" => job.group = Some(value),
            "dedupe_id" => job.dedupe_id = Some(value),
            other => return Err(unknown(other, "`delay_ms`, `priority`, `group` and `dedupe_id`")),
        }
    }
    Ok(job)
}

/// The jobs of a request, and whether it is one that is not in a list.
fn jobs(sent: SendJobs) -> Result<(Vec<NewJob>, bool), Refusal> {
    let SendJobs { jobs, body, text, base64, content_type, delay_ms, priority, group, dedupe_id } = sent;
    let has_one = body.is_some()
        || text.is_some()
        || base64.is_some()
        || content_type.is_some()
        || delay_ms.is_some()
        || priority.is_some()
        || group.is_some()
        || dedupe_id.is_some();
    match jobs {
        Some(_) if has_one => {
            let detail = "Send `jobs`, or the fields of one job, but not both.";
            Err(Refusal::new(Code::InvalidRequest, detail))
        }
        Some(jobs) => Ok((jobs, false)),
        None => {
            let (delay_ms, priority) = (delay_ms.unwrap_or_default(), priority.unwrap_or_default());
            let job = NewJob { body, text, base64, content_type, delay_ms, priority, group, dedupe_id };
            Ok((vec![job], true))
        }
    }
}

struct Sending<'a> {
    front: &'a Front,
    queue: &'a str,
    key: Option<&'a str>,
    mark: String,
    /// Chooses the partition of jobs that may be in any.
    any: u64,
}

impl Sending<'_> {
    /// Sends jobs to their partitions. Gives back those whose partition does not go by these settings.
    async fn send(&self, settings: QueueSettings, items: Vec<Item>, results: &mut [Sent]) -> Vec<Item> {
        let any = u32::try_from(self.any % u64::from(settings.partitions.max(1))).unwrap_or(0);
        let mut parts: OrdMap<u32, (Vec<usize>, Vec<Post>)> = OrdMap::new();
        for (index, post) in items {
            let (group, dedupe_id) = (post.group.as_deref(), post.dedupe_id.as_deref());
            let partition = home(&settings, group, dedupe_id, self.key).unwrap_or(any);
            let (indexes, posts) = parts.get_or_default(partition);
            indexes.push(index);
            posts.push(post);
        }
        let calls = parts.into_iter().map(|(partition, (indexes, posts))| {
            let key = self.key.map(str::to_owned);
            let request = Request::Send { mark: self.mark.clone(), key, posts };
            let asked = Call { settings: Some(settings.clone()), request };
            async move {
                let answer = call(self.front, self.queue, partition, &asked).await;
                let answer = answer.map(|answer| (object::status(&answer), object::body(&answer)));
                (indexes, asked.request, answer)
            }
        });
        let mut left = Vec::new();
        for (indexes, request, answer) in join_all(calls).await {
            match answer {
                Ok((200, body)) => {
                    let list: SentList = json::from_str(&body).unwrap_or_default();
                    for (index, sent) in indexes.into_iter().zip(list.results) {
                        if let Some(result) = results.get_mut(index) {
                            *result = sent;
                        }
                    }
                }
                Ok((status, _)) if is_stale(status) => {
                    if let Request::Send { posts, .. } = request {
                        left.extend(indexes.into_iter().zip(posts));
                    }
                }
                Ok((_, body)) => {
                    if let Ok(problem) = json::from_str(&body) {
                        refuse(results, &indexes, &problem);
                    }
                }
                Err(Refusal(problem)) => refuse(results, &indexes, &problem),
            }
        }
        left
    }
}

/// What is said of a job that nobody has said anything of.
fn unanswered() -> Sent {
    let problem = Problem::new(Code::Internal, "The queue gave no answer. Try again.");
    Sent { status: SentStatus::Refused, id: None, problem: Some(problem) }
}

fn refuse(results: &mut [Sent], indexes: &[usize], problem: &Problem) {
    for index in indexes {
        if let Some(result) = results.get_mut(*index) {
            result.problem = Some(problem.clone());
        }
    }
}
