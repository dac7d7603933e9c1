//! `stepwell outbox`: messages between runs that have not arrived.

use clap::{Args, Subcommand};
use stepwell_protocol::outbox::{DiscardedLetter, OutboxList, OutboxMessage, Redelivery};

use crate::{
    Global,
    client::{Answer, Ask, Client},
    failure::Result,
    table, words,
};

/// How many letters one request asks for at the most.
const PAGE_MAX: usize = 200;

/// What it takes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Outbox {
    #[command(subcommand)]
    command: Option<Deliver>,
    /// Only messages that are no longer sent.
    #[arg(long)]
    dead: bool,
    /// The most letters to list.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum Deliver {
    /// Send a letter again, including a dead one.
    Redeliver(Which),
    /// Delete a dead letter. Runs that wait for its messages are not told.
    Discard(Which),
}

#[derive(Debug, Args)]
struct Which {
    /// The letter, as printed by `stepwell outbox`.
    #[arg(value_name = "LETTER", required_unless_present = "all")]
    letter: Option<String>,
    /// Every dead letter.
    #[arg(long, conflicts_with = "letter")]
    all: bool,
}

impl Outbox {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        match self.command {
            Some(Deliver::Redeliver(which)) => {
                which.each(&client, |letter| redeliver(global, &client, letter))
            }
            Some(Deliver::Discard(which)) => which.each(&client, |letter| discard(global, &client, letter)),
            None => {
                show(global, &read(&client, self.dead, self.limit)?, self.limit);
                Ok(())
            }
        }
    }
}

impl Which {
    /// Does something to the letter, or to every dead one.
    fn each(self, client: &Client, act: impl FnMut(&str) -> Result) -> Result {
        let Some(letter) = self.letter else {
            let list = read(client, true, usize::MAX)?;
            if list.messages.is_empty() {
                anstream::eprintln!("No letter is dead.");
            }
            say_unanswered(&list);
            return letters(&list.messages).into_iter().try_for_each(act);
        };
        std::iter::once(letter.as_str()).try_for_each(act)
    }
}

/// So many letters, the oldest first; whether there are more is in the last `cursor`.
fn read(client: &Client, only_dead: bool, limit: usize) -> Result<OutboxList> {
    let mut all = OutboxList { complete: true, ..OutboxList::default() };
    let mut left = limit;
    loop {
        let mut query = vec![("limit", left.clamp(1, PAGE_MAX).to_string())];
        query.extend(only_dead.then(|| ("dead", "true".to_owned())));
        query.extend(all.cursor.take().map(|cursor| ("cursor", cursor)));
        let page: Answer<OutboxList> = client.get(&["outbox"], &Ask { query, ..Ask::default() })?;
        let OutboxList { messages, cursor, unanswered, complete } = page.value;
        left = left.saturating_sub(letters(&messages).len());
        all.messages.extend(messages);
        all.unanswered.extend(unanswered);
        (all.cursor, all.complete) = (cursor, all.unanswered.is_empty() && complete);
        if all.cursor.is_none() || left == 0 {
            return Ok(all);
        }
    }
}

/// The letters of these messages, each once.
fn letters(messages: &[OutboxMessage]) -> Vec<&str> {
    let mut letters: Vec<_> = messages.iter().map(|message| message.letter.as_str()).collect();
    letters.dedup();
    letters
}

fn show(global: &Global, list: &OutboxList, limit: usize) {
    if global.json {
        anstream::println!("{}", serde_json::to_string(list).expect("it was read as JSON"));
        return;
    }
    let OutboxList { messages, cursor, unanswered, .. } = list;
    if messages.is_empty() && unanswered.is_empty() {
        anstream::eprintln!("Everything has arrived.");
    }
    table::print(&messages.iter().map(row).collect::<Vec<_>>());
    if messages.iter().any(|message| message.dead) {
        anstream::eprintln!(
            "Dead letters are not sent any more: `stepwell outbox redeliver --all` sends them again."
        );
    }
    if cursor.is_some() {
        anstream::eprintln!("There are more: --limit {} shows them.", limit.saturating_mul(4));
    }
    say_unanswered(list);
}

fn say_unanswered(list: &OutboxList) {
    let cells: Vec<_> = list.unanswered.iter().map(|cell| words::plain(cell)).collect();
    match cells.len() {
        0 => {}
        1 => anstream::eprintln!("1 cell did not answer, and may have more: {}.", cells.join(", ")),
        count => {
            anstream::eprintln!("{count} cells did not answer, and may have more: {}.", cells.join(", "));
        }
    }
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

fn redeliver(global: &Global, client: &Client, letter: &str) -> Result {
    let sent: Answer<Redelivery> = client.post(&["outbox", letter, "redeliver"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", sent.raw().text());
    } else {
        anstream::println!("{} is on its way again.", words::plain(&sent.value.letter));
    }
    Ok(())
}

fn discard(global: &Global, client: &Client, letter: &str) -> Result {
    let gone: Answer<DiscardedLetter> = client.delete(&["outbox", letter], &Ask::default())?;
    if global.json {
        anstream::println!("{}", gone.raw().text());
    } else {
        anstream::println!("{} is discarded.", words::plain(&gone.value.letter));
    }
    Ok(())
}
