//! `stepwell replay`: an exported journal on the code of this folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anstyle::{AnsiColor, Style};
use clap::Args;
use stepwell_protocol::export::{Export, FORMAT, ReplayReport};

use crate::{
    Global,
    failure::{Exit, Failure, Result},
    linked::{Features, Linked},
    words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Replay {
    /// A file written by `stepwell export`.
    file: PathBuf,
    /// The project, if it is not in this folder.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    project: PathBuf,
    #[command(flatten)]
    features: Features,
}

impl Replay {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let export = read(&self.file)?;
        let file = fs::canonicalize(&self.file).map_err(|error| Failure::usage(error.to_string()))?;
        let linked = Linked::find(&self.project, &self.features)?;
        let report = linked.replay(&file)?.pop();
        let report = report.ok_or_else(|| Failure::local("the replay said nothing"))?;
        if global.json {
            anstream::println!(
                "{}",
                serde_json::to_string(&report).expect("a report can be written as JSON")
            );
        } else {
            tell(&export, &report);
        }
        if report.difference.is_some() { Err(Failure::told(Exit::Differs)) } else { Ok(()) }
    }
}

fn read(file: &Path) -> Result<Export> {
    let wrong = |what: String| {
        Failure::usage(format!("{}: {what}", file.display()))
            .next("`stepwell export RUN` writes such a file.")
    };
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let export: Export =
        serde_json::from_str(&text).map_err(|error| wrong(format!("this is no exported run: {error}")))?;
    if export.format != FORMAT {
        return Err(wrong(format!("it has the form {}, and this command knows {FORMAT}", export.format)));
    }
    Ok(export)
}

fn tell(export: &Export, report: &ReplayReport) {
    let (run, workflow) = (&export.run.id, words::plain(&export.run.workflow));
    let Some(difference) = &report.difference else {
        let green = AnsiColor::Green.on_default();
        let events = words::count(report.events, "event");
        anstream::println!("{green}✓{green:#} {workflow} {run}: the same over {events}");
        if !report.next.is_empty() {
            anstream::println!("  next: {}", words::plain(&report.next.join(", ")));
        }
        if export.replay.is_none() {
            anstream::eprintln!("The file does not have the run's seed: what chance decides may differ.");
        }
        return;
    };
    let (red, green, bold) =
        (AnsiColor::Red.on_default(), AnsiColor::Green.on_default(), Style::new().bold());
    let place = match difference.seq {
        Some(seq) => format!("at event {} of {}", seq.0, export.events.len()),
        None => "at its end".to_owned(),
    };
    anstream::println!("{red}✗{red:#} {workflow} {run}: {bold}something else {place}{bold:#}");
    anstream::println!("{green}- journal:{green:#} {}", words::plain(&difference.expected));
    anstream::println!("{red}+ code:   {red:#} {}", words::plain(&difference.actual));
    anstream::eprintln!(
        "next: keep the old path for runs in progress with `ctx.patched`, see docs/workflows.md"
    );
}
