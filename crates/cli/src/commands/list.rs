//! `stepwell list`: finds runs.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Payload, Timestamp,
    rest::{RunList, RunView, Status},
};

use crate::{
    Global,
    bars::Spinner,
    client::{Answer, Ask, Client},
    failure::Result,
    words,
};

/// How many runs one request asks for at the most.
const PAGE_MAX: usize = 200;

/// What it takes.
#[derive(Debug, Args)]
pub struct List {
    /// Only runs of this workflow.
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only runs with this status, or with one of several, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = status_parser())]
    status: Vec<Status>,
    /// Only runs with this tag.
    #[arg(long)]
    tag: Option<String>,
    /// Only runs with this attribute, such as customer:acme. Repeat it to narrow the list.
    #[arg(long = "attribute", value_name = "NAME:VALUE", value_parser = attribute)]
    attributes: Vec<String>,
    /// Only runs started since: 2026-11-15, 2026-11-15T08:00:00Z, or an age such as 90m or 2d.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    since: Option<Timestamp>,
    /// Only runs started before.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    until: Option<Timestamp>,
    /// Only runs that ended at this time or later.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    ended_since: Option<Timestamp>,
    /// Only runs that ended before this time.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    ended_until: Option<Timestamp>,
    /// Only runs that took at least this long, such as 90s or "2 days", or are open for that long.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    longer_than: Option<u64>,
    /// Only runs with a failed step that waits for its next attempt.
    #[arg(long)]
    retrying: bool,
    /// Only runs with this text in the message of an error.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// The maximum number of runs.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Takes the word for a status.
pub fn status_parser() -> impl TypedValueParser<Value = Status> {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str))
        .try_map(|word| Status::of(&word).ok_or("this is no status"))
}

/// A name and a value.
fn attribute(text: &str) -> std::result::Result<String, &'static str> {
    let is_good = text.split_once(':').is_some_and(|(name, _)| !name.is_empty());
    if is_good { Ok(text.to_owned()) } else { Err("expected NAME:VALUE, such as customer:acme") }
}

impl List {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let found = self.find(&client, global.json)?;
        if global.json {
            anstream::println!("{}", serde_json::to_string(&found.raw).expect("it was read as JSON"));
            return Ok(());
        }
        if found.runs.is_empty() {
            anstream::eprintln!("There is no such run.");
            return Ok(());
        }
        table(&found.runs);
        if found.has_more {
            anstream::eprintln!("There are more: --limit {} shows them.", self.limit.saturating_mul(4));
        }
        Ok(())
    }

    fn find(&self, client: &Client, json: bool) -> Result<Found> {
        let spinner = Spinner::new("looking for runs");
        let mut found = Found::default();
        let mut cursor: Option<String> = None;
        while found.runs.len() < self.limit {
            let mut query = self.filter();
            query.push(("limit", (self.limit - found.runs.len()).min(PAGE_MAX).to_string()));
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page: Answer<RunList> = client.get(&["executions"], &Ask { query, ..Ask::default() })?;
            if json {
                let raw: RawList = page.raw().decode().unwrap_or_default();
                found.raw.executions.extend(raw.executions);
            }
            found.runs.extend(page.value.executions);
            spinner.say(&format!("looking for runs, {} found", found.runs.len()));
            found.has_more = page.value.cursor.is_some();
            match page.value.cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        Ok(found)
    }

    fn filter(&self) -> Vec<(&'static str, String)> {
        let words: Vec<_> = self.status.iter().map(|status| status.as_str()).collect();
        let status = (!words.is_empty()).then(|| words.join(","));
        let time = |at: Option<Timestamp>| at.map(|at| at.as_millis().to_string());
        let all = [
            ("workflow", self.workflow.clone()),
            ("status", status),
            ("tag", self.tag.clone()),
            ("from", time(self.since)),
            ("until", time(self.until)),
            ("ended_from", time(self.ended_since)),
            ("ended_until", time(self.ended_until)),
            ("min_duration_ms", self.longer_than.map(|ms| ms.to_string())),
            ("retrying", self.retrying.then(|| "true".to_owned())),
            ("error", self.error.clone()),
        ];
        let all = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
        all.chain(self.attributes.iter().map(|attribute| ("attribute", attribute.clone()))).collect()
    }
}

/// A list as it came.
#[derive(Default, Serialize, Deserialize)]
struct RawList {
    executions: Vec<Payload>,
}

#[derive(Default)]
struct Found {
    runs: Vec<RunView>,
    raw: RawList,
    has_more: bool,
}

fn table(runs: &[RunView]) {
    let now = words::now();
    let ids = runs.iter().map(|run| run.id.to_string().len()).max().unwrap_or_default();
    let workflows = runs.iter().map(|run| words::cut(&words::plain(&run.workflow), 24)).collect::<Vec<_>>();
    let width = workflows.iter().map(|workflow| workflow.chars().count()).max().unwrap_or_default();
    for (run, workflow) in runs.iter().zip(workflows) {
        let style = words::status_style(run.status);
        let status = run.status.as_str();
        let started = words::distance(run.created_at, now);
        let note = if let Some(error) = &run.error {
            words::cut(&words::plain(&error.message), 60)
        } else if let Some(problem) = &run.problem {
            words::cut(&words::plain(&problem.detail), 60)
        } else if run.waits_for.is_empty() {
            let progress = run.progress.as_ref().filter(|_| !run.status.is_terminal());
            progress.map(|progress| format!("{:.0} %", progress.percent)).unwrap_or_default()
        } else {
            format!("waits for {}", words::cut(&words::plain(&run.waits_for.join(", ")), 50))
        };
        let id = run.id.to_string();
        let line = format!("{id:ids$}  {workflow:width$}  {style}{status:9}{style:#}  {started:>12}  {note}");
        anstream::println!("{}", line.trim_end());
    }
}
