//! Random expressions over random values: none of them panics, and each keeps its bounds.
//!
//! A few thousand by default; `just expressions N` tries N of them.

use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json};

use super::{EFFORT_MAX, Effort, Expression, Failed, Side, index_key};

const NAMES: [&str; 2] = ["event", "input"];

/// How many are tried by default: less than two seconds without optimization.
const COUNT: u64 = 10_000;

/// How long one may take. The slowest take a few milliseconds; the rest is for machines that do something else as well.
const TIME_MAX: Duration = Duration::from_secs(2);

/// How many bytes the value of one may have as JSON.
const BYTES_MAX: usize = 1_000;

const FIELDS: [&str; 6] = ["a", "b", "c", "id", "list", "x y"];
const TEXTS: [&str; 6] = ["", "a", "id", "DE", "Zürich", "\u{1}\"\\"];
const NUMBERS: [&str; 9] =
    ["0", "1", "-1", "7", "7.0", "1e300", "-0.5", "9223372036854775807", "9007199254740993"];
const WORDS: [&str; 26] = [
    "event", "input", ".a", ".b", "[", "]", "(", ")", "==", "!=", "<", ">=", "in", "!", "&&", "||", "?", ":",
    ",", "has", "size", ".size()", "'a'", "1", "true", "null",
];

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).expect("small");
        usize::try_from(self.roll() % count).expect("small")
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn value(dice: &mut Dice, depth: usize) -> Json {
    match dice.below(if depth == 0 { 5 } else { 9 }) {
        0 => Json::Null,
        1 => dice.one_in(2).into(),
        2 | 3 => serde_json::from_str(dice.one(&NUMBERS)).expect("a number"),
        4 => dice.one(&TEXTS).into(),
        5 | 6 => (0..dice.below(4)).map(|_| value(dice, depth - 1)).collect(),
        _ => {
            let count = dice.below(5);
            (0..count).map(|_| (dice.one(&FIELDS).to_owned(), value(dice, depth - 1))).collect()
        }
    }
}

/// An object whose fields often have the same values.
fn world(dice: &mut Dice) -> Json {
    let same = value(dice, 3);
    let of = |dice: &mut Dice| if dice.one_in(3) { same.clone() } else { value(dice, 3) };
    FIELDS.iter().map(|name| ((*name).to_owned(), of(dice))).collect::<Map<_, _>>().into()
}

