//! Where spans go: a collector of OpenTelemetry traces, by OTLP over HTTP in JSON.
//!
//! Owns: its settings, which have the names of OpenTelemetry's own, and how spans are written. Does not own: which spans there
//! are (a cell's machine says that).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::Serialize;
use stepwell_core::cell::{Sampling, Span};
use stepwell_protocol::{Payload, Timestamp};
use wasm_bindgen::JsValue;
use worker::{Env, Url};

use crate::{
    log,
    runtime::{self, variable},
};

/// The collector's address, without `/v1/traces`.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// What it is sent with: `name=value`, separated by commas.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Who decides which traces it gets.
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";

/// Which part of the traces it gets, where the sampler goes by that.
const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";

/// The name of the service there.
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// How long it may take to answer.
const ANSWER_MS: f64 = 10_000.0;

/// A collector of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Collector {
    url: String,
    headers: Vec<(String, String)>,
    service: String,
    /// Which traces it gets.
    pub sampling: Sampling,
}

impl Collector {
    /// The deployment's, if it has one, or what is wrong with its settings.
    pub fn of(env: &Env) -> Result<Option<Self>, String> {
        let set = |name| variable(env, name).filter(|text| !text.is_empty());
        let Some(endpoint) = set(ENDPOINT) else { return Ok(None) };
        let [headers, sampler, ratio] = [HEADERS, SAMPLER, RATIO].map(set);
        let service = set(SERVICE).unwrap_or_else(|| "stepwell".to_owned());
        let (url, headers) = (traces_of(&endpoint)?, headers_of(&headers.unwrap_or_default())?);
        let sampling = sampling(sampler.as_deref(), ratio.as_deref())?;
        Ok(Some(Self { url, headers, service, sampling }))
    }

    /// Sends spans of a namespace. They are not sent again.
    pub async fn send(&self, namespace: &str, spans: &[Span]) -> Result<(), String> {
        let body =
            Payload::encode(&self.request(namespace, spans)).map_err(|error| error.to_string())?.into_text();
        let own = [("content-type".to_owned(), "application/json".to_owned())];
        let (names, values) = own.into_iter().chain(self.headers.iter().cloned()).unzip();
        let answer = runtime::push_job(&self.url, names, values, &JsValue::from(body), ANSWER_MS);
        match runtime::settle(answer.into()).await {
            Ok(answer) => {
                let status = runtime::property(&answer, "0").as_f64().unwrap_or_default();
                if (200.0..300.0).contains(&status) { Ok(()) } else { Err(format!("it answered {status}")) }
            }
            Err(error) => Err(runtime::message(&error)),
        }
    }

    fn request<'a>(&'a self, namespace: &'a str, spans: &'a [Span]) -> Request<'a> {
        let attributes = vec![
            Attribute::text("service.name", self.service.as_str()),
            Attribute::text("stepwell.namespace", namespace),
        ];
        let scope = Scope { name: "stepwell", version: env!("CARGO_PKG_VERSION") };
        let scoped = ScopeSpans { scope, spans: spans.iter().map(WrittenSpan::of).collect() };
        let of_resource = ResourceSpans { resource: Resource { attributes }, scope_spans: [scoped] };
        Request { resource_spans: [of_resource] }
    }
}

/// The address that traces are posted to. Nothing of it is repeated: it may hold a password.
fn traces_of(endpoint: &str) -> Result<String, String> {
    let is_plain = |url: &Url| {
        let is_bare = url.query().is_none() && url.fragment().is_none();
        is_bare && url.username().is_empty() && url.password().is_none()
    };
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
    Url::parse(endpoint).ok().filter(|url| is_web(url) && is_plain(url)).ok_or_else(|| {
        format!(
            "The variable {ENDPOINT} cannot be used. Set the address of an OTLP collector, such as \
             https://otel.example.com, and its password in {HEADERS}."
        )
    })?;
    Ok(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
}

fn headers_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let wrong = || format!("The variable {HEADERS} cannot be read. Set name=value, separated by commas.");
    pairs.map(header).collect::<Option<Vec<_>>>().ok_or_else(wrong)
}

fn sampling(sampler: Option<&str>, ratio: Option<&str>) -> Result<Sampling, String> {
    let (by_caller, is_by_ratio) = match sampler.unwrap_or("parentbased_traceidratio") {
        "parentbased_traceidratio" => (true, true),
        "traceidratio" => (false, true),
        "parentbased_always_on" => (true, false),
        "always_on" => (false, false),
        "parentbased_always_off" => return Ok(Sampling { ratio: 0.0, by_caller: true }),
        "always_off" => return Ok(Sampling { ratio: 0.0, by_caller: false }),
        other => {
            return Err(format!(
                "The variable {SAMPLER} is '{other}'. It takes always_on, always_off, traceidratio, or one of \
                 them after parentbased_."
            ));
        }
    };
    let wrong =
        |text: &str| format!("The variable {RATIO} is '{text}'. Set a number from 0 to 1, such as 0.1.");
    let read =
        |text: &str| text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(|| wrong(text));
    let ratio = ratio.map_or(Ok(1.0), read)?;
    Ok(Sampling { ratio: if is_by_ratio { ratio } else { 1.0 }, by_caller })
}

