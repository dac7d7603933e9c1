//! What people write for the command line: its configuration, times and lengths of time.

use std::path::Path;

use stepwell_cli::{
    config::{self, Given, Key},
    words,
};
use stepwell_protocol::{Timestamp, text::is_hidden};

use crate::text;

/// The shortest text that could be a secret.
const SECRET_LENGTH: usize = 8;

/// A configuration file. What it says wrong is told without quoting what could be a key.
pub fn cli_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let file = match config::parse(Path::new("config.toml"), text) {
        Ok(file) => file,
        Err(failure) => {
            for secret in quoted(text) {
                assert!(!failure.what.contains(secret), "{} has {secret}", failure.what);
            }
            return;
        }
    };
    let variable = |name: &str| Some(format!("key-of-{name}"));
    for profile in file.names().map(str::to_owned).chain(["none".to_owned()]) {
        let given = Given { profile: Some(profile), ..Given::default() };
        if let Ok(target) = config::resolve(given, &file, &variable) {
            assert!(target.address.starts_with("http") && !target.address.ends_with('/'));
            let key = target.key.as_ref().map(Key::secret).unwrap_or_default();
            assert!(key.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
    let elsewhere = Given { address: Some("https://elsewhere.example".into()), ..Given::default() };
    let target =
        config::resolve(elsewhere, &file, &variable).unwrap_or_else(|failure| panic!("{}", failure.what));
    assert_eq!(target.key, None, "a profile's key was sent to another address");
}

/// The texts in quotes that may be secrets.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let values = text.lines().filter_map(|line| line.split_once('=')).map(|(_, value)| value.trim());
    let values = values.filter_map(|value| value.strip_prefix('"')?.strip_suffix('"'));
    values.filter(|value| {
        value.len() >= SECRET_LENGTH && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Times, and lengths of time.
pub fn cli_time(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(at) = words::parse_time(text) {
        assert!(at <= Timestamp::MAX);
        assert_eq!(words::parse_time(&at.as_millis().to_string()), Ok(at));
        assert!(!words::date(at).is_empty() && !words::distance(at, words::now()).is_empty());
    }
    if let Ok(ms) = words::parse_length(text) {
        assert!(!words::length(ms).is_empty());
        assert!(words::parse_time(text).is_ok(), "how long ago is a time: {text}");
    }
    assert!(!words::plain(text).contains(is_hidden));
    assert!(words::cut(text, 12).chars().count() <= 12);
}
