//! The real Worker answers as its description says: every route, every status of success, and many refusals.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::UNIX_EPOCH,
};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use stepwell_protocol::{Timestamp, webhook::schemes::sign};
use stepwell_workerd_tests::{
    Answer,
    engine::{Client, Engine, Form, URL},
    repository_root,
};

/// The committed description, and what was seen to be as it says.
struct Described {
    document: Value,
    client: Client,
    /// By operation: the statuses that were answered.
    seen: BTreeMap<String, BTreeSet<u16>>,
    codes: BTreeSet<String>,
    answers: usize,
}

impl Described {
    fn new(client: Client) -> Result<Self> {
        let text = std::fs::read_to_string(repository_root().join("docs/openapi.json"))?;
        let document = serde_json::from_str(&text)?;
        Ok(Self { document, client, seen: BTreeMap::new(), codes: BTreeSet::new(), answers: 0 })
    }

    /// The operation of a method and a path.
    fn operation(&self, method: &Method, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap_or_default();
        let fits = |pattern: &str| {
            let (wanted, given): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
            wanted.len() == given.len()
                && wanted.iter().zip(given).all(|(wanted, given)| wanted.starts_with('{') || *wanted == given)
        };
        let paths = self.document["paths"].as_object()?;
        let fitting = paths.iter().filter(|(pattern, _)| fits(pattern));
        let (_, methods) = fitting.min_by_key(|(pattern, _)| pattern.matches('{').count())?;
        methods.get(method.as_str().to_lowercase())
    }

    /// Asks, and compares the answer with what is described.
    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        expected: u16,
    ) -> Result<Answer> {
        let answer = self.client.request_with(method.clone(), path, headers, body).await?;
        let said = || format!("{method} {path}: {} {}", answer.status, answer.body);
        ensure!(answer.status == expected, "{}", said());
        let operation = self.operation(&method, path).with_context(|| format!("{path} is not described"))?;
        let id = operation["operationId"].as_str().context("an operation has an id")?.to_owned();
        let response = &operation["responses"][answer.status.to_string()];
        let media = answer.headers["content-type"].to_str()?.split(';').next().unwrap_or_default().to_owned();
        let content = &response["content"][&media];
        ensure!(!content.is_null(), "{} has no {media} for that", said());
        if media.ends_with("json") {
            let mut schema = content["schema"].clone();
            schema["components"] = self.document["components"].clone();
            let validator = jsonschema::validator_for(&schema)?;
            let instance: Value = serde_json::from_str(&answer.body)?;
            let errors: Vec<_> = validator.iter_errors(&instance).map(|error| error.to_string()).collect();
            ensure!(errors.is_empty(), "{}: {errors:?}", said());
        }
        if answer.status >= 400 {
            self.codes.insert(answer.problem()?.1);
        }
        self.seen.entry(id).or_default().insert(answer.status);
        self.answers += 1;
        Ok(answer)
    }

    async fn get(&mut self, path: &str, expected: u16) -> Result<Value> {
        let answer = self.ask(Method::GET, path, &[], "", expected).await?;
        Ok(serde_json::from_str(&answer.body).unwrap_or_default())
    }

    async fn post(&mut self, path: &str, body: &str, expected: u16) -> Result<Value> {
        let answer = self.ask(Method::POST, path, &[], body, expected).await?;
        Ok(serde_json::from_str(&answer.body).unwrap_or_default())
    }

    /// Every operation and every status of success that is described but was not seen.
    fn missing(&self) -> Vec<String> {
        let paths = self.document["paths"].as_object().into_iter().flat_map(serde_json::Map::values);
        let operations =
            paths.flat_map(|path| path.as_object().into_iter().flat_map(serde_json::Map::values));
        operations
            .flat_map(|operation| {
                let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
                let statuses = operation["responses"].as_object().into_iter().flat_map(serde_json::Map::keys);
                let statuses: Vec<_> = statuses.filter(|status| status.starts_with('2')).cloned().collect();
                statuses.into_iter().map(move |status| (id.clone(), status))
            })
            .filter(|(id, status)| {
                let seen = status
                    .parse()
                    .is_ok_and(|status| self.seen.get(id).is_some_and(|all| all.contains(&status)));
                !seen
            })
            .map(|(id, status)| format!("{id} {status}"))
            .collect()
    }
}

