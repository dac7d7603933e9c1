//! The page on streams, word for word: its commands are run by bash, its script by Node.js, and its function in Rust
//! is that of an example that is built and run.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use stepwell_workerd_tests::{
    Config, TestResult, Worker, Workerd, bundle,
    engine::{APP_KEY, Client, KEY},
    repository_root,
};
use tokio::{io::AsyncWriteExt as _, process::Command, time::timeout};

/// Longer than anything on the page takes: its run sleeps for ten seconds.
const WITHIN: Duration = Duration::from_secs(40);

/// The fenced blocks of the page in this language.
fn blocks(language: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(repository_root().join("docs/streams.md"))?;
    let fence = format!("```{language}\n");
    let blocks = text.split(&fence).skip(1).filter_map(|rest| rest.split("```").next());
    Ok(blocks.map(str::to_owned).collect())
}

/// The engine with the quickstart's app.
async fn quickstart() -> Result<Workerd> {
    let engine = Worker::bundle("engine", &bundle("engine")?)
        .durable_object("CELL", "Cell")
        .text("STEPWELL_KEY", KEY)
        .text("STEPWELL_APP_KEY", APP_KEY)
        .service("APP", "app");
    let app = Worker::bundle("app", &bundle("quickstart-app")?).text("STEPWELL_APP_KEY", APP_KEY);
    Workerd::start(&Config::serving("engine").worker(engine).worker(app)).await
}

/// Runs a program with a text for its input, and gives what it wrote.
async fn run(program: &Path, arguments: &[&str], input: &str) -> Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("it is piped")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let output = timeout(WITHIN, child.wait_with_output()).await.context("it took too long")??;
    let (out, errors) = (String::from_utf8(output.stdout)?, String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {errors}\n{out}", output.status);
    Ok(out)
}

#[tokio::test]
async fn the_commands_of_the_page_work_word_for_word() -> TestResult {
    let workerd = quickstart().await?;
    let script = blocks("sh")?.concat();
    let script = script.replace("127.0.0.1:8787", &workerd.address()).replace("local-key", KEY);
    let output = run(Path::new("bash"), &["-u"], &script).await?;
    for wanted in [
        "event: step\n",
        r#""status":"sleeping""#,
        "event: timer\n",
        "event: end\n",
        r#""output":"Hello, Ada!""#,
        "event: ready\n",
        r#""status":"running""#,
    ] {
        assert!(output.contains(wanted), "there is no {wanted} in\n{output}");
    }
    Ok(())
}

#[tokio::test]
async fn the_script_and_the_function_of_the_page_follow_a_run() -> TestResult {
    let workerd = quickstart().await?;
    let client = Client::new(workerd.http());
    let id = client.start_id("greet", "Ada".into()).await?;
    let api = workerd.http().url("/api");
    // The first one is for browsers.
    let scripts = blocks("js")?;
    let script = scripts.get(1).context("the page has two scripts")?;
    let node = repository_root().join("node_modules/.bin/node");
    let example = Path::new(env!("CARGO_BIN_EXE_streams")).with_file_name("examples").join("follow");
    let (to_node, to_rust) = (["-", api.as_str(), id.as_str(), KEY], [api.as_str(), id.as_str(), KEY]);
    let (by_node, by_rust) = tokio::join!(run(&node, &to_node, script), run(&example, &to_rust, ""));
    for output in [by_node?, by_rust?] {
        assert!(output.contains("step_finished") && output.contains("Hello, Ada!"), "{output}");
    }
    Ok(())
}

#[test]
fn the_function_of_the_page_is_that_of_the_example() -> TestResult {
    let example = fs::read_to_string(repository_root().join("tests/workerd/examples/follow.rs"))?;
    let function = blocks("rust,ignore")?.concat();
    assert!(function.contains("async fn follow") && example.ends_with(&function), "they are not the same");
    Ok(())
}
