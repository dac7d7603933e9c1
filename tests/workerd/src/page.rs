//! A page of the documentation as a test reads it: the fenced blocks of one section, in order.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::paths::repository_root;

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The word after the fence, such as `sh`.
    pub language: String,
    /// What is between the fences.
    pub text: String,
}

/// The fenced blocks of a page's section with this title, its subsections included.
pub fn section(page: &str, title: &str) -> Result<Vec<Block>> {
    let path = repository_root().join(page);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let blocks = blocks(&text, title);
    ensure!(!blocks.is_empty(), "{page} has no section '{title}' with fenced blocks");
    Ok(blocks)
}

fn blocks(text: &str, title: &str) -> Vec<Block> {
    let heading = format!("## {title}");
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut inside = false;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|_| inside)),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                open = Some(Block { language: language.trim().to_owned(), text: String::new() });
            }
            (None, None) if line.starts_with("## ") => inside = line == heading,
            (None, None) => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_blocks_of_the_section_are_taken() {
        let text = "## A\n```sh\nno\n```\n## B\n```sh\n## no heading\n```\n### C\n```json\n1\n```\n## D\n```\nno\n```\n";
        let block = |language: &str, text: &str| Block { language: language.into(), text: text.into() };
        assert_eq!(blocks(text, "B"), [block("sh", "## no heading\n"), block("json", "1\n")]);
    }
}
