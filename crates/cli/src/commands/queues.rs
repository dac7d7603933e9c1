//! `stepwell queues`: the settings, counts and life of queues.

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::queue::{Push, QueuePatch, QueueSecret, QueueSettings, QueueState, QueueView};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    names, words,
};

/// What to do if nobody knows whether a change was made.
const DOUBT: &str = "Look with `stepwell queues show`; doing it again is safe.";

/// What can be done with queues.
#[derive(Debug, Subcommand)]
pub enum Queues {
    /// List the namespace's queues.
    List,
    /// Show the settings of a queue and count its jobs.
    Show(One),
    /// Create a queue, or change the settings that you give.
    Set(Set),
    /// Show the secret that signs the jobs of a queue when they are pushed to an address.
    Secret(One),
    /// Pause a queue: consumers get no jobs until it is resumed.
    Pause(One),
    /// Drain a queue: it accepts no jobs until it is resumed.
    Drain(One),
    /// Resume a paused or draining queue.
    Resume(One),
    /// Delete the queued jobs, or the dead letters. Jobs that consumers hold stay.
    Purge(Purge),
    /// Delete a queue.
    Delete(Delete),
}

/// A queue.
#[derive(Debug, Args)]
pub struct One {
    /// The queue.
    queue: String,
}

/// What to set.
#[derive(Debug, Args)]
pub struct Set {
    /// The queue.
    queue: String,
    /// How many partitions it has: 1 to 64. Partitions can be added, not removed.
    #[arg(long, value_name = "NUMBER")]
    partitions: Option<u32>,
    /// How long a lease lasts: 30s.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    visibility: Option<u64>,
    /// After how many attempts a job becomes a dead letter.
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<u32>,
    /// How long a job waits for a consumer until it becomes a dead letter: 14d.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    retention: Option<u64>,
    /// How long dead letters are kept: 30d.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    dead_retention: Option<u64>,
    /// How long dedupe ids are known: 24h.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    dedupe: Option<u64>,
    /// Send a job to this queue for each dead letter.
    #[arg(long, value_name = "QUEUE", conflicts_with = "no_dead_to")]
    dead_to: Option<String>,
    /// Tell no queue of dead letters.
    #[arg(long)]
    no_dead_to: bool,
    /// Push jobs to this https address instead of waiting for claims.
    #[arg(long, value_name = "URL", conflicts_with = "no_push", group = "target")]
    push: Option<String>,
    /// Push jobs to the Cloudflare Queue with this binding, such as `SINK_ORDERS`.
    #[arg(long, value_name = "BINDING", conflicts_with = "no_push", group = "target")]
    sink: Option<String>,
    /// How many jobs are pushed at once: 1 to 384, and up to 6 for each partition.
    #[arg(long, value_name = "NUMBER", requires = "target")]
    concurrency: Option<u32>,
    /// How many pushes begin in a second at the most.
    #[arg(long, value_name = "NUMBER", requires = "target")]
    per_second: Option<u32>,
    /// How long the address may take to answer: 30s.
    #[arg(long, value_name = "TIME", requires = "target", value_parser = words::parse_length)]
    timeout: Option<u64>,
    /// Push jobs no more.
    #[arg(long)]
    no_push: bool,
}

/// What to purge.
#[derive(Debug, Args)]
pub struct Purge {
    /// The queue.
    queue: String,
    /// Delete the dead letters instead of the queued jobs.
    #[arg(long)]
    dead: bool,
}

/// What to delete.
#[derive(Debug, Args)]
pub struct Delete {
    /// The queue.
    queue: String,
    /// Delete its jobs and dead letters, too.
    #[arg(long)]
    purge: bool,
}

impl Queues {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::List => list(global),
            Self::Show(One { queue }) => show(global, &queue),
            Self::Set(set) => set.run(global),
            Self::Secret(One { queue }) => secret(global, &queue),
            Self::Pause(One { queue }) => change(global, &queue, "pause"),
            Self::Drain(One { queue }) => change(global, &queue, "drain"),
            Self::Resume(One { queue }) => change(global, &queue, "resume"),
            Self::Purge(Purge { queue, dead }) => {
                let ask = body(&json!({ "dead": dead }));
                let _: Answer<IgnoredAny> = global.client()?.post(&["queues", &queue, "purge"], &ask)?;
                said(global, &json!({ "purging": queue }), "The purge has begun.");
                Ok(())
            }
            Self::Delete(Delete { queue, purge }) => {
                let query = if purge { vec![("purge", "true".to_owned())] } else { Vec::new() };
                let ask = Ask { query, doubt: Some(DOUBT), ..Ask::default() };
                let _: Answer<IgnoredAny> = global.client()?.delete(&["queues", &queue], &ask)?;
                let told = format!("The queue {} is deleted.", words::plain(&queue));
                said(global, &json!({ "deleted": queue }), &told);
                Ok(())
            }
        }
    }
}

