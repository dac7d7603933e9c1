//! The pages of the documentation as tests read them, and nothing but tests: see `tests/`.
//!
//! Owns: which files are pages, their headings, links, fenced blocks and sentences. Does not own: what is right.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().expect("the repository is there")
}

/// A page in Markdown.
#[derive(Clone, Debug)]
pub struct Page {
    /// Where it is, from the root on.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The word after the fence, such as `sh`.
    pub language: String,
    /// The line on which it begins, from 1.
    pub line: usize,
    /// What is between the fences.
    pub text: String,
}

/// Every page that people read: the README, `docs`, and the files beside it.
#[must_use]
pub fn pages() -> Vec<Page> {
    let root = root();
    let mut found = Vec::new();
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "tests/workerd/README.md",
        "examples/orders/README.md",
    ] {
        found.push(root.join(name));
    }
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("docs can be read") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(&root).expect("it is below the root").display().to_string();
        Page { path, text }
    };
    found.into_iter().map(read).collect()
}

impl Page {
    /// Its fenced blocks, in order.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    open = Some(Block { language, line: number + 1, text: String::new() });
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{} has a fence that is never closed", self.path);
        blocks
    }

    /// Its lines outside of fenced blocks and comments, with their numbers from 1.
    #[must_use]
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let mut is_code = false;
        let mut lines = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code && !line.starts_with("<!--") {
                lines.push((number + 1, line));
            }
        }
        lines
    }

    /// The anchors of its headings, as GitHub and mdBook make them.
    #[must_use]
    pub fn anchors(&self) -> Vec<String> {
        let headings = self.prose().into_iter().filter_map(|(_, line)| {
            let title = line.trim_start_matches('#');
            (title.len() < line.len() && title.starts_with(' ')).then(|| anchor(title.trim()))
        });
        headings.collect()
    }

    /// What its links and images point at, with the line of each.
    #[must_use]
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut links = Vec::new();
        for (number, line) in self.prose() {
            let line = without_code(line);
            for (at, _) in line.match_indices("](") {
                let rest = &line[at + 2..];
                let end =
                    rest.find(')').unwrap_or_else(|| panic!("{}:{number}: a link has no end", self.path));
                links.push((number, rest[..end].to_owned()));
            }
        }
        links
    }
}

/// The anchor of a heading.
#[must_use]
pub fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A line with the text between backticks taken out.
#[must_use]
pub fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}
