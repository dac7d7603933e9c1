//! What a state is known by: a hash of its text, with all times as they stand to the present one.
//!
//! A machine's memory has no other way out than its `Debug` text, and needs none: whatever is added to it is in there at
//! once. In that text, and in the JSON of rows, a number in the range of the world's clock is a time.
//!
//! Two states of one hash would be taken for one. Among a million states that happens once in thirty million searches.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hasher as _},
    rc::{Rc, Weak},
};

use super::state::BEGINNING_MS;

/// What was longer ago than this does not matter: a cell looks back a minute at the most, to a call that it has not
/// heard of since.
const LONG_AGO_MS: u64 = 70_000;

/// The world's clock does not get any further.
const END_MS: u64 = BEGINNING_MS + 86_400_000;

/// What nobody decides anything by: when a run was accepted, what it has cost, and numbers for people who follow it.
const IDLE: &[&str] = &["created_at", "spent", "stamper", "stamps"];

/// A text that is compared at any time: it has its times apart from everything else.
#[derive(Debug, Default)]
pub(super) struct Text {
    bytes: Vec<u8>,
    /// Where a time stands, and which.
    times: Vec<(usize, u64)>,
}

impl Text {
    /// Adds something, but for the fields of these names.
    pub fn add(&mut self, what: fmt::Arguments<'_>, idle: &[&str]) {
        thread_local! {
            static RAW: RefCell<String> = RefCell::default();
        }
        RAW.with_borrow_mut(|raw| {
            raw.clear();
            raw.write_fmt(what).expect("a text takes everything");
            self.take(raw.as_bytes(), idle);
        });
        self.bytes.push(b'\n');
    }

    fn take(&mut self, raw: &[u8], idle: &[&str]) {
        let mut at = 0;
        while let Some(&byte) = raw.get(at) {
            let end = at + raw[at..].iter().take_while(|byte| is_word(**byte)).count();
            let word = &raw[at..end];
            if byte.is_ascii_digit() {
                self.number(word);
                at = end;
            } else if is_word(byte) {
                match value_of(raw, at, end).filter(|_| is_one_of(word, IDLE) || is_one_of(word, idle)) {
                    Some(value) => at = end_of_value(raw, value),
                    None => {
                        self.bytes.extend_from_slice(word);
                        at = end;
                    }
                }
            } else {
                self.bytes.push(byte);
                at += 1;
            }
        }
    }

    /// A time apart; any other number as it is.
    fn number(&mut self, word: &[u8]) {
        let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        match number.filter(|ms| (BEGINNING_MS..END_MS).contains(ms)) {
            Some(ms) => self.times.push((self.bytes.len(), ms)),
            None => self.bytes.extend_from_slice(word),
        }
    }
}

/// The texts of things that states share. One that is changed is another thing from then on: whoever remembers its text
/// keeps it from being changed in place.
#[derive(Debug)]
pub(super) struct Texts<T>(RefCell<HashMap<*const T, Known<T>>>);

/// What was said, for as long as it is there, and its text.
type Known<T> = (Weak<T>, Rc<Text>);

/// How many texts are remembered.
const TEXTS_MAX: usize = 20_000;

impl<T> Default for Texts<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Texts<T> {
    /// The text of a thing.
    pub fn of(&self, thing: &Rc<T>, write: impl FnOnce(&mut Text)) -> Rc<Text> {
        let mut known = self.0.borrow_mut();
        if let Some((_, text)) = known.get(&Rc::as_ptr(thing)) {
            return text.clone();
        }
        if known.len() >= TEXTS_MAX {
            known.clear();
        }
        let mut text = Text::default();
        write(&mut text);
        let text = Rc::new(text);
        known.insert(Rc::as_ptr(thing), (Rc::downgrade(thing), text.clone()));
        text
    }
}

/// Texts as they stand to the present time, and their hash.
pub(super) struct Canon {
    now_ms: u64,
    hasher: DefaultHasher,
}

