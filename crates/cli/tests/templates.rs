//! The files of a new project say the same as the repository that they come from.

use std::{fs, path::Path};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_new_project_has_the_objects_of_the_quickstart() {
    let table = |path: &str| toml::from_str::<toml::Table>(&read(path)).expect("it is TOML");
    let (ours, theirs) =
        (table("templates/wrangler.toml.in"), table("../../examples/quickstart/wrangler.toml"));
    for section in ["durable_objects", "migrations", "compatibility_date", "compatibility_flags", "triggers"]
    {
        assert_eq!(
            ours.get(section),
            theirs.get(section),
            "{section} of a new project and of the quickstart"
        );
    }
}

#[test]
fn a_new_project_has_the_tools_of_the_repository() {
    let packages =
        |path: &str| -> serde_json::Value { serde_json::from_str(&read(path)).expect("it is JSON") };
    let (ours, theirs) = (packages("templates/package.json.in"), packages("../../package.json"));
    for (tool, version) in ours["devDependencies"].as_object().expect("it has tools") {
        // What we publish has the version of the command line that makes the project.
        if tool != "stepwell" && !tool.starts_with("@stepwell/") {
            assert_eq!(Some(version), theirs["devDependencies"].get(tool), "{tool}");
        }
    }
}

#[test]
fn a_new_project_begins_with_the_wasm_bindgen_of_the_repository_and_may_take_a_later_one() {
    let packages = |path: &str| -> Vec<(String, String)> {
        let lock: toml::Table = toml::from_str(&read(path)).expect("it is TOML");
        let packages = lock["package"].as_array().expect("it has packages");
        let text = |package: &toml::Value, name: &str| package[name].as_str().expect("a text").to_owned();
        packages.iter().map(|package| (text(package, "name"), text(package, "version"))).collect()
    };
    let (ours, theirs) = (packages("templates/Cargo.lock.in"), packages("../../Cargo.lock"));
    assert!(ours.iter().any(|(name, _)| name == "wasm-bindgen"));
    for package in ours {
        assert!(theirs.contains(&package), "{package:?} is not what the repository builds with");
    }
    let workspace: toml::Table = toml::from_str(&read("../../Cargo.toml")).expect("it is TOML");
    let wanted = workspace["workspace"]["dependencies"]["wasm-bindgen"].as_str().expect("a version");
    assert!(!wanted.starts_with('='), "a project could not add wasm-bindgen by itself");
}
