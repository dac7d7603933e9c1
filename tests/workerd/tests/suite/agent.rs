//! `examples/agent` under `stepwell dev`, built by `stepwell build`: a model that streams, a tool, an approval, and a
//! kill in the middle.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Http, TestResult, bundle, dev::Project, free_port, node_binary, repository_root,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::{sleep, timeout},
};

/// Node takes a second; a machine under load may need much longer.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request with the project's key: with a body it is a POST.
async fn ask(project: &Project, path: &str, body: Option<&Value>, seconds: u32) -> Result<Value> {
    let http = project.http();
    let request = match body {
        Some(body) => http.client().post(http.url(path)).body(body.to_string()),
        None => http.client().get(http.url(path)).header("prefer", format!("wait={seconds}")),
    };
    http.send(request.bearer_auth(project.key()?), path).await?.json()
}

#[tokio::test]
async fn the_agent_sends_once_what_was_approved_and_streams_its_answer() -> TestResult {
    let example = repository_root().join("examples/agent");
    let port = free_port()?;
    let mut model = Command::new(node_binary()?)
        .arg(example.join("stand-in/model.mjs"))
        .arg(port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(model.stdout.take().context("it is piped")?).lines();
    timeout(TOOL_TIMEOUT, lines.next_line()).await??.context("the model is not there")?;

    let project = Project::of_bundle(&bundle("agent")?)?;
    project.adopt_configuration(&example.join("wrangler.toml"))?;
    let url = format!("http://127.0.0.1:{port}");
    project.write(".dev.vars", &format!("MODEL_KEY=any\nMODEL_URL={url}\nTOOLS_URL={url}\n"))?;
    let dev = project.dev().await?;

    let run =
        ask(&project, "/api/workflows/agent/start", Some(&json!({ "goal": "invite Grace" })), 0).await?;
    let path = format!("/api/executions/{}", run["id"].as_str().context("a run has an id")?);
    let mut run = run;
    for _ in 0..100 {
        if run["status"] == "waiting" {
            break;
        }
        sleep(Duration::from_millis(200)).await;
        run = ask(&project, &path, None, 0).await?;
    }
    assert_eq!(run["status"], "waiting", "{run}");
    dev.kill().await?;
    let _dev = project.dev().await?;
    ask(&project, &format!("{path}/signals/approval"), Some(&json!(true)), 0).await?;
    let ended = ask(&project, &path, None, 30).await?;
    assert_eq!(ended["output"]["answer"], "Grace is invited.", "{ended}");
    let sent = Http::new(&url).get("/sent").await?.json()?;
    assert_eq!(sent, json!([["grace@example.org", "Come!"]]), "each message goes out once");

    let logs = project.command(&["logs", run["id"].as_str().context("an id")?, "--chunks"])?.output().await?;
    let told = String::from_utf8(logs.stdout)?;
    assert!(told.contains("wants to send to grace@example.org") && told.contains("invited."), "{told}");
    Ok(())
}
