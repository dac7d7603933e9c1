//! Keys, sessions, settings and limits on the real workerd.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use stepwell_protocol::routes::Route;
use stepwell_workerd_tests::{
    Answer, TestResult,
    access::{self, Plan, code, key, namespace},
    engine::{Client, Engine, Form},
};

async fn put(client: &Client, path: &str, body: &Value) -> anyhow::Result<Value> {
    client.request("PUT", path, &body.to_string()).await?.json()
}

#[tokio::test]
async fn every_route_refuses_everybody_who_may_not_ask_it() -> TestResult {
    let report = access::run(&Plan { form: Form::Split, crossings: 500, revocations: 4, seed: 1 }).await?;
    println!("{report}");
    Ok(())
}

#[tokio::test]
async fn a_route_that_forgets_to_check_is_noticed() -> TestResult {
    let asked = [Route::ListKeys, Route::SetIssuer, Route::ListRuns, Route::PauseWorkflow];
    for route in [Route::ListKeys, Route::SetIssuer] {
        let (name, entry) = (route.name(), route.entry());
        let engine = Engine::start_with_leak(Form::AllInOne, 2, entry.method.as_str(), entry.path).await?;
        let report = access::ask(&engine.client(), &asked).await?;
        let wrong = |line: &&String| line.starts_with(&format!("{name}: "));
        let kinds = ["NoKey", "Malformed", "BadChecksum", "Forged", "Expired", "Revoked", "WrongScope"];
        for kind in kinds {
            let is_noticed =
                report.wrong.iter().filter(wrong).any(|line| line.ends_with(&format!("({kind})")));
            assert!(is_noticed, "{kind} may ask {name}, and nobody has noticed: {:?}", report.wrong);
        }
        let strangers = report.wrong.iter().filter(|line| !wrong(line));
        assert_eq!(strangers.count(), 0, "{:?}", report.wrong);
        assert!(report.check().is_err());
    }
    Ok(())
}

#[tokio::test]
async fn runs_of_two_namespaces_never_meet() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let (one, two) = (namespace(&root, "one").await?, namespace(&root, "two").await?);
    let mut ids = Vec::new();
    for client in [&root, &one, &two] {
        let run = client.start("ten", &Value::Null, Some("order-1"), 10).await?;
        assert_eq!(run.status, 201, "the same key is another one in each namespace");
        let run = run.json()?;
        assert_eq!(run["output"], 45);
        ids.push(run["id"].as_str().unwrap_or_default().to_owned());
    }
    for (client, own) in [(&root, 0), (&one, 1), (&two, 2)] {
        let listed = client.get("/api/executions").await?.json()?;
        let listed: Vec<_> =
            listed["executions"].as_array().into_iter().flatten().map(|run| &run["id"]).collect();
        assert_eq!(listed, [&json!(ids[own])]);
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(client.show(id, 0).await?.status, if index == own { 200 } else { 404 });
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_run_of_a_namespace_survives_a_kill() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let run = admin.start_id("nap", json!(1_500)).await?;
    admin.until(&run, "sleeping").await?;
    engine.engine.kill();
    engine.engine.restart().await?;
    let client = engine.client().with_key(admin.key());
    assert_eq!(client.show(&run, 10).await?.json()?["output"], "awake");
    Ok(())
}

#[tokio::test]
async fn a_key_of_one_workflow_sees_and_starts_nothing_else() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (_, only) = key(&admin, &["write:nap"]).await?;
    let (_, mixed) = key(&admin, &["read", "write:nap"]).await?;
    let (nap, other) =
        (only.start_id("nap", json!(60_000)).await?, admin.start_id("wait", json!(60_000)).await?);
    for path in ["/api/workflows/wait/start", "/api/workflows/w%61it/start"] {
        let refused = only.request("POST", path, "1").await?;
        assert_eq!((refused.status, code(&refused)?.as_str()), (403, "forbidden"));
    }
    assert_eq!(only.request("POST", "/api/workflows/n%61p/start", "60000").await?.status, 201);
    assert_eq!(code(&only.show(&other, 0).await?)?, "run_not_found");
    assert_eq!(code(&only.cancel(&other).await?)?, "run_not_found");
    assert_eq!(mixed.show(&other, 0).await?.status, 200);
    assert_eq!(code(&mixed.cancel(&other).await?)?, "forbidden");
    let listed = only.get("/api/executions").await?;
    assert!(listed.body.contains(&nap) && !listed.body.contains(&other), "{}", listed.body);
    for wider in ["", "?workflow=wait", "?workflow=nap&workflow=wait", "?workflow=wait&workflow=nap"] {
        let refused = only.get(&format!("/api/metrics{wider}")).await?;
        assert_eq!((refused.status, code(&refused)?.as_str()), (403, "forbidden"), "{wider}");
    }
    let counted = only.get("/api/metrics?workflow=nap").await?.json()?;
    assert_eq!((&counted["total"], &counted["workflows"]["wait"]), (&json!(2), &Value::Null));
    assert_eq!(only.cancel(&nap).await?.status, 200);
    assert_eq!(admin.show(&other, 0).await?.json()?["status"], "waiting");
    Ok(())
}

