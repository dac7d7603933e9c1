//! What `stepwell doctor` looks at: the tools, the project, and the deployment. Each finding has a remedy.

mod deployment;
mod machine;
mod project;

use serde::Serialize;

use crate::{Global, failure::Failure};

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Good,
    /// Only some commands need it, or nobody can tell from here.
    Note,
    /// Something does not work.
    Bad,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What it is about.
    pub name: &'static str,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Good, found: found.into(), remedy: None }
    }

    fn of(name: &'static str, state: State, failure: Failure) -> Self {
        Self { name, state, found: failure.what, remedy: failure.next }
    }

    fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Bad, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn note(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, state: State::Note, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// Looks at everything, or only at the deployment.
pub fn all(global: &Global, only_remote: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    if !only_remote {
        let project = crate::project::Project::find();
        checks.extend(machine::checks(project.as_ref().ok()));
        checks.extend(project::checks(&project));
    }
    checks.extend(deployment::checks(global));
    checks
}
