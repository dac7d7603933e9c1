//! Files stay small enough to be read.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// About as much as one can keep in mind.
const LINES_MAX: usize = 620;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["target", "node_modules", "build"].contains(&name) && !name.starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "ts") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")), &mut found);
    assert!(found.len() > 20, "the sources were not found");
    found
}

#[test]
fn no_source_file_is_too_long_to_read() {
    for path in all_sources() {
        let lines = fs::read_to_string(&path).expect("sources are text").lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines: split it", path.display());
    }
}

#[test]
fn the_dashboard_makes_no_markup_of_a_string() {
    let of_dashboard = |path: &&PathBuf| path.to_string_lossy().contains("crates/dashboard");
    let sources: Vec<_> = all_sources();
    let sources: Vec<_> = sources.iter().filter(of_dashboard).collect();
    assert!(sources.len() > 10, "the dashboard was not found");
    for path in sources {
        let text = fs::read_to_string(path).expect("sources are text").to_lowercase();
        for way in [
            "inner_html",
            "outer_html",
            "insert_adjacent",
            "document.write",
            "set_srcdoc",
            "js_sys::eval",
            "function::new",
        ] {
            assert!(!text.contains(way), "{} uses {way}: what others write could run", path.display());
        }
    }
}

#[test]
fn machines_have_no_catch_all_arms() {
    for path in all_sources().iter().filter(|path| path.to_string_lossy().contains("crates/core/src")) {
        let text = fs::read_to_string(path).expect("sources are text");
        assert!(!text.contains("_ => {}"), "{} ignores cases that it does not name", path.display());
    }
}

#[test]
fn every_problem_code_has_a_page() {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors"));
    let mut pages: Vec<_> = fs::read_dir(docs)
        .expect("docs/errors is there")
        .map(|entry| entry.expect("the entry can be read").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .collect();
    pages.sort();
    let mut codes: Vec<_> = stepwell_protocol::Code::ALL
        .iter()
        .map(|code| serde_json::to_value(code).expect("a code is a text"))
        .map(|code| format!("{}.md", code.as_str().expect("a code is a text")))
        .collect();
    codes.sort();
    assert_eq!(pages, codes);
}

#[test]
fn the_npm_packages_are_pinned_by_hash_and_name_no_registry() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../package-lock.json"));
    let text = fs::read_to_string(path).expect("package-lock.json is there");
    assert!(!text.contains("\"resolved\""), "package-lock.json names the registry that it was made with");
    let lock: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let packages = lock["packages"].as_object().expect("it has packages");
    assert!(packages.len() > 20, "package-lock.json has only {} packages", packages.len());
    for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
        // A registry may not offer what is for other systems.
        let is_elsewhere = package["optional"] == true && !package["os"].to_string().contains("linux");
        assert!(package["integrity"].is_string() || is_elsewhere, "{name} has no hash");
    }
}

#[test]
fn the_page_about_new_objects_shows_the_code_that_runs() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("it is there");
    let (page, test) = (read("docs/new-object.md"), read("crates/core/tests/counter.rs"));
    let counter = test.split("// [counter]\n").nth(1).and_then(|rest| rest.split("// [/counter]").next());
    let counter = counter.expect("the toy is marked").trim_end();
    assert!(page.contains(&format!("```rust\n{counter}\n```")), "docs/new-object.md differs from the test");
    assert!(counter.lines().count() < 150, "a new kind of object has become work");
}
