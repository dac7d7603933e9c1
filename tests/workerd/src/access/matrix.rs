//! Every route of the table with every kind of caller.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use stepwell_protocol::{
    Timestamp, key,
    routes::{Entry, Method, Route, Scope, Subject},
    webhook::schemes::sign,
};

use super::{Report, code, key as make_key, namespace, text, traces::Secrets};
use crate::{Answer, engine::Client, without_request};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nobody.
    NoKey,
    /// Somebody with a text that is no key.
    Malformed,
    /// Somebody with a key that was changed.
    BadChecksum,
    /// Somebody with a key that has the right form, and that nobody has made.
    Forged,
    /// Somebody whose key's time is over.
    Expired,
    /// Somebody whose key was revoked.
    Revoked,
    /// Somebody whose key does not allow it.
    WrongScope,
    /// Somebody who may do everything, in another namespace.
    OtherNamespace,
    /// Somebody who may.
    Right,
}

impl Kind {
    /// Every kind there is, the one with an effect last.
    pub const ALL: [Self; 9] = [
        Self::NoKey,
        Self::Malformed,
        Self::BadChecksum,
        Self::Forged,
        Self::Expired,
        Self::Revoked,
        Self::WrongScope,
        Self::OtherNamespace,
        Self::Right,
    ];
}

/// The callers.
struct Callers {
    /// The deployment's own key.
    root: Client,
    /// An admin of the namespace.
    admin: Client,
    other: Client,
    read: Client,
    write: Client,
    /// For a workflow that no run is of.
    elsewhere: Client,
    expired: Client,
    revoked: Client,
    forged: Client,
    changed: Client,
}

/// Asks these routes as every kind of caller, and counts what is as it must be.
pub async fn run(root: &Client, routes: &[Route], secrets: &mut Secrets) -> Result<Report> {
    let callers = Callers::make(root, secrets).await?;
    let mut report = Report::default();
    for route in routes {
        for kind in Kind::ALL {
            match callers.ask(*route, kind).await {
                Ok(()) => *report.asked.entry(kind).or_default() += 1,
                Err(error) => report.wrong.push(format!("{}: {error:#} ({kind:?})", route.name())),
            }
        }
    }
    Ok(report)
}

impl Callers {
    async fn make(root: &Client, secrets: &mut Secrets) -> Result<Self> {
        let admin = namespace(root, "acme").await?;
        let other = namespace(root, "other").await?;
        let (_, read) = make_key(&admin, &["read"]).await?;
        let (_, write) = make_key(&admin, &["write"]).await?;
        let (_, elsewhere) = make_key(&admin, &["write:elsewhere"]).await?;
        let soon = json!({ "name": "soon over", "scopes": ["admin"], "expires_at": now_ms() + 2_000 });
        let soon = admin.post_json("/api/keys", &soon).await?;
        let expired = admin.with_key(text(&soon["key"])?);
        let (id, revoked) = make_key(&admin, &["admin"]).await?;
        // The cells have to know them to forget them.
        for client in [&expired, &revoked] {
            client.get("/api/executions").await?.json()?;
        }
        admin.post_json(&format!("/api/keys/{id}/revoke"), &Value::Null).await?;
        wait_until_refused(&expired).await?;
        let forged = key::make(key::Kind::Live, "acme", [7; key::RANDOM_BYTES]).text;
        let mut changed = admin.key().to_owned();
        let last = if changed.ends_with('0') { "1" } else { "0" };
        changed.replace_range(changed.len() - 1.., last);
        for client in [&admin, &other, &read, &write, &elsewhere, &expired, &revoked] {
            secrets.add(client.key());
        }
        let (forged, changed) = (root.with_key(&forged), root.with_key(&changed));
        let root = root.clone();
        Ok(Self { root, admin, other, read, write, elsewhere, expired, revoked, forged, changed })
    }

