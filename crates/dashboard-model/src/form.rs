//! What can be done, and the form that asks for the rest: fields as people fill them in, and the request they become.
//!
//! Owns: how a field's text becomes a part of a request, and what is said if it cannot.
//! Does not own: who may do it, which [`crate::may`] decides.

use stepwell_protocol::{Payload, span};

use crate::{
    map::Map,
    place::{Place, encoded},
    when,
};

/// Something that can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// What its button says.
    pub label: String,
    /// What the button of its dialog says, if it is something else.
    pub confirm: Option<&'static str>,
    /// What its dialog is about.
    pub title: String,
    /// What happens then.
    pub explained: String,
    method: &'static str,
    path: String,
    fixed: Map<String, String>,
    /// What is asked for.
    pub fields: Vec<Field>,
    /// What is shown afterwards.
    pub then: Then,
    /// Whether it takes something away.
    pub is_grave: bool,
}

/// What is shown when it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// The same page, as it is by then.
    Stay,
    /// Another page.
    Go(Place),
    /// The run that the answer is.
    Run,
    /// A text of the answer, by the names that lead to it, and what to do with it.
    Show(&'static [&'static str], &'static str),
}

/// Something that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is.
    pub label: String,
    /// How it is filled in.
    pub kind: Kind,
    /// What it begins with.
    pub value: String,
    /// Whether it must be filled in.
    pub is_required: bool,
    /// What people should know.
    pub hint: String,
    goes: Goes,
    /// Whether an empty field means `null`, and not that nothing is said.
    clears: bool,
}

/// How a field is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text on one line. Empty, it says nothing.
    Text,
    /// A text that others should not see.
    Secret,
    /// A text that may be empty.
    Free,
    /// A number.
    Number,
    /// Yes or no.
    Switch,
    /// One of these: JSON, and what it is called.
    Choice(Vec<(String, String)>),
    /// Any JSON.
    Json,
    /// A list of texts, one on each line.
    Lines,
    /// A length of time, as `2h 30m`.
    Span,
    /// An instant in UTC, as `2026-12-01T09:00`.
    Instant,
}

