//! Operations on another namespace's things, and keys that are revoked while they are in use.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Value, json};

use super::{Plan, Report, key as make_key, namespace, text, traces::Secrets};
use crate::engine::Client;

/// Runs of the namespace that is not to be touched.
const RUNS: usize = 20;

/// Operations that are under way at once.
const AT_ONCE: usize = 32;

/// One operation.
struct Crossing {
    method: &'static str,
    path: String,
    body: String,
    idempotency_key: Option<String>,
}

/// Lets one namespace do all that it can to the other's things.
pub async fn run(root: &Client, plan: &Plan, secrets: &mut Secrets, report: &mut Report) -> Result<()> {
    let victim = namespace(root, "victim").await?;
    let intruder = namespace(root, "intruder").await?;
    let (key, _) = make_key(&victim, &["read"]).await?;
    for client in [&victim, &intruder] {
        secrets.add(client.key());
    }
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let started =
            victim.start("wait", &json!(3_600_000), Some(&format!("order-{number}")), 0).await?.json()?;
        runs.push(text(&started["id"])?.to_owned());
    }
    for run in &runs {
        victim.until(run, "waiting").await?;
    }
    let before = state(&victim, &runs).await?;
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let crossings: Vec<_> = (0..plan.crossings).map(|_| Crossing::draw(&mut rng, &runs, &key)).collect();
    let told = stream::iter(crossings).map(|crossing| {
        let (intruder, runs, key) = (intruder.clone(), runs.clone(), key.clone());
        async move { crossing.tells(&intruder, &runs, &key).await }
    });
    let told: Vec<Result<bool>> = told.buffer_unordered(AT_ONCE).collect().await;
    for told in told {
        report.crossings += 1;
        report.effects += u32::from(told?);
    }
    let after = state(&victim, &runs).await?;
    if before != after {
        report.effects += 1;
        eprintln!("before: {before}\nafter: {after}");
    }
    Ok(())
}

impl Crossing {
    fn draw(rng: &mut StdRng, runs: &[String], key: &str) -> Self {
        let run = runs.choose(rng).cloned().unwrap_or_default();
        let post = |path: String, body: &str| Self {
            method: "POST",
            path,
            body: body.to_owned(),
            idempotency_key: None,
        };
        let get = |path: String| Self { method: "GET", ..post(path, "") };
        let order = format!("/api/workflows/wait/by-key/order-{}", rng.random_range(0..RUNS));
        match rng.random_range(0..19) {
            0 => get(format!("/api/executions/{run}")),
            1 => get(format!("/api/executions/{run}/why")),
            2 => get(format!("/api/executions/{run}/history")),
            3 => post(format!("/api/executions/{run}/cancel"), ""),
            4 => post(format!("/api/executions/{run}/pause"), ""),
            5 => post(format!("/api/executions/{run}/resume"), ""),
            6 => post(format!("/api/executions/{run}/retry"), ""),
            7 => post(format!("/api/executions/{run}/restart"), ""),
            8 => post(format!("/api/executions/{run}/signals/go"), "\"from elsewhere\""),
            9 => get("/api/executions?limit=200".into()),
            10 => post(format!("/api/keys/{key}/revoke"), ""),
            11 => post(format!("/api/keys/{key}/rotate"), ""),
            12 => get("/api/keys".into()),
            13 => get(format!("/api/executions/{run}/stream")),
            14 => get("/api/stream?cursor=start".into()),
            15 => get(order),
            16 => post(format!("{order}/cancel"), ""),
            17 => post(format!("{order}/signals/go"), "\"from elsewhere\""),
            // The same idempotency key leads to a run of its own.
            _ => Self {
                idempotency_key: Some(format!("order-{}", rng.random_range(0..RUNS))),
                ..post("/api/workflows/wait/start".into(), "3600000")
            },
        }
    }

    /// Does it, and says whether the answer tells anything of the other namespace.
    async fn tells(&self, client: &Client, runs: &[String], key: &str) -> Result<bool> {
        let answer = match &self.idempotency_key {
            Some(key) => client.start("wait", &json!(3_600_000), Some(key), 0).await?,
            None => client.request(self.method, &self.path, &self.body).await?,
        };
        ensure!(answer.status < 500, "{} {}: {} {}", self.method, self.path, answer.status, answer.body);
        Ok(runs.iter().any(|run| answer.body.contains(run)) || answer.body.contains(key))
    }
}

async fn state(victim: &Client, runs: &[String]) -> Result<Value> {
    let mut state = json!({
        "keys": victim.get("/api/keys").await?.json()?,
        "settings": victim.get("/api/settings").await?.json()?,
        "audit": victim.get("/api/audit").await?.json()?,
        "runs": [],
    });
    for run in runs {
        let mut view = victim.show(run, 0).await?.json()?;
        // Whoever looks at a run is counted.
        view["meter"].take();
        let history = victim.history(run).await?;
        state["runs"].as_array_mut().context("a list")?.push(json!({ "run": view, "history": history }));
    }
    Ok(state)
}

/// Revokes keys while they are in use, and measures for how long they are still taken.
pub async fn revoke(root: &Client, keys: u32, secrets: &mut Secrets, report: &mut Report) -> Result<()> {
    let admin = namespace(root, "hasty").await?;
    secrets.add(admin.key());
    let run = admin.start_id("wait", json!(3_600_000)).await?;
    for number in 0..keys {
        let (id, client) = make_key(&admin, &["write"]).await?;
        secrets.add(client.key());
        // Half of them are used by way of a session.
        let client = if number % 2 == 0 {
            client
        } else {
            let session = client.post_json("/api/session", &Value::Null).await?;
            let token = text(&session["token"])?;
            secrets.add(token);
            client.with_key(token)
        };
        client.get("/api/executions").await?.json()?;
        client.show(&run, 0).await?.json()?;
        let (admin, path) = (admin.clone(), format!("/api/keys/{id}/revoke"));
        let began = Instant::now();
        let revoking = tokio::spawn(async move { admin.request("POST", &path, "").await });
        let mut last_taken = Duration::ZERO;
        loop {
            let asked = began.elapsed();
            let answer = client.show(&run, 0).await?;
            match answer.status {
                200 => last_taken = began.elapsed(),
                401 if revoking.is_finished() => break,
                401 => {}
                other => anyhow::bail!("{other} {}", answer.body),
            }
            ensure!(asked < Duration::from_secs(10), "a revoked key is still taken");
        }
        revoking.await??.json()?;
        report.revocations += 1;
        report.revoked_after_ms = report.revoked_after_ms.max(last_taken.as_millis());
    }
    Ok(())
}
