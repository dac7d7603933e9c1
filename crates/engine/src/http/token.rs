//! Tokens of other issuers: fetches public keys, lets the runtime verify signatures, and asks the machine what a token
//! is worth.
//!
//! What an isolate keeps: the issuers, as the deployment's catalog has confirmed them, for a second; their public keys
//! for ten minutes. An issuer that was removed is not taken for longer than that second.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use stepwell_core::{
    access::Credential,
    catalog::KnownIssuer,
    token::{Jwks, NotTaken, Token},
};
use stepwell_protocol::{Code, access::Issuer};
use worker::Env;

use super::{auth::Caller, error::Refusal, forward::Front};
use crate::{access::hash, catalog::Request, runtime};

/// How long the issuers are taken for what they were.
const ISSUERS_MS: u64 = 1_000;

/// How long public keys are taken for what they were.
const KEYS_MS: u64 = 600_000;

/// How long a key that is not among them is not looked for again: anybody can make up a name.
const UNKNOWN_KEY_MS: u64 = 30_000;

struct Kept<T> {
    what: Rc<T>,
    at_ms: u64,
}

thread_local! {
    static ISSUERS: RefCell<Option<Kept<Vec<KnownIssuer>>>> = const { RefCell::new(None) };
    static KEYS: RefCell<BTreeMap<String, Kept<Jwks>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Whether a text looks like a token, and like nothing else that is brought.
pub fn is_token(text: &str) -> bool {
    text.matches('.').count() == 2
}

/// Who brings a token.
pub async fn caller(env: Env, text: &str) -> Result<Caller, Refusal> {
    let token = Token::read(text).map_err(|why| not_taken(&why))?;
    let issuers = issuers(env).await?;
    let issuer = token.issuer(&issuers).map_err(|why| not_taken(&why))?;
    if !is_signed(&token, &issuer.issuer).await? {
        return Err(not_taken(&NotTaken::Signature));
    }
    let vouched = token.vouch(runtime::clock(), issuer);
    let (namespace, vouched) = vouched.map_err(|why| not_taken(&why))?;
    let hash = hash(text);
    // An id that no key has: those have eight characters.
    let credential = Credential { id: format!("token-{}", &hash[..24]), hash };
    Ok(Caller::Bearer { namespace, credential, vouched: Some(vouched) })
}

async fn issuers(env: Env) -> Result<Rc<Vec<KnownIssuer>>, Refusal> {
    let now_ms = runtime::clock().as_millis();
    let kept = ISSUERS.with_borrow(|kept| {
        let kept = kept.as_ref().filter(|kept| now_ms < kept.at_ms + ISSUERS_MS);
        kept.map(|kept| kept.what.clone())
    });
    if let Some(issuers) = kept {
        return Ok(issuers);
    }
    let front = Front::new(env)?;
    if !front.has_catalog() {
        return Err(not_taken(&NotTaken::Issuer));
    }
    let what: Rc<Vec<KnownIssuer>> = Rc::new(front.ask_catalog(Request::KnownIssuers).await?);
    ISSUERS.set(Some(Kept { what: what.clone(), at_ms: now_ms }));
    Ok(what)
}

async fn is_signed(token: &Token, issuer: &Issuer) -> Result<bool, Refusal> {
    let (now_ms, url) = (runtime::clock().as_millis(), &issuer.jwks_url);
    let kept = KEYS.with_borrow(|kept| kept.get(url).map(|kept| (kept.what.clone(), now_ms - kept.at_ms)));
    let keys = match kept {
        Some((keys, age_ms)) if age_ms < KEYS_MS && keys.find(token).is_some() => keys,
        Some((keys, age_ms)) if age_ms < UNKNOWN_KEY_MS => keys,
        Some(_) | None => {
            let what = Rc::new(fetch_keys(url).await?);
            KEYS.with_borrow_mut(|kept| {
                kept.insert(url.clone(), Kept { what: what.clone(), at_ms: now_ms });
            });
            what
        }
    };
    let Some(key) = keys.find(token) else { return Ok(false) };
    let key = serde_json::to_string(key).expect("it came from JSON");
    let verified = runtime::verify_signature(&key, token.algorithm.as_str(), &token.signed, &token.signature);
    // Whatever the runtime cannot use as a key has signed nothing.
    Ok(runtime::settle(verified.into()).await.is_ok_and(|verified| verified.is_truthy()))
}

async fn fetch_keys(url: &str) -> Result<Jwks, Refusal> {
    let text = runtime::settle(runtime::fetch_text(url).into()).await.map_err(|thrown| {
        worker::console_error!(
            "stepwell: the issuer's keys at {url} are out of reach: {}",
            runtime::message(&thrown)
        );
        Refusal::new(Code::Internal, "The public keys of the token's issuer are out of reach. Try again.")
    })?;
    let text = text.as_string().unwrap_or_default();
    serde_json::from_str(&text).map_err(|_| {
        worker::console_error!("stepwell: what is at {url} is no set of keys");
        Refusal::new(Code::Internal, "The public keys of the token's issuer cannot be read.")
    })
}

fn not_taken(why: &NotTaken) -> Refusal {
    Refusal::new(Code::Unauthorized, format!("This token is not taken: {why}."))
}
