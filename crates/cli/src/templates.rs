//! What new projects are made of: the files of each template, and what is filled in.
//!
//! The workflows of `orders` and `agent` are those of `examples`, which the repository compiles and tests.

use std::collections::BTreeMap;

use clap::ValueEnum;

/// What a project begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Template {
    /// Two small workflows: one that sleeps, one that waits for a person.
    #[default]
    Hello,
    /// A shop: HTTP calls with a secret, D1, KV, an approval, parallel steps.
    Orders,
    /// An agent: a model, tools, an approval, tokens that stream.
    Agent,
}

/// How engine and app are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One Worker.
    AllInOne,
    /// Two, so that a deploy of the app leaves the engine alone.
    TwoWorkers,
}

/// What is filled in.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// The project's name.
    pub name: &'a str,
    /// Where the SDK comes from, as a dependency is written.
    pub sdk: &'a str,
    /// Where the engine comes from.
    pub engine: &'a str,
    /// The version of the command line that the project brings along; nothing for a checkout.
    pub version: Option<&'a str>,
}

/// Files, by where they go.
type Files = &'static [(&'static str, &'static str)];

const EVERY: Files = &[
    ("Cargo.toml", include_str!("../templates/Cargo.toml.in")),
    ("Cargo.lock", include_str!("../templates/Cargo.lock.in")),
    ("wrangler.toml", include_str!("../templates/wrangler.toml.in")),
    ("package.json", include_str!("../templates/package.json.in")),
    (".gitignore", include_str!("../templates/gitignore.in")),
];

/// The files that two Workers have besides, or instead.
const OF_TWO: Files = &[
    ("wrangler.toml", include_str!("../templates/app.wrangler.toml.in")),
    ("engine/wrangler.toml", include_str!("../templates/wrangler.toml.in")),
];

/// The engine as a crate, for those who build it from a checkout; others take it from npm, as it was released.
const ENGINE_CRATE: Files = &[
    ("engine/Cargo.toml", include_str!("../templates/engine.Cargo.toml.in")),
    ("engine/src/lib.rs", include_str!("../templates/engine.lib.rs.in")),
];

/// The module of the released engine, from the folder `engine`.
const ENGINE_PACKAGE: &str = "main = \"../node_modules/@stepwell/engine/index.js\"\n";

/// The files that the engine's Worker serves, from the project's folder.
const DASHBOARD: &str = "node_modules/@stepwell/dashboard/dist";

const HELLO: Files = &[
    ("src/lib.rs", include_str!("../templates/hello/lib.rs.in")),
    ("tests/workflows.rs", include_str!("../templates/hello/workflows.rs.in")),
    ("README.md", include_str!("../templates/hello/README.md.in")),
];

const ORDERS: Files = &[
    ("src/lib.rs", include_str!("../templates/orders/src/lib.rs")),
    ("src/books.rs", include_str!("../templates/orders/src/books.rs")),
    ("src/outside.rs", include_str!("../templates/orders/src/outside.rs")),
    ("tests/workflows.rs", include_str!("../templates/orders/tests/workflows.rs")),
    ("stand-in/bank.mjs", include_str!("../templates/orders/stand-in/bank.mjs")),
    ("schema.sql", include_str!("../templates/orders/schema.sql")),
    (".dev.vars.example", include_str!("../templates/orders/dev.vars.example")),
    ("README.md", include_str!("../templates/orders/README.md.in")),
];

const AGENT: Files = &[
    ("src/lib.rs", include_str!("../templates/agent/src/lib.rs")),
    ("src/model.rs", include_str!("../templates/agent/src/model.rs")),
    ("src/tools.rs", include_str!("../templates/agent/src/tools.rs")),
    ("tests/workflows.rs", include_str!("../templates/agent/tests/workflows.rs")),
    ("stand-in/model.mjs", include_str!("../templates/agent/stand-in/model.mjs")),
    (".dev.vars.example", include_str!("../templates/agent/dev.vars.example")),
    ("README.md", include_str!("../templates/agent/README.md.in")),
];

/// What a Worker is bound to besides its objects: at the top of a configuration, and in each environment.
struct Bindings {
    top: &'static str,
    environment: &'static str,
}

impl Template {
    fn files(self) -> Files {
        match self {
            Self::Hello => HELLO,
            Self::Orders => ORDERS,
            Self::Agent => AGENT,
        }
    }

