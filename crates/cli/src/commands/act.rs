//! `stepwell pause`, `resume`, `cancel` and `retry`.

use clap::Args;
use stepwell_protocol::rest::RunView;

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    naming::RunName,
    words,
};

/// What these commands take.
#[derive(Debug, Args)]
pub struct Act {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
}

impl Act {
    /// Does it.
    pub fn run(self, global: &Global, what: &str) -> Result {
        let client = global.client()?;
        // Only this one of them has a route by key.
        let run = if what == "cancel" { self.run } else { RunName::Id(self.run.id(&client)?) };
        let answer = client.post(&run.path(&[what]), &Ask::default())?;
        tell(global, &answer);
        Ok(())
    }
}

/// Says where a run stands after something was done to it.
pub fn tell(global: &Global, answer: &Answer<RunView>) {
    if global.json {
        anstream::println!("{}", answer.text);
    } else {
        anstream::println!("{} is {}", answer.value.id, words::status(answer.value.status));
    }
}
