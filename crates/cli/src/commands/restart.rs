//! `stepwell restart`: takes a run back.

use clap::Args;
use stepwell_protocol::{Seq, rest};

use super::act::tell;
use crate::{Global, client::Ask, failure::Result, naming::RunName};

/// What it takes.
#[derive(Debug, Args)]
pub struct Restart {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
    /// The step to continue from. Without it, the run starts over.
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Which occurrence of that step, from 1.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "from", value_parser = clap::value_parser!(u32).range(1..))]
    occurrence: u32,
    /// The signal to drop, by its position in the history.
    #[arg(long, value_name = "POSITION", conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..))]
    without_signal: Option<u32>,
}

impl Restart {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let from = self.from.map(|step| rest::StepName { step, occurrence: self.occurrence - 1 });
        let restart = rest::Restart { from, without_signal: self.without_signal.map(Seq) };
        let body = Some(serde_json::to_string(&restart).expect("names and numbers can be written as JSON"));
        let client = global.client()?;
        let id = self.run.id(&client)?;
        let answer = client.post(&["executions", &id, "restart"], &Ask { body, ..Ask::default() })?;
        tell(global, &answer);
        Ok(())
    }
}
