//! Who may ask: pages of other sites, names that others have pointed at this machine, and strangers may not.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use stepwell_protocol::{Code, dashboard::ROOT, text::hex};

use super::{
    http::{Answer, Request},
    problem,
};

/// How many random bytes a link or cookie has.
const SECRET_BYTES: usize = 32;

/// How long a link is good. It may be seen where it was printed, and among the arguments of the browser.
const LINK_LASTS: Duration = Duration::from_secs(600);

/// Where a link leads.
const SIGN_IN: &str = "/sign-in/";

/// The page that a link leads to. It goes on by itself: after a redirect, a browser that came from another site, such
/// as a terminal in a web page, would not send the cookie.
const WELCOME: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
                       <meta http-equiv=\"refresh\" content=\"0; url=/dash/\"><title>Stepwell</title>\
                       <p><a href=\"/dash/\">Go to the dashboard</a></p></html>\n";

const NOT_SIGNED_IN: &str = "This browser is not signed in. Open the link that the command line has printed.";

const LINK_USED: &str = "This link works once, within ten minutes. If somebody else has used it, stop \
     the command that has printed it. For a new link, run that again.\n";

/// Lets browsers in.
#[derive(Debug)]
pub struct Gate {
    /// What a browser calls this server, if nobody has misled it.
    hosts: [String; 2],
    /// What the cookie is called. Browsers send cookies to all ports of a host.
    name: String,
    cookie: String,
    /// What the link ends with, and until when it is good, until it was used.
    token: Mutex<Option<(String, Instant)>>,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Entrance {
    /// It may go on.
    Open,
    /// It came by the link.
    SignedIn(Answer),
    /// It must not go on.
    Refused(Answer),
}

impl Gate {
    /// The gate of the server on a port, and the link through it.
    pub fn new(port: u16) -> io::Result<(Self, String)> {
        let (token, cookie) = (secret()?, secret()?);
        let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
        let link = format!("http://{}{SIGN_IN}{token}", hosts[0]);
        let name = format!("stepwell_dashboard_{port}");
        Ok((
            Self { hosts, name, cookie, token: Mutex::new(Some((token, Instant::now() + LINK_LASTS))) },
            link,
        ))
    }

    /// Looks at a request.
    pub fn enter(&self, request: &Request) -> Entrance {
        if !request.header("host").is_some_and(|host| self.hosts.iter().any(|own| own == host)) {
            // The name of a page's own server, which leads here all of a sudden.
            let text = format!("This server is called {} only.\n", self.hosts[0]);
            return Entrance::Refused(Answer::text(421, &text));
        }
        if let Some(token) = request.path().strip_prefix(SIGN_IN) {
            return self.sign_in(request, token);
        }
        if !is_own_page(request) {
            let detail = "A page of another site sent this request. Only the dashboard's own page may.";
            return Entrance::Refused(problem(Code::Forbidden, detail));
        }
        if !self.has_cookie(request) {
            let answer = if request.path().starts_with("/api/") {
                problem(Code::Unauthorized, NOT_SIGNED_IN)
            } else {
                Answer::text(401, &format!("{NOT_SIGNED_IN}\n"))
            };
            return Entrance::Refused(answer);
        }
        Entrance::Open
    }

    fn sign_in(&self, request: &Request, token: &str) -> Entrance {
        if request.method != "GET" {
            return Entrance::Refused(
                Answer::text(405, "Open the link in a browser.\n").with("allow", "GET"),
            );
        }
        let mut wanted = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good =
            wanted.as_ref().is_some_and(|(wanted, until)| is_same(wanted, token) && Instant::now() < *until);
        if !is_good {
            drop(wanted);
            // Somebody who is in already, and goes back or opens the link again.
            return if self.has_cookie(request) {
                Entrance::SignedIn(Answer::text(303, "").with("location", ROOT))
            } else {
                Entrance::Refused(Answer::text(403, LINK_USED))
            };
        }
        *wanted = None;
        let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.name, self.cookie);
        let page = Answer::new(200, "text/html; charset=utf-8", WELCOME.into());
        let page = page.with("content-security-policy", "default-src 'none'; frame-ancestors 'none'");
        Entrance::SignedIn(page.with("set-cookie", &cookie).with("referrer-policy", "no-referrer"))
    }

    fn has_cookie(&self, request: &Request) -> bool {
        let cookies = request.header("cookie").unwrap_or_default().split(';');
        let mut pairs = cookies.filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.name && is_same(&self.cookie, value))
    }
}

/// Whether no page of another origin has made a browser send this. The cookie alone does not say so: to a browser,
/// all servers of this machine are one site.
fn is_own_page(request: &Request) -> bool {
    let site = request.header("sec-fetch-site");
    if site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return false;
    }
    let host = request.header("host").unwrap_or_default();
    match request.header("origin") {
        Some(origin) => origin.strip_prefix("http://") == Some(host),
        // A browser says where a change or a WebSocket comes from.
        None => ["GET", "HEAD"].contains(&request.method.as_str()) && request.header("upgrade").is_none(),
    }
}