    async fn ask(&self, route: Route, kind: Kind) -> Result<()> {
        let Entry { scope, subject, .. } = route.entry();
        let target = Target::make(self, route).await?;
        let before = self.state(&target).await?;
        let wrong_scope = match scope {
            Scope::Read => &self.elsewhere,
            Scope::Open | Scope::Write => &self.read,
            Scope::Admin => &self.write,
            Scope::Root => &self.admin,
        };
        let caller = match kind {
            Kind::NoKey => &self.root.with_key(""),
            Kind::Malformed => &self.root.with_key("sw_live_acme"),
            Kind::BadChecksum => &self.changed,
            Kind::Forged => &self.forged,
            Kind::Expired => &self.expired,
            Kind::Revoked => &self.revoked,
            Kind::WrongScope => wrong_scope,
            Kind::OtherNamespace => &self.other,
            // What the app declares belongs to the namespace `default`.
            Kind::Right if scope == Scope::Root || route == Route::Sync => &self.root,
            Kind::Right => &self.admin,
        };
        let answer = target.ask(caller).await?;
        for (name, value) in [("cache-control", "no-store"), ("x-content-type-options", "nosniff")] {
            let is_said = answer.headers.get(name).is_some_and(|said| said == value);
            anyhow::ensure!(is_said, "the answer has no `{name}: {value}`");
        }
        if scope == Scope::Open || kind == Kind::Right {
            target.expect_taken(route, &answer)?;
            // What follows compares what there is before and after it.
            if route == Route::DeleteNamespace {
                self.until_gone(&target.path).await?;
            }
            return Ok(());
        }
        match (kind, subject, scope) {
            // Whatever is asked for is the caller's own, and must be that alone.
            (Kind::WrongScope | Kind::OtherNamespace, Subject::Visible, _) => {
                target.expect_nothing_of_it(&answer)?;
            }
            (Kind::WrongScope, Subject::Run, Scope::Read) => expect(&answer, 404, "run_not_found")?,
            (Kind::WrongScope, ..) | (Kind::OtherNamespace, _, Scope::Root) => {
                expect(&answer, 403, "forbidden")?;
            }
            (Kind::OtherNamespace, Subject::Run, _) => {
                target.expect_as_if_never(&self.other, &answer).await?;
            }
            (Kind::OtherNamespace, Subject::Whole | Subject::Workflow, _) if target.names_a_key => {
                target.expect_as_if_never(&self.other, &answer).await?;
            }
            (Kind::OtherNamespace, Subject::Whole | Subject::Workflow | Subject::Selected, _) => {
                target.expect_nothing_of_it(&answer)?;
            }
            (..) => expect(&answer, 401, "unauthorized")?,
        }
        let after = self.state(&target).await?;
        anyhow::ensure!(before == after, "it had an effect: {before} became {after}");
        Ok(())
    }

