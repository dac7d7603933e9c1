//! What happens to a run, as it happens: the one seam between whoever shows it and how it is learnt.

use std::{
    thread,
    time::{Duration, Instant},
};

use stepwell_protocol::{
    Record, Seq,
    rest::{RunView, Why},
};

use crate::{
    client::Client,
    failure::{Exit, Result},
};

/// How long the server may hold a question while nothing happens, in seconds.
const HOLD: u64 = 1;

/// How long to wait after an answer that came at once.
const PAUSE: Duration = Duration::from_millis(200);

/// For how long a server may be away before that is an error: a deployment or a new build takes it down for a moment.
const AWAY: Duration = Duration::from_secs(30);

/// What is new about a run.
#[derive(Debug)]
pub struct News {
    /// The run.
    pub run: RunView,
    /// Its JSON as it came.
    pub text: String,
    /// Events that were not told before.
    pub events: Vec<Record>,
    /// Why it is where it is, while it has not ended.
    pub why: Option<Why>,
}

/// Tells what happens to one run, each event once and in order.
pub trait Feed {
    /// The next news; the first one comes at once.
    fn next(&mut self) -> Result<News>;
}

/// Asks again and again.
#[derive(Debug)]
pub struct Polling<'c> {
    client: &'c Client,
    id: String,
    known: Seq,
    has_asked: bool,
}

impl<'c> Polling<'c> {
    /// A feed of this run.
    pub fn new(client: &'c Client, id: &str) -> Self {
        Self { client, id: id.to_owned(), known: Seq(0), has_asked: false }
    }
}

impl Feed for Polling<'_> {
    fn next(&mut self) -> Result<News> {
        if !self.has_asked {
            let news = self.ask(0)?;
            self.has_asked = true;
            return Ok(news);
        }
        let began = Instant::now();
        loop {
            thread::sleep(PAUSE);
            match self.ask(HOLD) {
                Err(failure) if failure.exit == Exit::Unreachable && began.elapsed() < AWAY => {}
                answer => return answer,
            }
        }
    }
}

impl Polling<'_> {
    fn ask(&mut self, wait: u64) -> Result<News> {
        let run = self.client.run(&self.id, wait)?;
        let (mut events, mut known) = (Vec::new(), self.known);
        while known < run.value.head {
            let page = self.client.history(&self.id, known)?.value;
            let Some(last) = page.events.last().map(|record| record.seq) else { break };
            known = last;
            events.extend(page.events);
        }
        let why = if run.value.status.is_terminal() { None } else { Some(self.client.why(&self.id)?.value) };
        // Only what is told counts as known: a question that fails half way is asked again.
        self.known = known;
        Ok(News { run: run.value, text: run.text, events, why })
    }
}
