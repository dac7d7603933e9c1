//! Addresses: which view a URL means, and which URL a view has.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Where the dashboard is.
pub const ROOT: &str = "/dash/";

/// How many minutes the metrics show, unless the address says it.
pub const MINUTES_DEFAULT: u32 = 60;

/// Kept readable in addresses: they are copied into chats.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// Where a page of a list begins, as the API said it; the first page without one.
pub type Cursor = Option<String>;

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
    /// One workflow.
    Workflow {
        /// Its name.
        name: String,
        /// The page of its lane.
        lane: Cursor,
    },
    /// The schedules.
    Schedules {
        /// The page.
        after: Cursor,
    },
    /// One schedule, by its id.
    Schedule(String),
    /// The topics that events belong to.
    Topics,
    /// One topic: its events, triggers and webhooks.
    Topic {
        /// Its name.
        topic: String,
        /// The page of its events.
        before: Cursor,
    },
    /// One event, by its topic and id.
    Event(String, String),
    /// One trigger, by its topic and id.
    Trigger(String, String),
    /// One webhook, by its topic and id.
    Webhook(String, String),
    /// One delivery, by its topic, its webhook and its number.
    Delivery(String, String, String),
    /// The lanes.
    Lanes,
    /// One lane of steps.
    Lane {
        /// Its name.
        name: String,
        /// The page.
        cursor: Cursor,
    },
    /// The queues.
    Queues {
        /// The page.
        after: Cursor,
    },
    /// One queue.
    Queue {
        /// Its name.
        name: String,
        /// The page of its dead letters.
        cursor: Cursor,
    },
    /// One job, by its queue and id.
    Job(String, String),
    /// Messages that have not arrived.
    Outbox {
        /// The page.
        cursor: Cursor,
    },
    /// What has happened in the last minutes.
    Metrics {
        /// To runs of this workflow.
        workflow: Option<String>,
        /// How many minutes.
        minutes: u32,
    },
    /// What has failed, in groups.
    Failures {
        /// The page.
        cursor: Cursor,
    },
    /// The cells.
    Cells,
    /// The alerts.
    Alerts,
    /// The keys of the namespace.
    Keys,
    /// The sessions of the namespace.
    Sessions,
    /// The settings of the namespace.
    Settings,
    /// The audit log.
    Audit {
        /// The page.
        before: Cursor,
    },
    /// The namespaces of the deployment.
    Namespaces,
    /// One namespace, by its name.
    Namespace(String),
    /// No view has this address.
    Nowhere,
}

impl Place {
    /// The view of a path and a query, with or without its question mark.
    pub fn of(path: &str, query: &str) -> Self {
        let Some(rest) = path.strip_prefix(ROOT) else { return Self::Nowhere };
        let parts: Option<Vec<String>> = rest.trim_end_matches('/').split('/').map(decoded).collect();
        let Some(parts) = parts else { return Self::Nowhere };
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let said = |name: &str| parameter(query, name).filter(|value| !value.is_empty());
        let own = |text: &str| text.to_owned();
        if parts.len() > 1 && parts.iter().any(|part| part.is_empty()) {
            return Self::Nowhere;
        }
        match *parts.as_slice() {
            [""] => Self::Runs { filter: parameter(query, "q").unwrap_or_default() },
            ["runs", id] => Self::Run { id: own(id), step: parameter(query, "step") },
            ["workflows"] => Self::Workflows,
            ["workflows", name] => Self::Workflow { name: own(name), lane: said("lane") },
            ["schedules"] => Self::Schedules { after: said("after") },
            ["schedules", id] => Self::Schedule(own(id)),
            ["events"] => Self::Topics,
            ["events", topic] => Self::Topic { topic: own(topic), before: said("before") },
            ["events", topic, id] => Self::Event(own(topic), own(id)),
            ["triggers", topic, id] => Self::Trigger(own(topic), own(id)),
            ["webhooks", topic, id] => Self::Webhook(own(topic), own(id)),
            ["webhooks", topic, id, delivery] => Self::Delivery(own(topic), own(id), own(delivery)),
            ["lanes"] => Self::Lanes,
            ["lanes", name] => Self::Lane { name: own(name), cursor: said("cursor") },
            ["queues"] => Self::Queues { after: said("after") },
            ["queues", name] => Self::Queue { name: own(name), cursor: said("cursor") },
            ["queues", queue, "jobs", id] => Self::Job(own(queue), own(id)),
            ["outbox"] => Self::Outbox { cursor: said("cursor") },
            ["metrics"] => Self::Metrics {
                workflow: said("workflow"),
                minutes: said("minutes").and_then(|text| text.parse().ok()).unwrap_or(MINUTES_DEFAULT),
            },
            ["failures"] => Self::Failures { cursor: said("cursor") },
            ["cells"] => Self::Cells,
            ["alerts"] => Self::Alerts,
            ["keys"] => Self::Keys,
            ["sessions"] => Self::Sessions,
            ["settings"] => Self::Settings,
            ["audit"] => Self::Audit { before: said("before") },
            ["namespaces"] => Self::Namespaces,
            ["namespaces", name] => Self::Namespace(own(name)),
            _ => Self::Nowhere,
        }
    }

