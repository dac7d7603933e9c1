//! Which deployment is meant: its address and its key.
//!
//! A key belongs to an address. One that stands in a profile is only ever sent to that profile's address.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::failure::{Failure, Result};

/// Where `stepwell dev` serves.
pub const LOCAL_ADDRESS: &str = "http://127.0.0.1:8787";

/// What `stepwell dev` takes for the key if nobody says another.
pub const LOCAL_KEY: &str = "local-key";

/// The deployment's key. Whatever prints it, prints that there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key itself, for the header that carries it and for workerd's environment; for nothing else.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Which deployment is meant.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address, without a slash at the end.
    pub address: String,
    /// Its key, if one was found.
    pub key: Option<Key>,
    /// Where the address comes from, in words.
    pub source: String,
    /// Where the key comes from, in words.
    pub key_source: String,
}

/// What the command line and the environment say about it.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `--address`
    pub address: Option<String>,
    /// `--key`
    pub key: Option<Key>,
    /// `--profile`
    pub profile: Option<String>,
    /// `STEPWELL_ADDRESS`
    pub environment_address: Option<String>,
    /// `STEPWELL_KEY`
    pub environment_key: Option<Key>,
}

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The profile that counts if none is named.
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, Profile>,
}

impl File {
    /// The names of its profiles.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    address: String,
    key: Option<String>,
    /// The environment variable that has the key.
    key_env: Option<String>,
}

/// Where the configuration file is, whether it exists or not.
pub fn path() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("STEPWELL_CONFIG").or_else(|| {
        let folder = from("XDG_CONFIG_HOME").or_else(|| from("HOME").map(|home| home.join(".config")))?;
        Some(folder.join("stepwell").join("config.toml"))
    })
}

/// Finds out which deployment is meant.
pub fn target(given: Given) -> Result<Target> {
    let path = path();
    let file = match &path {
        Some(path) => read(path)?,
        None => File::default(),
    };
    resolve(given, &file, &|name| std::env::var(name).ok())
}

fn read(path: &Path) -> Result<File> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => return Err(Failure::usage(format!("{} cannot be read: {error}", path.display()))),
    };
    parse(path, &text)
}

/// Reads the text of a configuration file.
pub fn parse(path: &Path, text: &str) -> Result<File> {
    toml::from_str(text).map_err(|error| {
        let place = error.span().map(|span| {
            let line = text.get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1;
            format!(", line {line}")
        });
        let place = place.unwrap_or_default();
        Failure::usage(format!("{}{place}: {}", path.display(), unquoted(error.message())))
            .next("See docs/cli.md for the form of the file.")
    })
}

/// The parser's words without what they quote of the file: a key may stand anywhere.
fn unquoted(message: &str) -> String {
    match (message.split_once('"'), message.rsplit_once('"')) {
        (Some((before, _)), Some((_, after))) => format!("{before}\"…\"{after}"),
        (_, _) => message.to_owned(),
    }
}

/// Finds out which deployment is meant, by what is said about it.
pub fn resolve(given: Given, file: &File, variable: &dyn Fn(&str) -> Option<String>) -> Result<Target> {
    let Given { address, key, profile, environment_address, environment_key } = given;
    let is_named = profile.is_some();
    let key = key.map(|key| (key, "--key".to_owned()));
    // Who names a profile means its key too, whatever the environment has for another deployment.
    let environment_key = environment_key.filter(|_| !is_named || address.is_some());
    let key = key.or_else(|| Some((environment_key?, "STEPWELL_KEY".to_owned())));
    if let Some(address) = address {
        return target_at(&address, key, "--address".into());
    }
    if !is_named && let Some(address) = environment_address {
        return target_at(&address, key, "STEPWELL_ADDRESS".into());
    }
    let Some(name) = profile.or_else(|| file.default.clone()) else {
        return target_at(LOCAL_ADDRESS, key, "the default".into());
    };
    let Some(found) = file.profiles.get(&name) else {
        let known: Vec<_> = file.names().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Failure::usage(format!("there is no profile '{name}'; the configuration has: {known}")));
    };
    let source = format!("the profile '{name}'");
    let own = match (&found.key, &found.key_env) {
        (Some(key), _) => Some((Key(key.clone()), source.clone())),
        (None, Some(name)) => variable(name).map(|key| (Key(key), name.clone())),
        (None, None) => None,
    };
    target_at(&found.address, key.or(own), source)
}

