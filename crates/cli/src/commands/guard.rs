//! `stepwell guard`, which people do not see: becomes another program that ends with its parent.

use std::ffi::OsString;

use clap::Args;

#[cfg(target_os = "linux")]
use crate::failure::Failure;
use crate::failure::Result;

/// What it takes.
#[derive(Debug, Args)]
pub struct Guard {
    /// Kill it at once, instead of asking it to end: it may tidy up for longer than its successor can wait.
    #[arg(long)]
    at_once: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

impl Guard {
    /// Does it. Only Linux can do it, and it is called only there.
    #[cfg(target_os = "linux")]
    pub fn run(self) -> Result {
        use std::os::unix::process::CommandExt as _;

        use rustix::process::{Signal, set_parent_process_death_signal};

        let parent = rustix::process::getppid();
        let signal = if self.at_once { Signal::KILL } else { Signal::TERM };
        set_parent_process_death_signal(Some(signal))
            .map_err(|error| Failure::local(format!("the system refuses: {error}")))?;
        if rustix::process::getppid() != parent {
            // It has ended in between.
            return Ok(());
        }
        let mut command = self.command.into_iter();
        let program = command.next().unwrap_or_default();
        let error = std::process::Command::new(&program).args(command).exec();
        Err(Failure::local(format!("{} cannot be started: {error}", program.display())))
    }

    /// Does nothing.
    #[cfg(not(target_os = "linux"))]
    pub fn run(self) -> Result {
        Ok(())
    }
}
