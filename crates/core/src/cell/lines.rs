//! Lines of the log: what runs have done, for whoever operates a deployment.
//!
//! Owns: which lines follow from what was stored, and how loud each of them is. A line has names, numbers and codes. It never
//! has what a caller or a program has put into a run: no input, no result, no payload of a signal, no message of a failure.

use stepwell_protocol::{Code, Epoch, Event, Op, Outcome, Record, RunId};

use super::{Cell, Order};
use crate::run::{Entry, PauseWhy, Run, Trouble};

/// How loud a line is, and up to where lines are written: each level has those before it, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is written.
    #[default]
    Off,
    /// Something failed for good.
    Error,
    /// Something went wrong, and is tried again.
    Warn,
    /// A run began, ended, or was changed by a person.
    Info,
    /// Everything else.
    Debug,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// The level that a word means.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How loud it is.
    pub level: Level,
    /// What happened.
    pub event: &'static str,
    /// The run.
    pub run: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Its latest activation.
    pub epoch: Epoch,
    /// The step, sleep, wait, signal, lane or child.
    pub name: Option<String>,
    /// Which attempt of a step, from 1.
    pub attempt: Option<u32>,
    /// Which problem of Stepwell's own it is, if it is one.
    pub code: Option<Code>,
    /// Who has done it, if somebody has.
    pub by: Option<String>,
}

impl Cell {
    /// Tells of these lines from here on.
    pub fn log(&mut self, level: Level) {
        self.log_level = level;
    }

    /// A run was started, and these were recorded of it at once.
    pub(super) fn tell_lines_of_start(&mut self, run: &Run, entries: &[Entry]) {
        let mut telling = Telling::new(self.log_level, run, entries);
        telling.tell(Level::Info, "run_started", |line| line.by.clone_from(&run.started_by));
        for entry in entries {
            telling.take(entry);
        }
        self.order_lines(telling.lines);
    }

    /// Something was recorded of a run, and stored.
    pub(super) fn tell_lines(&mut self, run: &Run, entries: &[Entry]) {
        // Whoever takes a run up again records the signals again that it keeps. They were told when they came.
        let is_reopened = entries.iter().any(|entry| matches!(entry, Entry::Reopened { .. }));
        let mut telling = Telling::new(self.log_level, run, entries);
        for entry in entries {
            if !is_reopened || entry.record().is_none() {
                telling.take(entry);
            }
        }
        self.order_lines(telling.lines);
    }

    fn order_lines(&mut self, lines: Vec<Line>) {
        if !lines.is_empty() {
            self.object.order(Order::Log(lines));
        }
    }
}

/// Goes through what was recorded of a run.
struct Telling<'a> {
    level: Level,
    run: &'a Run,
    by: Option<&'a str>,
    lines: Vec<Line>,
}

impl<'a> Telling<'a> {
    fn new(level: Level, run: &'a Run, entries: &'a [Entry]) -> Self {
        let by = entries
            .iter()
            .find_map(|entry| if let Entry::ActedOn(act) = entry { Some(act.by.as_str()) } else { None });
        Self { level, run, by, lines: Vec::new() }
    }

    fn tell(&mut self, level: Level, event: &'static str, describe: impl FnOnce(&mut Line)) {
        if level > self.level {
            return;
        }
        let mut line = Line {
            level,
            event,
            run: self.run.id.clone(),
            workflow: self.run.workflow.clone(),
            epoch: self.run.epoch,
            name: None,
            attempt: None,
            code: None,
            by: None,
        };
        describe(&mut line);
        self.lines.push(line);
    }

    fn plain(&mut self, level: Level, event: &'static str) {
        self.tell(level, event, |_| {});
    }

    fn by_somebody(&mut self, event: &'static str) {
        let by = self.by.map(str::to_owned);
        self.tell(Level::Info, event, |line| line.by = by);
    }

    fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Recorded { record, .. } => self.record(record),
            Entry::Queued { .. } => self.plain(Level::Debug, "run_queued"),
            Entry::Activated { .. } => self.plain(Level::Debug, "run_activated"),
            Entry::Suspended => self.plain(Level::Debug, "run_suspended"),
            Entry::Joined(_) => self.plain(Level::Debug, "run_joined"),
            Entry::Troubled(trouble)
                if *trouble != (Trouble { since: trouble.since, ..Trouble::default() }) =>
            {
                self.tell(Level::Warn, "activation_failed", |line| line.code = trouble.refused);
            }
            Entry::BegunAnew { .. } => self.plain(Level::Info, "run_continued_as_new"),
            Entry::Reopened { .. } => self.by_somebody("run_reopened"),
            Entry::Paused(PauseWhy::Request) => self.by_somebody("run_paused"),
            Entry::Paused(PauseWhy::Problem(problem)) => {
                self.tell(Level::Error, "run_paused", |line| line.code = Some(problem.code));
            }
            Entry::Completed { .. } => self.plain(Level::Info, "run_completed"),
            Entry::Failed { failure, .. } => {
                self.tell(Level::Error, "run_failed", |line| line.code = failure.code);
            }
            Entry::Cancelled { .. } => self.by_somebody("run_cancelled"),
            Entry::Expired => self.plain(Level::Debug, "run_expired"),
            // They say how something is kept that another entry says.
            Entry::Troubled(_)
            | Entry::SignalNoted(_)
            | Entry::SignalForgotten(_)
            | Entry::TokenKeyUsed(_)
            | Entry::Marked(_)
            | Entry::OpenChanged(_)
            | Entry::Leased { .. }
            | Entry::SignalsRead { .. }
            | Entry::Patched(_)
            | Entry::Progressed(_)
            | Entry::ProgressForgotten
            | Entry::Attributed { .. }
            | Entry::Rewound(_)
            | Entry::FailingSince(_)
            | Entry::LetGo(_)
            | Entry::Left(_)
            | Entry::ActedOn(_)
            | Entry::Emptied => {}
        }
    }

    fn record(&mut self, Record { event, .. }: &Record) {
        match event {
            Event::StepBegun { op } => self.named("step_begun", &op.name),
            Event::StepFinished { op, attempt, outcome: Outcome::Ok(_), .. } => {
                self.step(Level::Debug, "step_finished", op, *attempt, None);
            }
            Event::StepFinished { op, attempt, outcome: Outcome::Err(failure), .. } => {
                self.step(Level::Warn, "step_failed", op, *attempt, failure.code);
            }
            Event::StepRetrying { op, attempt, failure, .. } => {
                self.step(Level::Warn, "step_retrying", op, *attempt, failure.code);
            }
            Event::StepLetIn { lane, .. } => self.named("step_let_in", lane),
            Event::TimerFired { op, .. } => self.named("timer_fired", &op.name),
            Event::SignalReceived { name, .. } => self.named("signal_received", name),
            Event::ChildInvoked { workflow, .. } => self.named("child_invoked", workflow),
            Event::ChildStarted { op, .. } => self.named("child_started", &op.name),
            Event::ChildFinished { op, outcome: Outcome::Ok(_), .. } => {
                self.named("child_finished", &op.name);
            }
            Event::ChildFinished { op, outcome: Outcome::Err(failure), .. } => {
                self.tell(Level::Warn, "child_failed", |line| {
                    (line.name, line.code) = (Some(op.name.clone()), failure.code);
                });
            }
        }
    }

    fn named(&mut self, event: &'static str, name: &str) {
        self.tell(Level::Debug, event, |line| line.name = Some(name.to_owned()));
    }

    fn step(&mut self, level: Level, event: &'static str, op: &Op, attempt: u32, code: Option<Code>) {
        self.tell(level, event, |line| {
            line.name = Some(op.name.clone());
            (line.attempt, line.code) = (Some(attempt), code);
        });
    }
}
