//! Asks a deployment over HTTP, and says what it means when that does not work.

use std::{error::Error as _, io, time::Duration};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use stepwell_protocol::{
    Payload, Record,
    rest::{HistoryEvent, RunView, Why},
};
use ureq::{
    Agent, AsSendBody, Body, BodyReader, RequestBuilder,
    http::{Request, Response, request},
    typestate,
};

use crate::{
    config::{Target, is_loopback},
    failure::{Exit, Failure, Result},
    lock::{self, Holder},
    project::Project,
};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer may take beyond the time that the server was asked to wait.
const ANSWER: Duration = Duration::from_secs(60);

/// The same where somebody else says how long the server waits: at most five minutes.
const LONG_ANSWER: Duration = Duration::from_secs(360);

/// For how long a stream may say nothing at all: every 15 seconds it says at least that it is alive.
const SILENCE: Duration = Duration::from_secs(45);

/// The longest answer that is read: a page of a history has about 1 MiB, and one event more.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What may stand in one part of a path as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Asks one deployment.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    target: Target,
}

/// A request: everything that a route takes.
#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    /// Names and values of its query.
    pub query: Vec<(&'a str, String)>,
    /// Its body, if it changes something.
    pub body: Option<String>,
    /// What makes it safe to repeat.
    pub idempotency_key: Option<String>,
    /// When the run starts: after a length of time, or at an instant.
    pub delay: Option<String>,
    /// The address that is called when the run ends.
    pub callback: Option<String>,
    /// For how many seconds the server may wait for the end of the run.
    pub wait: u64,
    /// What to do if nobody knows whether it was done; about runs, if that is not said.
    pub doubt: Option<&'static str>,
}

/// An answer: its text as it came, and what it says.
#[derive(Debug)]
pub struct Answer<T> {
    /// The JSON text.
    pub text: String,
    /// What it says.
    pub value: T,
}

impl<T> Answer<T> {
    /// The JSON text, to be put into another.
    pub fn raw(&self) -> Payload {
        Payload::from_text(self.text.clone()).unwrap_or_default()
    }
}

/// A run's whole history. What people stored is kept as the text that it came in.
#[derive(Debug, Default)]
pub struct Journal {
    /// What the run was started with.
    pub input: Option<Payload>,
    /// What a replay needs besides.
    pub replay: Option<Payload>,
    /// All events that count.
    pub events: Vec<Record>,
    /// How many do not: a retry or restart took the run back to before them, or it has begun anew since.
    pub cut: usize,
    /// The same as they came.
    pub raw: Vec<Payload>,
}

#[derive(Deserialize)]
struct RawHistory {
    input: Option<Payload>,
    replay: Option<Payload>,
    events: Vec<Payload>,
    next: Option<u64>,
}

