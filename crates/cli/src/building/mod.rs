//! Makes a Worker of a crate: compiles it, binds it to JavaScript, and bundles it into two files.
//!
//! Owns everything between the source code and `build/index.js` with `build/index_bg.wasm`. cargo compiles; the
//! bindings come from wasm-bindgen as a library ([`bindings`]); esbuild, which comes with wrangler, bundles them with
//! the [`shim`]. Nothing has to be installed by `cargo install`.

pub mod bindings;
mod compiling;
mod functions;
mod shim;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    failure::{Failure, Result},
    tools,
};

/// The files that a build leaves.
pub const MODULES: [&str; 2] = ["index.js", "index_bg.wasm"];

/// What workerd has of WebAssembly. Named one by one: an optimizer that is newer than the runtime must not use what the
/// runtime does not know yet.
const WASM_FEATURES: [&str; 7] = [
    "--enable-mutable-globals",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-bulk-memory",
    "--enable-multivalue",
    "--enable-reference-types",
    "--enable-exception-handling",
];

/// A build to be done.
#[derive(Debug)]
pub struct Build {
    /// The folder of the crate.
    pub folder: PathBuf,
    /// Where the two files go.
    pub out: PathBuf,
    /// The profile of Cargo.toml.
    pub profile: Profile,
    /// Whether wasm-opt has a go at the module.
    pub optimizes: bool,
    /// Whether panics unwind.
    pub unwinds: bool,
    /// What else cargo is told.
    pub arguments: Vec<String>,
}

/// A profile of Cargo.toml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Quick to build.
    Dev,
    /// Small and fast.
    Release,
    /// The project's own.
    Named(String),
}

/// A part of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// cargo.
    Compile,
    /// wasm-bindgen.
    Bind,
    /// wasm-opt.
    Optimize,
    /// esbuild.
    Bundle,
}

/// What a build tells while it is done.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// A phase begins.
    Begins(Phase),
    /// A phase has ended.
    Ended(Phase, Duration),
}

impl Build {
    /// Does it. Gives how many bytes the module has.
    pub fn run(&self, tell: &mut dyn FnMut(Progress)) -> Result<u64> {
        tools::check_wasm_target()?;
        let esbuild = tools::esbuild(&self.folder)?;
        let wasm_opt = self.optimizes.then(|| tools::wasm_opt(&self.folder)).transpose()?;
        let binder = bindings::Binder::of(&self.folder)?;
        let staging = self.out.join(".new");
        let wrong =
            |path: &Path, error: &std::io::Error| Failure::local(format!("{}: {error}", path.display()));
        // What a build left that was killed.
        let _ = fs::remove_dir_all(&staging);
        fs::create_dir_all(&staging).map_err(|error| wrong(&staging, &error))?;
        let mut timed = |phase, work: &mut dyn FnMut() -> Result| {
            let began = Instant::now();
            tell(Progress::Begins(phase));
            work()?;
            tell(Progress::Ended(phase, began.elapsed()));
            Ok::<_, Failure>(())
        };
        let mut module = PathBuf::new();
        timed(Phase::Compile, &mut || {
            module = compiling::compile(self)?;
            Ok(())
        })?;
        timed(Phase::Bind, &mut || {
            binder.bind(&self.folder, &module, &staging, self.profile == Profile::Dev)
        })?;
        if let Some(wasm_opt) = &wasm_opt {
            timed(Phase::Optimize, &mut || optimize(wasm_opt, &staging))?;
        }
        timed(Phase::Bundle, &mut || {
            order(&staging.join("index_bg.wasm"), self.profile == Profile::Dev)?;
            self.bundle(&esbuild, &staging)
        })?;
        for name in MODULES {
            let path = self.out.join(name);
            fs::rename(staging.join(name), &path).map_err(|error| wrong(&path, &error))?;
        }
        fs::remove_dir_all(&staging).map_err(|error| wrong(&staging, &error))?;
        let [_, module] = MODULES.map(|name| self.out.join(name));
        fs::metadata(&module).map(|file| file.len()).map_err(|error| wrong(&module, &error))
    }

    /// Puts the bindings and the shim into one file.
    fn bundle(&self, esbuild: &Path, staging: &Path) -> Result {
        let wrong = |error: std::io::Error| Failure::local(format!("{}: {error}", staging.display()));
        let bound = staging.join("index.js");
        // Runtimes import a module of WebAssembly as it is; the keyword is of a standard that is not finished.
        let text = fs::read_to_string(&bound).map_err(wrong)?.replace("import source ", "import ");
        fs::write(&bound, &text).map_err(wrong)?;
        fs::write(staging.join("shim.js"), shim::around(&text, self.unwinds)).map_err(wrong)?;
        let mut command = Command::new(esbuild);
        command
            .args(["--bundle", "./shim.js", "--format=esm", "--outfile=index.js", "--allow-overwrite"])
            .args(["--external:./index_bg.wasm", "--external:cloudflare:*", "--log-level=warning"])
            // wasm-bindgen names a file of ours once for each function in it, each time as the same module.
            .arg("--log-override:duplicate-object-key=silent");
        if self.profile != Profile::Dev {
            command.arg("--minify");
        }
        tools::succeed(command.current_dir(staging).stdin(Stdio::null()), "esbuild")
    }
}

/// Makes what is sent of a module smaller, without a change of what it does.
fn order(module: &Path, keeps_all: bool) -> Result {
    let wrong = |error: &dyn std::fmt::Display| Failure::local(format!("{}: {error}", module.display()));
    let bound = fs::read(module).map_err(|error| wrong(&error))?;
    let ordered = functions::in_order(&bound, keeps_all).map_err(|error| wrong(&error))?;
    fs::write(module, ordered).map_err(|error| wrong(&error))
}

/// Makes a module smaller, but not what is sent of it: what LLVM has optimized for size compresses better. The names stay:
/// [`functions`] chooses among them.
fn optimize(wasm_opt: &Path, staging: &Path) -> Result {
    let mut command = Command::new(wasm_opt);
    command.args(["index_bg.wasm", "-o", "index_bg.wasm", "-O", "--debuginfo"]).args(WASM_FEATURES);
    tools::succeed(command.current_dir(staging).stdin(Stdio::null()), "wasm-opt")
}
