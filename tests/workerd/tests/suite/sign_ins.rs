//! Sessions on the real workerd: what one key can do to the others by signing in and out, and who sees and ends them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use stepwell_workerd_tests::{
    access::{code, key, namespace},
    engine::{Client, Engine, Form},
    following::{Follower, Way},
};

/// Signs in, and gives the session's id and a client with its token.
async fn sign_in(client: &Client) -> anyhow::Result<(String, Client)> {
    for _ in 0..50 {
        let opened = client.request("POST", "/api/session", "").await?;
        if opened.status == 429 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        }
        let opened = opened.json()?;
        let text = |name: &str| opened[name].as_str().map(str::to_owned).context("it is a text");
        return Ok((text("id")?, client.with_key(&text("token")?)));
    }
    anyhow::bail!("nobody was signed in")
}

#[tokio::test]
async fn signing_out_ends_the_streams_of_that_session_and_of_nobody_else() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let run = admin.start_id("wait", json!(600_000)).await?;
    admin.until(&run, "waiting").await?;
    let stream = format!("/api/executions/{run}/stream");
    let (_, reader) = key(&admin, &["read:wait"]).await?;
    let (_, session) = sign_in(&reader).await?;
    let (_, other) = sign_in(&reader).await?;
    let mut followers = Vec::new();
    for client in [&admin, &reader, &other, &session] {
        let mut follower = Follower::open_as(client, &stream, Way::Socket, None).await?;
        while follower.next_within(Duration::from_millis(200)).await?.is_some() {}
        followers.push(follower);
    }
    session.request("DELETE", "/api/session", "").await?.json()?;
    let mut ended = followers.pop().context("there are four")?;
    ensure!(ended.rest().await?.is_empty(), "it has nothing more to say");
    ensure!(ended.closed().is_some_and(|(code, _)| code == 1008), "{:?}", ended.closed());
    ensure!(session.get("/api/executions").await?.status == 401, "the session has ended");
    admin.cancel(&run).await?.json()?;
    for mut follower in followers {
        let rest = follower.rest().await?;
        ensure!(
            rest.last().is_some_and(|event| event.kind == "end"),
            "it was cut off: {:?}",
            follower.closed()
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_key_that_may_only_read_has_few_sessions_and_is_told_to_slow_down() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (_, reader) = key(&admin, &["read:nap"]).await?;
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..40 {
        let answer = reader.request("POST", "/api/session", "").await?;
        match answer.status {
            201 => opened += 1,
            429 => {
                ensure!(code(&answer)? == "limit_reached", "{}", answer.body);
                ensure!(answer.headers.contains_key("retry-after"), "it says when to try again");
                refused += 1;
            }
            status => anyhow::bail!("{status}: {}", answer.body),
        }
    }
    ensure!((3..=20).contains(&opened) && refused > 0, "{opened} sessions were opened");
    // It keeps nobody else from signing in.
    let (_, session) = sign_in(&admin).await?;
    ensure!(session.get("/api/keys").await?.status == 200, "the admin is signed in");
    Ok(())
}

#[tokio::test]
async fn admins_list_and_end_the_sessions_of_others() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let root = engine.client();
    let (admin, elsewhere) = (namespace(&root, "acme").await?, namespace(&root, "other").await?);
    let (reader_id, reader) = key(&admin, &["read"]).await?;
    let (id, session) = sign_in(&reader).await?;
    let (own, _) = sign_in(&admin).await?;
    let listed = admin.get("/api/sessions").await?.json()?;
    let ids: Vec<_> =
        listed["sessions"].as_array().into_iter().flatten().map(|one| one["id"].clone()).collect();
    ensure!(ids == [json!(own), json!(id)], "{listed}");
    ensure!(listed["sessions"][1]["subject"] == format!("key:{reader_id}"), "{listed}");
    ensure!(!listed.to_string().contains(session.key()), "a token is shown");
    let path = format!("/api/sessions/{id}");
    for client in [&reader, &session] {
        ensure!(code(&client.request("DELETE", &path, "").await?)? == "forbidden", "only admins may");
    }
    ensure!(code(&elsewhere.request("DELETE", &path, "").await?)? == "key_not_found", "it is not theirs");
    ensure!(session.get("/api/executions").await?.status == 200, "it is still good");
    admin.request("DELETE", &path, "").await?.json()?;
    ensure!(session.get("/api/executions").await?.status == 401, "it has ended");
    let page = admin.get("/api/audit").await?.json()?;
    ensure!(page["records"][0]["action"] == "session_revoked", "{page}");
    Ok(())
}

#[tokio::test]
async fn a_key_with_an_end_makes_none_that_lives_longer() -> anyhow::Result<()> {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let end = stepwell_workerd_tests::following::now_ms() + 60_000;
    let made = json!({ "name": "short", "scopes": ["admin"], "expires_at": end });
    let made = admin.post_json("/api/keys", &made).await?;
    let short = admin.with_key(made["key"].as_str().context("it is shown")?);
    let (_, session) = sign_in(&short).await?;
    for client in [&short, &session] {
        let child = client.post_json("/api/keys", &json!({ "name": "child", "scopes": ["admin"] })).await?;
        ensure!(child["expires_at"] == end, "{child}");
        let later = json!({ "name": "later", "scopes": ["read"], "expires_at": end + 1 });
        let refused = client.request("POST", "/api/keys", &later.to_string()).await?;
        ensure!(code(&refused)? == "invalid_request", "{}", refused.body);
    }
    let id = made["id"].as_str().context("it has an id")?;
    let next = short.post_json(&format!("/api/keys/{id}/rotate"), &json!({})).await?;
    ensure!(next["expires_at"] == end, "{next}");
    Ok(())
}