impl Client {
    /// A client for this deployment.
    pub fn new(target: Target) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")));
        // A machine's proxy has no way to this machine's loopback.
        let config = if is_loopback(&target.address) { config.proxy(None) } else { config };
        Self { agent: config.build().into(), target }
    }

    /// Shows a run; waits for its end up to `wait` seconds.
    pub fn run(&self, id: &str, wait: u64) -> Result<Answer<RunView>> {
        self.get(&["executions", id], &Ask { wait, ..Ask::default() })
    }

    /// Says why a run is where it is.
    pub fn why(&self, id: &str) -> Result<Answer<Why>> {
        self.get(&["executions", id, "why"], &Ask::default())
    }

    /// A run's whole history, with what a replay needs if that is asked for.
    pub fn journal(&self, id: &str, for_replay: bool) -> Result<Journal> {
        let mut journal = Journal::default();
        let mut after = 0;
        loop {
            let mut query = vec![("after", after.to_string())];
            if for_replay {
                query.push(("replay", "true".into()));
            }
            let page: Answer<RawHistory> =
                self.get(&["executions", id, "history"], &Ask { query, ..Ask::default() })?;
            let RawHistory { input, replay, events, next } = page.value;
            journal.input = journal.input.or(input);
            journal.replay = journal.replay.or(replay);
            journal.raw.extend(events);
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
        for event in &journal.raw {
            let HistoryEvent { seq, at, event, cut, .. } =
                event.decode().map_err(|error| self.unknown(&error))?;
            if cut {
                journal.cut += 1;
            } else {
                journal.events.push(Record { seq, at, event });
            }
        }
        Ok(journal)
    }

    /// Asks for something.
    pub fn get<T: DeserializeOwned>(&self, path: &[&str], ask: &Ask<'_>) -> Result<Answer<T>> {
        self.read(self.send_get(path, ask)?)
    }

    /// Changes something.
    pub fn post<T: DeserializeOwned>(&self, path: &[&str], ask: &Ask<'_>) -> Result<Answer<T>> {
        self.change(self.agent.post(self.url(path, &ask.query)?), ask)
    }

    /// Puts something in the place of what was there.
    pub fn put<T: DeserializeOwned>(&self, path: &[&str], ask: &Ask<'_>) -> Result<Answer<T>> {
        self.change(self.agent.put(self.url(path, &ask.query)?), ask)
    }

    /// Changes a part of what is there.
    pub fn patch<T: DeserializeOwned>(&self, path: &[&str], ask: &Ask<'_>) -> Result<Answer<T>> {
        self.change(self.agent.patch(self.url(path, &ask.query)?), ask)
    }

    /// Takes something away. That can be repeated, so nobody has to wonder whether it was done.
    pub fn delete<T: DeserializeOwned>(&self, path: &[&str], ask: &Ask<'_>) -> Result<Answer<T>> {
        let request = self.as_caller(self.agent.delete(self.url(path, &ask.query)?));
        self.read(request.config().timeout_recv_response(Some(ANSWER)).build().call())
    }

    /// Delivers something at an address that needs no key, as another service does: the body as it is.
    pub fn deliver<T: DeserializeOwned>(
        &self,
        path: &[&str],
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Answer<T>> {
        let mut request = self.agent.post(self.url(path, &[])?).content_type("application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        self.read(request.config().timeout_recv_response(Some(ANSWER)).build().send(body))
    }

    /// Opens a stream, which goes on after the cursor.
    pub fn stream(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        cursor: Option<&str>,
    ) -> Result<BodyReader<'static>> {
        let mut request = self.as_caller(self.agent.get(self.url(path, query)?));
        request = request.header("accept", "text/event-stream");
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let config = request.config().timeout_recv_response(Some(ANSWER)).timeout_per_read(Some(SILENCE));
        let mut response = self.accept(config.build().call())?;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind != Some("text/event-stream") {
            let text = self.text(&mut response).unwrap_or_default();
            return Err(self.refused(response.status().as_u16(), &text));
        }
        Ok(response.into_body().into_reader())
    }

    /// Passes a request of somebody else on, with this client's key: the answer as it is, whatever it says. The target
    /// is a path with its query.
    pub fn pass_on(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response<Body>> {
        let request = self.foreign(method, target, headers);
        let sent = if body.is_empty() && !matches!(method, "POST" | "PUT" | "PATCH") {
            self.send(request.body(()), LONG_ANSWER, Some(LONG_ANSWER))
        } else {
            self.send(request.body(body), LONG_ANSWER, Some(LONG_ANSWER))
        };
        sent.map_err(|error| self.no_answer(&error))
    }

    /// The same for a stream of events, which goes on for as long as the server says anything.
    pub fn pass_on_stream(&self, target: &str, headers: &[(&str, &str)]) -> Result<Response<Body>> {
        let headers: Vec<_> = headers.iter().copied().filter(|(name, _)| *name != "accept").collect();
        let request = self.foreign("GET", target, &headers).header("accept", "text/event-stream");
        let sent = self.send(request.body(()), ANSWER, Some(SILENCE));
        sent.map_err(|error| self.no_answer(&error))
    }

    fn foreign(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{target}", self.target.address));
        let key = self.target.key.as_ref().map(|key| format!("Bearer {}", key.secret()));
        let request = key.into_iter().fold(request, |request, key| request.header("authorization", key));
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }

    fn send<B: AsSendBody>(
        &self,
        request: std::result::Result<Request<B>, ureq::http::Error>,
        answer: Duration,
        per_read: Option<Duration>,
    ) -> std::result::Result<Response<Body>, ureq::Error> {
        let config = self.agent.configure_request(request.map_err(ureq::Error::Http)?);
        let config = config.timeout_recv_response(Some(answer)).timeout_per_read(per_read);
        self.agent.run(config.build())
    }

    fn change<T: DeserializeOwned>(
        &self,
        request: RequestBuilder<typestate::WithBody>,
        ask: &Ask<'_>,
    ) -> Result<Answer<T>> {
        let mut request = self.as_caller(request);
        if let Some(key) = &ask.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(delay) = &ask.delay {
            request = request.header("stepwell-delay", delay);
        }
        if let Some(url) = &ask.callback {
            request = request.header("stepwell-callback", url);
        }
        if ask.wait > 0 {
            request = request.header("prefer", format!("wait={}", ask.wait));
        }
        let request = request.content_type("application/json").config();
        let request = request.timeout_recv_response(Some(ANSWER + Duration::from_secs(ask.wait))).build();
        let sent = request.send(ask.body.as_deref().unwrap_or_default());
        self.read(sent).map_err(|failure| {
            if failure.code.as_deref() != Some(BROKEN_OFF) {
                return failure;
            }
            // Nobody knows whether the server got it.
            failure.next(ask.doubt.unwrap_or(
                "It may have been accepted: look with `stepwell list`. With --idempotency-key it can be repeated safely.",
            ))
        })
    }

    fn as_caller<T>(&self, request: RequestBuilder<T>) -> RequestBuilder<T> {
        match &self.target.key {
            Some(key) => request.header("authorization", format!("Bearer {}", key.secret())),
            None => request,
        }
    }

    /// Asks for something and gives the bare status, for whoever wants to know what is there.
    pub fn status(&self, path: &[&str], ask: &Ask<'_>) -> Result<(u16, String)> {
        let mut response = self.send_get(path, ask)?.map_err(|error| self.no_answer(&error))?;
        let text = self.text(&mut response)?;
        Ok((response.status().as_u16(), text))
    }

    fn send_get(
        &self,
        path: &[&str],
        ask: &Ask<'_>,
    ) -> Result<std::result::Result<Response<Body>, ureq::Error>> {
        let mut request = self.as_caller(self.agent.get(self.url(path, &ask.query)?));
        if ask.wait > 0 {
            request = request.header("prefer", format!("wait={}", ask.wait));
        }
        let timeout = ANSWER + Duration::from_secs(ask.wait);
        Ok(request.config().timeout_recv_response(Some(timeout)).build().call())
    }

    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Result<String> {
        let mut url = format!("{}/api", self.target.address);
        for part in path {
            if matches!(*part, "." | "..") {
                let what = format!("'{part}' cannot be a part of an address");
                return Err(Failure::new(Exit::Usage, what).next("Use another name."));
            }
            url.push('/');
            url.extend(utf8_percent_encode(part, SEGMENT));
        }
        if !query.is_empty() {
            url.push('?');
            url.push_str(&form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish());
        }
        Ok(url)
    }

    fn read<T: DeserializeOwned>(
        &self,
        sent: std::result::Result<Response<Body>, ureq::Error>,
    ) -> Result<Answer<T>> {
        let mut response = self.accept(sent)?;
        let text = self.text(&mut response)?;
        let value = serde_json::from_str(&text).map_err(|error| self.unknown(&error))?;
        Ok(Answer { text, value })
    }

    /// An answer that is what was asked for.
    fn accept(&self, sent: std::result::Result<Response<Body>, ureq::Error>) -> Result<Response<Body>> {
        let mut response = sent.map_err(|error| self.no_answer(&error))?;
        let status = response.status().as_u16();
        if (300..400).contains(&status) {
            let to =
                response.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            let what = format!("{} leads to {}", self.target.address, crate::words::plain(to));
            return Err(Failure::new(Exit::Unreachable, what).next("Take the address that it leads to."));
        }
        if status >= 400 {
            let text = self.text(&mut response)?;
            return Err(self.refused(status, &text));
        }
        Ok(response)
    }

    fn text(&self, response: &mut Response<Body>) -> Result<String> {
        let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        body.read_to_string().map_err(|error| self.no_answer(&error))
    }

    /// The server said no.
    fn refused(&self, status: u16, text: &str) -> Failure {
        let problem: Value = serde_json::from_str(text).unwrap_or_default();
        let field = |name: &str| problem.get(name).and_then(Value::as_str).map(crate::words::plain);
        let (Some(code), Some(detail)) = (field("code"), field("detail")) else {
            let what = format!("{} answered {status}, and not as Stepwell does", self.target.address);
            return Failure::new(Exit::Unreachable, what)
                .next("Is it the address of a Stepwell deployment? `stepwell doctor` checks.");
        };
        let failure = Failure::new(Exit::Refused, detail).code(code.clone());
        match code.as_str() {
            "unauthorized" if self.target.key.is_none() => failure.next(
                "Set STEPWELL_KEY, or `key` in a profile, to the key of this deployment. The project that `stepwell dev` \
                 serves has its own: run the command in the project's folder.",
            ),
            "unauthorized" => failure.next(format!(
                "The key comes from {}: is it the one of {}?",
                self.target.key_source, self.target.address
            )),
            "forbidden" => failure.next(format!(
                "The key comes from {}; docs/keys.md explains scopes.",
                self.target.key_source
            )),
            "key_not_found" => failure.next("`stepwell keys list` lists the keys."),
            "namespace_not_found" | "namespace_exists" | "namespace_deleting" => {
                failure.next("`stepwell namespaces list` lists the namespaces.")
            }
            "run_not_found" => failure.next("`stepwell list` lists the runs."),
            "wrong_status" | "run_ended" => failure.next("`stepwell why RUN` shows its status."),
            "workflow_paused" => failure.next(
                "`stepwell workflows list` says who paused it, and `stepwell workflows resume NAME` resumes it.",
            ),
            "signal_not_found" => failure.next("`stepwell show RUN --json` lists its events with their positions (`seq`)."),
            "webhook_not_found" => failure.next("`stepwell webhooks list TOPIC` lists the webhooks of a topic."),
            "step_not_found" => failure.next("`stepwell show RUN` lists its steps."),
            "internal" => failure.next(match field("request_id") {
                Some(id) => format!("Try again. If it persists, look for the request {id} in the Worker's log."),
                None => "Try again. If it persists, read the Worker's log.".to_owned(),
            }),
            _ => match field("type") {
                Some(page) => failure.next(format!("See {page}")),
                None => failure,
            },
        }
    }

    /// An answer makes no sense.
    pub fn unknown(&self, error: &serde_json::Error) -> Failure {
        let what = format!("the answer of {} cannot be understood: {error}", self.target.address);
        Failure::new(Exit::Unreachable, what)
            .next("Is the deployment newer than this command? `stepwell --version` prints its version.")
    }

    /// A stream broke, and did not come back.
    pub fn broken(&self, why: &str) -> Failure {
        let what = format!("the stream of {} broke: {why}", self.target.address);
        Failure::new(Exit::Unreachable, what).code(BROKEN_OFF).next(self.start_it())
    }

    fn no_answer(&self, error: &ureq::Error) -> Failure {
        let address = &self.target.address;
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "whatever else there may be is told in its own words"
        )]
        let (why, code, next) = match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                ("no server is listening there".to_owned(), None, self.start_it())
            }
            ureq::Error::ConnectionFailed => ("the connection failed".to_owned(), None, self.start_it()),
            ureq::Error::Io(error) if error.to_string().contains("InvalidContentType") => {
                let next = "Begin the address with http:// instead of https://.".to_owned();
                ("it does not speak TLS".to_owned(), None, next)
            }
            ureq::Error::HostNotFound => {
                let next = format!("Look at the name; it comes from {}.", self.target.source);
                ("there is no such host".to_owned(), None, next)
            }
            ureq::Error::Timeout(_) => {
                let next = "Try again; `stepwell doctor` looks whether it answers at all.".to_owned();
                ("it took too long".to_owned(), Some(BROKEN_OFF), next)
            }
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                let next = format!("It comes from {}.", self.target.source);
                ("this is no address".to_owned(), None, next)
            }
            other => {
                let cause = other.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                (crate::words::plain(&format!("{other}{cause}")), Some(BROKEN_OFF), self.start_it())
            }
        };
        let failure = Failure::new(Exit::Unreachable, format!("no answer from {address}: {why}")).next(next);
        if let Some(code) = code { failure.code(code) } else { failure }
    }

    fn start_it(&self) -> String {
        let data = Project::find().ok().map(|project| project.data()).filter(|data| lock::is_held(data));
        how_to_start(&self.target, data.and_then(|data| lock::holder(&data)))
    }
}

