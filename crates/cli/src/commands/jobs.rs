//! `stepwell jobs`: sends jobs to a queue, consumes them by hand, and handles dead letters.

use clap::{Args, Subcommand};
use serde::{Serialize, de::IgnoredAny};
use serde_json::json;
use stepwell_protocol::{
    Payload,
    queue::{
        Ack, Claim, Claimed, ClaimedList, EditJob, Extend, JobList, JobView, Lease, LeaseList, LeaseStatus,
        Nack, NewJob, Redrive, Sent, SentStatus,
    },
};

use super::start::Json;
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What to do if nobody knows whether a job was stored.
const DOUBT: &str = "With `--dedupe-id`, sending it again is safe.";

/// What to do if nobody knows whether something else was done.
const DOUBT_DONE: &str = "Look with `stepwell queues show`; doing it again is safe.";

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
pub enum Jobs {
    /// Send a job. The queue is created if it does not exist.
    Send(Send),
    /// Claim jobs: no one else gets them until their leases end.
    Claim(Take),
    /// Mark claimed jobs as done.
    Ack(Leases),
    /// Give back claimed jobs that failed.
    Nack(Fail),
    /// Extend the leases of claimed jobs.
    Extend(Longer),
    /// Show a job with its body.
    Show(One),
    /// List dead letters, without their bodies.
    Dead(Dead),
    /// Give a dead letter another body.
    Edit(Edit),
    /// Queue a dead letter again, or all that match a filter.
    Redrive(Again),
    /// Delete a dead letter.
    Discard(One),
}

/// A job to send.
#[derive(Debug, Args)]
pub struct Send {
    /// The queue.
    queue: String,
    #[command(flatten)]
    body: Json,
    /// How long no consumer gets it: 10m. At most a year.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    delay: Option<u64>,
    /// 0 to 9. Higher ones come first.
    #[arg(long, default_value_t = 0)]
    priority: u8,
    /// Jobs of one group are handed out in order, one at a time.
    #[arg(long)]
    group: Option<String>,
    /// Sending the same id again has no effect.
    #[arg(long, value_name = "ID")]
    dedupe_id: Option<String>,
}

/// What to claim.
#[derive(Debug, Args)]
pub struct Take {
    /// The queue.
    queue: String,
    /// How many jobs at most: 1 to 100.
    #[arg(long, default_value_t = 1)]
    limit: usize,
    /// How long to wait for a job: 20s at most.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    wait: Option<u64>,
    /// How long the leases last. The default is the queue's.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    visibility: Option<u64>,
    /// Repeat a claim whose answer was lost with the same nonce, and you get the same jobs.
    #[arg(long)]
    nonce: Option<String>,
}

/// Claimed jobs.
#[derive(Debug, Args)]
pub struct Leases {
    /// The queue.
    queue: String,
    /// The leases, as `claim` prints them.
    #[arg(required = true, value_name = "LEASE")]
    leases: Vec<Lease>,
}

/// Claimed jobs that failed.
#[derive(Debug, Args)]
pub struct Fail {
    #[command(flatten)]
    of: Leases,
    /// How long no consumer gets the jobs. The default grows with each attempt.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    delay: Option<u64>,
    /// Why they failed. A dead letter keeps it.
    #[arg(long)]
    reason: Option<String>,
    /// Make them dead letters at once.
    #[arg(long)]
    dead: bool,
}

/// Claimed jobs that take longer.
#[derive(Debug, Args)]
pub struct Longer {
    #[command(flatten)]
    of: Leases,
    /// How long the leases last from now on. The default is the queue's.
    #[arg(long = "for", value_name = "TIME", value_parser = words::parse_length)]
    visibility: Option<u64>,
}

/// A job.
#[derive(Debug, Args)]
pub struct One {
    /// The queue.
    queue: String,
    /// The job's id.
    job: String,
}

/// Which dead letters to list.
#[derive(Debug, Args)]
pub struct Dead {
    /// The queue.
    queue: String,
    /// How many: 1 to 100.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Where the previous page ended.
    #[arg(long)]
    cursor: Option<String>,
}