    /// Its path and query.
    pub fn address(&self) -> String {
        let at = |parts: &[&str]| address(parts, &[]);
        let page = |parts: &[&str], name: &str, cursor: &Cursor| address(parts, &[(name, cursor.as_deref())]);
        match self {
            Self::Runs { filter } => {
                let filter = filter.trim();
                address(&[], &[("q", (!filter.is_empty()).then_some(filter))])
            }
            Self::Run { id, step } => address(&["runs", id], &[("step", step.as_deref())]),
            Self::Workflows => at(&["workflows"]),
            Self::Workflow { name, lane } => page(&["workflows", name], "lane", lane),
            Self::Schedules { after } => page(&["schedules"], "after", after),
            Self::Schedule(id) => at(&["schedules", id]),
            Self::Topics => at(&["events"]),
            Self::Topic { topic, before } => page(&["events", topic], "before", before),
            Self::Event(topic, id) => at(&["events", topic, id]),
            Self::Trigger(topic, id) => at(&["triggers", topic, id]),
            Self::Webhook(topic, id) => at(&["webhooks", topic, id]),
            Self::Delivery(topic, webhook, id) => at(&["webhooks", topic, webhook, id]),
            Self::Lanes => at(&["lanes"]),
            Self::Lane { name, cursor } => page(&["lanes", name], "cursor", cursor),
            Self::Queues { after } => page(&["queues"], "after", after),
            Self::Queue { name, cursor } => page(&["queues", name], "cursor", cursor),
            Self::Job(queue, id) => at(&["queues", queue, "jobs", id]),
            Self::Outbox { cursor } => page(&["outbox"], "cursor", cursor),
            Self::Metrics { workflow, minutes } => {
                let minutes = (*minutes != MINUTES_DEFAULT).then(|| minutes.to_string());
                address(&["metrics"], &[("workflow", workflow.as_deref()), ("minutes", minutes.as_deref())])
            }
            Self::Failures { cursor } => page(&["failures"], "cursor", cursor),
            Self::Cells => at(&["cells"]),
            Self::Alerts => at(&["alerts"]),
            Self::Keys => at(&["keys"]),
            Self::Sessions => at(&["sessions"]),
            Self::Settings => at(&["settings"]),
            Self::Audit { before } => page(&["audit"], "before", before),
            Self::Namespaces => at(&["namespaces"]),
            Self::Namespace(name) => at(&["namespaces", name]),
            Self::Nowhere => ROOT.to_owned(),
        }
    }

    /// All runs.
    pub fn all_runs() -> Self {
        Self::Runs { filter: String::new() }
    }

    /// One run, with nothing of it open.
    #[expect(clippy::needless_pass_by_value, reason = "ids and texts are given as they are")]
    pub fn of_run(id: impl ToString) -> Self {
        Self::Run { id: id.to_string(), step: None }
    }

