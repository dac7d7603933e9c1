//! The engine's own program that does something to all runs that fit a filter.
//!
//! It goes from cell to cell, and through each one from the newest run to the oldest, a slice at a time. Each slice
//! is a step of its run: what was done and where to go on is in the journal, so it survives whatever a run
//! survives, and can be watched, paused and cancelled like one.
//!
//! Owns: where it is, what to ask next, and what to say about it. Does not own: the calls of cells and session.
//!
//! A slice may be done twice, if its result was not recorded: what was done is then found as done.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Event, Failure, Op, OpKind, Outcome, Payload, Place, Record, Seq, Timestamp,
    filter::Filter,
    program::{Budget, Command, Open, Progress, Retry, Then, is_reserved},
    rest::{Bulk, BulkAction, BulkReport, Status},
};

/// How many runs one slice changes at the most.
pub const SLICE: u32 = 100;

/// What one activation says at the most, if it was not told.
const COMMITS_DEFAULT: u32 = 20;

/// What one activation says at the most, whatever it was told.
const COMMITS_MAX: u32 = 10_000;

/// The name of its steps.
const STEP: &str = "slice";

/// A number that is larger than any run's.
const TOP: u64 = 1 << 53;

/// What a cell did about one slice: the result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acted {
    /// Runs that were changed.
    pub changed: u64,
    /// Runs that fitted and were left as they are.
    pub unchanged: u64,
    /// The number below which the cell goes on; none at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The largest number of the cell's runs.
    #[serde(default)]
    pub top: u64,
}

impl Acted {
    /// One more run fitted.
    pub fn count(&mut self, is_changed: bool) {
        *(if is_changed { &mut self.changed } else { &mut self.unchanged }) += 1;
    }
}

/// What becomes of a run that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing, and it does not count: the engine's own runs are nobody's business, the bulk itself among them.
    PassedOver,
    /// Nothing: it is already as it is wanted.
    Left,
    /// What is wanted, if it can be done to a run that stands where this one does.
    Acted,
}

impl Fate {
    /// What becomes of a run of this workflow that stands here.
    pub fn of(workflow: &str, status: Status, action: BulkAction) -> Self {
        if is_reserved(workflow) {
            return Self::PassedOver;
        }
        match action {
            // A second cancel is answered like the first, but changes nothing.
            BulkAction::Cancel if status.is_terminal() => Self::Left,
            BulkAction::Cancel | BulkAction::Retry | BulkAction::Restart => Self::Acted,
        }
    }
}

/// What is left of an activation's budget.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    slices: u32,
    until: Option<Timestamp>,
}

impl Allowance {
    /// All of a budget, or the least that makes sense.
    pub fn of(budget: Option<Budget>, now: Timestamp) -> Self {
        let (commits, ms) =
            budget.map_or((COMMITS_DEFAULT, None), |Budget { commits, ms, .. }| (commits, ms));
        // The calls of cells count against the invocation too.
        Self { slices: (commits.min(COMMITS_MAX) / 2).max(1), until: ms.map(|ms| now.plus_millis(ms)) }
    }

    /// Another slice is done. Says how the bulk goes on: here, or in an activation of its own.
    pub fn spend(&mut self, now: Timestamp) -> Then {
        self.slices = self.slices.saturating_sub(1);
        let is_over = self.slices == 0 || self.until.is_some_and(|until| until <= now);
        if is_over { Then::Yield { open: None } } else { Then::Continue { open: None } }
    }
}

/// A step's result as it is recorded.
#[derive(Serialize, Deserialize)]
struct Slice {
    cell: String,
    #[serde(flatten)]
    acted: Acted,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Ask this cell to do it to a slice of its runs.
    Ask {
        /// The cell.
        place: Place,
        /// Only runs with a smaller number.
        below: u64,
    },
    /// Say this, and nothing else.
    Say(Then),
}

