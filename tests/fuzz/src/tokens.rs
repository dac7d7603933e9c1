//! Tokens of other issuers, and their public keys.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use stepwell_core::{
    catalog::{KnownIssuer, SCOPES_MAX},
    token::{Algorithm, Jwks, NotTaken, TOKEN_LENGTH_MAX, Token},
};
use stepwell_engine::reading;
use stepwell_protocol::{
    Timestamp,
    access::{Issuer, NamespaceOf, Permission, Scope},
    key,
    text::is_hidden,
};

use crate::{parted, text};

const NOW: u64 = 1_794_000_000_000;

/// JSON Web Tokens: a whole one, or a header and claims, a line each, of which one is made.
pub fn token(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let made;
    let text = match text.split_once('\n') {
        Some((header, claims)) => {
            made = make(header, claims);
            &made
        }
        None => text,
    };
    let Ok(token) = Token::read(text) else { return };
    assert!(text.len() <= TOKEN_LENGTH_MAX && reading::is_token(text));
    assert_eq!(format!("{}.{}", token.signed, URL_SAFE_NO_PAD.encode(&token.signature)), text);
    assert!(key::read(text).is_err(), "a token is no key");
    let claims = claims_of(&token);
    for issuer in [issuer(NamespaceOf::Claim("tenant".into())), issuer(NamespaceOf::Fixed("fixed".into()))] {
        let now = Timestamp::from_millis(NOW);
        let vouch =
            |now, issuer: &Issuer| token.vouch(now, &KnownIssuer { issuer: issuer.clone(), revision: 3 });
        let Ok((namespace, vouched)) = vouch(now, &issuer) else { continue };
        assert!(issuer.leads_to(&namespace), "a claim led beyond the issuer's namespaces");
        let is_within = |scope: &Permission| {
            issuer.scopes_max.iter().any(|most| most.meet(scope).as_ref() == Some(scope))
        };
        assert!(vouched.scopes.iter().all(is_within), "a claim gave more than the issuer's ceiling");
        assert_eq!(claims["iss"], issuer.issuer);
        assert!(key::is_namespace(&namespace));
        assert!((1..=SCOPES_MAX).contains(&vouched.scopes.len()));
        assert!(vouched.expires_at > now && vouched.expires_at <= Timestamp::MAX);
        assert!(vouched.actor.starts_with("token:") && !vouched.actor.contains(is_hidden));
        if vouched.expires_at < Timestamp::MAX {
            assert_eq!(vouch(vouched.expires_at, &issuer), Err(NotTaken::Time));
        }
        let of_another = Issuer { issuer: "https://other.example".into(), ..issuer.clone() };
        assert_eq!(vouch(now, &of_another), Err(NotTaken::Issuer));
        let for_another = Issuer { audience: "an audience that no corpus has".into(), ..issuer };
        assert_eq!(vouch(now, &for_another), Err(NotTaken::Audience));
    }
}

/// An issuer's public keys, and in the next line the header of a token that is looked for among them.
pub fn jwks(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (keys, header) = parted(text);
    let Ok(jwks) = serde_json::from_str::<Jwks>(keys) else { return };
    let Ok(token) = Token::read(&make(header, "{}")) else { return };
    let Some(key) = jwks.find(&token) else { return };
    let kind = match token.algorithm {
        Algorithm::Rs256 => ("RSA", None),
        Algorithm::Es256 => ("EC", Some("P-256")),
        Algorithm::EdDsa => ("OKP", Some("Ed25519")),
    };
    let said = |name: &str| key.get(name).and_then(Value::as_str);
    assert_eq!(said("kty"), Some(kind.0), "a token chose what a key is good for");
    assert!(kind.1.is_none() || said("crv") == kind.1);
    assert!(said("use").is_none_or(|purpose| purpose == "sig"));
    assert!(token.key_id.is_none() || token.key_id.as_deref() == said("kid"));
}

fn make(header: &str, claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", part(header), part(claims), part("signature"))
}

fn claims_of(token: &Token) -> Map<String, Value> {
    let (_, claims) = token.signed.split_once('.').expect("it was read");
    let bytes = URL_SAFE_NO_PAD.decode(claims).expect("it was read");
    serde_json::from_slice(&bytes).expect("it was read")
}

fn issuer(namespace: NamespaceOf) -> Issuer {
    Issuer {
        issuer: "https://issuer.example".into(),
        audience: "stepwell".into(),
        jwks_url: "https://issuer.example/jwks".into(),
        namespaces: match namespace {
            NamespaceOf::Fixed(_) => Vec::new(),
            NamespaceOf::Claim(_) => vec!["acme".into(), "team-*".into()],
        },
        namespace,
        scopes_claim: Some("scope".into()),
        scopes_max: vec![Permission::all(Scope::Write)],
        scopes: vec!["read".parse().expect("a scope")],
    }
}
