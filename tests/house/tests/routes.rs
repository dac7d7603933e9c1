//! The route table and the documentation say the same, and nothing else routes.

use std::{collections::BTreeSet, fs, path::Path};

use stepwell_protocol::routes::{Entry, Route};

fn read(path: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_route_is_in_the_documentation() {
    let page = read("docs/api.md");
    for route in Route::ALL {
        let Entry { method, path, .. } = route.entry();
        let named = format!("`{} {path}`", method.as_str());
        assert!(page.contains(&named), "docs/api.md does not have {named}");
    }
}

#[test]
fn a_request_is_routed_once() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/src/http"));
    let sources =
        fs::read_dir(folder).expect("the front is there").map(|entry| entry.expect("it can be read").path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let text: String = sources.map(|path| fs::read_to_string(path).expect("sources are text")).collect();
    assert_eq!(text.matches("Route::find(").count(), 1, "a request is looked up in the table once");
    let manifest = read("crates/engine/Cargo.toml");
    for router in ["axum", "matchit", "tower"] {
        assert!(!manifest.contains(router), "the engine has {router} beside stepwell_protocol::routes");
    }
}

#[test]
fn handlers_get_all_that_their_paths_name() {
    let text = read("crates/engine/src/http/dispatch.rs");
    for route in Route::ALL {
        let arm =
            text.split_once(&format!("Route::{} =>", route.name())).expect("each route has a handler").1;
        let arm = arm.split("Route::").next().unwrap_or_default();
        let taken = arm.split("name(\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
        let Entry { path, .. } = route.entry();
        let named = path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(taken.collect::<BTreeSet<_>>(), named.collect::<BTreeSet<_>>(), "{path}");
    }
}
