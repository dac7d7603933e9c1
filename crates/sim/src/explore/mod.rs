//! The explorer: every world of a small size, where the simulator tries many of a larger one.
//!
//! A [`Model`] says how it begins, what can happen next, and what must hold. The search is breadth-first over states
//! that count as one if they have the same digest, so whatever breaks a rule is found by a shortest way. Besides the
//! rules of each state it checks that nothing stays stuck: from every state, the ways without a further fault must
//! lead to rest.
//!
//! Owns: the search, and what it reports. Beside it are what cells, programs and clients have in common (`world`), and
//! each model as a small file on top of that.

mod bounds;
mod canon;
mod clients;
mod events;
mod family;
mod host;
mod one_run;
mod post;
mod programs;
mod state;
mod world;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Instant,
};

pub use bounds::{Bounds, Kind};
pub use family::Family;
pub use one_run::{OneRun, Start};

use crate::check::Checked;

/// Something small enough to be looked at in every way it can go.
pub trait Model {
    /// All that there is at one moment.
    type State: Clone;
    /// Something that can happen.
    type Event: Copy;

    /// How it begins. A state that is traced notes what happens, for people.
    fn initial(&self, traced: bool) -> Self::State;

    /// What can happen, without a fault first; of those, the first one is what would happen if nothing interfered.
    fn events(&self, state: &Self::State) -> Vec<Self::Event>;

    /// Whether an event is a fault.
    fn is_fault(&self, event: Self::Event) -> bool;

    /// Lets an event happen. Says whether anything came of it: a fault that strikes nothing is not worth a state.
    fn apply(&self, state: &mut Self::State, event: Self::Event) -> Result<bool, (&'static str, String)>;

    /// Whether there is nothing left to do; what must hold then is checked.
    fn is_at_rest(&self, state: &Self::State) -> Result<bool, (&'static str, String)>;

    /// A hash of all that matters of a state. What is the same but for the time at which it happens has the same one.
    fn digest(&self, state: &Self::State) -> u64;

    /// What a traced state has noted.
    fn notes(&self, state: &Self::State) -> Vec<String>;
}

/// What a search has seen.
#[derive(Debug, Default)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Of those, how many are at rest.
    pub at_rest: usize,
    /// Events that were tried and changed something.
    pub transitions: usize,
    /// The longest of all shortest ways.
    pub depth: u32,
    /// How long it took.
    pub seconds: f64,
    /// Whether the search ended before it had seen everything.
    pub cut_short: bool,
    /// What was broken.
    pub found: Option<Found>,
}

/// A rule that is broken, and a shortest way to it.
#[derive(Debug)]
pub struct Found {
    /// The rule.
    pub rule: &'static str,
    /// How.
    pub detail: String,
    /// How many events it takes.
    pub events: usize,
    /// What happens on the way.
    pub transcript: Vec<String>,
}

/// No state.
const NONE: u32 = u32::MAX;

/// The rule that the search itself knows.
const STUCK: &str = "11 every run comes to rest";

/// What is remembered of a state once it was looked at: the way to it, and the way on.
struct Node<E> {
    parent: u32,
    event: Option<E>,
    depth: u32,
    /// The state that follows if nothing interferes; itself, if it is at rest. What changes nothing leads nowhere.
    calm: u32,
}

/// Looks at all states that a model can be in, up to so many.
pub fn explore<M: Model>(model: &M, states_max: usize) -> Report {
    let began = Instant::now();
    let mut search = Search { model, nodes: Vec::new(), known: HashMap::new(), queue: VecDeque::new() };
    let mut report = Report::default();
    let found = search.run(states_max, &mut report);
    report.states = search.nodes.len();
    report.depth = search.nodes.last().map_or(0, |node| node.depth);
    report.seconds = began.elapsed().as_secs_f64();
    report.found = found;
    report
}

struct Search<'m, M: Model> {
    model: &'m M,
    nodes: Vec<Node<M::Event>>,
    known: HashMap<u64, u32>,
    queue: VecDeque<(u32, M::State)>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self, states_max: usize, report: &mut Report) -> Option<Found> {
        self.reach(NONE, None, self.model.initial(false));
        while let Some((index, state)) = self.queue.pop_front() {
            match self.model.is_at_rest(&state) {
                Err(broken) => return Some(self.found(index, None, broken)),
                Ok(true) => {
                    report.at_rest += 1;
                    self.nodes[index as usize].calm = index;
                    continue;
                }
                Ok(false) => {}
            }
            for event in self.model.events(&state) {
                let mut next = state.clone();
                match self.model.apply(&mut next, event) {
                    Err(broken) => return Some(self.found(index, Some(event), broken)),
                    Ok(false) => continue,
                    Ok(true) => {}
                }
                report.transitions += 1;
                let reached = self.reach(index, Some(event), next);
                let node = &mut self.nodes[index as usize];
                if node.calm == NONE && reached != index && !self.model.is_fault(event) {
                    node.calm = reached;
                }
            }
            if self.nodes.len() >= states_max {
                report.cut_short = true;
                return None;
            }
        }
        self.stuck()
    }

    /// A state was reached: for the first time, or once more.
    fn reach(&mut self, parent: u32, event: Option<M::Event>, state: M::State) -> u32 {
        let index = u32::try_from(self.nodes.len()).expect("memory ends before");
        match self.known.entry(self.model.digest(&state)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                new.insert(index);
                let depth = self.nodes.get(parent as usize).map_or(0, |parent| parent.depth + 1);
                self.nodes.push(Node { parent, event, depth, calm: NONE });
                self.queue.push_back((index, state));
                index
            }
        }
    }

    /// The first state from which nothing leads to rest without a fault.
    fn stuck(&self) -> Option<Found> {
        let mut leads_to_rest = vec![false; self.nodes.len()];
        for index in 0..self.nodes.len() {
            let mut way = Vec::new();
            let mut at = index;
            while !leads_to_rest[at] {
                let calm = self.nodes[at].calm;
                if calm as usize == at {
                    break;
                }
                if calm == NONE || way.contains(&at) {
                    let broken = (STUCK, "whatever happens without a fault, the run does not end".to_owned());
                    let index = u32::try_from(index).expect("it was one");
                    return Some(self.found(index, None, broken));
                }
                way.push(at);
                at = calm as usize;
            }
            leads_to_rest[at] = true;
            for at in way {
                leads_to_rest[at] = true;
            }
        }
        None
    }

    /// What is broken, with all that happened before. The way is gone once more with notes.
    fn found(&self, index: u32, last: Option<M::Event>, (rule, detail): (&'static str, String)) -> Found {
        let mut way: Vec<_> = last.into_iter().collect();
        let mut at = index;
        while let Some(node) = self.nodes.get(at as usize) {
            way.extend(node.event);
            at = node.parent;
        }
        way.reverse();
        let mut state = self.model.initial(true);
        for event in &way {
            // The last one breaks the rule.
            let _ = self.model.apply(&mut state, *event);
        }
        let mut transcript = self.model.notes(&state);
        if rule == STUCK {
            transcript.push("from here on there is no further fault:".to_owned());
            let before = transcript.len() - 1;
            transcript.extend(self.calmly(state).into_iter().skip(before));
        }
        Found { rule, detail, events: way.len(), transcript }
    }

    /// What happens from a state on if nothing interferes, until it repeats itself.
    fn calmly(&self, mut state: M::State) -> Vec<String> {
        let mut seen = std::collections::HashSet::new();
        while seen.insert(self.model.digest(&state)) {
            let next = self.model.events(&state).into_iter().find(|event| !self.model.is_fault(*event));
            let Some(event) = next else { break };
            if self.model.apply(&mut state, event).is_err() {
                break;
            }
        }
        self.model.notes(&state)
    }
}

