//! The commands, one file each.

mod act;
mod alerts;
mod audit;
mod build;
mod cells;
mod completions;
mod costs;
mod dashboard;
mod deploy;
mod dev;
mod doctor;
mod events;
mod export;
mod failures;
mod guard;
mod issuers;
mod jobs;
mod keys;
mod lanes;
mod list;
mod logs;
mod namespaces;
mod new;
mod outbox;
mod plan;
mod queues;
mod replay;
mod restart;
mod schedules;
mod session;
mod settings;
mod show;
mod signal;
mod start;
mod tokens;
mod triggers;
mod watch;
mod webhooks;
mod why;
mod workflows;

use clap::Subcommand;

use crate::{Global, failure::Result};

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a project that builds and runs as it is.
    New(new::New),
    /// Build a project, serve it on this machine, and rebuild it when a file changes.
    Dev(dev::Dev),
    /// Serve the dashboard on this machine for a deployment, signed in with its key.
    Dashboard(dashboard::Dashboard),
    /// Build the Worker of a project, as `dev` and `deploy` do.
    Build(build::Build),
    /// Deploy a project to Cloudflare.
    Deploy(deploy::Deploy),
    /// Show what a deploy of this folder would change, and which live runs would diverge.
    Plan(plan::Plan),
    /// Check tools, configuration and deployment, and print how to fix each problem.
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
    /// Explain what a run is waiting for, or why it failed.
    Why(why::Why),
    /// List what has failed, in groups of failures that are alike. Deleted runs count, too.
    Failures(failures::Failures),
    /// Show what each workflow has done, and what it costs.
    Costs(costs::Costs),
    /// List the cells, which hold the runs: how full they are, and what waits in them.
    Cells,
    /// Send a signal to a run.
    Signal(signal::Signal),
    /// Make links that complete a wait of a run, without a key.
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// Pause a run.
    Pause(act::Act),
    /// Resume a paused run.
    Resume(act::Act),
    /// Cancel a run.
    Cancel(act::Act),
    /// Continue a failed run from the step that failed.
    Retry(act::Act),
    /// Continue a run from an earlier step, or start it over.
    Restart(restart::Restart),
    /// Export a run's journal, input and workflow to a JSON file.
    Export(export::Export),
    /// Replay an exported run on the code in this folder, and report where it differs.
    Replay(replay::Replay),
    /// List the app's workflows; pause and resume them.
    #[command(subcommand)]
    Workflows(workflows::Workflows),
    /// Create, list, change, pause and trigger schedules.
    #[command(subcommand)]
    Schedules(schedules::Schedules),
    /// Send an event.
    Emit(events::Emit),
    /// List and show the events of a topic.
    #[command(subcommand)]
    Events(events::Events),
    /// Create, list, change and pause triggers: runs that events start.
    #[command(subcommand)]
    Triggers(triggers::Triggers),
    /// Create, list, test and delete webhooks: addresses where other services deliver events.
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// Send jobs to a queue, claim and end them, and handle dead letters.
    #[command(subcommand)]
    Jobs(jobs::Jobs),
    /// Show who works and waits in the lanes of steps, and set their limits.
    #[command(subcommand)]
    Lanes(lanes::Lanes),
    /// Create, list, change and delete alerts: addresses that are told when something is wrong.
    #[command(subcommand)]
    Alerts(alerts::Alerts),
    /// Create, list, change, pause, purge and delete queues.
    #[command(subcommand)]
    Queues(queues::Queues),
    /// Create, list, rotate and revoke the keys of a namespace.
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Create, list and delete namespaces, and set their limits.
    #[command(subcommand)]
    Namespaces(namespaces::Namespaces),
    /// Show and change the settings for the runs of a namespace.
    #[command(subcommand)]
    Settings(settings::Settings),
    /// Sign in and out; list and end sessions.
    #[command(subcommand)]
    Session(session::Session),
    /// Show who did what to keys, settings and sessions, newest first.
    Audit(audit::Audit),
    /// List messages between runs that have not arrived, and send them again.
    Outbox(outbox::Outbox),
    /// Manage the issuers whose JSON Web Tokens are accepted as keys.
    #[command(subcommand)]
    Issuers(issuers::Issuers),
    /// Print shell completions.
    Completions(completions::Completions),
    /// Run a program that ends with its parent.
    #[command(hide = true)]
    Guard(guard::Guard),
}

impl Command {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::New(command) => command.run(global),
            Self::Dev(command) => command.run(global),
            Self::Dashboard(command) => command.run(global),
            Self::Build(command) => command.run(global),
            Self::Deploy(command) => command.run(global),
            Self::Plan(command) => command.run(global),
            Self::Doctor(command) => command.run(global),
            Self::Start(command) => command.run(global),
            Self::List(command) => command.run(global),
            Self::Show(command) => command.run(global),
            Self::Watch(command) => command.run(global),
            Self::Logs(command) => command.run(global),
            Self::Why(command) => command.run(global),
            Self::Failures(command) => command.run(global),
            Self::Costs(command) => command.run(global),
            Self::Cells => cells::list(global),
            Self::Signal(command) => command.run(global),
            Self::Tokens(command) => command.run(global),
            Self::Pause(command) => command.run(global, "pause"),
            Self::Resume(command) => command.run(global, "resume"),
            Self::Cancel(command) => command.run(global, "cancel"),
            Self::Retry(command) => command.run(global, "retry"),
            Self::Restart(command) => command.run(global),
            Self::Export(command) => command.run(global),
            Self::Replay(command) => command.run(global),
            Self::Workflows(command) => command.run(global),
            Self::Schedules(command) => command.run(global),
            Self::Emit(command) => command.run(global),
            Self::Events(command) => command.run(global),
            Self::Triggers(command) => command.run(global),
            Self::Webhooks(command) => command.run(global),
            Self::Jobs(command) => command.run(global),
            Self::Lanes(command) => command.run(global),
            Self::Alerts(command) => command.run(global),
            Self::Queues(command) => command.run(global),
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
