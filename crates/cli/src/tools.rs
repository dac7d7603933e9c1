//! The tools that a project is built, run and deployed with: where they are, and how to get one that is missing.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize;
use stepwell_protocol::dashboard::PAGE;

use crate::{
    failure::{Failure, Result},
    project::{ASSETS, Assets, Worker},
    trust::{self, is_trusted},
};

/// What Workers are compiled for.
pub const WASM: &str = "wasm32-unknown-unknown";

/// How to get each tool.
pub const GET_CARGO: &str = "Install Rust from https://rustup.rs.";
/// How to get the standard library for Workers.
pub const GET_WASM: &str = "rustup target add wasm32-unknown-unknown";
/// How to get wasm-opt.
pub const GET_WASM_OPT: &str = "npm install --save-dev binaryen";
/// How to get workerd and wrangler.
pub const GET_NPM: &str = "npm install --save-dev workerd wrangler";
/// How to get a Node that wrangler and Miniflare run on.
pub const GET_NODE: &str =
    "Install Node 22 or later from https://nodejs.org, or for one project: npm install --save-dev node@22";

/// How to get the files that a Worker serves.
const GET_ASSETS: &str = "Run `npm install`, or let [assets] name the folder `dist` of @stepwell/dashboard, wherever npm \
                          has put it.";

/// How to get what the project's `package.json` names.
pub const INSTALL: &str = "Run `npm install` in the project.";

/// The oldest Node that wrangler and Miniflare run on.
const NODE_MAJOR_MIN: u32 = 22;

/// A program of this name in the PATH.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    }
    #[cfg(not(unix))]
    file.is_file()
}

/// The first of these files in `node_modules` of a folder or of one above it.
fn in_node_modules(from: &Path, file: &str) -> Option<PathBuf> {
    trust::ancestors(from).map(|folder| folder.join("node_modules").join(file)).find(|file| file.exists())
}

/// The folder with the dashboard: the one that a Worker's configuration binds for the engine, or the package beside it.
pub fn dashboard(worker: &Worker) -> Option<PathBuf> {
    let Assets { directory, binding } = &worker.wrangler.assets;
    let bound = directory.as_ref().filter(|_| binding.as_deref() == Some(ASSETS));
    let bound = bound.map(|directory| worker.folder.join(directory));
    match bound {
        Some(bound) => with_dashboard(&bound),
        None => dashboard_package(&worker.folder),
    }
}

/// Refuses a Worker whose configuration names a folder of assets that is not there.
pub fn check_assets(worker: &Worker) -> Result {
    let Some(directory) = &worker.wrangler.assets.directory else { return Ok(()) };
    if worker.folder.join(directory).is_dir() {
        return Ok(());
    }
    let what = format!("{directory} is missing, which [assets] in wrangler.toml names");
    Err(Failure::local(what).next(GET_ASSETS))
}

/// The files of the dashboard's npm package, installed in a folder or in one above it. They act with somebody's key: those
/// of other people are not taken, who may write to a folder above, such as `/tmp`.
pub fn dashboard_package(from: &Path) -> Option<PathBuf> {
    let found = with_dashboard(&in_node_modules(from, "@stepwell/dashboard/dist")?)?;
    is_trusted_dashboard(&found, from).then_some(found)
}

/// Whether nobody else can have put anything into a folder with the dashboard. It has no links in its own path.
pub fn is_trusted_dashboard(folder: &Path, here: &Path) -> bool {
    let (dash, assets) = (folder.join("dash"), folder.join("dash/assets"));
    [folder, &dash, &dash.join(PAGE)].iter().all(|path| is_trusted(path, here))
        && (is_trusted(&assets, here) || assets.symlink_metadata().is_err())
}

/// A folder that has the dashboard in it.
pub fn with_dashboard(folder: &Path) -> Option<PathBuf> {
    folder.join("dash").join(PAGE).is_file().then(|| folder.canonicalize().ok()).flatten()
}

/// The compiler's driver.
pub fn cargo() -> Result<PathBuf> {
    let named = env::var_os("CARGO").map(PathBuf::from).filter(|named| named.exists());
    named.or_else(|| in_path("cargo")).ok_or_else(|| Failure::local("cargo is missing").next(GET_CARGO))
}

/// Whether the compiler has a standard library for Workers; nothing, if there is no compiler to ask.
pub fn has_wasm_target() -> Option<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).stderr(Stdio::null()).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    Some(Path::new(sysroot.trim()).join("lib/rustlib").join(WASM).join("lib").is_dir())
}

