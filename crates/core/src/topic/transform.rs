//! What a delivery becomes: an event's name, id and data, by the expressions of its webhook.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value as Json, value::RawValue};
use stepwell_protocol::{
    Code, Payload, Problem, json,
    topic::{EVENT_BYTES_MAX, NewEvent, is_event_id, is_given_id, is_part},
    webhook::{
        WebhookKind, WebhookSpec,
        schemes::{hashed_id, header, id_header},
    },
};

use crate::expression::{Expression, Found};

/// What expressions of webhooks go by.
const NAMES: [&str; 2] = ["body", "headers"];

/// The most bytes of the text that a name is made of.
const NAME_BYTES_MAX: usize = 256;

/// The most keys and values of a body that is looked into. Each takes up to 400 bytes of memory, and two in the text.
const PARTS_MAX: usize = 100_000;

/// What a webhook makes of a delivery, read once.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    name: Name,
    id: Option<Expression>,
    data: Option<Expression>,
    /// Whether one of them goes by the body.
    reads_body: bool,
}

/// How an event of the topic is called.
#[derive(Clone, Debug)]
enum Name {
    Fixed(String),
    /// What comes after the topic.
    Computed(Expression),
}

/// What was made of a delivery.
#[derive(Debug)]
pub(super) enum Made {
    /// An event.
    Event(NewEvent),
    /// Nothing: the sender wants to be told this text, to know that the address is good.
    Challenge(String),
}

/// What the kinds of webhooks go by in a body. The rest of it is passed over, and not kept.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Known<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    event_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    challenge: Option<&'a RawValue>,
}

impl Transform {
    /// Reads what a webhook says.
    pub fn read(topic: &str, spec: &WebhookSpec) -> Result<Self, Problem> {
        let read = |field: &str, text: &str| {
            let parsed = Expression::parse(text, &NAMES);
            parsed.map_err(|error| bad(format!("`{field}` is no expression: {error}.")))
        };
        let rest = spec.event.strip_prefix(topic).and_then(|rest| rest.strip_prefix('/'));
        let computed = rest.and_then(|rest| rest.strip_prefix('{')?.strip_suffix('}'));
        let name = match (rest, computed) {
            (_, Some(expression)) => Name::Computed(read("event", expression)?),
            (Some(rest), None) if is_part(rest) => Name::Fixed(spec.event.clone()),
            (Some(_) | None, None) => {
                return Err(bad(format!(
                    "`event` names no event of the topic '{topic}'. Write '{topic}/NAME', or '{topic}/{{EXPRESSION}}', \
                     as in '{topic}/{{body.type}}'."
                )));
            }
        };
        let optional =
            |field: &str, text: &Option<String>| text.as_deref().map(|text| read(field, text)).transpose();
        let (id, data) = (optional("id", &spec.id)?, optional("data", &spec.data)?);
        let computed = if let Name::Computed(expression) = &name { Some(expression) } else { None };
        let is_of_body =
            |expression: &Expression| expression.fields_of("body").is_none_or(|fields| !fields.is_empty());
        let reads_body = [computed, id.as_ref(), data.as_ref()].into_iter().flatten().any(is_of_body);
        Ok(Self { name, id, data, reads_body })
    }

    /// What a delivery becomes. The headers are without secrets.
    pub fn make(
        &self,
        topic: &str,
        spec: &WebhookSpec,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Made, Problem> {
        let as_it_came = Payload::from_text(body.to_owned()).ok();
        let tree = match &as_it_came {
            Some(payload) if self.reads_body => {
                check_parts(body, parts)?;
                payload.decode::<Json>().unwrap_or_default()
            }
            Some(_) => Json::Null,
            None => foreign(headers, body)?,
        };
        let of_kind = known(spec.kind, body);
        let field = |name: &str, raw: Option<&RawValue>| match raw {
            Some(raw) => json::from_str::<String>(raw.get()).ok(),
            // Of a form.
            None => tree.get(name).and_then(Json::as_str).map(ToOwned::to_owned),
        };
        if spec.kind == WebhookKind::Slack
            && field("type", of_kind.kind).as_deref() == Some("url_verification")
            && let Some(challenge) = field("challenge", of_kind.challenge)
        {
            return Ok(Made::Challenge(challenge));
        }
        let sent =
            headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), Json::from(value.as_str())));
        let sent = Json::Object(sent.collect::<Map<_, _>>());
        let names = [("body", &tree), ("headers", &sent)];
        let name = match &self.name {
            Name::Fixed(name) => name.clone(),
            Name::Computed(expression) => named(topic, &found_text("event", expression, &names)?)?,
        };
        let id = match &self.id {
            Some(expression) => Some(found_text("id", expression, &names)?),
            None => match (id_header(spec), spec.kind) {
                (Some(name), _) => header(headers, name).map(Cow::from),
                (None, WebhookKind::Stripe) => field("id", of_kind.id).map(Cow::from),
                (None, WebhookKind::Slack) => field("event_id", of_kind.event_id).map(Cow::from),
                (None, WebhookKind::Standard | WebhookKind::Github | WebhookKind::Hmac) => None,
            },
        };
        let data = match (&self.data, as_it_came) {
            (Some(expression), _) => found("data", expression, &names)?.encode(EVENT_BYTES_MAX),
            (None, Some(payload)) => Some(payload),
            (None, None) => Payload::encode(&tree).ok(),
        };
        let data = data.filter(|data| data.size() <= EVENT_BYTES_MAX).ok_or_else(|| {
            let detail = format!("The event has more than {EVENT_BYTES_MAX} bytes, which is the most.");
            Problem::new(Code::PayloadTooLarge, detail)
        })?;
        // An id that no event can have is known by its hash, and so is a delivery that has none.
        let id = match id {
            Some(id) if is_event_id(&id) && !is_given_id(&id) => id.into_owned(),
            Some(id) => hashed_id(&id),
            None => hashed_id(body),
        };
        Ok(Made::Event(NewEvent { name, id: Some(id), data }))
    }
}

