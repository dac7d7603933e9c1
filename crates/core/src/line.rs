//! The line: the runs of a cell that are due and wait for a place in its [`crate::window::Window`].
//!
//! Owns: their order, and who is first of each workflow. A run with a priority stands as far ahead as if it had come
//! that much earlier ([`PRIORITY_MS`]), so one that waits long enough comes before any other. Each operation costs the
//! logarithm of the line's length, and a look for the next run one step for each workflow.
//! Does not own: which due runs are in memory at all (the cell bounds that), and who may enter.

use stepwell_protocol::{Timestamp, lane::PRIORITY_MS};

use crate::ordered::{OrdMap, OrdSet};

/// A run that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its number in the cell.
    pub number: u64,
    /// Its workflow.
    pub workflow: String,
    /// Whether it wants the window to itself.
    pub alone: bool,
    /// Its priority among the runs that wait.
    pub priority: i8,
}

/// Which turn somebody in the line has: earlier ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// When it came, with its priority.
    at: i64,
    /// Runs that came in the same millisecond keep their order.
    order: u64,
}

/// The runs that wait, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    runs: OrdMap<Turn, Ready>,
    /// The turn of each run by its number: a run waits once.
    turns: OrdMap<u64, Turn>,
    /// The turns of those who share the window, by workflow. No set is empty.
    by_workflow: OrdMap<String, OrdSet<Turn>>,
    /// The turns of those who want the window to themselves.
    alone: OrdSet<Turn>,
    last: u64,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Puts a run at its place behind those that came before it, unless it waits already.
    pub fn push(&mut self, now: Timestamp, ready: Ready) {
        if self.turns.contains_key(&ready.number) {
            return;
        }
        self.last += 1;
        let ahead_ms = i64::from(ready.priority) * PRIORITY_MS.cast_signed();
        let turn = Turn { at: now.as_millis().cast_signed() - ahead_ms, order: self.last };
        if ready.alone {
            self.alone.insert(turn);
        } else if let Some(turns) = self.by_workflow.get_mut(&ready.workflow) {
            turns.insert(turn);
        } else {
            self.by_workflow.insert(ready.workflow.clone(), OrdSet::from([turn]));
        }
        self.turns.insert(ready.number, turn);
        self.runs.insert(turn, ready);
    }

    /// Takes a run out of the line.
    pub fn take(&mut self, turn: Turn) -> Option<Ready> {
        let ready = self.runs.remove(&turn)?;
        self.turns.remove(&ready.number);
        if !self.alone.remove(&turn)
            && let Some(turns) = self.by_workflow.get_mut(&ready.workflow)
        {
            turns.remove(&turn);
            if turns.is_empty() {
                self.by_workflow.remove(&ready.workflow);
            }
        }
        Some(ready)
    }

    /// Forgets a run that does not wait any more.
    pub fn forget(&mut self, number: u64) {
        if let Some(turn) = self.turns.get(&number).copied() {
            self.take(turn);
        }
    }

    /// The first one who wants the window to itself.
    pub fn first_alone(&self) -> Option<Turn> {
        self.alone.first().copied()
    }

    /// The first run of each workflow among those who share the window.
    pub fn firsts(&self) -> impl Iterator<Item = (Turn, &str)> {
        self.by_workflow
            .iter()
            .filter_map(|(workflow, turns)| turns.first().map(|turn| (*turn, workflow.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn ready(number: u64, workflow: &str, alone: bool) -> Ready {
        Ready { number, workflow: workflow.into(), alone, priority: 0 }
    }

    fn firsts(line: &Line) -> Vec<u64> {
        line.firsts().filter_map(|(turn, _)| line.runs.get(&turn)).map(|ready| ready.number).collect()
    }

    #[test]
    fn a_run_waits_once_and_at_its_first_place() {
        let mut line = Line::default();
        line.push(at(0), ready(1, "a", false));
        line.push(at(0), ready(2, "a", false));
        line.push(at(0), ready(1, "a", false));
        assert_eq!(firsts(&line), [1]);
        line.forget(1);
        assert_eq!(firsts(&line), [2]);
        line.push(at(0), ready(1, "a", false));
        assert_eq!(firsts(&line), [2], "who comes back is last");
    }

    #[test]
    fn priority_puts_a_run_ahead_by_as_much_as_it_says_and_no_more() {
        let mut line = Line::default();
        let urgent = |number| Ready { priority: 3, ..ready(number, "a", false) };
        line.push(at(0), ready(1, "a", false));
        line.push(at(3 * PRIORITY_MS - 1), urgent(2));
        line.push(at(3 * PRIORITY_MS), urgent(3));
        line.push(at(3 * PRIORITY_MS), Ready { priority: -3, ..ready(4, "a", false) });
        line.push(at(5 * PRIORITY_MS), ready(5, "a", false));
        let mut order = Vec::new();
        while !line.is_empty() {
            let first = line.firsts().map(|(turn, _)| turn).min();
            let turn = first.expect("somebody waits");
            order.extend(line.take(turn).map(|ready| ready.number));
        }
        assert_eq!(order, [2, 1, 3, 5, 4]);
    }

    #[test]
    fn a_line_that_everybody_has_left_keeps_nothing() {
        let mut line = Line::default();
        line.push(at(0), ready(1, "a", false));
        line.push(at(0), ready(2, "b", true));
        line.forget(1);
        let alone = line.first_alone().and_then(|turn| line.take(turn));
        assert_eq!(alone, Some(ready(2, "b", true)));
        line.forget(3);
        assert!(line.is_empty() && line.turns.is_empty() && line.by_workflow.is_empty());
    }
}
