//! Sessions with the command line on the real engine, compared with transcripts that were looked at.

use serde_json::Value;
use stepwell_workerd_tests::{
    TestResult,
    cli::{Terminal, compare},
    engine::{Engine, Form, KEY},
};

/// The run that a command has told about.
fn run_of(text: &str) -> &str {
    text.split_whitespace().find(|word| word.starts_with("default-")).expect("a run is named")
}

#[tokio::test]
async fn a_session_with_runs_reads_as_it_should() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let client = engine.client();
    let mut terminal = Terminal::open(&engine.engine.address())?;

    let ran = terminal.run(&["start", "nap", "2000", "--watch"]).await?;
    assert!(ran.stdout.contains("sleeping: It waits for a time.\n"), "{}", ran.stdout);
    let ran = terminal.run(&["start", "wait", "60000", "--tag", "today"]).await?;
    let run = run_of(&ran.stdout).to_owned();
    client.until(&run, "waiting").await?;
    terminal.run(&["list", "--tag", "today"]).await?;
    terminal.run(&["why", &run]).await?;
    terminal.run(&["show", &run]).await?;
    terminal.run(&["pause", &run]).await?;
    terminal.run(&["resume", &run]).await?;
    client.until(&run, "waiting").await?;
    terminal.run(&["signal", &run, "go", "--text", "now", "--idempotency-key", "s1"]).await?;
    terminal.run(&["watch", &run]).await?;
    terminal.run(&["signal", &run, "go", "--text", "now", "--idempotency-key", "s1"]).await?;
    terminal.run(&["show", &run]).await?;
    terminal.run(&["export", &run, "--output", "run.json"]).await?;
    terminal.run(&["restart", &run]).await?;
    terminal.run(&["watch", &run]).await?;

    // Three attempts, two of which take too long.
    let ran = terminal.run(&["start", "slow", "--watch"]).await?;
    assert_eq!(ran.code, Some(0));
    terminal.run(&["show", run_of(&ran.stdout)]).await?;
    // Takes longer than it may.
    let ran = terminal.run(&["start", "late", "--watch"]).await?;
    assert_eq!(ran.code, Some(4));
    terminal.run(&["show", run_of(&ran.stdout)]).await?;
    let ran = terminal.run(&["start", "wait", "60000"]).await?;
    terminal.run(&["cancel", run_of(&ran.stdout)]).await?;
    compare("runs", terminal.transcript())?;

    let export: Value = serde_json::from_str(&std::fs::read_to_string(terminal.folder().join("run.json"))?)?;
    assert_eq!(export["run"]["id"], run.as_str());
    assert_eq!(export["replay"]["seed"].as_str().map(str::len), Some(16), "a replay needs the seed");
    assert_eq!(export["replay"].get("cuts"), None);
    let ran = terminal.quietly(&["export", &run, "--output", "-"]).await?;
    let export: Value = serde_json::from_str(&ran.stdout)?;
    assert_eq!(export["replay"]["cuts"], serde_json::json!([{"after": 0, "through": 1}]), "it was restarted");
    Ok(())
}

#[tokio::test]
async fn a_session_of_mistakes_says_what_to_do_next() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let mut terminal = Terminal::open(&engine.engine.address())?;
    let secret = "a-key-that-nobody-may-see";
    std::fs::write(
        terminal.folder().join("config.toml"),
        format!("[profiles.here]\naddress = \"http://127.0.0.1:1\"\nkey = \"{secret}\"\n"),
    )?;

    for (arguments, code) in [
        (&["start", "nothing"][..], 1),
        (&["show", "default-1-0-1-000000000000"], 1),
        (&["show", "../../secrets?a=b"], 2),
        (&["cancel", "nap/order-7"], 1),
        (&["list", "--key", secret], 1),
        (&["--profile", "nowhere", "list"], 2),
        (&["--profile", "here", "list"], 3),
        (&["--address", "example.org", "list"], 2),
        (&["--address", "http://orders.example", "--key", secret, "list"], 2),
        (&["--key", "a key", "list"], 2),
        (&["start", "nap", "soon"], 2),
        (&["list", "--since", "yesterday"], 2),
        (&["list", "--status", "happy"], 2),
        (&["new", "Not-A-Name"], 2),
        (&["new", "orders", "--stepwell", "."], 2),
        (&["dev"], 6),
        (&["deploy", "--dry-run"], 6),
        (&["replay", "nothing.json"], 2),
        (&["list", "--json", "--key", secret], 1),
    ] {
        let ran = terminal.run(arguments).await?;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!said.contains(secret) && !said.contains(KEY), "a key was shown: {said}");
    }
    // What does not parse as a configuration may hold a key too.
    std::fs::write(terminal.folder().join("config.toml"), format!("key = {secret}\n"))?;
    let ran = terminal.run(&["list"]).await?;
    assert_eq!(ran.code, Some(2));
    assert!(!ran.stderr.contains(secret), "{}", ran.stderr);
    let transcript = terminal.transcript().replace(secret, "SECRET");
    compare("mistakes", &transcript)?;
    Ok(())
}

