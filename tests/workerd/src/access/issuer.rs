//! An issuer of tokens on this machine. Its tokens were signed once, for as long as anybody tests this; the private keys
//! are gone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{engine::Client, server};

/// The variables of an engine that accepts it: it has no HTTPS, which only a development server takes.
pub const DEVELOPMENT: &[(&str, &str)] = &[("STEPWELL_CELLS", "2"), ("STEPWELL_DEV", "1")];

/// Public keys, and tokens by name, good and bad.
pub fn fixtures() -> Value {
    serde_json::from_str(include_str!("../../fixtures/tokens.json")).expect("the fixtures are JSON")
}

/// One of the good tokens, which leads to the namespace `acme`.
pub fn good_token(algorithm: &str) -> Result<String> {
    Ok(fixtures()["good"][algorithm].as_str().context("a token")?.to_owned())
}

/// Serves public keys, or fails without any. Gives their address, and how often they were asked for.
pub async fn serve(jwks: Option<&Value>) -> Result<(String, Arc<AtomicUsize>)> {
    let (text, fetched) = (jwks.map(Value::to_string), Arc::new(AtomicUsize::new(0)));
    let counted = fetched.clone();
    let (address, _) = server::serve(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(text.clone().map_or((503, String::new()), |text| (200, text)))
    })
    .await?;
    Ok((format!("{address}/jwks"), fetched))
}

/// Lets an engine accept its tokens.
pub async fn set(root: &Client, url: &str) -> Result<()> {
    let issuer = json!({
        "issuer": "https://issuer.example", "audience": "stepwell", "jwks_url": url,
        "namespace": { "claim": "tenant" }, "namespaces": ["acme"], "scopes_claim": "scope",
        "scopes_max": ["write"],
    });
    root.request("PUT", "/api/issuers", &issuer.to_string()).await?.json()?;
    Ok(())
}
