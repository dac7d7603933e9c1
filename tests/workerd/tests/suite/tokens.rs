//! Tokens of another issuer on the real workerd.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    access::{
        code,
        issuer::{self, DEVELOPMENT, fixtures},
        namespace,
    },
    engine::{Engine, Form},
    following::{Follower, Way},
};
use tokio::time::{Duration, Instant};

fn tokens(fixtures: &Value, which: &str) -> Vec<(String, String)> {
    let all = fixtures[which].as_object().expect("tokens by name");
    all.iter().map(|(name, token)| (name.clone(), token.as_str().unwrap_or_default().to_owned())).collect()
}

#[tokio::test]
async fn tokens_of_all_three_algorithms_are_taken_and_forgeries_are_not() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEVELOPMENT).await?;
    let (root, fixtures) = (engine.client(), fixtures());
    let admin = namespace(&root, "acme").await?;
    let other = admin.start_id("nap", json!(60_000)).await?;
    let (url, fetched) = issuer::serve(Some(&fixtures["jwks"])).await?;
    let good = tokens(&fixtures, "good");
    let refused = root.with_key(&good[0].1).get("/api/executions").await?;
    assert_eq!(refused.status, 401, "nobody has said to take its tokens");
    issuer::set(&root, &url).await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for (name, token) in &good {
        let client = root.with_key(token);
        let listed = client.get("/api/executions").await?;
        assert!(listed.status == 200 && listed.body.contains(&other), "{name}: {}", listed.body);
        assert_eq!(client.start("ten", &Value::Null, None, 10).await?.json()?["output"], 45, "{name}");
        assert_eq!(code(&client.cancel(&other).await?)?, "forbidden", "{name}");
        assert_eq!(code(&client.get("/api/keys").await?)?, "forbidden", "{name}");
        assert_eq!(code(&client.request("POST", "/api/session", "").await?)?, "wrong_status", "{name}");
        let mut changed = token.clone();
        let middle = changed.find('.').unwrap_or_default() + 20;
        let with = if changed.as_bytes()[middle] == b'A' { "B" } else { "A" };
        changed.replace_range(middle..=middle, with);
        assert_eq!(root.with_key(&changed).get("/api/executions").await?.status, 401, "{name}");
    }
    for (name, token) in tokens(&fixtures, "bad") {
        let answer = root.with_key(&token).get("/api/executions").await?;
        assert_eq!(
            (answer.status, code(&answer)?.as_str()),
            (401, "unauthorized"),
            "{name}: {}",
            answer.body
        );
    }
    let fetched = fetched.load(Ordering::Relaxed);
    assert!((1..=4).contains(&fetched), "the keys were fetched {fetched} times");
    Ok(())
}

#[tokio::test]
async fn cloudflare_access_can_stand_in_front() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEVELOPMENT).await?;
    let (root, fixtures) = (engine.client(), fixtures());
    namespace(&root, "acme").await?;
    let (url, _) = issuer::serve(Some(&fixtures["jwks"])).await?;
    issuer::set(&root, &url).await?;
    let http = engine.engine.http();
    let token = fixtures["good"]["RS256"].as_str().unwrap_or_default();
    let request = http.client().get(http.url("/api/executions")).header("cf-access-jwt-assertion", token);
    assert_eq!(http.send(request, "").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn tokens_of_an_issuer_that_was_removed_are_not_taken_for_longer_than_a_second() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEVELOPMENT).await?;
    let (root, fixtures) = (engine.client(), fixtures());
    namespace(&root, "acme").await?;
    let (url, _) = issuer::serve(Some(&fixtures["jwks"])).await?;
    issuer::set(&root, &url).await?;
    let client = root.with_key(fixtures["good"]["EdDSA"].as_str().unwrap_or_default());
    assert_eq!(client.get("/api/executions").await?.status, 200);
    root.request("DELETE", "/api/issuers?issuer=https%3A%2F%2Fissuer.example", "").await?.json()?;
    let removed = Instant::now();
    let mut last_taken = Duration::ZERO;
    while client.get("/api/executions").await?.status == 200 {
        last_taken = removed.elapsed();
        assert!(last_taken < Duration::from_secs(5), "it is still taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("taken until {} ms after its issuer was removed", last_taken.as_millis());
    assert!(last_taken <= Duration::from_secs(1));
    Ok(())
}

#[tokio::test]
async fn the_streams_of_an_issuer_that_was_removed_end_within_seconds() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEVELOPMENT).await?;
    let (root, fixtures) = (engine.client(), fixtures());
    let admin = namespace(&root, "acme").await?;
    let run = admin.start_id("wait", json!(600_000)).await?;
    admin.until(&run, "waiting").await?;
    let (url, _) = issuer::serve(Some(&fixtures["jwks"])).await?;
    issuer::set(&root, &url).await?;
    let client = root.with_key(fixtures["good"]["EdDSA"].as_str().unwrap_or_default());
    for stream in [format!("/api/executions/{run}/stream"), "/api/stream".to_owned()] {
        for way in Way::ALL {
            // After a change, the issuer's tokens are good again as soon as the namespace has heard of it.
            let began = Instant::now();
            while client.get("/api/executions").await?.status != 200 {
                assert!(began.elapsed() < Duration::from_secs(10), "its tokens are not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let mut follower = Follower::open_as(&client, &stream, way, None).await?;
            while follower.next_within(Duration::from_millis(200)).await?.is_some() {}
            let removed = Instant::now();
            root.request("DELETE", "/api/issuers?issuer=https%3A%2F%2Fissuer.example", "").await?.json()?;
            assert_eq!(follower.rest().await?.len(), 0, "{stream} {way:?}");
            let took = removed.elapsed();
            println!("{stream} {way:?} ended {} ms after its issuer was removed", took.as_millis());
            assert!(took < Duration::from_secs(3), "{stream} {way:?} took {took:?}");
            assert_eq!(client.get("/api/executions").await?.status, 401);
            issuer::set(&root, &url).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_token_leads_only_where_its_issuer_may_and_allows_no_more_than_its_ceiling() -> TestResult {
    let engine = Engine::start_with(Form::AllInOne, DEVELOPMENT).await?;
    let (root, fixtures) = (engine.client(), fixtures());
    let admin = namespace(&root, "acme").await?;
    admin.start_id("nap", json!(60_000)).await?;
    let (url, _) = issuer::serve(Some(&fixtures["jwks"])).await?;
    let client = root.with_key(fixtures["good"]["EdDSA"].as_str().unwrap_or_default());
    let set = async |namespaces: &[&str], most: &[&str]| {
        let issuer = json!({
            "issuer": "https://issuer.example", "audience": "stepwell", "jwks_url": url,
            "namespace": { "claim": "tenant" }, "namespaces": namespaces, "scopes_claim": "scope",
            "scopes_max": most,
        });
        root.request("PUT", "/api/issuers", &issuer.to_string()).await?.json()?;
        // A Worker goes by what it has read within the last second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        anyhow::Ok(())
    };
    set(&["other", "team-*"], &["admin"]).await?;
    let refused = client.get("/api/executions").await?;
    assert_eq!((refused.status, code(&refused)?.as_str()), (401, "unauthorized"), "{}", refused.body);
    set(&["acme"], &["admin"]).await?;
    assert_eq!(client.start("ten", &Value::Null, None, 10).await?.json()?["output"], 45);
    set(&["acme"], &["read"]).await?;
    assert_eq!(client.get("/api/executions").await?.status, 200);
    assert_eq!(code(&client.start("ten", &Value::Null, None, 0).await?)?, "forbidden");
    Ok(())
}
