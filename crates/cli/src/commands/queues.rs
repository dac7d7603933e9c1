//! `stepwell queues`: the settings, counts and life of queues.

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::queue::{QueueList, QueuePatch, QueueSettings, QueueState, QueueView};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    words,
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
        let patch = QueuePatch {
            partitions: self.partitions,
            visibility_ms: self.visibility,
            max_attempts: self.max_attempts,
            retention_ms: self.retention,
            dead_retention_ms: self.dead_retention,
            dedupe_ms: self.dedupe,
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
    let client = global.client()?;
    let (mut queues, mut after) = (Vec::new(), None::<String>);
    loop {
        let query = after.take().map(|after| ("after", after)).into_iter().collect();
        let page: Answer<QueueList> = client.get(&["queues"], &Ask { query, ..Ask::default() })?;
        queues.extend(page.value.queues);
        match page.value.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if global.json {
        anstream::println!("{}", json!({ "queues": queues }));
        return Ok(());
    }
    if queues.is_empty() {
        anstream::eprintln!("The namespace has no queues. `stepwell jobs send` creates one.");
    }
    for queue in queues {
        anstream::println!("{}", words::plain(&queue));
    }
    Ok(())
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
