//! `stepwell audit`: who did what in the namespace.

use clap::Args;
use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Payload,
    access::{AuditPage, AuditRecord, Refusals},
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Audit {
    /// The maximum number of lines.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// The log as it came.
#[derive(Default, Serialize, Deserialize)]
struct Raw {
    records: Vec<Payload>,
}

impl Audit {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let (mut records, mut raw, mut before) = (Vec::new(), Raw::default(), None);
        let (mut has_more, mut refused) = (true, Refusals::default());
        while has_more && records.len() < self.limit {
            let query = before.take().map(|before: u64| ("before", before.to_string())).into_iter().collect();
            let page: Answer<AuditPage> = client.get(&["audit"], &Ask { query, ..Ask::default() })?;
            raw.records.extend(page.raw().decode::<Raw>().unwrap_or_default().records);
            records.extend(page.value.records);
            refused = page.value.refused;
            before = page.value.next;
            has_more = before.is_some();
        }
        let is_cut = has_more || records.len() > self.limit;
        raw.records.truncate(self.limit);
        records.truncate(self.limit);
        if global.json {
            anstream::println!("{}", serde_json::to_string(&raw).expect("it was read as JSON"));
            return Ok(());
        }
        if records.is_empty() {
            anstream::eprintln!("Nothing was done to keys, settings and sessions in the last 90 days.");
        }
        table::print(&records.iter().map(row).collect::<Vec<_>>());
        let Refusals { unauthorized, forbidden, limit_reached, .. } = refused;
        if !refused.is_empty() {
            anstream::eprintln!(
                "Refused: {unauthorized} with a bad key, {forbidden} without the scope, {limit_reached} beyond a limit."
            );
        }
        if is_cut {
            anstream::eprintln!("There are more: --limit {} shows them.", self.limit.saturating_mul(4));
        }
        Ok(())
    }
}

fn row(record: &AuditRecord) -> Vec<String> {
    let AuditRecord { at, actor, action, subject, detail, .. } = record;
    let mut row = vec![words::date(*at), words::plain(actor), words::plain(action), words::plain(subject)];
    row.extend(detail.as_deref().map(words::plain));
    row
}
