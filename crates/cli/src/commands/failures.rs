//! `stepwell failures`: what has failed, in groups of failures that are alike.

use clap::Args;
use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Payload, Timestamp,
    failures::{FailureGroup, FailureList},
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Failures {
    /// Only failures of this workflow.
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only groups with a failure since: 2026-11-15, 2026-11-15T08:00:00Z, or an age such as 90m or 2d.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    since: Option<Timestamp>,
    /// The maximum number of groups.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// The groups as they came.
#[derive(Default, Serialize, Deserialize)]
struct Raw {
    failures: Vec<Payload>,
}

impl Failures {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let (mut groups, mut raw, mut cursor, mut complete) = (Vec::new(), Raw::default(), None, true);
        loop {
            let mut query: Vec<_> = self.workflow.iter().map(|name| ("workflow", name.clone())).collect();
            query.extend(self.since.map(|since| ("since", since.as_millis().to_string())));
            query.extend(cursor.take().map(|cursor: String| ("cursor", cursor)));
            let page: Answer<FailureList> = client.get(&["failures"], &Ask { query, ..Ask::default() })?;
            raw.failures.extend(page.raw().decode::<Raw>().unwrap_or_default().failures);
            groups.extend(page.value.failures);
            complete &= page.value.complete;
            cursor = page.value.next;
            if cursor.is_none() || groups.len() >= self.limit {
                break;
            }
        }
        let is_cut = cursor.is_some() || groups.len() > self.limit;
        raw.failures.truncate(self.limit);
        groups.truncate(self.limit);
        if global.json {
            anstream::println!("{}", serde_json::to_string(&raw).expect("it was read as JSON"));
        } else {
            if groups.is_empty() {
                let is_filtered = self.workflow.is_some() || self.since.is_some();
                let none = if is_filtered { "No failures match." } else { "No run has failed." };
                anstream::eprintln!("{none} Failures are kept for 90 days.");
            }
            table::print(&groups.iter().map(row).collect::<Vec<_>>());
        }
        if is_cut {
            anstream::eprintln!("There are more: --limit {} shows them.", self.limit.saturating_mul(4));
        }
        if !complete {
            anstream::eprintln!("Some cells did not answer: failures are missing here.");
        }
        Ok(())
    }
}

fn row(group: &FailureGroup) -> Vec<String> {
    let FailureGroup { workflow, code, step, message, count, last_at, runs, .. } = group;
    let place = match step {
        Some(step) => format!("{}: {}", words::plain(workflow), words::plain(step)),
        None => words::plain(workflow),
    };
    let what = match code {
        Some(code) => format!("{} ({})", words::plain(message), Code::as_str(*code)),
        None => words::plain(message),
    };
    let latest = runs.first().map(ToString::to_string).unwrap_or_default();
    vec![format!("{count} ×"), words::date(*last_at), place, what, latest]
}
