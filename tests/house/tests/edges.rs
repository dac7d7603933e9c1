//! Dependencies point one way.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// Who may depend on whom, among our own crates. A crate that is not here fails the test.
const ALLOWED: &[(&str, &[&str])] = &[
    ("stepwell-protocol", &[]),
    ("stepwell-core", &["stepwell-protocol"]),
    ("stepwell-macros", &[]),
    ("stepwell-promises", &[]),
    // The machines only for the feature `testing`: an app that is deployed does not carry them.
    ("stepwell", &["stepwell-core", "stepwell-macros", "stepwell-promises", "stepwell-protocol"]),
    ("stepwell-engine", &["stepwell-core", "stepwell-promises", "stepwell-protocol"]),
    ("stepwell-engine-worker", &["stepwell-engine"]),
    // Made natively, and served as a text: its generator is in no Worker.
    ("stepwell-openapi", &["stepwell-protocol"]),
    ("stepwell-cli", &["stepwell-protocol"]),
    // It runs in a browser, and sees a deployment as any client does.
    ("stepwell-dashboard-model", &["stepwell-protocol"]),
    ("stepwell-sim", &["stepwell", "stepwell-core", "stepwell-protocol"]),
    ("example-quickstart", &["stepwell", "stepwell-engine"]),
    ("example-orders", &["stepwell", "stepwell-engine"]),
    ("example-agent", &["stepwell", "stepwell-engine"]),
    ("test-app", &["stepwell", "stepwell-engine"]),
    ("platform-probe", &[]),
    ("stepwell-workerd-tests", &["stepwell-protocol"]),
    ("stepwell-house", &[]),
    ("stepwell-fuzz", &["stepwell", "stepwell-cli", "stepwell-core", "stepwell-engine", "stepwell-protocol"]),
    ("bench-app", &["stepwell", "stepwell-engine"]),
    ("stepwell-bench", &["stepwell-workerd-tests"]),
];

/// What only the engine and the SDK's Workers transport may name.
const RUNTIME: &[&str] = &["worker", "wasm-bindgen", "wasm-bindgen-futures", "js-sys", "web-sys"];

/// What a pure crate must not have: clocks, chance, I/O.
const IMPURE: &[&str] = &["getrandom", "rand", "tokio", "reqwest", "chrono", "jiff", "uuid"];

fn packages() -> Vec<Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo can read the workspace");
    metadata.packages
}

/// A package's ordinary dependencies: those that end up in what is shipped.
fn shipped(package: &Package) -> impl Iterator<Item = &cargo_metadata::Dependency> {
    package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal)
}

#[test]
fn our_crates_depend_on_each_other_only_where_the_house_allows() {
    let allowed: BTreeMap<_, BTreeSet<_>> =
        ALLOWED.iter().map(|(name, on)| (*name, on.iter().copied().collect())).collect();
    let packages = packages();
    let ours: BTreeSet<_> = packages.iter().map(|package| package.name.to_string()).collect();
    for package in &packages {
        let allowed = allowed
            .get(package.name.as_str())
            .unwrap_or_else(|| panic!("{} is new: say in ALLOWED what it may depend on", package.name));
        for dependency in shipped(package).filter(|dependency| ours.contains(&dependency.name)) {
            assert!(
                allowed.contains(dependency.name.as_str()),
                "{} must not depend on {}",
                package.name,
                dependency.name
            );
        }
    }
    assert_eq!(ours.len(), allowed.len(), "ALLOWED names a crate that is gone");
}

#[test]
fn a_deployed_app_does_not_carry_the_machines() {
    let packages = packages();
    let sdk = packages.iter().find(|package| package.name.as_str() == "stepwell").expect("the SDK is there");
    let core = shipped(sdk).find(|dependency| dependency.name == "stepwell-core");
    assert!(core.is_none_or(|dependency| dependency.optional), "the SDK always brings the machines along");
}

#[test]
fn only_the_engine_and_the_workers_transport_know_the_runtime() {
    for package in packages() {
        let runtime: Vec<_> =
            shipped(&package).filter(|dependency| RUNTIME.contains(&dependency.name.as_str())).collect();
        match package.name.as_str() {
            "stepwell-engine" | "stepwell-promises" | "platform-probe" | "test-app" => {}
            // Its transport, and only where there is a runtime; and everywhere the types of bindings, so that a
            // workflow that uses them compiles for `cargo test`.
            "stepwell" => {
                for dependency in runtime.into_iter().filter(|dependency| dependency.name != "worker") {
                    let target = dependency.target.as_ref().map(ToString::to_string).unwrap_or_default();
                    assert!(target.contains("wasm32"), "stepwell needs {} on every target", dependency.name);
                }
            }
            other => assert!(runtime.is_empty(), "{other} depends on the runtime: {runtime:?}"),
        }
    }
}

#[test]
fn the_pure_crates_have_no_clock_no_chance_and_no_io() {
    for package in packages() {
        if !["stepwell-core", "stepwell-protocol"].contains(&package.name.as_str()) {
            continue;
        }
        for dependency in shipped(&package) {
            assert!(
                !IMPURE.contains(&dependency.name.as_str()),
                "{} must not depend on {}",
                package.name,
                dependency.name
            );
        }
    }
}
