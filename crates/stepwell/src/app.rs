//! An app: the workflows that a program has.

use std::{collections::BTreeMap, marker::PhantomData, pin::Pin, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use stepwell_protocol::{
    Payload,
    manifest::{Manifest, WorkerVersion},
    program::{Dispatch, WorkflowDescription, is_reserved},
};

use crate::{Ctx, Error, Result, ops::millis, shape::shape_of};

/// A workflow's future, whatever its types.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Payload>>>>;

type Start = Box<dyn Fn(Ctx, &Payload) -> Result<Running>>;

/// The JSON Schema of a workflow's input. Asked for only when the app describes itself.
type Schema = Box<dyn Fn() -> Option<Value>>;

/// A workflow with its name and the type of its input. `#[workflow]` makes one of an `async fn`.
pub struct Workflow<I> {
    name: &'static str,
    timeout: Option<Duration>,
    retention: Option<Duration>,
    dispatch: Dispatch,
    key_required: bool,
    schema: Schema,
    start: Start,
    input: PhantomData<fn(I)>,
}

impl<I: DeserializeOwned + 'static> Workflow<I> {
    /// A workflow of this name that runs this code.
    pub fn new<F, O>(name: &'static str, code: F) -> Self
    where
        F: Fn(Ctx, I) -> O + 'static,
        O: Future<Output = Result<Payload>> + 'static,
    {
        let start: Start = Box::new(move |ctx, input| {
            let input = input
                .decode()
                .map_err(|error| Error::msg(format!("the input does not fit workflow '{name}': {error}")))?;
            Ok(Box::pin(code(ctx, input)))
        });
        Self {
            name,
            timeout: None,
            retention: None,
            dispatch: Dispatch::default(),
            key_required: false,
            schema: Box::new(|| shape_of::<I>().schema()),
            start,
            input: PhantomData,
        }
    }

    /// How long a run of it may take; after that it is failed.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// How long a run of it is kept after its end; after that it is deleted. Zero is for ever.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// How its program is called.
    #[must_use]
    pub fn dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// Lets a run of it be started only with an idempotency key.
    #[must_use]
    pub fn requires_key(self) -> Self {
        Self { key_required: true, ..self }
    }

    /// The JSON Schema of its input, in place of what Stepwell finds out about the type by itself: what `schemars` makes
    /// of it, say. It stands in the app's manifest, for clients to check inputs by; the engine does not.
    #[must_use]
    pub fn input_schema<S: Serialize + 'static>(self, schema: fn() -> S) -> Self {
        Self { schema: Box::new(move || serde_json::to_value(schema()).ok()), ..self }
    }

    /// Its name, by which runs are started.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// A workflow of an app.
struct Defined {
    start: Start,
    timeout: Option<Duration>,
    retention: Option<Duration>,
    dispatch: Dispatch,
    key_required: bool,
    schema: Schema,
}

/// The workflows that a program has.
#[derive(Default)]
pub struct App {
    workflows: BTreeMap<&'static str, Defined>,
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
    pub fn workflow<I>(mut self, define: fn() -> Workflow<I>) -> Self {
        let Workflow { name, timeout, retention, dispatch, key_required, schema, start, .. } = define();
        let defined = Defined { start, timeout, retention, dispatch, key_required, schema };
        let before = self.workflows.insert(name, defined);
        assert!(!is_reserved(name), "the name '{name}' is the engine's own: begin it with another word");
        assert!(before.is_none(), "there are two workflows named '{name}'");
        self
    }

    /// The names of its workflows, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.workflows.keys().copied()
    }

    /// What it declares.
    pub fn manifest(&self) -> Manifest {
        self.manifest_of(None)
    }

    /// What a version of a Worker declares that has it.
    pub(crate) fn manifest_of(&self, version: Option<WorkerVersion>) -> Manifest {
        let workflows = self.workflows.iter().map(|(name, defined)| WorkflowDescription {
            name: (*name).to_owned(),
            timeout_ms: defined.timeout.map(millis),
            retention_ms: defined.retention.map(millis),
            dispatch: defined.dispatch,
            key_required: defined.key_required,
            input_schema: (defined.schema)(),
        });
        Manifest::new(workflows.collect(), version)
    }

    /// How long a run of this workflow may take.
    #[cfg(feature = "testing")]
    pub(crate) fn timeout_ms(&self, name: &str) -> Option<u64> {
        self.workflows.get(name)?.timeout.map(millis)
    }

    /// How a run of this workflow is started.
    pub(crate) fn starter(&self, name: &str) -> Option<&Start> {
        self.workflows.get(name).map(|defined| &defined.start)
    }
}

/// Encodes what a workflow returned.
pub fn encode_output<T: Serialize>(output: &T) -> Result<Payload> {
    Payload::encode(output)
        .map_err(|error| Error::msg(format!("the output cannot be written as JSON: {error}")))
}
