//! `stepwell watch`: follows a run until it ends, or all runs until somebody has seen enough.

use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value};
use stepwell_protocol::{
    Timestamp,
    program::Progress,
    rest::{RunView, Status, Why},
    stream::{Kind, StatusView},
};

use super::list;
use crate::{
    Global,
    bars::Spinner,
    client::Client,
    failure::{Exit, Failure, Result},
    feed::{Event, Feed, News},
    naming::RunName,
    published, words,
};

/// How often the bar is written anew while nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// What it takes.
#[derive(Debug, Args)]
pub struct Watch {
    /// The run: its id, or WORKFLOW/KEY by the idempotency key that it was started with. If left out, all runs: each
    /// change of a status, until Ctrl-C.
    #[arg(value_name = "RUN")]
    id: Option<RunName>,
    /// Continue after this event: an `id` from the output of --json.
    #[arg(long, value_name = "ID")]
    cursor: Option<String>,
    /// Without RUN: show existing runs first.
    #[arg(long, conflicts_with_all = ["id", "cursor"])]
    all: bool,
    /// Without RUN: only runs of this workflow.
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    workflow: Option<String>,
    /// Without RUN: only changes to this status.
    #[arg(long, conflicts_with = "id", value_parser = list::status_parser())]
    status: Option<Status>,
}

impl Watch {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        match &self.id {
            Some(name) => {
                let run = name.show(&client)?.value;
                follow(global, &client, &run, self.cursor)
            }
            None => self.follow_all(global, &client),
        }
    }

    /// Has no end of its own.
    fn follow_all(self, global: &Global, client: &Client) -> Result {
        let cursor = self.cursor.clone().or_else(|| self.all.then(|| "start".to_owned()));
        let status = self.status.map(|status| status.as_str().to_owned());
        let only = [("workflow", self.workflow), ("status", status)];
        let only = only.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let mut feed = Feed::new(client, &["stream"], only).after(cursor);
        let spinner = Spinner::new("all runs");
        let mut has_begun = false;
        loop {
            match next(&mut feed, &spinner, "stepwell watch")? {
                News::Event(event) if event.kind == Some(Kind::Ready) => {
                    if global.json {
                        spinner.print(&event.text);
                    } else if !has_begun {
                        spinner.note("Every change of a run's status from here on; Ctrl-C ends it.");
                    }
                    has_begun = true;
                }
                News::Event(event) => tell_one(global, &spinner, &event),
                News::Broken(_) | News::Back | News::Quiet => {}
            }
        }
    }
}

fn tell_one(global: &Global, spinner: &Spinner, event: &Event) {
    let Ok(StatusView { id, workflow, status }) = event.data.decode() else { return };
    if global.json {
        spinner.print(&event.text);
        return;
    }
    let style = words::status_style(status);
    let (at, word, workflow) = (words::moment(event.at), status.as_str(), words::plain(&workflow));
    spinner.print(&format!("{at}  {style}{word:9}{style:#}  {id}  {workflow}"));
}

/// Shows what happens to a run until it ends, or needs a person. The exit code says how it ended.
pub fn follow(global: &Global, client: &Client, run: &RunView, cursor: Option<String>) -> Result {
    let id = run.id.to_string();
    let mut feed = Feed::new(client, &["executions", &id, "stream"], Vec::new()).after(cursor);
    let mut shown = Shown::new(run.created_at, &id);
    let again = format!("stepwell watch {id}");
    loop {
        let event = match next(&mut feed, &shown.spinner, &again)? {
            News::Event(event) => event,
            News::Quiet | News::Broken(_) | News::Back => {
                shown.refresh();
                continue;
            }
        };
        if global.json {
            shown.spinner.print(&event.text);
        } else {
            shown.tell(client, &event);
        }
        let run = if event.kind == Some(Kind::End) {
            ended(&mut feed, &id, &event, global.json)?
        } else if status_of(&event) == Some(Status::Paused) {
            // By a person, who will resume it; or with a problem, and then one is needed.
            feed.patiently(|client| client.run(&id, 0))?.value
        } else {
            continue;
        };
        if run.status.is_terminal() || run.status == Status::Paused && run.problem.is_some() {
            drop(shown);
            return if global.json { end(&run) } else { tell_end(&run) };
        }
    }
}

/// The next news. Says when a stream breaks and comes back, and how to go on if it does not.
pub fn next(feed: &mut Feed<'_>, spinner: &Spinner, again: &str) -> Result<News> {
    let news = feed.next(TICK).map_err(|failure| match (failure.exit, feed.cursor()) {
        (Exit::Unreachable, Some(cursor)) => {
            let next = format!("Go on where it stopped: {again} --cursor {cursor}");
            failure.next(next)
        }
        _ => failure,
    })?;
    match &news {
        News::Broken(why) => spinner.note(&format!("The stream broke ({why}); coming back.")),
        News::Back => spinner.note("Reconnected."),
        News::Event(_) | News::Quiet => {}
    }
    Ok(news)
}

