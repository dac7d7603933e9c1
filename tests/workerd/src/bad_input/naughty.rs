//! Texts that make trouble elsewhere, in every place where a caller may put a text of its own.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use stepwell_protocol::{Code, text::is_visible, topic::parts};

use super::{
    bench::{Bench, expect_refusal, expect_success, run_id, shown},
    case::{Case, Kind, start},
    wire::{Act, Request},
};

/// The longest name of a workflow or signal, idempotency key and tag, in bytes.
const NAME_BYTES_MAX: usize = 128;
const KEY_BYTES_MAX: usize = 256;
const TAG_BYTES_MAX: usize = 64;

/// All texts, with a name for each.
fn all() -> Vec<(String, String)> {
    let classes: BTreeMap<String, Vec<String>> =
        serde_json::from_str(include_str!("../../fixtures/bad_input/naughty.json"))
            .expect("it is kept as JSON");
    let named = classes.into_iter().flat_map(|(class, texts)| {
        let class = class.replace(' ', "-");
        texts.into_iter().enumerate().map(move |(number, text)| (format!("{class}-{number}"), text))
    });
    named.collect()
}

/// A text as it stands in a path or a query.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Whether a path with this segment is still the path of the same route.
fn is_segment(text: &str) -> bool {
    !["", ".", ".."].contains(&text)
}

fn is_name(text: &str, bytes_max: usize) -> bool {
    !text.is_empty() && text.len() <= bytes_max && is_visible(text)
}

/// As the name of an event, and in a trigger. None of them is one, so no topic is made.
pub fn events(_: &Bench) -> Vec<Case> {
    let put = |body: String| Request {
        method: "PUT".into(),
        ..Request::post("/api/triggers/canary/naughty", body)
    };
    let mut cases = Vec::new();
    for (name, text) in all().into_iter().filter(|(_, text)| parts(text).is_none()) {
        let event = json!({ "name": text, "data": { "canary": "CANARY" } });
        let request = Request::post("/api/events", event.to_string());
        cases.push(Case::refused(format!("event-{name}"), &[Code::InvalidRequest], request));
        let spec = json!({ "on": "canary/*", "when": format!("{text} ==="), "workflow": "echo" });
        let request = put(spec.to_string());
        cases.push(Case::refused(format!("when-{name}"), &[Code::InvalidRequest], request));
        let spec = json!({ "on": text, "workflow": "echo" });
        let request = put(spec.to_string());
        cases.push(Case::refused(format!("on-{name}"), &[Code::InvalidRequest], request));
    }
    cases
}

