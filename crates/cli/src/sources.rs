//! The files that a build depends on, and which of them have changed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::variables;

/// How many files are looked at.
const FILES_MAX: usize = 20_000;

/// Folders without source code. Hidden ones have none either.
const NOT_SOURCE: &[&str] = &["target", "build", "node_modules"];

/// Files, with the time of their last change and their size.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sources(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// The name of a file that has changed.
    pub file: String,
    /// Whether a build depends on it. Variables are given to the runtime.
    pub is_built: bool,
}

impl Sources {
    /// All files of a project that a build, or its runtime, could depend on.
    pub fn of(project: &Path, others: &[PathBuf]) -> Self {
        let mut sources = Self::default();
        sources.collect(project, false);
        for folder in others {
            sources.collect(folder, true);
        }
        sources
    }

    /// How these files differ from what they were. A change that takes a build is named first.
    pub fn since(&self, before: &Self) -> Option<Change> {
        let is_new = self.0.iter().filter(|(path, state)| before.0.get(*path) != Some(*state));
        let is_gone = before.0.keys().filter(|path| !self.0.contains_key(*path));
        let changes = is_new.map(|(path, _)| path).chain(is_gone).filter_map(|path| {
            let file = path.file_name()?.to_string_lossy().into_owned();
            Some(Change { is_built: file != variables::FILE, file })
        });
        changes.max_by_key(|change| change.is_built)
    }

    // Looking at times works on every file system, shared ones and those of containers too, and costs a few
    // milliseconds for a project. Outside of `src` only what a build is sure to read counts: a log that somebody keeps
    // in the project must not lead to a build that writes to it.
    fn collect(&mut self, folder: &Path, all: bool) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let is_hidden = name.to_string_lossy().starts_with('.') && name != variables::FILE;
            if is_hidden || NOT_SOURCE.iter().any(|not| name == *not) || self.0.len() >= FILES_MAX {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            let is_code = path.extension().is_some_and(|extension| extension == "rs" || extension == "toml");
            if metadata.is_dir() {
                self.collect(&path, all || name == "src");
            } else if metadata.is_file() && (all || is_code || name == variables::FILE) {
                self.0.insert(path, (metadata.modified().ok(), metadata.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_source_is_seen_and_one_of_a_build_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        let look = || Sources::of(folder.path(), &[]);
        let built = |file: &str| Some(Change { file: file.into(), is_built: true });
        write("src/lib.rs", "one");
        let first = look();
        write("target/debug/thing", "built");
        write("build/index.js", "built");
        write(".stepwell/v3/do/cell", "data");
        write("Cargo.lock", "locked");
        write("dev.log", "written by the build itself");
        assert_eq!(look().since(&first), None);
        write("src/lib.rs", "another");
        assert_eq!(look().since(&first), built("lib.rs"));
        let second = look();
        write("src/words.txt", "included");
        assert_eq!(look().since(&second), built("words.txt"));
        fs::remove_file(folder.path().join("src/words.txt")).expect("it is there");
        fs::remove_file(folder.path().join("src/lib.rs")).expect("it is there");
        assert_eq!(look().since(&second), built("lib.rs"));
    }

    #[test]
    fn variables_alone_take_no_build() {
        let folder = tempfile::tempdir().expect("a folder");
        let look = || Sources::of(folder.path(), &[]);
        fs::write(folder.path().join("wrangler.toml"), "").expect("written");
        let first = look();
        fs::write(folder.path().join(variables::FILE), "TOKEN=1").expect("written");
        assert_eq!(look().since(&first), Some(Change { file: variables::FILE.into(), is_built: false }));
        fs::write(folder.path().join("wrangler.toml"), "name = \"other\"").expect("written");
        assert_eq!(look().since(&first), Some(Change { file: "wrangler.toml".into(), is_built: true }));
    }
}
