//! Stepwell itself on workerd, in both forms, with the workflows of `app/`.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{Answer, Config, Http, Worker, Workerd, bundle, evil};

/// The key of every engine that the tests start. As long as a real one has to be.
pub const KEY: &str = "test-key-0123456789abcdef0123456789abcdef";

/// The secret that engine and app share where they are two Workers.
pub const APP_KEY: &str = "test-app-key-0123456789abcdef0123456789abcdef";

/// What every engine that the tests start takes for its public address. Requests go where it really is.
pub const URL: &str = "https://flows.example.com";

/// Where the clock strikes.
const STRIKE: &str = "/strike";

/// How long a run may take to get to the status that a test waits for.
const STATUS_WITHIN: Duration = Duration::from_secs(15);

/// How many pages a search may have.
const PAGES_MAX: u32 = 2_000;

/// How engine and app are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One Worker.
    AllInOne,
    /// Two Workers, in two processes.
    Split,
}

impl Form {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllInOne => "all-in-one",
            Self::Split => "split",
        }
    }

    /// The forms that a command line names: one of them, or both.
    pub fn named(name: &str) -> Result<&'static [Self]> {
        match name {
            "all-in-one" => Ok(&[Self::AllInOne]),
            "split" => Ok(&[Self::Split]),
            "both" => Ok(&[Self::AllInOne, Self::Split]),
            other => bail!("there is no form '{other}': say all-in-one, split or both"),
        }
    }
}

/// What a panic does in the bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// It stops the wasm instance with all that it holds.
    Abort,
    /// It is caught.
    Unwind,
}

impl Build {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Unwind => "unwind",
        }
    }

    /// The bundle of this name.
    pub fn bundle(self, name: &str) -> Result<PathBuf> {
        match self {
            Self::Abort => bundle(name),
            Self::Unwind => bundle(&format!("unwind/{name}")),
        }
    }
}

/// A running engine, and its app if that is a process of its own.
#[derive(Debug)]
pub struct Engine {
    /// The process that serves HTTP and holds the cells.
    pub engine: Workerd,
    /// The process that holds only the workflows.
    pub app: Option<Workerd>,
    build: Build,
}

impl Engine {
    /// Starts one with this many cells.
    pub async fn start(form: Form, cells: u32) -> Result<Self> {
        Self::start_build(form, Build::Abort, cells).await
    }

    /// Starts one whose answers say how many rows its cells write and read. All others run as users have them: with the
    /// meter off.
    pub async fn start_metered(form: Form, cells: u32) -> Result<Self> {
        Self::start_with(form, &[("STEPWELL_CELLS", &cells.to_string()), ("STEPWELL_METER", "1")]).await
    }

    /// Starts one with these variables.
    pub async fn start_with(form: Form, variables: &[(&str, &str)]) -> Result<Self> {
        Self::assemble(form, Build::Abort, variables, &|config| config).await
    }

    /// Starts one of these bundles.
    pub async fn start_build(form: Form, build: Build, cells: u32) -> Result<Self> {
        Self::assemble(form, build, &[("STEPWELL_CELLS", &cells.to_string())], &|config| config).await
    }

    /// Starts one whose clock can [strike](Self::strike).
    pub async fn start_with_clock(form: Form, cells: u32) -> Result<Self> {
        Self::start_with_clock_and(form, &[("STEPWELL_CELLS", &cells.to_string())]).await
    }

    /// The same with these variables.
    pub async fn start_with_clock_and(form: Form, variables: &[(&str, &str)]) -> Result<Self> {
        Self::assemble(form, Build::Abort, variables, &clock).await
    }

    /// Starts one with a Worker before it that calls a method of its entrypoint `WorkflowsRPC` for each request.
    pub async fn start_with_caller(form: Form, cells: u32) -> Result<Self> {
        Self::assemble(form, Build::Abort, &[("STEPWELL_CELLS", &cells.to_string())], &caller).await
    }

