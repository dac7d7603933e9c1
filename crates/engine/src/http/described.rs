//! What needs no key: the description of the routes, for programs and for people, and whether anybody answers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use stepwell_protocol::{
    PROTOCOL,
    rest::{Health, HealthStatus},
};

use super::response::Response;

/// Made by `just api`, and by `build.rs` of what that has made.
const OPENAPI: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// It reads the description, and nothing from anywhere else.
const PAGE: &str = include_str!("docs.html");

/// `GET /api/openapi.json`
pub fn openapi() -> Response {
    Response::json(200, OPENAPI)
}

/// `GET /api/docs`
pub fn page() -> Response {
    Response::new(200, "text/html; charset=utf-8", PAGE).with("content-security-policy", policy())
}

/// Lets the page run its own script and ask this origin, and nothing else: a script that got into it would not run.
fn policy() -> String {
    let [script, style] = ["script", "style"].map(|tag| digest(inside(PAGE, tag)));
    format!(
        "default-src 'none'; connect-src 'self'; script-src '{script}'; style-src '{style}'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// What is between a tag without attributes and its end.
fn inside<'a>(page: &'a str, tag: &str) -> &'a str {
    let after = page.split_once(&format!("<{tag}>")).map_or("", |(_, after)| after);
    after.split_once(&format!("</{tag}>")).map_or("", |(text, _)| text)
}

/// How a policy names a text.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// `GET /api/health`. Touches no object: it says that the Worker answers, and nothing about its runs.
pub fn health() -> Response {
    Response::of(200, &Health { status: HealthStatus::Ok, protocol: PROTOCOL })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_the_pages_one_script_and_one_style() {
        for tag in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1, "{tag}");
            // A Worker carries it, so it stays small.
            let bytes = inside(PAGE, tag).len();
            assert!((1_000..20_000).contains(&bytes), "{tag}: {bytes} bytes");
        }
        assert!(!PAGE.contains(" style=") && !PAGE.contains(" onclick="), "a policy cannot name attributes");
        assert_eq!(digest("alert(1)"), "sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=");
        assert!(!policy().contains("unsafe"), "{}", policy());
    }

    #[test]
    fn what_is_served_is_the_description_without_its_blanks() {
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
        let committed = include_str!("../../openapi.json");
        assert_eq!(read(OPENAPI), read(committed));
        assert!(OPENAPI.len() * 2 < committed.len(), "{} bytes are served", OPENAPI.len());
    }
}
