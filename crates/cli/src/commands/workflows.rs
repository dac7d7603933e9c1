//! `stepwell workflows`: what the app declares, and which of it is paused.

use clap::{Args, Subcommand};
use stepwell_protocol::{
    manifest::{PausedWorkflow, WorkflowStatus, WorkflowView},
    rest::WorkflowList,
};

use super::{
    lanes::{self, LimitArgs},
    settings::NOT_FOR_ALL,
};
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

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

/// A limit of a workflow, and its number.
#[derive(Debug, Args)]
pub struct Limited {
    /// The workflow.
    name: String,
    #[command(flatten)]
    limit: LimitArgs,
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
            Self::Lane(Named { name }) => lanes::show(global, &["workflows", &name, "lane"], &name),
            Self::Limit(Limited { name, limit }) => {
                let next = format!("stepwell workflows lane {}", words::plain(&name));
                lanes::limit(global, &["workflows", &name, "lane", "limit"], &name, limit, &next)
            }
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
    if view.changed.is_some() {
        anstream::println!("{NOT_FOR_ALL}");
    }
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