/// A dead letter and its new body.
#[derive(Debug, Args)]
pub struct Edit {
    /// The queue.
    queue: String,
    /// The job's id.
    job: String,
    #[command(flatten)]
    body: Json,
}

/// Which dead letters to queue again.
#[derive(Debug, Args)]
pub struct Again {
    /// The queue.
    queue: String,
    /// The job's id. Without one, all dead letters that match.
    #[arg(conflicts_with_all = ["contains", "group", "per_second"])]
    job: Option<String>,
    /// Those whose reason contains this text.
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Those of this group.
    #[arg(long)]
    group: Option<String>,
    /// How many per second at most.
    #[arg(long, value_name = "NUMBER")]
    per_second: Option<u32>,
}

impl Jobs {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::Send(send) => send.run(global),
            Self::Claim(take) => take.run(global),
            Self::Ack(Leases { queue, leases }) => end(global, &queue, "ack", &Ack { leases }),
            Self::Nack(Fail { of, delay, reason, dead }) => {
                let nack = Nack { leases: of.leases, delay_ms: delay, reason, dead };
                end(global, &of.queue, "nack", &nack)
            }
            Self::Extend(Longer { of, visibility }) => {
                let extend = Extend { leases: of.leases, visibility_ms: visibility };
                end(global, &of.queue, "extend", &extend)
            }
            Self::Show(One { queue, job }) => {
                let answer = global.client()?.get(&["queues", &queue, "jobs", &job], &Ask::default())?;
                print(global, &answer);
                Ok(())
            }
            Self::Dead(dead) => dead.run(global),
            Self::Edit(Edit { queue, job, body }) => {
                let edit = EditJob { body: Some(payload(body)?), ..EditJob::default() };
                let answer = global.client()?.put(&["queues", &queue, "jobs", &job], &ask(&edit))?;
                print(global, &answer);
                Ok(())
            }
            Self::Redrive(again) => again.run(global),
            Self::Discard(One { queue, job }) => {
                let ask = Ask { doubt: Some(DOUBT_DONE), ..Ask::default() };
                let _: Answer<IgnoredAny> =
                    global.client()?.delete(&["queues", &queue, "jobs", &job], &ask)?;
                say(global, &json!({ "deleted": job }), "The dead letter is deleted.");
                Ok(())
            }
        }
    }
}