/// Refuses a compiler that cannot compile for Workers.
pub fn check_wasm_target() -> Result {
    if has_wasm_target() == Some(false) {
        return Err(Failure::local(format!("the compiler cannot build for {WASM}")).next(GET_WASM));
    }
    Ok(())
}

/// What a project needs that this machine does not have, each with the way to get it. `npm install` in the project
/// brings the rest.
pub fn missing(project: &Path) -> Vec<Failure> {
    [cargo().err(), check_wasm_target().err(), node(project).err()].into_iter().flatten().collect()
}

/// Node: the one that the project brings along, or the one in the PATH.
pub fn node(project: &Path) -> Result<PathBuf> {
    let node = in_node_modules(project, ".bin/node").or_else(|| in_path("node"));
    let node = node.ok_or_else(|| Failure::local("Node is missing").next(GET_NODE))?;
    let found = version(&node, &[]).unwrap_or_default();
    match major(&found) {
        Some(NODE_MAJOR_MIN..) => Ok(node),
        Some(..NODE_MAJOR_MIN) => {
            let what = format!("Node {found} is too old: wrangler needs {NODE_MAJOR_MIN} or later");
            Err(Failure::local(what).next(GET_NODE))
        }
        None => Err(Failure::local(format!("{} does not run", node.display())).next(GET_NODE)),
    }
}

/// The first number of a version such as `v22.4.0`.
fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').next()?.parse().ok()
}

/// The library that serves what plain workerd has not. It comes with wrangler.
pub fn miniflare(project: &Path) -> Result<PathBuf> {
    let beside =
        wrangler_folder(project).and_then(|folder| in_node_modules(&folder, "miniflare/dist/src/index.js"));
    beside.ok_or_else(|| {
        Failure::local("Miniflare, which serves KV, R2, D1 and queues, is missing")
            .next(format!("{GET_NPM}   (in {})", project.display()))
    })
}

/// Where wrangler is, and beside it all that comes with it.
pub fn wrangler_folder(project: &Path) -> Option<PathBuf> {
    in_node_modules(project, "wrangler").and_then(|folder| folder.canonicalize().ok())
}

/// The runtime. The binary itself: npm's `.bin/workerd` is a script around it, which dies alone.
pub fn workerd(project: &Path) -> Result<PathBuf> {
    let native = format!("@cloudflare/workerd-{}/bin/workerd", platform());
    let named = env::var_os("WORKERD_BIN").map(PathBuf::from).filter(|named| named.exists());
    let named = named.filter(|named| !named.ends_with(".bin/workerd"));
    named.or_else(|| in_node_modules(project, &native)).or_else(|| in_path("workerd")).ok_or_else(|| {
        Failure::local("workerd is missing").next(format!("{GET_NPM}   (in {})", project.display()))
    })
}

/// The bundler, which comes with wrangler. The binary itself: npm's script around it takes longer than it does.
pub fn esbuild(project: &Path) -> Result<PathBuf> {
    let native = match env::consts::OS {
        "windows" => format!("@esbuild/win32-{}/esbuild.exe", node_arch()),
        os => format!("@esbuild/{}-{}/bin/esbuild", if os == "macos" { "darwin" } else { os }, node_arch()),
    };
    let named = env::var_os("ESBUILD_BIN").map(PathBuf::from).filter(|named| named.exists());
    let beside = || in_node_modules(&wrangler_folder(project)?, &native);
    let found =
        named.or_else(beside).or_else(|| in_node_modules(project, &native)).or_else(|| in_path("esbuild"));
    found.ok_or_else(|| Failure::local("esbuild, which comes with wrangler, is missing").next(INSTALL))
}

/// What optimizes a module once more.
pub fn wasm_opt(project: &Path) -> Result<PathBuf> {
    let named = env::var_os("WASM_OPT_BIN").map(PathBuf::from).filter(|named| named.exists());
    let found = named.or_else(|| in_node_modules(project, ".bin/wasm-opt")).or_else(|| in_path("wasm-opt"));
    found.ok_or_else(|| Failure::local("wasm-opt is missing").next(GET_WASM_OPT))
}

