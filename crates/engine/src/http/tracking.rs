//! The id of a request: whoever asks can name one, and finds it in the answer and in the log.

use stepwell_core::cell::Level;
use worker::Request;

use super::{Address, response::Response};
use crate::{log, runtime};

/// The header that names it, in both directions.
pub const HEADER: &str = "stepwell-request-id";

/// Cloudflare's own name for a request.
const RAY: &str = "cf-ray";

/// The longest id.
const LENGTH_MAX: usize = 128;

/// The id of a request: the caller's, Cloudflare's, or a new one.
pub fn id_of(request: &Request) -> String {
    let header = |name| request.headers().get(name).ok().flatten().filter(|id| is_id(id));
    header(HEADER).or_else(|| header(RAY)).unwrap_or_else(|| format!("{:016x}", runtime::random()))
}

/// Whether a text can be an id: nothing that would have to be escaped anywhere.
fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=LENGTH_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The answer with the id of its request; the log says how it was answered.
pub fn answered(response: Response, id: &str, address: Option<&Address>) -> Response {
    let status = response.status;
    let level = if status >= 500 { Level::Error } else { Level::Debug };
    if log::is_on(level) {
        let code = (status >= 400).then(|| response.problem_read()).flatten().map(|problem| problem.code);
        let route = address.and_then(|address| address.route).map(|route| route.entry().path);
        let method = address.map_or("", |address| address.method.as_str());
        log::request(level, id, method, route, status, code);
    }
    response.of_request(HEADER, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_nothing_that_has_to_be_escaped() {
        for good in ["a", "8f1c2d3e4f5a6b7c-FRA", "order:7_b.c", &"x".repeat(128)] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a\nb", "é", "{}", &"x".repeat(129)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
