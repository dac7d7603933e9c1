//! Addresses: which view a URL means, and which URL a view has.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Where the dashboard is.
pub const ROOT: &str = "/dash/";

/// Kept readable in addresses: they are copied into chats.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Runs that match a filter, as its text.
    Runs {
        /// The text of the filter.
        filter: String,
    },
    /// One run.
    Run {
        /// Its id.
        id: String,
        /// The step that is open, as `kind:occurrence:name`.
        step: Option<String>,
    },
    /// The workflows.
    Workflows,
    /// The schedules.
    Schedules,
    /// No view has this address.
    Nowhere,
}

impl Place {
    /// The view of a path and a query, with or without its question mark.
    pub fn of(path: &str, query: &str) -> Self {
        let Some(rest) = path.strip_prefix(ROOT) else { return Self::Nowhere };
        let parameter = |name: &str| parameter(query, name);
        match rest.trim_end_matches('/').split('/').collect::<Vec<_>>().as_slice() {
            [""] => Self::Runs { filter: parameter("q").unwrap_or_default() },
            ["runs", id] => match decoded(id) {
                Some(id) => Self::Run { id, step: parameter("step") },
                None => Self::Nowhere,
            },
            ["workflows"] => Self::Workflows,
            ["schedules"] => Self::Schedules,
            _ => Self::Nowhere,
        }
    }

    /// Its path and query.
    pub fn address(&self) -> String {
        match self {
            Self::Runs { filter } if filter.trim().is_empty() => ROOT.to_owned(),
            Self::Runs { filter } => format!("{ROOT}?q={}", encoded(filter.trim())),
            Self::Run { id, step: None } => format!("{ROOT}runs/{}", encoded(id)),
            Self::Run { id, step: Some(step) } => {
                format!("{ROOT}runs/{}?step={}", encoded(id), encoded(step))
            }
            Self::Workflows => format!("{ROOT}workflows"),
            Self::Schedules => format!("{ROOT}schedules"),
            Self::Nowhere => ROOT.to_owned(),
        }
    }

    /// The address of one run.
    pub fn run(id: &str) -> String {
        Self::Run { id: id.to_owned(), step: None }.address()
    }

    /// The address of the runs that match a filter.
    pub fn runs(filter: &str) -> String {
        Self::Runs { filter: filter.to_owned() }.address()
    }
}

/// A text as a part of an address.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let query = query.strip_prefix('?').unwrap_or(query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(found, _)| *found == name)?;
    decoded(&value.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn back(place: &Place) -> Place {
        let address = place.address();
        let (path, query) = address.split_once('?').unwrap_or((&address, ""));
        Place::of(path, query)
    }

    #[test]
    fn each_view_has_an_address_of_its_own() {
        for (address, place) in [
            ("/dash/", Place::Runs { filter: String::new() }),
            ("/dash/?q=status:failed", Place::Runs { filter: "status:failed".into() }),
            ("/dash/runs/default-1-3-1-x", Place::Run { id: "default-1-3-1-x".into(), step: None }),
            ("/dash/workflows", Place::Workflows),
            ("/dash/schedules", Place::Schedules),
        ] {
            assert_eq!(place.address(), address);
            assert_eq!(back(&place), place);
        }
    }

    #[test]
    fn addresses_of_others_lead_nowhere() {
        for path in ["/", "/api/executions", "/dash/x", "/dash/runs", "/dash/runs/%ff", "/dash/runs/a/b"] {
            assert_eq!(Place::of(path, ""), Place::Nowhere, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_filter_and_any_id_survive_the_way_through_an_address(text in ".*", id in ".+", step in ".*") {
            let runs = Place::Runs { filter: text.trim().to_owned() };
            prop_assert_eq!(back(&runs), runs);
            let run = Place::Run { id, step: Some(step) };
            prop_assert_eq!(back(&run), run);
        }
    }
}
