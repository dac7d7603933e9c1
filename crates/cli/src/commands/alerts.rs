//! `stepwell alerts`: rules that tell an address when something is wrong.

use clap::{Args, Subcommand, ValueEnum};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::{
    alert::{AlertList, AlertSpec, AlertState, AlertView, MINUTES_MAX, Watched},
    totals::LATE_BOUNDS_MS,
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::{Failure, Result},
    table, words,
};

/// What to do if nobody knows whether a change was made.
const DOUBT: &str = "Look with `stepwell alerts show`; setting it again is safe.";

/// What can be done with alerts.
#[derive(Debug, Subcommand)]
pub enum Alerts {
    /// List the alerts.
    List,
    /// Show an alert.
    Show(One),
    /// Create an alert, or change what it watches.
    Set(Set),
    /// Delete an alert.
    Delete(One),
}

/// An alert.
#[derive(Debug, Args)]
pub struct One {
    /// Its id.
    #[arg(value_name = "ALERT")]
    id: String,
}

/// What an alert watches.
#[derive(Debug, Args)]
pub struct Set {
    /// Its id.
    #[arg(value_name = "ALERT")]
    id: String,
    /// What it watches.
    on: On,
    /// The https address that it tells.
    url: String,
    /// Fire above this figure: percent, seconds, jobs, messages, rows, calls, runs or cells.
    #[arg(long, value_name = "NUMBER")]
    above: Option<u64>,
    /// The workflow whose runs count; all, by default.
    #[arg(long)]
    workflow: Option<String>,
    /// The queue, for backlog and dead-jobs.
    #[arg(long)]
    queue: Option<String>,
    /// The least number of failures, or of retries: 5, or 20, by default.
    #[arg(long, value_name = "NUMBER")]
    at_least: Option<u64>,
    /// How many minutes count: 10 by default, and 60 for rows.
    #[arg(long, value_name = "NUMBER")]
    minutes: Option<u64>,
    /// Fire after it has been so for this many minutes.
    #[arg(long = "for", value_name = "MINUTES", default_value_t = 0)]
    for_minutes: u64,
}

/// What can be watched.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum On {
    /// The percentage of runs that fail.
    Failures,
    /// Retried attempts for each hundred steps that end.
    Retries,
    /// Runs that are paused because of a problem.
    Pauses,
    /// Calls of workflow code that die, hang, or do not reach the app.
    BrokenCalls,
    /// How late sleeps, timeouts and schedules are, in seconds: 1, 5, 15, 60, 300 or 3600.
    Late,
    /// Rows written for each run that ends.
    Rows,
    /// Cells that do not answer.
    Unreached,
    /// How long a run waits for a place, in seconds.
    Waiting,
    /// Jobs that wait in a queue.
    Backlog,
    /// Dead letters of a queue.
    DeadJobs,
    /// Messages between objects that are dead.
    DeadLetters,
    /// How full the fullest cell is, in percent.
    CellFill,
}

impl Set {
    fn spec(self) -> Result<(String, AlertSpec)> {
        let Self { id, on, url, above, workflow, queue, at_least, minutes, for_minutes } = self;
        // What another kind of alert takes would be left out in silence.
        let given = [
            ("--workflow", "workflow", workflow.is_some()),
            ("--queue", "queue", queue.is_some()),
            ("--at-least", "at_least", at_least.is_some()),
            ("--minutes", "minutes", minutes.is_some()),
        ];
        let queue = || queue.clone().ok_or_else(|| Failure::usage("Name the queue with --queue."));
        let within = minutes.unwrap_or(10);
        let watched = match on {
            On::Failures => Watched::Failures {
                workflow,
                above_percent: above.unwrap_or(10),
                at_least: at_least.unwrap_or(5),
                minutes: within,
            },
            On::Retries => Watched::Retries {
                workflow,
                above_percent: above.unwrap_or(100),
                at_least: at_least.unwrap_or(20),
                minutes: within,
            },
            On::Pauses => Watched::Pauses { workflow, above: above.unwrap_or(0), minutes: within },
            On::BrokenCalls => Watched::BrokenCalls { workflow, above: above.unwrap_or(10), minutes: within },
            On::Late => Watched::Late { workflow, above_seconds: above.unwrap_or(15), minutes: within },
            On::Rows => {
                let above = above.ok_or_else(|| Failure::usage("Say how many rows with --above."))?;
                Watched::Rows { workflow, above, minutes: minutes.unwrap_or(60) }
            }
            On::Unreached => Watched::Unreached { above: above.unwrap_or(0) },
            On::Waiting => Watched::Waiting { above_seconds: above.unwrap_or(60) },
            On::Backlog => {
                let above = above.ok_or_else(|| Failure::usage("Say how many jobs with --above."))?;
                Watched::Backlog { queue: queue()?, above }
            }
            On::DeadJobs => Watched::DeadJobs { queue: queue()?, above: above.unwrap_or(0) },
            On::DeadLetters => Watched::DeadLetters { above: above.unwrap_or(0) },
            On::CellFill => Watched::CellFill { above_percent: above.unwrap_or(70) },
        };
        let fields = watched.fields();
        for (option, field, is_given) in given {
            if is_given && !fields.contains(&field) {
                let what = format!("This kind of alert takes no {option}.");
                let next = "To let it fire only after some minutes, use --for MINUTES.";
                return Err(if option == "--minutes" {
                    Failure::usage(what).next(next)
                } else {
                    Failure::usage(what)
                });
            }
        }
        if watched.span().is_some_and(|(_, minutes)| !(1..=MINUTES_MAX).contains(&minutes)) {
            return Err(Failure::usage(format!("--minutes is 1 to {MINUTES_MAX}.")));
        }
        if let Watched::Late { above_seconds, .. } = &watched
            && !LATE_BOUNDS_MS.contains(&above_seconds.saturating_mul(1_000))
        {
            return Err(Failure::usage("For late, --above is 1, 5, 15, 60, 300 or 3600."));
        }
        Ok((id, AlertSpec { watched, url, for_minutes }))
    }
}

