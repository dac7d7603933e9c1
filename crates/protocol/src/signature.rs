//! Keys for each purpose, and the signature that a cell puts on an activation.
//!
//! Owns: how a key is derived from a secret of the deployment, what a signature covers, and whether one is good.
//! Does not own: where secrets come from, and the clock.
//!
//! A key is HMAC-SHA256 of a label under the secret. So a key for one purpose says nothing about the others, and what
//! was signed for one purpose is refused for any other. Whatever is signed names its key's id, so that two keys can be
//! live while a secret is rotated.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::{Code, Payload, Problem, Timestamp, program::Activation, queue::JobCall, text::hex};

/// The secret that may do everything.
pub const KEY: &str = "STEPWELL_KEY";

/// The secret that was [`KEY`] before, and is good beside it.
pub const KEY_PREVIOUS: &str = "STEPWELL_KEY_PREVIOUS";

/// The secret that engine and app share when they are two Workers.
pub const APP_KEY: &str = "STEPWELL_APP_KEY";

/// The secret that was [`APP_KEY`] before. Only the app needs it.
pub const APP_KEY_PREVIOUS: &str = "STEPWELL_APP_KEY_PREVIOUS";

/// The fewest characters of an [`APP_KEY`].
pub const APP_KEY_LENGTH_MIN: usize = 32;

/// How long a program may be called with an activation after it was signed.
pub const SIGNED_MS_MAX: u64 = 60_000;

/// How far the clock of the one who verifies may be behind the cell's.
pub const CLOCK_SKEW_MS_MAX: u64 = 30_000;

/// Bytes of a key's id.
const ID_BYTES: usize = 4;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signs activations of the app's workflows.
    App,
    /// Signs activations of the engine's own workflows. No app ever holds it.
    Own,
    /// Binds sessions of the deployment's key to it. It signs nothing.
    Session,
    /// Makes the keys of runs, which sign wait tokens.
    Token,
    /// Makes the codes in the addresses of webhooks.
    Webhook,
    /// Seals what is stored and read again, such as the secrets of webhooks.
    Seal,
    /// Makes the secrets that sign the jobs of a queue which are pushed to an address.
    Push,
}

impl Purpose {
    /// Never changes, and is never used for another purpose.
    fn label(self) -> &'static [u8] {
        match self {
            Self::App => b"stepwell/activation/app/1",
            Self::Own => b"stepwell/activation/own/1",
            Self::Session => b"stepwell/session/1",
            Self::Token => b"stepwell/token/1",
            Self::Webhook => b"stepwell/webhook/1",
            Self::Seal => b"stepwell/seal/1",
            Self::Push => b"stepwell/push/1",
        }
    }
}

