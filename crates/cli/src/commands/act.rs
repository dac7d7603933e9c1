//! `stepwell pause`, `resume`, `cancel` and `retry`.

use clap::Args;
use stepwell_protocol::rest::RunView;

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    words,
};

/// What these commands take.
#[derive(Debug, Args)]
pub struct Act {
    /// The run's id.
    #[arg(value_name = "RUN")]
    id: String,
}

impl Act {
    /// Does it.
    pub fn run(self, global: &Global, what: &str) -> Result {
        let answer = global.client()?.post(&["executions", &self.id, what], &Ask::default())?;
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
