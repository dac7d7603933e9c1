//! Metrics on the real workerd: counters that kills do not take back, minutes, and what the real Prometheus reads of it.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    access::{key, namespace},
    engine::{Client, Engine, Form},
    following::{Follower, Way},
    free_port, repository_root,
};
use tokio::time::{Duration, Instant, sleep};

/// How long a test waits for something to show up.
const SHOWS_WITHIN: Duration = Duration::from_secs(30);

/// The sum of all samples of a metric that have these labels.
fn sum(text: &str, metric: &str, labels: &str) -> u64 {
    let fits = |line: &&str| line.split('{').next() == Some(metric) && line.contains(labels);
    text.lines().filter(fits).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn scrape(client: &Client) -> anyhow::Result<String> {
    let answer = client.get("/api/metrics/prometheus").await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    ensure!(answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8");
    Ok(answer.body)
}

/// Scrapes until a metric has this value.
async fn until(client: &Client, metric: &str, labels: &str, value: u64) -> anyhow::Result<String> {
    let began = Instant::now();
    loop {
        let text = scrape(client).await?;
        let found = sum(&text, metric, labels);
        if found == value {
            return Ok(text);
        }
        ensure!(began.elapsed() < SHOWS_WITHIN, "{metric} is {found}, not {value}:\n{text}");
        sleep(Duration::from_millis(200)).await;
    }
}

async fn run_tens(client: &Client, runs: usize) -> anyhow::Result<()> {
    for _ in 0..runs {
        let run = client.start("ten", &Value::Null, None, 10).await?.json()?;
        ensure!(run["status"] == "completed", "{run}");
    }
    Ok(())
}

#[tokio::test]
async fn counters_are_exact_at_rest_and_never_go_back() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 2).await?;
        let client = engine.client();
        run_tens(&client, 10).await?;
        let text =
            until(&client, "stepwell_runs_ended_total", r#"workflow="ten",status="completed""#, 10).await?;
        assert_eq!(sum(&text, "stepwell_runs_started_total", r#"workflow="ten""#), 10);
        assert_eq!(sum(&text, "stepwell_steps_total", r#"workflow="ten",outcome="succeeded""#), 100);
        assert_eq!(sum(&text, "stepwell_run_duration_seconds_count", r#"workflow="ten""#), 10);
        assert_eq!(sum(&text, "stepwell_runs", r#"workflow="ten",status="completed""#), 10);
        engine.engine.restart().await?;
        let client = engine.client();
        for query in ["", "?workflow=ten", "?minutes=60"] {
            let listed = client.get(&format!("/api/metrics/workflows{query}")).await?.json()?;
            let of = &listed["workflows"][0];
            assert_eq!((&of["workflow"], &listed["complete"]), (&json!("ten"), &json!(true)), "{listed}");
            assert_eq!(
                (&of["totals"]["completed"], &of["totals"]["steps"]),
                (&json!(10), &json!(100)),
                "{listed}"
            );
            // A run of ten steps costs 14 rows, or 15 with its alarm.
            let rows = of["totals"]["rows"].as_u64().context("rows")?;
            assert!((140..=150).contains(&rows) && of["dollars"].as_f64() > Some(1.4e-4), "{listed}");
            assert!(of["p50_ms"].as_u64() <= of["p95_ms"].as_u64(), "{listed}");
        }
        let none = client.get("/api/metrics/workflows?workflow=other").await?.json()?;
        assert_eq!(none, json!({ "workflows": [], "complete": true }));
        let listed = client.get("/api/cells").await?.json()?;
        let cells = listed["cells"].as_array().context("cells")?;
        let ended: u64 = cells.iter().filter_map(|cell| cell["statuses"]["completed"].as_u64()).sum();
        assert_eq!((cells.len(), ended), (2, 10), "{listed}");
        assert!(cells.iter().all(|cell| cell["bytes"].as_u64() > Some(4_096)), "{listed}");
        let text = scrape(&client).await?;
        assert_eq!(sum(&text, "stepwell_runs_started_total", r#"workflow="ten""#), 10, "after a kill");
        // What dies with its process is missing, and nothing else is.
        run_tens(&client, 10).await?;
        engine.engine.restart().await?;
        let client = engine.client();
        let ended = sum(&scrape(&client).await?, "stepwell_runs_ended_total", "completed");
        assert!((10..=20).contains(&ended), "{ended}");
        run_tens(&client, 5).await?;
        until(&client, "stepwell_runs_ended_total", "completed", ended + 5).await?;
        let minutes = client.get("/api/metrics/minutes?workflow=ten").await?.json()?;
        let listed = minutes["minutes"].as_array().context("it is a list")?;
        let completed: u64 = listed.iter().filter_map(|minute| minute["completed"].as_u64()).sum();
        assert_eq!((completed, &minutes["complete"]), (ended + 5, &json!(true)));
        let none = client.get("/api/metrics/minutes?workflow=other&minutes=1440").await?.json()?;
        assert_eq!(none["minutes"], json!([]));
    }
    Ok(())
}

#[tokio::test]
async fn failures_retries_signals_and_waits_are_told_apart_by_workflow_and_namespace() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let acme = namespace(&engine.client(), "acme").await?;
    let (_, reader) = key(&acme, &["read"]).await?;
    acme.start("slow", &Value::Null, None, 20).await?.json()?;
    acme.start("fail", &json!("error"), None, 10).await?.json()?;
    let waits = acme.start_id("wait", json!(600_000)).await?;
    acme.until(&waits, "waiting").await?;
    acme.signal(&waits, "other", &json!(1), None).await?.json()?;
    let text = until(&reader, "stepwell_signals_total", r#"namespace="acme",workflow="wait""#, 1).await?;
    assert_eq!(sum(&text, "stepwell_step_retries_total", r#"workflow="slow""#), 2, "{text}");
    assert_eq!(sum(&text, "stepwell_runs_ended_total", r#"workflow="fail",status="failed""#), 1, "{text}");
    assert_eq!(sum(&text, "stepwell_runs", r#"workflow="wait",status="waiting""#), 1, "{text}");
    let others = scrape(&engine.client()).await?;
    assert_eq!(sum(&others, "stepwell_runs_started_total", ""), 0, "{others}");
    let (_, sender) = key(&acme, &["write:wait"]).await?;
    assert_eq!(sender.get("/api/metrics/prometheus").await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn requests_are_counted_by_route_and_code_once_their_key_is_good() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let (id, dropped) = key(&client, &["read"]).await?;
    for _ in 0..10 {
        assert_eq!(dropped.get("/api/executions").await?.status, 200);
    }
    for _ in 0..3 {
        let missing = client.get("/api/executions/default-1-0-1-aaaaaaaaaaaa").await?;
        assert_eq!(missing.status, 404, "{}", missing.body);
    }
    assert_eq!(client.send_post(&format!("/api/keys/{id}/revoke"), "").await?.status, 200);
    for path in ["/api/executions", "/api/executions", "/api/workflows"] {
        assert_eq!(dropped.get(path).await?.status, 401);
        assert_eq!(client.with_key("nobodys").get(path).await?.status, 401);
    }
    let (_, narrow) = key(&client, &["read:other"]).await?;
    assert_eq!(narrow.request("POST", "/api/workflows/ten/pause", "").await?.status, 403);
    let counted = |text: &str| {
        assert_eq!(sum(text, "stepwell_requests_total", r#"code="401""#), 0, "{text}");
        let of = |labels| sum(text, "stepwell_requests_total", labels);
        assert_eq!(of(r#"route="GET /api/executions",code="200""#), 10, "{text}");
        assert_eq!(of(r#"route="GET /api/executions/{id}",code="404""#), 3, "{text}");
        assert_eq!(of(r#"route="POST /api/workflows/{workflow}/pause",code="403""#), 1, "{text}");
        assert_eq!(
            sum(text, "stepwell_request_duration_seconds_count", r#"route="GET /api/executions""#),
            10,
            "{text}"
        );
    };
    counted(&scrape(&client).await?);
    engine.engine.restart().await?;
    counted(&scrape(&engine.client()).await?);
    // Also where nothing has ever been stored in a cell.
    let acme = namespace(&engine.client(), "acme").await?;
    assert_eq!(acme.get("/api/queues").await?.status, 200);
    let text = scrape(&acme).await?;
    assert_eq!(
        sum(&text, "stepwell_requests_total", r#"namespace="acme",route="GET /api/queues",code="200""#),
        1
    );
    assert_eq!(sum(&text, "stepwell_requests_total", r#"route="GET /api/executions""#), 0, "{text}");
    Ok(())
}

#[tokio::test]
async fn streams_are_counted_while_they_are_open_and_those_behind_apart() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    assert_eq!(sum(&scrape(&client).await?, "stepwell_streams", ""), 0);
    let run = client.start_id("wait", json!(600_000)).await?;
    let path = format!("/api/executions/{run}/stream");
    let mut follower = Follower::open(client.http(), &path, Way::Socket, None).await?;
    follower.next().await?;
    let text = until(&client, "stepwell_streams", "", 1).await?;
    assert_eq!(sum(&text, "stepwell_streams_behind", ""), 0, "{text}");
    // One that is asked whether it follows, and does not say so.
    let long = client.start_id("many", json!([30, 100_000])).await?;
    client.until(&long, "completed").await?;
    let path = format!("/api/executions/{long}/stream");
    let mut slow = Follower::open(client.http(), &path, Way::Socket, None).await?;
    while !slow.next_text().await?.contains(r#""type":"ack""#) {}
    let text = scrape(&client).await?;
    assert_eq!(sum(&text, "stepwell_streams_behind", ""), 0, "that happens to everybody: {text}");
    sleep(Duration::from_secs(31)).await;
    let text = scrape(&client).await?;
    assert_eq!(
        (sum(&text, "stepwell_streams", ""), sum(&text, "stepwell_streams_behind", "")),
        (2, 1),
        "{text}"
    );
    slow.say("ack").await?;
    slow.rest().await?;
    drop((slow, follower));
    let text = until(&client, "stepwell_streams", "", 0).await?;
    assert_eq!(sum(&text, "stepwell_streams_behind", ""), 0, "{text}");
    Ok(())
}

/// Where Debian's Prometheus is.
fn tools() -> anyhow::Result<PathBuf> {
    let found = Command::new(repository_root().join("scripts/prometheus")).output()?;
    ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    Ok(PathBuf::from(String::from_utf8(found.stdout)?.trim()))
}

fn promtool(tools: &Path, arguments: &[&str], input: &str) -> anyhow::Result<()> {
    let mut tool = Command::new(tools.join("promtool"))
        .args(arguments)
        .current_dir(repository_root().join("monitoring"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    tool.stdin.take().context("it is piped")?.write_all(input.as_bytes())?;
    let output = tool.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    Ok(())
}

/// Ends what it holds.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_real_prometheus_reads_the_metrics_and_the_rules() -> TestResult {
    let tools = tools()?;
    promtool(&tools, &["check", "rules", "alerts.yml"], "")?;
    promtool(&tools, &["test", "rules", "alerts.test.yml"], "")?;
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let client = engine.client();
    let (_, reader) = key(&client, &["read"]).await?;
    run_tens(&client, 3).await?;
    client.start("fail", &json!("error"), None, 10).await?.json()?;
    let text = until(&client, "stepwell_runs_ended_total", "", 4).await?;
    promtool(&tools, &["check", "metrics"], &text)?;
    assert_rules_know(&text)?;

    let folder = tempfile::tempdir()?;
    let rules = repository_root().join("monitoring/alerts.yml");
    let config = json!({
        "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
        "rule_files": [rules],
        "scrape_configs": [{
            "job_name": "stepwell", "metrics_path": "/api/metrics/prometheus",
            "authorization": { "credentials": reader.key() },
            "static_configs": [{ "targets": [engine.engine.address().trim_start_matches("http://")] }],
        }],
    });
    // JSON is YAML.
    fs::write(folder.path().join("prometheus.yml"), config.to_string())?;
    let port = free_port()?;
    let prometheus = Command::new(tools.join("prometheus"))
        .current_dir(folder.path())
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"])
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .spawn()?;
    let _running = Running(prometheus);
    let query = format!(
        "http://127.0.0.1:{port}/api/v1/query?query=sum%20by%20(status)%20(stepwell_runs_ended_total)"
    );
    let began = Instant::now();
    loop {
        let answer = match reqwest::get(&query).await {
            Ok(answer) => answer.text().await?,
            Err(_) => String::new(),
        };
        let read: Value = serde_json::from_str(&answer).unwrap_or_default();
        let of = |status: &str| {
            let results = read["data"]["result"].as_array()?;
            let result = results.iter().find(|result| result["metric"]["status"] == status)?;
            result["value"][1].as_str().map(str::to_owned)
        };
        if (of("completed").as_deref(), of("failed").as_deref()) == (Some("3"), Some("1")) {
            break;
        }
        assert!(began.elapsed() < SHOWS_WITHIN, "Prometheus knows: {answer}");
        sleep(Duration::from_millis(300)).await;
    }
    let rules = reqwest::get(format!("http://127.0.0.1:{port}/api/v1/rules")).await?.text().await?;
    let rules: Value = serde_json::from_str(&rules)?;
    let loaded = rules["data"]["groups"][0]["rules"].as_array().context("they are loaded")?;
    assert!(loaded.iter().all(|rule| rule["health"] != "err"), "{rules}");
    let written = fs::read_to_string(repository_root().join("monitoring/alerts.yml"))?;
    assert_eq!(loaded.len(), written.matches("- alert: ").count());
    assert!(loaded.len() > 10, "{loaded:?}");
    Ok(())
}

/// Every metric that the rules and the dashboard name is there.
fn assert_rules_know(text: &str) -> anyhow::Result<()> {
    let families: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for file in ["alerts.yml", "grafana.json"] {
        let words = fs::read_to_string(repository_root().join("monitoring").join(file))?;
        let words = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<_> = words.filter(|word| word.starts_with("stepwell_")).collect();
        ensure!(named.len() > 5, "{file} names {named:?}");
        for name in named {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            ensure!(families.contains(family.unwrap_or(name)), "{file} names {name}, which is no metric");
        }
    }
    Ok(())
}