/// What to do about a server that does not answer, given who has the lock on this project's data.
fn how_to_start(target: &Target, dev: Option<Holder>) -> String {
    let source = &target.source;
    match dev.filter(|dev| dev.address == target.address) {
        Some(Holder { process, .. }) => format!(
            "`stepwell dev` (process {process}) is running and does not answer: it may still be building. Try again when \
             it prints `ready`."
        ),
        None if is_loopback(&target.address) => {
            format!("Start it with `stepwell dev`, or name another address: this one comes from {source}.")
        }
        None => format!("Look at the address, which comes from {source}; `stepwell doctor` says more."),
    }
}

/// The code of a request that got no answer, though it may have arrived.
const BROKEN_OFF: &str = "no_answer";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_still_being_built_is_not_to_be_started_again() {
        let target = Target::of_dev("http://127.0.0.1:8787", None);
        let dev = |address: &str| Some(Holder { process: 7, address: address.to_owned() });
        let building = how_to_start(&target, dev("http://127.0.0.1:8787"));
        assert!(building.contains("(process 7)") && building.contains("`ready`"), "{building}");
        for other in [None, dev("http://127.0.0.1:9000")] {
            let text = how_to_start(&target, other);
            assert!(text.starts_with("Start it with `stepwell dev`"), "{text}");
        }
    }
}
