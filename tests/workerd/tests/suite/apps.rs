//! Apps as people write them: with the SDK, and nothing of the runtime.

use serde_json::Value;
use stepwell_workerd_tests::{
    Config, TestResult, Worker, Workerd, bundle,
    engine::{APP_KEY, KEY},
};

#[tokio::test]
async fn an_app_that_names_only_the_sdk_is_a_worker_of_its_own() -> TestResult {
    let config = Config::serving("engine")
        .worker(
            Worker::bundle("engine", &bundle("engine")?)
                .durable_object("CELL", "Cell")
                .text("STEPWELL_KEY", KEY)
                .text("STEPWELL_APP_KEY", APP_KEY)
                .service("APP", "app"),
        )
        .worker(Worker::bundle("app", &bundle("quickstart-app")?).text("STEPWELL_APP_KEY", APP_KEY));
    let workerd = Workerd::start(&config).await?;
    let http = workerd.http();
    let start = http.client().post(http.url("/api/workflows/approval/start")).bearer_auth(KEY);
    let run = http.send(start.body(r#""the contract""#), "start").await?.json()?;
    let path = format!("/api/executions/{}", run["id"].as_str().unwrap_or_default());
    let decide = http.client().post(http.url(&format!("{path}/signals/decision"))).bearer_auth(KEY);
    http.send(decide.body("true"), "signal").await?.json()?;
    let show = http.client().get(http.url(&path)).bearer_auth(KEY).header("prefer", "wait=10");
    let ended: Value = http.send(show, "show").await?.json()?;
    assert_eq!(ended["output"], "published the contract");
    Ok(())
}
