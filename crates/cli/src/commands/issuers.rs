//! `stepwell issuers`: whose JSON Web Tokens are taken like keys. Takes the deployment's own key.

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::access::{Issuer, IssuerList, NamespaceOf, Permission};

use super::{keys::scopes, settings};
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    words,
};

/// What can be done with issuers.
#[derive(Debug, Subcommand)]
pub enum Issuers {
    /// List those whose tokens are taken.
    List,
    /// Take tokens of an issuer; what was said of it before is replaced.
    Set(Set),
    /// Take no more tokens of an issuer, within a second.
    Remove(Remove),
}

/// What an issuer takes.
#[derive(Debug, Args)]
pub struct Set {
    /// The `iss` of its tokens.
    #[arg(value_name = "ISSUER")]
    issuer: String,
    /// What their `aud` must name.
    #[arg(long)]
    audience: String,
    /// Where its public keys are.
    #[arg(long, value_name = "URL")]
    jwks_url: String,
    /// The namespace that its tokens are good for.
    #[arg(long, value_name = "NAME", required_unless_present = "namespace_claim")]
    namespace: Option<String>,
    /// The claim of a token that names the namespace.
    #[arg(long, value_name = "CLAIM", conflicts_with = "namespace")]
    namespace_claim: Option<String>,
    /// What a token allows that says nothing about it: as for keys. May be said more than once.
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<Permission>,
    /// The claim of a token that lists scopes.
    #[arg(long, value_name = "CLAIM")]
    scopes_claim: Option<String>,
}

/// What removing one takes.
#[derive(Debug, Args)]
pub struct Remove {
    /// Its `iss`.
    #[arg(value_name = "ISSUER")]
    issuer: String,
}

impl Issuers {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        match self {
            Self::List => {
                let answer: Answer<IssuerList> = client.get(&["issuers"], &Ask::default())?;
                if global.json {
                    anstream::println!("{}", answer.text);
                    return Ok(());
                }
                if answer.value.issuers.is_empty() {
                    anstream::eprintln!("Nobody's tokens are taken.");
                }
                answer.value.issuers.iter().for_each(show);
            }
            Self::Set(set) => {
                let issuer = set.issuer();
                let body = serde_json::to_string(&issuer).expect("it holds only what JSON can say");
                let ask = Ask { body: Some(body), doubt: Some(settings::DOUBT), ..Ask::default() };
                let answer: Answer<Issuer> = client.put(&["issuers"], &ask)?;
                if global.json {
                    anstream::println!("{}", answer.text);
                } else {
                    show(&answer.value);
                }
            }
            Self::Remove(Remove { issuer }) => {
                let query = vec![("issuer", issuer.clone())];
                let _: Answer<IgnoredAny> = client.delete(&["issuers"], &Ask { query, ..Ask::default() })?;
                if global.json {
                    anstream::println!("{}", json!({ "removed": issuer }));
                } else {
                    anstream::println!("Tokens of {} are taken no more.", words::plain(&issuer));
                }
            }
        }
        Ok(())
    }
}

impl Set {
    fn issuer(self) -> Issuer {
        let Self { issuer, audience, jwks_url, namespace, namespace_claim, scopes, scopes_claim } = self;
        let namespace = match namespace_claim {
            Some(claim) => NamespaceOf::Claim(claim),
            None => NamespaceOf::Fixed(namespace.unwrap_or_default()),
        };
        Issuer { issuer, audience, jwks_url, namespace, scopes_claim, scopes }
    }
}

fn show(one: &Issuer) {
    let field = |name: &str, value: &str| anstream::println!("  {name:9} {}", words::plain(value));
    anstream::println!("{}", words::plain(&one.issuer));
    field("audience", &one.audience);
    field("keys", &one.jwks_url);
    match &one.namespace {
        NamespaceOf::Fixed(name) => field("namespace", name),
        NamespaceOf::Claim(claim) => field("namespace", &format!("as the claim '{claim}' says")),
    }
    let fixed = if one.scopes.is_empty() { "none".to_owned() } else { scopes(&one.scopes) };
    match &one.scopes_claim {
        Some(claim) => field("scopes", &format!("as the claim '{claim}' says, or {fixed}")),
        None => field("scopes", &fixed),
    }
}
