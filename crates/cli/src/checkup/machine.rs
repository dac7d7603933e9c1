//! The tools of this machine.

use std::{env, ffi::OsString, path::PathBuf};

use super::{Check, State};
use crate::{
    failure::{Failure, Result},
    project::Project,
    tools,
};

/// All tools that a project is built, served and deployed with.
pub fn checks(project: Option<&Project>) -> Vec<Check> {
    // Who only looks after runs needs none of the tools.
    let missing = if project.is_some() { State::Bad } else { State::Note };
    let here = env::current_dir().unwrap_or_default();
    let root = project.map_or(here.as_path(), |project| project.root.as_path());
    vec![
        tool("cargo", missing, tools::cargo().map(|cargo| (cargo, Vec::new()))),
        wasm(missing),
        tool("node", missing, tools::node(root).map(|node| (node, Vec::new()))),
        workerd(missing, project, tools::workerd(root)),
        tool("wrangler", missing, tools::wrangler(root)),
    ]
}

fn tool(name: &'static str, missing: State, found: Result<(PathBuf, Vec<OsString>)>) -> Check {
    match found {
        Ok((program, arguments)) => {
            let Some(version) = tools::version(&program, &arguments) else {
                let what =
                    format!("{} does not say its version, so it may not run at all", program.display());
                return Check::of(name, missing, Failure::local(what).next(tools::GET_NPM));
            };
            Check::good(name, version)
        }
        Err(failure) => Check::of(name, missing, failure),
    }
}

fn wasm(missing: State) -> Check {
    let remedy = || Failure::local("the compiler has none").next(tools::GET_WASM);
    match tools::has_wasm_target() {
        Some(true) => Check::good("wasm target", tools::WASM),
        Some(false) | None => Check::of("wasm target", missing, remedy()),
    }
}

/// A runtime knows compatibility dates up to the day that it was made.
fn workerd(missing: State, project: Option<&Project>, found: Result<PathBuf>) -> Check {
    let check = tool("workerd", missing, found.map(|workerd| (workerd, Vec::new())));
    let wanted =
        project.into_iter().flat_map(Project::workers).map(|worker| &worker.wrangler.compatibility_date);
    let Some(wanted) = wanted.max() else { return check };
    match date(&check.found) {
        Some(made) if check.state == State::Good && made < wanted.as_str() => {
            let found = format!("{}, but the project has compatibility_date {wanted}", check.found);
            Check::bad("workerd", found, "npm install --save-dev workerd@latest wrangler@latest")
        }
        Some(_) | None => check,
    }
}

/// The day in a version such as `workerd 2026-11-04`.
fn date(version: &str) -> Option<&str> {
    version.split_whitespace().find(|word| word.len() == 10 && word.matches('-').count() == 2)
}
