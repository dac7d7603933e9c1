//! The pages that there are, in groups, with the keys that lead to them.

use stepwell_protocol::routes::Route;

use crate::{
    may::May,
    place::{MINUTES_DEFAULT, Place},
};

/// Pages that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they are called together. Those of the first group stand alone.
    pub name: &'static str,
    /// The pages.
    pub entries: Vec<Entry>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is called.
    pub name: &'static str,
    /// The key that leads to it, after a `g`.
    pub key: char,
    /// It.
    pub place: Place,
}

/// The pages that somebody may see. `is_root` is whether they have signed in with the deployment's own key.
pub fn groups(may: &May, is_root: bool) -> Vec<Group> {
    let entry = |name, key, place, is_seen: bool| is_seen.then_some(Entry { name, key, place });
    let sees = |route| may.ask(route, None);
    let group =
        |name, entries: Vec<Option<Entry>>| Group { name, entries: entries.into_iter().flatten().collect() };
    let mut groups = vec![
        group(
            "",
            vec![
                entry("Runs", 'r', Place::all_runs(), true),
                entry("Workflows", 'w', Place::Workflows, true),
            ],
        ),
        group(
            "Starts",
            vec![
                entry("Schedules", 's', Place::Schedules { after: None }, sees(Route::ListSchedules)),
                entry("Events", 'e', Place::Topics, sees(Route::ListEvents)),
            ],
        ),
        group(
            "Queues",
            vec![
                entry("Queues", 'q', Place::Queues { after: None }, sees(Route::ListQueues)),
                entry("Lanes", 'l', Place::Lanes, sees(Route::ShowStepLane)),
                entry("Outbox", 'o', Place::Outbox { cursor: None }, sees(Route::ListOutbox)),
            ],
        ),
        group(
            "Health",
            vec![
                entry("Failures", 'f', Place::Failures { cursor: None }, true),
                entry("Metrics", 'm', Place::Metrics { workflow: None, minutes: MINUTES_DEFAULT }, true),
                entry("Cells", 'c', Place::Cells, sees(Route::ListCells)),
                entry("Alerts", 'a', Place::Alerts, sees(Route::ListAlerts)),
            ],
        ),
        group(
            "Admin",
            vec![
                entry("Keys", 'k', Place::Keys, sees(Route::ListKeys)),
                entry("Sessions", 'i', Place::Sessions, sees(Route::ListSessions)),
                entry("Settings", 't', Place::Settings, sees(Route::ShowSettings)),
                entry("Audit log", 'u', Place::Audit { before: None }, sees(Route::Audit)),
                entry("Namespaces", 'n', Place::Namespaces, is_root),
            ],
        ),
    ];
    groups.retain(|group| !group.entries.is_empty());
    groups
}

/// The page that a key leads to.
pub fn by_key(groups: &[Group], key: &str) -> Option<Place> {
    let mut entries = groups.iter().flat_map(|group| &group.entries);
    entries.find(|entry| key.chars().eq([entry.key])).map(|entry| entry.place.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_page_has_a_key_and_is_a_list() {
        let groups = groups(&May::root(), true);
        let entries: Vec<_> = groups.iter().flat_map(|group| &group.entries).collect();
        let keys: BTreeSet<_> = entries.iter().map(|entry| entry.key).collect();
        assert_eq!(keys.len(), entries.len());
        for entry in entries {
            assert_eq!(entry.place.list(), entry.place);
            assert_eq!(by_key(&groups, &entry.key.to_string()), Some(entry.place.clone()));
        }
        assert_eq!(by_key(&groups, "Enter"), None);
    }

    #[test]
    fn nobody_is_led_to_a_page_that_they_may_not_see() {
        let names: Vec<_> = groups(&May::default(), false)
            .iter()
            .flat_map(|group| &group.entries)
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["Runs", "Workflows", "Failures", "Metrics"]);
    }
}