/// Where a field's value goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goes {
    /// It is the body.
    Whole,
    /// Into the body's object, by this name.
    Body(String),
    /// Into an object in the body's object.
    Inner(String, String),
    /// Into a header.
    Header(&'static str),
    /// Into the query.
    Query(&'static str),
    /// In the place of the path's next parameter.
    Path,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// The path and query.
    pub path: String,
    /// Its own headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Option<String>,
}

impl Field {
    fn new(label: &str, kind: Kind, goes: Goes) -> Self {
        let (value, hint) = (String::new(), String::new());
        Self { label: label.to_owned(), kind, value, is_required: false, hint, goes, clears: false }
    }

    /// One that goes into the body by this name.
    #[inline(never)]
    pub fn of_body(name: &str, label: &str, kind: Kind) -> Self {
        Self::new(label, kind, Goes::Body(name.to_owned()))
    }

    /// One that goes into an object in the body.
    #[inline(never)]
    pub fn of_inner(outer: &str, inner: &str, label: &str, kind: Kind) -> Self {
        Self::new(label, kind, Goes::Inner(outer.to_owned(), inner.to_owned()))
    }

    /// One that is the whole body, as JSON.
    pub fn whole(label: &str) -> Self {
        Self::whole_of(label, Kind::Json)
    }

    /// One that is the whole body, and filled in like this.
    #[inline(never)]
    pub fn whole_of(label: &str, kind: Kind) -> Self {
        Self::new(label, kind, Goes::Whole)
    }

    /// One that goes into a header.
    #[inline(never)]
    pub fn of_header(name: &'static str, label: &str) -> Self {
        Self::new(label, Kind::Text, Goes::Header(name))
    }

    /// One that goes into the query.
    #[inline(never)]
    pub fn of_query(name: &'static str, label: &str) -> Self {
        Self::new(label, Kind::Text, Goes::Query(name))
    }

    /// One that goes into the path.
    #[inline(never)]
    pub fn of_path(label: &str) -> Self {
        Self::new(label, Kind::Text, Goes::Path).required()
    }

    /// The same, which is filled in like this.
    #[must_use]
    #[inline(never)]
    pub fn filled_as(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The same, which begins with this.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts are given as they are")]
    pub fn with(self, value: impl ToString) -> Self {
        Self { value: value.to_string(), ..self }
    }

    /// The same, which begins with this, if there is something.
    #[must_use]
    pub fn with_any(self, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(value),
            None => self,
        }
    }

    /// The same, which begins with this length of time.
    #[must_use]
    #[inline(never)]
    pub fn with_span(self, ms: Option<u64>) -> Self {
        self.with_any(ms.map(short_span))
    }

    /// The same, which must be filled in.
    #[must_use]
    #[inline(never)]
    pub fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    /// The same, with what people should know.
    #[must_use]
    #[inline(never)]
    pub fn hint(self, hint: &str) -> Self {
        Self { hint: hint.to_owned(), ..self }
    }

    /// The same, in which nothing means `null`.
    #[must_use]
    #[inline(never)]
    pub fn clearing(self) -> Self {
        Self { clears: true, ..self }
    }

    /// The JSON of what was filled in; nothing, if nothing was.
    fn read(&self, text: &str) -> Result<Option<String>, String> {
        let wrong = |what: &str| Err(format!("{}: '{}' is not {what}.", self.label, cut(text)));
        let trimmed = text.trim();
        if trimmed.is_empty() && !matches!(self.kind, Kind::Free | Kind::Switch | Kind::Lines) {
            return if self.is_required && self.kind != Kind::Json {
                Err(format!("{} is missing.", self.label))
            } else if self.is_required || self.clears {
                Ok(Some("null".into()))
            } else {
                Ok(None)
            };
        }
        match &self.kind {
            Kind::Text | Kind::Secret => Ok(Some(json_text(trimmed))),
            Kind::Free if text.is_empty() && !self.is_required => Ok(None),
            Kind::Free => Ok(Some(json_text(text))),
            Kind::Switch => Ok(Some((trimmed == "true").to_string())),
            Kind::Choice(_) => Ok(Some(trimmed.to_owned())),
            // JSON that begins as a number does is one.
            Kind::Number if !trimmed.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                wrong("a number")
            }
            Kind::Number => Payload::from_text(trimmed.to_owned())
                .map(|it| Some(it.into_text()))
                .or_else(|_| wrong("a number")),
            Kind::Json => match Payload::from_text(trimmed.to_owned()) {
                Ok(payload) => Ok(Some(payload.into_text())),
                Err(error) => Err(format!("{}: this is not JSON: {error}.", self.label)),
            },
            Kind::Lines => {
                let lines: Vec<_> =
                    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(json_text).collect();
                if lines.is_empty() && self.is_required {
                    return Err(format!("{} is missing.", self.label));
                }
                Ok(Some(format!("[{}]", lines.join(","))))
            }
            Kind::Span => match span::parse(trimmed) {
                Some(ms) => Ok(Some(ms.to_string())),
                None => wrong("a length of time, such as 2h or 1d 12h"),
            },
            Kind::Instant => match when::parse(trimmed) {
                Some(at) => Ok(Some(at.as_millis().to_string())),
                None => wrong("an instant in UTC, such as 2026-12-01T09:00"),
            },
        }
    }
}

impl Action {
    /// One that asks for nothing.
    pub fn new(method: &'static str, path: String, label: &str, explained: &str) -> Self {
        Self {
            label: label.to_owned(),
            confirm: None,
            title: label.to_owned(),
            explained: explained.to_owned(),
            method,
            path,
            fixed: Map::default(),
            fields: Vec::new(),
            then: Then::Stay,
            is_grave: false,
        }
    }

    /// The same with another title.
    #[must_use]
    #[inline(never)]
    pub fn titled(self, title: impl Into<String>) -> Self {
        Self { title: title.into(), ..self }
    }

    /// The same with another word on the button of its dialog.
    #[must_use]
    #[inline(never)]
    pub fn confirmed(mut self, word: &'static str) -> Self {
        self.confirm = Some(word);
        self
    }

    /// The same with a field.
    #[must_use]
    #[inline(never)]
    pub fn field(mut self, field: Field) -> Self {
        self.fields.push(field);
        self
    }

    /// The same with these fields.
    #[must_use]
    #[inline(never)]
    pub fn fields(mut self, fields: Vec<Field>) -> Self {
        self.fields.extend(fields);
        self
    }

    /// The same with a part of the body that nobody is asked for, as JSON.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts are given as they are")]
    pub fn fixed(mut self, name: &str, json: impl ToString) -> Self {
        self.fixed.insert(name.to_owned(), json.to_string());
        self
    }

