//! An app: the workflows that a program has.

use std::{collections::BTreeMap, marker::PhantomData, pin::Pin, rc::Rc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    PROTOCOL, Payload,
    program::{Description, Dispatch, WorkflowDescription, is_reserved},
};

use crate::{Ctx, Error, Result, ops::millis};

/// A workflow's future, whatever its types.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Payload>>>>;

type Start = Box<dyn Fn(Ctx, &Payload) -> Result<Running>>;

/// A workflow with its name and the types of its input and output. `#[workflow]` makes one of an `async fn`.
pub struct Workflow<I, O = Payload> {
    name: &'static str,
    terms: Terms,
    start: Start,
    types: PhantomData<fn(I) -> O>,
}

/// What an app says about the runs of one of its workflows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub timeout_ms: Option<u64>,
    pub retention_ms: Option<u64>,
    pub dispatch: Dispatch,
    key_required: bool,
}

/// The terms of all workflows of an app, by name.
pub(crate) type AllTerms = Rc<BTreeMap<&'static str, Terms>>;

impl<I: DeserializeOwned + 'static, O> Workflow<I, O> {
    /// A workflow of this name that runs this code.
    pub fn new<F, R>(name: &'static str, code: F) -> Self
    where
        F: Fn(Ctx, I) -> R + 'static,
        R: Future<Output = Result<Payload>> + 'static,
    {
        let start: Start = Box::new(move |ctx, input| {
            let input = input
                .decode()
                .map_err(|error| Error::msg(format!("the input does not fit workflow '{name}': {error}")))?;
            Ok(Box::pin(code(ctx, input)))
        });
        Self { name, terms: Terms::default(), start, types: PhantomData }
    }

    /// How long a run of it may take; after that it is failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout_ms = Some(millis(timeout));
        self
    }

    /// How long a run of it is kept after its end; after that it is deleted. Zero is for ever.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.terms.retention_ms = Some(millis(retention));
        self
    }

    /// How its program is called.
    #[must_use]
    pub fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.terms.dispatch = dispatch;
        self
    }

    /// Lets a run of it be started only with an idempotency key.
    #[must_use]
    pub fn requires_key(mut self) -> Self {
        self.terms.key_required = true;
        self
    }
}

impl<O> Workflow<(), O> {
    /// A workflow that takes no input: whatever it is started with is ignored.
    pub fn without_input<F, R>(name: &'static str, code: F) -> Self
    where
        F: Fn(Ctx) -> R + 'static,
        R: Future<Output = Result<Payload>> + 'static,
    {
        let start: Start = Box::new(move |ctx, _| Ok(Box::pin(code(ctx))));
        Self { name, terms: Terms::default(), start, types: PhantomData }
    }
}

impl<I, O> Workflow<I, O> {
    /// Its name, by which runs are started.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// What a workflow's function returns: gives the type of its output.
#[diagnostic::on_unimplemented(
    message = "a workflow returns `stepwell::Result<T>`, and this one returns `{Self}`",
    label = "not a `Result`"
)]
pub trait Returns {
    /// What the workflow gives.
    type Output;
}

impl<T, E> Returns for Result<T, E> {
    type Output = T;
}

/// The workflows that a program has.
#[derive(Default)]
pub struct App {
    starters: BTreeMap<&'static str, Start>,
    terms: AllTerms,
}

impl App {
    /// An app without workflows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow: what `#[workflow]` has made of a function goes by the function's name.
    ///
    /// # Panics
    /// If there is one of that name already, or the name begins with `stepwell.`: both are mistakes in the program.
    #[must_use]
    pub fn workflow<I, O>(mut self, define: fn() -> Workflow<I, O>) -> Self {
        let Workflow { name, terms, start, .. } = define();
        let before = self.starters.insert(name, start);
        Rc::make_mut(&mut self.terms).insert(name, terms);
        assert!(!is_reserved(name), "the name '{name}' is the engine's own: begin it with another word");
        assert!(before.is_none(), "there are two workflows named '{name}'");
        self
    }

    /// The names of its workflows, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.starters.keys().copied()
    }

    /// What the engine asks an app about itself, as JSON.
    pub fn describe(&self) -> String {
        let workflows = self.terms.iter().map(|(name, terms)| WorkflowDescription {
            name: (*name).to_owned(),
            timeout_ms: terms.timeout_ms,
            retention_ms: terms.retention_ms,
            dispatch: terms.dispatch,
            key_required: terms.key_required,
        });
        let description = Description { protocol: PROTOCOL, workflows: workflows.collect() };
        serde_json::to_string(&description).expect("a description holds only what JSON can say")
    }

    /// How long a run of this workflow may take.
    #[cfg(feature = "testing")]
    pub(crate) fn timeout_ms(&self, name: &str) -> Option<u64> {
        self.terms.get(name)?.timeout_ms
    }

    /// How a run of this workflow is started.
    pub(crate) fn starter(&self, name: &str) -> Option<&Start> {
        self.starters.get(name)
    }

    /// What it says about the runs of its workflows.
    pub(crate) fn terms(&self) -> AllTerms {
        self.terms.clone()
    }
}

/// Encodes what a workflow returned.
pub fn encode_output<T: Serialize>(output: &T) -> Result<Payload> {
    Payload::encode(output)
        .map_err(|error| Error::msg(format!("the output cannot be written as JSON: {error}")))
}
