//! Models of two cells, with a parent in one and its child in the other. The parent waits for what the child gives, or for
//! as long as it likes to, or only for the news that the child is started: then it leaves it to itself, which is one
//! message, or ends and lets it be cancelled.

use std::rc::Rc;

use stepwell::App;
use stepwell_core::{
    cell::child_key,
    run::{End, Phase},
};
use stepwell_protocol::{Payload, Place, RunId, Seq, Timestamp};

use super::{
    Model,
    bounds::{Bounds, Cost},
    events::Event,
    state::{Ask, Known, Setting, Stands, Task, World},
};
use crate::{
    family::{self, FAMILY, Manner},
    outside,
    sabotage::Sabotage,
    store::CHILD_KEYS,
    tables::Tables,
};

/// Two runs, and all that can happen between them.
pub struct Family {
    manner: Manner,
    ms: u64,
    bounds: Bounds,
    sabotage: Option<Sabotage>,
    app: Rc<App>,
}

/// The parent's seed, and its cell: by that seed, its child goes to the other one.
const SEED: u64 = 1;
const PARENT: usize = 1;
const CHILD: usize = 0;

/// How long a child sleeps whose parent does not stay: longer than any cancellation is under way.
const NAP_MS: u64 = 3_600_000;

/// How long a cancellation is under way at the most, with as many faults as there are.
const PROMPT_MS: u64 = 600_000;

impl Family {
    /// A parent that waits for its child.
    pub fn waiting(bounds: Bounds, sabotage: Option<Sabotage>) -> Self {
        Self::new(Manner::Plain, 0, bounds, sabotage)
    }

    /// A parent that does not wait for long enough, and cancels its child.
    pub fn impatient(bounds: Bounds, sabotage: Option<Sabotage>) -> Self {
        Self::new(Manner::Impatient, 400, bounds, sabotage)
    }

    /// A parent that ends as soon as its child is started, and cancels it by that.
    pub fn leaving(bounds: Bounds, sabotage: Option<Sabotage>) -> Self {
        Self::new(Manner::Detached, NAP_MS, bounds, sabotage)
    }

    /// A sender and a receiver with one message: a child of which nobody hears any more once it is started.
    pub fn message(bounds: Bounds, sabotage: Option<Sabotage>) -> Self {
        Self::new(Manner::Abandoned, 0, bounds, sabotage)
    }

    fn new(manner: Manner, ms: u64, bounds: Bounds, sabotage: Option<Sabotage>) -> Self {
        outside::reset(false);
        Self { manner, ms, bounds, sabotage, app: Rc::new(App::new()) }
    }

    /// A child whose parent cancels it when it stops waiting, or ends, does not go on by itself. It may have ended before
    /// the cancellation could come to it; but not if nothing has delayed that, and not long after.
    fn let_go(&self, state: &World, parent: &RunId, child: u64) -> Result<(), (&'static str, String)> {
        let ended = |cell: usize, number| {
            let site = &state.sites[cell];
            end_of(&site.disk, &site.place, number)
        };
        let (Some((_, left_at)), Some((how, at))) = (ended(PARENT, parent.number), ended(CHILD, child))
        else {
            return Ok(());
        };
        let is_in_time = state.left != self.bounds && at <= left_at.plus_millis(PROMPT_MS);
        if how == End::Cancelled || is_in_time {
            return Ok(());
        }
        let text = format!(
            "its parent ended at {}, and it at {} ({how:?})",
            World::world_ms(left_at),
            World::world_ms(at)
        );
        Err(("23 no child is left alone", text))
    }
}

/// How a run has ended, and when.
fn end_of(disk: &Tables, place: &Place, number: u64) -> Option<(End, Timestamp)> {
    match disk.run(place, number)?.phase {
        Phase::Ended { how, at } => Some((how, at)),
        Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } => None,
    }
}

impl Model for Family {
    type State = World;
    type Event = Event;

    fn initial(&self, traced: bool) -> World {
        let job = family::job("f", 1, 1, self.ms, self.manner);
        let start = Ask::Start {
            key: None,
            nonce: RunId::suffix_from(1),
            workflow: FAMILY,
            input: Payload::encode(&job).expect("a job is JSON"),
            seed: SEED,
        };
        let task = Task { cell: PARENT, ask: Rc::new(start), after: None, stands: Stands::Unsent, run: None };
        // As many events as there are: how a journal is paged is the first model's.
        let setting = Setting {
            app: self.app.clone(),
            page_events: 16,
            sabotage: self.sabotage,
            known: Known::default(),
        };
        World::new(setting, 2, vec![task], self.bounds, traced)
    }

    fn events(&self, state: &World) -> Vec<Event> {
        state.events()
    }

    fn is_fault(&self, event: Event) -> bool {
        event.cost != Cost::CALM
    }

    fn apply(&self, state: &mut World, event: Event) -> Result<bool, (&'static str, String)> {
        let has_changed = state.happen(event)?;
        let runs: Vec<_> = state.sites.iter().map(|site| site.disk.runs.len()).collect();
        if runs.iter().any(|runs| *runs > 1) {
            return Err(("23 one message starts one child", format!("the cells have {runs:?} runs")));
        }
        Ok(has_changed)
    }

    fn is_at_rest(&self, state: &World) -> Result<bool, (&'static str, String)> {
        if !state.is_at_rest()? {
            return Ok(false);
        }
        let Some(parent) = state.tasks[0].run.clone() else { return Ok(true) };
        let children = &state.sites[CHILD].disk;
        let key = child_key(&parent, Seq(1));
        let Some((number, child)) = children.runs.first_key_value() else {
            // Its parent did not wait for it until it began.
            let row = &state.sites[PARENT].disk.runs[&parent.number];
            if self.manner == Manner::Impatient
                && children.given_up.contains(&key)
                && row.status == "completed"
            {
                return Ok(true);
            }
            return Err(("23 no child is lost", "there is none".into()));
        };
        if children.keys.get(&key).is_none_or(|stored| stored.number != *number) {
            let keys = children.keys.keys().filter(|key| key.starts_with(CHILD_KEYS)).count();
            return Err(("23 a child is known by its key", format!("{keys} keys")));
        }
        if matches!(self.manner, Manner::Impatient | Manner::Detached) {
            self.let_go(state, &parent, *number)?;
        }
        let row = &state.sites[PARENT].disk.runs[&parent.number];
        let given = format!("[{}]", child.result.as_deref().unwrap_or("null"));
        let is_right = match self.manner {
            Manner::Plain => row.result.as_deref() == Some(&given) && child.status == "completed",
            Manner::Detached | Manner::Abandoned | Manner::Anew | Manner::Failing | Manner::Impatient => {
                row.status == "completed"
            }
        };
        if is_right {
            Ok(true)
        } else {
            let text = format!("it is {} with {:?}, its child gave {given}", row.status, row.result);
            Err(("23 a parent hears what its child gave", text))
        }
    }

    fn digest(&self, state: &World) -> u64 {
        state.digest()
    }

    fn notes(&self, state: &World) -> Vec<String> {
        state.notes.clone().unwrap_or_default()
    }
}