/// A key for one purpose.
#[derive(Clone)]
pub struct Key {
    id: String,
    pub(crate) mac: Hmac<Sha256>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Key {
    /// The key of a secret for this purpose.
    pub fn derive(secret: &str, purpose: Purpose) -> Self {
        let mac = keyed(&digest(keyed(secret.as_bytes()), &[purpose.label()]));
        let id = hex(&digest(mac.clone(), &[b"id"])[..ID_BYTES]);
        Self { id, mac }
    }

    /// What it is known by. No secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is stored to know it again. As long as a hash, so that no other key is taken for it.
    pub fn fingerprint(&self) -> String {
        hex(&digest(self.mac.clone(), &[b"fingerprint"]))
    }

    /// The key of a run, for whatever only that run may sign.
    pub fn for_run(&self, namespace: &str, run: &str) -> String {
        self.of_parts(&[namespace, run])
    }

    /// The secret of Standard Webhooks that signs the jobs of a queue. Who knew that of a namespace which was deleted does
    /// not know that of the next one of its name, which has another life.
    pub fn push_secret(&self, namespace: &str, life: u64, queue: &str) -> String {
        format!("whsec_{}", STANDARD.encode(self.of_parts(&[namespace, &life.to_string(), queue])))
    }

    /// What this key makes of several texts, each with its length before it.
    pub(crate) fn of_parts(&self, parts: &[&str]) -> String {
        let mut mac = self.mac.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
        hex(&mac.finalize().into_bytes())
    }

    /// What such a key makes of a text.
    pub(crate) fn code_of(run_key: &str, text: &str) -> String {
        hex(&digest(keyed(run_key.as_bytes()), &[text.as_bytes()]))
    }

    /// Signs an activation of a run of this namespace.
    pub fn sign<P>(&self, activation: &Activation<P>, namespace: &str, at: Timestamp) -> Signature {
        let code = self.code(activation, namespace, at);
        Signature { key: self.id.clone(), at, namespace: namespace.to_owned(), code }
    }

    /// Signs a call of a handler of jobs in this namespace.
    pub fn sign_job(&self, call: &JobCall, namespace: &str, at: Timestamp) -> Signature {
        let code = self.code_of_job(call, namespace, at);
        Signature { key: self.id.clone(), at, namespace: namespace.to_owned(), code }
    }

    fn code_of_job(&self, call: &JobCall, namespace: &str, at: Timestamp) -> String {
        let JobCall {
            queue,
            id,
            attempt,
            sent_at,
            group,
            content_type,
            body,
            text,
            base64,
            timeout_ms,
            signature: _,
        } = call;
        let form = match (body, text) {
            (Some(_), _) => "json",
            (None, Some(_)) => "text",
            (None, None) => "bytes",
        };
        let body = body.as_ref().map(Payload::text).or(text.as_deref()).or(base64.as_deref());
        let numbers = format!("{id} {attempt} {} {timeout_ms} {}", sent_at.as_millis(), at.as_millis());
        let (group, body) = (group.as_deref().unwrap_or_default(), body.unwrap_or_default());
        let parts = [namespace, "job", queue, &numbers, group, content_type, form, body];
        self.of_parts(&parts)
    }

    /// What this key makes of everything that a signature covers, each part with its length before it.
    fn code<P>(&self, activation: &Activation<P>, namespace: &str, at: Timestamp) -> String {
        let Activation { run, workflow, epoch, .. } = activation;
        let (run, epoch, at) = (run.to_string(), epoch.0.to_string(), at.as_millis().to_string());
        self.of_parts(&[namespace, &run, workflow, &epoch, &at])
    }
}

/// A cell's word that it has made an activation: its namespace, run, workflow and epoch, at this time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The id of the key.
    pub key: String,
    /// When it was signed.
    pub at: Timestamp,
    /// The namespace that the run is in.
    pub namespace: String,
    /// The message authentication code, in hexadecimal digits.
    pub code: String,
}

/// Why an activation is not acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// There is no key to verify it with.
    #[error("{}", app_key_missing())]
    NoKey,
    /// It has no signature.
    #[error("The activation is not signed. {SAME_KEY}")]
    Unsigned,
    /// It was signed with a key that is not known here.
    #[error("The activation is signed with key '{0}', which is not known here. {SAME_KEY}")]
    UnknownKey(String),
    /// Something in it is not what was signed.
    #[error("The activation's signature does not match it.")]
    Wrong,
    /// It was signed too long ago, or by a clock that is too far ahead.
    #[error(
        "The activation's signature has expired or is not valid yet: it is valid for 60 seconds. Check the clocks."
    )]
    Expired,
}

const SAME_KEY: &str = "Set the same STEPWELL_APP_KEY on engine and app.";

fn app_key_missing() -> String {
    format!(
        "{APP_KEY} is not set here, or has fewer than {APP_KEY_LENGTH_MIN} characters, so no call of the engine can be \
         verified. Set the same secret on engine and app."
    )
}