    /// Waits until a namespace that is being deleted is gone.
    async fn until_gone(&self, path: &str) -> Result<()> {
        for _ in 0..200 {
            if self.root.get(path).await?.status == 404 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{path} is still there")
    }

    /// What the namespace holds that a caller might have changed. A caller with a good key of this namespace may
    /// have signed in; that is its own.
    async fn state(&self, target: &Target) -> Result<Value> {
        let mut state = json!({ "keys": null, "settings": null, "run": null });
        state["keys"] = self.admin.get("/api/keys").await?.json()?;
        state["settings"] = self.admin.get("/api/settings").await?.json()?;
        state["namespaces"] = self.root.get("/api/namespaces").await?.json()?;
        state["schedules"] = self.admin.get("/api/schedules?limit=100").await?.json()?;
        state["triggers"] = self.admin.get("/api/triggers?topic=order").await?.json()?;
        state["webhooks"] = self.admin.get("/api/webhooks?topic=order").await?.json()?;
        state["events"] = self.admin.get("/api/events?topic=order").await?.json()?;
        state["issuers"] = self.root.get("/api/issuers").await?.json()?;
        state["runs"] = json!(
            self.admin.get("/api/executions?limit=200").await?.json()?["executions"].as_array().map(Vec::len)
        );
        if let Some(run) = &target.run {
            let mut view = self.admin.show(run, 0).await?.json()?;
            // Looking at a run is counted.
            view["meter"].take();
            state["run"] = view;
        }
        Ok(state)
    }
}

/// One request that makes sense.
struct Target {
    method: Method,
    path: String,
    /// The same about something that never was.
    never: String,
    body: String,
    run: Option<String>,
    names_a_key: bool,
    /// What nobody else may be told.
    canaries: Vec<String>,
}

impl Target {
    #[expect(clippy::too_many_lines, reason = "a paragraph for each thing that a path names")]
    async fn make(callers: &Callers, route: Route) -> Result<Self> {
        let Entry { method, path, subject, .. } = route.entry();
        let (mut path, mut never) = (path.to_owned(), path.to_owned());
        let mut put = |what: &str, with: &str, instead: &str| {
            path = path.replace(what, with);
            never = never.replace(what, instead);
        };
        let (mut canaries, mut run) = (Vec::new(), None);
        if subject == Subject::Run || [Route::ListRuns, Route::FollowAll].contains(&route) {
            let id = callers.admin.start_id("wait", json!(600_000)).await?;
            callers.admin.until(&id, "waiting").await?;
            let (place, _) = id.rsplit_once('-').context("an id has parts")?;
            put("{id}", &id, &format!("{place}-000000000000"));
            canaries.push(id.clone());
            run = Some(id);
        }
        let names_a_key = ["{key}", "{session}"].iter().any(|name| route.entry().path.contains(name));
        if route.entry().path.contains("/by-key/{key}") {
            let key = format!("order-{}", rand::random::<u64>());
            let started = callers.admin.start("wait", &json!(600_000), Some(&key), 0).await?.json()?;
            let id = text(&started["id"])?.to_owned();
            callers.admin.until(&id, "waiting").await?;
            put("{workflow}", "wait", "wait");
            put("{key}", &key, "order-that-never-was");
            canaries.push(id.clone());
            run = Some(id);
        }
        if route.entry().path.contains("{token}") {
            let id = callers.admin.start_id("wait", json!(600_000)).await?;
            callers.admin.until(&id, "waiting").await?;
            let made = callers
                .admin
                .post_json(&format!("/api/executions/{id}/tokens"), &json!({ "name": "go" }))
                .await?;
            let (_, token) = text(&made["url"])?.rsplit_once('/').context("an address has parts")?;
            put("{token}", token, "never");
            run = Some(id);
        }
        if route.entry().path.contains("/keys/{key}") {
            let (id, _) = make_key(&callers.admin, &["read"]).await?;
            put("{key}", &id, "00000000");
            canaries.push(id);
        }
        if route == Route::RevokeSession {
            // A key can sign in only so often.
            let (_, fresh) = make_key(&callers.admin, &["read"]).await?;
            let opened = fresh.request("POST", "/api/session", "").await?.json()?;
            put("{session}", text(&opened["id"])?, "00000000");
            canaries.push(text(&opened["id"])?.to_owned());
        }
        if route.entry().path.contains("{schedule}") {
            let id = format!("schedule-{}", rand::random::<u64>());
            let made = callers.admin.request("PUT", &format!("/api/schedules/{id}"), DAILY).await?;
            anyhow::ensure!(made.status == 201, "{} {}", made.status, made.body);
            put("{schedule}", &id, "schedule-that-never-was");
            if route != Route::PutSchedule {
                // Whoever makes a schedule has named it, so its answer has that name.
                canaries.push(id);
            }
        }
        if route.entry().path.contains("{alert}") {
            let id = format!("alert-{}", rand::random::<u64>());
            let made = callers.admin.request("PUT", &format!("/api/alerts/{id}"), ON_DEAD_LETTERS).await?;
            anyhow::ensure!(made.status == 201, "{} {}", made.status, made.body);
            put("{alert}", &id, "alert-that-never-was");
            if route != Route::PutAlert {
                canaries.push(id);
            }
        }
        if route.entry().path.contains("{trigger}") {
            let id = format!("trigger-{}", rand::random::<u64>());
            let made = callers.admin.request("PUT", &format!("/api/triggers/order/{id}"), ON_SHIPPED).await?;
            anyhow::ensure!(made.status == 201, "{} {}", made.status, made.body);
            put("{trigger}", &id, "trigger-that-never-was");
            if route != Route::PutTrigger {
                canaries.push(id);
            }
        }
        if route.entry().path.contains("{event}") {
            let id = format!("event-{}", rand::random::<u64>());
            let event = json!({ "name": "order/paid", "id": id }).to_string();
            let sent = callers.admin.request("POST", "/api/events", &event).await?;
            anyhow::ensure!(sent.status == 201, "{} {}", sent.status, sent.body);
            put("{event}", &id, "event-that-never-was");
            canaries.push(id);
        }
        if route.entry().path.contains("/{webhook}") || route == Route::ReceiveWebhook {
            let (hook, delivery) = webhook(&callers.admin).await?;
            put("{webhook}", "shop", "webhook-that-never-was");
            put("{delivery}", &delivery, "99");
            put("{hook}", &hook, "shop-00000000000000000000000000000000");
            if route != Route::PutWebhook {
                canaries.push(hook);
            }
        }
        if route.entry().path.contains("{queue}") {
            let (queue, job) = queue(&callers.admin).await?;
            put("{queue}", &queue, "queue-that-never-was");
            put("{job}", &job, "1-0-1");
            if ![Route::SetQueue, Route::SendJobs].contains(&route) {
                canaries.extend([queue, job]);
            }
        }
        put("{topic}", "order", "order");
        if [Route::ListEvents, Route::ListTriggers, Route::ListWebhooks].contains(&route) {
            put(route.entry().path, &format!("{}?topic=order", route.entry().path), "");
        }
        put("{workflow}", "ten", "ten");
        put("{lane}", "calls", "calls");
        put("{name}", "news", "news");
        // Whatever it holds, it has arrived: whoever may ask is told that it is not there.
        put("{letter}", "default-1-0-1", "default-1-0-2");
        if route == Route::DeleteNamespace {
            // One that nothing else depends on.
            let name = format!("doomed-{}", rand::random::<u32>());
            namespace(&callers.root, &name).await?;
            put("{namespace}", &name, "never");
            canaries.push(name);
        }
        put("{namespace}", "acme", "never");
        if route == Route::RemoveIssuer {
            put("/api/issuers", "/api/issuers?issuer=https://nobody.example", "");
        }
        if route == Route::FollowAll {
            // All runs that there are, and not only what happens from now on.
            put("/api/stream", "/api/stream?cursor=start", "");
        }
        anyhow::ensure!(!path.contains('{'), "{path} names something that this test has none of");
        Ok(Self { method, path, never, body: body(route), run, names_a_key, canaries })
    }

