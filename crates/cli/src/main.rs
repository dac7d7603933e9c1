//! The command line of Stepwell.
//!
//! A command is one file in [`commands`]. Results go to standard output, as a text for people or, with `--json`, as
//! JSON; everything else goes to standard error. [`failure`] has the exit codes.

mod bars;
mod browser;
mod building;
mod changes;
mod checkup;
mod client;
mod commands;
mod config;
mod dashboard;
mod events;
mod failure;
mod feed;
mod first;
mod linked;
mod local;
mod lock;
mod names;
mod naming;
#[cfg(test)]
mod pages;
mod private;
mod project;
mod published;
mod schema;
mod serving;
mod sources;
mod table;
mod templates;
mod timeline;
mod tools;
mod trust;
mod variables;
mod words;

use std::process::ExitCode;

use clap::{Args, ColorChoice, Parser};

use crate::{
    client::Client,
    config::{Given, Key, Target},
    failure::{Exit, Result},
};

/// Durable workflows on Cloudflare.
#[derive(Debug, Parser)]
#[command(
    name = "stepwell",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 refused by the server, 2 usage, 3 no answer, 4 the run failed or was \
                  cancelled, 5 the run is paused with a problem, 6 something on this machine, 7 a replay differs."
)]
struct CommandLine {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: commands::Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
struct Global {
    /// The address of the deployment; also `STEPWELL_ADDRESS`.
    #[arg(long, global = true, value_name = "URL")]
    address: Option<String>,
    /// The key; also `STEPWELL_KEY`, which other users of this machine cannot see.
    #[arg(long, global = true, value_name = "KEY")]
    key: Option<Key>,
    /// A profile of the configuration file, or `local` for the project in this folder.
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,
    /// Allow sending the key over plain http to another machine. Others on the network can read it.
    #[arg(long, global = true)]
    insecure: bool,
    /// Write JSON.
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours; `NO_COLOR` is respected.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

impl Global {
    /// Which deployment is meant.
    fn target(&self) -> Result<Target> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        config::target(Given {
            address: self.address.clone(),
            key: self.key.clone(),
            profile: self.profile.clone(),
            environment_address: variable("STEPWELL_ADDRESS"),
            environment_key: variable("STEPWELL_KEY").map(Key::from),
            insecure: self.insecure,
            local: local::find(),
        })
    }

    /// Whether a person has said which deployment is meant.
    fn names_a_deployment(&self) -> bool {
        let variable = std::env::var_os("STEPWELL_ADDRESS").is_some_and(|value| !value.is_empty());
        self.address.is_some() || self.profile.is_some() || variable
    }

    fn client(&self) -> Result<Client> {
        Ok(Client::new(self.target()?))
    }
}

fn main() -> ExitCode {
    let CommandLine { global, command } = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) if error.use_stderr() => {
            // It quotes what it does not understand, and that may be a key.
            anstream::eprint!("{}", words::without_keys(&error.render().ansi().to_string()));
            return ExitCode::from(Exit::Usage as u8);
        }
        // Help and version.
        Err(asked) => asked.exit(),
    };
    let choice = match global.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    match command.run(&global) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(global.json),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn no_two_arguments_of_a_command_have_the_same_name() {
        CommandLine::command().debug_assert();
    }

    /// Two arguments of one name are one to clap, even if they have different types.
    #[test]
    fn no_argument_of_a_command_has_the_name_of_one_that_every_command_takes() {
        fn look(command: &clap::Command, global: &[String], path: &str) {
            for sub in command.get_subcommands() {
                let path = format!("{path} {}", sub.get_name());
                for argument in sub.get_arguments().filter(|argument| !argument.is_global_set()) {
                    // A profile of cargo; and `build` asks no deployment.
                    let is_other = path == "stepwell build" && argument.get_id() == "profile";
                    assert!(
                        is_other || !global.contains(&argument.get_id().to_string()),
                        "{path}: {}",
                        argument.get_id()
                    );
                }
                look(sub, global, &path);
            }
        }
        let command = CommandLine::command();
        let global = command.get_arguments().filter(|argument| argument.is_global_set());
        let global: Vec<_> = global.map(|argument| argument.get_id().to_string()).collect();
        assert!(global.contains(&"key".to_owned()), "{global:?}");
        look(&command, &global, "stepwell");
    }
}
