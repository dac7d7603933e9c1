//! Wait tokens: a link that somebody without a key completes once.

use anyhow::{Context as _, Result};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Answer, Outside, TestResult,
    engine::{Client, Engine, Form, KEY, URL},
    repository_root,
};
use tokio::time::{Duration, sleep, timeout};

const ONE_CELL: (&str, &str) = ("STEPWELL_CELLS", "1");

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml");

/// An engine, and a run that has sent its link.
struct Sent {
    engine: Engine,
    outside: Outside,
    run: String,
    /// The link, without what stands before its path.
    path: String,
}

async fn sent(form: Form, input: Value) -> Result<Sent> {
    let (engine, outside) = (Engine::start(form, 1).await?, Outside::start().await?);
    let run = start(&engine.client(), &outside, input).await?;
    let path = link(&outside, 0)?;
    Ok(Sent { engine, outside, run, path })
}

async fn start(client: &Client, outside: &Outside, mut input: Value) -> Result<String> {
    input["to"] = outside.url("ok").into();
    let sent = outside.asked().len();
    let run = client.start_id("approve", input).await?;
    outside.until_asked(sent + 1).await?;
    Ok(run)
}

/// The path of the link that was sent then.
fn link(outside: &Outside, nth: usize) -> Result<String> {
    let asked = outside.asked();
    let link = &asked.get(nth).context("it was sent")?.key;
    Ok(link.strip_prefix(URL).with_context(|| link.clone())?.to_owned())
}

impl Sent {
    fn client(&self) -> Client {
        self.engine.client()
    }

    /// Asks with the link and nothing else.
    async fn ask(&self, method: Method, headers: &[(&str, &str)], body: &str) -> Result<Answer> {
        ask(&self.client(), method, &self.path, headers, body).await
    }

    async fn until_waiting(&self) -> Result<()> {
        self.client().until(&self.run, "waiting").await.map(drop)
    }
}

async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Answer> {
    let http = client.http();
    let request = http.client().request(method, http.url(path)).body(body.to_owned());
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    http.send(request, path).await
}

fn three_days() -> Value {
    json!({ "expires_ms": 259_200_000_u64 })
}

