//! Paths that try to be others.

use anyhow::ensure;
use stepwell_protocol::Code;

use super::{
    bench::{Bench, expect_refusal, shown},
    case::{Case, Kind},
    wire::{Act, Request},
};

/// All of them.
pub fn make(bench: &Bench) -> Vec<Case> {
    let refused = [
        "/",
        "/api",
        "/api/",
        "/API/executions",
        "/Api/Executions",
        "/api/executions/",
        "/api//executions",
        "//api/executions",
        "/api/executions//",
        "/api/executions/x/",
        "/api/executions/x/why/",
        "/api/executions/x/nothing",
        "/api/executions/x/signals",
        "/api/executions/x/signals/",
        "/api/executions/x/signals/a/b",
        "/api/executions%2Fx",
        "/api%2Fexecutions",
        "/%61pi/executions",
        "/api/execution%73",
        "/api/executions;a=b",
        "/api/executions/%00",
        "/api/executions/x%00",
        "/api/executions/%",
        "/api/executions/%2",
        "/api/executions/%zz",
        "/api/executions/%FF",
        "/api/executions/%C0%AE%C0%AE",
        "/api/executions/%C3%28",
        "/api/executions/%ED%A0%80",
        "/api/executions/%FF/why",
        "/api/executions/%FF/history",
        "/api/executions/%FF/stream",
        "/api/workflows/%FF",
        "/api/executions/%2e%2e%2fkeys",
        "/api/executions/..%2fkeys",
        "/api/executions/%252e%252e",
        "/api/executions/..;/keys",
        "/api/executions/\\..\\keys",
        "/api/executions/x\\why",
        "/api/executions/x%5Cwhy",
        "/api/executions/x?/why",
        "/api/executions/*",
        "/api/executions/{id}",
        "/api/executions/:id",
        "/api/executions/x|y",
        "/api/executions/é",
        "/api/executions/\u{202e}",
        "/api/executions/x%0d%0aX-Other:%20CANARY",
        "/api/executions/x%0aSet-Cookie:%20CANARY",
        "/api/openapi.json/",
        "/api/openapi.JSON",
        "/api/openapi%2Ejson/x",
        "/api/docs/",
        "/api/docs/../keys/x",
        "/docs",
        "/metrics",
        "/favicon.ico",
        "/robots.txt",
        "/.well-known/security.txt",
        "/.env",
        "/index.php",
        "/cdn-cgi/trace",
        "/api/bulk",
        "/strike",
        "/?follow=CANARY",
        "/ask",
        "/activate",
        "/stepwellActivate",
        "/api/internal",
        "/api/executions/../../etc/passwd",
        "/../../../api/nothing",
        "/api/./nothing",
    ];
    let mut cases: Vec<_> = refused
        .into_iter()
        .enumerate()
        .map(|(number, path)| {
            Case::new(Kind::Refused, format!("path-{number}"), move |bench| async move {
                let answer = bench.ask(&Request::get(path)).await?;
                expect_refusal(
                    &answer,
                    &[
                        Code::RouteNotFound,
                        Code::RunNotFound,
                        Code::WorkflowNotFound,
                        Code::MethodNotAllowed,
                        Code::InvalidRequest,
                    ],
                )
            })
        })
        .collect();
    // Whoever reads a path in another way than the router must not be let in for it: this key may read runs, not keys.
    for (number, path) in [
        "/api/executions/../keys",
        "/api/executions/%2e%2e/keys",
        "/api/./keys",
        "/api/keys#/../executions",
        "/api/x/%2E%2e/keys",
        "/api/executions/..\\keys",
        "/api\\keys",
        "/api/keys?/api/executions",
        "/api/docs/../keys",
        "/api/openapi.json/../keys",
        "/api/openapi.json/%2e%2e/audit",
        "/api/docs/..\\audit",
    ]
    .into_iter()
    .enumerate()
    {
        let request = Request::get(path).by(bench.reader.key());
        cases.push(Case::new(Kind::Refused, format!("detour-{number}"), move |bench| async move {
            let answer = bench.ask(&request).await?;
            ensure!([400, 403, 404].contains(&answer.status), "{} {}", answer.status, shown(&answer.body));
            Ok(())
        }));
        let request = Request::get(path).by("");
        cases.push(Case::new(Kind::Refused, format!("detour-of-nobody-{number}"), move |bench| async move {
            expect_refusal(&bench.ask(&request).await?, &[Code::Unauthorized])
        }));
    }
    // Other forms of a first line.
    for (name, target) in [
        ("absolute", format!("http://{}/api/executions", bench.address)),
        ("absolute-elsewhere", "http://elsewhere.example/api/executions".into()),
        ("other-scheme", "ftp://elsewhere.example/api/executions".into()),
        ("asterisk", "*".into()),
        ("no-slash", "api/executions".into()),
        ("only-a-query", "?limit=1".into()),
        ("only-a-fragment", "#CANARY".into()),
        ("authority", "elsewhere.example:80".into()),
        ("user", "//user:CANARY@elsewhere.example/api/executions".into()),
        ("angles", "/api/executions/<id>".into()),
        ("backtick", "/api/executions/x^y`z".into()),
        ("raw-bytes", "/api/executions/\u{1}\u{2}".into()),
        ("tab", "/api/exec\tutions".into()),
    ] {
        let bytes = Request::get(target).bytes(&bench.address, bench.admin.key());
        cases.push(Case::server_or_good(name, vec![Act::Send(bytes), Act::End]));
    }
    cases
}
