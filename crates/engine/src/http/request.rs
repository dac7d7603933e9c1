//! What handlers get of a request, and what they read in it: names in its path, its query, headers and body.

use percent_encoding::percent_decode_str;
use stepwell_core::{ordered::OrdSet, schedule};
use stepwell_protocol::{
    Code, Payload, Seq, Timestamp,
    program::PAYLOAD_BYTES_MAX,
    text::{TAG_LENGTH_MAX, TAGS_MAX, is_tag, is_visible},
    trace::TraceParent,
};

use super::{body, error::Refusal};
use crate::outbound;

/// The headers that the routes of runs look at.
pub const HEADERS: [&str; 5] = ["idempotency-key", "prefer", DELAY, CALLBACK, TRACE];

/// The header that says when a run begins.
pub const DELAY: &str = "stepwell-delay";

/// The header that names the address which is called when a run ends.
pub const CALLBACK: &str = "stepwell-callback";

/// The header that names the span which a run happens within: W3C Trace Context.
pub const TRACE: &str = "traceparent";

/// The longest that a caller may wait for the end of a run.
const WAIT_SECONDS_MAX: u64 = 300;

/// The most events that a page of a history can be asked to have.
const HISTORY_LIMIT_MAX: usize = 1_000;

/// The longest idempotency key or signal id.
const KEY_LENGTH_MAX: usize = 256;

/// The longest name of a workflow or signal.
const NAME_LENGTH_MAX: usize = 128;

/// A request that was let in and read: all that a handler gets.
#[derive(Debug)]
pub struct Incoming {
    /// What its path names.
    pub names: Names,
    /// Its query, without the question mark.
    pub query: String,
    /// The headers that somebody looks at.
    pub headers: Headers,
    /// All that it has, where the route keeps them.
    pub sent: Vec<(String, String)>,
    /// Its body; empty where the route takes none.
    pub body: String,
}

