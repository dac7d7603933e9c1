//! Good calls where a run cannot take them: every status with every action, by a table.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::{BoxFuture, FutureExt as _};
use stepwell_protocol::{Code, rest::Status};

use super::{
    bench::{Bench, expect_refusal, shown},
    case::{Case, Kind, start},
    wire::Request,
};

/// Running comes last: whoever ends there makes place for one that is pending.
const STATUSES: [Status; 8] = [
    Status::Pending,
    Status::Sleeping,
    Status::Waiting,
    Status::Paused,
    Status::Completed,
    Status::Failed,
    Status::Cancelled,
    Status::Running,
];

/// Runs in each status: one for each action that may change it, and one for all others.
const RUNS: usize = 8;

/// What somebody does to a run: its name, the method, the path after the run's, and the body.
const ACTIONS: [(&str, &str, &str, &str); 13] = [
    ("cancel", "POST", "/cancel", ""),
    ("pause", "POST", "/pause", ""),
    ("resume", "POST", "/resume", ""),
    ("retry", "POST", "/retry", ""),
    ("restart", "POST", "/restart", ""),
    ("restart-from-nothing", "POST", "/restart", r#"{"from":{"step":"nothing"}}"#),
    ("restart-from-what", "POST", "/restart", r#"{"from":"CANARY"}"#),
    ("signal", "POST", "/signals/go", "\"CANARY\""),
    ("broken-signal", "POST", "/signals/go", "CANARY"),
    ("show", "GET", "", ""),
    ("why", "GET", "/why", ""),
    ("history", "GET", "/history", ""),
    ("stream", "GET", "/stream", ""),
];

/// What an action gives in a status: a status of success, or a code.
fn expected(action: &str, status: Status) -> std::result::Result<u16, Code> {
    let is_paused = status == Status::Paused;
    match action {
        "cancel" if status.is_terminal() && status != Status::Cancelled => Err(Code::RunEnded),
        "pause" | "resume" | "signal" if status.is_terminal() => Err(Code::RunEnded),
        "retry" if status != Status::Failed => Err(Code::WrongStatus),
        "restart" if !status.is_terminal() && !is_paused => Err(Code::WrongStatus),
        "restart-from-nothing" => Err(Code::StepNotFound),
        "restart-from-what" | "broken-signal" => Err(Code::InvalidRequest),
        "signal" => Ok(202),
        _ => Ok(200),
    }
}

/// All of them.
pub fn make(bench: Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>> {
    async move {
        let mut runs = Runs::make(&bench).await?;
        let mut cases = Vec::new();
        for status in STATUSES {
            for (name, method, path, body) in ACTIONS {
                let expected = expected(name, status);
                let changes = expected.is_ok() && method == "POST";
                let run = runs.get(status, changes);
                let run = run.with_context(|| format!("too few runs are {}", status.as_str()))?;
                let kind = if expected.is_ok() { Kind::Accepted } else { Kind::Refused };
                let request = Request {
                    body: body.as_bytes().to_vec(),
                    ..Request::new(method, format!("/api/executions/{run}{path}"))
                };
                let request = if name == "restart-from-what" { request.may_echo() } else { request };
                cases.push(Case::new(kind, format!("{name}-{}", status.as_str()), move |bench| async move {
                    let before = view(&bench, &run).await?;
                    let answer = bench.ask(&request).await?;
                    match expected {
                        Ok(wanted) => {
                            ensure!(answer.status == wanted, "{} {}", answer.status, shown(&answer.body));
                        }
                        Err(code) => {
                            expect_refusal(&answer, &[code])?;
                            let after = view(&bench, &run).await?;
                            ensure!(before == after, "{before} became {after}");
                        }
                    }
                    Ok(())
                }));
            }
        }
        // Those that keep a place are not to be in anybody's way.
        cases.push(Case::new(Kind::Accepted, "all-are-cancelled", |bench| async move {
            let body = r#"{"action":"cancel","filter":{"workflow":"race"}}"#;
            let request = Request::post("/api/bulk", body).header("Prefer", "wait=10");
            let done = bench.ask(&request).await?.json()?;
            ensure!(done["status"] == "completed", "{}", shown(&done.to_string()));
            Ok(())
        }));
        Ok(cases)
    }
    .boxed()
}

/// What a refused action must leave as it was.
async fn view(bench: &Bench, run: &str) -> Result<String> {
    let view = bench.admin.show(run, 0).await?.json()?;
    Ok(format!("{} {} {}", view["status"], view["head"], view["activations"]))
}

/// Runs in each status.
struct Runs(BTreeMap<&'static str, Vec<String>>);

impl Runs {
    async fn make(bench: &Bench) -> Result<Self> {
        let mut runs = Self(BTreeMap::new());
        for (workflow, input, status) in [
            ("nap", "3600000", Status::Sleeping),
            ("wait", "3600000", Status::Waiting),
            ("wait", "3600000", Status::Paused),
            ("wait", "3600000", Status::Cancelled),
            ("echo", "1", Status::Completed),
            ("fail", "\"terminal\"", Status::Failed),
        ] {
            for _ in 0..RUNS {
                let run = start(bench, workflow, input).await?;
                runs.put(status, run);
            }
        }
        for (status, what) in [(Status::Paused, "pause"), (Status::Cancelled, "cancel")] {
            for run in runs.0.get(status.as_str()).into_iter().flatten() {
                bench.admin.until(run, "waiting").await?;
                bench.admin.act(run, what, "").await?.json()?;
            }
        }
        for (status, those) in &runs.0 {
            for run in those {
                bench.admin.until(run, status).await?;
            }
        }
        runs.make_busy(bench).await?;
        Ok(runs)
    }

    /// One workflow takes only so many places of a cell: of enough runs that do not end, some run and some do not.
    async fn make_busy(&mut self, bench: &Bench) -> Result<()> {
        for _ in 0..8 {
            let mut fresh = Vec::new();
            for _ in 0..RUNS {
                fresh.push(start(bench, "race", "30000").await?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            for run in fresh {
                let view = bench.admin.show(&run, 0).await?.json()?;
                let status =
                    [Status::Running, Status::Pending].into_iter().find(|s| view["status"] == s.as_str());
                match status {
                    Some(status) => self.put(status, run),
                    None => bail!("{run} is neither running nor pending: {view}"),
                }
            }
            if self.0.get(Status::Pending.as_str()).is_some_and(|runs| runs.len() >= RUNS) {
                return Ok(());
            }
        }
        bail!("no run has to wait for a place")
    }

    fn put(&mut self, status: Status, run: String) {
        self.0.entry(status.as_str()).or_default().push(run);
    }

    /// A run in this status: one of its own for whoever changes it, the first for all others.
    fn get(&mut self, status: Status, changes: bool) -> Option<String> {
        let runs = self.0.get_mut(status.as_str())?;
        if changes && runs.len() > 1 { runs.pop() } else { runs.first().cloned().filter(|_| !changes) }
    }
}