impl Canon {
    /// Nothing yet, at this time.
    pub fn new(now_ms: u64) -> Self {
        Self { now_ms, hasher: DefaultHasher::new() }
    }

    /// Adds something, but for the fields of these names.
    pub fn add(&mut self, what: fmt::Arguments<'_>, idle: &[&str]) {
        let mut text = Text::default();
        text.add(what, idle);
        self.add_text(&text);
    }

    /// Adds a text.
    pub fn add_text(&mut self, text: &Text) {
        let mut from = 0;
        for (at, ms) in &text.times {
            self.hasher.write(&text.bytes[from..*at]);
            self.add_time(*ms);
            from = *at;
        }
        self.hasher.write(&text.bytes[from..]);
    }

    /// A time, as it stands to the present one.
    fn add_time(&mut self, ms: u64) {
        let (sign, apart) = if ms >= self.now_ms {
            (b'+', ms - self.now_ms)
        } else {
            (b'-', (self.now_ms - ms).min(LONG_AGO_MS))
        };
        let mut bytes = [sign; 9];
        bytes[1..].copy_from_slice(&apart.to_le_bytes());
        self.hasher.write(&bytes);
    }

    /// Its hash.
    pub fn finish(self) -> u64 {
        self.hasher.finish()
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_one_of(word: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| name.as_bytes() == word)
}

/// Where the value of a field begins, if this word is the name of one: `name: value`, or `"name":value`.
fn value_of(raw: &[u8], at: usize, end: usize) -> Option<usize> {
    let is_quoted = at > 0 && raw[at - 1] == b'"';
    let after = raw.get(end..)?;
    if is_quoted && after.starts_with(b"\":") || !is_quoted && after.starts_with(b": ") {
        Some(end + 2)
    } else {
        None
    }
}

/// Where the value that begins here ends.
fn end_of_value(raw: &[u8], from: usize) -> usize {
    let (mut depth, mut is_text, mut at) = (0_u32, false, from);
    while let Some(byte) = raw.get(at) {
        match byte {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' | b',' if depth == 0 => return at,
            b'}' | b']' | b')' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::Timestamp;

    use super::*;

    fn digest(now_ms: u64, text: &str) -> u64 {
        let mut canon = Canon::new(BEGINNING_MS + now_ms);
        canon.add(format_args!("{text}"), &["idle"]);
        canon.finish()
    }

    #[test]
    fn what_is_the_same_but_for_the_time_has_one_digest() {
        let run = |ms| format!(r"Run {{ until: {:?}, n: 7 }}", Timestamp::from_millis(BEGINNING_MS + ms));
        assert_eq!(digest(5, &run(105)), digest(1_005, &run(1_105)));
        assert_ne!(digest(5, &run(105)), digest(5, &run(106)));
        assert_ne!(digest(5, &run(4)), digest(5, &run(6)), "a millisecond ago is not in a millisecond");
        let row = |ms| format!(r#"{{"since":{},"n":7}}"#, BEGINNING_MS + ms);
        assert_eq!(digest(9_000, &row(0)), digest(9_001, &row(1)));
        assert_eq!(digest(200_000, &row(0)), digest(200_000, &row(1)), "both are long ago");
    }

    #[test]
    fn what_nobody_decides_by_is_left_out_and_nothing_else() {
        let text = |idle: &str, n: u32| format!(r"Run {{ idle: {idle}, n: {n} }}");
        assert_eq!(digest(0, &text(r#"A { b: "}, \"", c: [1, (2)] }"#, 1)), digest(0, &text("None", 1)));
        assert_ne!(digest(0, &text("None", 1)), digest(0, &text("None", 2)));
        assert_eq!(digest(0, r#"{"idle":{"a":1},"n":1}"#), digest(0, r#"{"idle":2,"n":1}"#));
        assert_ne!(digest(0, r#"{"idle_not":3,"n":1}"#), digest(0, r#"{"idle_not":2,"n":1}"#));
        assert_ne!(digest(0, "Some(idle)"), digest(0, "Some(busy)"));
    }
}
