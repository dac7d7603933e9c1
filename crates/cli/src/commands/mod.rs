//! The commands, one file each.

mod act;
mod audit;
mod completions;
mod deploy;
mod dev;
mod doctor;
mod export;
mod guard;
mod issuers;
mod keys;
mod list;
mod logs;
mod namespaces;
mod new;
mod outbox;
mod plan;
mod replay;
mod restart;
mod schedules;
mod session;
mod settings;
mod show;
mod signal;
mod start;
mod watch;
mod why;
mod workflows;

use clap::Subcommand;

use crate::{Global, failure::Result};

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a project that builds and runs as it is.
    New(new::New),
    /// Build a project, serve it on this machine, and build it again whenever a file changes.
    Dev(dev::Dev),
    /// Put a project on Cloudflare.
    Deploy(deploy::Deploy),
    /// Show what a deploy of this folder would change, and which live runs would diverge.
    Plan(plan::Plan),
    /// Look at tools, configuration and deployment, and say how to mend what is wrong.
    Doctor(doctor::Doctor),
    /// Start a run.
    Start(start::Start),
    /// List runs, newest first.
    List(list::List),
    /// Show a run with its timeline.
    Show(show::Show),
    /// Follow a run until it ends, or the statuses of all runs.
    Watch(watch::Watch),
    /// Show what a run has logged.
    Logs(logs::Logs),
    /// Say why a run is where it is.
    Why(why::Why),
    /// Send a run a signal.
    Signal(signal::Signal),
    /// Stop a run for a while.
    Pause(act::Act),
    /// Let a paused run go on.
    Resume(act::Act),
    /// Cancel a run.
    Cancel(act::Act),
    /// Let a failed run go on from the step that failed.
    Retry(act::Act),
    /// Take a run back to before a step, and let it go on from there.
    Restart(restart::Restart),
    /// Write a run's journal, with its input and workflow, as one JSON file.
    Export(export::Export),
    /// Replay an exported journal on the code of this folder: does it still do the same?
    Replay(replay::Replay),
    /// List the app's workflows; pause and resume them.
    #[command(subcommand)]
    Workflows(workflows::Workflows),
    /// Start runs at certain times: make, list, change, pause and trigger schedules.
    #[command(subcommand)]
    Schedules(schedules::Schedules),
    /// Make, list, rotate and revoke the keys of a namespace.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Make and list namespaces, and set what each may use.
    #[command(subcommand)]
    Namespaces(namespaces::Namespaces),
    /// Show and set what holds for the runs of a namespace.
    #[command(subcommand)]
    Settings(settings::Settings),
    /// Sign in and out; list and end sessions.
    #[command(subcommand)]
    Session(session::Session),
    /// Show who did what to keys, settings and sessions, newest first.
    Audit(audit::Audit),
    /// Show messages between runs that have not arrived, and send them again.
    Outbox(outbox::Outbox),
    /// Say whose JSON Web Tokens are taken like keys.
    #[command(subcommand)]
    Issuers(issuers::Issuers),
    /// Write the completions of a shell.
    Completions(completions::Completions),
    /// Become another program that ends with its parent.
    #[command(hide = true)]
    Guard(guard::Guard),
}

impl Command {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::New(command) => command.run(global),
            Self::Dev(command) => command.run(global),
            Self::Deploy(command) => command.run(global),
            Self::Plan(command) => command.run(global),
            Self::Doctor(command) => command.run(global),
            Self::Start(command) => command.run(global),
            Self::List(command) => command.run(global),
            Self::Show(command) => command.run(global),
            Self::Watch(command) => command.run(global),
            Self::Logs(command) => command.run(global),
            Self::Why(command) => command.run(global),
            Self::Signal(command) => command.run(global),
            Self::Pause(command) => command.run(global, "pause"),
            Self::Resume(command) => command.run(global, "resume"),
            Self::Cancel(command) => command.run(global, "cancel"),
            Self::Retry(command) => command.run(global, "retry"),
            Self::Restart(command) => command.run(global),
            Self::Export(command) => command.run(global),
            Self::Replay(command) => command.run(global),
            Self::Workflows(command) => command.run(global),
            Self::Schedules(command) => command.run(global),
            Self::Keys(command) => command.run(global),
            Self::Namespaces(command) => command.run(global),
            Self::Settings(command) => command.run(global),
            Self::Session(command) => command.run(global),
            Self::Audit(command) => command.run(global),
            Self::Outbox(command) => command.run(global),
            Self::Issuers(command) => command.run(global),
            Self::Completions(command) => {
                command.run();
                Ok(())
            }
            Self::Guard(command) => command.run(),
        }
    }
}