    /// The name of the crate that its files come from.
    fn example(self) -> Option<&'static str> {
        match self {
            Self::Hello => None,
            Self::Orders => Some("orders"),
            Self::Agent => Some("agent"),
        }
    }

    /// What its crate depends on besides.
    fn dependencies(self) -> &'static str {
        match self {
            Self::Hello | Self::Orders => "",
            Self::Agent => "serde_json = \"1\"\n",
        }
    }

    fn bindings(self) -> Bindings {
        match self {
            Self::Hello => Bindings { top: "", environment: "" },
            Self::Orders => Bindings {
                top: "[vars]\nBANK_URL = \"http://127.0.0.1:8799\"\nAPPROVAL_CENTS = \"10000\"\n\n\
                      # `npx wrangler kv namespace create RECEIPTS` prints its id.\n[[kv_namespaces]]\n\
                      binding = \"RECEIPTS\"\nid = \"00000000000000000000000000000000\"\n\n\
                      # `npx wrangler d1 create {{name}}` prints its id.\n[[d1_databases]]\nbinding = \"ORDERS\"\n\
                      database_name = \"{{name}}\"\ndatabase_id = \"00000000-0000-0000-0000-000000000000\"\n\n",
                environment: "vars = { BANK_URL = \"https://bank.example\", APPROVAL_CENTS = \"10000\" }\n\
                      kv_namespaces = [{ binding = \"RECEIPTS\", id = \"00000000000000000000000000000000\" }]\n\
                      d1_databases = [{ binding = \"ORDERS\", database_name = \"{{name}}\", \
                      database_id = \"00000000-0000-0000-0000-000000000000\" }]\n",
            },
            Self::Agent => Bindings {
                top: "[vars]\n# Anything with the chat interface that most models share.\n\
                      MODEL_URL = \"http://127.0.0.1:8798\"\nMODEL = \"small\"\n\
                      TOOLS_URL = \"http://127.0.0.1:8798\"\n\n",
                environment: "vars = { MODEL_URL = \"https://model.example\", MODEL = \"small\", \
                      TOOLS_URL = \"https://tools.example\" }\n",
            },
        }
    }

    /// The files of a project, by where they go.
    pub fn project(self, form: Form, filling: &Filling<'_>) -> BTreeMap<&'static str, String> {
        let (more, engine): (Files, Files) = match (form, filling.version) {
            (Form::AllInOne, _) => (&[], &[]),
            (Form::TwoWorkers, Some(_)) => (OF_TWO, &[]),
            (Form::TwoWorkers, None) => (OF_TWO, ENGINE_CRATE),
        };
        let all = EVERY.iter().chain(more).chain(engine).chain(self.files());
        let files: BTreeMap<_, _> = all.copied().collect();
        files.into_iter().map(|(path, text)| (path, self.filled(path, text, form, filling))).collect()
    }

    fn filled(self, path: &str, text: &str, form: Form, filling: &Filling<'_>) -> String {
        let Filling { name, sdk, engine, version } = *filling;
        let own_crate = name.replace('-', "_");
        let mut text = text.to_owned();
        let mut fill = |what: &str, with: &str| text = text.replace(what, with);
        if let Some(example) = self.example() {
            fill(&format!("use example_{example}::"), &format!("use {own_crate}::"));
        }
        let (workspace, dependency, app) = match form {
            Form::AllInOne => (
                String::new(),
                format!("# Engine and workflows are one Worker.\nstepwell-engine = {{ {engine} }}\n"),
                String::new(),
            ),
            Form::TwoWorkers => (
                match version {
                    Some(_) => String::new(),
                    None => "# The engine is a Worker of its own.\n[workspace]\nmembers = [\"engine\"]\n\n"
                        .to_owned(),
                },
                String::new(),
                format!(
                    "# The app has to be deployed first.\n[[services]]\nbinding = \"APP\"\nservice = \"{name}-app\"\n\n"
                ),
            ),
        };
        match form {
            Form::AllInOne => fill("#[cfg(feature = \"engine\")]\n", ""),
            // The app does not know the engine.
            Form::TwoWorkers if path == "src/lib.rs" => {
                fill("#[cfg(feature = \"engine\")]\n", "");
                fill("use stepwell_engine as _;\n", "");
            }
            Form::TwoWorkers => {}
        }
        // What the workflows are bound to is the app's.
        let bindings = if path == "engine/wrangler.toml" { Self::Hello.bindings() } else { self.bindings() };
        if path == "engine/wrangler.toml" && version.is_some() {
            fill("main = \"build/index.js\"\n", ENGINE_PACKAGE);
            fill("[build]\ncommand = \"stepwell build\"\n\n", "");
        }
        // A checkout builds the dashboard itself.
        let up = if path == "engine/wrangler.toml" { "../" } else { "" };
        let assets = match version {
            Some(_) => format!(
                "# The dashboard, under /dash/.\n[assets]\ndirectory = \"{up}{DASHBOARD}\"\nbinding = \"ASSETS\"\n\n"
            ),
            None => String::new(),
        };
        fill("#{{assets}}\n", &assets);
        fill("#{{bindings}}\n", bindings.top);
        fill("#{{bindings_of_environment}}\n", bindings.environment);
        fill("#{{workspace}}\n", &workspace);
        fill("#{{engine}}\n", &dependency);
        fill("#{{dependencies}}\n", self.dependencies());
        fill("#{{app}}\n", &app);
        fill("#{{app_staging}}\n", &service(form, name, "-staging"));
        fill("#{{app_production}}\n", &service(form, name, "-production"));
        fill("{{sdk}}", sdk);
        fill("{{engine_source}}", engine);
        match version {
            Some(version) => {
                let engine = match form {
                    Form::AllInOne => String::new(),
                    Form::TwoWorkers => format!("    \"@stepwell/engine\": \"{version}\",\n"),
                };
                fill("    \"stepwell\"", &format!("{engine}    \"stepwell\""));
                fill("{{version}}", version);
            }
            None => {
                fill("    \"@stepwell/dashboard\": \"{{version}}\",\n", "");
                fill("    \"stepwell\": \"{{version}}\",\n", "");
            }
        }
        fill("{{name}}", name);
        fill("{{crate}}", &own_crate);
        fill("{{repository}}", env!("CARGO_PKG_REPOSITORY"));
        text
    }
}

