//! The JavaScript around a module: what the runtime sees of it.
//!
//! `shim.js` is the same for each Worker. What is added is a method of the entrypoint for each function that the module
//! exports, and an export for each of its classes.

use std::fmt::Write as _;

/// The part that is the same for all.
const SHIM: &str = include_str!("shim.js");

/// Functions that are for the shim alone.
const INTERNAL: [&str; 2] = ["__wbg_reset_state", "__worker_init_state"];

/// Events, whose functions are given the environment and the context besides.
const EVENTS: [&str; 5] = ["connect", "email", "fetch", "queue", "scheduled"];

/// The shim for a module with these bindings.
pub fn around(bindings: &str, unwinds: bool) -> String {
    let mut text = SHIM.replace("\"$UNWINDS\"", if unwinds { "true" } else { "false" });
    let Exports { functions, classes } = Exports::of(bindings);
    for name in functions.into_iter().filter(|name| !INTERNAL.contains(name)) {
        let _ = if EVENTS.contains(&name) {
            writeln!(
                text,
                "Entrypoint.prototype.{name} = function (event) {{ return exports.{name}.call(this, event, this.env, \
                 this.ctx); }};"
            )
        } else {
            writeln!(text, "Entrypoint.prototype.{name} = exports.{name};")
        };
    }
    for name in classes {
        let _ = writeln!(text, "export const {name} = reviving(exports.{name});");
    }
    text
}

/// What bindings export.
#[derive(Debug, Default, PartialEq, Eq)]
struct Exports<'a> {
    functions: Vec<&'a str>,
    classes: Vec<&'a str>,
}

impl<'a> Exports<'a> {
    /// Reads it from the text: wasm-bindgen begins each export on a line of its own.
    fn of(bindings: &'a str) -> Self {
        let mut exports = Self::default();
        let name = |rest: &'a str| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').unwrap_or(rest.len());
            rest.get(..end).filter(|name| !name.is_empty())
        };
        for line in bindings.lines().filter_map(|line| line.strip_prefix("export ")) {
            if let Some(rest) = line.strip_prefix("class ") {
                exports.classes.extend(name(rest));
            } else if let Some(rest) = line.strip_prefix("function ").or(line.strip_prefix("async function "))
            {
                exports.functions.extend(name(rest));
            } else if let Some(rest) = line.strip_prefix('{') {
                let names = rest.split('}').next().unwrap_or_default().split(',').map(str::trim);
                let names = names.map(|each| each.rsplit(" as ").next().unwrap_or(each).trim());
                exports.functions.extend(names.filter_map(name));
            }
        }
        exports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS: &str = "import source wasm from \"./index_bg.wasm\";\nexport class Cell {\n    alarm() {}\n}\n\
                            export function fetch(req, env, ctx) {\n}\nexport async function activate(a) {}\n\
                            function scheduled_(event) {}\nexport { scheduled_ as scheduled }\n\
                            export function __wbg_reset_state () {}\nfunction hidden() {}\n";

    #[test]
    fn what_the_bindings_export_is_found() {
        let exports = Exports::of(BINDINGS);
        assert_eq!(exports.classes, ["Cell"]);
        assert_eq!(exports.functions, ["fetch", "activate", "scheduled", "__wbg_reset_state"]);
    }

    #[test]
    fn events_are_given_the_environment_and_methods_are_as_they_are() {
        let text = around(BINDINGS, false);
        for line in [
            "Entrypoint.prototype.fetch = function (event)",
            "Entrypoint.prototype.scheduled = function (event)",
            "Entrypoint.prototype.activate = exports.activate;",
            "export const Cell = reviving(exports.Cell);",
            "const UNWINDS = false;",
        ] {
            assert!(text.contains(line), "{line} is missing in:\n{text}");
        }
        assert!(!text.contains("prototype.__wbg"), "{text}");
        assert!(around(BINDINGS, true).contains("const UNWINDS = true;"));
    }
}