    /// One workflow.
    pub fn workflow(name: &str) -> Self {
        Self::Workflow { name: name.to_owned(), lane: None }
    }

    /// One topic, with its latest events.
    pub fn topic(topic: &str) -> Self {
        Self::Topic { topic: topic.to_owned(), before: None }
    }

    /// One queue, with its first dead letters.
    pub fn queue(name: &str) -> Self {
        Self::Queue { name: name.to_owned(), cursor: None }
    }

    /// One lane of steps.
    pub fn lane(name: &str) -> Self {
        Self::Lane { name: name.to_owned(), cursor: None }
    }

    /// The list that it belongs to: itself, if it is one.
    #[must_use]
    pub fn list(&self) -> Self {
        match self {
            Self::Runs { .. } | Self::Run { .. } | Self::Nowhere => Self::all_runs(),
            Self::Workflows | Self::Workflow { .. } => Self::Workflows,
            Self::Schedules { .. } | Self::Schedule(_) => Self::Schedules { after: None },
            Self::Topics
            | Self::Topic { .. }
            | Self::Event(..)
            | Self::Trigger(..)
            | Self::Webhook(..)
            | Self::Delivery(..) => Self::Topics,
            Self::Lanes | Self::Lane { .. } => Self::Lanes,
            Self::Queues { .. } | Self::Queue { .. } | Self::Job(..) => Self::Queues { after: None },
            Self::Outbox { .. } => Self::Outbox { cursor: None },
            Self::Metrics { .. } => Self::Metrics { workflow: None, minutes: MINUTES_DEFAULT },
            Self::Failures { .. } => Self::Failures { cursor: None },
            Self::Cells => Self::Cells,
            Self::Alerts => Self::Alerts,
            Self::Keys => Self::Keys,
            Self::Sessions => Self::Sessions,
            Self::Settings => Self::Settings,
            Self::Audit { .. } => Self::Audit { before: None },
            Self::Namespaces | Self::Namespace(_) => Self::Namespaces,
        }
    }

    /// What it is called in the browser's title.
    pub fn title(&self) -> String {
        match self {
            Self::Run { id, .. } => id.clone(),
            Self::Workflow { name, .. }
            | Self::Lane { name, .. }
            | Self::Queue { name, .. }
            | Self::Schedule(name)
            | Self::Namespace(name)
            | Self::Topic { topic: name, .. }
            | Self::Event(_, name)
            | Self::Trigger(_, name)
            | Self::Webhook(_, name)
            | Self::Job(_, name) => name.clone(),
            Self::Delivery(_, webhook, id) => format!("{webhook} {id}"),
            Self::Nowhere => String::new(),
            Self::Runs { .. } => "Runs".into(),
            Self::Workflows => "Workflows".into(),
            Self::Schedules { .. } => "Schedules".into(),
            Self::Topics => "Events".into(),
            Self::Lanes => "Lanes".into(),
            Self::Queues { .. } => "Queues".into(),
            Self::Outbox { .. } => "Outbox".into(),
            Self::Metrics { .. } => "Metrics".into(),
            Self::Failures { .. } => "Failures".into(),
            Self::Cells => "Cells".into(),
            Self::Alerts => "Alerts".into(),
            Self::Keys => "Keys".into(),
            Self::Sessions => "Sessions".into(),
            Self::Settings => "Settings".into(),
            Self::Audit { .. } => "Audit log".into(),
            Self::Namespaces => "Namespaces".into(),
        }
    }
}

