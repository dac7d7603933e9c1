//! `stepwell doctor` on machines and projects that each have one thing wrong: it names the thing, and what to do.
#![cfg(unix)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

/// A machine on which all is well, with a new project. Its tools are scripts that say their version.
struct Machine {
    folder: TempDir,
    /// The arguments that name a deployment.
    deployment: Vec<String>,
}

/// The line of a doctor's report.
#[derive(Debug)]
struct Finding {
    state: String,
    found: String,
    remedy: String,
}

impl Machine {
    fn new(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Nobody listens there. By default it would ask whoever has the port of `stepwell dev`.
        let deployment = ["--address", "http://127.0.0.1:1"].map(str::to_owned).to_vec();
        let machine = Self { folder, deployment };
        fs::create_dir_all(machine.path("sysroot/lib/rustlib/wasm32-unknown-unknown/lib")).expect("made");
        fs::create_dir(machine.path("bin")).expect("made");
        machine.tool("cargo", "echo cargo 1.95.0");
        machine.tool("rustc", &format!("echo {}", machine.path("sysroot").display()));
        machine.tool("node", "echo v22.4.0");
        machine.tool("workerd", "echo workerd 2026-11-04");
        machine.tool("wrangler", "[ \"$1\" = --version ] && echo 4.158.0 && exit\ncat secrets 2>/dev/null");
        let made =
            machine.command(machine.folder.path(), &[&["new", "orders", "--no-install"], arguments].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn tool(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    /// Changes a file of the project.
    fn edit(&self, path: &str, from: &str, to: &str) {
        let path = self.path("orders").join(path);
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.contains(from), "{} has no '{from}'", path.display());
        fs::write(path, text.replace(from, to)).expect("written");
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path("orders").join(path), text).expect("written");
    }

    fn command(&self, folder: &Path, arguments: &[&str]) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(arguments)
            .args(&self.deployment)
            .current_dir(folder)
            .env_clear()
            // A shell and its `cat`, and nothing else of the real machine that the doctor would find.
            .env("PATH", format!("{}:/bin:/usr/bin", self.path("bin").display()))
            .env("CARGO", self.path("bin/cargo"))
            .env("RUSTC", self.path("bin/rustc"))
            .env("STEPWELL_CONFIG", self.path("config.toml"))
            .output()
            .expect("it can be started")
    }

    /// What it says about a thing.
    fn says(&self, about: &str) -> Finding {
        let output = self.command(&self.path("orders"), &["--json", "doctor"]);
        let checks: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let checks = checks.as_array().expect("a list");
        let is_bad = checks.iter().any(|check| check["state"] == "bad");
        assert_eq!(output.status.code(), Some(if is_bad { 6 } else { 0 }), "{checks:?}");
        let check = checks.iter().find(|check| check["name"] == about);
        let check = check.unwrap_or_else(|| panic!("nothing about {about}: {checks:?}"));
        let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
        Finding { state: text("state"), found: text("found"), remedy: text("remedy") }
    }

    /// Expects a finding.
    fn expect(&self, about: &str, state: &str, found: &str, remedy: &str) {
        let said = self.says(about);
        assert_eq!(said.state, state, "{said:?}");
        assert!(said.found.contains(found) && said.remedy.contains(remedy), "{said:?}");
    }

    /// Names a deployment that answers every request with this.
    fn deployed(&mut self, status: &'static str, body: &'static str, key: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("it listens"));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
                let _head: Vec<_> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
            }
        });
        self.deployment = ["--address", &address, "--key", key].map(str::to_owned).to_vec();
    }
}

