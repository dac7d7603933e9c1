//! The first model: one cell with one run of two steps and a wait between them. A client starts the run and sends it the
//! signal that it waits for; without one, the wait is over after a while.

use std::rc::Rc;

use stepwell::prelude::*;
use stepwell_protocol::{Payload, RunId};

use super::{
    Model,
    bounds::{Bounds, Cost},
    events::Event,
    state::{Ask, Known, Setting, Stands, Task, World},
};
use crate::{
    flows::Job,
    outside::{self, Work, work},
    rng::hash,
    sabotage::Sabotage,
};

/// How long the run waits for its signal: longer than a dead cell stays unnoticed.
const PATIENCE_MS: u64 = 7_000;

/// How the start and the signal are known when they come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// By an idempotency key, and by the signal's id.
    ByKey,
    /// By the nonces of the requests.
    ByNonce,
}

/// One run, and all that can happen to it.
pub struct OneRun {
    start: Start,
    bounds: Bounds,
    sabotage: Option<Sabotage>,
    app: Rc<App>,
}

#[workflow]
async fn one_run(ctx: Ctx, _job: Job) -> Result<Vec<u64>> {
    let first = step(&ctx, "first").await?;
    let heard = ctx.wait::<u64>("go").timeout(Duration::from_millis(PATIENCE_MS)).await.unwrap_or(0);
    Ok(vec![first, heard, step(&ctx, "second").await?])
}

async fn step(ctx: &Ctx, name: &str) -> Result<u64> {
    // Time passes between the steps, if at all.
    let todo = Work { ms: 0, limit: 3, ..Work::default() };
    ctx.step_with(name, async move |info| work(info, todo).await).await
}

impl OneRun {
    /// The model within these bounds, with a mechanism switched off or none.
    pub fn new(start: Start, bounds: Bounds, sabotage: Option<Sabotage>) -> Self {
        outside::reset(false);
        Self { start, bounds, sabotage, app: Rc::new(App::new().workflow(one_run)) }
    }

    fn tasks(&self) -> Vec<Task> {
        let is_keyed = self.start == Start::ByKey;
        let job = Job { tag: "r1".into(), n: 0, ms: 0, fails: 0, taken: Vec::new() };
        let start = Ask::Start {
            key: is_keyed.then(|| "k1".to_owned()),
            nonce: RunId::suffix_from(1),
            workflow: "one_run",
            input: Payload::encode(&job).expect("a job is JSON"),
            seed: 1,
        };
        let signal = Ask::Signal {
            to: 0,
            name: "go",
            id: is_keyed.then(|| "s1".to_owned()),
            nonce: RunId::suffix_from(2),
            payload: 7,
        };
        let task = |ask, after| Task { cell: 0, ask: Rc::new(ask), after, stands: Stands::Unsent, run: None };
        vec![task(start, None), task(signal, Some(0))]
    }
}

impl Model for OneRun {
    type State = World;
    type Event = Event;

    fn initial(&self, traced: bool) -> World {
        let setting = Setting {
            app: self.app.clone(),
            page_events: 1,
            sabotage: self.sabotage,
            known: Known::default(),
        };
        World::new(setting, 1, self.tasks(), self.bounds, traced)
    }

    fn events(&self, state: &World) -> Vec<Event> {
        state.events()
    }

    fn is_fault(&self, event: Event) -> bool {
        event.cost != Cost::CALM
    }

    fn apply(&self, state: &mut World, event: Event) -> Result<bool, (&'static str, String)> {
        let has_changed = state.happen(event)?;
        let runs = state.sites[0].disk.runs.len();
        if runs > 1 {
            return Err(("3 duplicates create one run", format!("there are {runs} runs")));
        }
        Ok(has_changed)
    }

    fn is_at_rest(&self, state: &World) -> Result<bool, (&'static str, String)> {
        if !state.is_at_rest()? {
            return Ok(false);
        }
        let site = &state.sites[0];
        let Some((number, row)) = site.disk.runs.first_key_value() else { return Ok(true) };
        let id = RunId { place: site.place.clone(), number: *number, suffix: row.suffix.to_string() };
        let value = |name: &str| hash(&format!("{id}/step:0:{name}"));
        let given = row.result.as_deref().and_then(|text| serde_json::from_str::<Vec<u64>>(text).ok());
        let given = given.unwrap_or_default();
        let is_right = |heard| given == [value("first"), heard, value("second")];
        if is_right(0) || is_right(7) {
            Ok(true)
        } else {
            Err(("24 a run gives what its code says", format!("it is {} with {:?}", row.status, row.result)))
        }
    }

    fn digest(&self, state: &World) -> u64 {
        state.digest()
    }

    fn notes(&self, state: &World) -> Vec<String> {
        state.notes.clone().unwrap_or_default()
    }
}
