//! The documentation names commands that there are: every `stepwell …` in a page is read as the command line reads it.

use std::{fs, path::Path};

use clap::Parser as _;

use crate::CommandLine;

#[test]
fn every_command_of_the_documentation_can_be_read() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut files = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for folder in ["docs", "docs/errors"] {
        let entries = fs::read_dir(root.join(folder)).expect("the folder can be read");
        let entries = entries.map(|entry| entry.expect("the entry can be read").path());
        files.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    for path in files {
        let text = fs::read_to_string(&path).expect("a page is text");
        for command in commands(&text) {
            checked += 1;
            if let Err(reason) = read(&command) {
                wrong.push(format!("{}: {command}\n  {reason}", path.display()));
            }
        }
    }
    assert!(checked > 80, "only {checked} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_are_found_and_mistakes_noticed() {
    let text = "Use `stepwell list --status failed`.\n```text\n$ run=$(npx stepwell start greet --quiet) && \
                stepwell why \\\n  RUN | cat\n{}\n```\n";
    assert_eq!(commands(text), ["list --status failed", "start greet --quiet", "why    RUN"]);
    assert!(
        read("list --status failed").is_ok() && read("list --nonsense").is_err() && read("lsit").is_err()
    );
    assert_eq!(words("start greet '\"Ada B\"' \"x y\""), ["start", "greet", "\"Ada B\"", "x y"]);
}

/// What follows `stepwell` wherever a page runs or names it.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let text = text.replace("\\\n", " ");
    let mut language = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(name), None) => language = Some(name),
            (Some(_), Some(_)) => language = None,
            (None, Some("text" | "sh" | "bash")) => found.extend(in_shell(line)),
            (None, Some(_)) => {}
            (None, None) => found.extend(in_prose(line)),
        }
    }
    // An ellipsis or an alternative is no command line.
    found.retain(|command| !command.contains('…') && !command.contains('|') && !command.is_empty());
    found
}

/// The commands that a line of prose names.
fn in_prose(line: &str) -> Vec<String> {
    let spans = line.split('`').skip(1).step_by(2);
    let commands =
        spans.filter_map(|span| span.strip_prefix("npx ").unwrap_or(span).strip_prefix("stepwell "));
    commands.map(cut).collect()
}

/// The commands of a line of a terminal: at its beginning, behind a prompt, or behind `&&`, `|` or `$(`.
fn in_shell(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, name) in line.match_indices("stepwell ") {
        let before = line[..at].trim_end_matches("npx ").trim_end();
        let begins = before.is_empty() || ["$", "&&", "|", "$(", ";"].iter().any(|end| before.ends_with(end));
        if begins {
            found.push(cut(&line[at + name.len()..]));
        }
    }
    found
}

/// A command up to where the shell's part begins.
fn cut(text: &str) -> String {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '|' | '&' | ';' | ')' | '>' | '<' | '#') => return text[..at].trim_end().to_owned(),
            _ => {}
        }
    }
    text.trim_end().to_owned()
}

fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn read(command: &str) -> Result<(), String> {
    use clap::error::ErrorKind;

    let line = std::iter::once("stepwell".to_owned()).chain(words(command));
    // Prose may name a command without what it takes; what it names has to be there all the same.
    let incomplete = [
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::MissingRequiredArgument,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ErrorKind::MissingSubcommand,
    ];
    match CommandLine::try_parse_from(line) {
        Ok(_) => Ok(()),
        Err(error) if incomplete.contains(&error.kind()) => Ok(()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}
