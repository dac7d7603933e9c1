//! Wait tokens: addresses that complete one wait of one run, once, without a key.
//!
//! Owns: what a token says, how it is signed, and how it is read. Does not own: whether its wait is still open, which
//! only the run's cell knows, and where the secrets come from.
//!
//! A token is derived, not stored. Its key belongs to one run and is made of a key of the deployment
//! ([`Key::for_run`]), so whoever holds it can sign nothing for any other run. The address is a credential: it is never
//! logged and never in a history.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::{Op, OpKind, Payload, RunId, Shape, Timestamp, key::is_namespace, signature::Key, text::cut};

/// The variable with the engine's public address.
pub const URL_VARIABLE: &str = "STEPWELL_URL";

/// What stands before a token in its address.
pub const PATH: &str = "/api/tokens/";

/// How long a token is good if nobody says otherwise: 7 days.
pub const EXPIRES_MS_DEFAULT: u64 = 7 * 86_400_000;

/// The longest title, in bytes.
pub const TITLE_LENGTH_MAX: usize = 200;

/// The longest detail, in bytes.
pub const DETAIL_LENGTH_MAX: usize = 4_096;

/// What its form was, if that ever changes.
const VERSION: &str = "1";

/// Between the parts of a token. In none of them but the name, which comes last.
const SEPARATOR: char = '~';

/// With what the ids begin that note that a wait is over.
pub const OVER: &str = "\nover:";

/// Digits of a token's code: 128 bits of an HMAC.
const CODE_DIGITS: usize = 32;

/// All that is not left as it is in an address.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// One wait of one run, as a token names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitToken {
    /// The namespace that the run is in.
    pub namespace: String,
    /// The run.
    pub run: RunId,
    /// The life of the run that the wait is in, from 1.
    pub life: u32,
    /// The name of the wait.
    pub name: String,
    /// Which wait with that name it is, from 0.
    pub occurrence: u32,
    /// When it ends.
    pub expires_at: Timestamp,
}

impl WaitToken {
    /// The wait.
    pub fn op(&self) -> Op {
        Op { kind: OpKind::Wait, name: self.name.clone(), occurrence: self.occurrence }
    }

    /// The id of the signal that completes it: the same for every token of the wait. It begins with what no header can
    /// bring, so no caller's id is the same.
    pub fn signal_id(&self) -> String {
        Self::answer_id(self.life, &self.op())
    }

    /// The same for a wait.
    pub fn answer_id(life: u32, op: &Op) -> String {
        format!("\ntoken:{life}:{op}")
    }

    /// What is noted when its wait is over and nobody has completed it.
    pub fn over_id(life: u32, op: &Op) -> String {
        format!("{OVER}{life}:{op}")
    }

    /// Its text. `code` is left out where it is signed.
    fn text(&self, key: &str, code: &str) -> String {
        let Self { namespace, run, life, name, occurrence, expires_at } = self;
        let expires = expires_at.as_millis();
        format!("{VERSION}~{key}~{code}~{expires}~{life}~{occurrence}~{namespace}~{run}~{name}")
    }

    /// Reads a token; nothing, unless one of these keys has signed it.
    pub fn read(text: &str, keys: &[Key]) -> Option<Self> {
        let mut parts = text.splitn(9, SEPARATOR);
        let mut part = || parts.next();
        let (version, key, code) = (part()?, part()?, part()?);
        let expires_at = Timestamp::from_millis(part()?.parse().ok()?);
        let (life, occurrence) = (part()?.parse().ok()?, part()?.parse().ok()?);
        let (namespace, run, name) = (part()?, part()?.parse().ok()?, part()?);
        if version != VERSION || !is_namespace(namespace) || name.is_empty() {
            return None;
        }
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let token = Self { namespace, run, life, name, occurrence, expires_at };
        let is_signed = |by: &Key| -> bool {
            let issuer = Issuer::of(by, String::new(), &token.namespace, &token.run);
            issuer.code(&token).as_bytes().ct_eq(code.as_bytes()).into()
        };
        keys.iter().any(|by| by.id() == key && is_signed(by)).then_some(token)
    }
}