/// In the same time, wherever they differ.
fn is_same(wanted: &str, given: &str) -> bool {
    let differences = wanted.bytes().zip(given.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    wanted.len() == given.len() && differences == 0
}

fn secret() -> io::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gate: &Gate, line: &str, headers: &[(&str, &str)]) -> (Option<u16>, Option<String>) {
        let (method, target) = line.split_once(' ').expect("a method and a path");
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request =
            Request { method: method.to_owned(), target: target.to_owned(), headers, body: Vec::new() };
        match gate.enter(&request) {
            Entrance::Open => (None, None),
            Entrance::SignedIn(answer) | Entrance::Refused(answer) => {
                (Some(answer.status), answer.header("set-cookie").map(str::to_owned))
            }
        }
    }

    fn open() -> (Gate, String) {
        let (gate, link) = Gate::new(4711).expect("there is randomness");
        let path = link.strip_prefix("http://127.0.0.1:4711").expect("it leads here").to_owned();
        (gate, format!("GET {path}"))
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:4711");

    #[test]
    fn a_link_signs_in_one_browser_and_no_other() {
        let (gate, link) = open();
        assert_eq!(ask(&gate, "GET /dash/", &[HOST]).0, Some(401));
        assert_eq!(ask(&gate, "GET /sign-in/guess", &[HOST]).0, Some(403));
        let (status, cookie) = ask(&gate, &link, &[HOST]);
        let cookie = cookie.expect("it is signed in");
        assert_eq!(status, Some(200));
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap_or_default();
        assert_eq!(ask(&gate, "GET /dash/", &[HOST, ("cookie", &format!("a=b; {cookie}"))]).0, None);
        assert_eq!(ask(&gate, &link, &[HOST]).0, Some(403), "the link was used twice");
        assert_eq!(ask(&gate, &link, &[HOST, ("cookie", cookie)]).0, Some(303), "the same browser");
        for wrong in ["stepwell_dashboard_4711=", "stepwell_dashboard_4711", &cookie[..cookie.len() - 1]] {
            assert_eq!(ask(&gate, "GET /dash/", &[HOST, ("cookie", wrong)]).0, Some(401), "{wrong}");
        }
    }

    #[test]
    fn a_link_is_not_used_up_by_whoever_only_looks_at_it() {
        let (gate, link) = open();
        assert_eq!(ask(&gate, &link.replace("GET", "HEAD"), &[HOST]).0, Some(405));
        assert_eq!(ask(&gate, &link, &[("host", "evil.example")]).0, Some(421));
        assert_eq!(ask(&gate, &link, &[HOST]).0, Some(200));
    }

    #[test]
    fn a_link_that_nobody_has_used_is_over_after_a_while() {
        let (gate, link) = open();
        gate.token.lock().expect("nobody panics").as_mut().expect("it is there").1 = Instant::now();
        assert_eq!(ask(&gate, &link, &[HOST]).0, Some(403));
    }

    #[test]
    fn names_that_others_have_pointed_here_are_refused() {
        let (gate, link) = open();
        let cookie = ask(&gate, &link, &[HOST]).1.expect("it is signed in");
        let cookie = ("cookie", cookie.split(';').next().unwrap_or_default());
        for host in ["127.0.0.1:4711", "localhost:4711"] {
            assert_eq!(ask(&gate, "GET /api/session", &[("host", host), cookie]).0, None, "{host}");
        }
        for host in ["evil.example:4711", "127.0.0.1", "localhost", "127.0.0.1:4711.evil.example", ""] {
            assert_eq!(ask(&gate, "GET /api/session", &[("host", host), cookie]).0, Some(421), "{host}");
        }
        assert_eq!(ask(&gate, "GET /api/session", &[cookie]).0, Some(421), "no host at all");
    }

    #[test]
    fn pages_of_other_sites_are_refused_even_with_the_cookie() {
        let (gate, link) = open();
        let cookie = ask(&gate, &link, &[HOST]).1.expect("it is signed in");
        let cookie = ("cookie", cookie.split(';').next().unwrap_or_default());
        let own = ("origin", "http://127.0.0.1:4711");
        for method in ["POST", "DELETE", "PATCH"] {
            let cancel = format!("{method} /api/executions/x/cancel");
            assert_eq!(ask(&gate, &cancel, &[HOST, cookie, own]).0, None);
            assert_eq!(ask(&gate, &cancel, &[HOST, cookie]).0, Some(403), "{method} from nowhere");
            for origin in ["http://127.0.0.1:4712", "http://localhost:4711", "https://127.0.0.1:4711", "null"]
            {
                assert_eq!(ask(&gate, &cancel, &[HOST, cookie, ("origin", origin)]).0, Some(403), "{origin}");
            }
        }
        let socket = ("upgrade", "websocket");
        assert_eq!(ask(&gate, "GET /api/stream", &[HOST, cookie, socket, own]).0, None);
        assert_eq!(ask(&gate, "GET /api/stream", &[HOST, cookie, socket]).0, Some(403));
        for site in ["cross-site", "same-site"] {
            let headers = [HOST, cookie, ("sec-fetch-site", site)];
            assert_eq!(ask(&gate, "GET /api/executions", &headers).0, Some(403), "{site}");
        }
    }
}