#[tokio::test]
async fn with_json_every_line_is_json() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let terminal = Terminal::open(&engine.engine.address())?;
    let started = terminal.quietly(&["--json", "start", "nap", "300"]).await?;
    let started: Value = serde_json::from_str(&started.stdout)?;
    let run = started["id"].as_str().expect("a run has an id").to_owned();
    let mut lines = 0;
    for arguments in [
        &["watch", &run][..],
        &["show", &run],
        &["why", &run],
        &["list"],
        &["restart", &run],
        &["pause", &run],
        &["resume", &run],
        &["cancel", &run],
        &["export", &run],
        &["doctor", "--remote"],
        &["new", "orders", "--no-install"],
    ] {
        let arguments: Vec<_> = ["--json"].into_iter().chain(arguments.iter().copied()).collect();
        let ran = terminal.quietly(&arguments).await?;
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        for line in ran.stdout.lines() {
            serde_json::from_str::<Value>(line).map_err(|error| format!("{arguments:?}: {line}: {error}"))?;
            lines += 1;
        }
    }
    assert!(lines >= 11, "only {lines} lines were written");
    let ran = terminal.quietly(&["--json", "start", "nothing"]).await?;
    let error: Value = serde_json::from_str(ran.stderr.trim())?;
    assert_eq!((ran.code, &error["error"]["code"]), (Some(1), &Value::from("workflow_not_found")));
    Ok(())
}

#[tokio::test]
async fn a_journal_of_several_pages_is_exported_whole() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let terminal = Terminal::open(&engine.engine.address())?;
    // About 3 MB; a page has about 1 MiB.
    let ran = terminal.quietly(&["start", "many", "[6, 500000]", "--watch"]).await?;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let exported = terminal.quietly(&["export", run_of(&ran.stdout), "--output", "-"]).await?;
    let export: Value = serde_json::from_str(&exported.stdout)?;
    let seqs: Vec<_> =
        export["events"].as_array().expect("events").iter().map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=6).map(Some).collect::<Vec<_>>());
    assert_eq!(export["input"], serde_json::json!([6, 500_000]));
    Ok(())
}

#[tokio::test]
async fn scripts_get_a_bare_id_the_error_of_a_failed_run_and_lists_by_attribute() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let terminal = Terminal::open(&engine.engine.address())?;
    let started = terminal.quietly(&["start", "fail", "--text", "workflow", "--quiet"]).await?;
    let run = started.stdout.strip_suffix('\n').unwrap_or_default();
    assert!(run.starts_with("default-") && !run.contains(char::is_whitespace), "{}", started.stdout);
    assert_eq!(started.stderr, "");
    engine.client().until(run, "failed").await?;
    let why = terminal.quietly(&["why", run]).await?.stdout;
    let shown = terminal.quietly(&["--json", "show", run]).await?.stdout;
    let error = serde_json::from_str::<Value>(&shown)?["run"]["error"]["message"].clone();
    let error = error.as_str().expect("it has failed with a message");
    assert!(why.contains(&format!("  error: {error}")), "{why}");

    let found = terminal.quietly(&["start", "found", r#"[["customer", "acme"]]"#, "-q"]).await?;
    engine.client().until(found.stdout.trim(), "waiting").await?;
    let listed = terminal.quietly(&["list", "--attribute", "customer:acme"]).await?.stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let others = terminal.quietly(&["list", "--attribute", "customer:other"]).await?.stdout;
    assert_eq!(others, "");
    assert_eq!(terminal.quietly(&["list", "--attribute", "customer"]).await?.code, Some(2));
    Ok(())
}

#[tokio::test]
async fn an_operator_stops_a_customer_and_lets_it_in_again() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let mut terminal = Terminal::open(&engine.engine.address())?;
    let by = ["--by", "input.customer", "--for", "acme"];
    let stop = [&["workflows", "limit", "limited_whole", "0"], &by[..]].concat();
    let ran = terminal.run(&stop).await?;
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let said = "limited_whole: 0 at once with input.customer = 'acme'";
    assert!(ran.stdout.starts_with(said), "{}", ran.stdout);
    let input = r#"{"address": "http://127.0.0.1:9", "customer": "acme", "steps": 0}"#;
    let started = terminal.run(&["start", "limited_whole", input]).await?;
    let run = started.stdout.split_whitespace().next().unwrap_or_default().to_owned();
    let client = engine.client();
    for _ in 0..100 {
        let why = client.get(&format!("/api/executions/{run}/why")).await?.json()?;
        if why["because"].as_str().is_some_and(|because| because.contains("as root has set it")) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let why = terminal.run(&["why", &run]).await?;
    let because = "0 at once for those with input.customer = 'acme', as root has set it at ";
    assert!(why.stdout.contains(because), "{}{}", why.stdout, why.stderr);
    let ran = terminal.run(&[&["workflows", "limit", "limited_whole", "--reset"], &by[..]].concat()).await?;
    assert_eq!(ran.stdout, "limited_whole: as the code declares it\n", "{}", ran.stderr);
    client.until(&run, "completed").await?;
    Ok(())
}
