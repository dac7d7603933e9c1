//! `stepwell why`: why a run is where it is.

use clap::Args;
use stepwell_protocol::rest::Status;

use crate::{Global, failure::Result, naming::RunName, words};

/// What it takes.
#[derive(Debug, Args)]
pub struct Why {
    /// The run's id, or WORKFLOW/KEY with the idempotency key that started it.
    #[arg(value_name = "RUN")]
    run: RunName,
}

impl Why {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let id = self.run.id(&client)?;
        let answer = client.why(&id)?;
        if global.json {
            anstream::println!("{}", answer.text);
            return Ok(());
        }
        let (why, now) = (answer.value, words::now());
        anstream::println!("{}: {}", words::status(why.status), words::plain(&why.because));
        if why.status == Status::Failed
            && let Some(error) = client.run(&id, 0)?.value.error
        {
            let code = error.code.map(|code| format!(" ({})", code.as_str())).unwrap_or_default();
            anstream::println!("  error: {}{code}", words::plain(&error.message));
            anstream::println!("  continue from the failed step: stepwell retry {id}");
        }
        for waits_for in &why.waits_for {
            let until = waits_for.until.map(|until| {
                let verb = match waits_for.kind.as_str() {
                    "wait" | "event" => "times out",
                    "token" => "expires",
                    _ => "is over",
                };
                format!(" ({verb} {}, at {})", words::distance(until, now), words::date(until))
            });
            let name = words::plain(&waits_for.name);
            anstream::println!("  {} {name}{}", words::plain(&waits_for.kind), until.unwrap_or_default());
            if waits_for.kind == "token" {
                anstream::println!("  make another link: stepwell tokens create {id} {name}");
            }
            if let ("event" | "cancel_on", Some(since)) = (waits_for.kind.as_str(), waits_for.since) {
                let when = waits_for.when.as_deref().map(|when| format!(" if {}", words::plain(when)));
                anstream::println!("    since {}{}", words::date(since), when.unwrap_or_default());
            }
            if waits_for.kind == "wait" || waits_for.kind == "token" {
                let value = match waits_for.expects.as_deref() {
                    // It is what is sent if nothing else is said.
                    Some("null") => String::new(),
                    Some(expects) => format!(" VALUE, where VALUE is {}", words::plain(expects)),
                    None => " VALUE".to_owned(),
                };
                anstream::println!("  send it: stepwell signal {id} {name}{value}");
            }
        }
        if let Some(life) = why.life {
            anstream::println!("  life {}", words::life(&life, now));
        }
        if let Some(trouble) = why.trouble {
            anstream::println!(
                "  trouble since it last got on: its program died {} times, its cell {} times, and it was out of \
                 reach {} times",
                trouble.strikes,
                trouble.suspicion,
                trouble.losses
            );
        }
        Ok(())
    }
}
