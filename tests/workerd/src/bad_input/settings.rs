//! Bodies that Stepwell reads itself: of keys, settings, namespaces, issuers, restarts and bulks.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_success},
    case::{Case, Kind, start},
    wire::Request,
};

/// Refused because it is no request.
const INVALID: &[Code] = &[Code::InvalidRequest];

/// A hundred years, in milliseconds.
const CENTURY_MS: u64 = 36_500 * 86_400_000;

/// What is no body of any route.
const NONSENSE: &[&str] = &[
    "CANARY",
    "{",
    "[]",
    "[1]",
    "1",
    "\"CANARY\"",
    "true",
    r#"{"CANARY":1}"#,
    r#"{"name":}"#,
    "{}{}",
    r#"{"a":1e400}"#,
    "\u{feff}{}",
    "\u{0}",
];

/// All of them.
pub fn make(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        let run = start(&bench, "wait", "3600000").await?;
        bench.admin.until(&run, "waiting").await?;
        let keys = bench.admin.get("/api/keys").await?.json()?;
        let key = keys["keys"][0]["id"].as_str().context("a key has an id")?.to_owned();
        let mut cases = nonsense(&bench, &run, &key);
        cases.extend(keys_bodies(&key));
        cases.extend(settings_bodies());
        cases.extend(namespaces(&bench));
        cases.extend(issuers(&bench));
        cases.extend(runs_bodies(&run));
        Ok(cases)
    }
    .boxed()
}

fn put(path: &str, body: impl Into<Vec<u8>>) -> Request {
    Request { method: "PUT".into(), ..Request::post(path, body) }
}

/// Every route that reads its body, with each body that none of them has.
fn nonsense(bench: &Bench, run: &str, key: &str) -> Vec<Case> {
    let routes = [
        ("create-key", Request::post("/api/keys", "")),
        ("rotate-key", Request::post(format!("/api/keys/{key}/rotate"), "")),
        ("settings", put("/api/settings", "")),
        ("workflow-settings", put("/api/settings/workflows/echo", "")),
        ("restart", Request::post(format!("/api/executions/{run}/restart"), "")),
        ("bulk", Request::post("/api/bulk", "")),
        ("namespace", Request::post("/api/namespaces", "").by(bench.root.key())),
        ("namespace-key", Request::post("/api/namespaces/acme/keys", "").by(bench.root.key())),
        ("limits", put("/api/namespaces/acme/limits", "").by(bench.root.key())),
        ("issuer", put("/api/issuers", "").by(bench.root.key())),
    ];
    let mut cases = Vec::new();
    for (route, request) in routes {
        for (number, body) in NONSENSE.iter().enumerate() {
            let request = Request { body: body.as_bytes().to_vec(), echoes: true, ..request.clone() };
            cases.push(Case::refused(format!("{route}-{number}"), INVALID, request));
        }
    }
    cases
}

fn keys_bodies(key: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let good = json!({ "name": "CANARY", "scopes": ["read"] });
    let changes = [
        ("name", json!("")),
        ("name", json!(null)),
        ("name", json!(1)),
        ("name", json!("n".repeat(129))),
        ("name", json!("a\u{0}b")),
        ("name", json!("a\nb")),
        ("name", json!("pay\u{202e}stnem")),
        ("name", json!("a\u{200b}b")),
        ("scopes", json!(["write:a\u{202e}b"])),
        ("scopes", json!([])),
        ("scopes", json!(null)),
        ("scopes", json!("read")),
        ("scopes", json!(["root"])),
        ("scopes", json!(["Read"])),
        ("scopes", json!(["read "])),
        ("scopes", json!(["admin:echo"])),
        ("scopes", json!(["write:"])),
        ("scopes", json!(["write:\u{7}"])),
        ("scopes", json!([format!("write:{}", "w".repeat(129))])),
        ("scopes", json!([["read"]])),
        ("scopes", json!(vec!["read"; 33])),
        ("environment", json!("")),
        ("environment", json!("session")),
        ("environment", json!("LIVE")),
        ("environment", json!(1)),
        ("expires_at", json!(0)),
        ("expires_at", json!(1)),
        ("expires_at", json!(-1)),
        ("expires_at", json!(1.5)),
        ("expires_at", json!("2030-01-01")),
        ("other", json!(1)),
        ("key", json!("sw_live_acme_CANARY")),
    ];
    for (number, (field, value)) in changes.into_iter().enumerate() {
        let mut body = good.clone();
        body[field] = value;
        let request = Request::post("/api/keys", body.to_string()).may_echo();
        cases.push(Case::refused(format!("new-key-{field}-{number}"), INVALID, request));
    }
    for (number, value) in
        [json!(-1), json!(1.5), json!("1d"), json!(30 * 86_400_000_u64 + 1), json!(u64::MAX)]
            .into_iter()
            .enumerate()
    {
        let body = json!({ "overlap_ms": value }).to_string();
        let request = Request::post(format!("/api/keys/{key}/rotate"), body).may_echo();
        cases.push(Case::refused(format!("overlap-{number}"), INVALID, request));
    }
    for id in ["CANARY", "00000000", "..", "%00", "%FF", "'--", "0", "a b"] {
        for what in ["rotate", "revoke"] {
            let id = id.replace(' ', "%20");
            let request = Request::post(format!("/api/keys/{id}/{what}"), "");
            cases.push(Case::refused(
                format!("{what}-{id}"),
                &[Code::KeyNotFound, Code::RouteNotFound, Code::InvalidRequest],
                request,
            ));
        }
    }
    cases
}

