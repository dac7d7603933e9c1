//! The dashboard under `/dash/`: a page and its files, from the binding `ASSETS`. Nothing of it is in the engine.
//!
//! Owns the policy that the page runs under, and which names lead to which file. Needs no key: the page has no data, and
//! asks the API for them like any other client.

use stepwell_promises::settled;
use wasm_bindgen::{JsCast as _, JsValue};
use worker::{Env, Fetcher, worker_sys::web_sys};

use super::response::Response;
use crate::runtime::ObjectStub;

/// Where it begins.
const ROOT: &str = "/dash/";

/// The binding that has its files.
const BINDING: &str = "ASSETS";

/// The page, as a file. Not `.html`: Cloudflare would answer that with a redirect, and serve it without this policy.
const PAGE: &str = "page.htm";

/// Files whose names change with their content.
const HASHED: &str = "assets/";

/// The page runs its own files and asks this origin, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What to do where the files are missing.
const MISSING: &str = "The dashboard is not part of this deployment.\n\n\
    Install it beside the engine and deploy again:\n\n  npm install @stepwell/dashboard\n\n\
    and in the engine's wrangler.toml:\n\n  [assets]\n  \
    directory = \"node_modules/@stepwell/dashboard/dist\"\n  binding = \"ASSETS\"\n";

/// What to do where the page is of another deployment than its files.
const OUTDATED: &str = "There is no such file. The dashboard may have been updated: reload the page.\n";

/// What a path of the dashboard leads to.
#[derive(Debug, PartialEq, Eq)]
enum Target<'a> {
    /// The page, whatever it shows then.
    Page,
    /// One of its files.
    File(&'a str),
    /// The page has a slash at its end.
    Elsewhere,
    Nothing,
}

/// The answer, if this is the dashboard's.
pub async fn answer(method: &str, path: &str, env: &Env) -> Option<Response> {
    let is_asked = ["GET", "HEAD"].contains(&method);
    let target = Target::of(path).filter(|_| is_asked)?;
    let file = match target {
        Target::Elsewhere => {
            return Some(Response::new(308, "text/plain; charset=utf-8", "").with("location", ROOT));
        }
        Target::Nothing => return Some(not_found("There is no such file.\n")),
        Target::Page => PAGE,
        Target::File(file) => file,
    };
    let Ok(assets) = env.assets(BINDING) else { return Some(not_found(MISSING)) };
    let Some(stored) = fetch(assets, file).await else {
        return Some(not_found(if target == Target::Page { MISSING } else { OUTDATED }));
    };
    let response = Response::raw(stored).with("content-type", content_type(file));
    Some(match target {
        Target::File(_) => response.with("cache-control", "public, max-age=31536000, immutable"),
        Target::Page | Target::Elsewhere | Target::Nothing => {
            response.with("content-security-policy", POLICY).with("referrer-policy", "no-referrer")
        }
    })
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Option<Self> {
        if path == ROOT.trim_end_matches('/') {
            return Some(Self::Elsewhere);
        }
        let rest = path.strip_prefix(ROOT)?;
        let Some(file) = rest.strip_prefix(HASHED) else { return Some(Self::Page) };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_file = !file.starts_with('.') && file.contains('.') && file.chars().all(is_name);
        Some(if is_file { Self::File(rest) } else { Self::Nothing })
    }
}

/// A file, with headers that can be set.
async fn fetch(assets: Fetcher, file: &str) -> Option<web_sys::Response> {
    // Only the path counts: no request leaves the Worker.
    let address = ["https://assets.local", ROOT, file].concat();
    let asked = assets.into_rpc::<ObjectStub>().fetch(&address, &JsValue::UNDEFINED).ok()?;
    let stored: web_sys::Response = settled(&asked).await.ok()?.dyn_into().ok()?;
    if stored.status() != 200 {
        return None;
    }
    web_sys::Response::new_with_opt_readable_stream(stored.body().as_ref()).ok()
}

fn not_found(text: &'static str) -> Response {
    Response::new(404, "text/plain; charset=utf-8", text)
}

/// A disk knows no types.
fn content_type(file: &str) -> &'static str {
    match file.rsplit('.').next() {
        Some("htm") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some(_) | None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_files_lead_to_files() {
        assert_eq!(Target::of("/dash/assets/app-1a2b.js"), Some(Target::File("assets/app-1a2b.js")));
        for path in ["", "..", ".hidden", "a/b.js", "a%2fb.js", "a", "../page.htm"] {
            assert_eq!(Target::of(&format!("/dash/assets/{path}")), Some(Target::Nothing), "{path}");
        }
        for path in ["/dash/", "/dash/runs/default-1-3-1-bvyaw3bemryy", "/dash/page.htm"] {
            assert_eq!(Target::of(path), Some(Target::Page), "{path}");
        }
        assert_eq!(Target::of("/dash"), Some(Target::Elsewhere));
        for path in ["/", "/dashboard", "/api/dash/"] {
            assert_eq!(Target::of(path), None, "{path}");
        }
    }

    #[test]
    fn the_policy_allows_nothing_inline_and_no_other_host() {
        assert!(POLICY.starts_with("default-src 'none'; "));
        assert!(!POLICY.contains("unsafe-inline") && !POLICY.contains("'unsafe-eval'"));
        assert!(!POLICY.contains("http") && !POLICY.contains('*'));
    }

    #[test]
    fn each_file_has_the_type_that_browsers_want() {
        assert_eq!(content_type("assets/app-1.wasm"), "application/wasm");
        assert_eq!(content_type(PAGE), "text/html; charset=utf-8");
        assert_eq!(content_type("x"), "application/octet-stream");
    }
}
