//! The schemes by which deliveries are signed: Standard Webhooks, those of GitHub, Stripe and Slack, and an HMAC of the
//! body.
//!
//! Owns: what is signed, how signatures are written, and whether one is good. The clock is the caller's.
//! Invariant: signatures are compared in constant time, over the bytes that came, and no more than [`SIGNATURES_MAX`] of
//! a delivery.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256, Sha512};

use super::{Algorithm, Encoding, TOLERANCE_S_DEFAULT, WebhookKind, WebhookSpec};
use crate::{Timestamp, text::hex};

/// How many signatures of a delivery are looked at: senders that rotate a secret send two.
pub const SIGNATURES_MAX: usize = 16;

/// The fewest bytes of a secret.
pub const SECRET_BYTES_MIN: usize = 8;

/// The most bytes of a secret.
pub const SECRET_BYTES_MAX: usize = 512;

/// What secrets of Standard Webhooks begin with.
const STANDARD_PREFIX: &str = "whsec_";

/// Bytes of the hash that stands for an id.
const ID_BYTES: usize = 16;

/// Why a delivery is not what its sender signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header is missing.
    #[error("The header `{0}` is missing.")]
    Missing(String),
    /// A header cannot be read.
    #[error("The header `{0}` cannot be read.")]
    Unreadable(String),
    /// No signature is that of a secret that is good.
    #[error("The signature does not match the body and the secret.")]
    Mismatch,
    /// It was signed too long ago.
    #[error("The delivery was signed too long ago.")]
    Stale,
    /// It was signed by a clock that is too far ahead.
    #[error("The delivery was signed in the future. Check the sender's clock.")]
    Future,
}

/// The header of a delivery's signature.
pub fn signature_header(spec: &WebhookSpec) -> &str {
    match spec.kind {
        WebhookKind::Standard => "webhook-signature",
        WebhookKind::Github => "x-hub-signature-256",
        WebhookKind::Stripe => "stripe-signature",
        WebhookKind::Slack => "x-slack-signature",
        WebhookKind::Hmac => spec.header.as_deref().unwrap_or_default(),
    }
}

/// The header of a delivery's id, if it is in one.
pub fn id_header(spec: &WebhookSpec) -> Option<&str> {
    match spec.kind {
        WebhookKind::Standard => Some("webhook-id"),
        WebhookKind::Github => Some("x-github-delivery"),
        WebhookKind::Stripe | WebhookKind::Slack => None,
        WebhookKind::Hmac => spec.id_header.as_deref(),
    }
}

/// A header of a delivery.
pub fn header<'a>(headers: &'a [(String, String)], wanted: &str) -> Option<&'a str> {
    headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.as_str())
}

/// What stands for an id that a delivery does not have, or that no event can have.
pub fn hashed_id(text: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    hash.first_chunk::<ID_BYTES>().map(|bytes| hex(bytes)).unwrap_or_default()
}

/// What is wrong with a secret, if anything is.
pub fn check_secret(kind: WebhookKind, secret: &str) -> Result<(), &'static str> {
    match key(kind, secret) {
        None => Err("A secret of Standard Webhooks is Base64, after `whsec_`."),
        Some(key) if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&key.len()) => {
            Err("A secret has 8 to 512 bytes.")
        }
        Some(_) => Ok(()),
    }
}

/// Verifies a delivery with any of these secrets. Without a clock, it may be from any time.
pub fn verify(
    spec: &WebhookSpec,
    secrets: &[&str],
    headers: &[(String, String)],
    body: &[u8],
    now: Option<Timestamp>,
) -> Result<(), Refused> {
    let Signed { signatures, before, time } = Signed::read(spec, headers)?;
    let is_good = |secret: &&str| {
        let Some(key) = key(spec.kind, secret) else { return false };
        match algorithm(spec) {
            Algorithm::Sha256 => matches::<Hmac<Sha256>>(&key, &before, body, &signatures),
            Algorithm::Sha512 => matches::<Hmac<Sha512>>(&key, &before, body, &signatures),
        }
    };
    if !secrets.iter().any(is_good) {
        return Err(Refused::Mismatch);
    }
    let (Some(time), Some(now)) = (time, now) else { return Ok(()) };
    let (now, tolerance) = (now.as_millis() / 1_000, spec.tolerance_s.unwrap_or(TOLERANCE_S_DEFAULT));
    if time.saturating_add(tolerance.into()) < now {
        return Err(Refused::Stale);
    }
    if time > now.saturating_add(tolerance.into()) {
        return Err(Refused::Future);
    }
    Ok(())
}

/// Signs a delivery as its sender does: the headers that it has. For tests and tools.
pub fn sign(
    spec: &WebhookSpec,
    secret: &str,
    id: &str,
    now: Timestamp,
    body: &[u8],
) -> Vec<(String, String)> {
    let key = key(spec.kind, secret).unwrap_or_default();
    let seconds = now.as_millis() / 1_000;
    let code = |before: &str| match algorithm(spec) {
        Algorithm::Sha256 => made::<Hmac<Sha256>>(&key, before, body),
        Algorithm::Sha512 => made::<Hmac<Sha512>>(&key, before, body),
    };
    let signature = match spec.kind {
        WebhookKind::Standard => standard_signature(secret, id, now, body),
        WebhookKind::Github => format!("sha256={}", hex(&code(""))),
        WebhookKind::Stripe => format!("t={seconds},v1={}", hex(&code(&format!("{seconds}.")))),
        WebhookKind::Slack => format!("v0={}", hex(&code(&format!("v0:{seconds}:")))),
        WebhookKind::Hmac => {
            let code = code("");
            let text = match spec.encoding.unwrap_or_default() {
                Encoding::Hex => hex(&code),
                Encoding::Base64 => base64::engine::general_purpose::STANDARD.encode(code),
            };
            format!("{}{text}", spec.prefix.as_deref().unwrap_or_default())
        }
    };
    let mut headers = vec![(signature_header(spec).to_owned(), signature)];
    headers.extend(id_header(spec).map(|name| (name.to_owned(), id.to_owned())));
    headers.extend(time_header(spec.kind).map(|name| (name.to_owned(), seconds.to_string())));
    headers
}