/// Installs what the project's `package.json` names, unless that is there already. Says whether it did.
pub fn install(project: &Path, is_there: bool) -> Result<bool> {
    if is_there || !project.join("package.json").is_file() {
        return Ok(false);
    }
    let npm = in_path(if cfg!(windows) { "npm.cmd" } else { "npm" });
    let npm = npm.ok_or_else(|| Failure::local("npm is missing").next(GET_NODE))?;
    let mut command = Command::new(npm);
    command.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(project);
    // Its progress is on standard error.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    succeed(&mut command, "npm install")?;
    Ok(true)
}

/// Runs a tool to its end.
pub fn succeed(command: &mut Command, name: &str) -> Result {
    let status =
        command.status().map_err(|error| Failure::local(format!("{name} cannot be started: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::local(format!("{name} has ended with {status}")).next("See what it wrote above."))
}

/// The PATH with this program and the project's tools in front: what a `[build]` command finds.
pub fn path_for_builds(project: &Path) -> Option<OsString> {
    let own = env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let tools = in_node_modules(project, ".bin");
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(own.into_iter().chain(tools).chain(env::split_paths(&path))).ok()
}

/// Cloudflare's tool: the program, and its first arguments.
pub fn wrangler(project: &Path) -> Result<(PathBuf, Vec<OsString>)> {
    if let Some(script) = in_node_modules(project, "wrangler/bin/wrangler.js") {
        return Ok((node(project)?, vec![script.into()]));
    }
    in_path("wrangler").map(|wrangler| (wrangler, Vec::new())).ok_or_else(|| {
        Failure::local("wrangler is missing").next(format!("{GET_NPM}   (in {})", project.display()))
    })
}

/// The names of a Worker's secrets on Cloudflare; nothing, if wrangler does not say. The arguments name the environment.
pub fn secrets(worker: &Worker, environment: &[OsString]) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Secret {
        name: String,
    }
    let (program, first) = wrangler(&worker.folder).ok()?;
    let mut command = Command::new(program);
    command.args(first).args(["secret", "list", "--format", "json"]).args(environment);
    // Nobody is asked anything.
    command.env("CI", "true").current_dir(&worker.folder).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    let secrets: Vec<Secret> = serde_json::from_slice(&output.stdout).ok()?;
    Some(secrets.into_iter().map(|secret| secret.name).collect())
}

/// What a tool says about its version, on one line.
pub fn version(program: &Path, arguments: &[OsString]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .arg("--version")
        .env("WRANGLER_SEND_METRICS", "false")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// This machine's processor, as npm's packages name it.
fn node_arch() -> &'static str {
    if env::consts::ARCH == "aarch64" { "arm64" } else { "x64" }
}

fn platform() -> &'static str {
    match (env::consts::OS, env::consts::ARCH) {
        ("macos", "aarch64") => "darwin-arm64",
        ("macos", _) => "darwin-64",
        ("windows", _) => "windows-64",
        (_, "aarch64") => "linux-arm64",
        _ => "linux-64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    #[test]
    fn the_dashboard_is_the_folder_that_is_bound_or_the_package_beside_it() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder above")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let worker = "name = \"x\"\ncompatibility_date = \"2026-04-01\"\n";
        let found = || dashboard(&Project::at(root.path()).expect("a project").front);
        write("Cargo.toml", "");
        write("wrangler.toml", worker);
        assert_eq!(found(), None);
        write("node_modules/@stepwell/dashboard/dist/dash/page.htm", "");
        assert!(found().is_some_and(|folder| folder.ends_with("@stepwell/dashboard/dist")));
        write("public/dash/page.htm", "");
        for (binding, wanted) in [("ASSETS", "public"), ("OTHER", "dist")] {
            let assets = format!("{worker}[assets]\ndirectory = \"public\"\nbinding = \"{binding}\"\n");
            write("wrangler.toml", &assets);
            assert!(found().is_some_and(|folder| folder.ends_with(wanted)), "{binding}");
        }
        assert!(check_assets(&Project::at(root.path()).expect("a project").front).is_ok());
        write("wrangler.toml", &format!("{worker}[assets]\ndirectory = \"none\"\nbinding = \"ASSETS\"\n"));
        assert_eq!(found(), None);
        let failure =
            check_assets(&Project::at(root.path()).expect("a project").front).expect_err("it is missing");
        assert!(failure.what.starts_with("none is missing"), "{}", failure.what);
    }

    #[test]
    fn the_first_number_of_a_version_is_found() {
        assert_eq!(
            ["v22.4.0", "20.20.2", "v8", "", "none"].map(major),
            [Some(22), Some(20), Some(8), None, None]
        );
    }
}
