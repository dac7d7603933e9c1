//! `stepwell deploy` with a stand-in for wrangler, which writes down what it is told.
#![cfg(unix)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread::{self, JoinHandle},
};

use tempfile::TempDir;

/// Writes down its folder, its arguments, and the secret that it is given. Lists the secrets in the file `secrets`.
const WRANGLER: &str = r#"#!/bin/sh
log=$ROOT/wrangler.log
echo "$(basename "$PWD"): $*" >> "$log"
case "$1 $2" in
  "secret list") cat secrets 2>/dev/null || exit 1 ;;
  "secret put") echo "$(basename "$PWD") $3=$(cat)" >> "$ROOT/put.log" ;;
esac
"#;

/// A project that was just made, and the tools that it is deployed with.
struct Project {
    folder: TempDir,
}

impl Project {
    fn new(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).expect("it can be made");
        fs::write(bin.join("wrangler"), WRANGLER).expect("written");
        fs::set_permissions(bin.join("wrangler"), fs::Permissions::from_mode(0o755)).expect("set");
        let project = Self { folder };
        let made =
            project.run(project.folder.path(), &[&["new", "orders", "--no-install"], arguments].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // As npm would install it.
        fs::create_dir_all(project.dashboard()).expect("it can be made");
        project
    }

    /// Where the files are that `wrangler.toml` names.
    fn dashboard(&self) -> PathBuf {
        self.folder.path().join("orders/node_modules/@stepwell/dashboard/dist")
    }

    fn run(&self, folder: &Path, arguments: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(arguments)
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()))
            .env("ROOT", self.folder.path())
            .env("STEPWELL_CONFIG", self.folder.path().join("config.toml"))
            .env_remove("STEPWELL_ADDRESS")
            .env_remove("STEPWELL_KEY")
            // Whether the compiler has the target is not asked here.
            .env("RUSTC", "/nonexistent")
            .output()
            .expect("it can be started")
    }

    fn deploy(&self, arguments: &[&str]) -> Output {
        self.run(&self.folder.path().join("orders"), &[&["deploy"], arguments].concat())
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.folder.path().join("orders").join(path), text).expect("written");
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A deployment that answers one request with this; gives its address, and what it was asked.
fn answering(status: &'static str, body: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("it listens"));
    let asked = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody asks");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let lines = reader.lines().map(|line| line.expect("text"));
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .expect("it is read");
        head.join("\n")
    });
    (address, asked)
}

#[test]
fn a_deploy_lets_the_engine_read_what_the_app_declares_and_prints_what_that_changes() {
    let project = Project::new(&[]);
    project.write("secrets", r#"[{"name": "STEPWELL_KEY"}]"#);
    let plan = r#"{"outcome":"applied","hash":"00","added":[{"kind":"workflow","name":"refund"}],
        "changed":[{"kind":"workflow","name":"order","changes":["timeout_ms: none -> 60000"]}],
        "retired":[],"kept_paused":[{"kind":"workflow","name":"order"}]}"#;
    let (address, asked) = answering("200 OK", plan);
    let output = project.deploy(&["--address", &address, "--key", "the-key-of-the-deployment"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let asked = asked.join().expect("it was asked");
    assert!(asked.starts_with("POST /api/sync HTTP/1.1"), "{asked}");
    assert!(asked.contains("Bearer the-key-of-the-deployment"), "{asked}");
    for line in
        ["+ workflow refund", "~ workflow order: timeout_ms: none -> 60000", "= workflow order stays paused"]
    {
        assert!(text(&output.stdout).contains(line), "{}", text(&output.stdout));
    }
}

#[test]
fn a_deploy_whose_manifest_is_refused_fails_in_ci() {
    let project = Project::new(&[]);
    project.write("secrets", r#"[{"name": "STEPWELL_KEY"}]"#);
    let problem =
        r#"{"code":"invalid_manifest","title":"Mistakes","detail":"1 mistake: it is wrong.","status":422}"#;
    let (address, asked) = answering("422 Unprocessable", problem);
    let output = project.deploy(&["--address", &address, "--key", "the-key-of-the-deployment"]);
    asked.join().expect("it was asked");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it is wrong"), "{}", text(&output.stderr));
}

#[test]
fn a_deploy_without_the_files_of_its_dashboard_says_how_to_get_them() {
    let project = Project::new(&[]);
    fs::remove_dir(project.dashboard()).expect("it is there");
    // What npm would install is somewhere else.
    fs::remove_file(project.folder.path().join("orders/package.json")).expect("it is there");
    let output = project.deploy(&[]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("Run `npm install`"), "{}", text(&output.stderr));
    assert_eq!(project.log("wrangler.log"), "", "nothing was asked of wrangler");
}

#[test]
fn a_deploy_without_an_address_leaves_the_manifest_to_the_engine() {
    let project = Project::new(&[]);
    project.write("secrets", r#"[{"name": "STEPWELL_KEY"}]"#);
    let output = project.deploy(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("The engine reads what the app declares by itself"), "{said}");
}

#[test]
fn a_deployment_without_a_key_gets_a_random_one_that_is_shown_once() {
    let project = Project::new(&[]);
    project.write("secrets", r#"[{"name": "API_KEY", "type": "secret_text"}]"#);
    let output = project.deploy(&["--env", "staging"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let put = project.log("put.log");
    let key = put.trim().strip_prefix("orders STEPWELL_KEY=").expect("the key is set");
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    assert!(text(&output.stdout).contains(key), "nobody knows the key");
    let told = project.log("wrangler.log");
    assert!(told.lines().all(|line| line.ends_with("--env staging")), "{told}");
    assert!(!told.contains(key), "the key was an argument, which others can see");

    project.write("secrets", r#"[{"name": "STEPWELL_KEY", "type": "secret_text"}]"#);
    let output = project.deploy(&["--env", "staging"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(project.log("put.log"), put, "a key that is there was replaced");
}

#[test]
fn two_workers_share_a_secret_that_only_they_know() {
    let project = Project::new(&["--two-workers"]);
    project.write("secrets", "[]");
    project.write("engine/secrets", r#"[{"name": "STEPWELL_KEY"}]"#);
    let output = project.deploy(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let put = project.log("put.log");
    let secrets: Vec<_> = put.lines().filter_map(|line| line.split_once(" STEPWELL_APP_KEY=")).collect();
    let [("orders", of_app), ("engine", of_engine)] = secrets[..] else { panic!("{put}") };
    assert_eq!((of_app, of_app.len()), (of_engine, 64), "{put}");
    assert!(!text(&output.stdout).contains(of_app) && !text(&output.stderr).contains(of_app));
    let told = project.log("wrangler.log");
    let deployed: Vec<_> = told.lines().filter(|line| line.contains(": deploy")).collect();
    assert_eq!(deployed, ["orders: deploy --env ", "engine: deploy --env "], "the engine binds to the app");
}

#[test]
fn what_would_be_unsafe_is_not_deployed() {
    for name in ["STEPWELL_KEY", "STEPWELL_APP_KEY", "STEPWELL_DEV"] {
        let project = Project::new(&[]);
        let wrangler = "name = \"orders\"\ncompatibility_date = \"2026-04-01\"\n";
        project.write("wrangler.toml", &format!("{wrangler}[vars]\n{name} = \"1\"\n"));
        let output = project.deploy(&[]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(name), "{}", text(&output.stderr));
        assert_eq!(project.log("wrangler.log"), "", "it was deployed");
    }
}