fn address(parts: &[&str], query: &[(&str, Option<&str>)]) -> String {
    let mut address = ROOT.to_owned();
    for (index, part) in parts.iter().enumerate() {
        address.push_str(if index == 0 { "" } else { "/" });
        address.push_str(&encoded(part));
    }
    let mut mark = '?';
    for (name, value) in query {
        if let Some(value) = value {
            address.push(mark);
            address.push_str(name);
            address.push('=');
            address.push_str(&encoded(value));
            mark = '&';
        }
    }
    address
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

    fn places(name: &str, cursor: &Cursor) -> Vec<Place> {
        let (name, cursor) = (|| name.to_owned(), || cursor.clone());
        vec![
            Place::Runs { filter: String::new() },
            Place::Run { id: name(), step: cursor() },
            Place::Workflows,
            Place::Workflow { name: name(), lane: cursor() },
            Place::Schedules { after: cursor() },
            Place::Schedule(name()),
            Place::Topics,
            Place::Topic { topic: name(), before: cursor() },
            Place::Event(name(), name()),
            Place::Trigger(name(), name()),
            Place::Webhook(name(), name()),
            Place::Delivery(name(), name(), name()),
            Place::Lanes,
            Place::Lane { name: name(), cursor: cursor() },
            Place::Queues { after: cursor() },
            Place::Queue { name: name(), cursor: cursor() },
            Place::Job(name(), name()),
            Place::Outbox { cursor: cursor() },
            Place::Metrics { workflow: cursor(), minutes: 360 },
            Place::Failures { cursor: cursor() },
            Place::Cells,
            Place::Alerts,
            Place::Keys,
            Place::Sessions,
            Place::Settings,
            Place::Audit { before: cursor() },
            Place::Namespaces,
            Place::Namespace(name()),
        ]
    }

    #[test]
    fn each_view_has_an_address_of_its_own() {
        for (address, place) in [
            ("/dash/", Place::Runs { filter: String::new() }),
            ("/dash/?q=status:failed", Place::Runs { filter: "status:failed".into() }),
            ("/dash/runs/default-1-3-1-x", Place::of_run("default-1-3-1-x")),
            ("/dash/workflows", Place::Workflows),
            ("/dash/workflows/send%20mail", Place::workflow("send mail")),
            ("/dash/schedules", Place::Schedules { after: None }),
            ("/dash/events/order/evt_1", Place::Event("order".into(), "evt_1".into())),
            ("/dash/queues/mails/jobs/18b-0-1", Place::Job("mails".into(), "18b-0-1".into())),
            ("/dash/metrics?minutes=1440", Place::Metrics { workflow: None, minutes: 1_440 }),
        ] {
            assert_eq!(place.address(), address);
            assert_eq!(back(&place), place);
        }
        let all = places("x", &Some("7".into()));
        let addresses: std::collections::BTreeSet<_> = all.iter().map(Place::address).collect();
        assert_eq!(addresses.len(), all.len());
    }

    #[test]
    fn each_list_is_its_own_list_and_has_a_title() {
        for place in places("x", &None) {
            let list = place.list();
            assert_eq!(list.list(), list);
            assert!(!place.title().is_empty(), "{place:?}");
        }
    }

    #[test]
    fn addresses_of_others_lead_nowhere() {
        for path in [
            "/",
            "/api/executions",
            "/dash/x",
            "/dash/runs",
            "/dash/runs/%ff",
            "/dash/runs/a/b",
            "/dash/triggers/a",
            "/dash/queues/a/b/c",
            "/dash/events//a",
        ] {
            assert_eq!(Place::of(path, ""), Place::Nowhere, "{path}");
        }
        assert_eq!(Place::of("/dash/metrics", "minutes=x"), Place::Metrics { workflow: None, minutes: 60 });
    }

    proptest! {
        #[test]
        fn any_name_and_any_cursor_survive_the_way_through_an_address(name in ".+", cursor in ".+") {
            for place in places(&name, &Some(cursor)) {
                prop_assert_eq!(back(&place), place);
            }
        }

        #[test]
        fn any_filter_and_any_id_survive_the_way_through_an_address(text in ".*", id in ".+", step in ".*") {
            let runs = Place::Runs { filter: text.trim().to_owned() };
            prop_assert_eq!(back(&runs), runs);
            let run = Place::Run { id, step: Some(step) };
            prop_assert_eq!(back(&run), run);
        }
    }
}