impl Set {
    fn run(self, global: &Global) -> Result {
        let usual = Push::default();
        let has_target = self.push.is_some() || self.sink.is_some();
        let push = has_target.then(|| Push {
            url: self.push,
            sink: self.sink,
            concurrency: self.concurrency.unwrap_or(usual.concurrency),
            per_second: self.per_second,
            timeout_ms: self.timeout.unwrap_or(usual.timeout_ms),
        });
        let patch = QueuePatch {
            partitions: self.partitions,
            visibility_ms: self.visibility,
            max_attempts: self.max_attempts,
            retention_ms: self.retention,
            dead_retention_ms: self.dead_retention,
            dedupe_ms: self.dedupe,
            dead_to: (self.dead_to.is_some() || self.no_dead_to).then_some(self.dead_to),
            push: (push.is_some() || self.no_push).then_some(push),
        };
        let answer = global.client()?.patch(&["queues", &self.queue], &body(&patch))?;
        print_settings(global, &self.queue, &answer);
        Ok(())
    }
}

fn change(global: &Global, queue: &str, deed: &str) -> Result {
    let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
    let answer = global.client()?.post(&["queues", queue, deed], &ask)?;
    print_settings(global, queue, &answer);
    Ok(())
}

fn list(global: &Global) -> Result {
    names::list(global, "queues", "The namespace has no queues. `stepwell jobs send` creates one.")
}

fn show(global: &Global, queue: &str) -> Result {
    let answer: Answer<QueueView> = global.client()?.get(&["queues", queue], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let QueueView { name, settings, counts } = answer.value;
    anstream::println!("{}", words::plain(&name));
    field("depth", &counts.depth.to_string());
    field("delayed", &counts.delayed.to_string());
    field("in flight", &counts.in_flight.to_string());
    field("dead", &counts.dead.to_string());
    if let Some(oldest) = counts.oldest {
        field("oldest", &words::distance(oldest, words::now()));
    }
    if counts.purging {
        field("purge", "in progress");
    }
    if counts.redriving {
        field("redrive", "in progress");
    }
    show_settings(&settings);
    Ok(())
}

fn secret(global: &Global, queue: &str) -> Result {
    let answer: Answer<QueueSecret> = global.client()?.get(&["queues", queue, "secret"], &Ask::default())?;
    anstream::println!("{}", if global.json { answer.text } else { answer.value.secret });
    Ok(())
}

fn print_settings(global: &Global, queue: &str, answer: &Answer<QueueSettings>) {
    if global.json {
        anstream::println!("{}", answer.text);
    } else {
        anstream::println!("{}", words::plain(queue));
        show_settings(&answer.value);
    }
}

fn show_settings(settings: &QueueSettings) {
    let state = match settings.state {
        QueueState::Active => "active",
        QueueState::Paused => "paused",
        QueueState::Draining => "draining",
        QueueState::Deleting => "being deleted",
    };
    field("state", state);
    let keyed = settings.keyed_partitions;
    field("partitions", &format!("{}, {keyed} of them for groups and dedupe ids", settings.partitions));
    field("visibility", &words::length(settings.visibility_ms));
    field("attempts", &settings.max_attempts.to_string());
    field("retention", &words::length(settings.retention_ms));
    field("dead kept", &words::length(settings.dead_retention_ms));
    field("dedupe", &words::length(settings.dedupe_ms));
    if let Some(queue) = &settings.dead_to {
        field("dead to", &words::plain(queue));
    }
    let Some(push) = &settings.push else { return };
    field("push to", push.url.as_deref().or(push.sink.as_deref()).unwrap_or("the app"));
    field("at once", &push.concurrency.to_string());
    if let Some(rate) = push.per_second {
        field("per second", &rate.to_string());
    }
    field("timeout", &words::length(push.timeout_ms));
}

fn field(name: &str, value: &str) {
    anstream::println!("  {name:10} {value}");
}

fn body<T: serde::Serialize>(body: &T) -> Ask<'static> {
    let body = Some(serde_json::to_string(body).expect("it holds only what JSON can say"));
    Ask { body, doubt: Some(DOUBT), ..Ask::default() }
}

fn said(global: &Global, as_json: &serde_json::Value, told: &str) {
    if global.json {
        anstream::println!("{as_json}");
    } else {
        anstream::println!("{told}");
    }
}