    /// Calls a method of that entrypoint: gives what it gives, or the message of what it throws.
    pub async fn call(&self, method: &str, arguments: &Value) -> Result<std::result::Result<Value, String>> {
        let answer = self.engine.http().post(&format!("/{method}"), arguments.to_string()).await?;
        Ok(if answer.status == 200 { Ok(answer.json()?) } else { Err(answer.body) })
    }

    /// Starts one in which one route forgets to check who asks: whoever it is gets what the deployment's key gets.
    pub async fn start_with_leak(form: Form, cells: u32, method: &str, path: &str) -> Result<Self> {
        let leak = |config| leak(config, method, path);
        Self::assemble(form, Build::Abort, &[("STEPWELL_CELLS", &cells.to_string())], &leak).await
    }

    /// Starts one with a Worker before it that passes everything on as if it had come over HTTPS.
    pub async fn start_over_https(form: Form, variables: &[(&str, &str)]) -> Result<Self> {
        Self::assemble(form, Build::Abort, variables, &https).await
    }

    /// Starts one whose isolates may take only so much memory.
    pub async fn start_bounded(
        form: Form,
        variables: &[(&str, &str)],
        heap_mib: Option<u32>,
    ) -> Result<Self> {
        let bounded = |config: Config| match heap_mib {
            Some(mib) => config.heap_mib(mib),
            None => config,
        };
        Self::assemble(form, Build::Abort, variables, &bounded).await
    }

    /// Starts one with another Worker at its second socket, that is bound to engine and app: see [`evil`].
    pub async fn start_with_evil(form: Form, variables: &[(&str, &str)]) -> Result<Self> {
        Self::assemble(form, Build::Abort, variables, &evil::beside(form)).await
    }

    /// The same in two Workers, and what the engine calls as its app is the other Worker, which passes it on.
    pub async fn start_with_tap() -> Result<Self> {
        Self::assemble_split(Build::Abort, &[], APP_KEY, "evil", &evil::beside(Form::Split)).await
    }

    /// Starts one of two Workers, whose app has this key.
    pub async fn start_with_app_key(app_key: &str) -> Result<Self> {
        Self::assemble_split(Build::Abort, &[], app_key, "app", &|config| config).await
    }

    /// Gives the app another key, as a deployment does.
    pub async fn set_app_key(&mut self, key: &str) -> Result<()> {
        let app = self.app.as_mut().context("only the split form has an app with a key")?;
        app.kill();
        let path = app.folder().join("config.capnp");
        let text = std::fs::read_to_string(&path)?;
        let (before, rest) = text.split_once("\"STEPWELL_APP_KEY\", text = \"").context("it has a key")?;
        let (_, after) = rest.split_once('"').context("a text ends")?;
        std::fs::write(&path, format!("{before}\"STEPWELL_APP_KEY\", text = \"{key}\"{after}"))?;
        app.restart().await
    }

    async fn assemble(
        form: Form,
        build: Build,
        variables: &[(&str, &str)],
        around: &(dyn Fn(Config) -> Config + Sync),
    ) -> Result<Self> {
        match form {
            Form::AllInOne => {
                let worker = Self::worker(build, "test-all-in-one", variables)?;
                let config = around(Config::serving("engine").worker(worker));
                Ok(Self { engine: Workerd::start(&config).await?, app: None, build })
            }
            Form::Split => Self::assemble_split(build, variables, APP_KEY, "app", around).await,
        }
    }

    /// Two Workers in two processes; `called` is what the engine calls as its app.
    async fn assemble_split(
        build: Build,
        variables: &[(&str, &str)],
        app_key: &str,
        called: &str,
        around: &(dyn Fn(Config) -> Config + Sync),
    ) -> Result<Self> {
        let app = Worker::bundle("app", &build.bundle("test-app")?)
            .text("STEPWELL_APP_KEY", app_key)
            .json("CF_VERSION_METADATA", &version(FIRST_VERSION));
        let app = Workerd::start(&Config::serving("app").worker(app)).await?;
        let worker = Self::worker(build, "engine", variables)?.text("STEPWELL_APP_KEY", APP_KEY);
        let config =
            Config::serving("engine").worker(worker.service("APP", called)).external("app", &app.address());
        Ok(Self { engine: Workerd::start(&around(config)).await?, app: Some(app), build })
    }

