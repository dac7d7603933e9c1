//! Every route of the table with methods that it does not take, and with headers about forms of content.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use futures::future::{BoxFuture, FutureExt as _};
use stepwell_protocol::{
    Code,
    routes::{Entry, Method, Route, Scope},
};

use super::{
    bench::{Bench, expect_refusal, expect_success},
    case::{Case, Kind, start},
    wire::Request,
};

/// Methods that the server knows, whatever the routes take.
const METHODS: [&str; 17] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "COPY", "LOCK", "MKCOL", "MOVE",
    "PROPFIND", "SEARCH", "UNLOCK", "REPORT", "PURGE",
];

/// What may stand in `Content-Type` and `Accept`, and means nothing to anybody here.
const FORMS: [&str; 12] = [
    "application/json",
    "text/plain",
    "application/xml",
    "application/json; charset=utf-16",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=CANARY",
    "application/octet-stream",
    "CANARY",
    ";;;",
    "*/*;q=0",
    "text/html, */*;q=CANARY",
    "application/problem+json",
];

/// All of them.
pub fn make(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        let run = start(&bench, "wait", "3600000").await?;
        bench.admin.until(&run, "waiting").await?;
        let mut taken: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for route in Route::ALL {
            let Entry { method, path, .. } = route.entry();
            taken.entry(path).or_default().push(method.as_str());
        }
        let mut cases = Vec::new();
        for (pattern, methods) in taken {
            let path = named(pattern, &run);
            for method in METHODS {
                let takes_head = method == "HEAD" && methods.contains(&"GET");
                if methods.contains(&method) || takes_head {
                    continue;
                }
                // The deployment's own key: nothing but the method is in the way.
                let request = Request::new(method, path.clone()).by(bench.root.key());
                cases.push(refuses(format!("{method}{pattern}"), methods.clone(), request));
            }
        }
        cases.extend(heads(&bench, &run));
        cases.extend(forms(&run));
        Ok(cases)
    }
    .boxed()
}

/// A path of a route.
fn named(pattern: &str, run: &str) -> String {
    pattern
        .replace("{id}", run)
        .replace("{workflow}", "echo")
        .replace("{lane}", "calls")
        .replace("{name}", "news")
        .replace("{key}", "00000000")
        .replace("{namespace}", "acme")
}

/// A method that a path does not take: the answer says which ones it does.
fn refuses(name: String, methods: Vec<&'static str>, request: Request) -> Case {
    Case::new(Kind::Refused, name, move |bench| async move {
        let answer = bench.ask(&request).await?;
        if request.method == "HEAD" {
            ensure!(answer.status == 405, "{}", answer.status);
        } else {
            expect_refusal(&answer, &[Code::MethodNotAllowed])?;
        }
        let allowed = answer.headers.get("allow").context("405 says what is allowed")?.to_str()?.to_owned();
        for method in methods {
            ensure!(allowed.contains(method), "it takes {method}, and allows {allowed}");
        }
        Ok(())
    })
}

/// A request for the headers alone: whoever may not read what they are about may not read them.
fn heads(bench: &Bench, run: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for route in Route::ALL {
        let Entry { method, path, scope, .. } = route.entry();
        if method != Method::Get {
            continue;
        }
        let request = Request::new("HEAD", named(path, run));
        let by_nobody = request.clone().by("");
        let by_reader = request.clone().by(bench.reader.key());
        let by_root = request.by(bench.root.key());
        let is_open = scope == Scope::Open;
        let may_read = scope <= Scope::Read;
        cases.push(status(format!("HEAD-{}-nobody", route.name()), is_open, &[401], by_nobody));
        cases.push(status(format!("HEAD-{}-reader", route.name()), may_read, &[403], by_reader));
        // A run of another namespace, a session that there is none of: whatever it is, it is no error of the server's.
        cases.push(Case::either(format!("HEAD-{}-root", route.name()), by_root));
    }
    cases
}

fn status(name: String, is_good: bool, refused: &'static [u16], request: Request) -> Case {
    let kind = if is_good { Kind::Either } else { Kind::Refused };
    Case::new(kind, name, move |bench| async move {
        let answer = bench.ask(&request).await?;
        let is_right = if is_good { answer.status != 403 } else { refused.contains(&answer.status) };
        ensure!(is_right, "{}", answer.status);
        ensure!(answer.body.is_empty(), "there is a body: {}", answer.body);
        Ok(())
    })
}

/// Neither is looked at.
fn forms(run: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, form) in FORMS.into_iter().enumerate() {
        let body = r#"{"canary":"CANARY"}"#;
        let request = Request::post("/api/workflows/echo/start", body).header("Content-Type", form);
        cases.push(taken(format!("content-type-start-{number}"), request));
        let request = Request::post(format!("/api/executions/{run}/signals/news"), body);
        cases.push(taken(format!("content-type-signal-{number}"), request.header("Content-Type", form)));
        for (name, path) in
            [("list", "/api/executions"), ("metrics", "/api/metrics"), ("openapi", "/api/openapi.json")]
        {
            let request = Request::get(path).header("Accept", form).header("Accept-Language", "CANARY");
            cases.push(taken(format!("accept-{name}-{number}"), request));
        }
        let request =
            Request::get("/api/executions/none").header("Accept", form).header("Accept-Encoding", form);
        cases.push(Case::refused(format!("accept-refused-{number}"), &[Code::RunNotFound], request));
    }
    cases
}

fn taken(name: String, request: Request) -> Case {
    Case::new(Kind::Accepted, name, move |bench| async move {
        let answer = bench.ask(&request).await?;
        expect_success(&answer)?;
        let kind = answer.headers.get("content-type").context("an answer has a type")?.to_str()?.to_owned();
        ensure!(kind == "application/json", "the answer is {kind}");
        Ok(())
    })
}
