//! `stepwell emit` and `stepwell events`: sends events, and shows those that a topic has.

use clap::{Args, Subcommand};
use stepwell_protocol::{
    Payload,
    topic::{Accepted, AcceptedStatus, EventList, EventView, NewEvent},
};

use super::start::Json;
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    names, table, words,
};

/// What to do if nobody knows whether an event was accepted.
const DOUBT: &str = "With `--id`, sending it again is safe.";

/// What it takes to send an event.
#[derive(Debug, Args)]
pub struct Emit {
    /// The event's name: a topic and what has happened, such as order/paid.
    name: String,
    #[command(flatten)]
    data: Json,
    /// The event's id. Sending the same id again has no effect for seven days.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Emit {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let data = match self.data.json()? {
            Some(text) => Payload::from_text(text).unwrap_or_default(),
            None => Payload::null(),
        };
        let event = NewEvent { name: self.name, id: self.id, data };
        let body = Some(serde_json::to_string(&event).expect("it holds only what JSON can say"));
        let ask = Ask { body, doubt: Some(DOUBT), ..Ask::default() };
        let answer: Answer<Accepted> = global.client()?.post(&["events"], &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        if answer.value.status == AcceptedStatus::Duplicate {
            anstream::eprintln!("The topic knows this event already.");
        }
        anstream::println!("{}", words::plain(answer.value.id.as_deref().unwrap_or_default()));
        Ok(())
    }
}

/// What can be asked of events.
#[derive(Debug, Subcommand)]
pub enum Events {
    /// List the latest events of a topic, newest first.
    List(List),
    /// Show an event.
    Show(One),
    /// List the topics that events belong to.
    Topics,
}

/// Some events of a topic.
#[derive(Debug, Args)]
pub struct List {
    /// The topic: order, for events such as order/paid.
    topic: String,
    /// How many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
}

/// An event.
#[derive(Debug, Args)]
pub struct One {
    /// Its topic.
    topic: String,
    /// Its id.
    id: String,
}

impl Events {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::List(list) => list.run(global),
            Self::Show(one) => one.run(global),
            Self::Topics => {
                names::list(global, "topics", "The namespace has no topics. `stepwell emit` creates one.")
            }
        }
    }
}

impl List {
    fn run(self, global: &Global) -> Result {
        let query = vec![("topic", self.topic), ("limit", self.limit.to_string())];
        let answer: Answer<EventList> =
            global.client()?.get(&["events"], &Ask { query, ..Ask::default() })?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        if answer.value.events.is_empty() {
            anstream::eprintln!("The topic has no events. `stepwell emit` sends one.");
        }
        let row = |event: &EventView| {
            vec![words::date(event.at), words::plain(&event.name), words::plain(&event.id)]
        };
        table::print(&answer.value.events.iter().map(row).collect::<Vec<_>>());
        Ok(())
    }
}

impl One {
    fn run(self, global: &Global) -> Result {
        let answer: Answer<EventView> =
            global.client()?.get(&["events", &self.topic, &self.id], &Ask::default())?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        let event = answer.value;
        let field = |name: &str, value: String| anstream::println!("  {name:6} {value}");
        anstream::println!("{}", words::plain(&event.id));
        field("name", words::plain(&event.name));
        field("at", words::date(event.at));
        field("data", words::plain(event.data.text()));
        if let Some(source) = &event.source {
            field("from", words::plain(source));
        }
        field("runs", format!("stepwell list --tag {}", words::plain(&event.tag)));
        for met in &event.waits {
            field("met", met.run.to_string());
        }
        Ok(())
    }
}
