//! What a stream of the deployment tells, as it tells it.
//!
//! Owns: the way back. When the connection breaks, a feed comes back by itself, with the cursor of the last event that
//! it has given: so whoever reads it misses nothing and sees nothing twice. A server that stays away for too long, or
//! that says no, is an error. How a stream is written lies in [`crate::events`].

use std::{
    io::BufReader,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, de::IgnoredAny};
use stepwell_protocol::{Payload, Timestamp, stream::Kind};

use crate::{
    client::Client,
    events::{Blocks, Said},
    failure::{Exit, Failure, Result},
};

/// How long to wait before the first way back; each further one waits twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// How long to wait at the most.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// For how long a server may be away before that is an error: a deployment or a new build takes it down for a moment.
const AWAY: Duration = Duration::from_secs(60);

/// How many events are read ahead of whoever shows them.
const AHEAD: usize = 64;

/// One event of a stream.
#[derive(Debug)]
pub struct Event {
    /// Its JSON as it came.
    pub text: String,
    /// The cursor after it.
    pub id: String,
    /// What kind of thing it is; nothing, if this command does not know it yet.
    pub kind: Option<Kind>,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub data: Payload,
}

/// What a feed tells.
#[derive(Debug)]
pub enum News {
    /// Something happened.
    Event(Event),
    /// The connection broke, for this reason. The feed is about to come back.
    Broken(String),
    /// It has come back.
    Back,
    /// Nothing happened for a while.
    Quiet,
}

/// Tells what a stream tells, each event once and in order.
#[derive(Debug)]
pub struct Feed<'c> {
    client: &'c Client,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    cursor: Option<String>,
    open: Option<Receiver<Heard>>,
    /// Why there is no connection any more.
    broken: Option<Failure>,
    away: Away,
}

/// What the thread tells that reads.
#[derive(Debug)]
enum Heard {
    Said(Said),
    Broken(String),
}

impl<'c> Feed<'c> {
    /// A feed of the stream at this path, from its beginning on.
    pub fn new(client: &'c Client, path: &[&str], query: Vec<(&'static str, String)>) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Self { client, path, query, cursor: None, open: None, broken: None, away: Away::default() }
    }

    /// The same from a cursor on.
    #[must_use]
    pub fn after(self, cursor: Option<String>) -> Self {
        Self { cursor, ..self }
    }

    /// The cursor of the last event that was given.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next news; quiet, if none come within this time.
    pub fn next(&mut self, within: Duration) -> Result<News> {
        let Some(heard) = &self.open else {
            let is_first = self.broken.is_none();
            self.open = Some(self.connect()?);
            return if is_first { self.next(within) } else { Ok(News::Back) };
        };
        let why = match heard.recv_timeout(within) {
            Ok(Heard::Said(Said::Event(text))) => {
                let event = read(text).map_err(|error| self.client.unknown(&error))?;
                self.cursor = Some(event.id.clone());
                // It comes with each connection, also with one that breaks at once.
                if event.kind != Some(Kind::Ready) {
                    self.away = Away::default();
                }
                return Ok(News::Event(event));
            }
            Ok(Heard::Said(Said::Alive)) => {
                self.away = Away::default();
                return Ok(News::Quiet);
            }
            Err(RecvTimeoutError::Timeout) => return Ok(News::Quiet),
            Ok(Heard::Broken(why)) => why,
            Err(RecvTimeoutError::Disconnected) => "it was not read to its end".to_owned(),
        };
        self.open = None;
        self.broken = Some(self.client.broken(&why));
        Ok(News::Broken(why))
    }

    /// Asks for something else, for as long as a stream may be away.
    pub fn patiently<T>(&mut self, ask: impl Fn(&Client) -> Result<T>) -> Result<T> {
        let mut away = Away::default();
        loop {
            match ask(self.client) {
                Err(failure) if passes(&failure) => away.wait(failure)?,
                answer => return answer,
            }
        }
    }

    fn connect(&mut self) -> Result<Receiver<Heard>> {
        // Who never was there may as well be told at once.
        let has_been = self.broken.is_some();
        let mut failure = self.broken.take();
        loop {
            if let Some(failure) = failure.take() {
                self.away.wait(failure)?;
            }
            let path: Vec<_> = self.path.iter().map(String::as_str).collect();
            match self.client.stream(&path, &self.query, self.cursor.as_deref()) {
                Ok(body) => return Ok(listen(Blocks::new(BufReader::new(body)))),
                Err(again) if has_been && passes(&again) => failure = Some(again),
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// Reads an event.
fn read(text: String) -> serde_json::Result<Event> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Known(Kind),
        Unknown(IgnoredAny),
    }
    #[derive(Deserialize)]
    struct Raw {
        id: String,
        #[serde(rename = "type")]
        kind: Word,
        at: Timestamp,
        data: Payload,
    }
    let Raw { id, kind, at, data } = serde_json::from_str(&text)?;
    let kind = match kind {
        Word::Known(kind) => Some(kind),
        Word::Unknown(_) => None,
    };
    Ok(Event { text, id, kind, at, data })
}

/// Reads in a thread of its own, so that whoever waits can do something else now and then. It ends with its
/// connection, or when nobody listens any more.
fn listen(mut blocks: Blocks<BufReader<impl std::io::Read + Send + 'static>>) -> Receiver<Heard> {
    let (tell, heard): (SyncSender<Heard>, _) = sync_channel(AHEAD);
    thread::spawn(move || {
        loop {
            let (said, is_over) = match blocks.next() {
                Ok(Some(said)) => (Heard::Said(said), false),
                Ok(None) => (Heard::Broken("the server has closed it".into()), true),
                Err(error) => (Heard::Broken(crate::words::plain(&error.to_string())), true),
            };
            if tell.send(said).is_err() || is_over {
                return;
            }
        }
    });
    heard
}

/// Whether a failure may be over in a moment.
fn passes(failure: &Failure) -> bool {
    let is_busy = matches!(failure.code.as_deref(), Some("internal" | "limit_reached"));
    failure.exit == Exit::Unreachable || failure.exit == Exit::Refused && is_busy
}

/// How long something has been away.
#[derive(Debug)]
struct Away {
    since: Option<Instant>,
    pause: Duration,
}

impl Default for Away {
    fn default() -> Self {
        Self { since: None, pause: PAUSE_MIN }
    }
}

impl Away {
    /// Waits a little longer each time; gives the failure back once that has gone on for too long.
    fn wait(&mut self, failure: Failure) -> Result {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() + self.pause > AWAY {
            return Err(failure);
        }
        thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_kind_that_is_not_known_yet_is_passed_on_as_it_came() {
        let text = r#"{"id":"1.0.7","type":"weather","at":5,"data":{"sun":true}}"#;
        let event = read(text.to_owned()).expect("it is an event");
        assert_eq!((event.kind, event.text.as_str(), event.id.as_str()), (None, text, "1.0.7"));
        let event = read(text.replace("weather", "log")).expect("it is an event");
        assert_eq!(event.kind, Some(Kind::Log));
    }

    #[test]
    fn only_what_may_be_over_soon_is_waited_for() {
        assert!(passes(&Failure::new(Exit::Unreachable, "no server is listening there")));
        assert!(passes(&Failure::new(Exit::Refused, "too much").code("limit_reached")));
        assert!(!passes(&Failure::new(Exit::Refused, "no").code("unauthorized")));
        assert!(!passes(&Failure::usage("no")));
    }
}
