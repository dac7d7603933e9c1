//! Tries addresses that must not be called on the real Worker, with a canary on this machine that must never be hit.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::Parser;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    endpoint::{Endpoint, Reply},
    engine::{Client, Engine, Form},
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// The guard's own cases.
const CASES: &str = include_str!("../../../../crates/engine/src/outbound_cases.json");

/// Gives every address of the guard's cases to a Worker in the production configuration, as the push address of a queue and
/// as the `jwks_url` of an issuer. Each has to be refused, and a canary on loopback must never be called. Then an endpoint that
/// may be called redirects to the canary.
#[derive(Parser)]
struct Arguments {}

#[tokio::main]
async fn main() -> ExitCode {
    Arguments::parse();
    match run().await {
        Ok(cases) => {
            println!("{cases} cases: all refused or not followed, and the canary was never called");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ssrf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Listens on loopback, also where HTTPS is if that is free, and counts connections.
struct Canary {
    port: u16,
    hits: Arc<AtomicU64>,
}

impl Canary {
    async fn start() -> Result<Self> {
        let hits = Arc::<AtomicU64>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let mut listeners = vec![listener];
        for address in ["127.0.0.1:443", "[::1]:443", "127.0.0.1:8443", "[::1]:8443", "127.0.0.1:80"] {
            listeners.extend(TcpListener::bind(address).await);
        }
        println!("the canary listens on {} addresses of this machine", listeners.len());
        for listener in listeners {
            let hits = Arc::clone(&hits);
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Ok(Self { port, hits })
    }

    fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Its own addresses, as people write them to get past a guard.
    fn addresses(&self) -> Vec<String> {
        let hosts = [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "017700000001",
            "0",
            "localhost",
            "localhost.",
            "a.localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "user@127.0.0.1",
            "example.com@127.0.0.1",
        ];
        let ports = [format!(":{}", self.port), ":443".into(), ":8443".into(), String::new()];
        let mut urls = Vec::new();
        for scheme in ["http", "https"] {
            for host in hosts {
                urls.extend(ports.iter().map(|port| format!("{scheme}://{host}{port}/")));
            }
        }
        urls
    }
}

async fn run() -> Result<usize> {
    let canary = Canary::start().await?;
    let mut kinds: BTreeMap<String, Vec<String>> = serde_json::from_str(CASES)?;
    kinds.insert("this machine".into(), canary.addresses());
    // As users have it: without STEPWELL_DEV. The network of the tests would reach loopback.
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let mut cases = 0;
    for (kind, urls) in &kinds {
        for url in urls {
            refused(&client, url).await.with_context(|| format!("{kind}: {url:?}"))?;
        }
        // A queue that had one of them would call it with this job.
        client.post_json("/api/queues/canary/jobs", &json!({ "body": 1 })).await?;
        sleep(Duration::from_millis(100)).await;
        ensure!(canary.hits() == 0, "{kind}: the canary was called");
        println!("{kind}: {} refused as push addresses, {0} as jwks_url; canary 0", urls.len());
        cases += 2 * urls.len();
    }
    let good = "https://consumer.example/jobs";
    ensure!(set_push(&client, good).await?.0 == 200, "an address that may be called is refused: {good}");
    ensure!(set_issuer(&client, good).await?.0 == 200, "an address that may be called is refused: {good}");
    drop(engine);
    cases += redirects(&canary).await?;
    ensure!(canary.hits() == 0, "the canary was called");
    // A canary that cannot be hit shows nothing.
    drop(TcpStream::connect(("127.0.0.1", canary.port)).await?);
    sleep(Duration::from_millis(100)).await;
    ensure!(canary.hits() == 1, "the canary does not count");
    Ok(cases)
}

async fn set_push(client: &Client, url: &str) -> Result<(u16, String)> {
    let patch = json!({ "push": { "url": url } }).to_string();
    let answer = client.request("PATCH", "/api/queues/canary", &patch).await?;
    Ok((answer.status, answer.body))
}

async fn set_issuer(client: &Client, url: &str) -> Result<(u16, String)> {
    let issuer = json!({
        "issuer": "https://issuer.example", "audience": "stepwell", "jwks_url": url,
        "namespace": { "claim": "tenant" }, "namespaces": ["acme"], "scopes_claim": "scope",
        "scopes_max": ["write"],
    });
    let answer = client.request("PUT", "/api/issuers", &issuer.to_string()).await?;
    Ok((answer.status, answer.body))
}

async fn refused(client: &Client, url: &str) -> Result<()> {
    for (status, body) in [set_push(client, url).await?, set_issuer(client, url).await?] {
        ensure!(status == 400 && body.contains("invalid_request"), "{status} {body}");
    }
    Ok(())
}

/// An endpoint of this machine, which development may call, sends whoever calls it on to the canary.
async fn redirects(canary: &Canary) -> Result<usize> {
    let engine =
        Engine::start_with(Form::AllInOne, &[("STEPWELL_DEV", "1"), ("STEPWELL_CELLS", "1")]).await?;
    let client = engine.client();
    let mut cases = 0;
    for status in [301, 302, 303, 307, 308] {
        for to in ["http://127.0.0.1", "http://localhost", "//127.0.0.1", "https://127.0.0.1"] {
            let location = format!("{to}:{}/", canary.port);
            let endpoint =
                Endpoint::start(move |_, _| Reply::new(&format!("{status} Moved\r\nlocation: {location}")))
                    .await?;
            let queue = format!("redirect-{cases}");
            let push = json!({ "max_attempts": 1, "push": { "url": endpoint.url("/") } }).to_string();
            let answer = client.request("PATCH", &format!("/api/queues/{queue}"), &push).await?;
            ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
            client.post_json(&format!("/api/queues/{queue}/jobs"), &json!({ "body": 1 })).await?;
            let reason = dead(&client, &queue).await?;
            ensure!(reason.contains("redirects are not followed"), "{status} to {to}: {reason}");
            if status != 303 {
                ensure!(set_issuer(&client, &endpoint.url("/jwks")).await?.0 == 200, "an issuer is refused");
                let answer = client.with_key(&token()?).get("/api/executions").await?;
                ensure!(answer.status >= 400, "a token without keys is accepted: {}", answer.status);
            }
            ensure!(canary.hits() == 0, "{status} to {to}: the canary was called");
            cases += 1;
        }
    }
    println!(
        "redirects of an endpoint that may be called: {cases} not followed, by pushes and for jwks_url; canary 0"
    );
    Ok(cases)
}

/// Why the one job of a queue is dead.
async fn dead(client: &Client, queue: &str) -> Result<String> {
    let began = Instant::now();
    loop {
        let dead = client.get(&format!("/api/queues/{queue}/dead")).await?.json()?;
        if let Some(reason) = dead["jobs"][0]["death"]["reason"].as_str() {
            return Ok(reason.to_owned());
        }
        ensure!(began.elapsed() < Duration::from_secs(20), "no dead letter: {dead}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A token for which the engine has to fetch keys.
fn token() -> Result<String> {
    let now = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = part(json!({ "alg": "RS256", "kid": format!("k{now}"), "typ": "JWT" }));
    let claims = json!({
        "iss": "https://issuer.example", "aud": "stepwell", "exp": now + 600, "iat": now, "tenant": "acme", "scope": "read",
    });
    Ok(format!("{head}.{}.{}", part(claims), URL_SAFE_NO_PAD.encode([1_u8; 256])))
}
