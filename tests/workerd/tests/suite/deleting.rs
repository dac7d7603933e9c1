//! What it costs to delete rows, in rows written: the figures of docs/decisions/0009-retention.md.

use stepwell_workerd_tests::{Object, TestResult, Workerd, probe};

const JOURNAL: &str =
    "(run INTEGER NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY(run, seq)) WITHOUT ROWID";

/// Puts `runs` runs of ten events each into a table.
fn fill(table: &str, runs: u32) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {last})
         INSERT INTO {table} SELECT i / 10, i % 10, 'event number ' || i FROM n",
        last = runs * 10 - 1
    )
}

#[tokio::test]
async fn a_table_is_dropped_for_next_to_nothing_and_a_row_is_deleted_for_a_row() -> TestResult {
    const RUNS: u32 = 1_000;
    let workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    let mut counted = Vec::new();
    for (name, statement) in [
        ("create a table", format!("CREATE TABLE journal_1{JOURNAL}")),
        ("insert 10,000 rows", fill("journal_1", RUNS)),
        ("delete the 10 rows of a run", "DELETE FROM journal_1 WHERE run = 0".into()),
        ("delete 500 rows", "DELETE FROM journal_1 WHERE run > 0 AND run <= 50".into()),
        ("drop a table of 9,490 rows", "DROP TABLE journal_1".into()),
        ("create it again", format!("CREATE TABLE journal_1{JOURNAL}")),
        ("insert 10,000 rows again", fill("journal_1", RUNS)),
        ("delete all 10,000 without WHERE", "DELETE FROM journal_1".into()),
        ("drop an empty table", "DROP TABLE journal_1".into()),
    ] {
        counted.push((name, object.written(&statement).await?));
    }
    for (name, rows) in &counted {
        println!("{rows:>6} {name}");
    }
    assert_eq!(
        counted,
        [
            ("create a table", 2),
            ("insert 10,000 rows", 10_000),
            ("delete the 10 rows of a run", 10),
            ("delete 500 rows", 500),
            ("drop a table of 9,490 rows", 0),
            ("create it again", 2),
            ("insert 10,000 rows again", 10_000),
            ("delete all 10,000 without WHERE", 10_000),
            ("drop an empty table", 0),
        ]
    );
    Ok(())
}
