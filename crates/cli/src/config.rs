//! Which deployment is meant: its address and its key.
//!
//! A key belongs to an address. One that stands in a profile is only ever sent to that profile's address, and the one
//! of a project only to the port on this machine where the project is served. No key goes over plain http to another
//! machine, unless a person insists.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use ureq::http::Uri;

use crate::{
    failure::{Failure, Result},
    private,
};

/// Where `stepwell dev` serves, if no other port is named.
pub const LOCAL_ADDRESS: &str = "http://127.0.0.1:8787";

/// The profile that every project has: what `stepwell dev` serves.
const LOCAL_PROFILE: &str = "local";

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
    /// Whether the key stands in the configuration file.
    pub key_is_in_file: bool,
}

impl Target {
    /// What `stepwell dev` serves.
    pub fn of_dev(address: impl Into<String>, key: Option<Key>) -> Self {
        let source = "`stepwell dev`".to_owned();
        Self { address: address.into(), key, key_source: source.clone(), source, key_is_in_file: false }
    }
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
    /// `--insecure`
    pub insecure: bool,
    /// What the project of this folder is served with on this machine.
    pub local: Option<Local>,
}

/// What a project is served with on this machine.
#[derive(Clone, Debug)]
pub struct Local {
    /// Its address.
    pub address: String,
    /// Its key.
    pub key: Key,
    /// Where the key comes from, in words.
    pub key_source: String,
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
    let target = resolve(given, &file, &|name| std::env::var(name).ok())?;
    if let Some(path) = path.filter(|path| target.key_is_in_file && private::is_open_to_others(path)) {
        let path = path.display();
        anstream::eprintln!(
            "warning: other users of this machine can read the keys in {path}: run `chmod 600 {path}`"
        );
    }
    Ok(target)
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
            .next("docs/cli.md describes the file.")
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
    let Given { address, key, profile, environment_address, environment_key, insecure, local } = given;
    let is_named = profile.is_some();
    let key = key.map(|key| (key, "--key".to_owned()));
    // Who names a profile means its key too, whatever the environment has for another deployment.
    let environment_key = environment_key.filter(|_| !is_named || address.is_some());
    let key = key.or_else(|| Some((environment_key?, "STEPWELL_KEY".to_owned())));
    let target_at = |address: &str, key, source| target_at(address, key, source, insecure, local.as_ref());
    if let Some(address) = address {
        return target_at(&address, key, "--address".into());
    }
    if !is_named && let Some(address) = environment_address {
        return target_at(&address, key, "STEPWELL_ADDRESS".into());
    }
    let name = profile.or_else(|| file.default.clone());
    // A configuration may have a profile of this name too.
    let Some(name) = name.filter(|name| name != LOCAL_PROFILE || file.profiles.contains_key(name)) else {
        return match &local {
            Some(local) => target_at(&local.address, key, "`stepwell dev` in this project".into()),
            None => target_at(LOCAL_ADDRESS, key, "the default".into()),
        };
    };
    let Some(found) = file.profiles.get(&name) else {
        let known: Vec<_> = file.names().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Failure::usage(format!("there is no profile '{name}'; the configuration has: {known}")));
    };
    let source = format!("the profile '{name}'");
    let is_in_file = key.is_none() && found.key.is_some();
    let own = match (&found.key, &found.key_env) {
        (Some(key), _) => Some((Key(key.clone()), source.clone())),
        (None, Some(name)) => variable(name).map(|key| (Key(key), name.clone())),
        (None, None) => None,
    };
    let target = target_at(&found.address, key.or(own), source)?;
    Ok(Target { key_is_in_file: is_in_file, ..target })
}

