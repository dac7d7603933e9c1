//! The words that people read: no phrase that reads as translated, and pages that are not hard to read.
//!
//! Looks at the README, all pages, the help texts of the command line, and the descriptions of the API.

use std::fs;

use stepwell_house::{Page, pages, root};

/// What is not said, and what to say instead. Matched as whole words, in any case.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "everyone who; the client"),
    ("whomever", "the person"),
    ("whatever", "everything that; any"),
    ("somewhat", "leave it out"),
    ("somebody", "someone; a person"),
    ("nobody", "no one; nothing"),
    ("everybody", "everyone"),
    ("belongs into", "belongs in; put … in"),
    ("belong into", "belong in"),
    ("goes into", "is stored in; put … in"),
    ("for a while", "name the time"),
    ("under way", "in progress; running"),
    ("as it stands", "in its current state"),
    ("as they stand", "in their current state"),
    ("goes on", "continues"),
    ("go on", "continue"),
    ("went on", "continued"),
    ("going on", "continuing"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("time-out", "timeout"),
    ("time-outs", "timeouts"),
    ("anew", "again; as new"),
    ("afresh", "again"),
    ("of this name", "with this name"),
    ("of that name", "with that name"),
    ("of this id", "with this id"),
    ("outside of", "outside"),
    ("inside of", "inside"),
    ("that there are", "leave it out; existing"),
    ("is good", "is valid; is active"),
    ("stays good", "stays active"),
    ("no good", "invalid"),
    ("good no more", "revoked"),
    ("taken no more", "no longer accepted"),
    ("any more", "no longer"),
    ("looks after", "manages"),
    ("look after", "manage"),
    ("in one go", "at once"),
    ("makes no sense", "is invalid"),
    ("make no sense", "are invalid"),
    ("cut short", "interrupted"),
    ("it stands in", "name the place"),
    ("for ever", "forever"),
    ("is none", "is not one"),
    ("what is none", "say what it is"),
    ("lets be", "say what happens"),
    ("by and by", "gradually"),
    ("again and again", "repeatedly"),
    ("may be said more than once", "repeatable"),
    ("a text", "text"),
    ("exactly-once execution", "each result is recorded once; the code may run more than once"),
    ("zero data loss", "say what was tested"),
    ("jepsen-tested", "say what was tested"),
];

#[test]
fn no_banned_phrase_is_left() {
    let mut hits = Vec::new();
    let mut texts: Vec<(String, String)> =
        pages().into_iter().map(|page| (page.path.clone(), prose(&page))).collect();
    texts.extend(help_texts());
    texts.extend(descriptions());
    assert!(texts.len() > 120, "only {} texts were found", texts.len());
    for (place, text) in &texts {
        for (number, line) in text.lines().enumerate() {
            for (phrase, instead) in banned_in(line) {
                hits.push(format!("{place}:{}: '{phrase}': {instead}\n    {}", number + 1, line.trim()));
            }
        }
    }
    assert!(hits.is_empty(), "{} banned phrases:\n{}", hits.len(), hits.join("\n"));
}

#[test]
fn phrases_are_found_as_whole_words_in_any_case() {
    let found = |line| banned_in(line).iter().map(|(phrase, _)| *phrase).collect::<Vec<_>>();
    assert_eq!(found("Whoever asks, goes on."), ["whoever", "goes on"]);
    assert_eq!(found("The amendment recommends timeouts."), [""; 0]);
    assert_eq!(found("It is under\u{a0}way"), ["under way"]);
}

fn banned_in(line: &str) -> Vec<(&'static str, &'static str)> {
    let line = line.to_lowercase().replace('\u{a0}', " ");
    let is_whole = |at: usize, phrase: &str| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        ![before, after].into_iter().flatten().any(|c| c.is_alphanumeric() || c == '_')
    };
    let has = |phrase: &str| line.match_indices(phrase).any(|(at, _)| is_whole(at, phrase));
    BANNED.iter().copied().filter(|(phrase, _)| has(phrase)).collect()
}

/// A page without its code, line for line.
fn prose(page: &Page) -> String {
    let mut lines = vec![String::new(); page.text.lines().count()];
    for (number, line) in page.prose() {
        lines[number - 1] = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
    }
    lines.join("\n")
}