/// What makes the tokens of one run: a part of its activation.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issuer {
    /// The engine's public address, without a slash at the end.
    pub url: String,
    /// The namespace that the run is in.
    pub namespace: String,
    /// The id of the deployment's key that the run's is made of.
    pub key: String,
    /// The run's key.
    pub secret: String,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("url", &self.url).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Issuer {
    /// That of a run.
    pub fn of(key: &Key, url: String, namespace: &str, run: &RunId) -> Self {
        let secret = key.for_run(namespace, &run.to_string());
        Self { url, namespace: namespace.to_owned(), key: key.id().to_owned(), secret }
    }

    /// The address of a token.
    pub fn address(&self, token: &WaitToken) -> String {
        let text = token.text(&self.key, &self.code(token));
        format!("{}{PATH}{}", self.url, utf8_percent_encode(&text, ESCAPED))
    }

    fn code(&self, token: &WaitToken) -> String {
        let mut code = Key::code_of(&self.secret, &token.text(&self.key, ""));
        code.truncate(CODE_DIGITS);
        code
    }
}

/// What the page of a token shows of a wait, and when the wait ends: it travels with the wait, not with the address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What is to be decided; the name of the wait, if that is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// When the wait ends.
    pub expires_at: Timestamp,
}

impl Asked {
    /// The same with as much of its texts as is kept: whoever sends one may send any.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        cut(&mut self.title, TITLE_LENGTH_MAX);
        cut(&mut self.detail, DETAIL_LENGTH_MAX);
        self
    }
}

/// Asks for a token of a wait.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The name of the wait.
    pub name: String,
    /// Which wait with that name it is, from 0. Without it, the run has to be waiting, and it is the first one that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u32>,
    /// How long the token works, in milliseconds; 7 days by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

/// A token that was made. It is not stored.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedToken {
    /// The address that completes the wait. Everyone who has it can.
    pub url: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// How the wait of a token stands.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The run has not come to it yet. An answer is kept until it does.
    Early,
    /// The run waits for it.
    Open,
    /// It has been answered.
    Answered,
}

/// What a token is about.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// How its wait stands.
    pub status: Standing,
    /// What is to be decided, if the run waits for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// When the token ends.
    pub expires_at: Timestamp,
    /// What the answer has to be, in words; absent if it may be anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expects: Option<String>,
    /// Whether the form of the page can answer it.
    pub has_form: bool,
}

/// The answer to a token that was completed, now or before.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReceipt {
    /// Whether it had been answered before. This answer changed nothing then.
    pub duplicate: bool,
}

/// What the form of a token's page sends: `{"decision": "accept", "comment": "fine"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What was decided.
    pub decision: Verdict,
    /// What was said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Yes.
    Accept,
    /// No.
    Reject,
}

impl Decision {
    /// Yes, without a comment.
    pub fn accept() -> Self {
        Self { decision: Verdict::Accept, comment: None }
    }

    /// No, without a comment.
    pub fn reject() -> Self {
        Self { decision: Verdict::Reject, comment: None }
    }

    /// Whether it was accepted.
    pub fn is_accepted(&self) -> bool {
        self.decision == Verdict::Accept
    }

