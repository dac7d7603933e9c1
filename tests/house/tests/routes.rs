//! The route table, the router and the documentation say the same.

use std::{fs, path::Path};

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
fn only_the_table_adds_routes() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/src/http"));
    let sources = fs::read_dir(folder).expect("the front is there").map(|entry| {
        fs::read_to_string(entry.expect("the entry can be read").path()).expect("sources are text")
    });
    let added: usize = sources
        .map(|text| [".route(", ".nest(", ".merge("].map(|call| text.matches(call).count()))
        .map(|counts| counts.into_iter().sum::<usize>())
        .sum();
    assert_eq!(added, 1, "a route was added past the table in stepwell_protocol::routes");
}
