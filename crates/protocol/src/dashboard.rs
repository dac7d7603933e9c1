//! Where the dashboard's files lie, and how they are served: by the engine, and by the command line for any deployment.
//!
//! Owns the policy that the page runs under, and which paths lead to which file.

/// Where it begins.
pub const ROOT: &str = "/dash/";

/// The page, as a file. Not `.html`: Cloudflare would answer that with a redirect, and serve it without this policy.
pub const PAGE: &str = "page.htm";

/// Files whose names change with their content.
const HASHED: &str = "assets/";

/// The page runs its own files and asks this origin, and nothing else.
pub const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; \
                          connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a path of the dashboard leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The page, whatever it shows then.
    Page,
    /// One of its files.
    File(&'a str),
    /// The page has a slash at its end.
    Elsewhere,
    /// No file has such a name.
    Nothing,
}

impl<'a> Target<'a> {
    /// What a path leads to, if it is one of the dashboard.
    pub fn of(path: &'a str) -> Option<Self> {
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

/// The type of a file: a disk knows none.
pub fn content_type(file: &str) -> &'static str {
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