/// How far it has come.
#[derive(Clone, Debug)]
pub struct Progressing {
    bulk: Bulk,
    places: Vec<Place>,
    /// The cell that is next, and where in it.
    cell: usize,
    below: u64,
    report: BulkReport,
    /// Steps that are done.
    slices: u32,
    /// The attempt that is next, and when.
    attempt: u32,
    not_before: Option<Timestamp>,
    failed: Option<Failure>,
    known: Seq,
}

impl Progressing {
    /// At its beginning. It is about runs that were accepted before itself.
    pub fn new(mut bulk: Bulk, places: Vec<Place>, started_at: Timestamp) -> Self {
        let until = started_at.plus_millis(1);
        bulk.filter.until = Some(bulk.filter.until.map_or(until, |given| given.min(until)));
        let places = places.into_iter().filter(|place| bulk.filter.can_be_in(place)).collect();
        Self {
            bulk,
            places,
            cell: 0,
            below: TOP,
            report: BulkReport::default(),
            slices: 0,
            attempt: 1,
            not_before: None,
            failed: None,
            known: Seq(0),
        }
    }

    /// Which runs it is about.
    pub fn filter(&self) -> &Filter {
        &self.bulk.filter
    }

    /// The last position of its journal that it knows.
    pub fn known(&self) -> Seq {
        self.known
    }