/// What the engine's configuration says about the app of an environment.
fn service(form: Form, name: &str, environment: &str) -> String {
    match form {
        Form::AllInOne => String::new(),
        Form::TwoWorkers => {
            format!("services = [{{ binding = \"APP\", service = \"{name}-app{environment}\" }}]\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILLING: Filling<'_> = Filling {
        name: "my-shop",
        sdk: "version = \"0.1\"",
        engine: "version = \"0.1\"",
        version: Some("0.1.0"),
    };

    fn all() -> impl Iterator<Item = (Template, Form)> {
        let forms = [Form::AllInOne, Form::TwoWorkers];
        Template::value_variants().iter().flat_map(move |template| forms.map(|form| (*template, form)))
    }

    #[test]
    fn no_placeholder_is_left_and_the_files_can_be_read() {
        for (template, form) in all() {
            for (path, text) in template.project(form, &FILLING) {
                let what = format!("{template:?} {form:?} {path}: {text}");
                assert!(!text.contains("{{"), "{what}");
                assert!(!text.contains("feature = \"engine\""), "{what}");
                if Path::new(path).extension().is_some_and(|extension| extension == "toml") {
                    toml::from_str::<toml::Table>(&text).expect(&what);
                }
                if Path::new(path).extension().is_some_and(|extension| extension == "json") {
                    serde_json::from_str::<serde_json::Value>(&text).expect(&what);
                }
            }
        }
    }

    #[test]
    fn a_project_depends_on_releases_and_brings_its_command_line_along() {
        for (template, form) in all() {
            let files = template.project(form, &FILLING);
            let manifest: toml::Table = toml::from_str(&files["Cargo.toml"]).expect("it is TOML");
            let dependency = |name: &str| manifest["dependencies"].get(name)?.get("version")?.as_str();
            assert_eq!(dependency("stepwell"), Some("0.1"));
            assert_eq!(dependency("stepwell-engine"), (form == Form::AllInOne).then_some("0.1"));
            assert!(files["package.json"].contains("\"stepwell\": \"0.1.0\""));
            assert!(files["package.json"].contains("\"@stepwell/dashboard\": \"0.1.0\""));
            let (of_engine, served) = match form {
                Form::AllInOne => ("wrangler.toml", "node_modules/@stepwell/dashboard/dist"),
                Form::TwoWorkers => ("engine/wrangler.toml", "../node_modules/@stepwell/dashboard/dist"),
            };
            let engine: toml::Table = toml::from_str(&files[of_engine]).expect("it is TOML");
            assert_eq!(engine["assets"]["directory"].as_str(), Some(served), "{template:?} {form:?}");
            assert_eq!(engine["assets"]["binding"].as_str(), Some("ASSETS"));
            assert!(files["tests/workflows.rs"].contains("use my_shop::"), "{template:?}");
            let lib = &files["src/lib.rs"];
            assert_eq!(lib.contains("use stepwell_engine as _;"), form == Form::AllInOne, "{lib}");
        }
        let of_checkout = Template::Hello.project(Form::AllInOne, &Filling { version: None, ..FILLING });
        assert!(!of_checkout["package.json"].contains("stepwell"), "{}", of_checkout["package.json"]);
        assert!(!of_checkout["wrangler.toml"].contains("[assets]"), "{}", of_checkout["wrangler.toml"]);
    }

    #[test]
    fn bindings_belong_to_the_app_in_each_environment() {
        for (form, of_app) in [(Form::AllInOne, "wrangler.toml"), (Form::TwoWorkers, "wrangler.toml")] {
            let files = Template::Orders.project(form, &FILLING);
            let app: toml::Table = toml::from_str(&files[of_app]).expect("it is TOML");
            for table in [&app["env"]["staging"], &app["env"]["production"]] {
                for name in ["vars", "kv_namespaces", "d1_databases"] {
                    assert!(app.contains_key(name) && table.get(name).is_some(), "{form:?} has no {name}");
                }
            }
            if let Some(engine) = files.get("engine/wrangler.toml") {
                assert!(
                    engine.contains("@stepwell/engine/index.js") && !engine.contains("[build]"),
                    "{engine}"
                );
                assert!(files["package.json"].contains("\"@stepwell/engine\": \"0.1.0\""));
                assert!(!engine.contains("RECEIPTS") && engine.contains("my-shop-app"), "{engine}");
            }
        }
    }
}