/// A signature of Standard Webhooks, of which a header may have several.
pub fn standard_signature(secret: &str, id: &str, now: Timestamp, body: &[u8]) -> String {
    let key = key(WebhookKind::Standard, secret).unwrap_or_default();
    let code = made::<Hmac<Sha256>>(&key, &format!("{id}.{}.", now.as_millis() / 1_000), body);
    format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(code))
}

fn time_header(kind: WebhookKind) -> Option<&'static str> {
    match kind {
        WebhookKind::Standard => Some("webhook-timestamp"),
        WebhookKind::Slack => Some("x-slack-request-timestamp"),
        WebhookKind::Github | WebhookKind::Stripe | WebhookKind::Hmac => None,
    }
}

/// What a delivery says of how it was signed.
struct Signed {
    signatures: Vec<Vec<u8>>,
    /// What is signed before the body.
    before: String,
    /// When, in seconds since 1970.
    time: Option<u64>,
}

impl Signed {
    fn read(spec: &WebhookSpec, headers: &[(String, String)]) -> Result<Self, Refused> {
        let given = |name: &str| header(headers, name).ok_or_else(|| Refused::Missing(name.to_owned()));
        let name = signature_header(spec);
        let text = given(name)?;
        let unreadable = || Refused::Unreadable(name.to_owned());
        let seconds = |text: &str, name: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let read = text.parse::<u64>().ok().filter(|_| is_number);
            read.ok_or_else(|| Refused::Unreadable(name.to_owned()))
        };
        let (mut before, mut time) = (String::new(), None);
        if let Some(name) = time_header(spec.kind) {
            let text = given(name)?;
            time = Some(seconds(text, name)?);
            before = match spec.kind {
                WebhookKind::Slack => format!("v0:{text}:"),
                WebhookKind::Standard | WebhookKind::Github | WebhookKind::Stripe | WebhookKind::Hmac => {
                    format!("{}.{text}.", given("webhook-id")?)
                }
            };
        }
        let read = |(prefix, encoding): (&str, Encoding), text: &str| {
            let text = text.trim().strip_prefix(prefix)?;
            match encoding {
                Encoding::Hex => unhex(text),
                Encoding::Base64 => unbase64(text),
            }
        };
        let signatures: Vec<_> = match spec.kind {
            WebhookKind::Standard => {
                let each = text.split(' ').take(SIGNATURES_MAX);
                each.filter_map(|one| read(("v1,", Encoding::Base64), one)).collect()
            }
            WebhookKind::Stripe => {
                let stated = text.split(',').find_map(|part| part.trim().strip_prefix("t="));
                let stated = stated.ok_or_else(unreadable)?;
                time = Some(seconds(stated, name)?);
                before = format!("{stated}.");
                let each = text.split(',').take(SIGNATURES_MAX);
                each.filter_map(|one| read(("v1=", Encoding::Hex), one)).collect()
            }
            WebhookKind::Github => read(("sha256=", Encoding::Hex), text).into_iter().collect(),
            WebhookKind::Slack => read(("v0=", Encoding::Hex), text).into_iter().collect(),
            WebhookKind::Hmac => {
                let how = (spec.prefix.as_deref().unwrap_or_default(), spec.encoding.unwrap_or_default());
                read(how, text).into_iter().collect()
            }
        };
        if signatures.is_empty() {
            return Err(unreadable());
        }
        Ok(Self { signatures, before, time })
    }
}

/// The hash of a scheme.
fn algorithm(spec: &WebhookSpec) -> Algorithm {
    match spec.kind {
        WebhookKind::Hmac => spec.algorithm.unwrap_or_default(),
        WebhookKind::Standard | WebhookKind::Github | WebhookKind::Stripe | WebhookKind::Slack => {
            Algorithm::Sha256
        }
    }
}

/// The bytes that a secret's text stands for.
fn key(kind: WebhookKind, secret: &str) -> Option<Vec<u8>> {
    match kind {
        WebhookKind::Standard => unbase64(secret.strip_prefix(STANDARD_PREFIX).unwrap_or(secret)),
        WebhookKind::Github | WebhookKind::Stripe | WebhookKind::Slack | WebhookKind::Hmac => {
            Some(secret.as_bytes().to_vec())
        }
    }
}

/// Whether one of the signatures is that of this key.
fn matches<M: Mac + KeyInit + Clone>(key: &[u8], before: &str, body: &[u8], signatures: &[Vec<u8>]) -> bool {
    let mac = fed::<M>(key, before, body);
    signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
}

fn made<M: Mac + KeyInit>(key: &[u8], before: &str, body: &[u8]) -> Vec<u8> {
    fed::<M>(key, before, body).finalize().into_bytes().to_vec()
}

fn fed<M: Mac + KeyInit>(key: &[u8], before: &str, body: &[u8]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(before.as_bytes());
    mac.update(body);
    mac
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4) | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests;
