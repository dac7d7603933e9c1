//! `examples/orders` under `stepwell dev`: a real secret, KV and D1, a bank outside, and kills in the middle.

use std::{fs, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    Http, TestResult, bundle,
    dev::{Dev, Project, children_of},
    free_port, node_binary, repository_root,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{sleep, timeout},
};

/// What the bank knows the shop by.
const BANK_KEY: &str = "a-bank-key-for-this-test";

/// wrangler and Node take seconds; a machine under load may need much longer.
const TOOL_TIMEOUT: Duration = Duration::from_secs(120);

/// The shop and its bank.
struct Shop {
    project: Project,
    bank: Http,
    // Held to be killed when this is dropped.
    _bank: Child,
}

impl Shop {
    async fn open() -> Result<Self> {
        let example = repository_root().join("examples/orders");
        let port = free_port()?;
        let mut bank = Command::new(node_binary()?)
            .arg(example.join("stand-in/bank.mjs"))
            .args([&port.to_string(), BANK_KEY])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(bank.stdout.take().context("it is piped")?).lines();
        timeout(TOOL_TIMEOUT, lines.next_line()).await??.context("the bank has not opened")?;

        let project = Project::of_bundle(&bundle("orders")?)?;
        project.adopt_configuration(&example.join("wrangler.toml"))?;
        fs::copy(example.join("schema.sql"), project.path("schema.sql"))?;
        project.write(".dev.vars", &format!("BANK_KEY={BANK_KEY}\nBANK_URL=http://127.0.0.1:{port}\n"))?;
        let bank_http = Http::new(&format!("http://127.0.0.1:{port}"));
        let shop = Self { project, bank: bank_http, _bank: bank };
        shop.wrangler(&["d1", "execute", "orders", "--file", "schema.sql"]).await?;
        Ok(shop)
    }

    /// Runs wrangler on the data of `stepwell dev`, and gives what it prints.
    async fn wrangler(&self, arguments: &[&str]) -> Result<String> {
        let wrangler = Command::new(node_binary()?)
            .arg(repository_root().join("node_modules/wrangler/bin/wrangler.js"))
            .args(arguments)
            .args(["--local", "--persist-to", ".stepwell"])
            .current_dir(self.project.path("."))
            .env("CI", "true")
            .env("WRANGLER_SEND_METRICS", "false")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(TOOL_TIMEOUT, wrangler).await.context("wrangler does not end")??;
        let said = format!("{}{}", String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        ensure!(output.status.success(), "wrangler {arguments:?}: {said}");
        Ok(said)
    }

    /// Places an order: the path of its run.
    async fn order(&self, order: &Value) -> Result<String> {
        let run = self.post("/api/workflows/order/start", order).await?;
        Ok(format!("/api/executions/{}", run["id"].as_str().context("a run has an id")?))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let http = self.project.http();
        let request =
            http.client().post(http.url(path)).bearer_auth(self.project.key()?).body(body.to_string());
        http.send(request, path).await?.json()
    }

    /// A run, at its end or after some seconds.
    async fn run(&self, path: &str, seconds: u32) -> Result<Value> {
        let http = self.project.http();
        let request = http.client().get(http.url(path)).bearer_auth(self.project.key()?);
        http.send(request.header("prefer", format!("wait={seconds}")), path).await?.json()
    }

    /// What the bank has done for a path, such as `/charges`.
    async fn done(&self, what: &str) -> Result<usize> {
        let ledger = self.bank.get("/ledger").await?.json()?;
        let entries = ledger.as_array().context("a ledger is a list")?;
        Ok(entries.iter().filter(|entry| entry["what"] == what).count())
    }

    /// Kills `dev` with all that it has started, and starts it again.
    async fn kill(&self, dev: Dev) -> Result<Dev> {
        let nodes = children_of(dev.pid()?)?;
        ensure!(
            nodes.iter().any(|(_, args)| args.contains("miniflare.mjs")),
            "it is not Miniflare: {nodes:?}"
        );
        dev.kill().await?;
        self.project.dev().await
    }
}

#[tokio::test]
async fn orders_reach_a_bank_kv_and_d1_and_survive_kills() -> TestResult {
    let shop = Shop::open().await?;
    let mut dev = shop.project.dev().await?;

    // The bank wants to be asked again after a second: it is killed meanwhile.
    let small = shop.order(&json!({ "id": "o-1", "cents": 500, "notify": ["ada"] })).await?;
    sleep(Duration::from_millis(500)).await;
    dev = shop.kill(dev).await?;
    let ended = shop.run(&small, 30).await?;
    assert_eq!(ended["output"]["status"], "shipped", "{ended}");

    // A large one waits for a person while it is killed.
    let large = shop.order(&json!({ "id": "o-2", "cents": 25_000, "notify": ["ada", "grace"] })).await?;
    let mut run = shop.run(&large, 0).await?;
    for _ in 0..100 {
        if run["status"] == "waiting" {
            break;
        }
        sleep(Duration::from_millis(200)).await;
        run = shop.run(&large, 0).await?;
    }
    assert_eq!(run["status"], "waiting", "{run}");
    dev = shop.kill(dev).await?;
    shop.post(&format!("{large}/signals/approval"), &json!(true)).await?;
    let ended = shop.run(&large, 30).await?;
    assert_eq!(ended["output"]["status"], "shipped", "{ended}");
    assert_eq!(ended["output"]["told"], 2, "{ended}");

    assert_eq!(shop.done("/charges").await?, 2, "each order is charged once");
    assert_eq!(shop.done("/messages").await?, 3);
    dev.kill().await?;
    let rows = shop
        .wrangler(&["d1", "execute", "orders", "--json", "--command", "SELECT id, status FROM orders"])
        .await?;
    assert_eq!(rows.matches("shipped").count(), 2, "{rows}");
    let receipt = shop.wrangler(&["kv", "key", "get", "o-2", "--binding", "RECEIPTS", "--text"]).await?;
    assert!(receipt.contains("\"told\":2"), "{receipt}");
    Ok(())
}
