//! How people name a run: by its id, or by the idempotency key that they have started it with.
//!
//! Every command that takes a run takes either. Where the API has a route by key, that one is asked; elsewhere the run
//! is looked up first.

use std::{fmt, str::FromStr};

use stepwell_protocol::rest::RunView;

use crate::{
    client::{Answer, Ask, Client},
    failure::Result,
};

/// A run, as somebody names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunName {
    /// By its id.
    Id(String),
    /// By its workflow and the key that has started it.
    Key {
        /// The workflow.
        workflow: String,
        /// The key.
        key: String,
    },
}

/// What names no run.
#[derive(Debug, PartialEq, Eq)]
pub enum NoName {
    /// One of the parts is empty.
    Empty,
    /// One of them is what addresses mean something else by.
    Dots,
}

impl FromStr for RunName {
    type Err = NoName;

    fn from_str(text: &str) -> std::result::Result<Self, NoName> {
        // An id has no slash, and a key may have several.
        match text.split_once('/') {
            None if text.is_empty() => Err(NoName::Empty),
            None => Ok(Self::Id(text.to_owned())),
            Some((workflow, key)) if workflow.is_empty() || key.is_empty() => Err(NoName::Empty),
            Some(("." | "..", _) | (_, "." | "..")) => Err(NoName::Dots),
            Some((workflow, key)) => Ok(Self::Key { workflow: workflow.to_owned(), key: key.to_owned() }),
        }
    }
}

impl fmt::Display for NoName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => {
                "name a run by its id, or as WORKFLOW/KEY by the idempotency key that it was started with"
            }
            Self::Dots => "dots alone cannot be part of an address; name the run by its id",
        })
    }
}

impl std::error::Error for NoName {}

impl fmt::Display for RunName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => formatter.write_str(id),
            Self::Key { workflow, key } => write!(formatter, "{workflow}/{key}"),
        }
    }
}

impl RunName {
    /// The parts of its address, and what comes after them.
    pub fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path: Vec<&str> = match self {
            Self::Id(id) => vec!["executions", id],
            Self::Key { workflow, key } => vec!["workflows", workflow, "by-key", key],
        };
        path.extend(rest);
        path
    }

    /// The run as it stands.
    pub fn show(&self, client: &Client) -> Result<Answer<RunView>> {
        client.get(&self.path(&[]), &Ask::default())
    }

    /// Its id, which is looked up if that is not its name.
    pub fn id(&self, client: &Client) -> Result<String> {
        match self {
            Self::Id(id) => Ok(id.clone()),
            Self::Key { .. } => Ok(self.show(client)?.value.id.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_its_id_or_by_its_workflow_and_key() {
        let path = |text: &str| {
            let name: RunName = text.parse().expect("it is a name");
            assert_eq!(name.to_string(), text);
            name.path(&["cancel"]).join(" ")
        };
        assert_eq!(path("default-1-3-42-bvyaw3bemryy"), "executions default-1-3-42-bvyaw3bemryy cancel");
        assert_eq!(path("orders/4711"), "workflows orders by-key 4711 cancel");
        assert_eq!(path("orders/acme/4711"), "workflows orders by-key acme/4711 cancel");
        assert_eq!(path("orders/..."), "workflows orders by-key ... cancel");
    }

    #[test]
    fn what_names_no_run_is_refused() {
        for text in ["", "/", "orders/", "/4711"] {
            assert_eq!(text.parse::<RunName>(), Err(NoName::Empty), "{text}");
        }
        for text in ["orders/.", "orders/..", "../4711", "../../secrets"] {
            assert_eq!(text.parse::<RunName>(), Err(NoName::Dots), "{text}");
        }
    }
}