/// A header of the list: its name, and its value without the percent signs that OpenTelemetry wants in it.
fn header(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    let name = name.trim().to_ascii_lowercase();
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
    let is_clean = value.chars().all(|c| c == '\t' || (' '..='~').contains(&c));
    (!name.is_empty() && name.chars().all(is_token) && is_clean).then(|| (name, value.into_owned()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<Attribute<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<WrittenSpan<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSpan<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    /// Internal: nothing that came over a wire or went out over one.
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<State<'a>>,
}

#[derive(Serialize)]
struct State<'a> {
    /// An error.
    code: u8,
    message: &'a str,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: Value<'a>,
}

#[derive(Serialize)]
enum Value<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    /// As text: JSON's numbers have no 64 bits.
    #[serde(rename = "intValue")]
    Number(String),
}

impl<'a> Attribute<'a> {
    fn text(key: &'static str, text: impl Into<Cow<'a, str>>) -> Self {
        Self { key, value: Value::Text(text.into()) }
    }
}

impl<'a> WrittenSpan<'a> {
    fn of(span: &'a Span) -> Self {
        let mut attributes = vec![
            Attribute::text("stepwell.run.id", span.run.to_string()),
            Attribute::text("stepwell.workflow", span.workflow.as_str()),
            Attribute::text("stepwell.kind", span.what),
        ];
        if span.attempt > 0 {
            let attempt = Value::Number(span.attempt.to_string());
            attributes.push(Attribute { key: "stepwell.attempt", value: attempt });
        }
        if let Some(ended) = span.ended {
            attributes.push(Attribute::text("stepwell.status", ended));
        }
        if let Some(failure) = &span.failure {
            let code = failure.code.map_or("failed", |code| code.as_str());
            attributes.push(Attribute::text("error.type", code));
        }
        Self {
            trace_id: span.trace.to_string(),
            span_id: span.id.to_string(),
            parent_span_id: span.parent.map(|parent| parent.to_string()),
            name: log::visible(&span.name),
            kind: 1,
            start_time_unix_nano: nanos(span.from),
            end_time_unix_nano: nanos(span.to),
            attributes,
            status: span.failure.as_ref().map(|failure| State { code: 2, message: &failure.message }),
        }
    }
}

fn nanos(at: Timestamp) -> String {
    format!("{}000000", at.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_opentelemetry_has_them() {
        let url = traces_of("https://otel.example.com/").expect("an address");
        assert_eq!(url, "https://otel.example.com/v1/traces");
        let headers = [("api-key", "a b"), ("x-tenant", "acme")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(headers_of("api-key=a%20b, X-Tenant=acme,").expect("a list"), headers);
        let by_caller = |sampler, ratio| sampling(sampler, ratio).expect("good settings");
        assert_eq!(by_caller(None, None), Sampling { ratio: 1.0, by_caller: true });
        assert_eq!(by_caller(None, Some("0.25")), Sampling { ratio: 0.25, by_caller: true });
        assert_eq!(by_caller(Some("traceidratio"), Some("0")), Sampling { ratio: 0.0, by_caller: false });
        assert_eq!(by_caller(Some("always_on"), Some("0")), Sampling { ratio: 1.0, by_caller: false });
    }

    #[test]
    fn settings_that_mean_nothing_are_refused_without_their_secrets() {
        for endpoint in [
            "otel.example.com/secret",
            "ftp://otel.example.com/secret",
            "https://otel.example.com?key=secret",
            "https://me:secret@otel.example.com",
            "https://otel.example.com#secret",
        ] {
            let error = traces_of(endpoint).expect_err("refused");
            assert!(error.contains(ENDPOINT) && !error.contains("secret"), "{error}");
        }
        for headers in ["secret", "a b=secret", "a=secret%0d%0ab: c"] {
            let error = headers_of(headers).expect_err("refused");
            assert!(error.contains(HEADERS) && !error.contains("secret"), "{error}");
        }
        for ratio in ["2", "NaN", "-0.1", "half"] {
            assert!(sampling(None, Some(ratio)).is_err(), "{ratio}");
        }
        assert!(sampling(Some("sometimes"), None).is_err());
    }
}
