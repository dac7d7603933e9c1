//! JSON Web Tokens of somebody else's issuing: what one says, and what that is worth here.
//!
//! Owns: which tokens are taken, once their signature was found good. Does not own: the signature, which the host has
//! verified, and the public keys ([`Jwks`] only finds one among them).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stepwell_protocol::{
    Timestamp,
    access::{Issuer, NamespaceOf, Permission},
    json, key,
    text::is_hidden,
};

use crate::{
    catalog::{KnownIssuer, SCOPES_MAX},
    ordered::OrdSet,
};

/// By how much two clocks may differ.
pub const LEEWAY_MS: u64 = 30_000;

/// How long a stream that was opened with a token stays open at the most. Its reader comes back with its cursor, and
/// with a token that is good by then.
pub const STREAM_MS_MAX: u64 = 3_600_000;

/// The longest token.
pub const TOKEN_LENGTH_MAX: usize = 8_192;

/// How a token may be signed. No secret is shared with an issuer, so nothing else is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// Its name in a token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Whether a public key is of the kind that it takes: a token must not choose what a key is good for.
    fn takes(self, key: &Map<String, Value>) -> bool {
        let is = |name: &str, value: &str| key.get(name).is_some_and(|found| found == value);
        let fits = match self {
            Self::Rs256 => is("kty", "RSA"),
            Self::Es256 => is("kty", "EC") && is("crv", "P-256"),
            Self::EdDsa => is("kty", "OKP") && is("crv", "Ed25519"),
        };
        fits && key.get("alg").is_none_or(|alg| alg == self.as_str())
            && key.get("use").is_none_or(|purpose| purpose == "sig")
    }
}

/// What a token says, whoever has made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// How it says that it is signed.
    pub algorithm: Algorithm,
    /// With which key.
    pub key_id: Option<String>,
    /// What is signed.
    pub signed: String,
    /// The signature.
    pub signature: Vec<u8>,
    claims: Map<String, Value>,
}

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It is none.
    #[error("it is no JSON Web Token that is signed with RS256, ES256 or EdDSA")]
    Malformed,
    /// Nobody has said to take tokens of this issuer.
    #[error("its issuer is not known here")]
    Issuer,
    /// It is for somebody else.
    #[error("it is for another audience")]
    Audience,
    /// Its time is over, has not begun, or is not said.
    #[error("its time is over, has not begun, or is not said")]
    Time,
    /// It leads nowhere, or where its issuer may not lead.
    #[error("it names no namespace that its issuer may give access to")]
    Namespace,
    /// It allows nothing.
    #[error("it has no scopes that its issuer may give")]
    Scopes,
    /// Its signature is not its issuer's.
    #[error("its signature is not its issuer's")]
    Signature,
}

/// Who somebody is, on an issuer's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vouched {
    /// For the audit log.
    pub actor: String,
    /// Whose word it is: the `iss`.
    pub issuer: String,
    /// As of which revision of the issuers.
    pub revision: u64,
    /// What is allowed.
    pub scopes: Vec<Permission>,
    /// Until when.
    pub expires_at: Timestamp,
}

/// The public keys of an issuer.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Jwks {
    keys: Vec<Map<String, Value>>,
}

