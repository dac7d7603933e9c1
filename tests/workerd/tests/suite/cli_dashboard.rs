//! `stepwell dashboard` before the real engine: the page's requests and streams with a key that no browser gets.

use std::{
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Answer, Http, TestResult, bundle,
    cli::{Running, Terminal},
    dev::{Project, children_of},
    engine::{Engine, Form, KEY},
};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

const WITHIN: Duration = Duration::from_secs(30);

/// A browser that has used the link.
struct Page {
    http: Http,
    origin: String,
    cookie: String,
}

impl Page {
    async fn open(running: &mut Running) -> Result<Self> {
        let ready: Value = serde_json::from_str(&running.line().await?.context("it is ready")?)?;
        Self::at(ready["link"].as_str().context("a link")?).await
    }

    async fn at(link: &str) -> Result<Self> {
        let at = link.find("/sign-in/").context("it signs in")?;
        let (origin, path) = link.split_at(at);
        let http = Http::new(origin);
        let response = http.client().get(http.url(path)).send().await?;
        assert_eq!(response.status(), 200);
        let cookie = response.headers()["set-cookie"].to_str()?;
        let cookie = cookie.split(';').next().context("a cookie")?.to_owned();
        Ok(Self { http, origin: origin.to_owned(), cookie })
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> Result<Answer> {
        let request = self.http.client().request(method, self.http.url(path)).body(body.to_owned());
        let request = request.header("cookie", &self.cookie).header("origin", &self.origin);
        let answer = self.http.send(request, path).await?;
        assert!(!answer.body.contains(KEY) && !answer.body.contains("sw_session_"), "{}", answer.body);
        Ok(answer)
    }

    /// The types of the events of a stream until it is closed, and the code that it is closed with.
    async fn follow(&self, path: &str) -> Result<(Vec<Value>, u16)> {
        let mut request = self.http.url(path).replacen("http:", "ws:", 1).into_client_request()?;
        request.headers_mut().insert("cookie", self.cookie.parse()?);
        request.headers_mut().insert("origin", self.origin.parse()?);
        let (mut socket, _) = connect_async(request).await?;
        let mut seen = Vec::new();
        while let Some(message) = timeout(WITHIN, socket.next()).await? {
            match message? {
                Message::Text(text) => seen.push(serde_json::from_str(&text)?),
                Message::Close(frame) => return Ok((seen, frame.map_or(0, |frame| frame.code.into()))),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        Ok((seen, 0))
    }
}

fn folder_of(terminal: &Terminal) -> Result<String> {
    let folder = terminal.folder().join("files");
    std::fs::create_dir_all(folder.join("dash"))?;
    std::fs::write(folder.join("dash/page.htm"), "<p>the page")?;
    Ok(folder.to_str().context("it is text")?.to_owned())
}

#[tokio::test]
async fn a_page_starts_follows_and_lists_runs_through_the_command_and_signs_out() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 1).await?;
    let terminal = Terminal::open(&engine.engine.address())?;
    let folder = folder_of(&terminal)?;
    let mut running = terminal.begin(&["dashboard", "--json", "--assets", &folder])?;
    let page = Page::open(&mut running).await?;
    let session = page.ask(Method::GET, "/api/session", "").await?.json()?;
    assert_eq!(session["subject"], "root");

    let started = page.ask(Method::POST, "/api/workflows/chatty/start", "[2,2,5]").await?;
    assert_eq!(started.status, 201, "{}", started.body);
    let run = started.json()?["id"].as_str().context("an id")?.to_owned();
    let (seen, code) = page.follow(&format!("/api/executions/{run}/stream")).await?;
    assert_eq!(code, 1000, "the stream has ended with its run: {seen:?}");
    assert_eq!(seen.last().map(|event| &event["type"]), Some(&json!("end")), "{seen:?}");
    let steps: Vec<_> = seen.iter().filter(|event| event["type"] == "step").collect();
    let events = engine.client().history(&run).await?;
    let of_steps = events.iter().filter(|event| event["event"].get("step_finished").is_some());
    assert_eq!(steps.len(), of_steps.count(), "none is missing and none came twice: {seen:?}");
    let none = page.ask(Method::GET, "/api/executions/default-1-0-1-000000000000", "").await?;
    assert_eq!(none.problem()?, (404, "run_not_found".into()));

    // What the engine stores of itself outlives it, and so does the session.
    engine.engine.restart().await?;
    assert_eq!(page.ask(Method::GET, "/api/executions", "").await?.status, 200);
    assert_eq!(page.ask(Method::DELETE, "/api/session", "").await?.status, 200);
    let ran = running.end().await?;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let sessions = engine.client().get("/api/sessions").await?.json()?;
    assert_eq!(sessions["sessions"], json!([]), "its session is over");
    Ok(())
}

#[tokio::test]
async fn a_page_sees_what_the_key_allows_until_it_is_revoked() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let key = client.post_json("/api/keys", &json!({"name": "reader", "scopes": ["read"]})).await?;
    let mut terminal = Terminal::open(&engine.engine.address())?;
    terminal.set_key(key["key"].as_str().context("a key")?);
    let folder = folder_of(&terminal)?;
    let mut running = terminal.begin(&["dashboard", "--json", "--assets", &folder])?;
    let page = Page::open(&mut running).await?;
    assert_eq!(page.ask(Method::GET, "/api/executions", "").await?.status, 200);
    let start = page.ask(Method::POST, "/api/workflows/ten/start", "null").await?;
    assert_eq!(start.problem()?, (403, "forbidden".into()));
    let id = key["id"].as_str().context("an id")?;
    assert_eq!(client.send_post(&format!("/api/keys/{id}/revoke"), "").await?.status, 200);
    for _ in 0..100 {
        match page.ask(Method::GET, "/api/session", "").await {
            Ok(answer) if answer.status == 200 => sleep(Duration::from_millis(50)).await,
            Ok(_) | Err(_) => break,
        }
    }
    let ran = running.end().await?;
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("its key was revoked"), "{}", ran.stderr);
    Ok(())
}

