//! Whether the Worker that answers requests has the engine in it.
//!
//! One without it would listen and answer nobody. esbuild, which comes with wrangler, says what the bundle exports. If
//! it cannot be asked, nothing is said: the runtime has the last word.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::Serving;
use crate::{
    failure::{Failure, Result},
    tools,
};

/// The program that asks esbuild.
const SCRIPT: &str = include_str!("exports.mjs");

/// The classes of the engine.
const CLASSES: [&str; 2] = ["Cell", "Station"];

impl Serving {
    /// Refuses a bundle that lacks the engine's classes, whoever wrote it.
    pub(super) fn check_engine(&self, module: &Path) -> Result {
        let Some(exports) = self.exports(module) else { return Ok(()) };
        let missing: Vec<_> =
            CLASSES.into_iter().filter(|class| !exports.iter().any(|name| name == class)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let what = format!(
            "the Worker {} has no engine: it does not export {}",
            self.project.front.wrangler.name,
            missing.join(" and ")
        );
        Err(Failure::local(what).next(format!(
            "Add `use stepwell_engine as _;` to {}, and stepwell-engine to its dependencies.",
            self.project.front.folder.join("src/lib.rs").display()
        )))
    }

    /// What a module exports, if anybody can tell.
    fn exports(&self, module: &Path) -> Option<Vec<String>> {
        let root = &self.project.root;
        let (node, wrangler) = (tools::node(root).ok()?, tools::wrangler_folder(root)?);
        let script = self.write("exports.mjs", SCRIPT).ok()?;
        let told = Command::new(node)
            .arg(script)
            .arg(wrangler.join("package.json"))
            .arg(module)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        serde_json::from_slice(&told.stdout).ok()
    }
}