impl Unverified {
    /// Its code.
    pub fn code(&self) -> Code {
        match self {
            Self::NoKey => Code::AppKeyMissing,
            Self::Unsigned | Self::UnknownKey(_) | Self::Wrong | Self::Expired => Code::ActivationUnverified,
        }
    }
}

impl From<Unverified> for Problem {
    fn from(unverified: Unverified) -> Self {
        // Whoever forges a signature may name any key.
        Self::new(unverified.code(), unverified.to_string()).cut()
    }
}

/// Verifies an activation with any of these keys, and gives the namespace of its run.
pub fn verify<'a, P>(
    keys: &[Key],
    activation: &'a Activation<P>,
    now: Timestamp,
) -> Result<&'a str, Unverified> {
    verify_with(keys, activation.signature.as_ref(), now, |key, namespace, at| {
        key.code(activation, namespace, at)
    })
}

/// Verifies a call of a handler of jobs with any of these keys, and gives the namespace of its queue.
pub fn verify_job<'a>(keys: &[Key], call: &'a JobCall, now: Timestamp) -> Result<&'a str, Unverified> {
    verify_with(keys, call.signature.as_ref(), now, |key, namespace, at| key.code_of_job(call, namespace, at))
}

fn verify_with<'a>(
    keys: &[Key],
    signature: Option<&'a Signature>,
    now: Timestamp,
    code_of: impl Fn(&Key, &str, Timestamp) -> String,
) -> Result<&'a str, Unverified> {
    if keys.is_empty() {
        return Err(Unverified::NoKey);
    }
    let Signature { key: id, at, namespace, code } = signature.ok_or(Unverified::Unsigned)?;
    let mut named = keys.iter().filter(|key| key.id == *id).peekable();
    if named.peek().is_none() {
        return Err(Unverified::UnknownKey(id.clone()));
    }
    let is_good =
        |key: &Key| -> bool { code_of(key, namespace, *at).as_bytes().ct_eq(code.as_bytes()).into() };
    if !named.any(is_good) {
        return Err(Unverified::Wrong);
    }
    if now > at.plus_millis(SIGNED_MS_MAX) || *at > now.plus_millis(CLOCK_SKEW_MS_MAX) {
        return Err(Unverified::Expired);
    }
    Ok(namespace)
}

/// The keys for the activations of the app's workflows, the one that signs first, from the secrets that a Worker has:
/// those of [`APP_KEY`] if it is set, else those of [`KEY`], as in a Worker that is engine and app.
pub fn app_keys(secret: impl Fn(&str) -> Option<String>) -> Vec<Key> {
    if secret(APP_KEY).is_none() {
        return keys(&secret, [KEY, KEY_PREVIOUS], Purpose::App);
    }
    let long = |name: &str| secret(name).filter(|text| text.chars().count() >= APP_KEY_LENGTH_MIN);
    // The previous one alone signs nothing: it is about to go.
    if long(APP_KEY).is_none() { Vec::new() } else { keys(long, [APP_KEY, APP_KEY_PREVIOUS], Purpose::App) }
}

/// The keys for the activations of the engine's own workflows, the one that signs first.
pub fn own_keys(secret: impl Fn(&str) -> Option<String>) -> Vec<Key> {
    keys(secret, [KEY, KEY_PREVIOUS], Purpose::Own)
}

/// The keys that the keys of runs are made of, the one for new runs first.
pub fn token_keys(secret: impl Fn(&str) -> Option<String>) -> Vec<Key> {
    kept_keys(secret, Purpose::Token)
}

/// The keys for a purpose that outlives a rotation, that of the current secret first.
pub fn kept_keys(secret: impl Fn(&str) -> Option<String>, purpose: Purpose) -> Vec<Key> {
    // The previous one alone does nothing: the deployment has no key then.
    if secret(KEY).is_none_or(|text| text.is_empty()) {
        return Vec::new();
    }
    keys(secret, [KEY, KEY_PREVIOUS], purpose)
}