fn status_of(event: &Event) -> Option<Status> {
    let is_status = event.kind == Some(Kind::Status);
    event.data.decode().ok().filter(|_| is_status).map(|view: StatusView| view.status)
}

/// The run as its last event shows it. An output that is too large for a stream is asked for, if anybody will see it.
fn ended(feed: &mut Feed<'_>, id: &str, event: &Event, json: bool) -> Result<RunView> {
    let shown: Option<Map<String, Value>> = event.data.decode().ok();
    let is_whole = shown.is_some_and(|run| run.contains_key("output") || run["status"] != "completed");
    match event.data.decode() {
        Ok(run) if json || is_whole => Ok(run),
        Ok(_) | Err(_) => Ok(feed.patiently(|client| client.run(id, 0))?.value),
    }
}

/// What a person sees of a run that is under way.
struct Shown {
    spinner: Spinner,
    began: Timestamp,
    id: String,
    status: Option<Status>,
    why: Option<Why>,
    progress: Option<Progress>,
    /// What was last printed where there is no bar.
    said: String,
}

impl Shown {
    fn new(began: Timestamp, id: &str) -> Self {
        let (status, why, progress) = (None, None, None);
        Self {
            spinner: Spinner::new(id),
            began,
            id: id.to_owned(),
            status,
            why,
            progress,
            said: String::new(),
        }
    }

    fn tell(&mut self, client: &Client, event: &Event) {
        if let Some(line) = published::line(event, self.began) {
            self.spinner.print(&line);
        } else if let Some(status) = status_of(event) {
            self.status = Some(status);
            // Only to say more about it: who does not answer says nothing.
            let why = waits(status).then(|| client.why(&self.id).ok()).flatten();
            self.why = why.map(|answer| answer.value).filter(|why| why.status == status);
            if self.spinner.is_hidden() && waits(status) {
                let because = self.why.as_ref().map(|why| words::plain(&why.because)).unwrap_or_default();
                let line = format!("           {}: {because}", words::status(status));
                self.spinner.print(line.trim_end_matches([' ', ':']));
            }
        } else if event.kind == Some(Kind::Progress) {
            self.progress = event.data.decode().ok();
            self.tell_progress(event.at);
        }
        self.refresh();
    }

    /// Where nobody sees a bar, a line for each per cent and message is enough.
    fn tell_progress(&mut self, at: Timestamp) {
        let Some(progress) = &self.progress else { return };
        let said = format!("{:.0} % {}", progress.percent, words::plain(&progress.message));
        if !self.spinner.is_hidden() || said == self.said {
            return;
        }
        let since = words::length(words::between(self.began, at));
        let text = published::progress(progress, at);
        self.spinner.print(format!("{since:>9}  ▪ {:.0} % {text}", progress.percent).trim_end());
        self.said = said;
    }

    fn refresh(&self) {
        let (percent, text) = self.bar(words::now());
        self.spinner.say(&text);
        self.spinner.percent(percent);
    }

    /// How far the bar is, and what stands beside it.
    fn bar(&self, now: Timestamp) -> (Option<f64>, String) {
        let percent = self.progress.as_ref().map(|progress| progress.percent);
        let progress = self.progress.as_ref().map(|progress| published::progress(progress, now));
        let status = self.status.filter(|status| percent.is_none() || waits(*status)).map(|status| {
            let until = self.why.iter().flat_map(|why| &why.waits_for).filter_map(|waits| waits.until).min();
            let until = until.map(|at| format!(", next {}", words::distance(at, now))).unwrap_or_default();
            format!("{}{until}", status.as_str())
        });
        let parts: Vec<_> =
            [progress, status].into_iter().flatten().filter(|part| !part.is_empty()).collect();
        let text = if parts.is_empty() { self.id.clone() } else { parts.join("; ") };
        (percent, text)
    }
}

/// Whether a run that stands there does nothing.
fn waits(status: Status) -> bool {
    matches!(status, Status::Sleeping | Status::Waiting | Status::Paused)
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
        anstream::eprintln!("next: fix it, then stepwell resume {}", run.id);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_bar_says_how_far_a_run_is_and_what_it_waits_for() {
        let mut shown = Shown::new(Timestamp::from_millis(0), "a-run");
        let now = Timestamp::from_millis(10_000);
        assert_eq!(shown.bar(now), (None, "a-run".to_owned()));
        shown.status = Some(Status::Running);
        assert_eq!(shown.bar(now), (None, "running".to_owned()));
        let progress = json!({"percent": 40.0, "message": "resizing", "ends_at": 25_000});
        shown.progress = serde_json::from_value(progress).expect("it is progress");
        assert_eq!(shown.bar(now), (Some(40.0), "resizing, about 15.0 s left".to_owned()));
        shown.status = Some(Status::Sleeping);
        let why = json!({"status": "sleeping", "because": "It waits for a time.",
            "waits_for": [{"kind": "sleep", "name": "sleep", "until": 13_000}]});
        shown.why = serde_json::from_value(why).expect("it is a reason");
        let text = "resizing, about 15.0 s left; sleeping, next in 3.0 s".to_owned();
        assert_eq!(shown.bar(now), (Some(40.0), text));
    }
}
