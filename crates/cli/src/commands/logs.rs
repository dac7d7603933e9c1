//! `stepwell logs`: what a run's code has logged.

use clap::{Args, ValueEnum};
use stepwell_protocol::{
    rest::RunView,
    stream::{self, Chunk, Kind, LogLine},
};

use super::watch;
use crate::{
    Global,
    bars::Spinner,
    failure::Result,
    feed::{Event, Feed, News},
    naming::RunName,
    published::{self, PublishedItem},
    words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Logs {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
    /// Follow new lines until the run ends.
    #[arg(long, short)]
    follow: bool,
    /// Only lines of this level or a higher one.
    #[arg(long, default_value = "debug")]
    level: Level,
    /// Also print chunks published with `ctx.publish`.
    #[arg(long)]
    chunks: bool,
    /// Continue after this event: an `id` from the output of --json.
    #[arg(long, value_name = "ID")]
    cursor: Option<String>,
}

/// A level, as the command line knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl From<Level> for stream::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}

impl Logs {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let kinds = if self.chunks { "log,chunk" } else { "log" };
        let query = vec![("types", kinds.to_owned()), ("follow", self.follow.to_string())];
        let id = self.run.id(&client)?;
        let path = ["executions", &id, "stream"];
        let mut feed = Feed::new(&client, &path, query).after(self.cursor.clone());
        let spinner = Spinner::new("its log");
        let again = format!("stepwell logs {id}");
        let mut lines = 0;
        loop {
            let News::Event(event) = watch::next(&mut feed, &spinner, &again)? else { continue };
            if event.kind == Some(Kind::End) {
                drop(spinner);
                if lines == 0 && !global.json {
                    self.tell_none(&event);
                }
                return Ok(());
            }
            let Some(line) = self.line(&event) else { continue };
            spinner.print(if global.json { &event.text } else { &line });
            lines += 1;
        }
    }

    /// An event as a line, if it is wanted.
    fn line(&self, event: &Event) -> Option<String> {
        let text = match published::item(event)? {
            PublishedItem::Log(LogLine { level, .. }) if level < self.level.into() => return None,
            PublishedItem::Log(LogLine { level, message, op }) => {
                let (style, word) = (published::level_style(level), published::level_word(level));
                let by = published::by(op.as_ref());
                format!("{style}{word}{style:#}  {}{by}", words::plain(&message))
            }
            PublishedItem::Chunk(Chunk { name, value, op }) => {
                let by = published::by(op.as_ref());
                format!("chunk  {}: {}{by}", words::plain(&name), words::plain(value.text()))
            }
            PublishedItem::LeftOut(count) => format!("…      {}", published::left_out(count)),
        };
        Some(format!("{}  {text}", words::moment(event.at)))
    }

    fn tell_none(&self, event: &Event) {
        let has_ended = event.data.decode().is_ok_and(|run: RunView| run.status.is_terminal());
        let after = if self.cursor.is_some() { " after that" } else { "" };
        let what = if self.level == Level::Debug { "nothing" } else { "nothing at that level" };
        if has_ended {
            anstream::eprintln!("It has logged {what}{after}.");
        } else {
            anstream::eprintln!("It has logged {what}{after} so far; --follow waits for more.");
        }
    }
}
