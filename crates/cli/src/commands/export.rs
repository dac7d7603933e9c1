//! `stepwell export`: a run's journal with its input and workflow, as one JSON file.

use std::{fs, path::PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use stepwell_protocol::{Payload, export::FORMAT};

use crate::{
    Global,
    bars::Spinner,
    client::Client,
    failure::{Failure, Result},
    naming::RunName,
    words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Export {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
    /// The output file; the default is the run's id with .json, and - is standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The form of [`stepwell_protocol::export::Export`], as it came.
#[derive(Serialize)]
pub struct Whole {
    format: u32,
    run: Payload,
    input: Option<Payload>,
    replay: Option<Payload>,
    events: Vec<Payload>,
}

impl Whole {
    /// Reads all of a run.
    pub fn read(client: &Client, run: Payload, id: &str) -> Result<Self> {
        let journal = client.journal(id, true)?;
        Ok(Self { format: FORMAT, run, input: journal.input, replay: journal.replay, events: journal.raw })
    }
}

impl Export {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let spinner = Spinner::new("reading the journal");
        let run = self.run.show(&client)?;
        let whole = Whole::read(&client, run.raw(), &run.value.id.to_string())?;
        drop(spinner);
        let events = whole.events.len();
        let text = serde_json::to_string_pretty(&whole).expect("it was read as JSON");
        let path = self.output.unwrap_or_else(|| format!("{}.json", run.value.id).into());
        if path.as_os_str() == "-" {
            anstream::println!("{text}");
            return Ok(());
        }
        fs::write(&path, text + "\n")
            .map_err(|error| Failure::local(format!("{} cannot be written: {error}", path.display())))?;
        if global.json {
            anstream::println!("{}", json!({ "file": path, "events": events }));
        } else {
            anstream::println!("{} with {}", path.display(), words::count(events, "event"));
            anstream::eprintln!("next: stepwell replay {}", path.display());
        }
        Ok(())
    }
}
