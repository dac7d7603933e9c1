//! `stepwell start`: starts a run.

use std::{fs, io::Read as _, path::PathBuf};

use clap::Args;
use serde::de::IgnoredAny;
use stepwell_protocol::rest::RunView;

use super::watch;
use crate::{
    Global,
    client::{Answer, Ask},
    failure::{Failure, Result},
    schema, words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Start {
    /// The workflow's name.
    workflow: String,
    #[command(flatten)]
    input: Json,
    /// A tag to find the run by; up to eight.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The same key with the same workflow and input returns the same run.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Start the run later: in 2h, 30m, '1d 12h'; at most a year.
    #[arg(long = "in", value_name = "TIME", conflicts_with = "at")]
    after: Option<String>,
    /// Start the run at an instant, such as 2026-12-01T09:00:00Z.
    #[arg(long, value_name = "INSTANT")]
    at: Option<String>,
    /// Call this https address when the run ends, with a signed POST.
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Start the run even if the input does not fit the workflow's schema.
    #[arg(long)]
    no_check: bool,
    /// Follow the run until it ends, as `stepwell watch` does.
    #[arg(long)]
    watch: bool,
    /// Print only the run's id.
    #[arg(long, short, conflicts_with_all = ["watch", "json"])]
    quiet: bool,
}

/// A JSON value on the command line, or from a file.
#[derive(Debug, Args)]
pub struct Json {
    /// The input as JSON: '"Ada"', 42, '{"order":7}'. The default is null.
    #[arg(value_name = "JSON", conflicts_with_all = ["text", "file"])]
    value: Option<String>,
    /// The input as text, sent as a JSON string.
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    text: Option<String>,
    /// A file with the input as JSON; - is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Json {
    /// The JSON text, if there is one.
    pub fn json(self) -> Result<Option<String>> {
        let (text, from) = match self {
            Self { text: Some(text), .. } => {
                return Ok(Some(serde_json::to_string(&text).expect("a text can be written as JSON")));
            }
            Self { file: Some(file), .. } => (read(&file)?, file.display().to_string()),
            Self { value: Some(value), .. } => (value, "the input".to_owned()),
            Self { .. } => return Ok(None),
        };
        match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => Ok(Some(text)),
            Err(error) => Err(Failure::usage(format!("{from} is not JSON: {error}")).next(
                "JSON is true, 42 or '\"Ada\"', with quotes that the shell preserves. For text, --text Ada does.",
            )),
        }
    }
}

fn read(file: &PathBuf) -> Result<String> {
    let read = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(file)
    };
    read.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))
}

impl Start {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let input = self.input.json()?;
        if !self.no_check {
            schema::check(&client, &self.workflow, input.as_deref())?;
        }
        let ask = Ask {
            query: self.tags.into_iter().map(|tag| ("tag", tag)).collect(),
            body: input,
            idempotency_key: self.idempotency_key,
            delay: self.after.or(self.at),
            callback: self.callback,
            ..Ask::default()
        };
        let answer: Answer<RunView> = client.post(&["workflows", &self.workflow, "start"], &ask)?;
        let id = answer.value.id.to_string();
        if self.watch {
            if !global.json {
                anstream::println!("{id}");
            }
            return watch::follow(global, &client, &answer.value, None);
        }
        if global.json {
            anstream::println!("{}", answer.text);
        } else if self.quiet {
            anstream::println!("{id}");
        } else {
            match answer.value.starts_at {
                Some(at) => anstream::println!("{id} starts at {}", words::date(at)),
                None => anstream::println!("{id} is {}", words::status(answer.value.status)),
            }
            anstream::eprintln!("next: stepwell watch {id}");
        }
        Ok(())
    }
}