    /// The same, which takes something away.
    #[must_use]
    #[inline(never)]
    pub fn grave(self) -> Self {
        Self { is_grave: true, ..self }
    }

    /// The same, after which this is shown.
    #[must_use]
    #[inline(never)]
    pub fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }

    /// What is sent if the fields are filled in like this. `once` is what repeats of the request are known by.
    pub fn request(&self, values: &[String], once: &str) -> Result<Request, String> {
        let mut body = self.fixed.clone();
        // An inner object without a name of anything is none: its numbers may have been filled in before.
        let mut inner: Vec<(&str, bool, Map<String, String>)> = Vec::new();
        let (mut whole, mut path, mut headers) = (None, self.path.clone(), Vec::new());
        let mut mark = '?';
        for (field, text) in self.fields.iter().zip(values) {
            let json = field.read(text)?;
            match &field.goes {
                Goes::Whole => whole = Some(json.unwrap_or_else(|| "null".into())),
                Goes::Body(name) => {
                    if let Some(json) = json {
                        body.insert(name.clone(), json);
                    }
                }
                Goes::Inner(outer, name) => {
                    let known = inner.iter().position(|(known, ..)| *known == outer.as_str());
                    let place = known.unwrap_or(inner.len());
                    if known.is_none() {
                        inner.push((outer, false, Map::default()));
                    }
                    if let (Some(json), Some((_, is_named, object))) = (json, inner.get_mut(place)) {
                        *is_named |= field.kind == Kind::Text;
                        object.insert(name.clone(), json);
                    }
                }
                Goes::Header(name) if !text.trim().is_empty() => {
                    headers.push((*name, text.trim().to_owned()));
                }
                Goes::Query(name) if !text.trim().is_empty() => {
                    path.push(mark);
                    path.push_str(name);
                    path.push('=');
                    path.push_str(&encoded(text.trim()));
                    mark = '&';
                }
                Goes::Header(_) | Goes::Query(_) => {}
                Goes::Path => path = filled(&path, text.trim()),
            }
        }
        for (outer, is_named, object) in inner {
            body.insert(outer.to_owned(), if is_named { json_object(&object) } else { "null".into() });
        }
        if self.method == "POST" && !headers.iter().any(|(name, _)| *name == "idempotency-key") {
            headers.push(("idempotency-key", once.to_owned()));
        }
        let has_object = !body.is_empty() || self.method == "PUT" || self.method == "PATCH";
        let body = whole.or_else(|| has_object.then(|| json_object(&body)));
        let body = body.filter(|_| self.method != "GET" && self.method != "DELETE");
        if body.is_some() {
            // A queue takes a body of any other type as it is.
            headers.push(("content-type", "application/json".to_owned()));
        }
        Ok(Request { method: self.method, path, headers, body })
    }
}

/// A path whose first parameter is this.
fn filled(path: &str, name: &str) -> String {
    let Some((before, rest)) = path.split_once('{') else { return path.to_owned() };
    let after = rest.split_once('}').map_or("", |(_, after)| after);
    format!("{before}{}{after}", encoded(name))
}

