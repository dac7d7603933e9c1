//! Tokens of other issuers: fetches public keys, lets the runtime verify signatures, and asks the machine what a token
//! is worth.
//!
//! What an isolate keeps: the issuers, as the deployment's catalog has confirmed them, for a second; their public keys
//! for ten minutes ([`IssuerKeys`] says when to fetch them). An issuer that was removed is not taken for longer than that
//! second.

use std::{cell::RefCell, rc::Rc, time::Duration};

use stepwell_core::{
    access::Credential,
    catalog::{ISSUERS_MAX, KnownIssuer},
    issuer_keys::{FETCH_MS, IssuerKeys, Next},
    ordered::OrdMap,
    token::{Jwks, NotTaken, Token},
};
use stepwell_protocol::{Code, Problem, json};
use worker::{Delay, Env};

use super::{caller::Caller, error::Refusal, front::Front};
use crate::{access::hash, calls::catalog::Request, log, outbound, runtime};

/// How long the issuers are taken for what they were.
const ISSUERS_MS: u64 = 1_000;

/// How often a request looks whether another one has fetched the keys.
const WAIT_MS: u64 = 100;

/// How often it looks at the most: until that fetch must be over.
const WAITS_MAX: u64 = FETCH_MS / WAIT_MS + 1;

struct Kept<T> {
    what: Rc<T>,
    at_ms: u64,
}

thread_local! {
    static ISSUERS: RefCell<Option<Kept<Vec<KnownIssuer>>>> = const { RefCell::new(None) };
    // By address. No more than there may be issuers: then those that are not used any more go with the others.
    static KEYS: RefCell<OrdMap<String, IssuerKeys>> = const { RefCell::new(OrdMap::new()) };
}

/// Whether a text looks like a token, and like nothing else that is brought.
pub fn is_token(text: &str) -> bool {
    text.matches('.').count() == 2
}

/// Who brings a token.
pub async fn caller(env: Env, text: &str) -> Result<Caller, Refusal> {
    let token = Token::read(text).map_err(|why| not_taken(&why))?;
    let front = Front::new(env)?;
    let issuers = issuers(&front).await?;
    let issuer = token.issuer(&issuers).map_err(|why| not_taken(&why))?;
    let url = &issuer.issuer.jwks_url;
    if outbound::check("jwks_url", url, front.deployment().is_dev).is_err() {
        log::error!("keys must not be fetched from {url}");
        return Err(not_taken(&NotTaken::Issuer));
    }
    if !is_signed(&token, url).await? {
        return Err(not_taken(&NotTaken::Signature));
    }
    let vouched = token.vouch(runtime::clock(), issuer);
    let (namespace, vouched) = vouched.map_err(|why| not_taken(&why))?;
    let hash = hash(text);
    // An id that no key has: those have eight characters.
    let credential = Credential { id: format!("token-{}", &hash[..24]), hash };
    Ok(Caller::Bearer { namespace, credential, vouched: Some(vouched) })
}

async fn issuers(front: &Front) -> Result<Rc<Vec<KnownIssuer>>, Refusal> {
    let now_ms = runtime::clock().as_millis();
    let kept = ISSUERS.with_borrow(|kept| {
        let kept = kept.as_ref().filter(|kept| now_ms < kept.at_ms + ISSUERS_MS);
        kept.map(|kept| kept.what.clone())
    });
    if let Some(issuers) = kept {
        return Ok(issuers);
    }
    if !front.has_catalog() {
        return Err(not_taken(&NotTaken::Issuer));
    }
    let what: Rc<Vec<KnownIssuer>> = Rc::new(front.ask_catalog(Request::KnownIssuers).await?);
    ISSUERS.set(Some(Kept { what: what.clone(), at_ms: now_ms }));
    Ok(what)
}

async fn is_signed(token: &Token, url: &str) -> Result<bool, Refusal> {
    let keys = keys_for(token, url).await?;
    let Some(key) = keys.find(token) else { return Ok(false) };
    let key = serde_json::to_string(key).expect("it came from JSON");
    let verified = runtime::verify_signature(&key, token.algorithm.as_str(), &token.signed, &token.signature);
    // Whatever the runtime cannot use as a key has signed nothing.
    Ok(runtime::settle(verified.into()).await.is_ok_and(|verified| verified.is_truthy()))
}

async fn keys_for(token: &Token, url: &str) -> Result<Rc<Jwks>, Refusal> {
    for _ in 0..WAITS_MAX {
        match of_issuer(url, |known| known.next(runtime::clock(), token)) {
            Next::Use(keys) => return Ok(keys),
            Next::Fetch => {
                let fetched = fetch_keys(url).await;
                of_issuer(url, |known| known.ended(runtime::clock(), fetched));
            }
            // Its promise is another request's, which the runtime lets nobody else wait for.
            Next::Wait => Delay::from(Duration::from_millis(WAIT_MS)).await,
            Next::Refuse(seconds) => return Err(out_of_reach(seconds)),
        }
    }
    Err(out_of_reach(1))
}

fn of_issuer<T>(url: &str, act: impl FnOnce(&mut IssuerKeys) -> T) -> T {
    KEYS.with_borrow_mut(|known| {
        if known.len() >= ISSUERS_MAX && !known.contains_key(url) {
            known.clear();
        }
        act(known.get_or_default(url.to_owned()))
    })
}

async fn fetch_keys(url: &str) -> Option<Jwks> {
    let text = match runtime::settle(runtime::fetch_text(url).into()).await {
        Ok(text) => text.as_string().unwrap_or_default(),
        Err(thrown) => {
            let why = runtime::message(&thrown);
            log::error!("the issuer's keys at {url} cannot be fetched: {why}");
            return None;
        }
    };
    let keys = json::from_str(&text).ok();
    if keys.is_none() {
        log::error!("the document at {url} is not a JSON Web Key Set");
    }
    keys
}

fn out_of_reach(seconds: u32) -> Refusal {
    let detail =
        "The public keys of the token's issuer cannot be fetched. Try again later; the log says why.";
    Refusal(Problem::new(Code::Internal, detail).after(seconds))
}

fn not_taken(why: &NotTaken) -> Refusal {
    Refusal::new(Code::Unauthorized, format!("This token is not taken: {why}."))
}
