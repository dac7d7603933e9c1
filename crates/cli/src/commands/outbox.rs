//! `stepwell outbox`: messages between runs that have not arrived.

use clap::{Args, Subcommand};
use stepwell_protocol::outbox::{OutboxList, OutboxMessage, Redelivery};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What it takes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Outbox {
    #[command(subcommand)]
    command: Option<Deliver>,
    /// Only messages that are no longer sent.
    #[arg(long)]
    dead: bool,
}

#[derive(Debug, Subcommand)]
enum Deliver {
    /// Send a letter again, including a dead one.
    Redeliver {
        /// The letter, as printed by `stepwell outbox`.
        #[arg(value_name = "LETTER", required_unless_present = "all")]
        letter: Option<String>,
        /// Send every dead letter again.
        #[arg(long, conflicts_with = "letter")]
        all: bool,
    },
}

impl Outbox {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self.command {
            Some(Deliver::Redeliver { letter: Some(letter), .. }) => redeliver(global, &letter),
            Some(Deliver::Redeliver { letter: None, .. }) => {
                let mut letters: Vec<_> =
                    read(global, true)?.value.messages.into_iter().map(|message| message.letter).collect();
                letters.dedup();
                if letters.is_empty() {
                    anstream::eprintln!("No letter is dead.");
                }
                letters.iter().try_for_each(|letter| redeliver(global, letter))
            }
            None => show(global, self.dead),
        }
    }
}

fn read(global: &Global, only_dead: bool) -> Result<Answer<OutboxList>> {
    let query = only_dead.then(|| ("dead", "true".to_owned())).into_iter().collect();
    global.client()?.get(&["outbox"], &Ask { query, ..Ask::default() })
}

fn show(global: &Global, only_dead: bool) -> Result {
    let list = read(global, only_dead)?;
    if global.json {
        anstream::println!("{}", list.raw().text());
        return Ok(());
    }
    let OutboxList { messages, complete } = list.value;
    if messages.is_empty() {
        anstream::eprintln!("Everything has arrived.");
    }
    table::print(&messages.iter().map(row).collect::<Vec<_>>());
    if messages.iter().any(|message| message.dead) {
        anstream::eprintln!(
            "Dead letters are not sent any more: `stepwell outbox redeliver --all` sends them again."
        );
    }
    if !complete {
        anstream::eprintln!("There are more.");
    }
    Ok(())
}

fn row(message: &OutboxMessage) -> Vec<String> {
    let OutboxMessage { letter, posted_at, dead, head } = message;
    let state = if *dead { "dead" } else { "on its way" };
    let run = words::plain(&head.from.to_string());
    vec![
        words::plain(letter),
        words::date(*posted_at),
        state.into(),
        words::plain(&head.what),
        run,
        words::plain(&head.to),
    ]
}

fn redeliver(global: &Global, letter: &str) -> Result {
    let sent: Answer<Redelivery> =
        global.client()?.post(&["outbox", letter, "redeliver"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", sent.raw().text());
    } else {
        anstream::println!("{} is on its way again.", words::plain(&sent.value.letter));
    }
    Ok(())
}
