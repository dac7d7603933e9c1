//! `stepwell completions`: what a shell needs to complete the command line.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::CommandLine;

/// What it takes.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Does it.
    pub fn run(self) {
        let mut command = CommandLine::command();
        clap_complete::generate(self.shell, &mut command, "stepwell", &mut std::io::stdout());
    }
}
