//! `stepwell tokens`: links that complete a wait of a run once, without a key.

use clap::{Args, Subcommand};
use stepwell_protocol::wait_token::{CreatedToken, NewToken};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    naming::RunName,
    words,
};

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub enum Tokens {
    /// Make a link that completes a wait of a run once, without a key.
    Create(Create),
}

/// What it takes.
#[derive(Debug, Args)]
pub struct Create {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
    /// The name of the wait.
    name: String,
    /// How long the link works: 90s, 12h, 3d. 7 days, or until the wait ends.
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    expires: Option<u64>,
    /// Which wait with that name, from 1. Needed if the run does not wait for it yet.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    occurrence: Option<u32>,
}

impl Tokens {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let Self::Create(Create { run, name, expires, occurrence }) = self;
        let client = global.client()?;
        let id = run.id(&client)?;
        let new = NewToken { name, occurrence: occurrence.map(|nth| nth - 1), expires_ms: expires };
        let body = Some(serde_json::to_string(&new).expect("it holds only what JSON can say"));
        let ask =
            Ask { body, doubt: Some("Nothing is stored; making another link is safe."), ..Ask::default() };
        let answer: Answer<CreatedToken> = client.post(&["executions", &id, "tokens"], &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        let CreatedToken { url, expires_at } = answer.value;
        anstream::println!("{url}");
        let (distance, date) = (words::distance(expires_at, words::now()), words::date(expires_at));
        anstream::eprintln!("Everyone who has this link can answer, once. It expires {distance}, at {date}.");
        Ok(())
    }
}
