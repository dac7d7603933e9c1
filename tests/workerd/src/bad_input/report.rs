//! What was counted.

use std::{collections::BTreeMap, fmt};

use anyhow::{Result, ensure};

use super::{Kind, bench::Traces};

/// What was counted of one class.
#[derive(Debug, Default)]
pub struct Class {
    /// How many cases of each kind were as they must be.
    pub good: BTreeMap<Kind, usize>,
    /// What is wrong with the others, by their names.
    pub wrong: Vec<(String, String)>,
    /// How long it took.
    pub seconds: f64,
}

impl Class {
    fn of(&self, kind: Kind) -> usize {
        self.good.get(&kind).copied().unwrap_or_default()
    }

    /// How many cases there are.
    pub fn cases(&self) -> usize {
        self.good.values().sum::<usize>() + self.wrong.len()
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Report {
    /// By class, in the order in which they were tried.
    pub classes: Vec<(&'static str, Class)>,
    /// Answers that were looked at.
    pub answers: u64,
    /// What was found in the log and in storage files.
    pub traces: Traces,
    /// How long it all took.
    pub seconds: f64,
}

/// How many cases there are at the least, when all are tried.
const CASES_MIN: usize = 2_700;

impl Report {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: Self) {
        self.classes.extend(other.classes);
        self.answers += other.answers;
        self.traces += other.traces;
    }

    /// How many cases there are in all.
    pub fn cases(&self) -> usize {
        self.classes.iter().map(|(_, class)| class.cases()).sum()
    }

    /// Whether all of it is as it must be.
    pub fn check(&self, is_all: bool) -> Result<()> {
        let wrong = self.classes.iter().map(|(_, class)| class.wrong.len()).sum::<usize>();
        ensure!(wrong == 0, "{wrong} of {} cases are wrong", self.cases());
        ensure!(self.cases() > 0, "there is no such case");
        ensure!(!is_all || self.cases() >= CASES_MIN, "{} are fewer than {CASES_MIN} cases", self.cases());
        ensure!(self.traces.files > 0, "no storage files were found");
        ensure!(self.traces.canaries == 0, "what was sent is {} times in the log", self.traces.canaries);
        ensure!(self.traces.keys == 0, "keys or tokens were written down {} times", self.traces.keys);
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, columns: [String; 7]| {
            write!(f, "{name:<18}")?;
            columns.iter().try_for_each(|column| write!(f, "{column:>10}"))?;
            writeln!(f)
        };
        let titles = ["cases", "accepted", "refused", "either", "server", "wrong", "seconds"];
        line("class", titles.map(String::from))?;
        let row = |counts: [usize; 6], seconds: f64| {
            let [cases, accepted, refused, either, server, wrong] = counts.map(|count| count.to_string());
            [cases, accepted, refused, either, server, wrong, format!("{seconds:.1}")]
        };
        let mut sums = [0; 6];
        for (name, class) in &self.classes {
            let kinds =
                [Kind::Accepted, Kind::Refused, Kind::Either, Kind::Server].map(|kind| class.of(kind));
            let [accepted, refused, either, server] = kinds;
            let counts = [class.cases(), accepted, refused, either, server, class.wrong.len()];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
            line(name, row(counts, class.seconds))?;
        }
        line("in all", row(sums, self.seconds))?;
        for (class, name, why) in self
            .classes
            .iter()
            .flat_map(|(class, of)| of.wrong.iter().map(move |(name, why)| (class, name, why)))
        {
            writeln!(f, "\n{class}/{name}: {why}\n  just bad-input --only '{class}/{name}'")?;
        }
        let Traces { canaries, keys, files } = self.traces;
        writeln!(f, "server: broken HTTP, which the server may refuse in its own words, or mend")?;
        writeln!(f, "there is no cron yet, so there is no case of one")?;
        writeln!(f, "{} answers looked at; canaries in the log: {canaries}", self.answers)?;
        write!(f, "keys and tokens in the log and in {files} storage files: {keys}")
    }
}
