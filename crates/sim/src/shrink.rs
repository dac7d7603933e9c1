//! Makes a failing script smaller: drops faults and actions as long as the world still fails.

use crate::{
    sabotage::Sabotage,
    script::{Action, Noise, Script},
    world::{Violation, World},
};

/// The most worlds that are tried.
const TRIES_MAX: usize = 2_000;

/// A script that still breaks the same rule, as small as it was possible to make it.
pub fn shrink(seed: u64, script: Script, sabotage: Option<Sabotage>, violation: &Violation) -> Script {
    let mut tries = 0;
    let mut fails = |script: &Script| {
        tries += 1;
        tries <= TRIES_MAX
            && World::new(seed, script.clone(), sabotage, false)
                .run()
                .violation
                .is_some_and(|other| other.rule == violation.rule)
    };
    let mut best = script;
    for noise in [
        Noise::default(),
        Noise { lose: 0, ..best.noise },
        Noise { duplicate: 0, ..best.noise },
        Noise { delay: 0, ..best.noise },
    ] {
        let candidate = Script { noise, ..best.clone() };
        if fails(&candidate) {
            best = candidate;
        }
    }
    loop {
        let size = best.faults.len() + best.actions.len();
        drop_from(&mut best, &mut fails, |script| &mut script.faults);
        drop_actions(&mut best, &mut fails);
        if best.faults.len() + best.actions.len() == size {
            return best;
        }
    }
}

/// Drops runs of items, longest first.
fn drop_from<T: Clone>(
    best: &mut Script,
    fails: &mut impl FnMut(&Script) -> bool,
    items: impl Fn(&mut Script) -> &mut Vec<T>,
) {
    let mut length = items(best).len().div_ceil(2);
    while length > 0 {
        let mut at = 0;
        while at < items(best).len() {
            let mut candidate = best.clone();
            let list = items(&mut candidate);
            let end = (at + length).min(list.len());
            list.drain(at..end);
            if fails(&candidate) {
                *best = candidate;
            } else {
                at += length;
            }
        }
        length = if length == 1 { 0 } else { length.div_ceil(2) };
    }
}

/// Actions name each other by index: one that is dropped becomes one that never happens.
fn drop_actions(best: &mut Script, fails: &mut impl FnMut(&Script) -> bool) {
    let mut at = best.actions.len();
    while at > 0 {
        at -= 1;
        let mut candidate = best.clone();
        candidate.actions.remove(at);
        let mut is_whole = true;
        candidate.actions.retain_mut(|(_, action)| match action {
            Action::Start { .. }
            | Action::CreateKey
            | Action::Sync { .. }
            | Action::PauseWorkflow(_)
            | Action::ResumeWorkflow(_) => true,
            Action::RevokeKey { create: start }
            | Action::UseKey { create: start, .. }
            | Action::Signal { start, .. }
            | Action::Cancel { start }
            | Action::Manage { start, .. }
            | Action::Show { start, .. }
            | Action::Follow { start } => match (*start).cmp(&at) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => {
                    is_whole = false;
                    false
                }
                std::cmp::Ordering::Greater => {
                    *start -= 1;
                    true
                }
            },
        });
        // Other actions went with it, so indices have moved again: only whole cuts are tried.
        if is_whole && fails(&candidate) {
            *best = candidate;
        }
    }
}
