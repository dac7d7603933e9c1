//! What expressions mean, case by case. `tests/expression.rs` compares them with another implementation.

use serde_json::{Value as Json, json};

use super::{
    BadExpression, Effort, Equality, Expression, Failed, LENGTH_MAX, Link, Literal, NESTING_MAX, Path, Side,
    index_key,
};

const NAMES: [&str; 2] = ["event", "input"];

fn read(text: &str) -> Result<Expression, BadExpression> {
    Expression::parse(text, &NAMES)
}

fn holds(text: &str) -> Result<bool, Failed> {
    let event = json!({
        "name": "order/paid",
        "data": {
            "id": 7, "amount": 120.5, "country": "DE", "tags": ["new", "vip"], "nothing": null, "is_test": false,
            "big": 9_007_199_254_740_993_i64, "line one": "Zürich", "lines": [{"sku": "a"}, {"sku": "b"}],
        },
    });
    let input = json!({"id": 7, "at": 1, "key": "country"});
    read(text).unwrap_or_else(|bad| panic!("{text}: {bad}")).holds(&[("event", &event), ("input", &input)])
}

#[test]
fn conditions_hold_or_do_not() {
    for (text, wanted) in [
        ("event.data.id == input.id", true),
        ("event.data.amount > 100 && event.data.country in [\"DE\", 'AT']", true),
        ("event.data.amount > 100 && event.data.country in []", false),
        ("has(event.data.x)", false),
        ("has(event.data.nothing) && event.data.nothing == null", true),
        ("!event.data.is_test", true),
        ("!!event.data.is_test || event.data.id != 7", false),
        ("event.data.id == 7.0 && event.data.id < 7.5 && -1 < event.data.id", true),
        ("event.data.big == 9007199254740992.0", false),
        ("event.data.big > 9007199254740992.0", true),
        ("event.data['line one'].startsWith(\"Z\\u00fcr\") && size(event.data['line one']) == 6", true),
        (
            "event.data.country.size() == 2 && event.data.tags.size() == 2 && size(event.data.lines[0]) == 1",
            true,
        ),
        ("event.name.endsWith('/paid') && event.name.contains('er/p')", true),
        ("event.data.lines[input.at].sku == 'b'", true),
        ("event.data[input.key] == 'DE'", true),
        ("[1, 2.0, 'x'][1] == 2", true),
        ("event.data.tags == ['new', 'vip'] && 'vip' in event.data.tags", true),
        ("'country' in event.data && !('x' in event.data)", true),
        ("event.data.id == '7'", false),
        ("event.data.country < 'DF' ? event.data.id == 7 : event.x", true),
        ("false ? event.x : true ? true : event.x", true),
        ("event.data.x == 1 || true", true),
        ("event.data.x == 1 && false", false),
        ("(event.data.id == 7) == true", true),
    ] {
        assert_eq!(holds(text), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_missing_or_of_another_type_fails() {
    for (text, wanted) in [
        ("event.data.x == 1", Failed::Missing),
        ("event.data.x == 1 || false", Failed::Missing),
        ("event.data.x == 1 && true", Failed::Missing),
        ("event.data.tags[2] == 'x'", Failed::Missing),
        ("event.data.tags[-1] == 'x'", Failed::Missing),
        ("has(event.x.y)", Failed::Missing),
        ("has(event.data.id.y)", Failed::Mismatch),
        ("event.data.id", Failed::Mismatch),
        ("event.data.id < 'x'", Failed::Mismatch),
        ("event.data.id in 7", Failed::Mismatch),
        ("!event.data.id", Failed::Mismatch),
        ("event.data.id.startsWith('7')", Failed::Mismatch),
        ("size(event.data.id) == 1", Failed::Mismatch),
        ("event.data.id ? true : false", Failed::Mismatch),
    ] {
        assert_eq!(holds(text), Err(wanted), "{text}");
    }
}

#[test]
fn other_texts_are_refused_with_the_place() {
    for (text, at) in [
        ("", 1),
        ("event.", 7),
        ("event.data.id = 7", 15),
        ("order.id == 7", 1),
        ("event.data.id == 7 8", 20),
        ("1 < 2 < 3", 7),
        ("event.data.map(x, x)", 16),
        ("matches('a')", 9),
        ("'a", 1),
        ("'\\q'", 3),
        ("'ü' == \"\\u12\"", 10),
        ("7u == 7", 2),
        ("1e == 7", 3),
        ("9223372036854775808 == 7", 1),
        ("-event.data.id == 7", 2),
        ("has(event)", 11),
        ("event.data.in", 12),
        ("[1, ", 5),
    ] {
        let bad = read(text).expect_err(text);
        assert_eq!(bad.at, at, "{text}: {bad}");
    }
    assert!(read("-9223372036854775808 == 7").is_ok());
}

#[test]
fn length_and_nesting_have_bounds() {
    let long = |length: usize| format!("'{}' == ''", "x".repeat(length - 8));
    assert!(read(&long(LENGTH_MAX)).is_ok() && read(&long(LENGTH_MAX + 1)).is_err());
    for (open, close) in
        [("(", ")"), ("[", "]"), ("!", ""), ("true ? true : ", ""), ("size(", ")"), ("event.data[", "]")]
    {
        let nested = |depth: usize| format!("{}true{}", open.repeat(depth), close.repeat(depth));
        assert!(read(&nested(NESTING_MAX - 1)).is_ok(), "{open}");
        assert!(read(&nested(NESTING_MAX)).is_err(), "{open}");
    }
    assert!(read(&format!("'a'{}", ".size()".repeat(NESTING_MAX))).is_err());
    // No level each: these are lists in the tree.
    assert!(read(&format!("event{}", ".a".repeat(500))).is_ok());
    assert!(read(&format!("true{}", " && true".repeat(100))).is_ok());
}

#[test]
fn evaluation_has_a_bound() {
    let long: Vec<_> = (0..2_000).collect();
    let event = json!({"a": vec![long.clone(); 30], "b": vec![long; 30], "text": "x".repeat(1_000_000)});
    let all = (0..20).map(|_| "event.a == event.b").collect::<Vec<_>>().join(" && ");
    assert_eq!(read(&all).expect("it is one").holds(&[("event", &event)]), Err(Failed::TooMuch));
    assert_eq!(read("event.a == event.b").expect("it is one").holds(&[("event", &event)]), Ok(true));
    let sizes = (0..40).map(|_| "size(event.text)>0").collect::<Vec<_>>().join("&&");
    assert_eq!(read(&sizes).expect("it is one").holds(&[("event", &event)]), Err(Failed::TooMuch));
}

#[test]
fn expressions_over_one_event_share_what_they_may_compare() {
    let long: Vec<_> = (0..2_000).collect();
    let event = json!({"a": vec![long.clone(); 30], "b": vec![long; 30], "c": 1});
    let large = read("event.a == event.b").expect("it is one");
    let shared = Effort::default();
    let held = (0..20).filter(|_| large.holds_within(&shared, &[("event", &event)]) == Ok(true)).count();
    assert_eq!(held, 4);
    let small = read("event.c == 1").expect("it is one");
    let shared = Effort::default();
    assert!((0..100).all(|_| small.holds_within(&shared, &[("event", &event)]) == Ok(true)));
}

/// What a condition on an event takes.
fn spent(text: &str, event: &Json) -> u32 {
    let shared = Effort::default();
    let _ = read(text).expect("it is one").holds_within(&shared, &[("event", event)]);
    shared.spent()
}

/// An object of many fields, and a list of many items.
fn many(value: u64) -> (Json, Json) {
    let fields = (0..7_000).map(|name| (format!("n{name}"), Json::from(value)));
    (fields.collect(), (0..7_000).map(|_| value).collect())
}

#[test]
fn names_are_paid_for_like_other_texts() {
    let long = "x".repeat(64_000);
    let event = json!({"a": {&long: 1}, "b": {&long: 1}, "name": long});
    for text in ["event.a == event.b", "event.name in event.a", "event.a[event.name] == 1"] {
        assert!((1_000..1_010).contains(&spent(text, &event)), "{text}: {}", spent(text, &event));
    }
    let (fields, _) = many(1);
    let event = json!({"a": fields, "b": fields});
    assert_eq!(spent("event.a == event.b", &event), 2 + 2 * 7_000, "the name and the value of each field");
}

#[test]
fn a_comparison_ends_at_the_first_difference() {
    let ((one, ones), (two, twos)) = (many(1), many(2));
    let mut renamed = one.clone();
    let first = renamed.as_object_mut().and_then(|fields| fields.remove("n0"));
    renamed["m"] = first.expect("it is there");
    let event = json!({"a": one, "b": two, "c": ones, "d": twos, "e": renamed});
    for text in ["event.a == event.b", "event.b != event.a", "event.c == event.d", "event.e == event.a"] {
        assert!(spent(text, &event) <= 4, "{text}: {}", spent(text, &event));
    }
    // 168 million look-ups, if one did not.
    let all = |item: &str, others: &[&str]| format!("{item} in [{}]", others.join(","));
    let since = std::time::Instant::now();
    for text in
        [all("event.a", &["event.b"; 80]), all("event.e", &["event.a"; 80]), all("event.c", &["event.d"; 80])]
    {
        for _ in 0..100 {
            assert!(spent(&text, &event) <= 400, "{text}: {}", spent(&text, &event));
        }
    }
    assert!(since.elapsed().as_secs() < 5, "{:?}", since.elapsed());
    // A list that stands in the text is not copied for each item that it is compared with.
    let items: Json = (0..20_000).map(|_| json!([0])).collect();
    let list = format!("[[{}]] in event.items", vec!["0"; 400].join(","));
    let since = std::time::Instant::now();
    assert_eq!(spent(&list, &json!({"items": items})), 2 * 20_000 + 1);
    assert!(since.elapsed().as_secs() < 5, "{:?}", since.elapsed());
}

#[test]
fn equalities_are_lifted_out_of_what_has_to_hold() {
    let path = |text: &str| {
        let (root, field) = text.split_once('.').expect("a field");
        Path { root: root.into(), links: vec![Link::Field(field.into())] }
    };
    let to = |text: &str, side: Side| Equality { path: path(text), side };
    let expression =
        read("event.id == input.id && ('DE' == event.country && event.x > 1) && (event.y == 1 || true)");
    assert_eq!(
        expression.expect("it is one").equalities(),
        [
            to("event.id", Side::Path(path("input.id"))),
            to("input.id", Side::Path(path("event.id"))),
            to("event.country", Side::Literal(Literal::Text("DE".into()))),
        ]
    );
    for text in ["event.id == 1 || true", "!(event.id == 1)", "event.id != 1", "event.id == 1 ? true : true"]
    {
        assert_eq!(read(text).expect("it is one").equalities(), [], "{text}");
    }
}

#[test]
fn equal_values_have_the_same_key_and_others_have_not() {
    let values = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(1.5),
        json!(-1),
        json!("1"),
        json!("null"),
        json!("true"),
        json!(9_007_199_254_740_993_i64),
        json!(9_007_199_254_740_992_i64),
        json!(1e300),
        json!(u64::MAX),
        json!(1.0),
        json!(-0.0),
        json!(9_007_199_254_740_992.0_f64),
        json!(""),
        json!("\""),
    ];
    let equal = read("event == input").expect("it is one");
    for left in &values {
        for right in &values {
            let are = equal.holds(&[("event", left), ("input", right)]).expect("all values compare");
            assert_eq!(index_key(left) == index_key(right), are, "{left} and {right}");
        }
    }
    assert_eq!((index_key(&json!([])), index_key(&json!({}))), (None, None));
}

#[test]
fn a_path_is_read_as_it_is_written() {
    let path = Path {
        root: "event".into(),
        links: vec![Link::Field("data".into()), Link::At(0), Link::Field("a \"b\"\\\n\u{e9}".into())],
    };
    assert_eq!(path.to_string(), "event.data[0][\"a \\\"b\\\"\\\\\\n\u{e9}\"]");
    let expression = read(&format!("{path} == 1")).expect("it is one");
    assert_eq!(expression.equalities().first().map(|found| found.path.clone()), Some(path.clone()));
    let event: Json = json!({"data": [{"a \"b\"\\\n\u{e9}": 1}]});
    assert_eq!(path.find(&[("event", &event)]), Some(&json!(1)));
}

#[test]
fn the_fields_of_a_name_are_those_that_an_expression_goes_by() {
    let fields = |text: &str| {
        let found = read(text).expect("it is one").fields_of("input");
        found.map(|fields| fields.into_iter().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(
        fields("event.data.id == input.id && !(input.a.b[0] in [input.c])").as_deref(),
        Some("a c id")
    );
    assert_eq!(fields("has(input.x) ? size(input.y) > 1 : event.data.z == 1").as_deref(), Some("x y"));
    assert_eq!(fields("event.data.id == 1").as_deref(), Some(""));
    assert_eq!(fields("event.data == input"), None);
    assert_eq!(fields("event.data == input[0]"), None);
}

#[test]
fn a_path_of_an_event_is_read_from_its_text() {
    for text in ["event", "event.data.id", "event.data.items[0]", "event.data[\"a b\"]"] {
        assert_eq!(Path::read(text).expect("it is one").to_string(), text);
    }
    for text in ["", "event.data ==", "input.id", "1"] {
        assert_eq!(Path::read(text), None, "{text}");
    }
}
