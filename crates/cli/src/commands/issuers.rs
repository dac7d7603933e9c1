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
    /// List the issuers whose tokens are accepted.
    List,
    /// Add or replace an issuer whose tokens are accepted.
    Set(Set),
    /// Remove an issuer. Its tokens are refused within a second.
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
    /// The namespace of its tokens.
    #[arg(long, value_name = "NAME", required_unless_present = "namespace_claim")]
    namespace: Option<String>,
    /// The claim of a token that names the namespace.
    #[arg(long, value_name = "CLAIM", conflicts_with = "namespace")]
    namespace_claim: Option<String>,
    /// A namespace that the claim may name: `acme`, `team-*`, or `*` for all. Repeatable.
    #[arg(long = "allow-namespace", value_name = "NAME", requires = "namespace_claim")]
    allowed_namespaces: Vec<String>,
    /// A scope of tokens without a scopes claim, as for keys. Repeatable.
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<Permission>,
    /// The claim of a token that lists scopes.
    #[arg(long, value_name = "CLAIM")]
    scopes_claim: Option<String>,
    /// The most that a token can grant, whichever scopes it claims. Repeatable.
    #[arg(long = "max-scope", value_name = "SCOPE")]
    scopes_max: Vec<Permission>,
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
                    anstream::eprintln!("There are no issuers.");
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
                    anstream::println!("Tokens of {} are no longer accepted.", words::plain(&issuer));
                }
            }
        }
        Ok(())
    }
}

impl Set {
    fn issuer(self) -> Issuer {
        let Self { issuer, audience, jwks_url, allowed_namespaces: namespaces, .. } = self;
        let (scopes, scopes_claim, scopes_max) = (self.scopes, self.scopes_claim, self.scopes_max);
        let namespace = match self.namespace_claim {
            Some(claim) => NamespaceOf::Claim(claim),
            None => NamespaceOf::Fixed(self.namespace.unwrap_or_default()),
        };
        Issuer { issuer, audience, jwks_url, namespace, namespaces, scopes_claim, scopes_max, scopes }
    }
}

fn show(one: &Issuer) {
    let field = |name: &str, value: &str| anstream::println!("  {name:9} {}", words::plain(value));
    anstream::println!("{}", words::plain(&one.issuer));
    field("audience", &one.audience);
    field("keys", &one.jwks_url);
    match &one.namespace {
        NamespaceOf::Fixed(name) => field("namespace", name),
        NamespaceOf::Claim(claim) => {
            let among = one.namespaces.join(", ");
            field("namespace", &format!("from the claim '{claim}', one of {among}"));
        }
    }
    let fixed = if one.scopes.is_empty() { "none".to_owned() } else { scopes(&one.scopes) };
    match &one.scopes_claim {
        Some(claim) => {
            let most = scopes(&one.scopes_max);
            field("scopes", &format!("from the claim '{claim}', at most {most}; {fixed} without it"));
        }
        None => field("scopes", &fixed),
    }
}
