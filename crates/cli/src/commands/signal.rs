//! `stepwell signal`: sends a run a signal.

use clap::Args;
use stepwell_protocol::rest::SignalReceipt;

use super::start::Json;
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    naming::RunName,
    words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Signal {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
    /// The signal's name.
    name: String,
    #[command(flatten)]
    value: Json,
    /// The signal's id. A repeated id has no effect.
    #[arg(long, value_name = "ID")]
    idempotency_key: Option<String>,
}

impl Signal {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let ask = Ask { body: self.value.json()?, idempotency_key: self.idempotency_key, ..Ask::default() };
        let path = self.run.path(&["signals", &self.name]);
        let answer: Answer<SignalReceipt> = global.client()?.post(&path, &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
        } else if answer.value.duplicate {
            anstream::println!("It was already sent; nothing changed.");
        } else {
            anstream::println!("Sent. `stepwell watch {}` shows the result.", self.run);
            if let Some(warning) = &answer.value.warning {
                anstream::eprintln!("warning: {}", words::plain(warning));
            }
        }
        Ok(())
    }
}