    /// Follows what is in its journal.
    pub fn learn(&mut self, record: &Record) {
        if record.seq <= self.known {
            return;
        }
        self.known = record.seq;
        match &record.event {
            Event::StepFinished { outcome: Outcome::Ok(output), .. } => {
                if let Ok(slice) = output.read::<Slice>() {
                    self.pass(&slice);
                }
            }
            Event::StepFinished { outcome: Outcome::Err(failure), .. } => self.failed = Some(failure.clone()),
            Event::StepRetrying { attempt, retry_at, .. } => {
                self.attempt = attempt + 1;
                self.not_before = Some(*retry_at);
            }
            // Nobody has to signal it anything, and it has no sleeps.
            Event::SignalReceived { .. }
            | Event::StepBegun { .. }
            | Event::StepLetIn { .. }
            | Event::TimerFired { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => {}
        }
    }

    /// Its own command was recorded at this position.
    pub fn recorded(&mut self, seq: Seq, command: &Command) {
        if seq <= self.known {
            return;
        }
        self.known = seq;
        if let Command::StepSucceeded { output, .. } = command
            && let Ok(slice) = output.read::<Slice>()
        {
            self.pass(&slice);
        }
    }

    /// What to do next.
    pub fn next(&self, now: Timestamp) -> Next {
        if let Some(failure) = &self.failed {
            return Next::Say(Then::Fail { failure: failure.clone() });
        }
        let Some(place) = self.places.get(self.cell) else {
            let output = Payload::encode(&self.report).expect("a report is JSON");
            return Next::Say(Then::Complete { output });
        };
        match self.not_before {
            Some(at) if at > now => {
                Next::Say(Then::Suspend { open: vec![Open::Retry { op: self.op(), at }] })
            }
            Some(_) | None => Next::Ask { place: place.clone(), below: self.below },
        }
    }

    /// What to report when the cell has answered.
    pub fn done(&self, acted: Acted) -> Command {
        let cell = self.places.get(self.cell).map(ToString::to_string).unwrap_or_default();
        let output = Payload::encode(&Slice { cell, acted }).expect("a slice is JSON");
        Command::StepSucceeded { op: self.op(), attempt: self.attempt, output, took_ms: None }
    }

    /// What to report when it has not.
    pub fn lost(&self, failure: Failure) -> Command {
        let retry = Retry { attempts: 20, initial_ms: 500, factor: 2.0, max_ms: 60_000, jitter: 0.1 };
        Command::StepFailed {
            op: self.op(),
            attempt: self.attempt,
            failure,
            retry,
            retry_after_ms: None,
            took_ms: None,
        }
    }

    /// How far it will have come with this command.
    pub fn progress(&self, command: &Command) -> Progress {
        let mut then = self.clone();
        then.recorded(self.known.next(), command);
        let within = match command {
            Command::StepSucceeded { output, .. } if then.cell == self.cell => {
                output.read::<Slice>().map_or(0.0, |slice| share(&slice.acted))
            }
            Command::StepSucceeded { .. }
            | Command::StepBegun { .. }
            | Command::StepFailed { .. }
            | Command::ChildInvoked { .. }
            | Command::Emitted { .. }
            | Command::JobSent { .. } => 0.0,
        };
        let cells = u32::try_from(self.places.len().max(1)).unwrap_or(u32::MAX);
        let done = u32::try_from(then.cell).unwrap_or(u32::MAX);
        let percent = (100.0 * (f64::from(done) + within) / f64::from(cells)).clamp(0.0, 100.0);
        let BulkReport { changed, unchanged } = then.report;
        let action = self.bulk.action.as_str();
        let message = format!("{action}: {changed} changed, {unchanged} left as they were");
        Progress { percent, message, ..Progress::default() }
    }

    fn pass(&mut self, slice: &Slice) {
        let Acted { changed, unchanged, next, .. } = slice.acted;
        self.report.changed += changed;
        self.report.unchanged += unchanged;
        self.slices += 1;
        self.attempt = 1;
        self.not_before = None;
        // By its name: the pool may have grown since.
        let cell = self.places.iter().position(|place| place.to_string() == slice.cell).unwrap_or(self.cell);
        match next {
            Some(below) => (self.cell, self.below) = (cell, below),
            None => (self.cell, self.below) = (cell + 1, TOP),
        }
    }

    fn op(&self) -> Op {
        Op { kind: OpKind::Step, name: STEP.into(), occurrence: self.slices }
    }
}

/// How much of a cell is behind it, from 0 to 1.
fn share(acted: &Acted) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "numbers are below 2^53")]
    match acted.next {
        Some(next) if acted.top > 0 => (1.0 - next as f64 / acted.top as f64).clamp(0.0, 1.0),
        Some(_) => 0.0,
        None => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::rest::BulkAction;

    use super::*;

    fn places(cells: u32) -> Vec<Place> {
        (0..cells).map(|cell| Place { pool: "default".into(), generation: 1, cell }).collect()
    }

    fn bulk() -> Progressing {
        let bulk = Bulk { action: BulkAction::Cancel, filter: Filter::default() };
        Progressing::new(bulk, places(3), Timestamp::from_millis(1_000))
    }

    fn acted(changed: u64, next: Option<u64>) -> Acted {
        Acted { changed, unchanged: 1, next, top: 200 }
    }

    const NOW: Timestamp = Timestamp::MAX;

    /// Goes through three cells of two slices each; with `from`, from the journal of that many slices.
    fn walk(from: usize) -> (Vec<(u32, u64)>, BulkReport, Vec<f64>) {
        let (mut machine, mut journal) = (bulk(), Vec::new());
        let (mut asked, mut percents) = (Vec::new(), Vec::new());
        loop {
            if journal.len() == from {
                machine = bulk();
                for record in &journal {
                    machine.learn(record);
                }
            }
            match machine.next(NOW) {
                Next::Ask { place, below } => {
                    asked.push((place.cell, below));
                    let command = machine.done(acted(10, (below == TOP).then_some(100)));
                    percents.push(machine.progress(&command).percent);
                    let seq = machine.known().next();
                    machine.recorded(seq, &command);
                    let Command::StepSucceeded { op, attempt, output, took_ms } = command else {
                        panic!("it was done")
                    };
                    let event = Event::StepFinished { op, attempt, outcome: Outcome::Ok(output), took_ms };
                    journal.push(Record { seq, at: Timestamp::from_millis(1), event });
                }
                Next::Say(Then::Complete { output }) => {
                    let report = output.decode().expect("it is a report");
                    return (asked, report, percents);
                }
                Next::Say(then) => panic!("it says {then:?}"),
            }
        }
    }

    #[test]
    fn it_goes_through_every_cell_once_and_adds_up() {
        let (asked, report, percents) = walk(usize::MAX);
        assert_eq!(asked, [(0, TOP), (0, 100), (1, TOP), (1, 100), (2, TOP), (2, 100)]);
        assert_eq!(report, BulkReport { changed: 60, unchanged: 6 });
        assert!(percents.is_sorted() && percents[0] > 16.0 && percents[5] > 99.9, "{percents:?}");
    }

    #[test]
    fn it_goes_on_from_its_journal_wherever_it_died() {
        let whole = walk(usize::MAX);
        for slices in 0..=6 {
            assert_eq!(walk(slices), whole, "after {slices} slices");
        }
    }

    #[test]
    fn a_cell_that_does_not_answer_is_asked_again_when_it_is_time() {
        let mut machine = bulk();
        let Command::StepFailed { op, attempt, failure, .. } = machine.lost(Failure::new("no answer")) else {
            panic!("it failed")
        };
        let retry_at = Timestamp::from_millis(5_000);
        let event = Event::StepRetrying {
            op: op.clone(),
            attempt,
            failure: failure.clone(),
            retry_at,
            took_ms: None,
        };
        machine.learn(&Record { seq: Seq(1), at: Timestamp::from_millis(1), event });
        let waits = Then::Suspend { open: vec![Open::Retry { op: op.clone(), at: retry_at }] };
        assert_eq!(machine.next(Timestamp::from_millis(4_999)), Next::Say(waits));
        assert_eq!(machine.next(retry_at), Next::Ask { place: places(1)[0].clone(), below: TOP });
        assert!(matches!(machine.done(acted(1, None)), Command::StepSucceeded { attempt: 2, .. }));
        let event =
            Event::StepFinished { op, attempt: 20, outcome: Outcome::Err(failure.clone()), took_ms: None };
        machine.learn(&Record { seq: Seq(2), at: Timestamp::from_millis(1), event });
        assert_eq!(machine.next(NOW), Next::Say(Then::Fail { failure }));
    }

    #[test]
    fn the_engines_own_runs_are_passed_over_whatever_is_wanted() {
        for action in [BulkAction::Cancel, BulkAction::Retry, BulkAction::Restart] {
            for status in Status::ALL {
                assert_eq!(Fate::of("stepwell.bulk", status, action), Fate::PassedOver);
            }
        }
    }

    #[test]
    fn a_run_that_has_ended_is_not_cancelled_again() {
        for status in Status::ALL {
            let expected = if status.is_terminal() { Fate::Left } else { Fate::Acted };
            assert_eq!(Fate::of("greet", status, BulkAction::Cancel), expected, "{}", status.as_str());
            // Whether these can be done is the run's own decision.
            assert_eq!(Fate::of("greet", status, BulkAction::Retry), Fate::Acted);
            assert_eq!(Fate::of("greet", status, BulkAction::Restart), Fate::Acted);
        }
        let mut acted = acted(0, None);
        for is_changed in [true, false, true] {
            acted.count(is_changed);
        }
        assert_eq!((acted.changed, acted.unchanged), (2, 2));
    }

    #[test]
    fn half_of_the_budget_is_for_the_calls_of_cells() {
        let at = Timestamp::from_millis;
        let slices = |budget: Option<Budget>, takes_ms: u64| {
            let mut allowance = Allowance::of(budget, at(1_000));
            (1..1_000).find(|n| allowance.spend(at(1_000 + n * takes_ms)) == Then::Yield { open: None })
        };
        let of = |commits, ms| Some(Budget { commits, ms, step_timeout_ms: None });
        assert_eq!(slices(of(50, None), 1), Some(25));
        assert_eq!(slices(None, 1), Some(10));
        assert_eq!(slices(of(0, None), 1), Some(1), "it always comes somewhere");
        assert_eq!(slices(of(1_000, Some(100)), 30), Some(4), "its time is over");
    }

    #[test]
    fn runs_that_are_accepted_after_it_are_not_its_business() {
        assert_eq!(bulk().filter().until, Some(Timestamp::from_millis(1_001)));
    }
}