impl Jwks {
    /// The key that a token names, or the only one that it could be.
    pub fn find(&self, token: &Token) -> Option<&Map<String, Value>> {
        let mut fitting = self.keys.iter().filter(|key| token.algorithm.takes(key));
        match &token.key_id {
            Some(id) => fitting.find(|key| key.get("kid").is_some_and(|found| found == id.as_str())),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }
}

impl Token {
    /// Reads a token. Nothing that it says is to be believed yet.
    pub fn read(text: &str) -> Result<Self, NotTaken> {
        if text.len() > TOKEN_LENGTH_MAX {
            return Err(NotTaken::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(NotTaken::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(NotTaken::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| NotTaken::Malformed);
        let object = |part: &str| -> Result<Map<String, Value>, NotTaken> {
            let text = String::from_utf8(decode(part)?).map_err(|_| NotTaken::Malformed)?;
            json::from_str(&text).map_err(|_| NotTaken::Malformed)
        };
        let header = object(header)?;
        let algorithm = match header.get("alg").and_then(Value::as_str) {
            Some("RS256") => Algorithm::Rs256,
            Some("ES256") => Algorithm::Es256,
            Some("EdDSA") => Algorithm::EdDsa,
            Some(_) | None => return Err(NotTaken::Malformed),
        };
        // What must be understood is not: so says the header itself.
        if header.contains_key("crit") {
            return Err(NotTaken::Malformed);
        }
        let key_id = header.get("kid").and_then(Value::as_str).map(str::to_owned);
        let (signed, signature, claims) = (signed.to_owned(), decode(signature)?, object(claims)?);
        Ok(Self { algorithm, key_id, signed, signature, claims })
    }

    /// The issuer whom it names, among those whose tokens are taken.
    pub fn issuer<'a>(&self, issuers: &'a [KnownIssuer]) -> Result<&'a KnownIssuer, NotTaken> {
        let named = self.text("iss").ok_or(NotTaken::Issuer)?;
        issuers.iter().find(|known| known.issuer.issuer == named).ok_or(NotTaken::Issuer)
    }

    /// What it is worth, now that its signature was found to be this issuer's: a namespace, and what is allowed there.
    pub fn vouch(&self, now: Timestamp, known: &KnownIssuer) -> Result<(String, Vouched), NotTaken> {
        let KnownIssuer { issuer, revision } = known;
        if self.text("iss") != Some(&issuer.issuer) {
            return Err(NotTaken::Issuer);
        }
        let is_for_us = match self.claims.get("aud") {
            Some(Value::String(audience)) => *audience == issuer.audience,
            Some(Value::Array(all)) => all.iter().any(|audience| *audience == issuer.audience),
            Some(_) | None => false,
        };
        if !is_for_us {
            return Err(NotTaken::Audience);
        }
        let expires_at = self.time("exp").ok_or(NotTaken::Time)?.plus_millis(LEEWAY_MS);
        let begins_at = self.time("nbf").unwrap_or_default();
        if expires_at <= now || begins_at > now.plus_millis(LEEWAY_MS) {
            return Err(NotTaken::Time);
        }
        let namespace = match &issuer.namespace {
            NamespaceOf::Fixed(name) => Some(name.as_str()),
            NamespaceOf::Claim(claim) => self.text(claim),
        };
        let is_allowed = |name: &&str| key::is_namespace(name) && issuer.leads_to(name);
        let namespace = namespace.filter(is_allowed).ok_or(NotTaken::Namespace)?;
        let scopes = self.scopes(issuer);
        if scopes.is_empty() {
            return Err(NotTaken::Scopes);
        }
        let subject: String =
            self.text("sub").unwrap_or("?").chars().filter(|c| !is_hidden(*c)).take(128).collect();
        // The issuer comes first and has no blanks, so that no subject can speak for another one's.
        let actor = format!("token:{} {subject}", issuer.issuer);
        let (issuer, revision) = (issuer.issuer.clone(), *revision);
        Ok((namespace.to_owned(), Vouched { actor, issuer, revision, scopes, expires_at }))
    }

    /// The scopes of its claim, as far as the issuer's ceiling allows them; those of the issuer, if it has none. Words
    /// that mean something elsewhere are left out.
    fn scopes(&self, issuer: &Issuer) -> Vec<Permission> {
        let claim = issuer.scopes_claim.as_ref().and_then(|name| self.claims.get(name));
        let words: Vec<&str> = match claim {
            Some(Value::String(words)) => words.split_ascii_whitespace().collect(),
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
            Some(_) => Vec::new(),
            None => return issuer.scopes.clone(),
        };
        let claimed = words.into_iter().filter_map(|word| word.parse::<Permission>().ok()).take(SCOPES_MAX);
        let within = claimed.flat_map(|wanted| {
            issuer.scopes_max.iter().filter_map(move |most| wanted.meet(most)).collect::<Vec<_>>()
        });
        within.collect::<OrdSet<_>>().into_iter().take(SCOPES_MAX).collect()
    }

    fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim).and_then(Value::as_str)
    }