fn json_object(fields: &Map<String, String>) -> String {
    let fields: Vec<_> = fields.iter().map(|(name, json)| format!("{}:{json}", json_text(name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// A text as JSON.
pub fn json_text(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// A length of time as it can be read again.
pub fn short_span(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let (length, unit) = units
        .into_iter()
        .find(|(length, _)| ms >= *length && ms.is_multiple_of(*length))
        .unwrap_or((1, "ms"));
    format!("{}{unit}", ms / length)
}

/// An instant as it can be read again.
pub fn short_instant(at: stepwell_protocol::Timestamp) -> String {
    let text = when::absolute(at, 0);
    text.split('.').next().unwrap_or_default().replace(' ', "T")
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Choices that are texts.
pub fn words(words: &[(&str, &str)]) -> Kind {
    Kind::Choice(words.iter().map(|(word, label)| (json_text(word), (*label).to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::Timestamp;

    use super::*;

    fn asked(kind: Kind, text: &str) -> Result<Option<String>, String> {
        Field::of_body("x", "X", kind).read(text)
    }

    #[test]
    fn what_is_filled_in_becomes_json_or_is_refused_in_words() {
        for (kind, text, json) in [
            (Kind::Text, " a\"b ", Some(r#""a\"b""#)),
            (Kind::Text, " ", None),
            (Kind::Free, " a ", Some(r#"" a ""#)),
            (Kind::Number, "1.50", Some("1.50")),
            (Kind::Switch, "", Some("false")),
            (Kind::Switch, "true", Some("true")),
            (Kind::Json, r#"{"a": 1e400}"#, Some(r#"{"a": 1e400}"#)),
            (Kind::Json, "", None),
            (Kind::Lines, "a\n\n b, c \n", Some(r#"["a","b, c"]"#)),
            (Kind::Lines, "", Some("[]")),
            (Kind::Span, "1h 30m", Some("5400000")),
            (Kind::Instant, "1970-01-02", Some("86400000")),
            (words(&[("a", "A")]), r#""a""#, Some(r#""a""#)),
        ] {
            assert_eq!(asked(kind.clone(), text), Ok(json.map(str::to_owned)), "{kind:?} {text}");
        }
        for (kind, text) in [
            (Kind::Number, "x"),
            (Kind::Number, "01"),
            (Kind::Json, "{"),
            (Kind::Span, "2"),
            (Kind::Instant, "tomorrow"),
        ] {
            assert!(asked(kind.clone(), text).is_err(), "{kind:?} {text}");
        }
        assert!(Field::of_path("Id").read(" ").is_err());
        assert_eq!(Field::whole("Input").required().read(""), Ok(Some("null".into())));
    }

    #[test]
    fn each_field_goes_to_its_place() {
        let action = Action::new("POST", "/api/a/{b}/c".into(), "Do", "")
            .fixed("fixed", 7)
            .field(Field::of_path("B"))
            .field(Field::of_body("name", "Name", Kind::Text))
            .field(Field::of_body("left", "Left", Kind::Text))
            .field(Field::of_body("none", "None", Kind::Text).clearing())
            .field(Field::of_header("stepwell-delay", "Delay"))
            .field(Field::of_query("tag", "Tag"))
            .field(Field::of_inner("push", "url", "Push", Kind::Text));
        let values = ["x/y", "n", "", "", "2h", "a b", ""].map(str::to_owned);
        let request = action.request(&values, "once").expect("it can be read");
        assert_eq!(request.path, "/api/a/x%2Fy/c?tag=a%20b");
        assert_eq!(request.body.as_deref(), Some(r#"{"fixed":7,"name":"n","none":null,"push":null}"#));
        assert_eq!(
            request.headers,
            [
                ("stepwell-delay", "2h".to_owned()),
                ("idempotency-key", "once".to_owned()),
                ("content-type", "application/json".to_owned()),
            ]
        );
    }

    #[test]
    fn a_push_without_an_address_is_none_whatever_its_numbers_say() {
        let action = Action::new("PATCH", "/api/x".into(), "Do", "")
            .field(Field::of_inner("push", "url", "Address", Kind::Text))
            .field(Field::of_inner("push", "concurrency", "At once", Kind::Number));
        let body = |url: &str| action.request(&[url.into(), "5".into()], "once").map(|request| request.body);
        assert_eq!(body(""), Ok(Some(r#"{"push":null}"#.into())));
        assert_eq!(body("https://x"), Ok(Some(r#"{"push":{"concurrency":5,"url":"https://x"}}"#.into())));
    }

    #[test]
    fn only_what_asks_for_a_body_sends_one() {
        let plain = |method| Action::new(method, "/api/x".into(), "Do", "").request(&[], "once");
        assert_eq!(plain("POST").map(|request| request.body), Ok(None));
        assert_eq!(plain("DELETE").map(|request| (request.body, request.headers)), Ok((None, vec![])));
        assert_eq!(plain("PUT").map(|request| request.body), Ok(Some("{}".into())));
        let whole = Action::new("POST", "/api/x".into(), "Do", "").field(Field::whole("Input"));
        assert_eq!(
            whole.request(&["[1, 2]".into()], "once").map(|request| request.body),
            Ok(Some("[1, 2]".into()))
        );
    }

    #[test]
    fn lengths_and_instants_are_read_as_they_were_shown() {
        for ms in [0, 1, 1_000, 90_000, 3_600_000, 86_400_000 * 14, 1_234] {
            assert_eq!(span::parse(&short_span(ms)), Some(ms));
        }
        let at = Timestamp::from_millis(1_794_000_000_000);
        assert_eq!(when::parse(&short_instant(at)), Some(at));
    }
}