/// What a path names by `{id}` and the like, decoded.
#[derive(Debug, Default)]
pub struct Names(Vec<(&'static str, String)>);

impl Names {
    /// Those in the path of a route; nothing, if they are not UTF-8 text.
    pub fn of(pattern: &'static str, path: &str) -> Option<Self> {
        let segments = pattern.split('/').zip(path.split('/'));
        let named = segments.filter_map(|(wanted, given)| {
            let name = wanted.strip_prefix('{')?.strip_suffix('}')?;
            Some((name, given))
        });
        let decoded = named.map(|(name, given)| {
            let text = percent_decode_str(given).decode_utf8().ok()?;
            Some((name, text.into_owned()))
        });
        decoded.collect::<Option<_>>().map(Self)
    }

    /// Those of a call that has no path. None of them is empty in a path.
    pub fn given(named: Vec<(&'static str, String)>) -> Option<Self> {
        named.iter().all(|(_, value)| !value.is_empty()).then_some(Self(named))
    }

    /// One of them; empty if the route's path does not have it.
    pub fn take(&mut self, wanted: &str) -> String {
        let found = self.0.iter_mut().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| std::mem::take(value)).unwrap_or_default()
    }
}

/// The headers of a request, as far as somebody looks at them.
#[derive(Debug, Default)]
pub struct Headers(Vec<(&'static str, String)>);

impl Headers {
    /// Nothing, if they hold characters that HTTP forbids.
    pub fn of(given: Vec<(&'static str, String)>) -> Option<Self> {
        given.iter().all(|(_, value)| is_allowed(value)).then_some(Self(given))
    }

    /// A header, if it is there.
    pub fn get(&self, wanted: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
    }

    /// A header, if it is there and plain: what else HTTP allows has no meaning.
    pub fn plain(&self, wanted: &str) -> Option<&str> {
        self.get(wanted).filter(|value| value.is_ascii())
    }
}

/// Whether HTTP allows a text as the value of a header.
fn is_allowed(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 127))
}

/// A body that is one JSON value; no body at all is `null`.
pub fn payload(body: String) -> Result<Payload, Refusal> {
    if body::is_empty(&body) {
        return Ok(Payload::null());
    }
    if body.len() > PAYLOAD_BYTES_MAX {
        let detail = format!("The payload has {} bytes; the most is {PAYLOAD_BYTES_MAX}.", body.len());
        return Err(Refusal::new(Code::PayloadTooLarge, detail));
    }
    Payload::from_text(body)
        .map_err(|error| Refusal::new(Code::InvalidRequest, format!("The body is not JSON: {error}.")))
}

/// Refuses what no workflow or signal can be called.
pub fn check_name(what: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > NAME_LENGTH_MAX || !is_visible(name) {
        let detail = format!(
            "Use 1 to {NAME_LENGTH_MAX} bytes for the name of a {what}, without control or invisible characters."
        );
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

/// The `Idempotency-Key`.
pub fn idempotency_key(headers: &Headers) -> Result<Option<String>, Refusal> {
    if headers.get("idempotency-key").is_none() {
        return Ok(None);
    }
    match headers.plain("idempotency-key") {
        Some(key) if is_key(key) => Ok(Some(key.to_owned())),
        Some(_) | None => Err(no_key()),
    }
}

/// Refuses what is no idempotency key, where the path names one.
pub fn check_key(key: &str) -> Result<(), Refusal> {
    if is_key(key) { Ok(()) } else { Err(no_key()) }
}

/// Whether a header could have brought it as a key, and a path can name it: `.` and `..` are taken out of paths, however
/// they are written, and what is left would be about another key.
fn is_key(key: &str) -> bool {
    let is_named_in_paths = !matches!(key, "." | "..");
    (1..=KEY_LENGTH_MAX).contains(&key.len()) && key.is_ascii() && is_allowed(key) && is_named_in_paths
}

fn no_key() -> Refusal {
    let detail = format!(
        "An Idempotency-Key has 1 to {KEY_LENGTH_MAX} visible ASCII characters, and is neither `.` nor `..`."
    );
    Refusal::new(Code::InvalidRequest, detail)
}

/// The seconds of `Prefer: wait=N`, in milliseconds; 0 when the caller does not wait.
pub fn wait_ms(headers: &Headers) -> Result<u64, Refusal> {
    let Some(prefer) = headers.plain("prefer") else { return Ok(0) };
    let Some(wait) = prefer.split(',').find_map(|part| part.trim().strip_prefix("wait=")) else {
        return Ok(0);
    };
    let seconds: u64 = wait.trim().parse().map_err(|_| {
        let detail = format!("`Prefer: wait=N` takes whole seconds, up to {WAIT_SECONDS_MAX}.");
        Refusal::new(Code::InvalidRequest, detail)
    })?;
    Ok(seconds.min(WAIT_SECONDS_MAX) * 1_000)
}

/// When a run begins, by its `Stepwell-Delay`; nothing, if it is to begin at once.
pub fn starts_at(headers: &Headers, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let Some(delay) = headers.get(DELAY) else { return Ok(None) };
    let at = schedule::starts_at(delay, now);
    at.map(Some).map_err(|bad| Refusal::new(Code::InvalidRequest, format!("`Stepwell-Delay`: {bad}")))
}

/// The address that is called when a run ends, by its `Stepwell-Callback`.
pub fn callback(headers: &Headers, is_dev: bool) -> Result<Option<String>, Refusal> {
    let Some(url) = headers.get(CALLBACK) else { return Ok(None) };
    outbound::check("Stepwell-Callback", url, is_dev).map_err(Refusal)?;
    Ok(Some(url.to_owned()))
}

/// The span that a run happens within, by its `traceparent`. One that cannot be read counts as none: so the standard has it,
/// and proxies add them.
pub fn trace(headers: &Headers) -> Option<TraceParent> {
    headers.get(TRACE)?.parse().ok()
}

/// The tags of `?tag=a&tag=b`.
pub fn tags(query: &str) -> Result<Vec<String>, Refusal> {
    let tags: OrdSet<_> = pairs(query).filter(|(name, _)| name == "tag").map(|(_, value)| value).collect();
    let tags: Vec<_> = tags.into_iter().collect();
    check_tags(&tags)?;
    Ok(tags)
}

/// Refuses what no run can have for tags.
pub fn check_tags(tags: &[String]) -> Result<(), Refusal> {
    if tags.len() > TAGS_MAX || !tags.iter().all(|tag| is_tag(tag)) {
        let detail = format!(
            "A run has up to {TAGS_MAX} tags of 1 to {TAG_LENGTH_MAX} bytes, without control or invisible \
             characters."
        );
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

/// The names and values of a query, decoded.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(query.as_bytes()).into_owned()
}

/// The position of `?after=N`.
pub fn after(query: &str) -> Result<Seq, Refusal> {
    let Some(after) = query.split('&').find_map(|part| part.strip_prefix("after=")) else {
        return Ok(Seq(0));
    };
    after
        .parse()
        .map(Seq)
        .map_err(|_| Refusal::new(Code::InvalidRequest, "`after` takes the `next` of the page before."))
}

/// How many events of a history a page may have, if the query says that.
pub fn limit(query: &str) -> Result<Option<usize>, Refusal> {
    let Some(limit) = query.split('&').find_map(|part| part.strip_prefix("limit=")) else {
        return Ok(None);
    };
    let number = limit.parse().ok().filter(|number| (1..=HISTORY_LIMIT_MAX).contains(number));
    let wrong = || format!("`limit` is a number from 1 to {HISTORY_LIMIT_MAX}.");
    number.map(Some).ok_or_else(|| Refusal::new(Code::InvalidRequest, wrong()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_what_stands_in_its_braces() {
        let pattern = "/api/executions/{id}/signals/{name}";
        let mut names = Names::of(pattern, "/api/executions/a+b/signals/%C3%A4%2Fb").expect("it is text");
        assert_eq!((names.take("id"), names.take("name")), ("a+b".into(), "\u{e4}/b".into()));
        assert_eq!(names.take("workflow"), "");
        assert!(Names::of(pattern, "/api/executions/a/signals/%C3").is_none(), "it is no text");
        assert!(
            Names::given(vec![("id", "a".into()), ("name", String::new())]).is_none(),
            "no path has that"
        );
    }

    #[test]
    fn headers_are_what_http_allows() {
        let key = |value: &str| Headers::of(vec![("idempotency-key", value.to_owned())]);
        for forbidden in ["a\nb", "a\rb", "\0", "\u{7f}"] {
            assert!(key(forbidden).is_none(), "{forbidden:?}");
        }
        for (value, is_key) in [("a b\t~", true), ("", false), ("\u{e4}", false), (".", false), ("..", false)]
        {
            let headers = key(value).expect("HTTP allows it");
            assert_eq!(idempotency_key(&headers).is_ok(), is_key, "{value:?}");
        }
        for (key, is_key) in [
            ("a b\t~", true),
            ("a/b%\\?#", true),
            (&"k".repeat(256), true),
            ("...", true),
            (".a", true),
            (".", false),
            ("..", false),
            ("", false),
            (&"k".repeat(257), false),
            ("\0", false),
            ("a\nb", false),
            ("\u{7f}", false),
            ("\u{e4}", false),
        ] {
            assert_eq!(check_key(key).is_ok(), is_key, "{key:?}");
        }
        let none = idempotency_key(&Headers::default());
        assert_eq!(none.map_err(|refusal| refusal.0.code), Ok(None));
    }
}