#[tokio::test]
async fn while_a_key_is_rotated_both_are_good_and_the_old_one_ends() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 2).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (id, old) = key(&admin, &["read"]).await?;
    old.get("/api/executions").await?.json()?;
    let made = admin.post_json(&format!("/api/keys/{id}/rotate"), &json!({ "overlap_ms": 1_500 })).await?;
    let new = admin.with_key(made["key"].as_str().unwrap_or_default());
    let began = Instant::now();
    new.get("/api/executions").await?.json()?;
    let mut was_good = false;
    while old.get("/api/executions").await?.status == 200 {
        was_good = true;
        assert!(began.elapsed() < Duration::from_secs(10), "the old key never ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(was_good && began.elapsed() >= Duration::from_millis(1_400));
    assert_eq!(new.get("/api/executions").await?.status, 200);
    let listed = admin.get("/api/keys").await?;
    assert!(!listed.body.contains("hash") && !listed.body.contains(old.key()), "{}", listed.body);
    Ok(())
}

#[tokio::test]
async fn a_revocation_reaches_the_cells_even_if_the_catalog_dies_before_it_has_told_them() -> TestResult {
    let mut engine = Engine::start(Form::AllInOne, 2).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    for _ in 0..3 {
        let (id, client) = key(&admin, &["read"]).await?;
        client.get("/api/executions").await?.json()?;
        let (path, revoking) = (format!("/api/keys/{id}/revoke"), engine.client().with_key(admin.key()));
        let revoked = tokio::spawn(async move { revoking.request("POST", &path, "").await });
        tokio::time::sleep(Duration::from_millis(2)).await;
        engine.engine.kill();
        let was_answered = revoked.await?.is_ok_and(|answer| answer.status == 200);
        engine.engine.restart().await?;
        let (client, admin) = (engine.client().with_key(client.key()), engine.client().with_key(admin.key()));
        let keys = admin.get("/api/keys").await?.json()?;
        let is_revoked = keys["keys"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|key| key["id"] == json!(id) && key["status"] == "revoked");
        assert!(is_revoked || !was_answered, "what was answered was not kept");
        assert_eq!(client.get("/api/executions").await?.status == 401, is_revoked);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_comes_as_a_cookie_and_ends_at_once() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (_, reader) = key(&admin, &["read"]).await?;
    let opened = reader.request("POST", "/api/session", "").await?;
    let cookie = opened.headers["set-cookie"].to_str()?.to_owned();
    for term in ["HttpOnly", "Secure", "SameSite=Strict", "Path=/api", "Max-Age=604800"] {
        assert!(cookie.contains(term), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap_or_default().to_owned();
    let http = engine.engine.http();
    let browse = async |path: &str, site: &str| {
        let request =
            http.client().get(http.url(path)).header("cookie", &pair).header("sec-fetch-site", site);
        http.send(request, path).await
    };
    assert_eq!(browse("/api/executions", "same-origin").await?.status, 200);
    assert_eq!(browse("/api/executions", "cross-site").await?.status, 401);
    assert_eq!(code(&browse("/api/keys", "same-origin").await?)?, "forbidden");
    let token = opened.json()?["token"].as_str().unwrap_or_default().to_owned();
    let session = reader.with_key(&token);
    assert_eq!(session.get("/api/session").await?.json()?["namespace"], "acme");
    assert_eq!(code(&session.request("POST", "/api/session", "").await?)?, "wrong_status");
    let ended = session.request("DELETE", "/api/session", "").await?;
    assert!(ended.headers["set-cookie"].to_str()?.contains("Max-Age=0"));
    assert_eq!(session.get("/api/executions").await?.status, 401);
    assert_eq!(browse("/api/executions", "same-origin").await?.status, 401);
    assert_eq!(reader.get("/api/executions").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn limits_are_429_with_the_time_to_wait_and_only_for_their_namespace() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let (one, two) = (namespace(&root, "one").await?, namespace(&root, "two").await?);
    put(&root, "/api/namespaces/one/limits", &json!({ "requests_per_second": 5 })).await?;
    let mut refused = None;
    for _ in 0..40 {
        let answer = one.get("/api/executions").await?;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("forty requests at once are more than five a second");
    assert_eq!(code(&refused)?, "limit_reached");
    let seconds: u64 = refused.headers["retry-after"].to_str()?.parse()?;
    assert!((1..=3).contains(&seconds), "{seconds}");
    for _ in 0..40 {
        assert_eq!(two.get("/api/executions").await?.status, 200);
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    assert_eq!(one.get("/api/executions").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn who_goes_on_beyond_a_limit_is_refused_at_the_door_and_let_in_again_in_time() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let one = namespace(&root, "one").await?;
    let (_, two) = key(&one, &["read"]).await?;
    put(&root, "/api/namespaces/one/limits", &json!({ "requests_per_second": 5 })).await?;
    let is_at_the_door = |answer: &Answer| answer.body.contains("Send them more slowly");
    let mut refused = Vec::new();
    for _ in 0..100 {
        let answer = one.get("/api/executions").await?;
        if answer.status == 429 {
            let problem: Value = serde_json::from_str(&answer.body)?;
            assert_eq!(
                (&problem["code"], &problem["limit"]),
                (&json!("limit_reached"), &json!("requests_per_second"))
            );
            assert!(answer.headers.contains_key("retry-after"), "{}", answer.body);
            refused.push(is_at_the_door(&answer));
        }
    }
    let first = refused.iter().position(|at_door| *at_door).expect("a hundred at once are too many");
    assert!((20..30).contains(&first), "{first} refused by the cell first");
    assert!(is_at_the_door(&one.get("/api/workflows").await?), "whatever it asks for");
    // Another key is not refused there; by the cell it may be.
    assert!(!is_at_the_door(&two.get("/api/executions").await?));
    // What the limit allows gets through while somebody goes on and on.
    let (began, mut accepted) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(6) {
        accepted += u32::from(one.get("/api/executions").await?.status == 200);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!((15..=45).contains(&accepted), "{accepted} in 6 s, at 5 a second");
    Ok(())
}

#[tokio::test]
async fn live_runs_and_payloads_have_their_limits() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let root = engine.client();
    let admin = namespace(&root, "acme").await?;
    let limits = json!({ "live_runs": 3, "payload_bytes_max": 100 });
    put(&root, "/api/namespaces/acme/limits", &limits).await?;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(admin.start_id("wait", json!(600_000)).await?);
    }
    let refused = admin.start("wait", &json!(600_000), None, 0).await?;
    assert_eq!((refused.status, code(&refused)?.as_str()), (429, "limit_reached"));
    assert_eq!(refused.headers["retry-after"], "1");
    admin.cancel(&runs[0]).await?.json()?;
    let began = Instant::now();
    while admin.start("wait", &json!(600_000), None, 0).await?.status != 201 {
        assert!(began.elapsed() < Duration::from_secs(5), "the place of the run that ended is not used");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let large = Value::String("x".repeat(200));
    let refused = admin.signal(&runs[1], "go", &large, None).await?;
    assert_eq!((refused.status, code(&refused)?.as_str()), (413, "payload_too_large"));
    assert_eq!(root.start("wait", &json!(600_000), None, 0).await?.status, 201, "root has no limits");
    Ok(())
}

#[tokio::test]
async fn settings_hold_for_the_namespace_and_for_single_workflows() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    // Known to the cell before they change.
    admin.get("/api/executions").await?.json()?;
    put(&admin, "/api/settings", &json!({ "timeout_ms": 300 })).await?;
    put(&admin, "/api/settings/workflows/nap", &json!({ "timeout_ms": 600_000 })).await?;
    let ends = admin.start("wait", &json!(600_000), None, 10).await?.json()?;
    assert_eq!(
        (&ends["status"], &ends["error"]["code"]),
        (&json!("failed"), &json!("run_timed_out")),
        "{ends}"
    );
    let sleeps = admin.start("nap", &json!(900), None, 10).await?.json()?;
    assert_eq!(sleeps["output"], "awake");
    admin.request("DELETE", "/api/settings/workflows/nap", "").await?.json()?;
    let ends = admin.start("nap", &json!(60_000), None, 10).await?.json()?;
    assert_eq!(ends["status"], "failed");
    Ok(())
}

#[tokio::test]
async fn the_audit_log_says_who_did_what() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let (id, _) = key(&admin, &["read"]).await?;
    admin.post_json(&format!("/api/keys/{id}/revoke"), &Value::Null).await?;
    let page = admin.get("/api/audit").await?.json()?;
    let lines: Vec<_> = page["records"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|line| (line["actor"].as_str().unwrap_or_default(), line["action"].as_str().unwrap_or_default()))
        .collect();
    let by = lines[0].0;
    assert!(by.starts_with("key:"), "{lines:?}");
    assert_eq!(lines, [(by, "key_revoked"), (by, "key_created"), ("root", "key_created")]);
    Ok(())
}

#[tokio::test]
async fn a_run_says_who_did_what_to_it() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let mut engine = Engine::start(form, 2).await?;
        let admin = namespace(&engine.client(), "acme").await?;
        let (ada, ada_client) = key(&admin, &["write"]).await?;
        let (ben, ben_client) = key(&admin, &["write"]).await?;
        let (ada, ben) = (format!("key:{ada}"), format!("key:{ben}"));
        let run = ada_client.start_id("wait", json!(60_000)).await?;
        ben_client.pause(&run).await?;
        ben_client.pause(&run).await?;
        let why = admin.get(&format!("/api/executions/{run}/why")).await?.json()?;
        assert_eq!(why["because"], format!("{ben} paused it. Resume it to continue."));
        ada_client.resume(&run).await?;
        engine.engine.restart().await?;
        ben_client.signal(&run, "go", &json!("yes"), Some("s1")).await?;
        let view = ben_client.until(&run, "completed").await?;
        assert_eq!(view["started_by"], json!(ada));
        let history = ben_client.history(&run).await?;
        assert_eq!(history[0]["event"]["signal_received"]["by"], json!(ben), "{history:?}");
        let restart = json!({"action": "restart", "filter": {"workflow": "wait", "from": 0}});
        let bulk = ben_client.post_json("/api/bulk", &restart).await?;
        let bulk = ben_client.until(bulk["id"].as_str().unwrap_or_default(), "completed").await?;
        assert_eq!(bulk["started_by"], json!(ben));
        let view = ben_client.until(&run, "completed").await?;
        let acts: Vec<_> = view["acts"].as_array().into_iter().flatten().collect();
        let done = |act: &Value| (act["what"].clone(), act["by"].clone());
        let by_bulk = format!("bulk:{}", bulk["id"].as_str().unwrap_or_default());
        let all = [("pause", &ben), ("resume", &ada), ("restart", &by_bulk)];
        let all = all.map(|(what, by)| (json!(what), json!(by)));
        assert_eq!(acts.iter().map(|act| done(act)).collect::<Vec<_>>(), all, "{view}");
        // The deployment's own key is nobody in particular.
        let root = engine.client();
        let own = root.start_id("nap", json!(60_000)).await?;
        let view = root.cancel(&own).await?.json()?;
        assert_eq!(
            (&view["started_by"], done(&view["acts"][0])),
            (&Value::Null, (json!("cancel"), json!("root")))
        );
    }
    Ok(())
}

#[tokio::test]
async fn nobody_learns_anything_with_a_key_that_nobody_made() -> TestResult {
    use stepwell_protocol::key::{Kind, RANDOM_BYTES, make};
    let engine = Engine::start(Form::AllInOne, 1).await?;
    for namespace in ["default", "nowhere"] {
        let files = engine.engine.files()?;
        let forged = engine.client().with_key(&make(Kind::Live, namespace, [3; RANDOM_BYTES]).text);
        for (method, path) in [
            ("POST", "/api/workflows/no-such-workflow/start"),
            ("GET", "/api/executions/not-an-id"),
            // Asks the deployment's catalog, which vouches for nobody by that.
            ("GET", "/api/executions/default-2-0-1-0123456789ab"),
            ("GET", "/api/executions"),
            ("GET", "/api/no/such/route"),
            ("PATCH", "/api/executions"),
            ("POST", "/api/workflows/ten/start?tag="),
        ] {
            let answer = forged.request(method, path, "").await?;
            assert_eq!((answer.status, code(&answer)?.as_str()), (401, "unauthorized"), "{method} {path}");
        }
        let more = engine.engine.files()?;
        let more: Vec<_> = more.difference(&files).collect();
        let is_of_cell = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == "Cell");
        assert!(!more.iter().any(is_of_cell), "{namespace} has made cells: {more:?}");
        assert!(more.is_empty() || namespace == "default", "{namespace} has made {more:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_cells_of_every_namespace_are_looked_after() -> TestResult {
    let mut engine = Engine::start_with_clock(Form::AllInOne, 1).await?;
    let admin = namespace(&engine.client(), "acme").await?;
    let run = admin.start_id("nap", json!(1_000)).await?;
    admin.until(&run, "sleeping").await?;
    engine.engine.kill();
    // The platform has lost the alarms.
    for name in ["metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm"] {
        let _ = std::fs::remove_file(engine.engine.disk().join("Cell").join(name));
    }
    engine.engine.restart().await?;
    engine.strike().await?;
    let began = Instant::now();
    // Not asked about until it must have ended: a request would look after the cell as well.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let run = engine.client().with_key(admin.key()).show(&run, 0).await?.json()?;
    assert_eq!(run["status"], "completed", "{run} after {:?}", began.elapsed());
    Ok(())
}
