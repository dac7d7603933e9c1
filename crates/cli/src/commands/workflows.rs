//! `stepwell workflows`: what the app declares, and which of it is paused.

use clap::{Args, Subcommand};
use stepwell_protocol::{
    lane::{LaneRun, LaneView, Limit, LimitChange, SetLimit, SetLimits},
    manifest::{PausedWorkflow, WorkflowStatus, WorkflowView},
    rest::WorkflowList,
    span,
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// The most pages that are read of a lane.
const PAGES_MAX: usize = 10;

/// What can be done with workflows.
#[derive(Debug, Subcommand)]
pub enum Workflows {
    /// List the workflows by name. Removed ones are listed for 30 days.
    List,
    /// Show a workflow: what the code declares, what was changed, and what is in effect.
    Show(Named),
    /// Refuse to start runs of a workflow. Existing runs continue, and a deploy does not resume it.
    Pause(Named),
    /// Accept starts of a paused workflow again.
    Resume(Named),
    /// List the runs of a workflow with limits: those that work, and those that wait.
    Lane(Named),
    /// Set a limit to another number, for all its keys or for one; 0 lets in no run. A deploy does not change it back.
    Limit(Limited),
}

/// A limit, and its number.
#[derive(Debug, Args)]
pub struct Limited {
    /// The workflow.
    name: String,
    /// How many runs at once or, for a rate, within its time.
    #[arg(required_unless_present = "reset")]
    max: Option<u32>,
    /// The expression of the limit's key, as the code has it. Without it, the limit of the whole workflow.
    #[arg(long, value_name = "EXPRESSION")]
    by: Option<String>,
    /// Only where the expression has this value.
    #[arg(long = "for", value_name = "VALUE", requires = "by")]
    only_for: Option<String>,
    /// For a rate: its time, such as `1m`.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    per: Option<u64>,
    /// Return to what the code declares.
    #[arg(long, conflicts_with = "max")]
    reset: bool,
}

/// One of them.
#[derive(Debug, Args)]
pub struct Named {
    /// Its name.
    name: String,
}

impl Workflows {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::List => list(global),
            Self::Show(Named { name }) => show(global, &name),
            Self::Pause(Named { name }) => act(global, &name, "pause"),
            Self::Resume(Named { name }) => act(global, &name, "resume"),
            Self::Lane(Named { name }) => lane(global, &name),
            Self::Limit(limited) => limit(global, limited),
        }
    }
}

fn list(global: &Global) -> Result {
    let answer: Answer<WorkflowList> = global.client()?.get(&["workflows"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let row = |view: &WorkflowView| vec![words::plain(&view.declared.name), state(view)];
    table::print(&answer.value.workflows.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

/// Whether runs of it can be started, in words.
fn state(view: &WorkflowView) -> String {
    let by = view.paused.as_ref().map(|paused| words::plain(&paused.by)).unwrap_or_default();
    match view.status {
        WorkflowStatus::Active => "active".into(),
        WorkflowStatus::Paused => format!("paused by {by}"),
        WorkflowStatus::Retired => match view.retired_at {
            Some(at) => format!("retired {}", words::date(at)),
            None => "retired".into(),
        },
    }
}

fn show(global: &Global, name: &str) -> Result {
    let answer: Answer<WorkflowView> = global.client()?.get(&["workflows", name], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let view = answer.value;
    let length = |ms: Option<u64>, without: &str| ms.map_or_else(|| without.to_owned(), words::length);
    let terms = |timeout: Option<u64>, retention: Option<u64>| {
        let retention = match retention {
            Some(0) => "forever".to_owned(),
            other => length(other, "as the deployment says"),
        };
        format!("timeout {}, kept {retention}", length(timeout, "none"))
    };
    let mut rows = vec![
        vec![words::plain(&view.declared.name), state(&view)],
        vec!["declared".into(), terms(view.declared.timeout_ms, view.declared.retention_ms)],
    ];
    if let Some(changed) = view.changed {
        rows.push(vec!["changed".into(), terms(changed.timeout_ms, changed.retention_ms)]);
    }
    rows.push(vec!["effective".into(), terms(view.effective.timeout_ms, view.effective.retention_ms)]);
    if let Some(schema) = &view.declared.input_schema {
        rows.push(vec!["input".into(), words::plain(schema.text())]);
    }
    table::print(&rows);
    Ok(())
}

fn lane(global: &Global, name: &str) -> Result {
    let mut cursor: Option<String> = None;
    let (mut rows, mut set) = (Vec::new(), Vec::new());
    for _ in 0..PAGES_MAX {
        let query =
            [("limit", "100".to_owned())].into_iter().chain(cursor.take().map(|next| ("cursor", next)));
        let ask = Ask { query: query.collect(), ..Ask::default() };
        let answer: Answer<LaneView> = global.client()?.get(&["workflows", name, "lane"], &ask)?;
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
        anstream::println!("No runs of {} work or wait under its limits.", words::plain(name));
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
    vec![run.run.to_string(), words::date(run.since), state]
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

fn limit(global: &Global, Limited { name, max, by, only_for, per, .. }: Limited) -> Result {
    let change = LimitChange { by: by.unwrap_or_default(), key: only_for, per_ms: per, max };
    let body = serde_json::json!(change).to_string();
    let doubt = Some("Nobody knows whether it was done. Repeat it: that is safe.");
    let ask = Ask { body: Some(body), doubt, ..Ask::default() };
    let answer: Answer<SetLimits> = global.client()?.put(&["workflows", &name, "lane", "limit"], &ask)?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let name = words::plain(&name);
    match max {
        Some(max) => {
            let limit = limit_words(&change.by, change.key.as_deref(), per, max);
            anstream::println!("{name}: {limit}");
            anstream::eprintln!(
                "Runs that work already finish their work. next: stepwell workflows lane {name}"
            );
        }
        None => anstream::println!("{name}: as the code declares it"),
    }
    table::print(&answer.value.set.iter().map(set_row).collect::<Vec<_>>());
    Ok(())
}

fn act(global: &Global, name: &str, verb: &str) -> Result {
    let doubt = Some("Nobody knows whether it was done. Repeat it: that is safe.");
    let ask = Ask { doubt, ..Ask::default() };
    let answer: Answer<PausedWorkflow> = global.client()?.post(&["workflows", name, verb], &ask)?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let name = words::plain(&answer.value.name);
    match answer.value.paused {
        Some(paused) => {
            anstream::println!("{name} is paused since {}", words::date(paused.at));
            anstream::eprintln!("Existing runs continue. next: stepwell workflows resume {name}");
        }
        None => anstream::println!("{name} is active"),
    }
    Ok(())
}
