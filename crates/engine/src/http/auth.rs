//! Who asks, as far as a Worker can tell: by the text of what was brought, and nothing else.
//!
//! Whether a key is good is not decided here. The cell that is asked for something knows it, or asks the catalog; and
//! no answer leaves the Worker before one of them has said so ([`super::forward::Front::vouched`]).

use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use stepwell_core::{
    access::{About, Credential, Need},
    token::Vouched,
};
use stepwell_protocol::{
    Code,
    access::Scope,
    key::{self, Kind, Named},
    routes::{self, Entry, Route, Subject},
};
use subtle::ConstantTimeEq;
use worker::{Env, Request};

use super::{error::Refusal, token};
use crate::{
    access::{Access, hash},
    settings::KEY,
};

/// The cookie that a browser brings a session in.
pub const COOKIE: &str = "stepwell_session";

/// Where Cloudflare Access puts its token.
const ACCESS_HEADER: &str = "cf-access-jwt-assertion";

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    /// The deployment's own key, which may do everything.
    Root,
    /// Somebody with a key or a session that may be good.
    Bearer {
        /// In which namespace it would be.
        namespace: String,
        /// What was brought.
        credential: Credential,
        /// What an issuer has vouched for.
        vouched: Option<Vouched>,
    },
    /// Nobody, on a route that takes nobody in particular.
    Nobody,
}

/// Who asks for a route. Touches no storage for keys; a token's issuer may have to be looked up.
pub async fn caller(request: &Request, env: &Env, route: Option<Route>) -> Result<Caller, Refusal> {
    if route.is_some_and(|route| route.entry().scope == routes::Scope::Open) {
        return Ok(Caller::Nobody);
    }
    let Ok(root) = env.secret(KEY) else {
        let detail = format!(
            "The secret {KEY} is not set, so nobody can be let in. Set it with `npx wrangler secret put {KEY}`."
        );
        return Err(Refusal::new(Code::Internal, detail));
    };
    let header = |name| request.headers().get(name).ok().flatten();
    let (brought, way) = Way::of(&header);
    if brought.is_empty() {
        let detail = "Send a key as `Authorization: Bearer <key>`.";
        return Err(Refusal::new(Code::Unauthorized, detail));
    }
    way.check_origin(request, &header)?;
    if way == Way::Authorization && same(&root.to_string(), &brought) {
        return Ok(Caller::Root);
    }
    if way != Way::Cookie && token::is_token(&brought) {
        return token::caller(env.clone(), &brought).await;
    }
    let not_a_key = |error| Refusal::new(Code::Unauthorized, format!("This is no key: {error}."));
    let Named { kind, namespace, id } = key::read(&brought).map_err(not_a_key)?;
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
    let credential = Credential { id, hash: hash(&brought) };
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
    fn of(header: &impl Fn(&str) -> Option<String>) -> (String, Self) {
        if let Some(text) = header("authorization") {
            (bearer(&text).to_owned(), Self::Authorization)
        } else if let Some(token) = header(ACCESS_HEADER) {
            (token, Self::Access)
        } else {
            let cookies = header("cookie");
            (cookies.as_deref().and_then(session_of).unwrap_or_default().to_owned(), Self::Cookie)
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

/// What a route takes. A path that is no route takes a good key, so that nobody else can try them out.
pub fn need(route: Option<Route>, path: &str) -> Need {
    let Some(Entry { scope, subject, path: pattern, .. }) = route.map(Route::entry) else {
        return Need { scope: Scope::Read, about: About::Visible };
    };
    let about = match subject {
        Subject::Run => About::Run,
        Subject::Visible => About::Visible,
        Subject::Whole => About::Whole,
        Subject::Workflow => workflow_of(pattern, path).map_or(About::Whole, About::Workflow),
    };
    match scope {
        routes::Scope::Open | routes::Scope::Read => Need { scope: Scope::Read, about },
        routes::Scope::Write => Need { scope: Scope::Write, about },
        routes::Scope::Admin => Need { scope: Scope::Admin, about },
        // Refused by `check_root`, once the key was found good.
        routes::Scope::Root => Need { scope: Scope::Read, about: About::Visible },
    }
}

/// Refuses what only the deployment's own key may do.
pub fn check_root(route: Option<Route>, caller: &Caller) -> Result<(), Refusal> {
    let is_for_root = route.is_some_and(|route| route.entry().scope == routes::Scope::Root);
    match caller {
        Caller::Bearer { .. } | Caller::Nobody if is_for_root => {
            let detail = format!("This takes the deployment's own key, {KEY}.");
            Err(Refusal::new(Code::Forbidden, detail))
        }
        Caller::Root | Caller::Bearer { .. } | Caller::Nobody => Ok(()),
    }
}

impl Caller {
    /// What the objects are told of the caller.
    pub fn access(&self, need: Need) -> Option<Access> {
        match self {
            Self::Bearer { credential, vouched, .. } => {
                let (credential, vouched) = (credential.clone(), vouched.clone());
                Some(Access { credential, vouched, need })
            }
            Self::Root | Self::Nobody => None,
        }
    }
}

/// The workflow in a path, decoded as the router decodes it.
pub(super) fn workflow_of(pattern: &str, path: &str) -> Option<String> {
    let mut segments = pattern.split('/').zip(path.split('/'));
    let (_, segment) = segments.find(|(wanted, _)| *wanted == "{workflow}")?;
    percent_decode_str(segment).decode_utf8().ok().map(Into::into)
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

pub(super) fn session_of(cookies: &str) -> Option<&str> {
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Whether two texts are the same, in a time that tells nothing about either.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a.as_bytes()).ct_eq(&Sha256::digest(b.as_bytes())).into()
}
