//! The cookie that a browser keeps its session in.

/// The cookie that a browser brings a session in, without encryption.
const COOKIE: &str = "stepwell_session";

/// The same over HTTPS. By this prefix, a browser takes it from this host alone and never without encryption: no other
/// host of the same site can put its own in this one's place.
const HOST_COOKIE: &str = "__Host-stepwell_session";

/// The session of a `Cookie` header. Over HTTPS, the name without the prefix may be anybody's.
pub fn session_of(cookies: &str, is_https: bool) -> Option<&str> {
    let wanted = if is_https { HOST_COOKIE } else { COOKIE };
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// The cookie of a session. No script sees it, and no other site sends it.
pub fn cookie(is_https: bool, token: &str, lasts_s: u64) -> String {
    // The prefix takes the whole host as its path; without it, the cookie goes nowhere but to the API.
    let (name, path) = if is_https { (HOST_COOKIE, "/") } else { (COOKIE, "/api") };
    format!("{name}={token}; Path={path}; HttpOnly; Secure; SameSite=Strict; Max-Age={lasts_s}")
}
