//! What moves while a person waits. On standard error, and only if that is a terminal.

use std::{io::Write as _, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Exit;

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// A spinner beside a text, which vanishes when it is dropped.
#[derive(Debug)]
pub struct Spinner(ProgressBar);

impl Spinner {
    /// Begins to turn.
    pub fn new(text: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(spinning());
        bar.set_message(text.to_owned());
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// Turns beside another text.
    pub fn say(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// Whether anybody sees it.
    pub fn is_hidden(&self) -> bool {
        self.0.is_hidden()
    }

    /// Shows how far something has come, from 0 to 100; without a number it turns again.
    pub fn percent(&self, percent: Option<f64>) {
        match percent {
            Some(percent) => {
                self.0.set_length(100);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is within 0 to 100"
                )]
                self.0.set_position(percent.clamp(0.0, 100.0) as u64);
                // Last of all: nobody should see a bar that is somewhere else.
                self.0.set_style(counting());
            }
            None => self.0.set_style(spinning()),
        }
    }

    /// Says something on standard error above it.
    pub fn note(&self, line: &str) {
        self.0.suspend(|| anstream::eprintln!("{line}"));
    }

    /// Writes something to standard output above it. Ends the program if nobody reads that any more: who follows
    /// something and pipes it to `head` has seen enough.
    pub fn print(&self, line: &str) {
        self.0.suspend(|| {
            if writeln!(anstream::stdout(), "{line}").is_err() {
                std::process::exit(Exit::Local as i32);
            }
        });
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn spinning() -> ProgressStyle {
    ProgressStyle::with_template("{spinner:.cyan} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn counting() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30.cyan/dim} {pos:>3} % {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