    /// What a wait of this shape takes for it; nothing, if it takes no decision.
    pub fn fitting(&self, shape: &Shape) -> Option<Payload> {
        let whole = Payload::encode(self).ok()?;
        if shape.check(&whole).is_ok() {
            return Some(whole);
        }
        let plain = Payload::encode(&self.is_accepted()).ok()?;
        shape.check(&plain).is_ok().then_some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Purpose;

    fn key(secret: &str) -> Key {
        Key::derive(secret, Purpose::Token)
    }

    fn token(name: &str) -> WaitToken {
        WaitToken {
            namespace: "acme".into(),
            run: "default-1-3-42-bvyaw3bemryy".parse().expect("it is an id"),
            life: 1,
            name: name.into(),
            occurrence: 0,
            expires_at: Timestamp::from_millis(1_700_000_000_000),
        }
    }

    /// The token in an address, as a request has it.
    fn text_of(token: &WaitToken, key: &Key) -> String {
        let issuer = Issuer::of(key, "https://flows.example.com".into(), &token.namespace, &token.run);
        let address = issuer.address(token);
        let path = address.strip_prefix("https://flows.example.com/api/tokens/").expect("it is an address");
        assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte)), "{path}");
        percent_encoding::percent_decode_str(path).decode_utf8().expect("it is text").into_owned()
    }

    #[test]
    fn a_token_reads_as_what_was_signed_whatever_its_name() {
        for name in ["approval", "a~b~~", "Prüfung / 2 ?#%", "."] {
            let token = token(name);
            assert_eq!(WaitToken::read(&text_of(&token, &key("one")), &[key("one")]), Some(token));
        }
    }

    #[test]
    fn its_address_stays_what_it_was() {
        let text = text_of(&token("approval"), &key("0123456789abcdef0123456789abcdef"));
        assert_eq!(text, GOLDEN);
    }

    const GOLDEN: &str = "1~57b5c0b5~24318a25a3b65f70ce93796f83ddfb11~1700000000000~1~0~acme~default-1-3-42-bvyaw3bemryy~approval";

    #[test]
    fn no_caller_can_choose_the_id_of_an_answer() {
        let token = token("approval");
        for id in [token.signal_id(), WaitToken::over_id(token.life, &token.op())] {
            assert!(id.starts_with('\n') && id.ends_with(&token.op().to_string()), "{id:?}");
        }
        assert_ne!(token.signal_id(), WaitToken::over_id(token.life, &token.op()));
    }

    #[test]
    fn any_other_text_is_no_token() {
        let good = text_of(&token("approval"), &key("one"));
        let read = |text: &str| WaitToken::read(text, &[key("one")]);
        assert!(read(&good).is_some());
        for at in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            assert_eq!(read(&String::from_utf8(bytes).expect("it is ASCII")), None, "byte {at} of {good}");
            assert_eq!(read(&good[..at]), None, "{at} bytes of {good}");
        }
        assert_eq!(read(&format!("{good}x")), None);
        assert_eq!(read(&good.replacen('1', "01", 1)), None);
        assert_eq!(WaitToken::read(&good, &[]), None);
    }

    #[test]
    fn a_previous_key_is_good_and_another_or_one_of_another_purpose_is_not() {
        let good = text_of(&token("approval"), &key("one"));
        assert!(WaitToken::read(&good, &[key("two"), key("one")]).is_some());
        assert_eq!(WaitToken::read(&good, &[key("two")]), None);
        assert_eq!(WaitToken::read(&good, &[Key::derive("one", Purpose::App)]), None);
    }

    #[test]
    fn the_key_of_a_run_signs_for_no_other() {
        let (mine, mut other) = (token("approval"), token("approval"));
        other.run.number += 1;
        let issuer = Issuer::of(&key("one"), String::new(), &mine.namespace, &mine.run);
        let forged = issuer.address(&other);
        let forged = forged.strip_prefix(PATH).expect("it is an address");
        assert_eq!(WaitToken::read(forged, &[key("one")]), None);
        assert_ne!(issuer.secret, key("one").for_run("other", &mine.run.to_string()));
    }

    #[test]
    fn an_issuer_does_not_show_its_secret_by_accident() {
        let token = token("approval");
        let issuer = Issuer::of(&key("one"), String::new(), &token.namespace, &token.run);
        assert!(!format!("{issuer:?}").contains(&issuer.secret));
    }

    #[test]
    fn what_is_asked_is_cut_between_characters() {
        let asked = Asked { title: "ä".repeat(150), detail: String::new(), expires_at: Timestamp::MAX };
        assert_eq!(asked.bounded().title, "ä".repeat(100));
    }
}
