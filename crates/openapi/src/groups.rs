//! The groups of routes, as a reader of the description finds them.

/// The groups of routes, in the order of a reader's interest.
pub const GROUPS: [(&str, &str); 16] = [
    ("Runs", "Start runs, follow them, send them signals, and operate them."),
    ("Workflows", "What the app declares, and what an operator changes."),
    ("Lanes", "Limits that steps share."),
    ("Schedules", "Start runs at certain times."),
    ("Events", "Say what has happened."),
    ("Triggers", "Start a run for each event that matches."),
    ("Webhooks", "Let other services deliver events. Deliveries are signed, and need no key."),
    ("Queues", "Send jobs, and let consumers anywhere claim them."),
    ("Tokens", "Links that complete a wait. They need no key."),
    ("Settings", "Timeouts, retention and payload sizes."),
    ("Keys and sessions", "Who may call the API."),
    ("Alerts", "Tell an address when something is wrong."),
    ("Audit", "Who did what."),
    ("Namespaces", "Tenants of a deployment. These routes need the deployment's key."),
    ("Outbox", "Messages between runs that have not arrived."),
    ("Deployment", "These routes need no key."),
];

/// The group of a route: most have the name that follows `/api/`.
pub fn group(path: &str) -> String {
    let parts: Vec<_> = path.split('/').skip(2).collect();
    let name = match *parts.as_slice() {
        ["executions" | "bulk" | "cells" | "failures" | "metrics" | "stream", ..]
        | ["workflows", _, "start" | "by-key", ..] => "runs",
        ["sync", ..] => "workflows",
        ["hooks", ..] => "webhooks",
        ["topics", ..] => "events",
        ["keys" | "session" | "sessions" | "issuers", ..] => "keys and sessions",
        ["health" | "docs" | "openapi.json", ..] | [] => "deployment",
        [first, ..] => first,
    };
    let mut name = name.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}
