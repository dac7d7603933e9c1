//! `stepwell build`: makes the Worker that wrangler deploys and `stepwell dev` serves.

use std::{env, path::PathBuf};

use anstyle::Style;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::{
    Global,
    building::{Build as Building, Phase, Profile, Progress},
    failure::{Failure, Result},
    words,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Build {
    /// Build quickly rather than small: the profile `dev`.
    #[arg(long, conflicts_with = "profile")]
    dev: bool,
    /// A profile of Cargo.toml.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Run wasm-opt too, which takes minutes: worthwhile for profiles that optimize for speed.
    #[arg(long)]
    wasm_opt: bool,
    /// Let a panic end only its own run. Needs a nightly Rust with `rust-src`.
    #[arg(long)]
    panic_unwind: bool,
    /// Where `index.js` and `index_bg.wasm` go.
    #[arg(long, value_name = "FOLDER", default_value = "build")]
    out: PathBuf,
    /// What else cargo shall be told.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

impl Build {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let folder =
            env::current_dir().map_err(|error| Failure::local(format!("no folder to work in: {error}")))?;
        let profile = match self.profile.as_str() {
            _ if self.dev => Profile::Dev,
            "dev" => Profile::Dev,
            "release" => Profile::Release,
            _ => Profile::Named(self.profile),
        };
        let building = Building {
            out: folder.join(self.out),
            folder,
            optimizes: self.wasm_opt,
            profile,
            unwinds: self.panic_unwind,
            arguments: self.arguments,
        };
        let mut took = Map::new();
        let bytes = building.run(&mut |progress| {
            if let Progress::Ended(phase, time) = progress {
                took.insert(
                    name(phase).to_owned(),
                    Value::from(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
                );
            }
            if !global.json {
                tell(progress);
            }
        })?;
        if global.json {
            anstream::println!("{}", json!({ "folder": building.out, "wasm_bytes": bytes, "took_ms": took }));
        } else {
            let dim = Style::new().dimmed();
            anstream::eprintln!("{dim}build:{dim:#} {} KiB of WebAssembly", bytes.div_ceil(1024));
        }
        Ok(())
    }
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Compile => "compile",
        Phase::Bind => "bind",
        Phase::Optimize => "optimize",
        Phase::Bundle => "bundle",
    }
}

fn tell(progress: Progress) {
    let dim = Style::new().dimmed();
    let line = match progress {
        Progress::Begins(Phase::Compile) => "compiling with cargo".to_owned(),
        Progress::Begins(Phase::Optimize) => "optimizing with wasm-opt".to_owned(),
        // It takes a second or two.
        Progress::Begins(Phase::Bind | Phase::Bundle) => return,
        Progress::Ended(phase, time) => {
            let what = match phase {
                Phase::Compile => "compiled",
                Phase::Bind => "bound to JavaScript",
                Phase::Optimize => "optimized",
                Phase::Bundle => "bundled",
            };
            format!("{what} in {}", words::length(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
        }
    };
    anstream::eprintln!("{dim}build:{dim:#} {line}");
}
