//! Traces, as a collector gets them: decoded with OpenTelemetry's own definitions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value as Held,
    trace::v1::{Span, status::StatusCode},
};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_protocol::text::hex;
use stepwell_workerd_tests::{
    TestResult,
    endpoint::{Endpoint, Reply},
    engine::{Engine, Form},
};
use tokio::time::{Duration, sleep};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Held::StringValue(text)) => text.clone(),
        Some(Held::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// All spans that the collector was sent.
fn spans(collector: &Endpoint) -> Result<Vec<Span>> {
    let mut spans = Vec::new();
    for call in collector.calls() {
        assert_eq!((call.path.as_str(), call.header("content-type")), ("/v1/traces", "application/json"));
        assert_eq!(call.header("api-key"), "a b");
        let request: ExportTraceServiceRequest =
            serde_json::from_slice(&call.body).with_context(|| call.text())?;
        for of_resource in request.resource_spans {
            let about = of_resource.resource.context("a resource")?.attributes;
            let keys: Vec<_> = about.iter().map(|attribute| attribute.key.as_str()).collect();
            assert_eq!(keys, ["service.name", "stepwell.namespace"]);
            spans.extend(of_resource.scope_spans.into_iter().flat_map(|scoped| scoped.spans));
        }
    }
    Ok(spans)
}

/// Waits for this many spans, and for a moment longer.
async fn until(collector: &Endpoint, count: usize) -> Result<Vec<Span>> {
    for _ in 0..150 {
        if spans(collector)?.len() >= count {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_millis(1_500)).await;
    spans(collector)
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

async fn start(engine: &Engine, headers: &[(&str, &str)], sleep_ms: u64) -> Result<String> {
    let path = "/api/workflows/traced/start";
    let run =
        engine.client().request_with(Method::POST, path, headers, &sleep_ms.to_string()).await?.json()?;
    Ok(run["id"].as_str().context("an id")?.to_owned())
}

#[tokio::test]
async fn a_run_with_retries_a_sleep_over_a_kill_and_a_child_is_one_trace() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let collector = Endpoint::start(|_, _| Reply::new("200 OK")).await?;
        let endpoint = collector.url("");
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b"),
        ];
        let mut engine = Engine::start_with(form, &variables).await?;
        let run = start(&engine, &[("traceparent", PARENT)], 6_000).await?;
        until(&collector, 3).await?;
        engine.engine.restart().await?;
        let view = engine.client().until(&run, "completed").await?;
        let spans = until(&collector, 9).await?;
        let told: Vec<_> = spans.iter().map(|span| span.name.clone()).collect();
        assert_eq!(spans.len(), 9, "{told:?}");
        let ids: BTreeMap<_, _> = spans.iter().map(|span| (hex(&span.span_id), span)).collect();
        assert_eq!(ids.len(), 9, "no span came twice");
        assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
        let [root] = named(&spans, "traced")[..] else { panic!("{told:?}") };
        assert_eq!(hex(&root.parent_span_id), "b7ad6b7169203331");
        assert_eq!(
            (attribute(root, "stepwell.status"), attribute(root, "stepwell.run.id")),
            ("completed".into(), run)
        );
        let attempts = named(&spans, "flaky");
        let numbers: BTreeSet<_> = attempts.iter().map(|span| attribute(span, "stepwell.attempt")).collect();
        assert_eq!(numbers, ["1", "2", "3"].map(str::to_owned).into());
        for attempt in &attempts {
            assert_eq!(attempt.parent_span_id, root.span_id);
            let failed = attribute(attempt, "stepwell.attempt") != "3";
            let status = attempt.status.as_ref().map(|status| (status.code(), status.message.as_str()));
            assert_eq!(status, failed.then_some((StatusCode::Error, "busy")));
        }
        // What the step passes to others is its own span.
        let passed = view["output"].as_str().context("a header")?;
        let third =
            attempts.iter().find(|span| attribute(span, "stepwell.attempt") == "3").context("the third")?;
        assert_eq!(passed, format!("00-{TRACE}-{}-01", hex(&third.span_id)));
        let [rest] = named(&spans, "rest")[..] else { panic!("{told:?}") };
        assert_eq!(rest.parent_span_id, root.span_id);
        assert!(rest.end_time_unix_nano - rest.start_time_unix_nano >= 6_000_000_000, "{rest:?}");
        let of_child = named(&spans, "traced_child");
        let kind = |kind: &str| of_child.iter().find(|span| attribute(span, "stepwell.kind") == kind);
        let (invocation, waiting) =
            (kind("invocation").context("an invocation")?, kind("child").context("a wait")?);
        let child = kind("run").context("a child")?;
        assert_eq!((&invocation.parent_span_id, &waiting.parent_span_id), (&root.span_id, &root.span_id));
        assert_eq!(child.parent_span_id, invocation.span_id);
        let [write] = named(&spans, "write")[..] else { panic!("{told:?}") };
        assert_eq!(write.parent_span_id, child.span_id);
        for span in &spans {
            let parent = ids.get(&hex(&span.parent_span_id));
            let begins = parent.map_or(0, |parent| parent.start_time_unix_nano);
            assert!(span.start_time_unix_nano >= begins, "{} begins before its parent", span.name);
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        }
    }
    Ok(())
}

#[tokio::test]
async fn runs_do_not_wait_for_a_collector_and_are_sent_as_their_caller_says() -> TestResult {
    let collector = Endpoint::start(|_, _| {
        let mut reply = Reply::new("503 Service Unavailable");
        reply.after = Duration::from_secs(3);
        reply
    })
    .await?;
    let endpoint = collector.url("");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b"),
        ("OTEL_TRACES_SAMPLER_ARG", "0"),
        ("STEPWELL_CELLS", "1"),
    ];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let client = engine.client();
    // Of itself none, and not where the caller has decided against it.
    for headers in
        [&[][..], &[("traceparent", &*PARENT.replace("-01", "-00"))], &[("traceparent", "nonsense")]]
    {
        let run = start(&engine, headers, 10).await?;
        let view = client.until(&run, "completed").await?;
        let passed = view["output"].as_str().context("what is not sampled is passed on as such")?;
        assert!(passed.ends_with("-00"), "{passed}");
    }
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(collector.calls().len(), 0);
    for _ in 0..5 {
        let run = start(&engine, &[("traceparent", PARENT)], 10).await?;
        client.until(&run, "completed").await?;
    }
    let spans = until(&collector, 45).await?;
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!((spans.len(), ids.len()), (45, 45), "each is sent once, though nothing good is heard of it");
    assert_eq!(collector.most(), 1, "a cell has one request under way: the next spans wait for its answer");
    Ok(())
}

#[tokio::test]
async fn a_collector_that_means_nothing_is_refused_without_its_secret() -> TestResult {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://otel.example.com"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
    ];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let answer = engine.client().send_post("/api/workflows/ten/start", "null").await?;
    let problem: Value = serde_json::from_str(&answer.body)?;
    assert_eq!((answer.status, &problem["code"]), (500, &json!("misconfigured")), "{problem}");
    let detail = problem["detail"].as_str().context("a sentence")?;
    assert!(detail.contains("OTEL_EXPORTER_OTLP_HEADERS") && !detail.contains("hunter2"), "{detail}");
    Ok(())
}