fn target_at(address: &str, key: Option<(Key, String)>, source: String) -> Result<Target> {
    let address = address.trim_end_matches('/').to_owned();
    if !address.starts_with("http://") && !address.starts_with("https://") {
        let what = format!("'{address}' is no address: it begins with http:// or https://");
        return Err(Failure::usage(what).next(format!("For `stepwell dev` it is {LOCAL_ADDRESS}.")));
    }
    let local = || (Key(LOCAL_KEY.into()), "`stepwell dev`".to_owned());
    let key = key.or_else(|| is_loopback(&address).then(local));
    if let Some((Key(key), from)) = &key
        && !key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        let what =
            format!("the key of {from} has characters that cannot be sent: only visible ASCII ones can");
        return Err(Failure::usage(what).next("Look for a space or a line break at its end."));
    }
    let (key, key_source) = key.map_or((None, String::new()), |(key, from)| (Some(key), from));
    Ok(Target { address, key, source, key_source })
}

/// Whether an address is on this machine.
pub fn is_loopback(address: &str) -> bool {
    let rest = address.strip_prefix("http://").or_else(|| address.strip_prefix("https://"));
    let authority = rest.unwrap_or_default().split('/').next().unwrap_or_default();
    let host = if let Some(v6) = authority.strip_prefix('[') {
        v6.split(']').next().unwrap_or_default()
    } else {
        authority.split(':').next().unwrap_or_default()
    };
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        default = "staging"
        [profiles.staging]
        address = "https://staging.example/"
        key = "staging-key"
        [profiles.production]
        address = "https://production.example"
        key_env = "PRODUCTION_KEY"
    "#;

    fn find(given: Given) -> Target {
        let file: File = toml::from_str(FILE).expect("it is a configuration");
        let variable = |name: &str| (name == "PRODUCTION_KEY").then(|| "production-key".to_owned());
        resolve(given, &file, &variable).expect("it makes sense")
    }

    fn secret(target: &Target) -> Option<&str> {
        target.key.as_ref().map(Key::secret)
    }

    #[test]
    fn without_a_word_the_default_profile_counts() {
        let target = find(Given::default());
        assert_eq!(
            (target.address.as_str(), secret(&target)),
            ("https://staging.example", Some("staging-key"))
        );
    }

    #[test]
    fn a_named_profile_brings_its_own_key_whatever_the_environment_has() {
        let target = find(Given {
            profile: Some("production".into()),
            environment_address: Some("https://other.example".into()),
            environment_key: Some(Key("other-key".into())),
            ..Given::default()
        });
        assert_eq!(
            (target.address.as_str(), secret(&target)),
            ("https://production.example", Some("production-key"))
        );
    }

    #[test]
    fn the_key_of_a_profile_is_never_sent_to_another_address() {
        let target = find(Given { address: Some("https://other.example".into()), ..Given::default() });
        assert_eq!(secret(&target), None);
    }

    #[test]
    fn only_an_address_on_this_machine_gets_the_local_key() {
        for (address, key) in [
            ("http://127.0.0.1:1", Some(LOCAL_KEY)),
            ("http://localhost:8787", Some(LOCAL_KEY)),
            ("http://[::1]:8787", Some(LOCAL_KEY)),
            ("http://127.0.0.1.example:8787", None),
            ("https://localhost.example", None),
        ] {
            let target = find(Given { address: Some(address.into()), ..Given::default() });
            assert_eq!(secret(&target), key, "{address}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_file_is_said_without_its_texts() {
        for wrong in [
            "[profiles]\nproduction = \"secret-key\"",
            "profiles = \"secret-key\"",
            "default = [\"secret-key\"]",
            "[profiles.a]\naddress = \"http://x\"\nkey = secret-key",
            "[profiles.a]\nkey = \"secret-key",
            "[profiles.a]\nkey = \"secret-key\"",
        ] {
            let failure = parse(Path::new("config.toml"), wrong).expect_err(wrong);
            assert!(!failure.what.contains("secret-key"), "{}", failure.what);
            assert!(failure.what.starts_with("config.toml, line "), "{}", failure.what);
        }
    }

    #[test]
    fn a_key_is_not_shown_by_debug() {
        assert!(!format!("{:?}", find(Given::default())).contains("staging-key"));
    }
}
