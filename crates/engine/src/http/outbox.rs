//! The routes of messages that have not arrived, over all cells: the oldest letter first, with a cursor for each cell.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use stepwell_core::{
    catalog::{LetterDeed, LetterNote},
    ordered::OrdMap,
    sorting::sort_by,
};
use stepwell_protocol::{
    Code, Place, Timestamp, json,
    outbox::{OutboxList, OutboxMessage},
};

use super::{body::shown, error::Refusal, front::Front, request::pairs, response::Response};
use crate::calls::{
    catalog::Request,
    cell::{ListedLetter, ListedLetters, Operation},
};

/// How many letters a page has, unless it says otherwise.
const LIMIT_DEFAULT: u32 = 50;

/// How many letters a page has at the most.
const LIMIT_MAX: u32 = 200;

/// What a request asks for.
struct Asked {
    only_dead: bool,
    limit: u32,
    cursor: Option<Cursor>,
}

/// After which letter each cell goes on, by its generation and number, `2-17`; a cell that is not in it is at its end.
#[derive(Serialize, Deserialize)]
struct Cursor {
    letters: OrdMap<String, u64>,
}

/// `GET /api/outbox`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let Asked { only_dead, limit, cursor } = read(query)?;
    let after = |place: &Place| match &cursor {
        None => Some(0),
        Some(Cursor { letters }) => letters.get(&name_of(place.generation, place.cell)).copied(),
    };
    let places = front.cells().filter_map(|place| after(&place).map(|after| (place, after)));
    let parts = join_all(places.map(|(place, after)| async move {
        let listed = ask(front, &place, Operation::ShowOutbox { only_dead, after, limit }).await?;
        Ok::<_, Refusal>((place, after, listed))
    }))
    .await;
    let mut merged = Merged::default();
    for part in parts {
        let (place, after, listed) = part?;
        match listed {
            Some(listed) => merged.add(&place, after, listed),
            None => merged.unanswered.push(place.to_string()),
        }
    }
    Ok(Response::of(200, &merged.page(limit as usize)))
}

/// What a cell has; nothing, if it does not answer: one that hangs may be why there is something to be seen.
async fn ask(front: &Front, place: &Place, operation: Operation) -> Result<Option<ListedLetters>, Refusal> {
    match front.ask_in_time(place, operation).await {
        Ok(listed) => Ok(Some(listed)),
        Err(refusal) if refusal.0.code != Code::Internal => Err(refusal),
        Err(_) => Ok(None),
    }
}

/// `POST /api/outbox/{letter}/redeliver`
pub async fn redeliver(front: &Front, letter: &str) -> Result<Response, Refusal> {
    let (place, letter) = find(front, letter)?;
    note(front, &place, letter, LetterDeed::Redeliver).await?;
    front.ask(&place, Operation::Redeliver { letter }).await
}

/// `DELETE /api/outbox/{letter}`
pub async fn discard(front: &Front, letter: &str) -> Result<Response, Refusal> {
    let (place, letter) = find(front, letter)?;
    note(front, &place, letter, LetterDeed::Discard).await?;
    front.ask(&place, Operation::Discard { letter }).await
}

/// Writes into the audit log what is about to be done to a letter: before it is, so that nothing is done unseen. What the
/// cell is going to refuse is not written.
async fn note(front: &Front, place: &Place, letter: u64, deed: LetterDeed) -> Result<(), Refusal> {
    let Some(after) = letter.checked_sub(1) else { return Ok(()) };
    let show = Operation::ShowOutbox { only_dead: false, after, limit: 1 };
    let ListedLetters { letters, .. } = front.ask_json(place, show).await?;
    let fits = |found: &ListedLetter| found.number == letter && (found.dead || deed == LetterDeed::Redeliver);
    let Some(found) = letters.into_iter().find(fits) else { return Ok(()) };
    let note = LetterNote { letter: format!("{place}-{letter}"), deed, heads: found.heads };
    front.ask_catalog(Request::NoteLetter(note)).await
}

/// The cell of a letter, and its number there.
fn find(front: &Front, letter: &str) -> Result<(Place, u64), Refusal> {
    let found = letter.rsplit_once('-').and_then(|(place, id)| {
        let place: Place = place.parse().ok()?;
        let id = id.parse().ok().filter(|id| *id <= 1 << 53)?;
        front.cells().any(|known| known == place).then_some((place, id))
    });
    found.ok_or_else(|| {
        let detail =
            "There is no letter with this name. `GET /api/outbox` lists those that have not arrived.";
        Refusal::new(Code::LetterNotFound, detail)
    })
}