/// Keys, sessions and settings of a namespace.
async fn keys(api: &mut Described) -> Result<()> {
    let made = api.post("/api/keys", r#"{"name":"ops","scopes":["admin"]}"#, 201).await?;
    let text = made["key"].as_str().context("a new key is shown")?.to_owned();
    let bearer = format!("Bearer {text}");
    let by_key = [("authorization", bearer.as_str())];
    api.ask(Method::GET, "/api/keys", &by_key, "", 200).await?;
    let opened = api.ask(Method::POST, "/api/session", &by_key, "", 201).await?;
    let token = serde_json::from_str::<Value>(&opened.body)?["token"].as_str().unwrap_or_default().to_owned();
    let bearer = format!("Bearer {token}");
    let by_session = [("authorization", bearer.as_str())];
    api.ask(Method::GET, "/api/session", &by_session, "", 200).await?;
    api.ask(Method::DELETE, "/api/session", &by_session, "", 200).await?;
    api.ask(Method::POST, "/api/session", &by_key, "", 201).await?;
    let open = api.get("/api/sessions", 200).await?;
    let id = open["sessions"][0]["id"].as_str().context("a session has an id")?;
    api.ask(Method::DELETE, &format!("/api/sessions/{id}"), &[], "", 200).await?;
    api.ask(Method::GET, "/api/session", &by_session, "", 401).await?;
    api.get("/api/settings", 200).await?;
    api.ask(Method::PUT, "/api/settings", &[], r#"{"retention_ms":1000000}"#, 200).await?;
    api.ask(Method::PUT, "/api/settings/workflows/mixed", &[], "{}", 200).await?;
    api.ask(Method::DELETE, "/api/settings/workflows/mixed", &[], "", 200).await?;
    api.get("/api/audit", 200).await?;
    let id = made["id"].as_str().context("a key has an id")?.to_owned();
    api.post(&format!("/api/keys/{id}/rotate"), "", 201).await?;
    api.post(&format!("/api/keys/{id}/revoke"), "", 200).await?;
    api.ask(Method::GET, "/api/keys", &by_key, "", 401).await?;
    api.post("/api/keys/nobody/revoke", "", 404).await?;
    Ok(())
}

async fn namespaces(api: &mut Described) -> Result<()> {
    let made = api.post("/api/namespaces", r#"{"name":"team"}"#, 201).await?;
    api.post("/api/namespaces", r#"{"name":"team"}"#, 409).await?;
    api.get("/api/namespaces", 200).await?;
    api.get("/api/namespaces/team", 200).await?;
    api.get("/api/namespaces/none", 404).await?;
    let key = r#"{"name":"reader","scopes":["read"]}"#;
    api.post("/api/namespaces/team/keys", key, 201).await?;
    api.post("/api/namespaces/none/keys", key, 404).await?;
    api.ask(Method::PUT, "/api/namespaces/team/limits", &[], "{}", 200).await?;
    let bearer = format!("Bearer {}", made["admin"]["key"].as_str().unwrap_or_default());
    api.ask(Method::GET, "/api/namespaces", &[("authorization", bearer.as_str())], "", 403).await?;
    let issuer = r#"{"issuer":"https://issuer.example","jwks_url":"https://issuer.example/jwks","audience":"x",
        "namespace":{"fixed":"team"},"scopes":["read"]}"#;
    api.ask(Method::PUT, "/api/issuers", &[], issuer, 200).await?;
    api.get("/api/issuers", 200).await?;
    api.ask(Method::DELETE, "/api/issuers?issuer=https%3A%2F%2Fissuer.example", &[], "", 200).await?;
    Ok(())
}

async fn lanes(api: &mut Described) -> Result<()> {
    // Nothing listens there: the run keeps trying, and holds its place.
    let work = r#"{"customer":"a","address":"http://127.0.0.1:9/","steps":1}"#;
    api.post("/api/workflows/limited_whole/start", work, 201).await?;
    api.post("/api/workflows/limited_whole/start", work, 201).await?;
    api.post("/api/workflows/batched/start", r#"{"key":"a","number":1}"#, 202).await?;
    let limit = "/api/workflows/limited_whole/lane/limit";
    api.ask(Method::PUT, limit, &[], r#"{"by":"input.customer","key":"b","max":0}"#, 200).await?;
    api.ask(Method::PUT, limit, &[], r#"{"max":1}"#, 400).await?;
    api.ask(Method::PUT, "/api/workflows/nothing/lane/limit", &[], r#"{"max":1}"#, 404).await?;
    api.get("/api/workflows/limited_whole/lane", 200).await?;
    api.get("/api/workflows/limited_whole/lane?limit=0", 400).await?;
    api.get("/api/lanes/asks", 200).await?;
    api.ask(Method::PUT, "/api/lanes/asks/limit", &[], r#"{"by":"key","key":"a","max":0}"#, 200).await?;
    api.ask(Method::PUT, "/api/lanes/asks/limit", &[], r#"{"key":"a","max":1}"#, 400).await?;
    api.post("/api/workflows/limited_steps/start", work, 201).await?;
    api.get("/api/lanes/asks", 200).await?;
    api.get("/api/lanes/asks?limit=0", 400).await?;
    let lanes = api.get("/api/lanes", 200).await?;
    ensure!(lanes["lanes"].as_array().is_some_and(|lanes| lanes.contains(&json!("asks"))), "{lanes}");
    let none = api.get("/api/lanes?after=zzz", 200).await?;
    ensure!(none == json!({ "lanes": [] }), "{none}");
    api.get("/api/lanes?before=a", 400).await?;
    Ok(())
}

/// A run that is not there.
const NOBODY: &str = "/api/executions/default-1-0-99-000000000000";

#[tokio::test]
async fn every_route_answers_as_it_is_described() -> Result<()> {
    let engine = Engine::start(Form::Split, 2).await?;
    let mut api = Described::new(engine.client())?;
    let served = api.get("/api/openapi.json", 200).await?;
    assert_eq!(served, api.document, "what is served is what is committed");
    let page = api.ask(Method::GET, "/api/docs", &[], "", 200).await?;
    assert!(!page.body.contains("src="), "the page needs nothing from elsewhere");

    api.get("/api/health", 200).await?;
    api.get("/api/workflows", 200).await?;
    api.get("/api/workflows/mixed", 200).await?;
    api.get("/api/workflows/nothing", 404).await?;
    lanes(&mut api).await?;
    declared(&mut api).await?;
    let runs = starts(&mut api).await?;
    reads(&mut api, &runs).await?;
    acts(&mut api, &runs).await?;
    keys(&mut api).await?;
    namespaces(&mut api).await?;
    refusals(&mut api).await?;
    outbox(&mut api).await?;
    schedules(&mut api).await?;
    events(&mut api).await?;
    webhooks(&mut api).await?;
    links(&mut api).await?;
    queues(&mut api).await?;
    api.ask(Method::DELETE, "/api/namespaces/team", &[], "", 202).await?;
    // A letter is dead only after six days.
    assert_eq!(api.missing(), ["discard 200"], "never seen");
    println!(
        "api-check: {} answers of {} routes fit the description; {} codes among them",
        api.answers,
        api.seen.len(),
        api.codes.len()
    );
    Ok(())
}

/// How often the outbox is looked at for a letter.
const LOOKS_MAX: u32 = 500;

/// A letter that waits, because the child's workflow is paused.
async fn outbox(api: &mut Described) -> Result<()> {
    api.post("/api/workflows/ward/pause", "", 200).await?;
    let input = json!({ "workflow": "ward", "input": 1 }).to_string();
    api.post("/api/workflows/guardian/start", &input, 201).await?;
    let mut letter = None;
    for _ in 0..LOOKS_MAX {
        let list = api.get("/api/outbox?limit=1", 200).await?;
        letter = list["messages"][0]["letter"].as_str().map(str::to_owned);
        if letter.is_some() {
            break;
        }
    }
    let letter = letter.context("no letter waits")?;
    api.ask(Method::DELETE, &format!("/api/outbox/{letter}"), &[], "", 409).await?;
    api.post(&format!("/api/outbox/{letter}/redeliver"), "", 200).await?;
    api.post("/api/workflows/ward/resume", "", 200).await?;
    api.ask(Method::DELETE, "/api/outbox/default-1-0-99", &[], "", 404).await?;
    api.post("/api/outbox/default-1-0-99/redeliver", "", 404).await?;
    Ok(())
}

/// A schedule, from its beginning to its end.
async fn schedules(api: &mut Described) -> Result<()> {
    let nightly = "/api/schedules/nightly";
    let spec = r#"{"workflow":"ten","when":"every weekday at 9:00 in Europe/Berlin"}"#;
    api.ask(Method::PUT, nightly, &[], spec, 201).await?;
    api.ask(Method::PUT, nightly, &[], spec, 200).await?;
    api.ask(Method::PUT, nightly, &[], r#"{"workflow":"ten","when":"sometimes"}"#, 400).await?;
    api.ask(Method::PUT, nightly, &[], r#"{"workflow":"nothing","when":"every day"}"#, 404).await?;
    api.get(nightly, 200).await?;
    api.get("/api/schedules?limit=10", 200).await?;
    let next = api.get(&format!("{nightly}/next"), 200).await?;
    assert_eq!(next["ticks"].as_array().map(Vec::len), Some(10), "{next}");
    api.post(&format!("{nightly}/trigger"), "", 202).await?;
    let range = r#"{"from":1790000000000,"to":1790100000000}"#;
    api.post(&format!("{nightly}/backfill"), range, 202).await?;
    api.post(&format!("{nightly}/pause"), "", 200).await?;
    api.post(&format!("{nightly}/resume"), "", 200).await?;
    api.ask(Method::DELETE, nightly, &[], "", 200).await?;
    api.get(nightly, 404).await?;
    Ok(())
}

/// A queue, and jobs that are done, fail, die and live again.
async fn queues(api: &mut Described) -> Result<()> {
    let mails = "/api/queues/mails";
    api.get(mails, 404).await?;
    api.post(&format!("{mails}/claim"), "", 404).await?;
    api.ask(Method::PATCH, mails, &[], r#"{"max_attempts":0}"#, 400).await?;
    api.ask(Method::PATCH, mails, &[], r#"{"max_attempts":2}"#, 200).await?;
    api.ask(Method::PATCH, mails, &[], r#"{"push":{"url":"https://localhost/"}}"#, 400).await?;
    api.get(&format!("{mails}/secret"), 200).await?;
    api.get("/api/queues", 200).await?;
    let jobs = format!("{mails}/jobs");
    api.post(&jobs, r#"{"body":{"to":"ada"},"dedupe_id":"1"}"#, 201).await?;
    api.post(&jobs, r#"{"body":{"to":"ada"},"dedupe_id":"1"}"#, 200).await?;
    api.post(&jobs, r#"{"priority":10}"#, 400).await?;
    api.post(&jobs, r#"{"jobs":[{"text":"hello"},{"base64":"AAE="},{"delay_ms":1,"group":"g"}]}"#, 200)
        .await?;
    let view = api.get(mails, 200).await?;
    assert_eq!(view["counts"]["depth"], 4, "{view}");
    api.post(&format!("{mails}/claim"), r#"{"limit":0}"#, 400).await?;
    let claimed = api.post(&format!("{mails}/claim"), r#"{"limit":3}"#, 200).await?;
    let (done, dead, other) = (&claimed["jobs"][0], &claimed["jobs"][1], &claimed["jobs"][2]);
    let of = |job: &Value| json!({ "leases": [job["lease"]] });
    api.post(&format!("{mails}/extend"), &of(done).to_string(), 200).await?;
    api.post(&format!("{mails}/ack"), &of(done).to_string(), 200).await?;
    api.post(&format!("{mails}/ack"), r#"{"leases":[]}"#, 400).await?;
    let rejected =
        json!({ "leases": [dead["lease"], other["lease"]], "dead": true, "reason": "no such address" });
    api.post(&format!("{mails}/nack"), &rejected.to_string(), 200).await?;
    let list = api.get(&format!("{mails}/dead"), 200).await?;
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(2), "{list}");
    let path = |job: &Value| Some(format!("{jobs}/{}", job["id"].as_str()?));
    let job = path(dead).context("a job has an id")?;
    api.get(&job, 200).await?;
    api.ask(Method::PUT, &job, &[], r#"{"body":{"to":"bob"}}"#, 200).await?;
    api.post(&format!("{job}/redrive"), "", 200).await?;
    api.post(&format!("{job}/redrive"), "", 409).await?;
    api.ask(Method::DELETE, &job, &[], "", 409).await?;
    let job = path(other).context("a job has an id")?;
    api.ask(Method::DELETE, &job, &[], "", 200).await?;
    api.get(&job, 404).await?;
    api.post(&format!("{mails}/redrive"), "{}", 202).await?;
    api.post(&format!("{mails}/pause"), "", 200).await?;
    api.post(&format!("{mails}/drain"), "", 200).await?;
    api.post(&jobs, "{}", 409).await?;
    api.post(&format!("{mails}/resume"), "", 200).await?;
    api.ask(Method::DELETE, mails, &[], "", 409).await?;
    api.post(&format!("{mails}/purge"), "{}", 202).await?;
    api.ask(Method::DELETE, &format!("{mails}?purge=true"), &[], "", 200).await?;
    api.get(mails, 404).await?;
    Ok(())
}

/// A link for a wait, opened and answered twice.
async fn links(api: &mut Described) -> Result<()> {
    let run = api.client.start_id("decide", Value::Null).await?;
    api.client.until(&run, "waiting").await?;
    let tokens = format!("/api/executions/{run}/tokens");
    api.post(&tokens, r#"{"name":"other"}"#, 409).await?;
    let made = api.post(&tokens, r#"{"name":"decision","expires_ms":60000}"#, 201).await?;
    let link = made["url"].as_str().and_then(|url| url.strip_prefix(URL)).context("it has a link")?;
    api.get(link, 200).await?;
    api.post(link, "7", 422).await?;
    api.post(link, "true", 202).await?;
    api.post(link, "true", 200).await?;
    Ok(())
}

/// Events, one and several, and a trigger from its beginning to its end.
async fn events(api: &mut Described) -> Result<()> {
    let alert = r#"{"on": "dead_letters", "url": "https://ops.example.com/"}"#;
    api.get("/api/alerts", 200).await?;
    api.get("/api/alerts/dead", 404).await?;
    api.ask(Method::PUT, "/api/alerts/dead", &[], alert, 201).await?;
    api.ask(Method::PUT, "/api/alerts/dead", &[], alert, 200).await?;
    api.ask(Method::PUT, "/api/alerts/dead", &[], r#"{"on": "nothing"}"#, 400).await?;
    let typo = r#"{"on": "dead_letters", "url": "https://ops.example.com/", "above_percent": 3}"#;
    api.ask(Method::PUT, "/api/alerts/dead", &[], typo, 400).await?;
    api.get("/api/alerts/dead", 200).await?;
    api.get("/api/alerts", 200).await?;
    api.ask(Method::DELETE, "/api/alerts/dead", &[], "", 200).await?;
    api.ask(Method::DELETE, "/api/alerts/dead", &[], "", 404).await?;
    let charge = "/api/triggers/order/charge";
    let spec = r#"{"on":"order/*","when":"event.data.amount > 100","workflow":"ten"}"#;
    api.ask(Method::PUT, charge, &[], spec, 201).await?;
    api.ask(Method::PUT, charge, &[], spec, 200).await?;
    api.ask(Method::PUT, charge, &[], r#"{"on":"invoice/*","workflow":"ten"}"#, 400).await?;
    api.ask(Method::PUT, charge, &[], r#"{"on":"order/*","when":"event.","workflow":"ten"}"#, 400).await?;
    api.ask(Method::PUT, charge, &[], r#"{"on":"order/*","workflow":"nothing"}"#, 404).await?;
    api.get(charge, 200).await?;
    api.get("/api/triggers?topic=order", 200).await?;
    api.get("/api/triggers", 400).await?;
    let event = r#"{"name":"order/paid","id":"evt-1","data":{"amount":1}}"#;
    api.post("/api/events", event, 201).await?;
    api.post("/api/events", event, 200).await?;
    api.post("/api/events", r#"{"name":"order"}"#, 400).await?;
    let several = r#"{"events":[{"name":"order/paid"},{"name":"no name"},{"name":"invoice/sent"}]}"#;
    let list = api.post("/api/events", several, 200).await?;
    let statuses: Vec<_> =
        list["results"].as_array().into_iter().flatten().map(|one| &one["status"]).collect();
    assert_eq!(statuses, ["accepted", "refused", "accepted"], "{list}");
    api.get("/api/events?topic=order&limit=1", 200).await?;
    api.get("/api/events?topic=order&limit=0", 400).await?;
    let topics = api.get("/api/topics", 200).await?;
    ensure!(topics["topics"].as_array().is_some_and(|topics| topics.contains(&json!("order"))), "{topics}");
    api.get("/api/topics?limit=1", 400).await?;
    api.get("/api/events/order/evt-1", 200).await?;
    api.get("/api/events/order/evt-2", 404).await?;
    api.post(&format!("{charge}/pause"), "", 200).await?;
    api.post(&format!("{charge}/resume"), "", 200).await?;
    api.ask(Method::DELETE, charge, &[], "", 200).await?;
    api.get(charge, 404).await?;
    Ok(())
}

async fn webhooks(api: &mut Described) -> Result<()> {
    let shop = "/api/webhooks/order/shop";
    let spec = r#"{"kind":"slack","event":"order/{body.kind}","secret":"a secret of the shop"}"#;
    let made = api.ask(Method::PUT, shop, &[], spec, 201).await?.json()?;
    api.ask(Method::PUT, shop, &[], spec, 200).await?;
    api.ask(Method::PUT, shop, &[], r#"{"kind":"slack","event":"invoice/sent"}"#, 400).await?;
    api.get(shop, 200).await?;
    api.get("/api/webhooks?topic=order", 200).await?;
    api.get("/api/webhooks", 400).await?;
    let address = made["url"].as_str().and_then(|url| url.strip_prefix(URL)).context("it has one")?;
    let body = r#"{"kind":"shipped","event_id":"Ev1"}"#;
    api.post(address, body, 403).await?;
    let now = Timestamp::from_millis(u64::try_from(UNIX_EPOCH.elapsed()?.as_millis())?);
    let signed = sign(&serde_json::from_str(spec)?, "a secret of the shop", "", now, body.as_bytes());
    let headers: Vec<_> = signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    api.ask(Method::POST, address, &headers, body, 200).await?;
    api.post(&format!("{}0", &address[..address.len() - 1]), body, 404).await?;
    let list = api.get(&format!("{shop}/deliveries"), 200).await?;
    let good = list["deliveries"].as_array().into_iter().flatten().find(|one| one["status"] == "accepted");
    let one = format!("{shop}/deliveries/{}", good.context("it is kept")?["id"]);
    api.get(&one, 200).await?;
    api.get(&format!("{shop}/deliveries/99"), 404).await?;
    api.post(&format!("{one}/redeliver"), "", 200).await?;
    api.ask(Method::DELETE, shop, &[], "", 200).await?;
    api.get(shop, 404).await?;
    Ok(())
}

/// What the app declares, and a workflow that is paused for a moment.
async fn declared(api: &mut Described) -> Result<()> {
    api.post("/api/sync?dry_run=true", "", 200).await?;
    api.post("/api/sync", "", 200).await?;
    api.post("/api/sync?dry_run=perhaps", "", 400).await?;
    let twice = r#"{"protocol":1,"workflows":[{"name":"a"},{"name":"a"}]}"#;
    api.post("/api/sync?dry_run=true", twice, 422).await?;
    api.post("/api/sync", twice, 400).await?;
    api.post("/api/workflows/ten/pause", "", 200).await?;
    api.post("/api/workflows/ten/start", "", 409).await?;
    api.get("/api/workflows/ten", 200).await?;
    api.post("/api/workflows/nothing/pause", "", 404).await?;
    api.post("/api/workflows/ten/resume", "", 200).await?;
    Ok(())
}

/// Runs in every status.
struct Runs {
    waiting: String,
    sleeping: String,
    failed: String,
    completed: String,
}

fn id(run: &Value) -> Result<String> {
    Ok(format!("/api/executions/{}", run["id"].as_str().with_context(|| run.to_string())?))
}

async fn starts(api: &mut Described) -> Result<Runs> {
    let attributes = r#"[["customer","acme"]]"#;
    let found = api.post("/api/workflows/found/start?tag=a&tag=b", attributes, 201).await?;
    let nap = api.post("/api/workflows/nap/start", "600000", 201).await?;
    let keyed: &[_] = &[("idempotency-key", "k"), ("prefer", "wait=10")];
    let ten = "/api/workflows/ten/start";
    let completed = api.ask(Method::POST, ten, keyed, "", 201).await?.json()?;
    assert_eq!(completed["status"], "completed");
    api.ask(Method::POST, ten, keyed, "", 200).await?;
    api.ask(Method::POST, ten, keyed, "1", 422).await?;
    let wait: &[_] = &[("prefer", "wait=10")];
    let failed =
        api.ask(Method::POST, "/api/workflows/fail/start", wait, r#""terminal""#, 201).await?.json()?;
    assert_eq!(failed["status"], "failed");
    let late = api.ask(Method::POST, "/api/workflows/late/start", wait, "", 201).await?.json()?;
    assert_eq!(late["error"]["code"], "run_timed_out");
    Ok(Runs { waiting: id(&found)?, sleeping: id(&nap)?, failed: id(&failed)?, completed: id(&completed)? })
}

async fn reads(api: &mut Described, runs: &Runs) -> Result<()> {
    for run in [&runs.waiting, &runs.sleeping, &runs.failed, &runs.completed] {
        api.get(run, 200).await?;
        api.get(&format!("{run}/why"), 200).await?;
        api.get(&format!("{run}/history"), 200).await?;
        let told = api.ask(Method::GET, &format!("{run}/stream"), &[], "", 200).await?;
        ensure!(told.body.contains("event: status"), "{run} {}", told.body);
    }
    let told = api.ask(Method::GET, "/api/stream?cursor=start", &[], "", 200).await?;
    ensure!(told.body.contains("event: ready"), "{}", told.body);
    api.get("/api/stream?cursor=!", 400).await?;
    api.get(&format!("{}/stream?types=everything", runs.completed), 400).await?;
    for query in
        ["", "?limit=2", "?status=failed", "?tag=a&attribute=customer:acme", "?from=0&until=9999999999999"]
    {
        let page = api.get(&format!("/api/executions{query}"), 200).await?;
        ensure!(page["executions"].as_array().is_some_and(|runs| !runs.is_empty()), "{query} {page}");
    }
    for query in ["?limit=0", "?status=gone", "?cursor=!", "?attribute=a", "?from=-1", "?colour=red"] {
        api.get(&format!("/api/executions{query}"), 400).await?;
    }
    api.get("/api/metrics/minutes", 200).await?;
    api.get("/api/metrics/minutes?minutes=0", 400).await?;
    api.get("/api/metrics/workflows?minutes=60", 200).await?;
    api.get("/api/metrics/workflows?minutes=0", 400).await?;
    api.get("/api/cells", 200).await?;
    let failures = api.get("/api/failures?limit=1&since=0", 200).await?;
    ensure!(failures["failures"].as_array().is_some_and(|groups| !groups.is_empty()), "{failures}");
    api.get("/api/failures?since=yesterday", 400).await?;
    api.get("/api/metrics/prometheus", 200).await?;
    api.get("/api/metrics", 200).await?;
    api.get("/api/metrics?workflow=ten", 200).await?;
    api.get("/api/metrics?status=failed", 400).await?;
    Ok(())
}

async fn acts(api: &mut Described, runs: &Runs) -> Result<()> {
    let Runs { waiting, sleeping, failed, completed } = runs;
    let signal = format!("{waiting}/signals/go");
    let identified: &[_] = &[("idempotency-key", "s")];
    api.ask(Method::POST, &signal, identified, "1", 202).await?;
    api.ask(Method::POST, &signal, identified, "1", 200).await?;
    api.post(&format!("{completed}/signals/go"), "1", 409).await?;
    api.post(&format!("{sleeping}/pause"), "", 200).await?;
    api.post(&format!("{sleeping}/resume"), "", 200).await?;
    api.post(&format!("{sleeping}/retry"), "", 409).await?;
    api.post(&format!("{sleeping}/restart"), "", 409).await?;
    api.post(&format!("{failed}/retry"), "", 200).await?;
    api.post(&format!("{completed}/restart"), r#"{"from":{"step":"add","occurrence":3}}"#, 200).await?;
    api.get(completed, 200).await?;
    api.post(&format!("{sleeping}/cancel"), "", 200).await?;
    for what in ["cancel", "pause", "resume", "retry", "restart", "signals/go"] {
        api.post(&format!("{NOBODY}/{what}"), "", 404).await?;
    }
    by_key(api).await?;
    let bulk = r#"{"action":"cancel","filter":{"workflow":"found"}}"#;
    let keyed: &[_] = &[("idempotency-key", "bulk"), ("prefer", "wait=10")];
    let done = api.ask(Method::POST, "/api/bulk", keyed, bulk, 201).await?.json()?;
    assert_eq!(done["output"], json!({"changed": 1, "unchanged": 0}));
    api.ask(Method::POST, "/api/bulk", keyed, bulk, 200).await?;
    api.get(&format!("{}/history", id(&done)?), 200).await?;
    Ok(())
}

/// Runs by the keys that have started them.
async fn by_key(api: &mut Described) -> Result<()> {
    let identified: &[_] = &[("idempotency-key", "order-7")];
    api.ask(Method::POST, "/api/workflows/keyed/start", identified, "600000", 201).await?;
    let run = "/api/workflows/keyed/by-key/order-7";
    api.get(run, 200).await?;
    let signal = format!("{run}/signals/news");
    api.ask(Method::POST, &signal, identified, "1", 202).await?;
    api.ask(Method::POST, &signal, identified, "1", 200).await?;
    api.post(&signal, "{", 400).await?;
    api.post(&format!("{run}/cancel"), "", 200).await?;
    api.post(&signal, "1", 409).await?;
    for what in ["", "/cancel", "/signals/news"] {
        let method = if what.is_empty() { Method::GET } else { Method::POST };
        let path = |key: &str| format!("/api/workflows/keyed/by-key/{key}{what}");
        api.ask(method.clone(), &path("order-8"), &[], "", 404).await?;
        api.ask(method.clone(), &path(&"k".repeat(257)), &[], "", 400).await?;
        let wrong: &[_] = &[("authorization", "Bearer wrong")];
        api.ask(method, &path("order-7"), wrong, "", 401).await?;
    }
    Ok(())
}

async fn refusals(api: &mut Described) -> Result<()> {
    for what in ["", "/why", "/history", "/stream"] {
        api.get(&format!("{NOBODY}{what}"), 404).await?;
    }
    api.post("/api/workflows/ten/start", "{", 400).await?;
    api.post("/api/workflows/nothing/start", "", 404).await?;
    api.post("/api/workflows/keyed/start", "", 400).await?;
    api.post("/api/workflows/ten/start", &format!("\"{}\"", "x".repeat(2_000_000)), 413).await?;
    api.post("/api/bulk", "{}", 400).await?;
    let wrong: &[_] = &[("authorization", "Bearer wrong")];
    for path in ["/api/executions", "/api/workflows", "/api/metrics", "/api/stream", NOBODY] {
        api.ask(Method::GET, path, wrong, "", 401).await?;
    }
    for path in ["/api/openapi.json", "/api/docs", "/api/health"] {
        api.ask(Method::GET, path, wrong, "", 200).await?;
    }
    Ok(())
}
