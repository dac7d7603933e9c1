//! An app: the workflows that a program has.

use std::{collections::BTreeMap, pin::Pin};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::Payload;

use crate::{Ctx, Error, Result};

/// A workflow. `#[workflow]` implements it.
pub trait Workflow: 'static {
    /// Its name, by which runs are started.
    const NAME: &'static str;
    /// What it is started with.
    type Input: DeserializeOwned + 'static;

    /// Runs it.
    fn run(ctx: Ctx, input: Self::Input) -> impl Future<Output = Result<Payload>> + 'static;
}

/// A workflow's future, whatever its types.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Payload>>>>;

type Handler = fn(Ctx, &Payload) -> Result<Running>;

/// The workflows that a program has.
#[derive(Default)]
pub struct App {
    workflows: BTreeMap<&'static str, Handler>,
}

impl App {
    /// An app without workflows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow.
    ///
    /// # Panics
    /// If there is one of that name already: two workflows of one name are a mistake in the program.
    #[must_use]
    pub fn workflow<W: Workflow>(mut self, _: W) -> Self {
        let before = self.workflows.insert(W::NAME, start::<W>);
        assert!(before.is_none(), "there are two workflows named '{}'", W::NAME);
        self
    }

    /// The names of its workflows, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.workflows.keys().copied()
    }

    /// What the engine asks an app about itself, as JSON.
    pub fn describe(&self) -> String {
        let names: Vec<_> = self.names().collect();
        serde_json::json!({ "protocol": stepwell_protocol::PROTOCOL, "workflows": names }).to_string()
    }

    pub(crate) fn handler(&self, name: &str) -> Option<Handler> {
        self.workflows.get(name).copied()
    }
}

fn start<W: Workflow>(ctx: Ctx, input: &Payload) -> Result<Running> {
    let input = input
        .decode()
        .map_err(|error| Error::msg(format!("the input does not fit workflow '{}': {error}", W::NAME)))?;
    Ok(Box::pin(W::run(ctx, input)))
}

/// Encodes what a workflow returned.
pub fn encode_output<T: Serialize>(output: &T) -> Result<Payload> {
    Payload::encode(output)
        .map_err(|error| Error::msg(format!("the output cannot be written as JSON: {error}")))
}
