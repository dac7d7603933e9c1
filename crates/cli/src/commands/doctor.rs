//! `stepwell doctor`: looks at everything that the other commands need, and says how to mend what is missing.

use anstyle::{AnsiColor, Style};
use clap::Args;

use crate::{
    Global,
    bars::Spinner,
    checkup::{self, Check, State},
    failure::{Exit, Failure, Result},
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Check only the deployment, not the tools.
    #[arg(long)]
    remote: bool,
}

impl Doctor {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let spinner = Spinner::new("looking");
        let checks = checkup::all(global, self.remote);
        drop(spinner);
        let is_well = checks.iter().all(|check| check.state != State::Bad);
        if global.json {
            anstream::println!("{}", serde_json::to_string(&checks).expect("texts can be written as JSON"));
        } else {
            checks.iter().for_each(tell);
        }
        if is_well { Ok(()) } else { Err(Failure::told(Exit::Local)) }
    }
}

fn tell(check: &Check) {
    let (symbol, style) = match check.state {
        State::Good => ('✓', AnsiColor::Green.on_default()),
        State::Note => ('–', AnsiColor::Yellow.on_default()),
        State::Bad => ('✗', AnsiColor::Red.on_default()),
    };
    anstream::println!("{style}{symbol}{style:#} {:13} {}", check.name, check.found);
    if let Some(remedy) = &check.remedy {
        let bold = Style::new().bold();
        anstream::println!("{:15} {bold}→{bold:#} {remedy}", "");
    }
}
