//! `stepwell watch`: follows a run until it ends.

use clap::Args;
use stepwell_protocol::{
    Timestamp,
    rest::{RunView, Status},
};

use crate::{
    Global,
    bars::Spinner,
    client::Client,
    failure::{Exit, Failure, Result},
    feed::{Feed, News, Polling},
    timeline, words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Watch {
    /// The run's id.
    #[arg(value_name = "RUN")]
    id: String,
}

impl Watch {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        follow(global, &global.client()?, &self.id)
    }
}

/// Shows what happens to a run until it ends, or needs a person. The exit code says how it ended.
pub fn follow(global: &Global, client: &Client, id: &str) -> Result {
    let mut feed = Polling::new(client, id);
    let spinner = Spinner::new(id);
    let mut before = None;
    loop {
        let news = feed.next()?;
        let status = news.run.status;
        if global.json {
            tell_json(&news, &spinner, before != Some(status));
        } else {
            tell(&news, &spinner, before);
        }
        before = Some(status);
        if status.is_terminal() || status == Status::Paused && news.run.problem.is_some() {
            drop(spinner);
            return if global.json { end(&news.run) } else { tell_end(&news.run) };
        }
    }
}

/// One line for each event, and one for the run whenever its status changes.
fn tell_json(news: &News, spinner: &Spinner, has_changed: bool) {
    for record in &news.events {
        let record = serde_json::to_string(record).expect("an event can be written as JSON");
        spinner.print(&record);
    }
    if has_changed || !news.events.is_empty() {
        spinner.print(news.text.trim());
    }
}

fn tell(news: &News, spinner: &Spinner, before: Option<Status>) {
    let News { run, events, why, .. } = news;
    for record in events {
        let (symbol, style, text) = timeline::tell(record);
        let since = words::length(words::between(run.created_at, record.at));
        spinner.print(&format!("{since:>9}  {style}{symbol}{style:#} {text}"));
    }
    let because = why.as_ref().map(|why| words::plain(&why.because)).unwrap_or_default();
    // Who sees the bar reads it there; a log has a line for what is waited for.
    let waits = matches!(run.status, Status::Sleeping | Status::Waiting | Status::Paused);
    if spinner.is_hidden() && waits && before != Some(run.status) {
        spinner.print(&format!("           {} {because}", words::status(run.status)));
    }
    let wakes = run.wakes_at.map(|at: Timestamp| format!(", next {}", words::distance(at, words::now())));
    let text = match &run.progress {
        Some(progress) if !progress.message.is_empty() => words::plain(&progress.message),
        Some(_) | None => {
            let because = because.trim_end_matches('.');
            format!("{}: {because}{}", run.status.as_str(), wakes.unwrap_or_default())
        }
    };
    spinner.percent(run.progress.as_ref().map(|progress| progress.percent));
    spinner.say(&text);
}

fn tell_end(run: &RunView) -> Result {
    let took =
        run.ended_at.map(|ended| format!(" after {}", words::length(words::between(run.created_at, ended))));
    anstream::println!("{}{}", words::status(run.status), took.unwrap_or_default());
    if let Some(output) = &run.output {
        anstream::println!("{}", words::plain(output.text()));
    }
    if let Some(error) = &run.error {
        anstream::println!("{}", words::plain(&error.message));
        anstream::eprintln!("next: stepwell show {id}, then stepwell retry {id}", id = run.id);
    }
    if let Some(problem) = &run.problem {
        anstream::println!("{}", words::plain(&problem.detail));
        anstream::eprintln!("next: mend it, then stepwell resume {}", run.id);
    }
    end(run)
}

/// The exit code that fits how a run ended.
fn end(run: &RunView) -> Result {
    match run.status {
        Status::Completed => Ok(()),
        Status::Failed | Status::Cancelled => Err(Failure::told(Exit::RunFailed)),
        Status::Paused | Status::Pending | Status::Running | Status::Sleeping | Status::Waiting => {
            Err(Failure::told(Exit::RunPaused))
        }
    }
}