/// What sessions of the deployment's key are bound to, that of the current key first.
pub fn session_fingerprints(secret: impl Fn(&str) -> Option<String>) -> Vec<String> {
    kept_keys(secret, Purpose::Session).iter().map(Key::fingerprint).collect()
}

fn keys(secret: impl Fn(&str) -> Option<String>, names: [&str; 2], purpose: Purpose) -> Vec<Key> {
    let set = names.into_iter().filter_map(secret).filter(|text| !text.is_empty());
    set.map(|text| Key::derive(&text, purpose)).collect()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

pub(crate) fn digest(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, PROTOCOL, Payload, program::Page};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const SIGNED: Timestamp = Timestamp::MAX;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + ms)
    }

    fn activation() -> Activation {
        Activation {
            protocol: PROTOCOL,
            run: "default-1-3-42-bvyaw3bemryy".parse().expect("it is an id"),
            workflow: "greet".into(),
            epoch: Epoch(7),
            seed: String::new(),
            now: SIGNED,
            started_at: SIGNED,
            life: None,
            input: Payload::null(),
            patches: Vec::new(),
            attributes: std::collections::BTreeMap::new(),
            budget: None,
            let_in: None,
            trace: None,
            followed: false,
            tokens: None,
            journal: Page::default(),
            signature: None,
        }
    }

    fn signed(key: &Key) -> Activation {
        let mut activation = activation();
        activation.signature = Some(key.sign(&activation, "acme", at(0)));
        activation
    }

    fn key(purpose: Purpose) -> Key {
        Key::derive(SECRET, purpose)
    }

    #[test]
    fn the_code_is_hmac_sha256() {
        // The second case of RFC 4231.
        let code = digest(keyed(b"Jefe"), &[b"what do ya want for nothing?"]);
        assert_eq!(hex(&code), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn what_is_signed_and_how_stays_what_it_was() {
        let Signature { key, code, .. } = signed(&key(Purpose::App)).signature.expect("it is signed");
        assert_eq!((key.as_str(), code.as_str()), GOLDEN);
    }

    const GOLDEN: (&str, &str) =
        ("5e3c836c", "a22269f8cdfa1cdd105365fcdb68647ae9b83f8a3241270ecae5d796be3b6ac8");

    #[test]
    fn a_signature_is_good_for_its_activation_and_says_the_namespace() {
        let key = key(Purpose::App);
        assert_eq!(verify(std::slice::from_ref(&key), &signed(&key), at(0)), Ok("acme"));
    }

    #[test]
    fn a_signature_is_good_for_nothing_else() {
        type Change = fn(&mut Activation, &mut Signature);
        let key = key(Purpose::App);
        let changes: [(&str, Change); 6] = [
            ("namespace", |_, signature| signature.namespace = "evil".into()),
            ("run", |activation, _| activation.run.number += 1),
            ("run's suffix", |activation, _| activation.run.suffix = "000000000000".into()),
            ("workflow", |activation, _| activation.workflow = "pay".into()),
            ("epoch", |activation, _| activation.epoch.0 += 1),
            ("time", |_, signature| signature.at = at(1)),
        ];
        for (what, change) in changes {
            let mut activation = signed(&key);
            let mut signature = activation.signature.take().expect("it is signed");
            change(&mut activation, &mut signature);
            activation.signature = Some(signature);
            assert_eq!(
                verify(std::slice::from_ref(&key), &activation, at(0)),
                Err(Unverified::Wrong),
                "{what}"
            );
        }
    }

    #[test]
    fn parts_cannot_be_moved_across_their_borders() {
        let key = key(Purpose::App);
        let mut activation = signed(&key);
        let signature = activation.signature.as_mut().expect("it is signed");
        signature.namespace.push('g');
        activation.workflow.remove(0);
        assert_eq!(verify(&[key], &activation, at(0)), Err(Unverified::Wrong));
    }

    #[test]
    fn a_signature_is_good_for_a_minute() {
        let key = key(Purpose::App);
        let good_at = |now| verify(std::slice::from_ref(&key), &signed(&key), now).is_ok();
        assert!(good_at(at(SIGNED_MS_MAX)));
        assert!(!good_at(at(SIGNED_MS_MAX + 1)));
        let behind = |ms| Timestamp::from_millis(at(0).as_millis() - ms);
        assert!(good_at(behind(CLOCK_SKEW_MS_MAX)));
        assert!(!good_at(behind(CLOCK_SKEW_MS_MAX + 1)));
    }

    #[test]
    fn a_key_of_another_purpose_or_secret_is_unknown() {
        let signed = signed(&key(Purpose::App));
        for other in [key(Purpose::Own), Key::derive("another", Purpose::App)] {
            assert!(matches!(verify(&[other], &signed, at(0)), Err(Unverified::UnknownKey(_))));
        }
        // Not even if it says so.
        let mut forged = self::signed(&key(Purpose::Own));
        forged.signature.as_mut().expect("it is signed").key = key(Purpose::App).id;
        assert_eq!(verify(&[key(Purpose::App)], &forged, at(0)), Err(Unverified::Wrong));
    }

    #[test]
    fn without_a_signature_or_a_key_nothing_is_verified() {
        assert_eq!(verify(&[key(Purpose::App)], &activation(), at(0)), Err(Unverified::Unsigned));
        let unverified = verify(&[], &signed(&key(Purpose::App)), at(0)).expect_err("there is no key");
        assert_eq!(unverified.code(), Code::AppKeyMissing);
    }

    #[test]
    fn two_keys_are_live_while_a_secret_is_rotated() {
        let secrets = |name: &str| match name {
            APP_KEY => Some(SECRET.to_owned()),
            APP_KEY_PREVIOUS => Some(SECRET.repeat(2)),
            _ => None,
        };
        let keys = app_keys(secrets);
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0].id, key(Purpose::App).id, "the current one signs");
        for key in &keys {
            assert_eq!(verify(&keys, &signed(key), at(0)), Ok("acme"));
        }
    }

    #[test]
    fn an_app_with_a_secret_of_its_own_takes_nothing_signed_with_the_deployments() {
        let of = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(app_keys(of(&[(KEY, "k"), (KEY_PREVIOUS, "p")])).len(), 2);
        let both = app_keys(of(&[(KEY, "k"), (APP_KEY, SECRET)]));
        assert_eq!(both.iter().map(Key::id).collect::<Vec<_>>(), [key(Purpose::App).id()]);
        assert_eq!(app_keys(of(&[(KEY, "k"), (APP_KEY, "short")])).len(), 0, "too short is not set");
        assert_eq!(own_keys(of(&[(KEY, "k"), (APP_KEY, SECRET)])).len(), 1);
        assert_eq!(app_keys(of(&[])).len() + own_keys(of(&[(APP_KEY, SECRET)])).len(), 0);
    }

    #[test]
    fn a_key_does_not_show_itself_by_accident() {
        let key = key(Purpose::App);
        assert_eq!(format!("{key:?}"), format!("Key {{ id: {:?}, .. }}", key.id));
    }

    #[test]
    fn sessions_are_bound_to_the_current_key_and_to_the_previous_one() {
        let bound = |current: Option<&str>, previous: Option<&str>| {
            session_fingerprints(|name| if name == KEY { current } else { previous }.map(str::to_owned))
        };
        let (one, two) = (bound(Some("one"), None), bound(Some("two"), None));
        assert_eq!(bound(Some("two"), Some("one")), [two[0].clone(), one[0].clone()]);
        assert!(one != two && one[0].len() == 64 && !one[0].contains("one"));
        assert_ne!(one[0], Key::derive("one", Purpose::Own).fingerprint());
        assert!(bound(None, Some("one")).is_empty() && bound(Some(""), Some("one")).is_empty());
    }
}
