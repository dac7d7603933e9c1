//! What a release publishes is what people install: the workflow that makes it, the npm packages and the crates agree.

use std::{collections::BTreeSet, fs, path::Path};

use cargo_metadata::MetadataCommand;
use yaml_rust2::{Yaml, YamlLoader};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn workflow() -> Yaml {
    let mut documents =
        YamlLoader::load_from_str(&read(".github/workflows/release.yml")).expect("it is YAML");
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

/// What a job's steps run, one after the other.
fn runs(job: &Yaml) -> String {
    let steps = job["steps"].as_vec().expect("a job has steps");
    steps.iter().filter_map(|step| step["run"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The crates that may be published.
fn published() -> BTreeSet<String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo can read the workspace");
    let is_published =
        |package: &&cargo_metadata::Package| package.publish.as_ref().is_none_or(|to| !to.is_empty());
    metadata.packages.iter().filter(is_published).map(|package| package.name.to_string()).collect()
}

/// The names after each `-p`.
fn named(text: &str) -> BTreeSet<String> {
    let words: Vec<_> = text.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == "-p").map(|pair| pair[1].to_owned()).collect()
}

#[test]
fn a_release_is_built_for_every_platform_before_anything_is_published() {
    let workflow = workflow();
    assert_eq!(workflow["on"]["push"]["tags"][0].as_str(), Some("v*"));
    let jobs = &workflow["jobs"];
    let names: Vec<_> = jobs.as_hash().expect("it has jobs").keys().filter_map(Yaml::as_str).collect();
    assert_eq!(names, ["check", "cli", "engine", "dashboard", "publish"]);
    for job in ["cli", "engine", "dashboard"] {
        assert_eq!(jobs[job]["needs"].as_str(), Some("check"));
        let uploads = jobs[job]["steps"].as_vec().expect("it has steps").iter();
        let uploads =
            uploads.filter(|step| step["uses"].as_str().is_some_and(|uses| uses.contains("upload")));
        assert_eq!(uploads.count(), 1, "{job}");
    }
    let needs: Vec<_> =
        jobs["publish"]["needs"].as_vec().expect("several").iter().filter_map(Yaml::as_str).collect();
    assert_eq!(needs, ["cli", "engine", "dashboard"]);

    let platforms = jobs["cli"]["strategy"]["matrix"]["include"].as_vec().expect("a matrix");
    let platforms: BTreeSet<_> = platforms.iter().filter_map(|of| of["platform"].as_str()).collect();
    let package: serde_json::Value =
        serde_json::from_str(&read("npm/stepwell/package.json")).expect("it is JSON");
    let wanted = package["optionalDependencies"].as_object().expect("it has them");
    let wanted: BTreeSet<_> = wanted.keys().filter_map(|name| name.strip_prefix("@stepwell/cli-")).collect();
    assert_eq!(platforms, wanted, "built, and wanted by the launcher");
    let packed = runs(&jobs["publish"]);
    for platform in platforms {
        assert!(
            packed.contains(&format!("{platform}=built/{platform}/stepwell")),
            "{platform} is not packed"
        );
    }
}

#[test]
fn a_release_publishes_every_crate_that_may_be_published() {
    let crates = published();
    assert!(crates.contains("stepwell") && crates.contains("stepwell-cli"), "{crates:?}");
    assert_eq!(named(&runs(&workflow()["jobs"]["publish"])), crates, "in the workflow, and in the workspace");
    let script = read("scripts/crate-pack");
    let packed = script.lines().find_map(|line| line.strip_prefix("crates=(")).expect("it names them");
    let packed: BTreeSet<_> = packed.trim_end_matches(')').split_whitespace().map(str::to_owned).collect();
    assert_eq!(packed, crates, "in scripts/crate-pack, and in the workspace");
}

#[test]
fn crates_have_what_people_look_for_and_no_file_from_outside() {
    let metadata =
        MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().expect("read");
    let crates = published();
    for package in metadata.packages.iter().filter(|package| crates.contains(package.name.as_str())) {
        let name = &package.name;
        assert!(package.description.is_some() && package.repository.is_some(), "{name}");
        assert!(
            package.license.is_some() && package.readme.is_some() && !package.keywords.is_empty(),
            "{name}"
        );
        let folder = package.manifest_path.parent().expect("it has a folder");
        for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(folder.join(file).as_std_path().is_file(), "{name} has no {file}");
        }
        // crates.io refuses a dependency without a version.
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            let is_dev = dependency.kind == cargo_metadata::DependencyKind::Development;
            assert!(
                is_dev || dependency.req.to_string() != "*",
                "{name} needs no version of {}",
                dependency.name
            );
        }
    }
}
