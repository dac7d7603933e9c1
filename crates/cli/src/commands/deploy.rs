//! `stepwell deploy`: puts a project on Cloudflare, with Cloudflare's own tool.

use std::process::{Command, Stdio};

use anstyle::Style;
use clap::Args;
use serde_json::json;

use crate::{
    Global,
    failure::{Failure, Result},
    project::Project,
    tools,
};

/// What it takes.
#[derive(Debug, Args)]
pub struct Deploy {
    /// Build and check everything, and put nothing anywhere. Needs no account.
    #[arg(long)]
    dry_run: bool,
    /// An environment of wrangler.toml, such as staging or production: a Worker of its own.
    #[arg(long, value_name = "NAME")]
    env: Option<String>,
    /// What else wrangler shall be told.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

impl Deploy {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let project = Project::find()?;
        // wrangler would only say that a command was not found.
        tools::worker_build()?;
        let (program, first) = tools::wrangler(&project.root)?;
        let mut command = Command::new(&program);
        command.args(first).arg("deploy").args(&self.arguments).current_dir(&project.root);
        if !self.arguments.iter().any(|argument| argument == "-e" || argument.starts_with("--env")) {
            // An empty name means none: wrangler wants it said when there are environments.
            command.args(["--env", self.env.as_deref().unwrap_or_default()]);
        }
        if self.dry_run {
            command.args(["--dry-run", "--outdir", ".stepwell/deploy"]);
            // Nobody is asked anything, and nothing is sent.
            command.env("CI", "true").env("WRANGLER_SEND_METRICS", "false").stdin(Stdio::null());
        }
        if global.json {
            command.stdout(Stdio::null());
        }
        let status = command
            .status()
            .map_err(|error| Failure::local(format!("{} cannot be started: {error}", program.display())))?;
        if !status.success() {
            return Err(Failure::local(format!("wrangler has ended with {status}"))
                .next("See what it wrote above; `npx wrangler login` if it does not know who you are."));
        }
        if global.json {
            anstream::println!("{}", json!({ "name": project.wrangler.name, "dry_run": self.dry_run }));
        } else if self.dry_run {
            anstream::println!("{} can be deployed. Nothing was.", project.wrangler.name);
        } else {
            let bold = Style::new().bold();
            anstream::println!("{} is deployed.", project.wrangler.name);
            anstream::eprintln!(
                "{bold}next:{bold:#} the first time, `npx wrangler secret put STEPWELL_KEY`: without a key, every \
                 request is refused. Then `stepwell doctor --address https://…`."
            );
        }
        Ok(())
    }
}