/// The same with objects, lists and texts that are much too large to be compared often, and that differ late or never.
fn large_world(dice: &mut Dice) -> Json {
    let count = 1 + dice.below(3_000);
    let prefix = "n".repeat(dice.below(40));
    let large: Json = match dice.below(3) {
        0 => (0..count).map(|number| (format!("{prefix}{number}"), Json::from(number))).collect(),
        1 => (0..count).map(|number| Json::from(number % 2)).collect(),
        _ => prefix.repeat(count).into(),
    };
    let mut other = large.clone();
    match &mut other {
        Json::Array(items) => items[dice.below(count)] = 7.into(),
        Json::Object(fields) => drop(fields.insert(format!("{prefix}{}", dice.below(count)), 7.into())),
        Json::String(text) => text.push('x'),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
    let mut world = world(dice);
    world["a"] = large.clone();
    world["b"] = if dice.one_in(2) { large } else { other };
    world
}

fn path(dice: &mut Dice, out: &mut String) {
    out.push_str(dice.one(&NAMES));
    for nth in 0..=dice.below(3) {
        match dice.below(8) {
            0 if nth > 0 => out.push_str(dice.one(&["[0]", "[1]", "[-1]", "[9]"])),
            1 => out.extend(["['", dice.one(&FIELDS), "']"]),
            _ => out.extend([".", dice.one(&["a", "b", "c", "id", "list"])]),
        }
    }
}

fn operand(dice: &mut Dice, depth: usize, out: &mut String) {
    match dice.below(if depth == 0 { 8 } else { 12 }) {
        0..=3 => path(dice, out),
        4 => out.push_str(dice.one(&NUMBERS)),
        5 => *out += &Json::from(dice.one(&TEXTS)).to_string(),
        6 => out.push_str(dice.one(&["true", "false", "null"])),
        7 => out.push_str(dice.one(&["event", "input"])),
        8 => {
            out.push('[');
            let most = if dice.one_in(8) { 80 } else { 4 };
            for nth in 0..dice.below(most) {
                out.push_str(if nth > 0 { "," } else { "" });
                operand(dice, depth / 2, out);
            }
            out.push(']');
        }
        9 => {
            out.push_str("size(");
            operand(dice, depth - 1, out);
            out.push(')');
        }
        10 => {
            path(dice, out);
            out.push('[');
            operand(dice, depth - 1, out);
            out.push(']');
        }
        _ => {
            out.push('(');
            condition(dice, depth - 1, out);
            out.push(')');
        }
    }
}

fn condition(dice: &mut Dice, depth: usize, out: &mut String) {
    match dice.below(if depth == 0 { 6 } else { 11 }) {
        0..=3 => {
            operand(dice, depth, out);
            out.extend([" ", dice.one(&["==", "!=", "<", "<=", ">", ">=", "in", "=="]), " "]);
            operand(dice, depth, out);
        }
        4 => {
            out.push_str("has(");
            path(dice, out);
            out.push(')');
        }
        5 => {
            path(dice, out);
            out.extend([".", dice.one(&["startsWith", "endsWith", "contains"]), "("]);
            operand(dice, 0, out);
            out.push(')');
        }
        6 | 7 => {
            let sign = dice.one(&[" && ", " || "]);
            for nth in 0..2 + dice.below(3) {
                out.push_str(if nth > 0 { sign } else { "" });
                condition(dice, depth - 1, out);
            }
        }
        8 => {
            out.push_str("!(");
            condition(dice, depth - 1, out);
            out.push(')');
        }
        9 => {
            out.push('(');
            condition(dice, depth - 1, out);
            out.push_str(") ? ");
            operand(dice, depth - 1, out);
            out.push_str(" : ");
            operand(dice, depth - 1, out);
        }
        _ => operand(dice, depth, out),
    }
}

/// Mostly one that can be read; sometimes one with a fault, or only words.
fn text(dice: &mut Dice) -> String {
    let mut text = String::new();
    if dice.one_in(32) {
        for _ in 0..dice.below(30) {
            text.push_str(dice.one(&WORDS));
            text.push_str(dice.one(&["", " "]));
        }
        return text;
    }
    let most = if dice.one_in(50) { 18 } else { 4 };
    let depth = dice.below(most);
    condition(dice, depth, &mut text);
    if dice.one_in(16) {
        let mut letters: Vec<_> = text.chars().collect();
        let at = dice.below(letters.len());
        match dice.below(3) {
            0 => drop(letters.remove(at)),
            1 => letters.insert(at, letters[dice.below(letters.len())]),
            _ => letters.swap(at, 0),
        }
        text = letters.into_iter().collect();
    }
    text
}

/// Evaluates one in every way. Says whether it holds.
fn check(text: &str, expression: &Expression, names: &[(&str, &Json)]) -> Result<bool, Failed> {
    let shared = Effort::default();
    let holds = expression.holds_within(&shared, names);
    assert!(shared.spent() <= EFFORT_MAX + 1, "{text}: {}", shared.spent());
    if let Ok(found) = expression.find(names) {
        let bool = matches!(holds, Ok(true)).then(|| "true".to_owned());
        let encoded = found.encode(BYTES_MAX);
        if let Some(payload) = &encoded {
            assert!(payload.size() <= BYTES_MAX && payload.decode::<Json>().is_ok(), "{text}");
        } else if let Some(payload) = found.encode(100 * BYTES_MAX) {
            assert!(payload.size() > BYTES_MAX, "{text}: {}", payload.size());
        }
        assert!(bool.is_none() || encoded.map(|payload| payload.text().to_owned()) == bool, "{text}");
        assert!(found.text().is_none() || holds == Err(Failed::Mismatch), "{text}");
    }
    // Whatever goes by an index never misses what would have held.
    for equality in expression.equalities().iter().filter(|_| holds == Ok(true)) {
        let side = match &equality.side {
            Side::Literal(literal) => Some(literal.into()),
            Side::Path(path) => path.find(names).cloned(),
        };
        let key = |value: Option<&Json>| index_key(value.expect("what is equal is there"));
        assert_eq!(key(equality.path.find(names)), key(side.as_ref()), "{text}");
    }
    holds
}

#[test]
fn random_expressions_keep_their_bounds() {
    let count = std::env::var("STEPWELL_EXPRESSIONS").ok();
    let count = count.map_or(COUNT, |count| count.replace('_', "").parse().expect("a number"));
    let mut dice = Dice(count);
    let (mut event, mut input) = (world(&mut dice), world(&mut dice));
    let (mut read, mut held, mut too_much) = (0_u64, 0_u64, 0_u64);
    let mut slowest = (Duration::ZERO, String::new());
    for nth in 0..count {
        if nth % 64 == 0 {
            (event, input) = (world(&mut dice), world(&mut dice));
            if nth % 4_096 == 0 {
                event = large_world(&mut dice);
                input = event.clone();
            }
        }
        let text = text(&mut dice);
        let since = Instant::now();
        if let Ok(expression) = Expression::parse(&text, &NAMES) {
            read += 1;
            let holds = check(&text, &expression, &[("event", &event), ("input", &input)]);
            held += u64::from(holds == Ok(true));
            too_much += u64::from(holds == Err(Failed::TooMuch));
        }
        if since.elapsed() > slowest.0 {
            slowest = (since.elapsed(), text);
        }
    }
    let (took, text) = slowest;
    println!(
        "{count} expressions: {read} read, {held} true, {too_much} too much; the slowest {took:?}: {text}"
    );
    assert!(took < TIME_MAX, "{took:?}: {text}");
    assert!(read > count / 2 && held > count / 100, "{read} read, {held} true");
}
