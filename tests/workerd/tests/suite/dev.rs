//! `stepwell dev` with real processes: the lock on the data, variables that change, bindings, kills.

use std::{os::unix::fs::PermissionsExt as _, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use stepwell_workerd_tests::{
    TestResult, bundle,
    dev::{Project, children_of},
};
use tokio::time::timeout;

/// Answers with a variable.
const VARIABLES: &str = "export default {
  fetch(request, env) { return new Response(String(env[new URL(request.url).pathname.slice(1)])); },
};";

/// Keeps values in KV and D1: `POST /NAME` puts the body, `GET /NAME` gives what both have.
const BINDINGS: &str = "export default {
  async fetch(request, env) {
    const name = new URL(request.url).pathname;
    await env.DB.exec('CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value TEXT)');
    if (request.method === 'POST') {
      const value = await request.text();
      await env.KV.put(name, value);
      await env.DB.prepare('INSERT OR REPLACE INTO kept VALUES (?, ?)').bind(name, value).run();
      await env.FILES.put(name, value);
      return new Response(env.TOKEN);
    }
    const row = await env.DB.prepare('SELECT value FROM kept WHERE name = ?').bind(name).first();
    const file = await env.FILES.get(name);
    return new Response([await env.KV.get(name), row?.value, await file?.text()].join(' '));
  },
};";

/// Answers what it is bound to, to the engine only.
const APP: &str = "export default {
  fetch(request, env) { return new Response(`${env.STEPWELL_APP_KEY} ${env.STEPWELL_KEY}`); },
};";

/// Answers whether the app has the same secret and not the deployment's key, and how long both are.
const ENGINE: &str = "export default {
  async fetch(request, env) {
    const app = await (await env.APP.fetch(request)).text();
    const { STEPWELL_APP_KEY: shared, STEPWELL_KEY: own } = env;
    return new Response([app === `${shared} undefined`, shared.length, own.length].join(' '));
  },
};";

const BOUND: &str = "[[kv_namespaces]]\nbinding = \"KV\"\n\
    [[d1_databases]]\nbinding = \"DB\"\ndatabase_name = \"orders\"\ndatabase_id = \"1\"\n\
    [[r2_buckets]]\nbinding = \"FILES\"\nbucket_name = \"files\"\n";

fn kill(pid: i32) -> TestResult {
    kill_process(Pid::from_raw(pid).ok_or("a process has a number")?, Signal::KILL)?;
    Ok(())
}

#[tokio::test]
async fn a_folder_has_one_dev_at_a_time() -> TestResult {
    let project = Project::of_script(VARIABLES)?;
    let first = project.dev().await?;
    let port = stepwell_workerd_tests::free_port()?.to_string();
    let second = project.command(&["dev", "--port", &port])?.stderr(Stdio::piped()).output();
    let second = timeout(Duration::from_secs(20), second).await??;
    let said = String::from_utf8(second.stderr)?;
    assert_eq!(second.status.code(), Some(6), "{said}");
    let holder =
        format!("(process {}) is serving this project at http://127.0.0.1:{}", first.pid()?, project.port);
    assert!(said.contains(&holder) && !said.contains("--port"), "{said}");
    assert_eq!(project.builds(), 1, "the second one has touched the build");
    project.answers("/STEPWELL_DEV", "1").await?;
    // Whoever is killed leaves nothing behind that keeps the next one out.
    first.kill().await?;
    let third = project.dev().await?;
    project.answers("/STEPWELL_DEV", "1").await?;
    third.kill().await?;
    Ok(())
}

#[tokio::test]
async fn changed_variables_reach_the_worker() -> TestResult {
    let project = Project::of_script(VARIABLES)?;
    project.write(".dev.vars", "TOKEN=one\n")?;
    let mut dev = project.dev().await?;
    project.answers("/TOKEN", "one").await?;
    project.write(".dev.vars", "TOKEN=second\nSTEPWELL_DEV=0\n")?;
    dev.ready().await?;
    project.answers("/TOKEN", "second").await?;
    project.answers("/STEPWELL_DEV", "1").await?;
    assert_eq!(project.builds(), 1, "variables take no build");
    project.configure("[vars]\nCOLOUR = \"blue\"\n")?;
    dev.ready().await?;
    project.answers("/COLOUR", "blue").await?;
    // What cannot be read changes nothing, and the next change that can be read counts.
    project.write(".dev.vars", "nonsense")?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    project.answers("/TOKEN", "second").await?;
    project.write(".dev.vars", "TOKEN=the third\n")?;
    dev.ready().await?;
    project.answers("/TOKEN", "the third").await?;
    dev.kill().await?;
    Ok(())
}

