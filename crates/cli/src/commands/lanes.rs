//! `stepwell lanes`: limits that steps share. Also shows and sets the limits of one workflow.

use clap::{Args, Subcommand};
use stepwell_protocol::{
    lane::{LaneRun, LaneView, Limit, LimitChange, SetLimit, SetLimits},
    span,
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    names, table, words,
};

/// The most pages that are read of a lane.
const PAGES_MAX: usize = 10;

/// What can be done with lanes.
#[derive(Debug, Subcommand)]
pub enum Lanes {
    /// List the lanes of steps.
    List,
    /// List the steps in a lane: those that work, and those that wait.
    Show(One),
    /// Set a limit to another number, for all its keys or for one; 0 lets in none. A deploy does not change it back.
    Limit(Limited),
}

/// A lane.
#[derive(Debug, Args)]
pub struct One {
    /// Its name, as the code has it.
    #[arg(value_name = "LANE")]
    name: String,
}

/// A limit of a lane, and its number.
#[derive(Debug, Args)]
pub struct Limited {
    /// The lane.
    #[arg(value_name = "LANE")]
    name: String,
    #[command(flatten)]
    limit: LimitArgs,
}

/// Which limit, and its number.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// How many at once or, for a rate, within its time.
    #[arg(required_unless_present = "reset")]
    max: Option<u32>,
    /// The key expression as written in the code; for a lane of steps, `key`. Omit it for the limit without a key.
    #[arg(long, value_name = "EXPRESSION")]
    by: Option<String>,
    /// Change it only for this key.
    #[arg(long = "for", value_name = "VALUE", requires = "by")]
    only_for: Option<String>,
    /// For a rate: its time, such as `1m`.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    per: Option<u64>,
    /// Return to what the code declares.
    #[arg(long, conflicts_with = "max")]
    reset: bool,
}

impl Lanes {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::List => {
                let none = "There are no lanes of steps. Code names one: ctx.step(…).lane(\"openai\", key).limit(5).";
                names::list(global, "lanes", none)
            }
            Self::Show(One { name }) => show(global, &["lanes", &name], &name),
            Self::Limit(Limited { name, limit: args }) => {
                let next = format!("stepwell lanes show {}", words::plain(&name));
                limit(global, &["lanes", &name, "limit"], &name, args, &next)
            }
        }
    }
}

/// Lists who works and who waits in the lane at this path.
pub fn show(global: &Global, path: &[&str], name: &str) -> Result {
    let mut cursor: Option<String> = None;
    let (mut rows, mut set) = (Vec::new(), Vec::new());
    for _ in 0..PAGES_MAX {
        let query =
            [("limit", "100".to_owned())].into_iter().chain(cursor.take().map(|next| ("cursor", next)));
        let ask = Ask { query: query.collect(), ..Ask::default() };
        let answer: Answer<LaneView> = global.client()?.get(path, &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
        }
        set.extend(answer.value.set.iter().map(set_row));
        rows.extend(answer.value.runs.iter().map(lane_row));
        cursor = answer.value.next;
        if cursor.is_none() {
            break;
        }
    }
    if global.json {
        return Ok(());
    }
    table::print(&set);
    if rows.is_empty() {
        anstream::println!("Nothing works or waits under the limits of {}.", words::plain(name));
    }
    table::print(&rows);
    if cursor.is_some() {
        anstream::println!("There are more: these are the first {}.", rows.len());
    }
    Ok(())
}

/// A run, what it does, and since when.
fn lane_row(run: &LaneRun) -> Vec<String> {
    let state = match &run.waits_for {
        Some(Limit { by, key, max, per_ms, .. }) => {
            format!("waits: {}", limit_words(by, Some(key), *per_ms, *max))
        }
        None => "works".into(),
    };
    let mut row = vec![run.run.to_string(), words::date(run.since), state];
    row.extend(run.step.as_ref().map(|step| format!("step {}", words::plain(step))));
    row
}

/// A limit that was set, by whom and when.
fn set_row(set: &SetLimit) -> Vec<String> {
    let SetLimit { by, key, per_ms, max, set_by, set_at } = set;
    let limit = limit_words(by, key.as_deref(), *per_ms, *max);
    vec!["set".into(), words::date(*set_at), format!("{limit}, by {}", words::plain(set_by))]
}

/// A limit in words: `2 at once with input.customer = 'acme'`.
fn limit_words(by: &str, key: Option<&str>, per_ms: Option<u64>, max: u32) -> String {
    let within = per_ms.map_or("at once".into(), |per_ms| format!("in {}", span::in_words(per_ms)));
    let of = match key {
        _ if by.is_empty() => String::new(),
        Some(key) => format!(" with {} = '{}'", words::plain(by), words::plain(key)),
        None => format!(" for each {}", words::plain(by)),
    };
    format!("{max} {within}{of}")
}

/// Sets a limit of the lane at this path.
pub fn limit(global: &Global, path: &[&str], name: &str, args: LimitArgs, next: &str) -> Result {
    let LimitArgs { max, by, only_for, per, .. } = args;
    let change = LimitChange { by: by.unwrap_or_default(), key: only_for, per_ms: per, max };
    let body = serde_json::json!(change).to_string();
    let doubt = Some("Nobody knows whether it was done. Repeat it: that is safe.");
    let ask = Ask { body: Some(body), doubt, ..Ask::default() };
    let answer: Answer<SetLimits> = global.client()?.put(path, &ask)?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let name = words::plain(name);
    match max {
        Some(max) => {
            let limit = limit_words(&change.by, change.key.as_deref(), per, max);
            anstream::println!("{name}: {limit}");
            anstream::eprintln!("What works already finishes its work. next: {next}");
        }
        None => anstream::println!("{name}: as the code declares it"),
    }
    table::print(&answer.value.set.iter().map(set_row).collect::<Vec<_>>());
    Ok(())
}
