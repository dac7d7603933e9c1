//! The configurations that people deploy, as wrangler understands them: new projects and the quickstart, in each of
//! their environments. Nothing is built and nothing is sent.

use std::{fs, path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use stepwell_workerd_tests::{TestResult, cli::stepwell_binary, node_binary, repository_root};
use tokio::{process::Command, time::timeout};

/// wrangler takes a few seconds; a machine under load may need much longer.
const WRANGLER_TIMEOUT: Duration = Duration::from_secs(120);

/// The five minutes of the paid plan.
const CPU_MS: i64 = 300_000;

/// Stands in for the bundle: what wrangler looks at is what it exports.
const BUNDLE: &str = "import { DurableObject } from 'cloudflare:workers';
export class Cell extends DurableObject {}
export class Station extends DurableObject {}
export default { fetch() { return new Response(''); } };";

/// Checks one configuration in the folder: no environment, and each that it has. An engine has cells.
async fn check(folder: &Path, file: &str, is_engine: bool) -> Result<()> {
    let path = folder.join(file);
    let mut table: toml::Table = toml::from_str(&fs::read_to_string(&path)?)?;
    // Nothing is built.
    let main = folder.join("bundle.js");
    fs::write(&main, BUNDLE)?;
    table.remove("build");
    table.insert("main".into(), "bundle.js".into());
    fs::write(&path, toml::to_string(&table)?)?;

    let limit = |table: &toml::Table| table.get("limits")?.get("cpu_ms")?.as_integer();
    ensure!(limit(&table).is_none(), "{file} cannot be deployed on the free plan");
    let environments = table.get("env").and_then(toml::Value::as_table).context("it has environments")?;
    let production = environments.get("production").and_then(toml::Value::as_table);
    ensure!(production.and_then(limit) == Some(CPU_MS), "{file} does not use what the paid plan allows");
    let staging = environments.get("staging").and_then(toml::Value::as_table).context("staging")?;
    ensure!(limit(staging).is_none(), "{file}: staging cannot be deployed on the free plan");

    for environment in [""].into_iter().chain(environments.keys().map(String::as_str)) {
        let wrangler = Command::new(node_binary()?)
            .arg(repository_root().join("node_modules/wrangler/bin/wrangler.js"))
            .args(["deploy", "--dry-run", "--outdir", "out", "--config", file, "--env", environment])
            .current_dir(folder)
            .env("CI", "true")
            .env("WRANGLER_SEND_METRICS", "false")
            .env("WRANGLER_LOG_PATH", folder.join("logs"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(WRANGLER_TIMEOUT, wrangler).await.context("wrangler does not end")??;
        let said = format!("{}{}", String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
        ensure!(output.status.success(), "{file} --env '{environment}':\n{said}");
        ensure!(!said.contains("WARNING"), "{file} --env '{environment}':\n{said}");
        if is_engine {
            ensure!(said.contains("env.CELL (Cell"), "{file} --env '{environment}' has no cells:\n{said}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_new_project_can_be_deployed_in_each_form_and_environment() -> TestResult {
    let folder = tempfile::tempdir()?;
    for template in ["hello", "orders", "agent"] {
        let two = format!("{template}-two");
        for arguments in [&["new", template][..], &["new", &two, "--two-workers"]] {
            let made = Command::new(stepwell_binary()?)
                .args(arguments)
                .args(["--template", template, "--no-install"])
                .current_dir(folder.path())
                .output()
                .await?;
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            // As npm would install it.
            let dashboard = folder.path().join(arguments[1]).join("node_modules/@stepwell/dashboard/dist");
            fs::create_dir_all(dashboard)?;
        }
        check(&folder.path().join(template), "wrangler.toml", true).await?;
        check(&folder.path().join(&two), "wrangler.toml", false).await?;
        check(&folder.path().join(&two).join("engine"), "wrangler.toml", true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_quickstart_can_be_deployed_in_each_form_and_environment() -> TestResult {
    for (file, is_engine) in
        [("wrangler.toml", true), ("wrangler.app.toml", false), ("wrangler.engine.toml", true)]
    {
        let folder = tempfile::tempdir()?;
        fs::copy(repository_root().join("examples/quickstart").join(file), folder.path().join(file))?;
        check(folder.path(), file, is_engine).await?;
    }
    Ok(())
}
