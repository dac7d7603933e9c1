//! The corpora, replayed; and that every target has one.

use std::{
    collections::BTreeSet,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use stepwell_fuzz::TARGETS;

/// The most files of a corpus, and the most bytes of each.
const FILES_MAX: usize = 60;
const BYTES_MAX: usize = 4_096;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// What is in a folder, by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    paths
}

fn stems(folder: &Path) -> BTreeSet<String> {
    let stem = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
    entries(folder).iter().map(stem).collect()
}

#[test]
fn what_holds_holds_for_every_file_of_the_corpora() {
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        for path in entries(&fuzz().join("corpus").join(name)) {
            let data = fs::read(&path).expect("it can be read");
            if catch_unwind(|| target(&data)).is_err() {
                broken.push(path);
            }
        }
    }
    assert!(broken.is_empty(), "something does not hold for {broken:#?}");
}

#[test]
fn every_target_has_a_corpus_and_a_program_and_there_are_no_others() {
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names.len(), TARGETS.len(), "a target is there twice");
    assert_eq!(stems(&fuzz().join("corpus")), names);
    assert_eq!(stems(&fuzz().join("fuzz_targets")), names);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("the programs are a crate");
    for name in names {
        let program = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).expect("a program");
        assert!(program.contains(&format!("stepwell_fuzz::{name}(data)")), "{name} tries something else");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not built");
    }
}

#[test]
fn corpora_are_small_and_have_telling_names() {
    for (name, _) in TARGETS {
        let files = entries(&fuzz().join("corpus").join(name));
        assert!((2..=FILES_MAX).contains(&files.len()), "{name} has {} files", files.len());
        for path in files {
            let bytes = fs::metadata(&path).expect("it is there").len();
            assert!(bytes <= BYTES_MAX as u64, "{} has {bytes} bytes", path.display());
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            let is_hash = stem.len() == 40 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(!is_hash, "{} has the name that libFuzzer gave it", path.display());
        }
    }
}
