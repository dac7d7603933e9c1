//! `stepwell show`: a run with its timeline.

use anstyle::Style;
use clap::Args;
use console::Term;
use serde::Serialize;
use stepwell_protocol::{
    Payload,
    rest::{Act, Deed, RunView, Why},
};

use crate::{
    Global,
    client::Client,
    failure::Result,
    naming::RunName,
    timeline::{Timeline, WIDTH},
    words,
};

/// How much of an input or output is shown.
const SHOWN_MAX: usize = 300;

/// What it takes.
#[derive(Debug, Args)]
pub struct Show {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
}

/// All of it, with `--json`.
#[derive(Serialize)]
struct Whole {
    run: Payload,
    input: Option<Payload>,
    events: Vec<Payload>,
}

impl Show {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let run = self.run.show(&client)?;
        let journal = client.journal(&run.value.id.to_string(), false)?;
        if global.json {
            let whole = Whole { run: run.raw(), input: journal.input, events: journal.raw };
            anstream::println!("{}", serde_json::to_string(&whole).expect("it was read as JSON"));
            return Ok(());
        }
        let why = reason(&client, &run.value)?;
        heading(&run.value, journal.input.as_ref());
        let timeline = Timeline::new(&run.value, &journal.events, why.as_ref(), words::now());
        let width = Term::stdout().size_checked().map_or(WIDTH, |(_, width)| width.into());
        let lines = timeline.draw(width);
        if !lines.is_empty() {
            anstream::println!();
        }
        for line in lines {
            anstream::println!("{line}");
        }
        if journal.cut > 0 {
            let (dim, count) = (Style::new().dimmed(), words::count(journal.cut, "earlier event"));
            anstream::println!(
                "{dim}{count} no longer count: a retry or restart took them back, or the run has begun anew since; \
                 `--json` marks them as `cut`.{dim:#}"
            );
        }
        Ok(())
    }
}

fn reason(client: &Client, run: &RunView) -> Result<Option<Why>> {
    if run.status.is_terminal() {
        return Ok(None);
    }
    Ok(Some(client.why(&run.id.to_string())?.value))
}

fn heading(run: &RunView, input: Option<&Payload>) {
    let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
    let field = |name: &str, value: &str| anstream::println!("  {dim}{name:9}{dim:#} {value}");
    let workflow = words::plain(&run.workflow);
    anstream::println!("{bold}{workflow}{bold:#} {} {}", run.id, words::status(run.status));
    let now = words::now();
    let by = words::by(run.started_by.as_deref());
    field(
        "started",
        &format!("{}, {}{by}", words::date(run.created_at), words::distance(run.created_at, now)),
    );
    if let Some(parent) = &run.parent {
        field("parent", &parent.to_string());
    }
    if run.children > 0 {
        field("children", &format!("{} that have not ended", run.children));
    }
    if let Some(life) = &run.life {
        field("life", &words::life(life, now));
    }
    for Act { at, by, what } in &run.acts {
        let done = match what {
            Deed::Cancel => "cancelled",
            Deed::Pause => "paused",
            Deed::Resume => "resumed",
            Deed::Retry => "retried",
            Deed::Restart => "restarted",
        };
        let (date, distance) = (words::date(*at), words::distance(*at, now));
        field(done, &format!("{date}, {distance}{}", words::by(Some(by))));
    }
    if let Some(ended) = run.ended_at {
        let took = words::length(words::between(run.created_at, ended));
        field("ended", &format!("{}, after {took}", words::date(ended)));
    }
    if let Some(starts) = run.starts_at {
        field("starts", &format!("{}, {}", words::date(starts), words::distance(starts, now)));
    }
    if let Some(wakes) = run.wakes_at {
        field("wakes", &format!("{}, {}", words::date(wakes), words::distance(wakes, now)));
    }
    if let Some(deadline) = run.deadline.filter(|_| !run.status.is_terminal()) {
        field("deadline", &format!("{}, {}", words::date(deadline), words::distance(deadline, now)));
    }
    if !run.tags.is_empty() {
        field("tags", &words::plain(&run.tags.join(", ")));
    }
    if let Some(input) = input {
        field("input", &words::short(input, SHOWN_MAX));
    }
    if let Some(output) = &run.output {
        field("output", &words::short(output, SHOWN_MAX));
    }
    if let Some(error) = &run.error {
        field("error", &words::plain(&error.message));
    }
    if let Some(problem) = &run.problem {
        field("problem", &words::plain(&problem.detail));
    }
    if let Some(progress) = &run.progress {
        field("progress", &format!("{:.0} % {}", progress.percent, words::plain(&progress.message)));
    }
    let meter = run.meter;
    field(
        "cost",
        &format!(
            "{} written, {}; {:.2} dollars for a million such runs",
            words::count(meter.rows_written as usize, "row"),
            words::count(meter.requests as usize, "request"),
            meter.dollars_per_million
        ),
    );
}