/// What `--help` prints: the documentation of commands and their arguments.
fn help_texts() -> Vec<(String, String)> {
    let mut files = vec![root().join("crates/cli/src/main.rs")];
    let folder = fs::read_dir(root().join("crates/cli/src/commands")).expect("there are commands");
    files.extend(folder.map(|entry| entry.expect("the entry can be read").path()));
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("sources are text");
        // Help is the documentation of fields and variants, which are indented; what is said of functions is not.
        let lines: Vec<_> = text.lines().collect();
        let shown = lines.iter().enumerate().map(|(number, line)| {
            let item = lines[number..].iter().find(|line| !line.trim_start().starts_with("///"));
            let is_function = item.is_some_and(|item| {
                let item = item.trim_start();
                item.starts_with("fn ") || item.starts_with("pub fn ") || item.starts_with("pub(super) fn ")
            });
            if line.starts_with("    /// ") && !is_function { *line } else { "" }
        });
        (path.display().to_string(), shown.collect::<Vec<_>>().join("\n"))
    };
    files.into_iter().map(read).collect()
}

/// Every summary and description of the API.
fn descriptions() -> Vec<(String, String)> {
    fn collect(value: &serde_json::Value, found: &mut Vec<String>) {
        for value in value.as_array().into_iter().flatten() {
            collect(value, found);
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            if let Some(text) = value.as_str().filter(|_| ["description", "summary"].contains(&name.as_str()))
            {
                found.push(text.to_owned());
            }
            collect(value, found);
        }
    }
    let text = fs::read_to_string(root().join("docs/openapi.json")).expect("there is a description");
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text).expect("it is JSON"), &mut found);
    assert!(found.len() > 300, "only {} descriptions were found", found.len());
    vec![("docs/openapi.json".to_owned(), found.join("\n"))]
}

/// The hardest page that is allowed.
const GRADE_MAX: f64 = 8.0;

#[test]
fn every_page_can_be_read() {
    let pages = pages().into_iter().filter(|page| page.path != "docs/SUMMARY.md");
    let mut grades: Vec<_> = pages.filter_map(|page| Some((grade(&prose(&page))?, page.path))).collect();
    grades.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("reading grade (Flesch–Kincaid)");
    for (grade, path) in &grades {
        println!("{grade:6.1}  {path}");
    }
    let (hardest, path) = grades.first().expect("there are pages");
    assert!(*hardest <= GRADE_MAX, "{path} is hard to read: grade {hardest:.1}, at most {GRADE_MAX}");
}

/// The Flesch–Kincaid grade of the sentences of a text; nothing, if it has too few of them. Headings, tables and
/// lists of links say little about it, so only lines that end a sentence count.
fn grade(text: &str) -> Option<f64> {
    let (mut sentences, mut words, mut syllables) = (0.0, 0.0, 0.0);
    for line in text.lines().filter(|line| !line.starts_with(['#', '|', '>'])) {
        for sentence in line.split_inclusive(['.', '?', '!', ':', ';']) {
            let spoken: Vec<_> = sentence
                .split(|c: char| !c.is_alphabetic() && c != '\'')
                .filter(|word| word.len() > 1)
                .collect();
            if spoken.len() < 3 {
                continue;
            }
            sentences += 1.0;
            words += f64::from(u32::try_from(spoken.len()).ok()?);
            syllables += spoken.iter().map(|word| f64::from(syllables_of(word))).sum::<f64>();
        }
    }
    (sentences >= 5.0).then(|| 0.39 * words / sentences + 11.8 * syllables / words - 15.59)
}

/// Groups of vowels, without a silent e at the end.
fn syllables_of(word: &str) -> u32 {
    let word = word.to_lowercase();
    let is_vowel = |c: char| "aeiouy".contains(c);
    let (mut count, mut was_vowel) = (0, false);
    for c in word.chars() {
        count += u32::from(is_vowel(c) && !was_vowel);
        was_vowel = is_vowel(c);
    }
    if word.ends_with('e') && !word.ends_with("le") && count > 1 {
        count -= 1;
    }
    count.max(1)
}

#[test]
fn long_words_and_sentences_raise_the_grade() {
    assert_eq!(["step", "durable", "table", "idempotency"].map(syllables_of), [1, 3, 2, 5]);
    let short = "The run ends now. ".repeat(6);
    let long = "The deterministic reconstruction of arbitrary intermediate configurations necessitates idempotency. ".repeat(6);
    assert!(grade(&short).expect("it has sentences") < 3.0 && grade(&long).expect("it has sentences") > 20.0);
    assert_eq!(grade("One sentence is too few."), None);
}
