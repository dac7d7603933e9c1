//! The description is the one that is committed, and has all routes and codes.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use stepwell_openapi::{document, operation_id};
use stepwell_protocol::{
    Code,
    routes::{EVERY, Entry, Route},
};

fn committed() -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json"));
    fs::read_to_string(path).expect("docs/openapi.json is there")
}

#[test]
fn the_committed_description_is_the_one_of_this_code() {
    // As values: the order of a text depends on what else is built along with this.
    let committed: Value = serde_json::from_str(&committed()).expect("it is JSON");
    assert!(committed == document(), "docs/openapi.json is out of date: run `just api`");
}

#[test]
fn every_route_is_described_with_its_codes() {
    let document = document();
    let mut described = 0;
    for route in Route::ALL {
        let Entry { method, path, .. } = route.entry();
        let codes = route.codes();
        let operation = &document["paths"][path][method.as_str().to_lowercase()];
        assert_eq!(operation["operationId"], operation_id(*route), "{path}");
        for code in codes {
            let status = code.status().to_string();
            let problem = &operation["responses"][&status]["content"]["application/problem+json"];
            let codes = &problem["schema"]["allOf"][1]["properties"]["code"]["enum"];
            let codes: Vec<String> = serde_json::from_value(codes.clone()).unwrap_or_default();
            assert!(codes.iter().any(|known| known == code.as_str()), "{path} does not have {code:?}");
        }
        described += 1;
    }
    let operations: usize = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .map(|path| path.as_object().map_or(0, serde_json::Map::len))
        .sum();
    assert_eq!(operations, described, "it describes routes that there are not");
}

#[test]
fn every_route_has_a_group_and_every_body_an_example() {
    let document = document();
    let groups: Vec<_> = document["tags"].as_array().expect("tags").iter().map(|tag| &tag["name"]).collect();
    for route in Route::ALL {
        let Entry { method, path, .. } = route.entry();
        let operation = &document["paths"][path][method.as_str().to_lowercase()];
        assert!(
            groups.contains(&&operation["tags"][0]),
            "{path}: {} is not in {groups:?}",
            operation["tags"]
        );
        if let Some(body) = operation.get("requestBody") {
            assert!(body["content"]["application/json"].get("example").is_some(), "{path} has no example");
        }
    }
}

#[test]
fn every_code_is_in_it() {
    let document = document();
    let codes = &document["components"]["schemas"]["Code"];
    let text = codes.to_string();
    for code in Code::ALL {
        assert!(text.contains(&format!("\"{}\"", code.as_str())), "{code:?} is not in {text}");
    }
    assert!(EVERY.iter().all(|code| Code::ALL.contains(code)));
}

#[test]
fn all_that_is_referred_to_is_there() {
    let document = document();
    let mut wanted = BTreeSet::new();
    references(&document, &mut wanted);
    assert!(wanted.len() > 10, "{wanted:?}");
    for reference in wanted {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "there is no {reference}");
    }
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                found.insert(reference.clone());
            }
            object.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