    async fn ask(&self, caller: &Client) -> Result<Answer> {
        caller.request(self.method.as_str(), &self.path, &self.body).await
    }

    /// The caller's own affair: it was let in, or refused for a reason that the route has.
    fn expect_taken(&self, route: Route, answer: &Answer) -> Result<()> {
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        let code = code(answer)?;
        let codes = route.codes().iter().map(|code| Ok(serde_json::to_value(code)?));
        let codes: Vec<Value> = codes.collect::<Result<_>>()?;
        // A letter that has arrived is gone, and none stays for this test.
        let is_gone = [Route::Redeliver, Route::Discard].contains(&route) && answer.status == 404;
        // Whoever asks, a delivery has to be signed.
        let is_unsigned = route == Route::ReceiveWebhook && answer.status == 403;
        let is_known = codes.iter().any(|known| *known == code.as_str())
            && (answer.status == 409 || is_gone || is_unsigned);
        anyhow::ensure!(is_known, "{} {} gave {}", self.method.as_str(), self.path, answer.body);
        Ok(())
    }

    fn expect_nothing_of_it(&self, answer: &Answer) -> Result<()> {
        for canary in &self.canaries {
            anyhow::ensure!(!answer.body.contains(canary), "{canary} is in {}", answer.body);
        }
        anyhow::ensure!(answer.status < 500, "{} {}", answer.status, answer.body);
        Ok(())
    }