fn target_at(
    address: &str,
    key: Option<(Key, String)>,
    source: String,
    insecure: bool,
    local: Option<&Local>,
) -> Result<Target> {
    let address = address.trim_end_matches('/').to_owned();
    if !address.starts_with("http://") && !address.starts_with("https://") {
        let what = format!("'{address}' is not an address: it must begin with http:// or https://");
        return Err(Failure::usage(what).next(format!("For `stepwell dev` it is {LOCAL_ADDRESS}.")));
    }
    // `http://localhost@elsewhere` leads elsewhere, and does not look like it.
    let uri = address.parse::<Uri>().ok();
    if uri.and_then(|uri| Some(uri.authority()?.as_str().contains('@'))).unwrap_or_default() {
        let what = format!("the address from {source} has a user name or a password in it");
        return Err(
            Failure::usage(what).next("Take out everything up to the '@'. Name a key with STEPWELL_KEY.")
        );
    }
    let local = local.filter(|local| is_loopback(&address) && port(&address) == port(&local.address));
    let key = key.or_else(|| local.map(|local| (local.key.clone(), local.key_source.clone())));
    if let Some((Key(key), from)) = &key
        && !key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        let what =
            format!("the key of {from} has characters that cannot be sent: only visible ASCII ones can");
        return Err(Failure::usage(what).next("Look for a space or a line break at its end."));
    }
    if key.is_some() && address.starts_with("http://") && !is_loopback(&address) && !insecure {
        let what =
            format!("refusing to send your key to {address}: others on the network can read plain http");
        return Err(Failure::usage(what)
            .next("Use https://. If you trust the network, such as a VPN, add --insecure."));
    }
    let (key, key_source) = key.map_or((None, String::new()), |(key, from)| (Some(key), from));
    Ok(Target { address, key, source, key_source, key_is_in_file: false })
}

/// Whether an address is on this machine.
pub fn is_loopback(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let ip = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || ip.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The port that an address names.
fn port(address: &str) -> Option<u16> {
    let uri = address.parse::<Uri>().ok()?;
    uri.port_u16().or_else(|| Some(if uri.scheme_str() == Some("https") { 443 } else { 80 }))
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

    fn in_project(given: Given) -> Result<Target> {
        let local = Local {
            address: "http://127.0.0.1:9000".into(),
            key: Key("project-key".into()),
            key_source: "`stepwell dev`".into(),
        };
        resolve(Given { local: Some(local), ..given }, &File::default(), &|_| None)
    }

    #[test]
    fn only_the_port_where_the_project_is_served_gets_its_key() {
        for (address, key) in [
            ("http://127.0.0.1:9000", Some("project-key")),
            ("http://localhost:9000", Some("project-key")),
            ("http://[::1]:9000", Some("project-key")),
            ("http://127.0.0.1:8787", None),
            ("http://127.0.0.1.example:9000", None),
            ("https://localhost.example:9000", None),
            ("https://localhost.example", None),
        ] {
            let target = in_project(Given { address: Some(address.into()), ..Given::default() });
            assert_eq!(secret(&target.expect(address)), key, "{address}");
        }
    }

    #[test]
    fn a_project_is_found_without_a_word_and_as_the_profile_local() {
        for profile in [None, Some(LOCAL_PROFILE.to_owned())] {
            let target = in_project(Given { profile, ..Given::default() }).expect("it makes sense");
            assert_eq!(
                (target.address.as_str(), secret(&target)),
                ("http://127.0.0.1:9000", Some("project-key"))
            );
        }
    }

    #[test]
    fn no_key_goes_over_plain_http_to_another_machine_unless_a_person_insists() {
        let given = |address: &str, insecure| Given {
            address: Some(address.into()),
            key: Some(Key("secret-key".into())),
            insecure,
            ..Given::default()
        };
        for address in ["http://orders.example", "http://10.0.0.7:8787", "http://127.0.0.1.example"] {
            let failure = in_project(given(address, false)).expect_err(address);
            assert!(!failure.what.contains("secret-key"), "{}", failure.what);
            in_project(given(address, true)).expect("a person insists");
            let without_key = Given { address: Some(address.into()), ..Given::default() };
            in_project(without_key).expect("nothing secret is sent");
        }
        for address in ["https://orders.example", "http://127.0.0.1:1", "http://[::1]", "http://localhost"] {
            in_project(given(address, false)).expect(address);
        }
    }

    #[test]
    fn an_address_that_only_looks_like_this_machine_is_refused() {
        for address in ["http://localhost:9000@evil.example", "http://localhost@evil.example/x"] {
            let target = in_project(Given { address: Some(address.into()), ..Given::default() });
            assert!(target.is_err(), "{address} gets the key of the project");
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
