//! Which addresses that users give may be called: of consumers, of issuers' keys, of all that follows.
//!
//! Owns: the one guard for all of them. It lets through https addresses of public names, and nothing that a URL parser,
//! a resolver or a proxy could take for something else. It does not look names up: a Worker cannot, and on Cloudflare its
//! calls leave from Cloudflare's network, not from yours. Whoever runs workerd on a machine of their own has to keep names
//! that resolve to private addresses out by `allow` of its network service, which permits public ones only by default.

use stepwell_protocol::{Code, Problem, queue::URL_LENGTH_MAX};
use wasm_bindgen::JsValue;
use worker::{Env, Url};

use crate::{runtime, settings::is_loopback};

/// The ports that an address may name: those that Cloudflare calls by HTTPS.
const PORTS: [u16; 6] = [443, 2053, 2083, 2087, 2096, 8443];

/// The last labels of names that no public resolver knows, or that stand for the machine itself.
const PRIVATE: [&str; 17] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "arpa",
    "test",
    "invalid",
    "onion",
    "alt",
    "svc",
    "cluster",
    "workgroup",
];

/// Refuses an address that must not be called, and says why. `what` names the field that it is in.
pub fn check(what: &str, text: &str, is_dev: bool) -> Result<(), Problem> {
    let refused = |why: &str| {
        let detail = format!("`{what}` cannot be called: {why}.");
        Err(Problem::new(Code::InvalidRequest, detail))
    };
    if is_dev && is_local(text) {
        return Ok(());
    }
    match mistake(text) {
        None => Ok(()),
        Some(why) => refused(why),
    }
}

/// Whether it is an address of this machine, which only development may call.
fn is_local(text: &str) -> bool {
    is_plain(text)
        && Url::parse(text).is_ok_and(|url| {
            let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
            is_bare && url.scheme() == "http" && url.host_str().is_some_and(is_loopback)
        })
}

/// Only what every parser reads alike: no spaces, no controls, no backslashes, nothing beyond ASCII.
fn is_plain(text: &str) -> bool {
    text.len() <= URL_LENGTH_MAX && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

fn mistake(text: &str) -> Option<&'static str> {
    if !is_plain(text) {
        return Some("use at most 2,048 visible ASCII characters, without backslashes");
    }
    let Some(rest) = text.strip_prefix("https://") else {
        return Some("use an https:// address; http:// works only for this machine, with STEPWELL_DEV=1");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if text.contains('#') || authority.contains('@') {
        return Some("leave out user names and fragments");
    }
    let (host, port) = match authority.split_once(':') {
        // As it is written usually: no sign, no zeros before it.
        Some((host, port)) => (host, PORTS.into_iter().find(|known| known.to_string() == port)),
        None => (authority, Some(443)),
    };
    if port.is_none() {
        return Some("use the port 443, 2053, 2083, 2087, 2096 or 8443");
    }
    let labels: Vec<_> = host.split('.').collect();
    let is_label = |label: &&str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = labels.last().copied().unwrap_or_default();
    // What ends in a number is an address to every parser, in whatever notation.
    let is_name = last.starts_with(|first: char| first.is_ascii_alphabetic());
    if labels.len() < 2 || host.len() > 253 || !labels.iter().all(is_label) || !is_name {
        return Some("name a public host; addresses by number are refused");
    }
    if PRIVATE.iter().any(|private| last.eq_ignore_ascii_case(private)) {
        return Some("its host is private");
    }
    // The parser of the runtime must see the same host.
    let read = Url::parse(text).ok().and_then(|url| url.host_str().map(str::to_owned));
    (!read.is_some_and(|read| read.eq_ignore_ascii_case(host))).then_some("its host cannot be read")
}

/// The Cloudflare Queue that is bound by this name.
pub fn sink(env: &Env, sink: &str) -> Option<JsValue> {
    let queue = runtime::property(env, sink);
    runtime::property(&queue, "send").is_function().then_some(queue)
}

/// What is said of a sink that is not there.
pub fn no_sink(sink: &str) -> String {
    format!(
        "The engine's Worker has no Cloudflare Queue bound as {sink}. Add it to [[queues.producers]] and deploy."
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn public_names_over_https_may_be_called() {
        for good in [
            "https://example.com",
            "https://example.com/",
            "https://api.example.com:8443/hooks?a=b&c=%20d",
            "https://EXAMPLE.com/a/b.c",
            "https://xn--bcher-kva.example/",
            "https://a-b.example.co.uk/?q=http://127.0.0.1/",
            "https://example.com/@user",
            "https://127.0.0.1.example.com/",
        ] {
            assert!(check("url", good, false).is_ok() && check("url", good, true).is_ok(), "{good}");
        }
    }

    #[test]
    fn whatever_else_is_refused_also_in_development() {
        let kinds: BTreeMap<String, Vec<String>> = serde_json::from_str(BAD).expect("it is JSON");
        let bad: Vec<_> = kinds.into_values().flatten().collect();
        assert!(bad.len() >= 80, "{}", bad.len());
        for bad in &bad {
            assert!(check("url", bad, true).is_err() && check("url", bad, false).is_err(), "{bad}");
        }
    }

    /// What people have tried against guards like this one, by kind. `just ssrf` tries it on the real Worker.
    const BAD: &str = include_str!("outbound_cases.json");

    #[test]
    fn this_machine_may_be_called_in_development_only() {
        for local in
            ["http://127.0.0.1:8080/a", "http://localhost:1/", "http://[::1]:1/", "http://127.0.0.9/"]
        {
            assert!(check("url", local, true).is_ok() && check("url", local, false).is_err(), "{local}");
        }
    }
}
