//! What an object's SQL storage does, and what of it outlives a kill.

use std::time::Duration;

use rand::Rng;
use stepwell_workerd_tests::{Object, TestResult, Workerd, probe};

#[tokio::test]
async fn transaction_sync_rolls_back_on_an_error() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    let answer = object.ask("transaction", "no").await?;
    assert_eq!(answer["thrown"], "Error: no", "{answer}");
    assert_eq!(answer["inside"], 1.0, "the row was there before the error");
    assert_eq!(object.rows("SELECT n FROM numbers").await?.len(), 0);

    let answer = object.ask("transaction", "INSERT INTO numbers(n) VALUES(1)").await?;
    let thrown = answer["thrown"].as_str().unwrap_or_default();
    assert!(thrown.contains("UNIQUE constraint failed"), "{answer}");
    assert_eq!(object.rows("SELECT n FROM numbers").await?.len(), 0);

    let answer = object.ask("transaction", "INSERT INTO numbers(n) VALUES(2)").await?;
    assert_eq!(answer["ok"], "finished", "{answer}");
    assert_eq!(object.rows("SELECT n FROM numbers").await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn sql_errors_are_errors_and_the_object_works_on() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    object.rows("INSERT INTO numbers(n) VALUES(1)").await?;
    let expected = [
        ("SELEC 1", "near \"SELEC\": syntax error"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("INSERT INTO numbers(n) VALUES(1)", "UNIQUE constraint failed: numbers.n: SQLITE_CONSTRAINT"),
        // Fails while the rows are read, after `exec` has returned a cursor.
        ("SELECT json(value) FROM (SELECT '1' AS value UNION ALL SELECT '{')", "malformed JSON"),
        ("BEGIN TRANSACTION", "transaction"),
    ];
    for (query, text) in expected {
        let error = object.sql_error(query).await?;
        println!("{query}: {error}");
        assert!(error.contains(text), "{query}: {error}");
    }
    assert_eq!(object.rows("SELECT n FROM numbers").await?, [[1]]);
    Ok(())
}

#[tokio::test]
async fn rows_written_counts_index_entries() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    for statement in [
        "CREATE TABLE lean(a TEXT PRIMARY KEY, b INTEGER) WITHOUT ROWID",
        "CREATE TABLE plain(a INTEGER PRIMARY KEY, b INTEGER)",
        "CREATE TABLE text_key(a TEXT PRIMARY KEY, b INTEGER)",
        "CREATE TABLE partial(a INTEGER PRIMARY KEY, due INTEGER, c INTEGER)",
        "CREATE INDEX partial_due ON partial(due) WHERE due IS NOT NULL",
    ] {
        object.rows(statement).await?;
    }
    let expected = [
        ("INSERT INTO lean VALUES('x', 1)", 1),
        ("INSERT OR REPLACE INTO lean VALUES('x', 2)", 1),
        ("UPDATE lean SET b = 3", 1),
        ("DELETE FROM lean WHERE a = 'x'", 1),
        ("INSERT INTO plain VALUES(1, 1)", 1),
        ("INSERT INTO text_key VALUES('x', 1)", 2),
        ("INSERT INTO partial VALUES(1, 10, 0)", 2),
        ("INSERT INTO partial VALUES(2, NULL, 0)", 1),
        ("UPDATE partial SET c = 1 WHERE a = 1", 1),
        ("UPDATE partial SET due = 11 WHERE a = 1", 2),
        // Entries that leave an index are not counted.
        ("UPDATE partial SET due = NULL WHERE a = 1", 1),
        ("UPDATE partial SET due = NULL WHERE a = 2", 1),
        ("UPDATE partial SET due = 12 WHERE a = 1", 2),
        ("DELETE FROM partial WHERE a = 1", 1),
        ("SELECT * FROM partial", 0),
    ];
    let mut counted = Vec::new();
    for (query, _) in expected {
        counted.push((query, object.written(query).await?));
    }
    for (query, count) in &counted {
        println!("{count} {query}");
    }
    assert_eq!(counted, expected);
    Ok(())
}

#[tokio::test]
async fn acknowledged_rows_survive_sigkill() -> TestResult {
    const KILLS: u32 = 4;
    let mut workerd = Workerd::start(&probe()?).await?;
    let mut acknowledged = 0;
    for _ in 0..KILLS {
        let object = Object::new(&workerd, "a");
        // The clock runs from the first insert on: loading takes a while on a busy machine.
        acknowledged += 1;
        object.rows(&format!("INSERT OR REPLACE INTO numbers(n) VALUES({acknowledged})")).await?;
        let kill_in = Duration::from_millis(rand::rng().random_range(50..300));
        let _ = tokio::time::timeout(kill_in, async {
            loop {
                let next = acknowledged + 1;
                // The last insert before a kill may be stored without being acknowledged.
                let query = format!("INSERT OR REPLACE INTO numbers(n) VALUES({next})");
                if object.ask("sql", &query).await.is_err() {
                    break;
                }
                acknowledged = next;
            }
        })
        .await;
        workerd.restart().await?;
        let rows = object.rows(&format!("SELECT count(*) FROM numbers WHERE n <= {acknowledged}")).await?;
        assert_eq!(rows, [[acknowledged]]);
    }
    println!("{acknowledged} acknowledged rows over {KILLS} kills, none lost");
    Ok(())
}

#[tokio::test]
async fn a_row_and_its_alarm_are_one_commit() -> TestResult {
    const KILLS: u32 = 6;
    let mut workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    let mut turns = 0;
    for _ in 0..KILLS {
        // Each turn writes a row that remembers its alarm time, and arms the alarm for that time. No
        // alarm fires: they are an hour away.
        object.ask("insert-and-arm?in_ms=3600000", "").await?;
        let turning = {
            let object = object.clone();
            tokio::spawn(async move { while object.ask("insert-and-arm?in_ms=3600000", "").await.is_ok() {} })
        };
        let kill_in = Duration::from_millis(rand::rng().random_range(50..400));
        tokio::time::sleep(kill_in).await;
        workerd.kill();
        turning.await?;
        workerd.restart().await?;
        let rows = object.rows("SELECT n, alarm_at FROM numbers ORDER BY n DESC LIMIT 1").await?;
        let alarm = object.alarm().await?;
        assert_eq!(rows[0][1].as_f64(), alarm, "the last row and the alarm");
        turns = rows[0][0].as_u64().unwrap_or_default();
    }
    assert!(turns > u64::from(KILLS), "only {turns} turns were made");
    println!("{turns} turns over {KILLS} kills");
    Ok(())
}
