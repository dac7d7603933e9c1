//! The counts that a person reads.

use std::fmt;

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How engine and app were put together.
    pub form: &'static str,
    /// What a panic does in the bundles.
    pub build: &'static str,
    /// Who was killed how often.
    pub kills: Kills,
    /// Runs that were acknowledged and completed.
    pub runs: u32,
    /// Runs that were live at once, at the most.
    pub live: u32,
    /// Steps that were acknowledged.
    pub steps: u32,
    /// Attempts in the ledger.
    pub attempts: u32,
    /// Attempts that were cut short by a kill before they were acknowledged, so that the step ran again.
    pub cut_short: u32,
    /// Steps that must not run twice and were cut short: they did not run again.
    pub interrupted: u32,
    /// Attempts that failed on purpose and were tried again.
    pub retries: u32,
    /// Signals that were accepted and received.
    pub signals: u32,
    /// Starts that had to be sent again under the same key.
    pub starts_repeated: u32,
    /// How long after the last kill the last run had ended and been seen to.
    pub healed_ms: u128,
    /// Lists, searches and counts that were compared with what is known of the runs.
    pub searches: u32,
}

/// Who was killed how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Only the engine; in the all-in-one form that is everything.
    pub engine: u32,
    /// Only the app.
    pub app: u32,
    /// Both at once.
    pub both: u32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kills { engine, app, both } = self.kills;
        writeln!(
            f,
            "{} ({}): {} kills (engine {engine}, app {app}, both {both})",
            self.form,
            self.build,
            engine + app + both
        )?;
        writeln!(
            f,
            "  {} runs acknowledged, {} completed, 0 lost, up to {} live at once; {} starts repeated under their \
             key",
            self.runs, self.runs, self.live, self.starts_repeated
        )?;
        writeln!(
            f,
            "  {} steps acknowledged, 0 run again; {} attempts in the ledger, of which {} failed on purpose \
             and {} were cut short; {} at-most-once steps interrupted, 0 run twice",
            self.steps, self.attempts, self.retries, self.cut_short, self.interrupted
        )?;
        write!(
            f,
            "  {} signals received once; all runs ended {} ms after the last kill; {} lists, searches and counts \
             right",
            self.signals, self.healed_ms, self.searches
        )
    }
}
