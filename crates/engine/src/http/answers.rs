//! What was answered, by route and status, and how long it took: gathered here, and kept by a cell.
//!
//! Instances of the Worker come and go without a word, and each has seen a part. So what one has gathered is told to the
//! first cell of the namespace, behind the answer to a request, once a minute at most; and before metrics are read here.
//! Whoever has no key is not counted: strangers decide neither what is kept nor what a chart shows.

use std::{cell::RefCell, rc::Rc};

use serde::{Deserialize, Serialize};
use stepwell_core::ordered::OrdMap;
use stepwell_promises as promises;
use stepwell_protocol::{Timestamp, routes::Route, totals::STEP_BOUNDS_MS};
use wasm_bindgen::JsValue;

use super::front::Front;
use crate::{
    calls::{
        cell::Operation,
        figures::{Answers, add_answers},
    },
    log,
    remains::{Leaves, inherit},
    runtime,
};

/// How long answers are gathered.
const GATHERED_MS: u64 = 60_000;

/// For how many namespaces at once.
const NAMESPACES_MAX: usize = 256;

/// What was gathered for a namespace, and since when.
#[derive(Serialize, Deserialize)]
struct Gathered {
    answers: Answers,
    since: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct All(OrdMap<String, Gathered>);

impl Leaves for RefCell<All> {
    fn left(&self) -> Option<String> {
        let all = self.try_borrow().ok()?;
        if all.0.is_empty() { None } else { serde_json::to_string(&*all).ok() }
    }
}

impl All {
    fn add(&mut self, now: Timestamp, namespace: &str, answers: &Answers) {
        if !self.0.contains_key(namespace) && self.0.len() >= NAMESPACES_MAX {
            // Nobody has asked for anything there for the longest time.
            let oldest = self.0.iter().min_by_key(|(_, gathered)| gathered.since);
            if let Some(oldest) = oldest.map(|(namespace, _)| namespace.clone()) {
                self.0.remove(&oldest);
            }
        }
        let new = || Gathered { answers: Answers::new(), since: now };
        add_answers(&mut self.0.get_or_insert_with(namespace.to_owned(), new).answers, answers);
    }

    /// What has been gathered for long enough.
    fn take_due(&mut self, now: Timestamp, namespace: &str) -> Option<Answers> {
        let gathered = self.0.get(namespace)?;
        if gathered.since.plus_millis(GATHERED_MS) > now { None } else { self.take(namespace) }
    }

    fn take(&mut self, namespace: &str) -> Option<Answers> {
        self.0.remove(namespace).map(|gathered| gathered.answers)
    }
}

thread_local! {
    static ALL: Rc<RefCell<All>> = {
        let all = Rc::new(RefCell::new(All(OrdMap::new())));
        let heir: Rc<dyn Leaves> = all.clone();
        if let Some(left) = inherit("answers".to_owned(), Rc::downgrade(&heir)) {
            all.replace(left);
        }
        all
    };
}

fn with_all<T>(change: impl FnOnce(&mut All) -> T) -> T {
    ALL.with(|all| change(&mut all.borrow_mut()))
}

/// A request was answered.
pub fn count(front: &Front, route: Route, status: u16, took_ms: u64) {
    let (now, namespace) = (runtime::clock(), front.namespace());
    let due = with_all(|all| {
        all.add(now, namespace, &one(route, status, took_ms));
        all.take_due(now, namespace)
    });
    let Some(due) = due else { return };
    let front = front.clone();
    let telling = promises::promise(async move {
        tell(&front, due).await;
        Ok(JsValue::UNDEFINED)
    });
    if let Err(thrown) = runtime::wait_until(&telling) {
        log::warn!("requests are not counted: {}", runtime::message(&thrown));
    }
}

/// Passes on what was gathered here, before somebody reads what was kept. Says whether the first cell answers.
pub async fn tell_now(front: &Front) -> bool {
    match with_all(|all| all.take(front.namespace())) {
        Some(answers) => tell(front, answers).await,
        None => true,
    }
}

async fn tell(front: &Front, answers: Answers) -> bool {
    let Some(first) = front.cells().next() else { return true };
    // Not told again if nobody answers: they may be counted already, and a chart may lack some, but shows none twice.
    let told = front.itself().ask_text_in_time(&first, Operation::CountAnswers { answers }).await;
    let Err(refusal) = told else { return true };
    log::warn!("requests are not counted: {}", refusal.0.detail);
    refusal.0.status < 500
}

/// One answer.
fn one(route: Route, status: u16, took_ms: u64) -> Answers {
    let (entry, mut answers) = (route.entry(), Answers::new());
    let name = format!("{} {} {status}", entry.method.as_str(), entry.path);
    answers.get_or_default(name).note(&STEP_BOUNDS_MS, took_ms);
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    #[test]
    fn answers_are_gathered_for_a_minute_and_told_once() {
        let mut all = All(OrdMap::new());
        for (ms, status, took_ms) in [(0, 200, 5), (10, 200, 20), (59_999, 429, 1)] {
            all.add(at(ms), "acme", &one(Route::ListRuns, status, took_ms));
            assert!(all.take_due(at(ms), "acme").is_none(), "{ms}");
        }
        assert!(all.take_due(at(60_000), "other").is_none());
        let told = all.take_due(at(60_000), "acme").expect("it is time");
        let (fine, refused) = (told.get("GET /api/executions 200"), told.get("GET /api/executions 429"));
        assert_eq!(fine.map(|it| (it.counts.iter().sum::<u64>(), it.sum_ms)), Some((2, 25)));
        assert_eq!(refused.map(|it| it.sum_ms), Some(1));
        assert!(all.take("acme").is_none(), "it was told");
        // What could not be told is told with the next.
        all.add(at(70_000), "acme", &told);
        assert_eq!(all.take_due(at(130_000), "acme"), Some(told));
    }

    #[test]
    fn the_namespace_that_has_been_quiet_for_longest_makes_room() {
        let mut all = All(OrdMap::new());
        for number in 0..1_000 {
            all.add(at(number), &format!("n{number}"), &one(Route::ListRuns, 200, 5));
        }
        assert_eq!(all.0.len(), NAMESPACES_MAX);
        assert!(all.take("n743").is_none() && all.take("n744").is_some() && all.take("n999").is_some());
    }
}
