//! Panics in users' code.
//!
//! Where panics unwind, [`catch`] makes an error of one: of a step's attempt, or of the whole run. Where they
//! abort, nothing can be caught, and the instance with all that it holds is lost. Then the panic's last words
//! are what is saved: which run it was, and where. The next activation of that run finds them, and reports what
//! this one could not.
//!
//! Owns: what a panic says. Does not own: what follows from it ([`crate::vm`], [`crate::ops`]).

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Code, Op, Seq, stream::Item};

use crate::{Error, vm::State};

thread_local! {
    // Where the latest panic was: a payload does not say.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
    // The workflow that is being polled, and how much of its journal was delivered to it.
    static WATCHED: RefCell<Option<(Seq, Rc<RefCell<State>>)>> = const { RefCell::new(None) };
    // Whether the handler of a job is being polled.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}

/// What a panic leaves behind when it cannot be caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWords {
    /// The last position that was delivered to the workflow.
    pub delivered: Seq,
    /// The step whose code it was in, and the attempt; if none, it was in the workflow's own code.
    pub step: Option<(Op, u32)>,
    /// What it said.
    pub message: String,
    /// What the code had published before, and nobody was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Item>,
}

impl LastWords {
    /// The error that it is for the step or for the run.
    pub(crate) fn error(&self) -> Error {
        error(&self.message)
    }
}

/// Runs users' code. What it did to its own data does not matter after a panic: the future it belongs to is
/// dropped, and never polled again.
pub(crate) fn catch<T>(code: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| error(&with_place(said(&*payload), PLACE.take())))
}

/// The same for the handler of a job.
pub(crate) fn catch_job<T>(code: impl FnOnce() -> T) -> Result<T, Error> {
    IN_JOB.set(true);
    let caught = catch(code);
    IN_JOB.set(false);
    caught
}

/// A workflow is about to be polled.
pub(crate) fn watch(delivered: Seq, state: &Rc<RefCell<State>>) {
    WATCHED.set(Some((delivered, state.clone())));
}

/// It was polled.
pub(crate) fn forget() {
    WATCHED.set(None);
}

/// The name of the step whose code is being polled, if one is.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn current_step() -> Option<String> {
    WATCHED.with_borrow(|watched| {
        let (_, state) = watched.as_ref()?;
        state.try_borrow().ok()?.inside.as_ref().map(|op| op.name.clone())
    })
}

/// What a panic leaves behind; nothing, if it was in no workflow and no job. To be called by a panic hook, which runs while
/// the code that panicked still holds what it has borrowed.
#[cfg(target_arch = "wasm32")]
pub(crate) fn last_words(info: &std::panic::PanicHookInfo<'_>) -> Option<LastWords> {
    let place = info.location().map(ToString::to_string);
    PLACE.set(place.clone());
    let message = with_place(said(info.payload()), place);
    if IN_JOB.get() {
        return Some(LastWords { delivered: Seq(0), step: None, message, published: Vec::new() });
    }
    WATCHED.with(|watched| {
        let watched = watched.try_borrow().ok()?;
        let (delivered, state) = watched.as_ref()?;
        let (step, published) =
            state.try_borrow().map(|state| (state.inside(), state.left())).unwrap_or_default();
        Some(LastWords { delivered: *delivered, step, message, published })
    })
}

fn with_place(said: String, place: Option<String>) -> String {
    match place {
        Some(place) => format!("{said}, at {place}"),
        None => said,
    }
}

fn said(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(said), _) => (*said).to_owned(),
        (None, Some(said)) => said.clone(),
        (None, None) => "nothing was said about it".to_owned(),
    }
}

fn error(message: &str) -> Error {
    Error::msg(format!("the code panicked: {message}")).coded(Code::Panicked)
}
