//! Who asks, as far as a Worker can tell: by the text of what was brought, and nothing else.
//!
//! Whether a key is good is not decided here. The cell that is asked for something knows it, or asks the catalog; and
//! no answer leaves the Worker before one of them has said so ([`super::front::Front::vouched`]).

use stepwell_core::access::Credential;
use stepwell_protocol::{
    Code,
    key::{self, Kind, Named},
    routes::{self, Route},
};
use worker::{Env, Request};

use super::{caller::Caller, cookie, error::Refusal, guessing, token, verdicts};
use crate::{access::hash, keyring::Keyring};

/// Where Cloudflare Access puts its token.
const ACCESS_HEADER: &str = "cf-access-jwt-assertion";

/// Who asks for a route. Touches no storage for keys; a token's issuer may have to be looked up.
pub async fn caller(request: &Request, env: &Env, route: Option<Route>) -> Result<Caller, Refusal> {
    if route.is_some_and(|route| route.entry().scope == routes::Scope::Open) {
        return Ok(Caller::Nobody);
    }
    let header = |name: &str| request.headers().get(name).ok().flatten();
    let (brought, way) = Way::of(request, &header);
    if brought.is_empty() {
        let detail = "Send a key as `Authorization: Bearer <key>`.";
        return Err(Refusal::new(Code::Unauthorized, detail));
    }
    way.check_origin(request, &header)?;
    // Before the guesses of others behind the same address are counted: nobody guesses 32 characters.
    if way == Way::Authorization && is_own_key(env, &brought) {
        return Ok(Caller::Root);
    }
    if let Err(refusal) = guessing::check(request) {
        // Others behind the same address go on, with keys that were good a moment ago.
        return known(&brought, way).ok_or(refusal);
    }
    let found = find(env, &brought, way).await;
    found.inspect_err(|refusal| guessing::count(request, refusal))
}

/// Whether the deployment's own key was brought.
pub fn is_root(request: &Request, env: &Env) -> bool {
    let header = request.headers().get("authorization").ok().flatten();
    header.is_some_and(|text| is_own_key(env, bearer(&text)))
}

fn is_own_key(env: &Env, brought: &str) -> bool {
    Keyring::of(env).is_root(brought)
}

/// Whose key or session it is, if an object has accepted it lately.
fn known(brought: &str, way: Way) -> Option<Caller> {
    let caller = of_key(brought, way).ok()?;
    match &caller {
        Caller::Bearer { namespace, credential, .. } if verdicts::is_good(namespace, &credential.hash) => {
            Some(caller)
        }
        Caller::Root | Caller::Bearer { .. } | Caller::Nobody => None,
    }
}

async fn find(env: &Env, brought: &str, way: Way) -> Result<Caller, Refusal> {
    if way != Way::Cookie && token::is_token(brought) {
        return token::caller(env.clone(), brought).await;
    }
    of_key(brought, way)
}

/// Whose key or session it would be.
fn of_key(brought: &str, way: Way) -> Result<Caller, Refusal> {
    let not_a_key = |error| Refusal::new(Code::Unauthorized, format!("This is not a key: {error}."));
    let Named { kind, namespace, id } = key::read(brought).map_err(not_a_key)?;
    let is_good = match way {
        Way::Authorization => true,
        Way::Access => false,
        Way::Cookie => kind == Kind::Session,
    };
    if !is_good {
        let detail = "Send a key as `Authorization: Bearer <key>`. A cookie takes only a session, and Access only its \
                      own token.";
        return Err(Refusal::new(Code::Unauthorized, detail));
    }
    let credential = Credential { id, hash: hash(brought) };
    Ok(Caller::Bearer { namespace, credential, vouched: None })
}

/// How a credential came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A program has put it into the request.
    Authorization,
    /// Cloudflare Access has made it of a browser's cookie.
    Access,
    /// A browser has added it.
    Cookie,
}

impl Way {
    /// What was brought, and how. Most requests are asked for one header only: each is a crossing.
    fn of(request: &Request, header: &impl Fn(&str) -> Option<String>) -> (String, Self) {
        if let Some(text) = header("authorization") {
            (bearer(&text).to_owned(), Self::Authorization)
        } else if let Some(token) = header(ACCESS_HEADER) {
            (token, Self::Access)
        } else {
            let cookies = header("cookie").unwrap_or_default();
            let is_https = request.url().is_ok_and(|url| url.scheme() == "https");
            (cookie::session_of(&cookies, is_https).unwrap_or_default().to_owned(), Self::Cookie)
        }
    }

    /// Refuses what another site's page has made a browser send. A browser adds cookies, and Access adds its token to
    /// whatever has its cookie, without asking which page wants that; only `Authorization` is always somebody's will.
    fn check_origin(
        self,
        request: &Request,
        header: &impl Fn(&str) -> Option<String>,
    ) -> Result<(), Refusal> {
        if self == Self::Authorization {
            return Ok(());
        }
        let is_own = match header("sec-fetch-site") {
            Some(site) => ["same-origin", "none"].contains(&site.as_str()),
            // Not every browser sends it with a WebSocket, but each one sends the page's origin.
            None => header("origin").is_none_or(|origin| is_origin_of(request, &origin)),
        };
        if is_own {
            return Ok(());
        }
        let detail = "A page of another site sent this request. Sessions and Access tokens work from this site's own \
                      pages only; elsewhere, send a key as `Authorization: Bearer <key>`.";
        Err(Refusal::new(Code::Unauthorized, detail))
    }
}

pub(super) fn bearer(header: &str) -> &str {
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        Some(_) | None => "",
    }
}

fn is_origin_of(request: &Request, origin: &str) -> bool {
    request.url().is_ok_and(|url| url.origin().ascii_serialization() == origin)
}