impl Send {
    fn run(self, global: &Global) -> Result {
        let job = NewJob {
            body: Some(payload(self.body)?),
            delay_ms: self.delay.unwrap_or_default(),
            priority: self.priority,
            group: self.group,
            dedupe_id: self.dedupe_id,
            ..NewJob::default()
        };
        let ask = Ask { doubt: Some(DOUBT), ..ask(&job) };
        let answer: Answer<Sent> = global.client()?.post(&["queues", &self.queue, "jobs"], &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        if answer.value.status == SentStatus::Duplicate {
            anstream::eprintln!("The queue knows this job already.");
        }
        anstream::println!("{}", answer.value.id.map(|id| id.to_string()).unwrap_or_default());
        Ok(())
    }
}

impl Take {
    fn run(self, global: &Global) -> Result {
        let claim = Claim {
            limit: Some(self.limit),
            visibility_ms: self.visibility,
            wait_ms: self.wait,
            nonce: self.nonce,
        };
        let wait = self.wait.unwrap_or_default().div_ceil(1_000);
        let doubt = Some("Repeat it with the same `--nonce`, or wait until the leases end.");
        let ask = Ask { wait, doubt, ..ask(&claim) };
        let answer: Answer<ClaimedList> = global.client()?.post(&["queues", &self.queue, "claim"], &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        if answer.value.jobs.is_empty() {
            anstream::eprintln!("The queue has no jobs to claim.");
        }
        let row = |job: &Claimed| {
            let body = match (&job.body, &job.text) {
                (Some(body), _) => words::short(body, 60),
                (None, Some(text)) => words::plain(&words::cut(text, 60)),
                (None, None) => words::plain(&job.content_type),
            };
            vec![job.lease.to_string(), format!("attempt {}", job.attempt), body]
        };
        table::print(&answer.value.jobs.iter().map(row).collect::<Vec<_>>());
        Ok(())
    }
}

impl Dead {
    fn run(self, global: &Global) -> Result {
        let mut query = vec![("limit", self.limit.to_string())];
        query.extend(self.cursor.map(|cursor| ("cursor", cursor)));
        let ask = Ask { query, ..Ask::default() };
        let answer: Answer<JobList> = global.client()?.get(&["queues", &self.queue, "dead"], &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        if answer.value.jobs.is_empty() {
            anstream::eprintln!("The queue has no dead letters.");
        }
        let row = |job: &JobView| {
            let (at, why) = match &job.death {
                Some(death) => (words::date(death.at), death.reason.clone().unwrap_or_default()),
                None => Default::default(),
            };
            vec![job.id.to_string(), at, words::count(job.attempts as usize, "attempt"), words::plain(&why)]
        };
        table::print(&answer.value.jobs.iter().map(row).collect::<Vec<_>>());
        if let Some(next) = answer.value.next {
            anstream::eprintln!("There are more: --cursor {}", words::plain(&next));
        }
        Ok(())
    }
}

impl Again {
    fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        if let Some(job) = &self.job {
            let path = ["queues", &self.queue, "jobs", job, "redrive"];
            let answer = client.post(&path, &Ask { doubt: Some(DOUBT_DONE), ..Ask::default() })?;
            print(global, &answer);
            return Ok(());
        }
        let Self { queue, contains, group, per_second, .. } = self;
        let redrive = Redrive { code: None, contains, group, per_second };
        let _: Answer<IgnoredAny> = client.post(&["queues", &queue, "redrive"], &ask(&redrive))?;
        say(global, &json!({ "redriving": queue }), "The redrive has begun.");
        Ok(())
    }
}

fn payload(body: Json) -> Result<Payload> {
    Ok(match body.json()? {
        Some(text) => Payload::from_text(text).unwrap_or_default(),
        None => Payload::null(),
    })
}

fn ask<T: Serialize>(body: &T) -> Ask<'static> {
    let body = Some(serde_json::to_string(body).expect("it holds only what JSON can say"));
    Ask { body, doubt: Some(DOUBT_DONE), ..Ask::default() }
}

fn end<T: Serialize>(global: &Global, queue: &str, deed: &str, body: &T) -> Result {
    let answer: Answer<LeaseList> = global.client()?.post(&["queues", queue, deed], &ask(body))?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let rows = answer.value.results.iter().map(|result| {
        let status = match result.status {
            LeaseStatus::Done => "done",
            LeaseStatus::Queued => "queued again",
            LeaseStatus::Dead => "dead letter",
            LeaseStatus::Extended => "extended",
            LeaseStatus::Lost => "lease is over",
            LeaseStatus::Failed => "not stored: try again",
        };
        vec![result.id.to_string(), status.to_owned()]
    });
    table::print(&rows.collect::<Vec<_>>());
    Ok(())
}

fn print(global: &Global, answer: &Answer<JobView>) {
    if global.json {
        anstream::println!("{}", answer.text);
        return;
    }
    let job = &answer.value;
    let field = |name: &str, value: String| anstream::println!("  {name:9} {value}");
    anstream::println!("{}", job.id);
    field("status", serde_json::to_string(&job.status).unwrap_or_default().replace('"', ""));
    field("sent", words::date(job.sent_at));
    field("attempts", job.attempts.to_string());
    if let Some(group) = &job.group {
        field("group", words::plain(group));
    }
    if let Some(death) = &job.death {
        let reason = death.reason.as_deref().unwrap_or("no reason was given");
        field("died", words::plain(&format!("{} {reason}", words::date(death.at))));
    }
    match (&job.body, &job.text) {
        (Some(body), _) => field("body", words::short(body, 1_000)),
        (None, Some(text)) => field("body", words::plain(&words::cut(text, 1_000))),
        (None, None) => field("bytes", job.size.to_string()),
    }
}

fn say(global: &Global, as_json: &serde_json::Value, told: &str) {
    if global.json {
        anstream::println!("{as_json}");
    } else {
        anstream::println!("{told}");
    }
}
