//! What a delivery becomes: an event's name, id and data, by the expressions of its webhook.

use serde_json::{Map, Value as Json};
use stepwell_protocol::{
    Code, Payload, Problem,
    topic::{EVENT_BYTES_MAX, NewEvent, is_event_id, is_given_id, is_part},
    webhook::{
        WebhookKind, WebhookSpec,
        schemes::{hashed_id, header, id_header},
    },
};

use crate::expression::Expression;

/// What expressions of webhooks go by.
const NAMES: [&str; 2] = ["body", "headers"];

/// The most bytes of the text that a name is made of.
const NAME_BYTES_MAX: usize = 256;

/// What a webhook makes of a delivery, read once.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    name: Name,
    id: Option<Expression>,
    data: Option<Expression>,
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
        Ok(Self { name, id: optional("id", &spec.id)?, data: optional("data", &spec.data)? })
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
        let json = match &as_it_came {
            Some(payload) => payload.decode::<Json>().unwrap_or_default(),
            None => foreign(headers, body),
        };
        let field = |name: &str| json.get(name).and_then(Json::as_str);
        if spec.kind == WebhookKind::Slack
            && field("type") == Some("url_verification")
            && let Some(challenge) = field("challenge")
        {
            return Ok(Made::Challenge(challenge.to_owned()));
        }
        let sent =
            headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), Json::from(value.as_str())));
        let sent = Json::Object(sent.collect::<Map<_, _>>());
        let names = [("body", &json), ("headers", &sent)];
        let value = |field: &str, expression: &Expression| {
            expression.value_of(&names).map_err(|failed| {
                bad(format!("The webhook's `{field}` has no value for this delivery: {failed}."))
            })
        };
        let text = |field: &str, expression: &Expression| match value(field, expression)? {
            Json::String(text) => Ok(text),
            Json::Number(number) => Ok(number.to_string()),
            Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => {
                Err(bad(format!("The webhook's `{field}` gives no text for this delivery.")))
            }
        };
        let name = match &self.name {
            Name::Fixed(name) => name.clone(),
            Name::Computed(expression) => named(topic, &text("event", expression)?)?,
        };
        let id = match &self.id {
            Some(expression) => Some(text("id", expression)?),
            None => match (id_header(spec), spec.kind) {
                (Some(name), _) => header(headers, name).map(ToOwned::to_owned),
                (None, WebhookKind::Stripe) => field("id").map(ToOwned::to_owned),
                (None, WebhookKind::Slack) => field("event_id").map(ToOwned::to_owned),
                (None, WebhookKind::Standard | WebhookKind::Github | WebhookKind::Hmac) => None,
            },
        };
        let data = match (&self.data, as_it_came) {
            (Some(expression), _) => encoded(&value("data", expression)?),
            (None, Some(payload)) => payload,
            (None, None) => encoded(&json),
        };
        if data.size() > EVENT_BYTES_MAX {
            let detail = format!("The event has {} bytes, and {EVENT_BYTES_MAX} are the most.", data.size());
            return Err(Problem::new(Code::PayloadTooLarge, detail));
        }
        // An id that no event can have is known by its hash, and so is a delivery that has none.
        let id = match id {
            Some(id) if is_event_id(&id) && !is_given_id(&id) => id,
            Some(id) => hashed_id(&id),
            None => hashed_id(body),
        };
        Ok(Made::Event(NewEvent { name, id: Some(id), data }))
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
fn foreign(headers: &[(String, String)], body: &str) -> Json {
    let kind = header(headers, "content-type").unwrap_or_default();
    if kind.starts_with("application/x-www-form-urlencoded") {
        let fields = form_urlencoded::parse(body.as_bytes());
        return fields.map(|(name, value)| (name.into_owned(), Json::from(value.into_owned()))).collect();
    }
    body.into()
}

fn encoded(json: &Json) -> Payload {
    Payload::encode(json).unwrap_or_default()
}

fn bad(detail: String) -> Problem {
    Problem::new(Code::InvalidRequest, detail)
}