fn name_of(generation: u32, cell: u32) -> String {
    format!("{generation}-{cell}")
}

/// What the cells gave, on the way to one page.
#[derive(Default)]
struct Merged {
    letters: Vec<(Key, ListedLetter)>,
    /// Where each cell goes on: before all that it gave, until some of it is on the page.
    next: OrdMap<(u32, u32), u64>,
    /// The first place in the order at which a cell has stopped looking: it may have letters that come after this, but
    /// before what others gave.
    horizon: Option<Key>,
    unanswered: Vec<String>,
}

/// A letter's place in the order: the oldest first, and those of one time by cell and number.
type Key = (Timestamp, Place, u64);

impl Merged {
    fn add(&mut self, place: &Place, after: u64, listed: ListedLetters) {
        // A cell goes on by numbers, and one that was sent again is younger than those after it. It counts as no older
        // than the ones before it, or a page could leave out one of them and show the other again.
        let mut at = Timestamp::default();
        for letter in listed.letters {
            at = at.max(letter.posted_at);
            self.letters.push(((at, place.clone(), letter.number), letter));
        }
        let last = self.letters.last().map(|(key, _)| key).filter(|_| !listed.is_all);
        if let Some(last) = last {
            self.horizon = Some(self.horizon.take().map_or_else(|| last.clone(), |at| at.min(last.clone())));
        }
        self.next.insert((place.generation, place.cell), if listed.is_all { u64::MAX } else { after });
    }

    /// The oldest of all; the others are left to the pages after it.
    fn page(mut self, limit: usize) -> OutboxList {
        sort_by(&mut self.letters, |(a, _), (b, _)| a.cmp(b));
        let horizon = self.horizon.as_ref();
        let certain = self.letters.iter().take_while(|(key, _)| horizon.is_none_or(|at| key <= at)).count();
        let rest = self.letters.split_off(certain.min(limit));
        let mut next: OrdMap<_, _> = self.next.into_iter().filter(|(_, after)| *after != u64::MAX).collect();
        for ((_, Place { generation, cell, .. }, number), _) in rest.iter().rev() {
            // The oldest that was left out is where its cell goes on.
            next.insert((*generation, *cell), number - 1);
        }
        for ((_, Place { generation, cell, .. }, number), _) in &self.letters {
            if let Some(after) = next.get_mut(&(*generation, *cell)) {
                *after = (*after).max(*number);
            }
        }
        let messages = self.letters.into_iter().flat_map(|((_, place, number), letter)| {
            let ListedLetter { posted_at, dead, heads, .. } = letter;
            let letter = format!("{place}-{number}");
            heads.into_iter().map(move |head| OutboxMessage { letter: letter.clone(), posted_at, dead, head })
        });
        let messages = messages.collect();
        let complete = next.is_empty() && self.unanswered.is_empty();
        let cursor = (!next.is_empty()).then(|| {
            let next = next.into_iter();
            let letters =
                next.map(|((generation, cell), after)| (name_of(generation, cell), after)).collect();
            let text = serde_json::to_string(&Cursor { letters }).expect("a cursor holds only numbers");
            URL_SAFE_NO_PAD.encode(text)
        });
        OutboxList { messages, cursor, unanswered: self.unanswered, complete }
    }
}

fn read(query: &str) -> Result<Asked, Refusal> {
    let mut asked = Asked { only_dead: false, limit: LIMIT_DEFAULT, cursor: None };
    for (name, value) in pairs(query) {
        let wrong = |what: &str| {
            Refusal::new(Code::InvalidRequest, format!("`{name}` takes {what}, not '{}'.", shown(&value)))
        };
        match name.as_str() {
            "dead" => {
                asked.only_dead = value.parse().map_err(|_| wrong("`true` or `false`"))?;
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                asked.limit = limit.ok_or_else(|| wrong("1 to 200"))?;
            }
            "cursor" => {
                let bytes = URL_SAFE_NO_PAD.decode(&value).ok();
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                let read = text.and_then(|text| json::from_str(&text).ok());
                asked.cursor = Some(read.ok_or_else(|| wrong("the `cursor` of the page before"))?);
            }
            other => {
                let detail =
                    format!("There is no parameter '{}'. There are dead, limit, cursor.", shown(other));
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    Ok(asked)
}