#[tokio::test]
async fn each_project_has_a_key_of_its_own_that_only_its_owner_can_read() -> TestResult {
    let project = Project::of_script(VARIABLES)?;
    project.write(".dev.vars", "TOKEN=secret\n")?;
    let dev = project.dev().await?;
    let key = project.key()?;
    assert!(key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
    project.answers("/STEPWELL_KEY", &key).await?;
    for secret in ["key", "worker/config.capnp"] {
        let mode = std::fs::metadata(project.path(".stepwell").join(secret))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    dev.kill().await?;
    Ok(())
}

#[tokio::test]
async fn kv_d1_and_r2_survive_kills_and_see_changed_variables() -> TestResult {
    let project = Project::of_script(BINDINGS)?;
    project.configure(BOUND)?;
    project.write(".dev.vars", "TOKEN=one\n")?;
    let mut dev = project.dev().await?;
    let http = project.http();
    assert_eq!(http.post("/a", "first").await?.body, "one");
    project.answers("/a", "first first first").await?;
    project.write(".dev.vars", "TOKEN=second\n")?;
    dev.ready().await?;
    assert_eq!(http.post("/b", "2").await?.body, "second");

    // Node dies, and its workerd with it.
    let nodes = children_of(dev.pid()?)?;
    let (node, _) =
        *nodes.iter().find(|(_, args)| args.contains("miniflare.mjs")).as_ref().ok_or("no Node")?;
    let workerds = children_of(u32::try_from(*node)?)?;
    assert!(!workerds.is_empty(), "Miniflare runs no workerd");
    kill(*node)?;
    dev.ready().await?;
    for (workerd, _) in workerds {
        let state = std::fs::read_to_string(format!("/proc/{workerd}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "a workerd goes on with the data: {state}");
    }
    project.answers("/a", "first first first").await?;
    project.answers("/b", "2 2 2").await?;
    dev.kill().await?;
    let dev = project.dev().await?;
    project.answers("/b", "2 2 2").await?;
    dev.kill().await?;
    Ok(())
}

#[tokio::test]
async fn runs_go_on_over_kills_and_from_workerd_to_miniflare() -> TestResult {
    let project = Project::of_bundle(&bundle("test-all-in-one")?)?;
    let mut dev = project.dev().await?;
    let (http, key) = (project.http(), project.key()?);
    let start = |ms: u32| {
        let (http, key) = (http.clone(), key.clone());
        async move {
            let request = http.client().post(http.url("/api/workflows/nap/start")).bearer_auth(key);
            let run = http.send(request.body(ms.to_string()), "start").await?.json()?;
            anyhow::Ok(format!("/api/executions/{}", run["id"].as_str().unwrap_or_default()))
        }
    };
    let first = start(6_000).await?;
    // The project declares a KV namespace while the run sleeps.
    project.configure("[[kv_namespaces]]\nbinding = \"KV\"\n")?;
    dev.ready().await?;
    let second = start(4_000).await?;
    let nodes = children_of(dev.pid()?)?;
    let (node, _) =
        nodes.iter().find(|(_, args)| args.contains("miniflare.mjs")).ok_or("it is not Miniflare")?;
    for (workerd, _) in children_of(u32::try_from(*node)?)? {
        kill(workerd)?;
    }
    project.is_there().await?;
    for run in [first, second] {
        let request = http.client().get(http.url(&run)).bearer_auth(&key).header("prefer", "wait=20");
        let ended = http.send(request, &run).await?.json()?;
        assert_eq!(ended["status"], "completed", "{ended}");
    }
    dev.kill().await?;
    Ok(())
}

#[tokio::test]
async fn two_workers_are_served_together_and_share_a_secret_of_their_own() -> TestResult {
    let project = Project::of_script(APP)?;
    project.add_engine(ENGINE, "[[services]]\nbinding = \"APP\"\nservice = \"orders\"\n")?;
    let mut dev = project.dev().await?;
    project.answers("/", "true 64 64").await?;
    project.configure("[[kv_namespaces]]\nbinding = \"KV\"\n")?;
    dev.ready().await?;
    project.answers("/", "true 64 64").await?;
    let nodes = children_of(dev.pid()?)?;
    assert!(nodes.iter().any(|(_, args)| args.contains("miniflare.mjs")), "{nodes:?}");
    dev.kill().await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_without_the_engine_is_told_what_is_missing() -> TestResult {
    // The names stand in its text, and are no exports.
    let half = format!("// Cell, stepwell-engine\nclass Cell {{}}\nexport class Station {{}}\n{VARIABLES}");
    for (script, missing) in [(VARIABLES, "Cell and Station"), (&half, "Cell")] {
        let project = Project::without_engine(script)?;
        let port = project.port.to_string();
        let dev = project.command(&["dev", "--once", "--port", &port])?.stderr(Stdio::piped()).output();
        let dev = timeout(Duration::from_secs(60), dev).await??;
        let said = String::from_utf8(dev.stderr)?;
        assert_eq!(dev.status.code(), Some(6), "{said}");
        let wanted = format!("the Worker orders has no engine: it does not export {missing}\n");
        assert!(said.contains(&wanted) && said.contains("`use stepwell_engine as _;`"), "{said}");
        assert!(!String::from_utf8(dev.stdout)?.contains("ready"));
    }
    Ok(())
}