#[tokio::test]
async fn a_browser_that_dev_opens_is_signed_in_until_dev_ends() -> TestResult {
    let project = Project::of_bundle(&bundle("test-all-in-one")?)?;
    project.configure("[assets]\ndirectory = \"files\"\nbinding = \"ASSETS\"\n")?;
    std::fs::create_dir_all(project.path("files/dash"))?;
    project.write("files/dash/page.htm", "<p>the page")?;
    // What opens pages on a desktop; here, it writes them down.
    let stub = project.path("bin/xdg-open");
    std::fs::create_dir(project.path("bin"))?;
    std::fs::write(&stub, "#!/bin/sh\ncat \"$1\" >opened\n")?;
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755))?;
    let (dev, ready) = project.dev_with(&["--open"]).await?;
    let link = ready["link"].as_str().context("a link")?;
    let (opened, began) = (|| std::fs::read_to_string(project.path("opened")), Instant::now());
    // Its arguments are for everybody to read: the link is in a file.
    while !opened().is_ok_and(|text| text.contains(link)) {
        assert!(began.elapsed() < WITHIN, "it has not opened {link}: {:?}", opened());
        sleep(Duration::from_millis(20)).await;
    }
    let page = Page::at(link).await?;
    assert_eq!(page.ask(Method::GET, "/api/session", "").await?.json()?["subject"], "root");
    // It lives through a restart of what it shows.
    for (pid, _) in children_of(dev.pid()?)? {
        kill_process(Pid::from_raw(pid).context("a process has a number")?, Signal::KILL)?;
    }
    let began = Instant::now();
    while page.ask(Method::GET, "/api/executions", "").await?.status != 200 {
        assert!(began.elapsed() < WITHIN, "it does not come back");
        sleep(Duration::from_millis(100)).await;
    }
    dev.end().await?;
    let (again, ready) = project.dev_with(&[]).await?;
    assert_eq!(ready["link"], Value::Null);
    let http = project.http();
    let request = http.client().get(http.url("/api/sessions")).bearer_auth(project.key()?);
    let sessions = http.send(request, "/api/sessions").await?.json()?;
    assert_eq!(sessions["sessions"], json!([]), "its session is over");
    again.end().await?;
    Ok(())
}