/// For models: a rule that is broken ends the search.
fn hold(checked: Checked, broken: &mut Option<(&'static str, String)>) {
    if let Err(wrong) = checked {
        broken.get_or_insert(wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that are raised by one, up to a limit; one that is odd while the other is at its end is stuck, or
    /// goes on for ever without coming any further.
    struct Counters {
        gets_stuck: bool,
        goes_on: bool,
    }

    impl Model for Counters {
        type State = (u8, u8);
        type Event = bool;

        fn initial(&self, _: bool) -> (u8, u8) {
            (0, 0)
        }

        fn events(&self, state: &(u8, u8)) -> Vec<bool> {
            let stuck = self.gets_stuck && *state == (3, 4);
            let left = (state.0 < 4 && (!stuck || self.goes_on)).then_some(true);
            left.into_iter().chain((state.1 < 4).then_some(false)).collect()
        }

        fn is_fault(&self, _: bool) -> bool {
            false
        }

        fn apply(&self, state: &mut (u8, u8), event: bool) -> Result<bool, (&'static str, String)> {
            if event {
                let stays = self.goes_on && *state == (3, 4);
                state.0 += u8::from(!stays);
            } else {
                state.1 += 1;
            }
            Ok(true)
        }

        fn is_at_rest(&self, state: &(u8, u8)) -> Result<bool, (&'static str, String)> {
            if !self.gets_stuck && *state == (2, 3) {
                return Err(("a rule", "it is broken".into()));
            }
            Ok(*state == (4, 4))
        }

        fn digest(&self, state: &(u8, u8)) -> u64 {
            u64::from(state.0) << 8 | u64::from(state.1)
        }

        fn notes(&self, state: &(u8, u8)) -> Vec<String> {
            vec![format!("{state:?}")]
        }
    }

    #[test]
    fn a_broken_rule_is_found_by_a_shortest_way() {
        let found =
            explore(&Counters { gets_stuck: false, goes_on: false }, 1_000).found.expect("it is broken");
        assert_eq!((found.rule, found.events), ("a rule", 5));
    }

    #[test]
    fn a_state_from_which_nothing_leads_to_rest_is_found_once_all_are_seen() {
        for goes_on in [false, true] {
            let report = explore(&Counters { gets_stuck: true, goes_on }, 1_000);
            assert_eq!((report.states, report.depth), (25, 8));
            let found = report.found.expect("it is stuck");
            // From (0, 4) on only the left one can be raised, up to where it is stuck.
            assert_eq!((found.rule, found.events), (STUCK, 4));
        }
    }

    #[test]
    fn a_search_that_has_not_seen_everything_says_so() {
        assert!(explore(&Counters { gets_stuck: true, goes_on: false }, 10).cut_short);
    }
}
