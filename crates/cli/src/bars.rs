//! What moves while a person waits. On standard error, and only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

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
                self.0.set_style(counting());
                self.0.set_length(100);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is within 0 to 100"
                )]
                self.0.set_position(percent.clamp(0.0, 100.0) as u64);
            }
            None => self.0.set_style(spinning()),
        }
    }

    /// Writes something to standard output above it.
    pub fn print(&self, line: &str) {
        self.0.suspend(|| anstream::println!("{line}"));
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
