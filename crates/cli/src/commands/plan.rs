//! `stepwell plan`: what a deploy of this folder would change, and which live runs would diverge. A gate for CI.

use std::{collections::BTreeMap, path::PathBuf};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::Serialize;
use stepwell_protocol::{
    Payload, RunId,
    export::{Difference, ReplayReport},
    program::is_reserved,
    rest::{RunList, RunView, Status},
};

use super::export::Whole;
use crate::{
    Global,
    bars::Spinner,
    changes,
    client::{Answer, Ask, Client},
    failure::{Exit, Failure, Result},
    linked::{Features, Linked},
    words,
};

/// How many runs one page of the list has.
const PAGE: usize = 200;

/// What it takes.
#[derive(Debug, Args)]
pub struct Plan {
    /// The project, if it is not in this folder.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    features: Features,
    /// The maximum number of live runs to replay. If there are more, replay a random sample.
    #[arg(long, value_name = "RUNS", default_value_t = 1_000)]
    sample: usize,
}

/// What it writes as JSON.
#[derive(Serialize)]
struct Summary<'a> {
    plan: Payload,
    live: usize,
    replayed: usize,
    diverging: Vec<Diverging<'a>>,
}

#[derive(Serialize)]
struct Diverging<'a> {
    run: &'a RunId,
    workflow: &'a str,
    difference: &'a Difference,
}

impl Plan {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let linked = Linked::find_locked(&self.project, &self.features)?;
        let manifest = linked.manifest()?;
        let plan = changes::plan(&client, manifest.text())?;
        let live = Live::read(&client, self.sample)?;
        let journals = live.journals(&client)?;
        let reports = replay(&linked, &journals)?;
        let runs = journals.iter().map(|(run, _)| run);
        let diverging: Vec<_> = runs
            .zip(&reports)
            .filter_map(|(run, report)| {
                let difference = report.difference.as_ref()?;
                Some(Diverging { run: &run.id, workflow: &run.workflow, difference })
            })
            .collect();
        let is_good = diverging.is_empty();
        let told = Summary { plan: plan.raw(), live: live.count, replayed: reports.len(), diverging };
        if global.json {
            anstream::println!("{}", serde_json::to_string(&told).expect("it holds only what JSON can say"));
        } else {
            tell(&plan.value, &told);
        }
        if is_good { Ok(()) } else { Err(Failure::told(Exit::Differs)) }
    }
}

/// The runs that have not ended.
#[derive(Default)]
struct Live {
    /// The total.
    count: usize,
    /// Those that are replayed, by the random part of their ids: so the first ones are a random sample.
    sample: BTreeMap<(String, String), RunView>,
}

impl Live {
    fn read(client: &Client, sample: usize) -> Result<Self> {
        let spinner = Spinner::new("looking for live runs");
        let mut live = Self::default();
        for status in Status::ALL.into_iter().filter(|status| !status.is_terminal()) {
            let mut cursor = None;
            loop {
                let mut query = vec![("status", status.as_str().to_owned()), ("limit", PAGE.to_string())];
                query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
                let page: Answer<RunList> = client.get(&["executions"], &Ask { query, ..Ask::default() })?;
                for run in page.value.executions.into_iter().filter(|run| !is_reserved(&run.workflow)) {
                    live.add(run, sample);
                }
                match page.value.cursor {
                    Some(next) => cursor = Some(next),
                    None => break,
                }
            }
        }
        drop(spinner);
        Ok(live)
    }

    /// Takes a run in, unless the sample is full of others. One that changes its status while they are listed comes twice.
    fn add(&mut self, run: RunView, sample: usize) {
        let key = (run.id.suffix.clone(), run.id.to_string());
        self.count += usize::from(!self.sample.contains_key(&key));
        self.sample.insert(key, run);
        if self.sample.len() > sample {
            self.sample.pop_last();
        }
    }

    /// The runs with their journals, as `stepwell export` writes them.
    fn journals(&self, client: &Client) -> Result<Vec<(&RunView, String)>> {
        let spinner = Spinner::new("reading journals");
        let mut journals = Vec::new();
        for run in self.sample.values() {
            let id = run.id.to_string();
            let view = Payload::encode(run).expect("it was read as JSON");
            match Whole::read(client, view, &id) {
                Ok(whole) => {
                    let text = serde_json::to_string(&whole).expect("it was read as JSON");
                    journals.push((run, text));
                }
                // It has ended and is deleted, or cannot be read at all: neither is about this build.
                Err(failure) if failure.exit == Exit::Refused => {}
                Err(failure) => return Err(failure),
            }
        }
        drop(spinner);
        Ok(journals)
    }
}

/// Replays journals on the code of the project.
fn replay(linked: &Linked, journals: &[(&RunView, String)]) -> Result<Vec<ReplayReport>> {
    if journals.is_empty() {
        return Ok(Vec::new());
    }
    let texts: Vec<_> = journals.iter().map(|(_, text)| text.as_str()).collect();
    let reports = linked.replay_text(&texts.join("\n"))?;
    if reports.len() != journals.len() {
        return Err(
            Failure::local("some of the journals were not replayed").next("See what was written above.")
        );
    }
    Ok(reports)
}

fn tell(plan: &stepwell_protocol::manifest::Plan, told: &Summary<'_>) {
    let lines = changes::lines(plan);
    if lines.is_empty() {
        anstream::println!("What the app declares stays the same.");
    }
    for line in lines {
        anstream::println!("{line}");
    }
    let (green, red, bold) =
        (AnsiColor::Green.on_default(), AnsiColor::Red.on_default(), Style::new().bold());
    let of = if told.replayed < told.live { format!(", a sample of {}", told.live) } else { String::new() };
    let runs = words::count(told.replayed, "live run");
    if told.diverging.is_empty() {
        anstream::println!("{green}✓{green:#} none of {runs} diverges{of}");
        return;
    }
    anstream::println!("{red}✗{red:#} {bold}{} of {runs} would diverge{bold:#}{of}", told.diverging.len());
    for Diverging { run, workflow, difference } in &told.diverging {
        let place =
            difference.seq.map_or_else(|| "at its end".to_owned(), |seq| format!("at event {}", seq.0));
        anstream::println!("  {run}  {} {place}", words::plain(workflow));
        anstream::println!("    {green}- journal:{green:#} {}", words::plain(&difference.expected));
        anstream::println!("    {red}+ code:   {red:#} {}", words::plain(&difference.actual));
    }
    anstream::eprintln!(
        "next: keep the old path for runs in progress with `ctx.patched`, see docs/workflows.md"
    );
}
