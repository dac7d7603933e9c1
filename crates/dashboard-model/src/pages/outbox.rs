//! Messages between objects that have not arrived.

use std::collections::BTreeSet;

use stepwell_protocol::routes::Route;

use super::{
    Viewer,
    flat::{Message, OutboxList},
    query,
};
use crate::{
    book::{Book, Stop},
    form::Action,
    may::path,
    place::Place,
    sheet::{Cell, Section, Sheet, Table, Tone, nothing},
};

/// A page of the messages.
pub fn list(cursor: Option<&str>, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<OutboxList>(&query(path(Route::ListOutbox, &[]), &[("cursor", cursor)]))?;
    let mut letters = BTreeSet::new();
    let row = |message: &Message| {
        // The messages of a letter are sent and discarded together.
        let actions =
            if letters.insert(message.letter.clone()) { actions(message, viewer) } else { Vec::new() };
        let state = if message.dead {
            Cell::State(Tone::Bad, "dead".into())
        } else {
            Cell::State(Tone::Held, "waiting".into())
        };
        vec![
            Cell::Mono(message.letter.clone()),
            state,
            Cell::Text(message.what.replace('_', " ")),
            Cell::Run(message.from.to_string()),
            Cell::Mono(message.to.clone()),
            Cell::Ago(message.posted_at),
            if actions.is_empty() { nothing() } else { Cell::Actions(actions) },
        ]
    };
    let table = Table::new(
        &["Letter", "State", "Does", "From", "To", "Written", ""],
        list.messages.iter().map(row).collect(),
    )
    .or("All messages have arrived.", "")
    .pages(
        cursor.is_some(),
        Place::Outbox { cursor: None },
        list.cursor.clone().map(|next| Place::Outbox { cursor: Some(next) }),
    );
    let note = if list.unanswered.is_empty() {
        String::new()
    } else {
        format!(
            "Letters of these cells are missing, because they did not answer: {}.",
            list.unanswered.join(", ")
        )
    };
    Ok(Sheet::new("Outbox").with(Section::table("", table).note(note)))
}

fn actions(message: &Message, viewer: &Viewer) -> Vec<Action> {
    let letter = message.letter.as_str();
    let explained =
        "All messages of the letter are sent again now. A message that arrives twice has one effect.";
    let again = viewer.may.act(Route::Redeliver, &[letter], "Redeliver", explained);
    let explained = "Runs that wait for it are not told: if it starts a child, cancel or restart the parent. You cannot \
                     undo this.";
    let discard = viewer.may.act(Route::Discard, &[letter], "Discard", explained).filter(|_| message.dead);
    let titled = |action: Action| {
        let title = format!("{} {letter}", action.label);
        action.titled(title)
    };
    again.map(titled).into_iter().chain(discard.map(|action| titled(action).grave())).collect()
}