    fn worker(build: Build, bundle: &str, variables: &[(&str, &str)]) -> Result<Worker> {
        const OWN: [(&str, &str); 2] = [("STEPWELL_KEY", KEY), ("STEPWELL_URL", URL)];
        let said = |wanted: &str| variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let worker = Worker::bundle("engine", &build.bundle(bundle)?)
            .durable_object("CELL", "Cell")
            .durable_object("STATION", "Station");
        let worker =
            OWN.iter().fold(worker, |worker, (name, own)| worker.text(name, said(name).unwrap_or(own)));
        let others = variables.iter().filter(|(name, _)| !OWN.iter().any(|(own, _)| own == name));
        Ok(others.fold(worker, |worker, (name, value)| worker.text(name, value)))
    }

    /// One with two cells, beside an app of the test's own.
    pub async fn beside(app: Worker) -> Result<Self> {
        Self::beside_with(app, &[]).await
    }

    /// The same, with variables.
    pub async fn beside_with(app: Worker, variables: &[(&str, &str)]) -> Result<Self> {
        let engine = Worker::bundle("engine", &bundle("test-all-in-one")?)
            .durable_object("CELL", "Cell")
            .durable_object("STATION", "Station")
            .text("STEPWELL_KEY", KEY)
            .text("STEPWELL_APP_KEY", APP_KEY)
            .text("STEPWELL_CELLS", "2")
            .service("APP", "app");
        let engine = variables.iter().fold(engine, |engine, (name, value)| engine.text(name, value));
        let config = Config::serving("engine").worker(engine).worker(app);
        Ok(Self::of(Workerd::start(&config).await?))
    }

    /// One that was put together elsewhere.
    pub fn of(engine: Workerd) -> Self {
        Self { engine, app: None, build: Build::Abort }
    }

    /// Puts another bundle in the place of the app, as a deployment does: the engine is not touched.
    pub async fn deploy_app(&mut self, name: &str) -> Result<()> {
        let app = self.app.as_mut().context("only the split form has an app to deploy")?;
        app.kill();
        for file in ["index.js", "index_bg.wasm"] {
            std::fs::copy(self.build.bundle(name)?.join(file), app.folder().join("app").join(file))?;
        }
        app.restart().await
    }

    /// The same, as another version of the Worker: one that was uploaded on this day of 2026, from 1 on.
    pub async fn deploy_version(&mut self, name: &str, day: u32) -> Result<()> {
        let app = self.app.as_mut().context("only the split form has an app to deploy")?;
        let path = app.folder().join("config.capnp");
        let text = std::fs::read_to_string(&path)?;
        let (before, rest) = text.split_once("\"CF_VERSION_METADATA\", json = \"").context("it has one")?;
        let (_, after) = rest.split_once("}\"").context("a text ends")?;
        let json = version(day).replace('"', "\\\"");
        std::fs::write(&path, format!("{before}\"CF_VERSION_METADATA\", json = \"{json}\"{after}"))?;
        self.deploy_app(name).await
    }

    /// Lets the clock strike, as the deployment's cron trigger does.
    pub async fn strike(&self) -> Result<()> {
        let answer = self.engine.http().post(STRIKE, "").await?;
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        Ok(())
    }

    /// A client that brings the key.
    pub fn client(&self) -> Client {
        Client::new(self.engine.http())
    }
}

/// The day of 2026 on which the first version of an app was uploaded.
const FIRST_VERSION: u32 = 10;

