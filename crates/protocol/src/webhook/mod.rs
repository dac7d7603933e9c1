//! Webhooks: addresses at which other services deliver what has happened, each as an event of a topic.
//!
//! Owns: what a webhook is, where it receives, and by which [`schemes`] deliveries are signed.
//! Does not own: what a delivery becomes, which its topic decides.

pub mod schemes;

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::{
    Timestamp,
    key::is_namespace,
    signature::Key,
    topic::{AcceptedStatus, is_part, is_topic},
};

/// What stands before a webhook in its address.
pub const PATH: &str = "/api/hooks/";

/// How far the time of a delivery may be from now, unless its webhook says otherwise.
pub const TOLERANCE_S_DEFAULT: u32 = 300;

/// The most that it may say: a day, so that a delivery is known by its id for longer than it can be repeated.
pub const TOLERANCE_S_MAX: u32 = 86_400;

/// How long a secret that was replaced stays good, unless the request says otherwise: a day.
pub const OVERLAP_MS_DEFAULT: u64 = 86_400_000;

/// The most that it may say: 30 days.
pub const OVERLAP_MS_MAX: u64 = 30 * 86_400_000;

/// Digits of an address's code: 128 bits of an HMAC.
const CODE_DIGITS: usize = 32;

/// What a webhook is: the body of `PUT /api/webhooks/{topic}/{webhook}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSpec {
    /// By which scheme deliveries are signed.
    pub kind: WebhookKind,
    /// The event that a delivery becomes: `order/paid`, or `stripe/{body.type}` with an expression over `body` and
    /// `headers`.
    pub event: String,
    /// An expression that gives the event's id, instead of the delivery's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// An expression that gives the event's data, instead of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// How many seconds a signed time may be from now; 300 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_s: Option<u32>,
    /// For `hmac`: the header with the signature of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// For `hmac`: what stands before the signature in that header, such as `sha256=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// For `hmac`: how the signature is written; `hex` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// For `hmac`: the hash; `sha256` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// For `hmac`: the header with the delivery's id. Without it, equal bodies are one delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_header: Option<String>,
    /// The secret that the sender signs with. Needed once; never shown. A new one replaces the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
    /// How long the replaced secret stays active; one day by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ms: Option<u64>,
}

/// A secret in a request. It does not show itself by accident.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A scheme by which deliveries are signed.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WebhookKind {
    /// Standard Webhooks.
    #[serde(rename = "standard")]
    Standard,
    /// GitHub's.
    #[serde(rename = "github")]
    Github,
    /// Stripe's.
    #[serde(rename = "stripe")]
    Stripe,
    /// Slack's.
    #[serde(rename = "slack")]
    Slack,
    /// An HMAC of the body in a header.
    #[serde(rename = "hmac")]
    Hmac,
}

/// How a signature is written.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// Hexadecimal digits.
    #[default]
    #[serde(rename = "hex")]
    Hex,
    /// Base64.
    #[serde(rename = "base64")]
    Base64,
}

/// The hash of an HMAC.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    #[serde(rename = "sha256")]
    Sha256,
    /// SHA-512.
    #[serde(rename = "sha512")]
    Sha512,
}

/// A webhook, as `GET /api/webhooks/{topic}/{webhook}` shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookView {
    /// Its topic.
    pub topic: String,
    /// Its id.
    pub id: String,
    /// Where it receives: the address to give to the sender. Without `STEPWELL_URL`, its path alone.
    pub url: String,
    /// What it is, without its secret.
    pub spec: WebhookSpec,
    /// Until when the previous secret stays active, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Who has changed it last.
    pub changed_by: String,
}

/// The webhooks of a topic, by their ids.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookList {
    /// Them.
    pub webhooks: Vec<WebhookView>,
    /// The ids of those that a later release has stored and this one cannot read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// A delivery, as it came and what became of it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its number among those of its webhook.
    pub id: u64,
    /// When it came.
    pub at: Timestamp,
    /// Whether it was accepted or refused.
    pub status: AcceptedStatus,
    /// Whether its signature was good.
    pub is_verified: bool,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The id of the event that it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Its headers, without secrets.
    pub headers: Vec<(String, String)>,
    /// Its body, as it came. Only where one delivery is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// The latest deliveries of a webhook, newest first.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryList {
    /// Them, without their bodies.
    pub deliveries: Vec<Delivery>,
}

/// Whose address it is where something is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The namespace.
    pub namespace: String,
    /// The topic.
    pub topic: String,
    /// The webhook.
    pub webhook: String,
}

impl Address {
    /// The path of an address: it ends with a code that only this deployment can make.
    pub fn path(&self, key: &Key) -> String {
        let Self { namespace, topic, webhook } = self;
        format!("{PATH}{namespace}/{topic}/{webhook}-{}", self.code(key))
    }

    /// Reads a path; nothing, unless it has the code of one of these keys.
    pub fn read(path: &str, keys: &[Key]) -> Option<Self> {
        let mut parts = path.strip_prefix(PATH)?.split('/');
        let (namespace, topic, last) = (parts.next()?, parts.next()?, parts.next()?);
        let (webhook, code) = last.rsplit_once('-')?;
        if parts.next().is_some() || !is_namespace(namespace) || !is_topic(topic) || !is_part(webhook) {
            return None;
        }
        let address =
            Self { namespace: namespace.to_owned(), topic: topic.to_owned(), webhook: webhook.to_owned() };
        let is_of = |key: &Key| -> bool { address.code(key).as_bytes().ct_eq(code.as_bytes()).into() };
        keys.iter().any(is_of).then_some(address)
    }

    fn code(&self, key: &Key) -> String {
        let mut code = key.of_parts(&[&self.namespace, &self.topic, &self.webhook]);
        code.truncate(CODE_DIGITS);
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Purpose;

    #[test]
    fn an_address_is_good_with_its_own_code_only() {
        let key = Key::derive("one", Purpose::Webhook);
        let other = Key::derive("two", Purpose::Webhook);
        let address = Address { namespace: "acme".into(), topic: "order".into(), webhook: "shop-eu".into() };
        let path = address.path(&key);
        assert!(path.starts_with("/api/hooks/acme/order/shop-eu-") && path.len() == 30 + 32, "{path}");
        assert_eq!(Address::read(&path, std::slice::from_ref(&key)), Some(address.clone()));
        assert_eq!(Address::read(&path, &[other.clone(), key.clone()]), Some(address), "while rotating");
        assert_eq!(Address::read(&path, &[other]), None);
        assert_eq!(Address::read(&path, &[Key::derive("one", Purpose::Token)]), None);
        assert_eq!(Address::read(&path, &[]), None);
        let keys = [key];
        for forged in [
            path.replace("acme", "acne"),
            path.replace("order", "other"),
            path.replace("shop-eu", "shop-us"),
            path.replace("acme/order", "acmeo/rder"),
            path[..path.len() - 1].to_owned(),
            format!("{path}0"),
            format!("{path}/"),
            path.to_uppercase(),
            PATH.to_owned(),
            "/api/hooks/acme/order/shop".into(),
        ] {
            assert_eq!(Address::read(&forged, &keys), None, "{forged}");
        }
    }

    #[test]
    fn a_secret_does_not_show_itself() {
        let spec = r#"{"kind":"github","event":"github/push","secret":"hush"}"#;
        let spec: WebhookSpec = serde_json::from_str(spec).expect("it is one");
        assert!(!format!("{spec:?}").contains("hush"));
    }
}
