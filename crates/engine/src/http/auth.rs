//! Who asks, as far as a Worker can tell: by the text of what was brought, and nothing else.
//!
//! Whether a key is good is not decided here. The cell that is asked for something knows it, or asks the catalog; and
//! no answer leaves the Worker before one of them has said so ([`super::forward::Front::vouched`]).

use percent_encoding::percent_decode_str;
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
use worker::{Env, Request, Url};

use super::{error::Refusal, guessing, runs::pairs, token, verdicts};
use crate::{
    access::{Access, hash},
    keyring::Keyring,
    settings::KEY,
};

/// The cookie that a browser brings a session in, without encryption.
const COOKIE: &str = "stepwell_session";

/// The same over HTTPS. By this prefix, a browser takes it from this host alone and never without encryption: no other
/// host of the same site can put its own in this one's place.
const HOST_COOKIE: &str = "__Host-stepwell_session";

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
    let not_a_key = |error| Refusal::new(Code::Unauthorized, format!("This is no key: {error}."));
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
            (session_of(&cookies, is_https).unwrap_or_default().to_owned(), Self::Cookie)
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
pub fn need(route: Option<Route>, url: &Url) -> Need {
    let Some(Entry { scope, subject, path: pattern, .. }) = route.map(Route::entry) else {
        return Need { scope: Scope::Read, about: About::Visible };
    };
    let about = match subject {
        Subject::Run => About::Run,
        Subject::Visible => About::Visible,
        Subject::Whole => About::Whole,
        Subject::Workflow => workflow_of(pattern, url.path()).map_or(About::Whole, About::Workflow),
        Subject::Selected => selected(url.query().unwrap_or_default()).map_or(About::Whole, About::Workflow),
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

/// The workflow that a query selects. More than one is none, so that nobody is let in by one and answered by another.
pub(super) fn selected(query: &str) -> Option<String> {
    let mut named = pairs(query).filter(|(name, _)| name == "workflow").map(|(_, value)| value);
    named.next().filter(|_| named.next().is_none())
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

/// The session of a `Cookie` header. Over HTTPS, the name without the prefix may be anybody's.
pub(super) fn session_of(cookies: &str, is_https: bool) -> Option<&str> {
    let wanted = if is_https { HOST_COOKIE } else { COOKIE };
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// The cookie of a session. No script sees it, and no other site sends it.
pub(super) fn cookie(is_https: bool, token: &str, lasts_s: u64) -> String {
    // The prefix takes the whole host as its path; without it, the cookie goes nowhere but to the API.
    let (name, path) = if is_https { (HOST_COOKIE, "/") } else { (COOKIE, "/api") };
    format!("{name}={token}; Path={path}; HttpOnly; Secure; SameSite=Strict; Max-Age={lasts_s}")
}