/// What the platform tells a Worker about its version.
fn version(day: u32) -> String {
    format!(r#"{{"id":"version-{day}","tag":"","timestamp":"2026-01-{day:02}T08:00:00.000000Z"}}"#)
}

/// Puts a Worker before the engine that passes everything on, and lets the clock strike when it is told: workerd
/// has no clock of its own.
fn clock(config: Config) -> Config {
    let code = r#"
        export default {
          async fetch(request, env) {
            if (new URL(request.url).pathname !== "/strike") return env.ENGINE.fetch(request);
            const { outcome } = await env.ENGINE.scheduled({ cron: "*/15 * * * *" });
            return new Response(outcome, { status: outcome === "ok" ? 200 : 500 });
          },
        };"#;
    let worker = Worker::inline("clock", [("main.js", code)]).service("ENGINE", "engine");
    config.worker(worker.flag("service_binding_extra_handlers")).serving_instead("clock").experimental()
}

/// Puts a Worker before the engine that turns a request into a call.
fn caller(config: Config) -> Config {
    let code = r"
        export default {
          async fetch(request, env) {
            const method = new URL(request.url).pathname.slice(1);
            try {
              return Response.json((await env.WORKFLOWS[method](...await request.json())) ?? null);
            } catch (error) {
              return new Response(error.message, { status: 500 });
            }
          },
        };";
    let worker = Worker::inline("caller", [("main.js", code)]);
    config.worker(worker.entrypoint("WORKFLOWS", "engine", "WorkflowsRPC")).serving_instead("caller")
}

/// Puts a Worker before the engine that passes everything on, and puts the deployment's key into the requests of one
/// route.
fn leak(config: Config, method: &str, path: &str) -> Config {
    let code = r#"
        export default {
          fetch(request, env) {
            const leaks = request.method === env.METHOD && new URL(request.url).pathname === env.PATH;
            if (!leaks) return env.ENGINE.fetch(request);
            const headers = new Headers(request.headers);
            headers.set("authorization", `Bearer ${env.KEY}`);
            return env.ENGINE.fetch(new Request(request, { headers }));
          },
        };"#;
    let worker = Worker::inline("leak", [("main.js", code)]).service("ENGINE", "engine");
    let worker = worker.text("METHOD", method).text("PATH", path).text("KEY", KEY);
    config.worker(worker).serving_instead("leak")
}

/// Puts a Worker before the engine that passes everything on, with an encrypted address.
fn https(config: Config) -> Config {
    let code = r#"
        export default {
          fetch(request, env) {
            return env.ENGINE.fetch(new Request(request.url.replace("http:", "https:"), request));
          },
        };"#;
    config
        .worker(Worker::inline("https", [("main.js", code)]).service("ENGINE", "engine"))
        .serving_instead("https")
}

/// Asks an engine.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http,
    key: String,
}

impl Client {
    /// A client that brings the key to any address.
    pub fn new(http: Http) -> Self {
        Self { http, key: KEY.into() }
    }

