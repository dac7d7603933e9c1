//! What lists, searches and counts say after all of it, against what is known of each run.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Acknowledged;
use crate::engine::Client;

/// The size of a page: many of them, and the last one is not full.
const PAGE: usize = 97;

/// Which runs a search must find.
type Fits = Box<dyn Fn(&Acknowledged) -> bool>;

/// The tag of the n-th run.
pub fn tag(number: usize) -> String {
    format!("third-{}", number % 3)
}

/// Every run is found by all that it can be found by, once, and nothing else is; the counts are those of the
/// lists. Gives how many searches that took.
pub async fn check(client: &Client, runs: &[Acknowledged], lives: &[(u64, u64)]) -> Result<u32> {
    let known: BTreeMap<_, _> =
        runs.iter().zip(lives).map(|(run, life)| (run.id.as_str(), (run, life))).collect();
    let mut workflows = BTreeMap::<&str, u64>::new();
    for run in runs {
        *workflows.entry(run.workflow).or_default() += 1;
    }

    let mut searches: Vec<(String, Fits)> = vec![
        (String::new(), Box::new(|_| true)),
        ("status=completed".into(), Box::new(|_| true)),
        ("status=running".into(), Box::new(|_| false)),
        ("tag=third-3".into(), Box::new(|_| false)),
    ];
    for &workflow in workflows.keys() {
        searches.push((format!("workflow={workflow}"), Box::new(move |run| run.workflow == workflow)));
    }
    for third in 0..3 {
        let tagged = tag(third);
        searches.push((format!("tag={tagged}"), Box::new(move |run| run.tag == tagged)));
    }
    for items in 1..6 {
        let query = format!("attribute=items:{items}");
        searches.push((query, Box::new(move |run| run.wish.items == items)));
        let query = format!("attribute=items:{items}&tag=third-0&status=completed");
        searches.push((query, Box::new(move |run| run.wish.items == items && run.tag == "third-0")));
    }
    for (query, fits) in &searches {
        let found = client.list(query, PAGE).await?;
        let expected = runs.iter().filter(|run| fits(run)).count();
        ensure!(found.len() == expected, "'{query}' finds {} of {expected}", found.len());
        let mut seen = BTreeSet::new();
        for view in &found {
            let id = view["id"].as_str().context("a run has an id")?;
            let (run, life) =
                known.get(id).with_context(|| format!("'{query}' finds {id}, which nobody started"))?;
            ensure!(fits(run), "'{query}' finds {id}, which does not fit");
            ensure!(seen.insert(id), "'{query}' finds {id} twice");
            let told = (view["status"].as_str(), view["created_at"].as_u64(), view["ended_at"].as_u64());
            ensure!(
                told == (Some("completed"), Some(life.0), Some(life.1)),
                "'{query}' says {view}, not {life:?}"
            );
        }
        let times: Vec<_> = found.iter().map(|view| view["created_at"].as_u64()).collect();
        ensure!(times.is_sorted_by(|one, next| one >= next), "'{query}' is not in order");
    }

    let counted = client.get("/api/metrics").await?.json()?;
    let total = runs.len() as u64;
    let is_right = counted["total"] == total
        && counted["complete"] == true
        && counted["statuses"] == serde_json::json!({ "completed": total })
        && workflows
            .iter()
            .all(|(name, runs)| counted["workflows"][name] == serde_json::json!({"completed": runs}))
        && counted["workflows"].as_object().map(serde_json::Map::len) == Some(workflows.len());
    ensure!(is_right, "the counts are {}", Value::to_string(&counted));
    Ok(u32::try_from(searches.len())? + 1)
}