#[tokio::test]
async fn looking_completes_nothing_an_answer_completes_once_and_a_repeat_says_so() -> TestResult {
    let sent = sent(Form::AllInOne, three_days()).await?;
    sent.until_waiting().await?;
    for headers in [&[][..], &[HTML]] {
        for method in [Method::GET, Method::HEAD] {
            let answer = sent.ask(method, headers, "").await?;
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    }
    let view = sent.ask(Method::GET, &[], "").await?.json()?;
    assert_eq!((&view["status"], &view["title"]), (&json!("open"), &json!("Refund order 42?")));
    assert_eq!(sent.client().show(&sent.run, 0).await?.json()?["status"], "waiting");
    // What does not fit, or says nothing, changes nothing.
    assert_eq!(sent.ask(Method::POST, &[], "").await?.problem()?, (400, "invalid_request".into()));
    assert_eq!(sent.ask(Method::POST, &[], "true").await?.problem()?, (422, "signal_mismatch".into()));
    let large = format!("\"{}\"", "x".repeat(70_000));
    assert_eq!(sent.ask(Method::POST, &[], &large).await?.problem()?, (413, "payload_too_large".into()));
    let first = sent.ask(Method::POST, &[], r#"{"decision":"reject","comment":"no"}"#).await?;
    assert_eq!((first.status, first.json()?), (202, json!({ "duplicate": false })));
    let again = sent.ask(Method::POST, &[], r#"{"decision":"accept"}"#).await?;
    assert_eq!((again.status, again.json()?), (200, json!({ "duplicate": true })));
    let run = sent.client().show(&sent.run, 10).await?.json()?;
    assert_eq!(run["output"], json!({ "decision": "reject", "comment": "no" }), "{run}");
    // Also when the run has long ended.
    assert_eq!(sent.ask(Method::POST, &[], "{}").await?.status, 200);
    assert_eq!(sent.ask(Method::GET, &[], "").await?.json()?["status"], "answered");
    Ok(())
}

#[tokio::test]
async fn the_page_asks_and_its_form_answers() -> TestResult {
    let sent = sent(Form::AllInOne, three_days()).await?;
    sent.until_waiting().await?;
    let page = sent.ask(Method::GET, &[HTML], "").await?;
    assert!(page.body.contains("<h1>Refund order 42?</h1>"), "{}", page.body);
    assert!(page.body.contains("&lt;nothing&gt;") && page.body.contains("<form method=\"post\">"));
    let header = |name: &str| page.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let policy = header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(header("cache-control"), "no-store");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("x-robots-tag"), "noindex");
    let typed = [HTML, ("content-type", "application/x-www-form-urlencoded")];
    let thanks = sent.ask(Method::POST, &typed, "comment=fine%0D%0Aby+me&decision=accept").await?;
    assert!(thanks.status == 202 || thanks.status == 200, "{}", thanks.status);
    assert!(thanks.body.contains("Your answer was recorded"), "{}", thanks.body);
    let again = sent.ask(Method::POST, &typed, "decision=reject").await?;
    assert!(again.status == 200 && again.body.contains("Already answered"), "{}", again.body);
    let run = sent.client().show(&sent.run, 10).await?.json()?;
    assert_eq!(run["output"], json!({ "decision": "accept", "comment": "fine\r\nby me" }), "{run}");
    Ok(())
}

#[tokio::test]
async fn an_early_answer_is_kept_until_the_run_waits() -> TestResult {
    let sent = sent(Form::AllInOne, json!({ "expires_ms": 60_000, "pause_ms": 1_500 })).await?;
    let page = sent.ask(Method::GET, &[HTML], "").await?;
    assert!(page.status == 200 && page.body.contains("Not ready yet"), "{}", page.body);
    assert_eq!(sent.ask(Method::POST, &[], r#"{"decision":"accept"}"#).await?.status, 202);
    let run = sent.client().show(&sent.run, 10).await?.json()?;
    assert_eq!(run["output"], json!({ "decision": "accept" }), "{run}");
    Ok(())
}

#[tokio::test]
async fn a_link_that_is_old_or_whose_run_is_over_is_gone_and_any_other_text_was_never_there() -> TestResult {
    let sent = sent(Form::AllInOne, json!({ "expires_ms": 1_500 })).await?;
    let client = sent.client();
    let run = client.show(&sent.run, 10).await?.json()?;
    assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &Value::Null), "it expired: {run}");
    sleep(Duration::from_millis(50)).await;
    let gone = sent.ask(Method::POST, &[], r#"{"decision":"accept"}"#).await?.problem()?;
    assert!(gone.0 == 410, "{gone:?}");
    let page = sent.ask(Method::GET, &[HTML], "").await?;
    assert!(page.status == 410 && page.body.contains("<h1>"), "{}", page.body);

    let cancelled = start(&client, &sent.outside, three_days()).await?;
    let path = link(&sent.outside, sent.outside.asked().len() - 1)?;
    client.until(&cancelled, "waiting").await?;
    client.cancel(&cancelled).await?;
    let gone = ask(&client, Method::POST, &path, &[], r#"{"decision":"accept"}"#).await?;
    assert_eq!(gone.problem()?, (410, "token_revoked".into()));

    // One digit of the signature.
    let at = path.match_indices('~').nth(1).context("it has parts")?.0 + 1;
    let mut wrong = path.clone();
    let digit = if path.as_bytes()[at] == b'0' { "1" } else { "0" };
    wrong.replace_range(at..=at, digit);
    for bad in [wrong.as_str(), "/api/tokens/1", "/api/tokens/%FF", &path[..path.len() - 1]] {
        for method in [Method::GET, Method::POST] {
            let answer = ask(&client, method, bad, &[], "{}").await?;
            assert_eq!(answer.problem()?, (404, "token_not_found".into()), "{bad}");
        }
    }
    let page = ask(&client, Method::GET, &wrong, &[HTML], "").await?;
    assert!(page.status == 404 && page.body.contains("No such link"), "{}", page.body);
    Ok(())
}

#[tokio::test]
async fn a_link_is_nowhere_but_where_it_was_sent() -> TestResult {
    let sent = sent(Form::AllInOne, three_days()).await?;
    sent.until_waiting().await?;
    assert_eq!(sent.ask(Method::GET, &[], "").await?.status, 200);
    let client = sent.client();
    let code = sent.path.split('~').nth(2).context("it has parts")?;
    assert_eq!(code.len(), 32);
    let mut shown = Vec::new();
    for path in ["", "/why", "/history?replay=true"] {
        shown.push(client.get(&format!("/api/executions/{}{path}", sent.run)).await?.body);
    }
    let why: Value = serde_json::from_str(&shown[1])?;
    assert_eq!(
        (&why["waits_for"][0]["kind"], &why["waits_for"][0]["name"]),
        (&json!("token"), &json!("approval"))
    );
    assert!(why["waits_for"][0]["until"].is_u64(), "{why}");
    shown.push(client.get("/api/executions").await?.body);
    assert_eq!(sent.ask(Method::POST, &[], r#"{"decision":"accept"}"#).await?.status, 202);
    client.show(&sent.run, 10).await?.json()?;
    shown.push(client.get(&format!("/api/executions/{}/history", sent.run)).await?.body);
    shown.push(sent.engine.engine.log());
    for text in shown {
        assert!(!text.contains(code), "it is in {text}");
    }
    Ok(())
}

#[tokio::test]
async fn somebody_with_a_key_makes_a_link_for_any_wait() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let run = client.start_id("decide", Value::Null).await?;
    client.until(&run, "waiting").await?;
    let path = format!("/api/executions/{run}/tokens");
    let made = client.send_post(&path, r#"{"name":"decision","expires_ms":60000}"#).await?;
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json()?;
    let link = made["url"].as_str().and_then(|url| url.strip_prefix(URL)).context("it has a link")?;
    assert!(made["expires_at"].is_u64(), "{made}");
    let other = client.send_post(&path, r#"{"name":"other"}"#).await?;
    assert_eq!(other.problem()?, (409, "wait_not_found".into()));
    let bad = client.send_post(&path, r#"{"name":"decision","expires_ms":0}"#).await?;
    assert_eq!(bad.problem()?, (400, "invalid_request".into()));
    // The form says yes or no to whoever waits for that.
    assert_eq!(ask(&client, Method::POST, link, &[], "decision=accept").await?.status, 202);
    assert_eq!(client.show(&run, 10).await?.json()?["output"], true);
    Ok(())
}

#[tokio::test]
async fn without_an_address_a_run_that_needs_one_is_paused_and_goes_on_when_there_is_one() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[ONE_CELL, ("STEPWELL_URL", "")]).await?;
    let outside = Outside::start().await?;
    let input = json!({ "to": outside.url("ok"), "expires_ms": 60_000 });
    let run = engine.client().start_id("approve", input).await?;
    let paused = engine.client().until(&run, "paused").await?;
    assert_eq!(paused["problem"]["code"], "url_missing", "{paused}");
    assert!(paused["problem"]["detail"].to_string().contains("STEPWELL_URL"), "{paused}");
    assert_eq!(outside.asked(), []);
    let decide = engine.client().start_id("decide", Value::Null).await?;
    engine.client().until(&decide, "waiting").await?;
    let refused = engine
        .client()
        .send_post(&format!("/api/executions/{decide}/tokens"), r#"{"name":"decision"}"#)
        .await?;
    assert_eq!(refused.problem()?, (500, "url_missing".into()));
    set(&mut engine, &[("STEPWELL_URL", URL)]).await?;
    engine.client().resume(&run).await?;
    outside.until_asked(1).await?;
    engine.client().until(&run, "waiting").await?;
    Ok(())
}

#[tokio::test]
async fn a_link_works_and_stays_the_same_while_the_deployments_key_is_rotated() -> TestResult {
    const NEXT: &str = "next-key-0123456789abcdef0123456789abcdef";
    const SPARE: &str = "spare-key-0123456789abcdef0123456789abcdef";
    let variables = [ONE_CELL, ("STEPWELL_KEY_PREVIOUS", SPARE)];
    let mut engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let outside = Outside::start().await?;
    let run = start(&engine.client(), &outside, three_days()).await?;
    let before = link(&outside, 0)?;
    engine.client().until(&run, "waiting").await?;
    set(&mut engine, &[("STEPWELL_KEY", NEXT), ("STEPWELL_KEY_PREVIOUS", KEY)]).await?;
    let client = engine.client().with_key(NEXT);
    assert_eq!(ask(&client, Method::POST, &before, &[], r#"{"decision":"accept"}"#).await?.status, 202);
    assert_eq!(client.show(&run, 10).await?.json()?["status"], "completed");
    // What the replay has made of it, with the key that the run has used before.
    assert_eq!(link(&outside, 1)?, before);
    // A new run uses the new key.
    start(&client, &outside, three_days()).await?;
    let key_of = |path: &str| path.split('~').nth(1).map(str::to_owned);
    let after = link(&outside, 2)?;
    assert_ne!(key_of(&after), key_of(&before));
    // Once the old key is gone, so are its links.
    set(&mut engine, &[("STEPWELL_KEY_PREVIOUS", SPARE)]).await?;
    let gone = ask(&client, Method::GET, &before, &[], "").await?;
    assert_eq!(gone.problem()?, (404, "token_not_found".into()));
    assert_eq!(ask(&client, Method::GET, &after, &[], "").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn another_worker_makes_a_link() -> TestResult {
    let engine = Engine::start_with_caller(Form::AllInOne, 1).await?;
    let call = async |method: &str, arguments: Value| {
        engine.call(method, &arguments).await?.map_err(anyhow::Error::msg)
    };
    let run = call("startWorkflow", json!(["decide"])).await?["id"].clone();
    for (name, options) in
        [("decision", json!({ "occurrence": 0 })), ("later", json!({ "occurrence": 2, "expiresMs": 5_000 }))]
    {
        let made = call("createToken", json!([run, name, options])).await?;
        let url = made["url"].as_str().context("it has a link")?;
        assert!(url.starts_with(URL) && made["expires_at"].is_u64(), "{made}");
        assert!(url.ends_with(&format!("~{name}")), "{url}");
    }
    let refused = engine.call("createToken", &json!([run, "never"])).await?;
    assert!(refused.is_err_and(|thrown| thrown.contains("wait_not_found")));
    Ok(())
}

/// What a person sees and does: both themes, a narrow window, no script. Without Chromium there is nothing to look with.
/// `WAIT_PAGE_FOLDER` takes screenshots, and `WAIT_PAGE_AXE` is a file of axe-core to check them with.
#[tokio::test]
async fn a_person_accepts_on_the_page_without_any_script() -> TestResult {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".into());
    if !std::path::Path::new(&chromium).exists() {
        eprintln!("there is no {chromium}: set CHROMIUM");
        return Ok(());
    }
    let sent = sent(Form::AllInOne, three_days()).await?;
    sent.until_waiting().await?;
    let root = repository_root();
    let mut command = tokio::process::Command::new(root.join("node_modules/.bin/node"));
    command.arg(root.join("tests/workerd/fixtures/wait_page.mjs"));
    command.args([&chromium, &sent.client().http().url(&sent.path)]).kill_on_drop(true);
    command.args(["WAIT_PAGE_FOLDER", "WAIT_PAGE_AXE"].iter().map_while(|name| std::env::var(name).ok()));
    let output = timeout(Duration::from_secs(120), command.output()).await.context("it took too long")??;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_str(&said).with_context(|| said.to_string())?;
    assert_eq!((&seen["violations"], &seen["wide"]), (&json!([]), &json!([])), "{seen}");
    let has = |field: &str, text: &str| seen[field].as_str().is_some_and(|seen| seen.contains(text));
    assert!(
        has("asked", "Refund order 42?") && has("asked", "<nothing>") && has("asked", "Reject"),
        "{seen}"
    );
    assert!(has("answered", "Your answer was recorded") && has("later", "Already answered"), "{seen}");
    let run = sent.client().show(&sent.run, 10).await?.json()?;
    assert_eq!(run["output"], json!({ "decision": "accept", "comment": "looks fine" }), "{run}");
    Ok(())
}

/// Deploys the engine with other variables.
async fn set(engine: &mut Engine, variables: &[(&str, &str)]) -> Result<()> {
    let server = &mut engine.engine;
    server.kill();
    let path = server.folder().join("config.capnp");
    let mut text = std::fs::read_to_string(&path)?;
    for (name, value) in variables {
        let begins = format!("\"{name}\", text = \"");
        let (before, rest) = text.split_once(&begins).with_context(|| format!("{name} is set"))?;
        let (_, after) = rest.split_once('"').context("a text ends")?;
        text = format!("{before}{begins}{value}\"{after}");
    }
    std::fs::write(&path, text)?;
    server.restart().await
}