    /// The same client with another key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { http: self.http.clone(), key: key.into() }
    }

    /// The key that it brings.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sends a request of any kind with the key.
    pub async fn request(&self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let request = self.http.client().request(method, self.http.url(path)).bearer_auth(&self.key);
        let request = if body.is_empty() { request } else { request.body(body.to_owned()) };
        if is_stream(path) {
            return self.http.send_for_a_while(request, path).await;
        }
        self.http.send(request, path).await
    }

    /// Where it asks.
    pub fn http(&self) -> &Http {
        &self.http
    }

    /// Starts a run; waits for its end up to `wait` seconds.
    pub async fn start(&self, workflow: &str, input: &Value, key: Option<&str>, wait: u32) -> Result<Answer> {
        let path = format!("/api/workflows/{workflow}/start");
        let mut request = self.post(&path).body(input.to_string());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if wait > 0 {
            request = request.header("prefer", format!("wait={wait}"));
        }
        self.http.send(request, &path).await
    }

    /// Starts a run and gives its id.
    pub async fn start_id(&self, workflow: &str, input: Value) -> Result<String> {
        let run = self.start(workflow, &input, None, 0).await?.json()?;
        Ok(run["id"].as_str().context("a run has an id")?.to_owned())
    }

    /// All runs that a query finds, in pages of this size, as they come.
    pub async fn list(&self, query: &str, limit: usize) -> Result<Vec<Value>> {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let page = self.get(&format!("/api/executions?limit={limit}&{query}{cursor}")).await?;
            ensure!(page.status == 200, "{} {}", page.status, page.body);
            let page = page.json()?;
            let runs = page["executions"].as_array().context("a page has runs")?;
            ensure!(runs.len() <= limit, "a page of {limit} has {} runs", runs.len());
            found.extend(runs.iter().cloned());
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(found),
            }
        }
        bail!("the pages do not end")
    }

    /// Waits until a run has this status, and shows it.
    pub async fn until(&self, run: &str, wanted: &str) -> Result<Value> {
        let began = Instant::now();
        loop {
            let view = self.show(run, 0).await?.json()?;
            if view["status"] == wanted {
                return Ok(view);
            }
            ensure!(began.elapsed() < STATUS_WITHIN, "{run} never was {wanted}: {view}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Shows a run; waits for its end up to `wait` seconds.
    pub async fn show(&self, run: &str, wait: u32) -> Result<Answer> {
        let path = format!("/api/executions/{run}");
        let request = self.http.client().get(self.http.url(&path)).bearer_auth(&self.key);
        self.http.send(request.header("prefer", format!("wait={wait}")), &path).await
    }

    /// A run's whole history.
    pub async fn history(&self, run: &str) -> Result<Vec<Value>> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let path = format!("/api/executions/{run}/history?after={after}");
            let request = self.http.client().get(self.http.url(&path)).bearer_auth(&self.key);
            let mut page = self.http.send(request, &path).await?.json()?;
            if let Some(Value::Array(more)) = page.get_mut("events").map(Value::take) {
                events.extend(more);
            }
            match page.get("next").and_then(Value::as_u64) {
                Some(next) => after = next,
                None => return Ok(events),
            }
        }
    }

    /// Sends a run a signal.
    pub async fn signal(&self, run: &str, name: &str, payload: &Value, id: Option<&str>) -> Result<Answer> {
        let path = format!("/api/executions/{run}/signals/{name}");
        let mut request = self.post(&path).body(payload.to_string());
        if let Some(id) = id {
            request = request.header("idempotency-key", id);
        }
        self.http.send(request, &path).await
    }

    /// Cancels a run.
    pub async fn cancel(&self, run: &str) -> Result<Answer> {
        self.act(run, "cancel", "").await
    }

    /// Pauses a run.
    pub async fn pause(&self, run: &str) -> Result<Answer> {
        self.act(run, "pause", "").await
    }

    /// Resumes a run.
    pub async fn resume(&self, run: &str) -> Result<Answer> {
        self.act(run, "resume", "").await
    }

    /// Does something else to a run: `retry`, `restart`.
    pub async fn act(&self, run: &str, what: &str, body: &str) -> Result<Answer> {
        let path = format!("/api/executions/{run}/{what}");
        self.http.send(self.post(&path).body(body.to_owned()), &path).await
    }

    /// Posts a JSON value to any path of the API.
    pub async fn post_json(&self, path: &str, body: &Value) -> Result<Value> {
        self.http.send(self.post(path).body(body.to_string()), path).await?.json()
    }

    /// Posts any text to any path of the API.
    pub async fn send_post(&self, path: &str, body: &str) -> Result<Answer> {
        self.http.send(self.post(path).body(body.to_owned()), path).await
    }

    /// Sends a request of any method to any path of the API. A header of the caller's takes the place of the key.
    pub async fn request_with(
        &self,
        method: reqwest::Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer> {
        let mut request = self.http.client().request(method, self.http.url(path)).body(body.to_owned());
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request = request.bearer_auth(KEY);
        }
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        if is_stream(path) {
            return self.http.send_for_a_while(request, path).await;
        }
        self.http.send(request, path).await
    }

    /// Asks for any path of the API.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.http.send(self.http.client().get(self.http.url(path)).bearer_auth(&self.key), path).await
    }

    fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.client().post(self.http.url(path)).bearer_auth(&self.key)
    }
}

/// Whether the answer to a good request has no end.
fn is_stream(path: &str) -> bool {
    path.split('?').next().is_some_and(|path| path.ends_with("/stream"))
}