    /// Seconds since 1970, perhaps with a fraction.
    fn time(&self, claim: &str) -> Option<Timestamp> {
        let seconds = self.claims.get(claim)?.as_f64().filter(|seconds| *seconds >= 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "what is beyond the numbers becomes the largest, which is far away"
        )]
        Some(Timestamp::from_millis((seconds * 1_000.0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepwell_protocol::access::Scope;

    use super::*;

    const NOW_S: u64 = 1_794_000_000;

    fn now() -> Timestamp {
        Timestamp::from_millis(NOW_S * 1_000)
    }

    fn token(header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{}", part(header), part(claims), URL_SAFE_NO_PAD.encode("signature"))
    }

    fn claims() -> Value {
        json!({ "iss": "https://issuer.example", "aud": ["other", "stepwell"], "exp": NOW_S + 60, "sub": "ada",
                "tenant": "acme", "scope": "openid read write:greet" })
    }

    fn issuer() -> Issuer {
        Issuer {
            issuer: "https://issuer.example".into(),
            audience: "stepwell".into(),
            jwks_url: "https://issuer.example/jwks".into(),
            namespace: NamespaceOf::Claim("tenant".into()),
            namespaces: vec!["acme".into(), "team-*".into()],
            scopes_claim: Some("scope".into()),
            scopes_max: vec![Permission::all(Scope::Write)],
            scopes: vec![Permission::all(Scope::Read)],
        }
    }

    fn vouch(claims: &Value, issuer: &Issuer) -> Result<(String, Vouched), NotTaken> {
        Token::read(&token(&json!({ "alg": "ES256", "kid": "k" }), claims))?
            .vouch(now(), &KnownIssuer { issuer: issuer.clone(), revision: 3 })
    }

    fn without(name: &str) -> Value {
        let mut claims = claims();
        claims.as_object_mut().expect("an object").remove(name);
        claims
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[name] = value;
        claims
    }

    #[test]
    fn a_token_leads_to_a_namespace_with_the_scopes_that_are_known_here() {
        let (namespace, vouched) = vouch(&claims(), &issuer()).expect("it is good");
        assert_eq!(
            (namespace.as_str(), vouched.actor.as_str()),
            ("acme", "token:https://issuer.example ada")
        );
        let scopes: Vec<_> = vouched.scopes.iter().map(ToString::to_string).collect();
        assert_eq!(scopes, ["read", "write:greet"]);
        let fixed = Issuer { namespace: NamespaceOf::Fixed("fixed".into()), ..issuer() };
        assert_eq!(vouch(&claims(), &fixed).map(|(namespace, _)| namespace), Ok("fixed".into()));
        let (_, by_default) = vouch(&without("scope"), &issuer()).expect("it is good");
        assert_eq!(by_default.scopes, issuer().scopes);
    }

    #[test]
    fn what_does_not_hold_is_not_taken() {
        let cases = [
            (with("iss", json!("https://other.example")), NotTaken::Issuer),
            (without("iss"), NotTaken::Issuer),
            (with("aud", json!("other")), NotTaken::Audience),
            (with("aud", json!(7)), NotTaken::Audience),
            (without("aud"), NotTaken::Audience),
            (with("exp", json!(NOW_S - 30)), NotTaken::Time),
            (with("exp", json!("tomorrow")), NotTaken::Time),
            (with("exp", json!(-1)), NotTaken::Time),
            (without("exp"), NotTaken::Time),
            (with("nbf", json!(NOW_S + 31)), NotTaken::Time),
            (with("tenant", json!("No Such")), NotTaken::Namespace),
            (with("tenant", json!("other")), NotTaken::Namespace),
            (with("tenant", json!("default")), NotTaken::Namespace),
            (without("tenant"), NotTaken::Namespace),
            (with("scope", json!("openid")), NotTaken::Scopes),
            (with("scope", json!({ "read": true })), NotTaken::Scopes),
        ];
        for (claims, why) in cases {
            assert_eq!(vouch(&claims, &issuer()).map(drop), Err(why), "{claims}");
        }
        assert!(vouch(&with("exp", json!(NOW_S - 29)), &issuer()).is_ok(), "clocks may differ");
    }

    #[test]
    fn a_claim_gives_no_more_than_the_ceiling_of_its_issuer() {
        let given = |claim: &str, most: &[&str]| {
            let scopes_max = most.iter().map(|scope| scope.parse().expect("a scope")).collect();
            let vouched = vouch(&with("scope", json!(claim)), &Issuer { scopes_max, ..issuer() });
            let scopes = vouched.map(|(_, vouched)| vouched.scopes).unwrap_or_default();
            scopes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(given("admin", &["write"]), ["write"]);
        assert_eq!(given("admin", &["admin"]), ["admin"]);
        assert_eq!(
            given("admin read", &["write:greet", "read:other"]),
            ["read:greet", "read:other", "write:greet"]
        );
        assert_eq!(given("write:greet", &["read"]), ["read:greet"]);
        assert_eq!(given("write:greet", &["write:other"]), Vec::<String>::new());
        assert_eq!(given("admin", &[]), Vec::<String>::new(), "without a ceiling, a claim gives nothing");
    }

    #[test]
    fn only_signatures_with_public_keys_are_taken() {
        for alg in ["none", "HS256", "RS512", "es256", ""] {
            assert_eq!(
                Token::read(&token(&json!({ "alg": alg }), &claims())).map(drop),
                Err(NotTaken::Malformed)
            );
        }
        let critical = json!({ "alg": "ES256", "crit": ["b64"] });
        assert_eq!(Token::read(&token(&critical, &claims())).map(drop), Err(NotTaken::Malformed));
        let long = with("sub", json!("x".repeat(TOKEN_LENGTH_MAX)));
        for text in ["", ".", "a.b", "a.b.c", &token(&json!({ "alg": "ES256" }), &long)] {
            assert_eq!(Token::read(text).map(drop), Err(NotTaken::Malformed));
        }
    }

    #[test]
    fn a_token_does_not_choose_what_a_key_is_good_for() {
        let jwks: Jwks = serde_json::from_value(json!({ "keys": [
            { "kty": "RSA", "kid": "k", "n": "1" },
            { "kty": "EC", "crv": "P-384", "kid": "k" },
            { "kty": "EC", "crv": "P-256", "kid": "k", "use": "enc" },
            { "kty": "EC", "crv": "P-256", "kid": "k", "x": "right" },
            { "kty": "EC", "crv": "P-256", "kid": "other" },
            { "kty": "OKP", "crv": "Ed25519", "kid": "only" },
        ]}))
        .expect("keys");
        let find = |header: Value| {
            let token = Token::read(&token(&header, &claims())).expect("a token");
            jwks.find(&token).cloned()
        };
        assert_eq!(find(json!({ "alg": "ES256", "kid": "k" })).expect("a key")["x"], "right");
        assert_eq!(find(json!({ "alg": "RS256", "kid": "other" })), None);
        assert_eq!(find(json!({ "alg": "ES256" })), None, "it could be any of two");
        assert!(find(json!({ "alg": "EdDSA" })).is_some(), "it can only be this one");
    }
}