/// What an expression is for a delivery.
fn found<'a>(
    field: &str,
    expression: &'a Expression,
    names: &[(&str, &'a Json)],
) -> Result<Found<'a>, Problem> {
    expression
        .find(names)
        .map_err(|failed| bad(format!("The webhook's `{field}` has no value for this delivery: {failed}.")))
}

/// The same, where it has to be a text.
fn found_text<'a>(
    field: &str,
    expression: &'a Expression,
    names: &[(&str, &'a Json)],
) -> Result<Cow<'a, str>, Problem> {
    let text = found(field, expression, names)?.text();
    text.ok_or_else(|| bad(format!("The webhook's `{field}` gives no text for this delivery.")))
}

/// What a kind goes by in a body. Nothing is in one that is no object.
fn known(kind: WebhookKind, body: &str) -> Known<'_> {
    match kind {
        WebhookKind::Stripe | WebhookKind::Slack => json::from_str(body).unwrap_or_default(),
        WebhookKind::Standard | WebhookKind::Github | WebhookKind::Hmac => Known::default(),
    }
}

/// The name of an event that a text stands for: what no name can have becomes a dot.
fn named(topic: &str, text: &str) -> Result<String, Problem> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let rest: String = text.chars().take(NAME_BYTES_MAX).map(|c| if is_good(c) { c } else { '.' }).collect();
    let rest = rest.trim_matches('.');
    if is_part(rest) {
        return Ok(format!("{topic}/{rest}"));
    }
    Err(bad(
        "The webhook's `event` gives no name for this delivery: it is empty, or has more than 64 characters."
            .into(),
    ))
}

/// A body that is no JSON: the fields of a form, or a text.
fn foreign(headers: &[(String, String)], body: &str) -> Result<Json, Problem> {
    let kind = header(headers, "content-type").unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Ok(body.into());
    }
    check_parts(body, |body| body.bytes().filter(|byte| matches!(byte, b'&' | b'=')).count())?;
    let fields = form_urlencoded::parse(body.as_bytes());
    Ok(fields.map(|(name, value)| (name.into_owned(), Json::from(value.into_owned()))).collect())
}

/// Refuses to look into a body that would take tens of megabytes of memory as a tree.
fn check_parts(body: &str, count: impl Fn(&str) -> usize) -> Result<(), Problem> {
    // Each takes a byte.
    if body.len() <= PARTS_MAX || count(body) <= PARTS_MAX {
        return Ok(());
    }
    let detail = format!(
        "The body has more than {PARTS_MAX} keys and values, which is the most that a webhook looks into. JSON of any \
         size is accepted by a webhook whose expressions do not read `body`."
    );
    Err(Problem::new(Code::PayloadTooLarge, detail))
}

/// Whether a JSON text would take tens of megabytes of memory as a tree.
pub fn is_too_much(text: &str) -> bool {
    // Each takes a byte.
    text.len() > PARTS_MAX && parts(text) > PARTS_MAX
}

/// About how many keys and values a JSON text has: one for each sign before one, outside of strings.
fn parts(text: &str) -> usize {
    let (mut parts, mut is_string, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        let is_plain = !std::mem::take(&mut is_escaped);
        if is_string {
            is_escaped = is_plain && byte == b'\\';
            is_string = byte != b'"' || !is_plain;
        } else {
            is_string = byte == b'"';
            parts += usize::from(matches!(byte, b'{' | b'[' | b',' | b':'));
        }
    }
    parts
}

fn bad(detail: String) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}
