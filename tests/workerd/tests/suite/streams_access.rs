//! Who may follow what, on the real workerd.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    access::{code, key, namespace},
    engine::{Client, Engine, Form},
    following::{Follower, Way},
    without_request,
};

fn path(run: &str) -> String {
    format!("/api/executions/{run}/stream")
}

/// What whoever cannot open a stream is told.
async fn refusal(client: &Client, path: &str, way: Way) -> anyhow::Result<String> {
    match Follower::open_as(client, path, way, None).await {
        Ok(_) => anyhow::bail!("{path} was opened"),
        Err(error) => Ok(without_request(&error.to_string())),
    }
}

#[tokio::test]
async fn a_stream_of_another_namespaces_run_is_one_that_never_was() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let (one, two) = (namespace(&root, "one").await?, namespace(&root, "two").await?);
    let run = one.start_id("wait", json!(600_000)).await?;
    one.until(&run, "waiting").await?;
    let (place, _) = run.rsplit_once('-').context("an id has parts")?;
    let never = format!("{place}-000000000000");
    for way in Way::ALL {
        let mut own = Follower::open_as(&one, &path(&run), way, None).await?;
        ensure!(own.next().await?.is_some(), "its own namespace sees nothing of it");
        for client in [&two, &root] {
            let told = refusal(client, &path(&run), way).await?;
            ensure!(told.contains("run_not_found"), "{told}");
            ensure!(told == refusal(client, &path(&never), way).await?, "{told}");
        }
    }
    // All runs are those of the namespace.
    for client in [&two, &root] {
        let all = client.request("GET", "/api/stream?cursor=start", "").await?;
        ensure!(all.status == 200 && all.body.contains("ready") && !all.body.contains(&run), "{}", all.body);
    }
    let all = one.request("GET", "/api/stream?cursor=start", "").await?;
    ensure!(all.body.contains(&run), "{}", all.body);
    Ok(())
}

#[tokio::test]
async fn a_key_of_one_workflow_follows_its_runs_and_no_others() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (_, only) = key(&admin, &["read:nap"]).await?;
    let (nap, other) =
        (admin.start_id("nap", json!(600_000)).await?, admin.start_id("wait", json!(600_000)).await?);
    for way in Way::ALL {
        let mut own = Follower::open_as(&only, &path(&nap), way, None).await?;
        ensure!(own.next().await?.is_some(), "it sees nothing");
        let told = refusal(&only, &path(&other), way).await?;
        ensure!(told.contains("run_not_found"), "{told}");
        for wider in ["", "?workflow=wait", "?workflow=nap&workflow=wait", "?workflow=wait&workflow=nap"] {
            let told = refusal(&only, &format!("/api/stream{wider}"), way).await?;
            ensure!(told.contains("forbidden"), "{wider}: {told}");
        }
    }
    let all = only.request("GET", "/api/stream?workflow=nap&cursor=start", "").await?;
    ensure!(all.body.contains(&nap) && !all.body.contains(&other), "{}", all.body);
    Ok(())
}

#[tokio::test]
async fn the_streams_of_a_revoked_key_end_within_a_second() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    let run = admin.start_id("wait", json!(600_000)).await?;
    admin.until(&run, "waiting").await?;
    for stream in [path(&run), "/api/stream".to_owned()] {
        for way in Way::ALL {
            let (id, client) = key(&admin, &["read"]).await?;
            let mut follower = Follower::open_as(&client, &stream, way, None).await?;
            ensure!(follower.next().await?.is_some(), "{stream} {way:?} shows nothing");
            // A run's stream may have more to say before it is quiet.
            while follower.next_within(Duration::from_millis(200)).await?.is_some() {}
            let began = Instant::now();
            admin.post_json(&format!("/api/keys/{id}/revoke"), &Value::Null).await?;
            let rest = follower.rest().await?;
            let took = began.elapsed();
            ensure!(took < Duration::from_secs(1), "{stream} {way:?} took {took:?}");
            ensure!(rest.is_empty(), "{stream} {way:?}: {rest:?}");
            let told = refusal(&client, &stream, way).await?;
            ensure!(told.contains("unauthorized"), "{told}");
        }
    }
    // Whoever has another key comes back.
    let mut follower = Follower::open_as(&admin, &path(&run), Way::Socket, None).await?;
    ensure!(follower.next().await?.is_some(), "a good key sees nothing");
    Ok(())
}

#[tokio::test]
async fn a_stream_ends_with_the_time_of_its_key() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let run = admin.start_id("wait", json!(600_000)).await?;
    admin.until(&run, "waiting").await?;
    let end = stepwell_workerd_tests::following::now_ms() + 1_500;
    let made = json!({ "name": "soon over", "scopes": ["read"], "expires_at": end });
    let made = admin.post_json("/api/keys", &made).await?;
    let soon = admin.with_key(made["key"].as_str().context("a new key is shown")?);
    let mut follower = Follower::open_as(&soon, &path(&run), Way::Socket, None).await?;
    ensure!(follower.next().await?.is_some(), "it sees nothing");
    while soon.get("/api/executions").await?.status == 200 {
        ensure!(stepwell_workerd_tests::following::now_ms() < end + 10_000, "the key never ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while follower.next_within(Duration::from_millis(200)).await?.is_some() {}
    // What happens from now on is not for it.
    admin.cancel(&run).await?.json()?;
    let rest = follower.rest().await?;
    ensure!(rest.is_empty(), "{rest:?}");
    ensure!(follower.closed().is_some_and(|(code, _)| code == 1008), "{:?}", follower.closed());
    Ok(())
}

#[tokio::test]
async fn a_page_of_another_site_opens_no_stream_with_a_cookie() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let run = admin.start_id("ten", Value::Null).await?;
    admin.until(&run, "completed").await?;
    let opened = admin.request("POST", "/api/session", "").await?;
    let cookie = opened.headers["set-cookie"].to_str()?.split(';').next().unwrap_or_default().to_owned();
    let (http, stream) = (admin.http(), path(&run));
    let own = http.url("");
    for (origin, status) in [("https://elsewhere.example", 401), ("null", 401), (own.as_str(), 200)] {
        let request = http.client().get(http.url(&stream)).header("cookie", &cookie).header("origin", origin);
        let answer = http.send(request, &stream).await?;
        ensure!(answer.status == status, "{origin}: {} {}", answer.status, answer.body);
        if status == 401 {
            ensure!(code(&answer)? == "unauthorized", "{}", answer.body);
        }
    }
    Ok(())
}
