//! `stepwell costs`: what each workflow has done, and what it costs.

use clap::Args;
use stepwell_protocol::totals::{WorkflowTotals, WorkflowTotalsList};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Costs {
    /// Only this workflow.
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only a recent period of up to a day, such as 90m or 6h. Without it, all that was ever counted.
    #[arg(long, value_name = "TIME", value_parser = period)]
    last: Option<u64>,
}

/// A length of time, as minutes are kept one by one.
fn period(text: &str) -> std::result::Result<u64, String> {
    let ms = words::parse_length(text)?;
    if (1..=86_400_000).contains(&ms) { Ok(ms) } else { Err("expected up to a day".into()) }
}

impl Costs {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let is_filtered = self.workflow.is_some() || self.last.is_some();
        let mut query: Vec<_> = self.workflow.into_iter().map(|name| ("workflow", name)).collect();
        query.extend(self.last.map(|ms| ("minutes", ms.div_ceil(60_000).to_string())));
        let path = ["metrics", "workflows"];
        let answer: Answer<WorkflowTotalsList> = client.get(&path, &Ask { query, ..Ask::default() })?;
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            let mut workflows = answer.value.workflows;
            workflows.sort_by(|a, b| b.dollars.total_cmp(&a.dollars));
            if workflows.is_empty() {
                let none =
                    if is_filtered { "Nothing was counted for this." } else { "Nothing was counted yet." };
                anstream::eprintln!("{none} What happens is stored about once a minute.");
            } else {
                let head = [
                    "WORKFLOW",
                    "STARTED",
                    "COMPLETED",
                    "FAILED",
                    "P50",
                    "P95",
                    "ROWS",
                    "DOLLARS",
                    "PER MILLION RUNS",
                ];
                let mut rows = vec![head.map(str::to_owned).to_vec()];
                rows.extend(workflows.iter().map(row));
                table::print(&rows);
            }
            if !answer.value.complete {
                anstream::eprintln!("Some cells did not answer: the figures are too low.");
            }
        }
        Ok(())
    }
}

fn row(of: &WorkflowTotals) -> Vec<String> {
    let WorkflowTotals { workflow, totals, p50_ms, p95_ms, dollars } = of;
    let length = |ms: &Option<u64>| ms.map_or_else(|| "–".into(), words::length);
    let per_million = if totals.started == 0 {
        "–".into()
    } else {
        #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
        let per_run = dollars / totals.started as f64;
        format!("{:.2}", per_run * 1e6)
    };
    vec![
        words::plain(workflow),
        totals.started.to_string(),
        totals.completed.to_string(),
        totals.failed.to_string(),
        length(p50_ms),
        length(p95_ms),
        totals.rows.to_string(),
        format!("{dollars:.6}"),
        per_million,
    ]
}