fn settings_bodies() -> Vec<Case> {
    let values = [
        (json!({ "timeout_ms": 0 }), false),
        (json!({ "timeout_ms": -1 }), false),
        (json!({ "timeout_ms": 1.5 }), false),
        (json!({ "timeout_ms": "1h" }), false),
        (json!({ "timeout_ms": CENTURY_MS - 1 }), true),
        (json!({ "timeout_ms": CENTURY_MS }), true),
        (json!({ "timeout_ms": CENTURY_MS + 1 }), false),
        (json!({ "timeout_ms": u64::MAX }), false),
        (json!({ "retention_ms": CENTURY_MS }), true),
        (json!({ "retention_ms": CENTURY_MS + 1 }), false),
        (json!({ "retention_ms": -1 }), false),
        (json!({ "payload_bytes_max": -1 }), false),
        (json!({ "payload_bytes_max": 4_294_967_295_u64 }), true),
        (json!({ "payload_bytes_max": 4_294_967_296_u64 }), false),
        (json!({ "CANARY": 1 }), false),
        (json!({ "limits": { "live_runs": 1 } }), false),
    ];
    let mut cases = Vec::new();
    for path in ["/api/settings", "/api/settings/workflows/CANARY"] {
        for (number, (body, is_good)) in values.iter().enumerate() {
            let name = format!("{}-{number}", path.rsplit('/').next().unwrap_or_default());
            let request = put(path, body.to_string()).may_echo();
            cases.push(if *is_good {
                set_and_undone(name, request)
            } else {
                Case::refused(name, INVALID, request)
            });
        }
    }
    for (name, workflow) in
        [("long", "w".repeat(129)), ("control", "a%07b".into()), ("no-text", "%FF".into())]
    {
        let request = put(&format!("/api/settings/workflows/{workflow}"), "{}");
        cases.push(Case::refused(format!("workflow-{name}"), INVALID, request));
    }
    let limits = ["requests_per_second", "payload_bytes_per_second", "live_runs", "payload_bytes_max"];
    for name in limits {
        for value in [json!(0), json!(-1), json!(1.5), json!(4_294_967_296_u64), json!("1"), json!([])] {
            let body = json!({ name: value.clone() }).to_string();
            // Nobody of a namespace may say what it may use.
            let request = put("/api/namespaces/acme/limits", body).may_echo();
            cases.push(Case::refused(format!("own-{name}-{value}"), &[Code::Forbidden], request));
        }
    }
    cases
}

/// Settings that are good, and are taken back at once: they are not what is tried here.
fn set_and_undone(name: String, request: Request) -> Case {
    Case::new(Kind::Accepted, name, move |bench| async move {
        let set = bench.ask(&request).await?;
        let undo = match request.target.as_str() {
            "/api/settings" => put("/api/settings", "{}"),
            path => Request::new("DELETE", path),
        };
        expect_success(&bench.ask(&undo).await?)?;
        expect_success(&set)
    })
}

