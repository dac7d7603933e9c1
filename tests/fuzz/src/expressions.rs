//! Conditions that people write, over data that others send.

use serde_json::{Value, json};
use stepwell_core::expression::{Expression, Side, index_key};

use crate::{parted, text};

const NAMES: [&str; 2] = ["event", "input"];

/// An expression and, in the next line, JSON that it is about.
pub fn expression(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (text, rest) = parted(text);
    let Ok(expression) = Expression::parse(text, &NAMES) else { return };
    assert_eq!(
        Expression::parse(&format!(" ({text}) "), &NAMES).is_ok_and(|same| same == expression),
        fits(text)
    );
    let own = || json!({"name": "a/b", "data": {"id": 1, "x": [1, 2.0, {"y": "z"}], "t": "text", "n": null}});
    let event: Value = serde_json::from_str(rest).unwrap_or_else(|_| own());
    let names = [("event", &event), ("input", &event)];
    let holds = expression.holds(&names);
    assert_eq!(holds, expression.holds(&names), "it has no memory");
    for equality in expression.equalities() {
        let written = format!("{} == 1", equality.path);
        let read = Expression::parse(&written, &NAMES).ok().map(|read| read.equalities());
        let read = read.and_then(|found| found.into_iter().next()).map(|found| found.path);
        assert!(read.as_ref() == Some(&equality.path) || written.len() > text.len(), "{written}");
        // Whatever goes by an index never misses what would have held.
        if holds == Ok(true) {
            let side = match &equality.side {
                Side::Literal(literal) => Some(literal.into()),
                Side::Path(path) => path.find(&names).cloned(),
            };
            let key = |value: Option<&Value>| index_key(value.expect("what is equal is there"));
            assert_eq!(key(equality.path.find(&names)), key(side.as_ref()), "{text}");
        }
    }
}

/// Whether parentheses around an expression are within the bounds too.
fn fits(text: &str) -> bool {
    Expression::parse(&format!(" ({text}) "), &NAMES).is_ok()
}