    /// The very same bytes as for something that never was.
    async fn expect_as_if_never(&self, caller: &Client, answer: &Answer) -> Result<()> {
        let never = caller.request(self.method.as_str(), &self.never, &self.body).await?;
        anyhow::ensure!(answer.status == 404, "{} {}", answer.status, answer.body);
        anyhow::ensure!(
            (answer.status, without_request(&answer.body)) == (never.status, without_request(&never.body)),
            "{} {} is not {} {}",
            answer.status,
            answer.body,
            never.status,
            never.body
        );
        let names = |answer: &Answer| {
            let is_own = |name: &str| name.starts_with("stepwell-rows") || name == "stepwell-request-id";
            let headers = answer.headers.iter().filter(|(name, _)| !is_own(name.as_str()));
            headers.map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>()
        };
        anyhow::ensure!(names(answer) == names(&never), "the headers differ");
        Ok(())
    }
}

/// A schedule that does not tick while this test runs, unless it is midnight.
const DAILY: &str = r#"{"workflow":"ten","when":"every day"}"#;

/// An alert that never fires here.
const ON_DEAD_LETTERS: &str = r#"{"on": "dead_letters", "url": "https://ops.example.com/"}"#;

/// A trigger of events that nobody sends.
const ON_SHIPPED: &str = r#"{"on":"order/shipped","workflow":"ten"}"#;

/// A webhook of events that start nothing.
const SHOP: &str = r#"{"kind":"hmac","event":"order/returned","header":"x-signature","id_header":"x-id","secret":"a secret of the shop"}"#;

/// Makes a queue with a dead letter: their names.
async fn queue(admin: &Client) -> Result<(String, String)> {
    let queue = format!("queue-{}", rand::random::<u64>());
    let path = format!("/api/queues/{queue}");
    let sent = admin.request("POST", &format!("{path}/jobs"), r#"{"body":1}"#).await?.json()?;
    let claimed = admin.request("POST", &format!("{path}/claim"), "").await?.json()?;
    let nack = json!({ "leases": [claimed["jobs"][0]["lease"]], "dead": true }).to_string();
    let ended = admin.request("POST", &format!("{path}/nack"), &nack).await?;
    anyhow::ensure!(ended.status == 200, "{} {}", ended.status, ended.body);
    Ok((queue, text(&sent["id"])?.to_owned()))
}

/// Makes the webhook, and lets the shop deliver something: the end of its address, and the number of the delivery.
async fn webhook(admin: &Client) -> Result<(String, String)> {
    let path = "/api/webhooks/order/shop";
    let made = admin.request("PUT", path, SHOP).await?.json()?;
    let (_, address) = text(&made["url"])?.split_once("/api/").context("an address has a path")?;
    let spec = serde_json::from_str(SHOP)?;
    let (id, now) = (rand::random::<u64>().to_string(), Timestamp::from_millis(now_ms()));
    let signed = sign(&spec, "a secret of the shop", &id, now, b"{}");
    let headers: Vec<_> = signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let posted =
        admin.request_with(reqwest::Method::POST, &format!("/api/{address}"), &headers, "{}").await?;
    anyhow::ensure!(posted.status == 200, "{} {}", posted.status, posted.body);
    let list = admin.get(&format!("{path}/deliveries")).await?.json()?;
    let (_, hook) = address.rsplit_once('/').context("it has parts")?;
    Ok((hook.to_owned(), list["deliveries"][0]["id"].to_string()))
}

/// What a request has to bring. Routes that take nothing need no line here.
fn body(route: Route) -> String {
    if route == Route::CreateKey || route == Route::CreateNamespaceKey {
        json!({ "name": "one more", "scopes": ["read"] }).to_string()
    } else if route == Route::CreateNamespace {
        json!({ "name": "third" }).to_string()
    } else if [Route::SetSettings, Route::SetWorkflowSettings].contains(&route) {
        json!({ "timeout_ms": 3_600_000 }).to_string()
    } else if route == Route::StartBulk {
        // The other cells of the matrix need their runs.
        json!({ "action": "cancel", "filter": { "tag": "nobody has it" } }).to_string()
    } else if route == Route::CreateToken {
        json!({ "name": "go" }).to_string()
    } else if route == Route::CompleteToken {
        json!("an answer").to_string()
    } else if route == Route::PutSchedule {
        DAILY.to_owned()
    } else if route == Route::PutAlert {
        ON_DEAD_LETTERS.to_owned()
    } else if route == Route::PutTrigger {
        ON_SHIPPED.to_owned()
    } else if route == Route::PutWebhook {
        SHOP.to_owned()
    } else if route == Route::SendEvents {
        json!({ "name": "order/paid" }).to_string()
    } else if [Route::SendJobs, Route::EditJob].contains(&route) {
        json!({ "body": 7 }).to_string()
    } else if route == Route::SetQueue {
        json!({ "max_attempts": 7 }).to_string()
    } else if [Route::AckJobs, Route::NackJobs, Route::ExtendJobs].contains(&route) {
        json!({ "leases": ["1-0-1.1.nobody"] }).to_string()
    } else if route == Route::BackfillSchedule {
        let now_ms = now_ms();
        json!({ "from": now_ms - 86_400_000, "to": now_ms }).to_string()
    } else if [Route::SetLimit, Route::SetStepLimit].contains(&route) {
        "{}".to_owned()
    } else if route == Route::SetLimits {
        json!({ "live_runs": 1_000_000 }).to_string()
    } else if route == Route::SetIssuer {
        json!({
            "issuer": "https://issuer.example", "audience": "stepwell",
            "jwks_url": "https://issuer.example/jwks", "namespace": { "fixed": "acme" },
        })
        .to_string()
    } else {
        String::new()
    }
}

fn expect(answer: &Answer, status: u16, wanted: &str) -> Result<()> {
    let code = code(answer)?;
    anyhow::ensure!((answer.status, code.as_str()) == (status, wanted), "{} {}", answer.status, answer.body);
    Ok(())
}

async fn wait_until_refused(client: &Client) -> Result<()> {
    for _ in 0..100 {
        if client.get("/api/executions").await?.status == 401 {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    bail!("the key was not refused within two seconds")
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