fn namespaces(bench: &Bench) -> Vec<Case> {
    let mut cases = Vec::new();
    let long = "n".repeat(33);
    let names: [(&str, &[Code]); 22] = [
        ("", INVALID),
        (" ", INVALID),
        ("A", INVALID),
        ("Acme", INVALID),
        ("1a", INVALID),
        ("-a", INVALID),
        ("a-", INVALID),
        ("a_b", INVALID),
        ("a/b", INVALID),
        ("a.b", INVALID),
        ("a b", INVALID),
        ("..", INVALID),
        ("é", INVALID),
        ("a\u{0}", INVALID),
        ("a\n", INVALID),
        (&long, INVALID),
        ("CANARYCANARY", INVALID),
        ("'; --", INVALID),
        ("%61", INVALID),
        ("\u{202e}a", INVALID),
        ("default", &[Code::NamespaceExists]),
        ("acme", &[Code::NamespaceExists]),
    ];
    for (number, (name, codes)) in names.into_iter().enumerate() {
        let codes: &'static [Code] = if codes == INVALID { INVALID } else { &[Code::NamespaceExists] };
        let body = json!({ "name": name }).to_string();
        let request = Request::post("/api/namespaces", body).by(bench.root.key());
        cases.push(Case::refused(format!("namespace-name-{number}"), codes, request));
    }
    for limits in [json!("CANARY"), json!(1), json!({ "live_runs": -1 }), json!({ "CANARY": 1 })] {
        let body = json!({ "name": "fresh", "limits": limits.clone() }).to_string();
        let request = Request::post("/api/namespaces", body).by(bench.root.key()).may_echo();
        cases.push(Case::refused(format!("namespace-limits-{limits}"), INVALID, request));
    }
    for name in ["never", "CANARY", "%00", "%FF", "a%2Fb", "Acme", "acme%20"] {
        let key = Request::post(format!("/api/namespaces/{name}/keys"), r#"{"name":"a","scopes":["read"]}"#);
        let limits = put(&format!("/api/namespaces/{name}/limits"), "{}");
        for (what, request) in [("keys", key), ("limits", limits)] {
            cases.push(Case::refused(
                format!("{what}-of-{name}"),
                &[Code::NamespaceNotFound, Code::RouteNotFound, Code::InvalidRequest, Code::MethodNotAllowed],
                request.by(bench.root.key()),
            ));
        }
    }
    for body in
        [json!({ "live_runs": 0 }), json!({ "requests_per_second": -1 }), json!({ "payload_bytes_max": 1.5 })]
    {
        let request = put("/api/namespaces/acme/limits", body.to_string()).by(bench.root.key()).may_echo();
        cases.push(Case::refused(format!("limits-{body}"), INVALID, request));
    }
    cases
}

fn issuers(bench: &Bench) -> Vec<Case> {
    let good = json!({
        "issuer": "https://issuer.example", "audience": "x", "jwks_url": "https://issuer.example/jwks",
        "namespace": { "fixed": "acme" },
    });
    let changes = [
        ("issuer", json!("")),
        ("issuer", json!("i".repeat(513))),
        ("issuer", json!(1)),
        ("audience", json!("")),
        ("audience", json!(null)),
        ("jwks_url", json!("")),
        ("jwks_url", json!("http://issuer.example/jwks")),
        ("jwks_url", json!("file:///etc/passwd")),
        ("jwks_url", json!("HTTPS")),
        ("jwks_url", json!(" https://issuer.example/jwks")),
        ("jwks_url", json!("javascript:alert(1)")),
        ("jwks_url", json!("//issuer.example")),
        ("jwks_url", json!("http://127.0.0.1.evil.example/")),
        ("jwks_url", json!("http://localhost:x@evil.example/")),
        ("jwks_url", json!("http://127.0.0.1:80@evil.example/")),
        ("jwks_url", json!("https://user:word@issuer.example/jwks")),
        ("jwks_url", json!("https://issuer.example\\@evil.example/jwks")),
        ("jwks_url", json!("http://127.0.0.1:8080/jwks")),
        ("namespace", json!({ "fixed": "No Name" })),
        ("namespace", json!({ "fixed": "" })),
        ("namespace", json!({ "claim": "" })),
        ("namespace", json!({ "other": "a" })),
        ("namespace", json!("acme")),
        ("namespace", json!({ "fixed": "a", "claim": "b" })),
        ("scopes", json!(["root"])),
        ("scopes", json!(vec!["read"; 33])),
        ("scopes_claim", json!("")),
        ("scopes_claim", json!("c".repeat(513))),
        ("CANARY", json!(1)),
    ];
    let mut cases = Vec::new();
    for (number, (field, value)) in changes.into_iter().enumerate() {
        let mut body: Value = good.clone();
        body[field] = value;
        let request = put("/api/issuers", body.to_string()).by(bench.root.key()).may_echo();
        cases.push(Case::refused(format!("issuer-{field}-{number}"), INVALID, request));
    }
    for query in ["", "?", "?other=CANARY", "?Issuer=a"] {
        let request = Request::new("DELETE", format!("/api/issuers{query}")).by(bench.root.key());
        cases.push(Case::refused(format!("remove-issuer{query}"), INVALID, request));
    }
    let request = Request::new("DELETE", "/api/issuers?issuer=CANARY%00%FF").by(bench.root.key());
    cases.push(Case::either("remove-no-issuer", request));
    cases
}

fn runs_bodies(run: &str) -> Vec<Case> {
    let restarts = [
        json!({ "from": 1 }),
        json!({ "from": "CANARY" }),
        json!({ "from": { "step": 1 } }),
        json!({ "from": { "occurrence": 1 } }),
        json!({ "from": { "step": "a", "occurrence": -1 } }),
        json!({ "from": { "step": "a", "occurrence": 1.5 } }),
        json!({ "from": { "step": "a", "CANARY": 1 } }),
        json!({ "to": { "step": "a" } }),
    ];
    let bulks = [
        json!({ "action": "cancel" }),
        json!({ "filter": { "from": 0 } }),
        json!({ "action": "CANARY", "filter": { "from": 0 } }),
        json!({ "action": "delete", "filter": { "from": 0 } }),
        json!({ "action": "Cancel", "filter": { "from": 0 } }),
        json!({ "action": null, "filter": { "from": 0 } }),
        json!({ "action": "cancel", "filter": {} }),
        json!({ "action": "cancel", "filter": null }),
        json!({ "action": "cancel", "filter": { "attributes": {} } }),
        json!({ "action": "cancel", "filter": { "status": "gone" } }),
        json!({ "action": "cancel", "filter": { "status": "Running" } }),
        json!({ "action": "cancel", "filter": { "status": [], "workflow": "ten" } }),
        json!({ "action": "cancel", "filter": { "status": null, "workflow": "ten" } }),
        json!({ "action": "cancel", "filter": { "status": ["failed", "gone"] } }),
        json!({ "action": "cancel", "filter": { "ids": [], "workflow": "ten" } }),
        json!({ "action": "cancel", "filter": { "ids": ["CANARY"] } }),
        json!({ "action": "cancel", "filter": { "ids": "CANARY" } }),
        json!({ "action": "cancel", "filter": { "error": "", "workflow": "ten" } }),
        json!({ "action": "cancel", "filter": { "retrying": "yes" } }),
        json!({ "action": "cancel", "filter": { "from": -1 } }),
        json!({ "action": "cancel", "filter": { "from": "CANARY" } }),
        json!({ "action": "cancel", "filter": { "until": 1.5 } }),
        json!({ "action": "cancel", "filter": { "tag": 1 } }),
        json!({ "action": "cancel", "filter": { "tag": ["a"] } }),
        json!({ "action": "cancel", "filter": { "attributes": { "a": 1 } } }),
        json!({ "action": "cancel", "filter": { "CANARY": "a" } }),
        json!({ "action": "cancel", "filter": { "from": 0 }, "CANARY": 1 }),
        json!(["cancel"]),
        json!(["cancel", { "from": 0 }]),
    ];
    let mut cases = Vec::new();
    for (number, body) in restarts.into_iter().enumerate() {
        let request = Request::post(format!("/api/executions/{run}/restart"), body.to_string()).may_echo();
        cases.push(Case::refused(format!("restart-body-{number}"), INVALID, request));
    }
    for (number, body) in bulks.into_iter().enumerate() {
        let request = Request::post("/api/bulk", body.to_string()).may_echo();
        cases.push(Case::refused(format!("bulk-body-{number}"), INVALID, request));
    }
    cases
}
