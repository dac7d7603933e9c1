//! A page as data: what stands on it, in which order, and what can be done there. One drawer draws all of them.
//!
//! Owns no words of any page, and no element.

use stepwell_protocol::{Timestamp, rest::Status};

use crate::{chart::Chart, form::Action, place::Place, when};

/// A page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// What it is about.
    pub title: String,
    /// The page above it.
    pub up: Option<(Place, &'static str)>,
    /// How that stands.
    pub state: Option<Cell>,
    /// What is wrong with it: a title and what happened.
    pub wrong: Option<(String, String)>,
    /// What can be done.
    pub actions: Vec<Action>,
    /// Its parts.
    pub sections: Vec<Section>,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// What it has. The only one of a page may have none.
    pub title: String,
    /// What people should know about it.
    pub note: String,
    /// What can be done to it.
    pub actions: Vec<Action>,
    /// It.
    pub body: Body,
}

/// What a section has.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing but its note.
    Nothing,
    /// Facts by name.
    Facts(Vec<(String, Cell)>),
    /// A table.
    Table(Table),
    /// A payload, with the name of its file.
    Payload(String, String),
    /// A field that leads to another page.
    Find(Find),
    /// A chart.
    Chart(Chart),
    /// A field for the deployment's own key, which a session does not stand for.
    Unlock,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The heads of its columns. Those that begin with `>` are aligned to the right.
    pub columns: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// What is said if there are none.
    pub empty: Empty,
    /// The first page, unless this is it.
    pub first: Option<Place>,
    /// The page that follows.
    pub next: Option<Place>,
}

/// What is said if there is nothing, and the command that makes the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Empty {
    /// What is said.
    pub words: String,
    /// The command.
    pub command: String,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text.
    Text(String),
    /// A text that is less important.
    Dim(String),
    /// A text of code.
    Mono(String),
    /// A text of many lines.
    Block(String),
    /// An instant.
    At(Timestamp),
    /// How long ago.
    Ago(Timestamp),
    /// The status of a run.
    Status(Status),
    /// A state of something else.
    State(Tone, String),
    /// A link.
    Link(Place, String),
    /// A link to a run.
    Run(String),
    /// A label.
    Label(String),
    /// Several.
    Many(Vec<Cell>),
    /// What can be done.
    Actions(Vec<Action>),
}

/// How good or bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Something holds it.
    Held,
    /// Something is wrong.
    Bad,
    /// Over.
    Quiet,
}

impl Tone {
    /// The status whose colour it has.
    pub fn as_status(self) -> Status {
        match self {
            Self::Good => Status::Completed,
            Self::Held => Status::Waiting,
            Self::Bad => Status::Failed,
            Self::Quiet => Status::Cancelled,
        }
    }
}

/// What a field leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// What is asked for.
    pub label: &'static str,
    /// Such as.
    pub example: &'static str,
    /// What its button says.
    pub button: &'static str,
    /// Of what.
    pub of: Sought,
}

/// What can be looked for by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sought {
    /// A topic.
    Topic,
    /// A lane of steps.
    Lane,
    /// A queue.
    Queue,
    /// A job of this queue.
    Job(String),
    /// The metrics of a workflow, of so many minutes.
    Metrics(u32),
}

impl Sought {
    /// Where what somebody typed leads to.
    pub fn place(&self, text: &str) -> Option<Place> {
        let text = text.trim();
        let is_empty = text.is_empty();
        match self {
            // No workflow means all of them.
            Self::Metrics(minutes) => {
                Some(Place::Metrics { workflow: (!is_empty).then(|| text.to_owned()), minutes: *minutes })
            }
            Self::Topic | Self::Lane | Self::Queue | Self::Job(_) if is_empty => None,
            // Somebody may type the name of an event.
            Self::Topic => Some(Place::topic(text.split('/').next().unwrap_or(text))),
            Self::Lane => Some(Place::lane(text)),
            Self::Queue => Some(Place::queue(text)),
            Self::Job(queue) => Some(Place::Job(queue.clone(), text.to_owned())),
        }
    }
}

impl Sheet {
    /// A page about this.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The same below another page.
    #[must_use]
    #[inline(never)]
    pub fn below(self, place: Place, title: &'static str) -> Self {
        Self { up: Some((place, title)), ..self }
    }