/// As the id of a run.
pub fn ids(_: &Bench) -> Vec<Case> {
    const ROUTES: [(&str, &str); 11] = [
        ("GET", ""),
        ("GET", "/why"),
        ("GET", "/history"),
        ("GET", "/stream"),
        ("POST", "/cancel"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/retry"),
        ("POST", "/restart"),
        ("POST", "/signals/CANARY"),
        ("GET", "/history?after=1"),
    ];
    let cases = all().into_iter().zip(ROUTES.into_iter().cycle()).map(|((name, text), (method, rest))| {
        let request = Request::new(method, format!("/api/executions/{}{rest}", encoded(&text)));
        let codes: &[_] = if is_segment(&text) {
            &[Code::RunNotFound]
        } else {
            // Dots that are no part of a name lead elsewhere, or nowhere.
            &[Code::RouteNotFound, Code::RunNotFound, Code::InvalidRequest]
        };
        Case::refused(name, codes, request)
    });
    cases.collect()
}

/// As the name of a workflow, which the answer may name.
pub fn workflows(_: &Bench) -> Vec<Case> {
    let cases = all().into_iter().enumerate().map(|(number, (name, text))| {
        let path = format!("/api/workflows/{}", encoded(&text));
        let request = if number % 4 == 0 {
            Request::get(path)
        } else {
            Request::post(format!("{path}/start"), "\"CANARY\"").may_echo()
        };
        let codes: &[_] = if !is_segment(&text) {
            &[Code::RouteNotFound, Code::MethodNotAllowed]
        } else if number % 4 != 0 && (!is_name(&text, NAME_BYTES_MAX) || text.starts_with("stepwell.")) {
            &[Code::InvalidRequest]
        } else {
            &[Code::WorkflowNotFound]
        };
        Case::refused(name, codes, request)
    });
    cases.collect()
}

/// As an idempotency key.
pub fn keys(bench: &Bench) -> Vec<Case> {
    let cases = all().into_iter().map(|(name, text)| {
        let request = || {
            let request = Request::post("/api/workflows/echo/start", "\"CANARY\"");
            request.header("Idempotency-Key", text.as_bytes())
        };
        let key = text.trim_matches([' ', '\t']);
        let is_visible = key.bytes().all(|byte| (0x20..0x7f).contains(&byte) || byte == b'\t');
        if text.bytes().any(|byte| byte < 0x20 && byte != b'\t' || byte == 0x7f) {
            // What is no header may end it, and begin another one.
            let bytes = request().bytes(&bench.address, bench.admin.key());
            return Case::server_or_good(name, vec![Act::Send(bytes)]);
        }
        // No path can name a run by dots alone.
        let is_dots = [".", ".."].contains(&key);
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !is_visible || is_dots {
            return Case::refused(name, &[Code::InvalidRequest], request());
        }
        let request = request();
        Case::new(Kind::Accepted, name, move |bench| async move {
            let (first, again) = (bench.ask(&request).await?, bench.ask(&request).await?);
            expect_success(&first)?;
            expect_success(&again)?;
            ensure!(again.status == 200, "it starts another run: {}", again.status);
            ensure!(run_id(&first)? == run_id(&again)?, "it leads to another run");
            Ok(())
        })
    });
    cases.collect()
}

/// Within a payload.
pub fn payloads(_: &Bench) -> Vec<Case> {
    let cases = all().into_iter().map(|(name, text)| {
        let mut payload = json!({ "canary": "CANARY", "value": text.clone() });
        payload[text] = json!("CANARY");
        Case::payload(name, payload.to_string())
    });
    cases.collect()
}

/// As a tag, by which the run is found then.
pub fn tags(_: &Bench) -> Vec<Case> {
    let cases = all().into_iter().map(|(name, text)| {
        let tag = encoded(&text);
        let request = Request::post(format!("/api/workflows/echo/start?tag={tag}"), "\"CANARY\"");
        if !is_name(&text, TAG_BYTES_MAX) {
            return Case::refused(name, &[Code::InvalidRequest], request);
        }
        Case::new(Kind::Accepted, name, move |bench| async move {
            let answer = bench.ask(&request).await?;
            expect_success(&answer)?;
            ensure!(answer.json()?["tags"] == json!([text]), "its tags are {}", shown(&answer.body));
            let found = bench.ask(&Request::get(format!("/api/executions?tag={tag}"))).await?.json()?;
            let found: Vec<_> = found["executions"].as_array().into_iter().flatten().collect();
            ensure!(found.len() == 1 && found[0]["id"] == run_id(&answer)?, "its tag leads to {found:?}");
            Ok(())
        })
    });
    cases.collect()
}

/// As the name of a signal, which is in the run's history then.
pub fn signals(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        let run = start(&bench, "wait", "3600000").await?;
        bench.admin.until(&run, "waiting").await?;
        let (mut cases, mut sent) = (Vec::new(), Vec::new());
        for (name, text) in all() {
            let path = format!("/api/executions/{run}/signals/{}", encoded(&text));
            let request = Request::post(path, "\"CANARY\"");
            cases.push(if !is_segment(&text) {
                Case::refused(
                    name,
                    &[Code::RouteNotFound, Code::RunNotFound, Code::MethodNotAllowed],
                    request,
                )
            } else if is_name(&text, NAME_BYTES_MAX) {
                sent.push(text);
                Case::accepted(name, request)
            } else {
                Case::refused(name, &[Code::InvalidRequest], request)
            });
        }
        cases.push(Case::new(Kind::Accepted, "all-are-in-the-history", move |bench| async move {
            // Others may still be on their way.
            for _ in 0..50 {
                let names = names_in_history(&bench, &run).await?;
                if sent.iter().all(|name| names.contains(name)) {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let names = names_in_history(&bench, &run).await?;
            let missing = sent.iter().find(|name| !names.contains(name));
            anyhow::bail!("{missing:?} is not in the history")
        }));
        Ok(cases)
    }
    .boxed()
}

async fn names_in_history(bench: &Bench, run: &str) -> Result<Vec<String>> {
    let events = bench.admin.history(run).await?;
    let names = events.iter().filter_map(|event| event["event"]["signal_received"]["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// In the filter of a list.
pub fn filters(_: &Bench) -> Vec<Case> {
    const PARAMETERS: [&str; 9] = [
        "workflow",
        "attribute",
        "status",
        "from",
        "until",
        "limit",
        "cursor",
        "attribute=x",
        "tag=a&workflow",
    ];
    let cases = all().into_iter().zip(PARAMETERS.into_iter().cycle()).map(|((name, text), parameter)| {
        let value = encoded(&text);
        let request = Request::get(match parameter {
            "attribute=x" => format!("/api/executions?attribute=x:{value}"),
            other => format!("/api/executions?{other}={value}"),
        });
        if parameter.ends_with("workflow") || parameter == "attribute=x" {
            return Case::new(Kind::Accepted, name, move |bench| async move {
                let list = bench.ask(&request).await?.json()?;
                let is_empty = list["executions"].as_array().is_some_and(Vec::is_empty);
                ensure!(is_empty, "it finds {}", shown(&list.to_string()));
                Ok(())
            });
        }
        Case::new(Kind::Either, name, move |bench| async move {
            let answer = bench.ask(&request.may_echo()).await?;
            if answer.status < 400 {
                let list: Value = answer.json()?;
                ensure!(list["executions"].is_array(), "{}", shown(&answer.body));
                return Ok(());
            }
            expect_refusal(&answer, &[Code::InvalidRequest])
        })
    });
    cases.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_text_is_there_once() {
        let (all, mut seen) = (all(), BTreeSet::new());
        for (name, text) in &all {
            assert!(seen.insert(text), "{name} is there twice");
        }
        assert!(all.len() >= 515, "{} texts", all.len());
    }

    #[test]
    fn what_is_encoded_is_visible() {
        assert_eq!(encoded("a b/é\0.."), "a%20b%2F%C3%A9%00..");
    }
}
