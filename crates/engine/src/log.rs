//! Lines of the log, each a JSON object on the console.
//!
//! Owns: up to which level lines are written (`STEPWELL_LOG`), and how they look. Does not own: which lines there are about
//! runs (a cell's machine says that).

use std::{
    cell::{Cell, RefCell},
    fmt::Arguments,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
};

use serde::Serialize;
use stepwell_core::cell::{Level, Line};
use stepwell_protocol::{Code, Epoch, RunId, Timestamp, text::is_hidden};
use worker::Env;

use crate::runtime::{self, variable};

/// The variable that says up to which level lines are written.
const VARIABLE: &str = "STEPWELL_LOG";

/// The level where nothing is said. Lines are billed, and a run that goes well is in its journal anyway: so only what went
/// wrong is written.
const DEFAULT: Level = Level::Warn;

thread_local! {
    // Variables stay as they are for as long as this isolate lives.
    static LEVEL: Cell<Option<Level>> = const { Cell::new(None) };
    /// The id of the request that something is done for right now.
    static REQUEST: RefCell<Option<Rc<str>>> = const { RefCell::new(None) };
}

/// Does something for a request: its lines have the request's id. Others go on whenever it waits for something, and what they
/// do is not done for it.
pub async fn on_behalf<T>(request: Option<&str>, mut done: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
    let id: Option<Rc<str>> = request.map(Rc::from);
    poll_fn(|context| {
        let outer = REQUEST.replace(id.clone());
        let polled = done.as_mut().poll(context);
        REQUEST.set(outer);
        polled
    })
    .await
}

/// The level of the deployment, or what is wrong with the variable.
pub fn level_of(env: &Env) -> Result<Level, String> {
    match variable(env, VARIABLE).filter(|text| !text.is_empty()) {
        None => Ok(DEFAULT),
        Some(text) => Level::of(&text).ok_or_else(|| {
            format!("The variable {VARIABLE} is '{text}'. It takes off, error, warn, info or debug.")
        }),
    }
}

/// Reads the level, once for each isolate. To be called where anything begins.
pub fn begin(env: &Env) -> Level {
    LEVEL.get().unwrap_or_else(|| {
        let level = level_of(env).unwrap_or(DEFAULT);
        LEVEL.set(Some(level));
        level
    })
}

/// Whether lines of a level are written.
pub fn is_on(level: Level) -> bool {
    level <= LEVEL.get().unwrap_or(DEFAULT)
}

/// Writes what has happened to a run.
pub fn run(namespace: &str, line: &Line) {
    let request = REQUEST.with_borrow(Clone::clone);
    let Line { level, event, run, workflow, epoch, name, attempt, code, by } = line;
    // A program names its steps as it likes, and terminals obey more characters than JSON escapes.
    let name = name.as_deref().map(visible);
    put(&Written {
        event: Some(event),
        namespace: Some(namespace),
        run: Some(run),
        workflow: Some(workflow),
        epoch: Some(*epoch),
        name: name.as_deref(),
        attempt: *attempt,
        code: *code,
        by: by.as_deref(),
        request: request.as_deref(),
        ..Written::of(*level)
    });
}

/// Writes what became of a request: the pattern of its route, never its path.
pub fn request(level: Level, id: &str, method: &str, route: Option<&str>, status: u16, code: Option<Code>) {
    if is_on(level) {
        let event = Some("request_answered");
        let (request, method, status) = (Some(id), Some(method), Some(status));
        put(&Written { event, code, method, route, status, request, ..Written::of(level) });
    }
}

/// Writes a sentence. See [`error`], [`warn`] and [`info`].
pub fn message(level: Level, text: Arguments<'_>) {
    if is_on(level) {
        let request = REQUEST.with_borrow(Clone::clone);
        let text = visible(&text.to_string());
        put(&Written { message: Some(&text), request: request.as_deref(), ..Written::of(level) });
    }
}

/// A text without what nobody sees, but terminals may obey.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect()
}

macro_rules! error {
    ($($text:tt)*) => { $crate::log::message(stepwell_core::cell::Level::Error, format_args!($($text)*)) };
}

macro_rules! warning {
    ($($text:tt)*) => { $crate::log::message(stepwell_core::cell::Level::Warn, format_args!($($text)*)) };
}

macro_rules! info {
    ($($text:tt)*) => { $crate::log::message(stepwell_core::cell::Level::Info, format_args!($($text)*)) };
}

// `warn` alone is an attribute of the compiler.
pub(crate) use {error, info, warning as warn};

/// A line as it is written.
#[derive(Default, Serialize)]
struct Written<'a> {
    at: Timestamp,
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
}

impl Written<'_> {
    fn of(level: Level) -> Self {
        Self { at: runtime::clock(), level: level.as_str(), ..Self::default() }
    }
}

fn put(written: &Written<'_>) {
    let text = serde_json::to_string(written).expect("a line holds only what JSON can say");
    match written.level {
        "error" => worker::console_error!("{text}"),
        "warn" => worker::console_warn!("{text}"),
        _ => worker::console_log!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_only_what_is_known() {
        let written = Written {
            level: "warn",
            message: Some("a \"quoted\"\nname"),
            request: Some("r1"),
            ..Written::default()
        };
        let text = serde_json::to_string(&written).expect("it is JSON");
        assert_eq!(text, r#"{"at":0,"level":"warn","message":"a \"quoted\"\nname","request":"r1"}"#);
    }

    #[test]
    fn each_level_has_a_word() {
        for level in Level::ALL {
            assert_eq!(Level::of(level.as_str()), Some(level));
        }
        assert_eq!(Level::of("verbose"), None);
        assert!(Level::Off < Level::Error && Level::Warn < Level::Debug);
    }
}
