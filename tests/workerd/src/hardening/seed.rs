//! Fills a cell by SQL while workerd is down: a run that the engine itself has written, copied many times.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::{
    engine::Engine,
    sqlite::{change, databases},
};

/// The columns of a run row besides its number, which can be replaced in copies.
const COLUMNS: [&str; 9] =
    ["suffix", "workflow", "status", "created_at", "ended_at", "wake_at", "state", "input", "result"];

/// The one cell's database.
pub fn database(engine: &Engine) -> Result<PathBuf> {
    databases(&engine.engine)?.pop().context("the cell has a database")
}

/// Kills workerd, runs a script on the one cell's database, and starts workerd again.
pub async fn seed(engine: &mut Engine, script: &str) -> Result<()> {
    engine.engine.kill();
    change(&database(engine)?, script)?;
    engine.engine.restart().await
}

/// A statement that copies run `of`, with its journal, into `count` runs after it. `changes` has an SQL expression for
/// each column that differs; in it, `i` counts the copies from 1.
pub fn copies(of: u64, count: u64, changes: &[(&str, &str)]) -> String {
    let values = COLUMNS
        .map(|column| changes.iter().find(|(name, _)| *name == column).map_or(column, |(_, value)| value));
    let (columns, values) = (COLUMNS.join(", "), values.join(", "));
    let counted =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})");
    format!(
        "{counted} INSERT INTO runs(number, {columns}) SELECT number + i, {values} FROM runs, n WHERE number = {of};
         {counted} INSERT INTO journal(run, seq, at, event, mark)
           SELECT run + i, seq, at, event, mark FROM journal, n WHERE run = {of};"
    )
}