const KEY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_machine_on_which_all_is_well_is_told_so() {
    let mut machine = Machine::new(&[]);
    machine.deployed("200 OK", r#"{"executions":[]}"#, KEY);
    for about in
        ["cargo", "wasm target", "node", "workerd", "wrangler", "project", "objects", "cron trigger", "key"]
    {
        machine.expect(about, "good", "", "");
    }
}

#[test]
fn no_wasm_target() {
    let machine = Machine::new(&[]);
    fs::remove_dir_all(machine.path("sysroot/lib")).expect("removed");
    machine.expect("wasm target", "bad", "none", "rustup target add wasm32-unknown-unknown");
}

#[test]
fn another_wasm_bindgen() {
    let machine = Machine::new(&[]);
    machine.edit("Cargo.lock", "\"0.2.129\"", "\"0.2.7\"");
    machine.expect("wasm-bindgen", "bad", "wasm-bindgen 0.2.7", "stepwell@latest");
}

#[test]
fn no_node_or_one_that_is_too_old() {
    let machine = Machine::new(&[]);
    machine.tool("node", "echo v20.20.2");
    machine.expect("node", "bad", "v20.20.2 is too old", "https://nodejs.org");
    machine.tool("node", "exit 1");
    machine.expect("node", "bad", "does not run", "https://nodejs.org");
}

#[test]
fn a_workerd_that_is_missing_or_older_than_the_project() {
    let machine = Machine::new(&[]);
    machine.tool("workerd", "echo workerd 2025-01-01");
    machine.expect("workerd", "bad", "2026-04-01", "workerd@latest");
    fs::remove_file(machine.path("bin/workerd")).expect("removed");
    machine.expect("workerd", "bad", "missing", "npm install");
}

#[test]
fn objects_or_a_migration_that_are_not_declared() {
    let machine = Machine::new(&[]);
    machine.edit(
        "wrangler.toml",
        "new_sqlite_classes = [\"Cell\", \"Station\"]",
        "new_sqlite_classes = [\"Cell\"]",
    );
    machine.expect("objects", "bad", "no migration that makes the class Station", "[[migrations]]");
    machine.edit("wrangler.toml", "name = \"CELL\"", "name = \"OTHER\"");
    machine.expect("objects", "bad", "binds no CELL", "class_name = \"Cell\"");
}

#[test]
fn no_cron_trigger() {
    let machine = Machine::new(&[]);
    machine.edit("wrangler.toml", "crons = [\"*/15 * * * *\"]", "crons = []");
    machine.expect("cron trigger", "bad", "none", "*/15 * * * *");
}

#[test]
fn a_secret_that_engine_and_app_do_not_share() {
    let machine = Machine::new(&["--two-workers"]);
    machine.expect("app key", "note", "does not say", "wrangler login");
    machine.write("secrets", "[]");
    machine.write("engine/secrets", r#"[{"name": "STEPWELL_APP_KEY"}]"#);
    machine.expect("app key", "bad", "orders-app has no STEPWELL_APP_KEY", "stepwell deploy");
    machine.write("secrets", r#"[{"name": "STEPWELL_APP_KEY"}]"#);
    machine.expect("app key", "good", "cannot be seen", "");
}

#[test]
fn a_key_that_everybody_reads() {
    let machine = Machine::new(&[]);
    machine.edit("wrangler.toml", "[build]\n", "[vars]\nSTEPWELL_KEY = \"1\"\n\n[build]\n");
    machine.expect("variables", "bad", "STEPWELL_KEY", "wrangler secret put STEPWELL_KEY");
}

#[test]
fn a_port_that_another_program_has() {
    let machine = Machine::new(&[]);
    // Taken by this test, or by somebody else: it is taken.
    let _taken = TcpListener::bind("127.0.0.1:8787");
    machine.expect("dev", "bad", "127.0.0.1:8787", "--port");
}

#[test]
fn data_that_another_dev_serves() {
    let machine = Machine::new(&[]);
    let data = machine.path("orders/.stepwell");
    fs::create_dir(&data).expect("made");
    fs::write(data.join("lock"), "process = 4711\naddress = \"http://127.0.0.1:9000\"\n").expect("written");
    let lock = fs::File::open(data.join("lock")).expect("it is there");
    lock.lock().expect("it is free");
    machine.expect("dev", "note", "(process 4711) serves this project at http://127.0.0.1:9000", "Stop it");
}

#[test]
fn a_deployment_that_does_not_answer() {
    Machine::new(&[]).expect("address", "bad", "127.0.0.1:1", "");
}

#[test]
fn a_deployment_that_refuses_the_key() {
    let mut machine = Machine::new(&[]);
    machine.deployed("401 Unauthorized", r#"{"code":"unauthorized"}"#, KEY);
    machine.expect("key", "bad", "refused", "STEPWELL_KEY");
    machine.deployed("401 Unauthorized", r#"{"code":"unauthorized"}"#, "short");
    machine.expect("key", "bad", "5 characters", "STEPWELL_KEY");
}

#[test]
fn a_deployment_without_a_key_or_with_one_that_is_too_short() {
    let mut machine = Machine::new(&[]);
    let body = r#"{"code":"misconfigured","detail":"STEPWELL_KEY has fewer than 32 characters."}"#;
    machine.deployed("500 Internal Server Error", body, KEY);
    machine.expect("key", "bad", "STEPWELL_KEY has fewer than 32 characters", "openssl rand -hex 32");
}
