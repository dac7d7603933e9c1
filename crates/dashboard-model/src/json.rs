//! JSON for people: indented, cut where it gets too long, and without recursion, however deep it is nested.

use crate::shown;

/// The most of a payload that is shown, in bytes of what is drawn.
pub const SHOWN_BYTES_MAX: usize = 64 * 1_024;

/// The deepest indentation: beyond it, lines would only move to the right.
const INDENT_MAX: usize = 24;

/// A payload as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// What is drawn.
    pub text: String,
    /// Whether there is more.
    pub is_cut: bool,
}

/// A JSON text to look at: indented, and with hidden characters written out. A text that is not JSON comes out in some other
/// form, but never panics.
pub fn pretty(text: &str) -> Shown {
    match indented(text) {
        Ok(text) => Shown { text: shown::block(&text), is_cut: false },
        Err(beginning) => Shown { text: shown::block(&beginning), is_cut: true },
    }
}

/// A JSON text to change: indented, but nothing else is done to it, and one that is long stays as it is.
pub fn editable(text: &str) -> String {
    indented(text).unwrap_or_else(|_| text.to_owned())
}

/// Indents a JSON text; gives only its beginning if it gets too long.
fn indented(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let (mut depth, mut is_string, mut is_escaped) = (0_usize, false, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if out.len() > SHOWN_BYTES_MAX {
            return Err(out);
        }
        if is_string {
            out.push(c);
            (is_string, is_escaped) = (c != '"' || is_escaped, c == '\\' && !is_escaped);
            continue;
        }
        match c {
            '"' => {
                is_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                skip_blanks(&mut rest);
                match rest.peek() {
                    Some('}' | ']') => out.extend(rest.next()),
                    Some(_) | None => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    Ok(out)
}

fn skip_blanks(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while rest.peek().is_some_and(char::is_ascii_whitespace) {
        rest.next();
    }
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    for _ in 0..depth.min(INDENT_MAX) {
        out.push_str("  ");
    }
}

/// How much something is.
pub fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        1_000_000.. => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_is_indented_and_its_texts_stay_as_they_are() {
        let shown = pretty(r#"{"a":[1,{"b":"x, \"y\": {z}"}],"e":{ },"f":[]}"#);
        let wanted = "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x, \\\"y\\\": {z}\"\n    }\n  ],\n  \"e\": {},\n  \"f\": []\n}";
        assert_eq!(shown, Shown { text: wanted.into(), is_cut: false });
        assert_eq!(pretty("12").text, "12");
    }

    #[test]
    fn what_is_deep_or_large_is_cut() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(pretty(&deep).is_cut);
        let large = format!("\"{}\"", "x".repeat(2_000_000));
        let shown = pretty(&large);
        assert!(shown.is_cut && shown.text.len() < SHOWN_BYTES_MAX + 100);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            pretty(&text);
        }
    }
}