impl Alerts {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
        let answer: Answer<AlertView> = match self {
            Self::List => return list(global),
            Self::Delete(One { id }) => {
                let _: Answer<IgnoredAny> = client.delete(&["alerts", &id], &ask)?;
                let told = format!("The alert {} is deleted.", words::plain(&id));
                said(global, &id, &told);
                return Ok(());
            }
            Self::Show(One { id }) => client.get(&["alerts", &id], &ask)?,
            Self::Set(set) => {
                let (id, spec) = set.spec()?;
                let body = Some(serde_json::to_string(&spec).expect("it holds only what JSON can say"));
                client.put(&["alerts", &id], &Ask { body, ..ask })?
            }
        };
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            table::print(&[row(&answer.value)]);
        }
        Ok(())
    }
}

fn said(global: &Global, id: &str, told: &str) {
    if global.json {
        anstream::println!("{}", json!({ "deleted": id }));
    } else {
        anstream::println!("{told}");
    }
}

fn list(global: &Global) -> Result {
    let answer: Answer<AlertList> = global.client()?.get(&["alerts"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    if answer.value.alerts.is_empty() {
        anstream::eprintln!("The namespace has no alerts. `stepwell alerts set` creates one.");
    }
    table::print(&answer.value.alerts.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn row(alert: &AlertView) -> Vec<String> {
    let state = match alert.state {
        AlertState::Quiet => "quiet",
        AlertState::Pending => "pending",
        AlertState::Firing => "FIRING",
    };
    let value = alert.value.map_or("unknown".to_owned(), |value| value.to_string());
    vec![
        words::plain(&alert.id),
        watched(&alert.spec.watched),
        format!("now {value}"),
        state.to_owned(),
        words::plain(&alert.spec.url),
    ]
}

fn watched(watched: &Watched) -> String {
    let (of, within) = watched.span().map_or_else(Default::default, |(workflow, minutes)| {
        let of = workflow.map_or_else(String::new, |name| format!(" of {}", words::plain(name)));
        (of, format!("in {minutes} minutes"))
    });
    match watched {
        Watched::Failures { above_percent, at_least, .. } => {
            format!("failures{of} above {above_percent} % and at least {at_least} {within}")
        }
        Watched::Retries { above_percent, at_least, .. } => {
            format!("retries{of} above {above_percent} % and at least {at_least} {within}")
        }
        Watched::Pauses { above, .. } => format!("pauses{of} above {above} {within}"),
        Watched::BrokenCalls { above, .. } => format!("broken calls{of} above {above} {within}"),
        Watched::Late { above_seconds, .. } => format!("timers{of} late by {above_seconds} s {within}"),
        Watched::Rows { above, .. } => format!("rows a run{of} above {above} {within}"),
        Watched::Unreached { above } => format!("unreached cells above {above}"),
        Watched::Waiting { above_seconds } => format!("waiting above {above_seconds} s"),
        Watched::Backlog { queue, above } => format!("backlog of {} above {above}", words::plain(queue)),
        Watched::DeadJobs { queue, above } => format!("dead jobs of {} above {above}", words::plain(queue)),
        Watched::DeadLetters { above } => format!("dead letters above {above}"),
        Watched::CellFill { above_percent } => format!("cell fill above {above_percent} %"),
    }
}