    /// The same, which stands like this.
    #[must_use]
    pub fn stands(self, tone: Tone, word: impl Into<String>) -> Self {
        Self { state: Some(Cell::State(tone, word.into())), ..self }
    }

    /// The same with something that can be done, if it may be.
    #[must_use]
    #[inline(never)]
    pub fn act(mut self, action: Option<Action>) -> Self {
        self.actions.extend(action);
        self
    }

    /// The same with a section.
    #[must_use]
    pub fn with(mut self, section: Section) -> Self {
        self.sections.push(section);
        self
    }

    /// The same with a section, if there is one.
    #[must_use]
    #[inline(never)]
    pub fn with_any(mut self, section: Option<Section>) -> Self {
        self.sections.extend(section);
        self
    }
}

impl Section {
    /// One with this body.
    pub fn new(title: &str, body: Body) -> Self {
        Self { title: title.to_owned(), note: String::new(), actions: Vec::new(), body }
    }

    /// One that is a list of facts.
    #[inline(never)]
    pub fn facts(title: &str, facts: Facts) -> Self {
        Self::new(title, Body::Facts(facts.0))
    }

    /// One that is a table.
    #[inline(never)]
    pub fn table(title: &str, table: Table) -> Self {
        Self::new(title, Body::Table(table))
    }

    /// The same with what people should know.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The same with something that can be done, if it may be.
    #[must_use]
    pub fn act(mut self, action: Option<Action>) -> Self {
        self.actions.extend(action);
        self
    }
}

impl Table {
    /// One with these columns and rows.
    pub fn new(columns: &[&'static str], rows: Vec<Vec<Cell>>) -> Self {
        Self { columns: columns.to_vec(), rows, ..Self::default() }
    }

    /// The same, which says this if it has no rows.
    #[must_use]
    #[inline(never)]
    pub fn or(self, words: &str, command: &str) -> Self {
        Self { empty: Empty { words: words.to_owned(), command: command.to_owned() }, ..self }
    }

    /// The same, in pages: whether this is not the first one, which that is, and the one that follows.
    #[must_use]
    #[inline(never)]
    pub fn pages(self, is_later: bool, first: Place, next: Option<Place>) -> Self {
        Self { first: is_later.then_some(first), next, ..self }
    }
}

/// Facts by name, as far as there are any.
#[derive(Clone, Debug, Default)]
pub struct Facts(Vec<(String, Cell)>);

impl Facts {
    /// Adds one.
    #[must_use]
    pub fn add(mut self, name: &str, cell: impl Into<Cell>) -> Self {
        self.push(name, cell.into());
        self
    }

    // Pages have hundreds of these: each of them inline would make the dashboard larger by a tenth.
    #[inline(never)]
    fn push(&mut self, name: &str, cell: Cell) {
        self.0.push((name.to_owned(), cell));
    }

    /// Adds one, if there is one.
    #[must_use]
    pub fn add_any(self, name: &str, cell: Option<impl Into<Cell>>) -> Self {
        match cell {
            Some(cell) => self.add(name, cell),
            None => self,
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Cell {
    #[inline(never)]
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Cell {
    #[inline(never)]
    fn from(number: u64) -> Self {
        Self::Text(grouped(number))
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

impl From<Timestamp> for Cell {
    fn from(at: Timestamp) -> Self {
        Self::At(at)
    }
}

/// A number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time as a value.
pub fn length(ms: u64) -> Cell {
    Cell::Text(when::length(ms))
}

/// No value.
pub fn nothing() -> Cell {
    Cell::Dim("–".into())
}

/// A value, if there is one.
pub fn any(cell: Option<impl Into<Cell>>) -> Cell {
    cell.map_or_else(nothing, Into::into)
}

/// Labels in a row.
pub fn labels(labels: &[String]) -> Cell {
    if labels.is_empty() { nothing() } else { Cell::Many(labels.iter().cloned().map(Cell::Label).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn what_is_looked_for_leads_to_its_page() {
        assert_eq!(Sought::Topic.place(" order/paid "), Some(Place::topic("order")));
        assert_eq!(Sought::Queue.place(" "), None);
        assert_eq!(Sought::Metrics(360).place(""), Some(Place::Metrics { workflow: None, minutes: 360 }));
    }
}
