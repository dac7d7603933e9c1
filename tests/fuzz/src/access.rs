//! What callers bring: keys, sessions, scopes, and the headers and cookies that carry them.

use stepwell_engine::reading;
use stepwell_protocol::{
    access::Permission,
    key::{self, Kind, NAMESPACE_LENGTH_MAX, NotAKey, RANDOM_BYTES},
};

use crate::{json, text};

/// API keys and session tokens: a text to be read, and a key to be made of the same bytes.
pub fn api_key(data: &[u8]) {
    if let Some(text) = text(data) {
        assert!(!key::is_namespace(text) || text.len() <= NAMESPACE_LENGTH_MAX);
        if key::read(text).is_ok() {
            assert_is_key(text);
        }
    }
    let Some((random, rest)) = data.split_first_chunk::<RANDOM_BYTES>() else { return };
    let Some((kind, namespace)) = rest.split_first() else { return };
    let Some(namespace) = text(namespace).filter(|name| key::is_namespace(name)) else { return };
    let kind = Kind::ALL[usize::from(*kind) % Kind::ALL.len()];
    let fresh = key::make(kind, namespace, *random);
    assert_eq!(key::read(&fresh.text), Ok(fresh.named.clone()));
    assert_is_key(&fresh.text);
    for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
        let relabelled = fresh.text.replacen(kind.as_str(), other.as_str(), 1);
        assert_eq!(key::read(&relabelled), Err(NotAKey::Checksum), "{relabelled}");
    }
}

/// A key says what stands in its text, and no other text that differs in one character is a key.
fn assert_is_key(text: &str) {
    let named = key::read(text).expect("it was read before");
    assert!(key::is_namespace(&named.namespace) && key::is_id(&named.id));
    assert!(text.starts_with(&format!("sw_{}_{}_{}", named.kind.as_str(), named.namespace, named.id)));
    for (at, byte) in text.bytes().enumerate() {
        let mut changed = text.to_owned();
        changed.replace_range(at..=at, if byte == b'0' { "1" } else { "0" });
        assert!(key::read(&changed).is_err(), "{changed} was taken");
    }
    assert!(!reading::is_token(text), "a key is no token");
}

/// Scopes.
pub fn permission(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(permission) = text.parse::<Permission>() {
        assert_eq!(permission.to_string(), text);
        assert_eq!(json::read_back::<Permission>(&json::write(&permission)), Some(permission));
    } else {
        assert!(json::read_back::<Permission>(&json::write(&text)).is_none());
    }
}

/// What a header or a cookie carries.
pub fn credential(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let brought = reading::bearer(text);
    assert!(text.contains(brought) && brought.trim() == brought);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(reading::bearer(&format!("{scheme} {text}")), text.trim());
    }
    assert_eq!(reading::bearer(&format!("Basic {text}")), "");
    for is_https in [false, true] {
        if let Some(session) = reading::session_of(text, is_https) {
            assert!(text.contains(session) && !session.contains(';'));
        }
        if !text.contains(';') && text.trim() == text {
            let cookie = reading::cookie(is_https, text);
            let pair = cookie.split(';').next().unwrap_or_default();
            let cookies = format!("theme=dark; {pair}; lang=en");
            assert_eq!(reading::session_of(&cookies, is_https), Some(text));
            assert_eq!(reading::session_of(&cookies, !is_https), None);
            assert_eq!(reading::session_of(&format!("not_{pair}"), is_https), None);
        }
    }
}
