//! A private Postgres in a folder of its own, with its defaults, for the libraries that jobs are compared with.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::{net::TcpStream, time::sleep};

/// What was measured of a system.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Measured {
    /// Jobs sent in a second.
    #[serde(rename = "enqueued")]
    pub sent: f64,
    /// Jobs sent, handed out and done in a second.
    pub finished: f64,
    /// Half of all jobs took no longer from send to claim; nothing if the rate was too much.
    pub p50_ms: Option<f64>,
    /// So for 99 of 100.
    pub p99_ms: Option<f64>,
}

/// A running server; ends when dropped, with its folder.
pub struct Server {
    folder: PathBuf,
    port: u16,
    process: Child,
}

/// Where Debian puts the programs that are not on the path.
const PROGRAMS: &str = "/usr/lib/postgresql";

impl Server {
    /// Makes a cluster and starts it. Postgres refuses to run as root: then it runs as `postgres`.
    pub async fn start() -> Result<Self> {
        let mut versions: Vec<_> = std::fs::read_dir(PROGRAMS)
            .context("install PostgreSQL with `apt-get install postgresql`, or pass --no-peers")?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        versions.sort();
        let programs = versions.pop().context("there is no PostgreSQL")?.join("bin");
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("stepwell-bench-postgres-{port}"));
        std::fs::create_dir_all(&folder)?;
        ensure!(Command::new("chown").arg("postgres").arg(&folder).status()?.success(), "chown failed");
        let data = folder.join("data");
        let as_postgres = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
            command.arg(programs.join(program)).current_dir(&folder);
            command
        };
        let made = as_postgres("initdb").args(["--auth=trust", "-D"]).arg(&data).output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let process = as_postgres("postgres")
            .arg("-D")
            .arg(&data)
            .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k"])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { folder, port, process };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                sleep(Duration::from_millis(500)).await;
                return Ok(server);
            }
            sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("PostgreSQL does not start")
    }

    /// Measures a library.
    pub async fn measure(&self, peer: &str, seconds: u32, rate: u32) -> Result<Measured> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/run.mjs");
        let (seconds, rate) = (seconds.to_string(), rate.to_string());
        let output = tokio::process::Command::new("node")
            .args([script, peer, &seconds, &rate])
            .env("DATABASE_URL", format!("postgres://postgres@127.0.0.1:{}/postgres", self.port))
            .output()
            .await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().rfind(|line| line.starts_with('{')).context("it prints its figures")?;
        Ok(serde_json::from_str(line)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
