//! Which route a request takes, and what its path names: whoever lets it in and whoever answers it go by the same.

use stepwell_engine::reading;
use stepwell_protocol::routes::{Entry, Method, Route, Subject};

use crate::{parted, text};

/// A method and, in the next line, a path.
pub fn route(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (method, path) = parted(text);
    let Some(found) = Route::find(method, path) else {
        let is_elsewhere = Route::ALL.iter().any(|route| fits(*route, method, path));
        assert!(!is_elsewhere, "{method} {path} has a route and is not led there");
        return;
    };
    let Entry { path: pattern, subject, .. } = found.entry();
    assert!(fits(found, method, path), "{method} {path} is no {pattern}");
    let is_more = |route: &&Route| fits(**route, method, path) && fixed(**route) > fixed(found);
    assert_eq!(Route::ALL.iter().find(is_more), None, "{path} has a route of its own");
    assert!(Route::methods(path).contains(&found.entry().method), "{path}");
    for (wanted, given) in pattern.split('/').zip(path.split('/')) {
        let Some(name) = wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else { continue };
        // What is no text is refused before anybody is answered.
        let Some(read) = reading::name_in(pattern, path, name) else { continue };
        assert!(!read.is_empty(), "{path} names nothing");
        assert!(given.contains('%') || read == given, "{path}: {read}");
        if subject == Subject::Workflow && name == "workflow" {
            assert_eq!(
                reading::workflow_of(pattern, path),
                Some(read),
                "let in for one, answered for another"
            );
        }
    }
}

/// Whether a route is one for a request, segment by segment.
fn fits(route: Route, method: &str, path: &str) -> bool {
    let Entry { method: own, path: pattern, .. } = route.entry();
    let is_method = own.as_str() == method || (own == Method::Get && method == "HEAD");
    let (wanted, given): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    let is_segment =
        |(wanted, given): (&&str, &&str)| wanted == given || (wanted.starts_with('{') && !given.is_empty());
    is_method && wanted.len() == given.len() && wanted.iter().zip(&given).all(is_segment)
}

/// How many segments of a route are fixed.
fn fixed(route: Route) -> usize {
    route.entry().path.split('/').filter(|segment| !segment.starts_with('{')).count()
}
