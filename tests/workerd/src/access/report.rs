//! What was counted.

use std::{collections::BTreeMap, fmt};

use anyhow::{Result, ensure};
use stepwell_protocol::routes::Route;

use super::Kind;

/// What was counted.
#[derive(Debug, Default)]
pub struct Report {
    /// How many answers were as they must be, for each kind of caller.
    pub asked: BTreeMap<Kind, usize>,
    /// What was not.
    pub wrong: Vec<String>,
    /// Operations on another namespace's things.
    pub crossings: u32,
    /// How many of them had an effect, or told that there is something.
    pub effects: u32,
    /// Keys that were revoked while they were in use.
    pub revocations: u32,
    /// The longest that one of them was still taken, in milliseconds.
    pub revoked_after_ms: u128,
    /// Ways in that were found once, and are closed.
    pub exploits: usize,
    /// Keys and tokens that were given out.
    pub secrets: usize,
    /// Storage files that were looked through.
    pub files: usize,
    /// How often a key or token was found in them, or in the log.
    pub traces: usize,
}

/// Within which time a revocation takes effect.
const REVOKED_WITHIN_MS: u128 = 1_000;

impl Report {
    /// Whether all of it is as it must be.
    pub fn check(&self) -> Result<()> {
        let routes = Route::ALL.len();
        for kind in Kind::ALL {
            let asked = self.asked.get(&kind).copied().unwrap_or_default();
            ensure!(asked + self.wrong_of(kind) == routes, "{kind:?}: {asked} of {routes} routes were asked");
        }
        ensure!(self.wrong.is_empty(), "{} answers are wrong:\n{}", self.wrong.len(), self.wrong.join("\n"));
        ensure!(self.effects == 0, "{} crossings had an effect", self.effects);
        ensure!(
            self.revoked_after_ms <= REVOKED_WITHIN_MS,
            "a revoked key was taken for {} ms",
            self.revoked_after_ms
        );
        ensure!(self.files > 0, "no storage files were found");
        ensure!(self.traces == 0, "keys or tokens were written down {} times", self.traces);
        Ok(())
    }

    fn wrong_of(&self, kind: Kind) -> usize {
        self.wrong.iter().filter(|line| line.ends_with(&format!("({kind:?})"))).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = Route::ALL.len();
        writeln!(f, "{routes} routes, {} kinds of callers:", Kind::ALL.len())?;
        for (kind, asked) in &self.asked {
            writeln!(f, "  {asked} of {routes} as they must be: {kind:?}")?;
        }
        writeln!(f, "{} exploits tried, none of which works", self.exploits)?;
        writeln!(f, "{} operations across namespaces, {} with an effect", self.crossings, self.effects)?;
        writeln!(
            f,
            "{} keys revoked while in use, the last request taken {} ms after it",
            self.revocations, self.revoked_after_ms
        )?;
        write!(
            f,
            "{} keys and tokens, found {} times in {} storage files and the log",
            self.secrets, self.traces, self.files
        )
    }
}
