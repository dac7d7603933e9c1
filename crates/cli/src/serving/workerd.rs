//! Plain workerd: its configuration.

use std::{ffi::OsString, fmt::Write as _, path::Path, process::Command};

use super::{Kill, Serving, guarded};
use crate::{
    failure::Result,
    local::KEY_VARIABLE,
    project::{ASSETS, Worker},
};

impl Serving {
    /// The command that serves the project with workerd.
    pub(super) fn workerd(&self, workerd: &Path) -> Result<Command> {
        let config = self.write("config.capnp", &self.render())?;
        let mut disk = OsString::from("--directory-path=disk=");
        disk.push(self.objects());
        let mut command = guarded(workerd, Kill::AtOnce)?;
        command.args(["serve", "--control-fd=1"]).arg(config).arg(disk);
        Ok(command)
    }

    /// The configuration, in the language of workerd.
    fn render(&self) -> String {
        let mut text = String::from("using Workerd = import \"/workerd/workerd.capnp\";\n\n");
        text.push_str("const config :Workerd.Config = (\n  services = [\n");
        for (name, _) in self.project.named() {
            let _ = writeln!(text, "    (name = \"{name}\", worker = .{name}),");
        }
        text.push_str("    (name = \"disk\", disk = (path = \"disk\", writable = true)),\n");
        if let Some(dashboard) = self.dashboard_files() {
            let _ = writeln!(text, "    (name = \"dashboard\", disk = (path = {})),", quote(&dashboard));
        }
        // People's own servers are on this machine and beside it.
        text.push_str("    (name = \"internet\", network = (allow = [\"public\", \"private\"],");
        text.push_str(" tlsOptions = (trustBrowserCas = true))),\n  ],\n");
        let address = quote(&format!("127.0.0.1:{}", self.port));
        let _ = writeln!(
            text,
            "  sockets = [(name = \"http\", address = {address}, http = (), service = \"main\")],\n);\n"
        );
        for (name, worker) in self.project.named() {
            self.render_worker(name, worker, &mut text);
        }
        text
    }

    fn render_worker(&self, name: &str, worker: &Worker, text: &mut String) {
        let wrangler = &worker.wrangler;
        let _ = writeln!(text, "const {name} :Workerd.Worker = (\n  modules = [");
        let _ = writeln!(text, "    (name = \"index.js\", esModule = embed \"{name}/index.js\"),");
        let _ =
            writeln!(text, "    (name = \"./index_bg.wasm\", wasm = embed \"{name}/index_bg.wasm\"),\n  ],");
        let _ = writeln!(text, "  compatibilityDate = {},", quote(&wrangler.compatibility_date));
        let flags: Vec<_> = wrangler.compatibility_flags.iter().map(|flag| quote(flag)).collect();
        let _ = writeln!(text, "  compatibilityFlags = [{}],", flags.join(", "));
        text.push_str("  durableObjectStorage = (localDisk = \"disk\"),\n  durableObjectNamespaces = [\n");
        for binding in &wrangler.durable_objects.bindings {
            let class = quote(&binding.class_name);
            let key = quote(&format!("{}-{}", wrangler.name, binding.class_name));
            let _ = writeln!(text, "    (className = {class}, uniqueKey = {key}, enableSql = true),");
        }
        text.push_str("  ],\n  bindings = [\n");
        for binding in &wrangler.durable_objects.bindings {
            let (name, class) = (quote(&binding.name), quote(&binding.class_name));
            let _ = writeln!(text, "    (name = {name}, durableObjectNamespace = {class}),");
        }
        for (binding, _) in self.services(worker) {
            let _ = writeln!(text, "    (name = {}, service = \"app\"),", quote(binding));
        }
        for (name, value) in self.texts(worker) {
            let _ = writeln!(text, "    (name = {}, text = {}),", quote(&name), quote(&value));
        }
        if name == "main" {
            if self.dashboard_files().is_some() {
                let _ = writeln!(text, "    (name = {}, service = \"dashboard\"),", quote(ASSETS));
            }
            let key = quote(KEY_VARIABLE);
            let _ = writeln!(text, "    (name = {key}, fromEnvironment = {key}),");
        }
        text.push_str("  ],\n);\n");
    }
}

/// A text literal of Cap'n Proto; its escapes are those of C.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
