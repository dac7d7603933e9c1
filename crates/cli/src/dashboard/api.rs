//! The page's requests to the API, passed on with the session of this process.

use std::{io, net::TcpStream};

use stepwell_protocol::{Code, routes::has_dot_segment};

use super::{
    End, Site,
    http::{Answer, Request, send_parts},
    problem,
};

/// What a request of the page may bring along. Its cookies are between it and this process.
const SENT: [&str; 8] = [
    "accept",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "prefer",
    "stepwell-callback",
    "stepwell-delay",
    "traceparent",
];

/// The methods of the API.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// What an answer's head has for its own connection, for a cache, or for a browser that has the session itself.
const HELD_BACK: [&str; 20] = [
    "age",
    "cache-control",
    "clear-site-data",
    "connection",
    "content-length",
    "content-security-policy",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "location",
    "refresh",
    "service-worker-allowed",
    "set-cookie",
    "strict-transport-security",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "x-content-type-options",
];

/// A page that a deployment sends in place of an answer does nothing here, and no answer is kept: another one's dashboard
/// may be on this port the next time.
const INERT: &str = "default-src 'none'; sandbox";

/// The answer to what is not passed on.
pub fn refuses(request: &Request) -> Option<Answer> {
    let path = request.path();
    if !path.starts_with("/api/") {
        return Some(Answer::text(404, "There is nothing here. The dashboard is at /dash/.\n"));
    }
    if !METHODS.contains(&request.method.as_str()) {
        return Some(Answer::text(405, "The API has no such method.\n").with("allow", &METHODS.join(", ")));
    }
    if has_dot_segment(path) {
        // It would lead to something else of the same Worker.
        let detail = "No part of an address is `.` or `..`, also not as `%2e`.";
        return Some(problem(Code::InvalidRequest, detail));
    }
    if path == "/api/session" && request.method == "POST" {
        let detail = "This page is signed in by the command line. To sign in again, or with another key, run \
                      `stepwell dashboard`.";
        return Some(problem(Code::Forbidden, detail));
    }
    if path == "/api/namespaces" || path.starts_with("/api/namespaces/") {
        let detail = "The dashboard that the command line serves does not manage namespaces: it would have to take the \
                      deployment's own key from the page. Use `stepwell namespaces`.";
        return Some(problem(Code::Forbidden, detail));
    }
    None
}

/// Passes a request on, and its answer back.
pub fn pass_on(mut stream: TcpStream, request: &Request, site: &Site) -> io::Result<()> {
    let is_head = request.method == "HEAD";
    let response = match site.client.pass_on(&request.method, &request.target, &sent(request), &request.body)
    {
        Ok(response) => response,
        Err(failure) => return unreachable(&failure.what).send(&mut stream, is_head),
    };
    let status = response.status().as_u16();
    if (300..400).contains(&status) && status != 304 {
        return unreachable("it leads to another address").send(&mut stream, is_head);
    }
    let mut headers: Vec<_> = response
        .headers()
        .iter()
        .filter(|(name, _)| {
            !HELD_BACK.contains(&name.as_str()) && !name.as_str().starts_with("access-control-")
        })
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    for (name, value) in [("content-security-policy", INERT), ("cache-control", "no-store")] {
        headers.push((name.to_owned(), value.to_owned()));
    }
    let sent = if is_head || status == 204 || status == 304 {
        let answer =
            headers.iter().fold(Answer::text(status, ""), |answer, (name, value)| answer.with(name, value));
        answer.send(&mut stream, true)
    } else {
        send_parts(&mut stream, status, &headers, response.into_body().into_reader())
    };
    // After the answer: the page says why it is over.
    if status == 401 {
        site.end(End::Refused);
    } else if request.path() == "/api/session" && request.method == "DELETE" && status < 300 {
        site.end(End::SignedOut);
    }
    sent
}

/// The headers that a request brings along.
pub fn sent(request: &Request) -> Vec<(&str, &str)> {
    let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    headers.filter(|(name, _)| SENT.contains(name)).collect()
}

/// The deployment did not answer.
pub fn unreachable(why: &str) -> Answer {
    let why = crate::words::plain(&crate::words::without_keys(why));
    Answer::text(502, &format!("The deployment did not answer: {why}.\n"))
}
