//! Input that nobody should send, against the real Worker.
//!
//! Each case is one input and what must become of it: accepted and given back as it was sent, refused with a problem
//! that has a page, or either of them; never 5xx, never nothing. After each class all that is stored is as it was, but
//! for the runs that were accepted, and a good request works. What was sent is in no log and in no refusal.

mod bench;
mod case;
mod credentials;
mod deep;
mod idempotency;
mod json;
mod limits;
mod naughty;
mod paths;
mod programs;
mod queries;
mod report;
mod routes;
mod settings;
mod sockets;
mod states;
mod streams;
mod timers;
pub(crate) mod wire;

use std::{sync::Arc, time::Instant};

use anyhow::{Context as _, Result};
use futures::{
    future::BoxFuture,
    stream::{self, StreamExt as _},
};

use crate::{
    Workerd,
    engine::{Client, Engine, Form},
};
use bench::Bench;
use case::Case;
pub use case::Kind;
pub use report::{Class, Report};

/// Few enough that each cell gets some of everything.
const CELLS: u32 = 2;

/// Cases that are under way at once.
const AT_ONCE: usize = 16;

/// A good request follows after so many cases.
const GOOD_EVERY: usize = 100;

/// What is tried.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Only this class, or this case of it: `json`, `json/NAME`.
    pub only: Option<String>,
}

/// How the cases of a class are made.
enum Make {
    /// They are known.
    Known(fn(&Bench) -> Vec<Case>),
    /// They take runs that are there before.
    Prepared(fn(Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>>),
}

/// A class of cases.
struct Sort {
    name: &'static str,
    make: Make,
}

const fn known(name: &'static str, make: fn(&Bench) -> Vec<Case>) -> Sort {
    Sort { name, make: Make::Known(make) }
}

const fn prepared(name: &'static str, make: fn(Arc<Bench>) -> BoxFuture<'static, Result<Vec<Case>>>) -> Sort {
    Sort { name, make: Make::Prepared(make) }
}

/// All classes, in the order in which they are tried.
const SORTS: &[Sort] = &[
    known("json", json::make),
    known("deep", deep::make),
    known("naughty-id", naughty::ids),
    known("naughty-workflow", naughty::workflows),
    known("naughty-key", naughty::keys),
    known("naughty-payload", naughty::payloads),
    known("naughty-tag", naughty::tags),
    prepared("naughty-signal", naughty::signals),
    known("naughty-filter", naughty::filters),
    known("naughty-event", naughty::events),
    prepared("limits", limits::make),
    prepared("settings", settings::make),
    known("sockets", sockets::make),
    prepared("routes", routes::make),
    known("credentials", credentials::make),
    known("idempotency", idempotency::make),
    prepared("queries", queries::make),
    known("paths", paths::make),
    known("timers", timers::make),
    prepared("streams", streams::make),
    prepared("states", states::make),
];

/// The class that takes an app of its own, and so an engine of its own.
const PROGRAMS: Sort = known("programs", programs::make);

impl Plan {
    fn has_class(&self, class: &str) -> bool {
        let wanted = self.only.as_deref().map(|only| only.split('/').next().unwrap_or_default());
        wanted.is_none_or(|wanted| wanted == class)
    }

    fn has(&self, class: &str, case: &str) -> bool {
        match self.only.as_deref().and_then(|only| only.split_once('/')) {
            Some((_, name)) => name == case,
            None => self.has_class(class),
        }
    }
}

/// Tries everything, and says what was counted.
pub async fn run(plan: &Plan) -> Result<Report> {
    let began = Instant::now();
    let (mut report, mut of_programs) = (Report::default(), Report::default());
    let first = async {
        if SORTS.iter().any(|sort| plan.has_class(sort.name)) {
            let engine = Engine::start(Form::AllInOne, CELLS).await?.engine;
            try_all(plan, SORTS, engine, &mut report).await?;
        }
        anyhow::Ok(())
    };
    let second = async {
        if plan.has_class(PROGRAMS.name) {
            try_all(plan, &[PROGRAMS], programs::engine().await?, &mut of_programs).await?;
        }
        anyhow::Ok(())
    };
    // Two engines, which know nothing of each other.
    tokio::try_join!(first, second)?;
    report.add(of_programs);
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Tries classes on one engine, which has ended then.
async fn try_all(plan: &Plan, sorts: &[Sort], mut workerd: Workerd, report: &mut Report) -> Result<()> {
    let bench = Bench::new(Client::new(workerd.http()), workerd.address(), workerd.disk()).await?;
    let bench = Arc::new(bench);
    bench.good().await.context("before the first case")?;
    for sort in sorts.iter().filter(|sort| plan.has_class(sort.name)) {
        let began = Instant::now();
        let mut class = try_class(plan, sort, &bench).await?;
        class.seconds = began.elapsed().as_secs_f64();
        report.classes.push((sort.name, class));
    }
    workerd.kill();
    report.traces += bench.look_for_traces(&workerd)?;
    report.answers += bench.answers();
    Ok(())
}

async fn try_class(plan: &Plan, sort: &Sort, bench: &Arc<Bench>) -> Result<Class> {
    let mut cases = match sort.make {
        Make::Known(make) => make(bench),
        Make::Prepared(make) => {
            make(bench.clone()).await.with_context(|| format!("before the cases of {}", sort.name))?
        }
    };
    cases.retain(|case| plan.has(sort.name, &case.name));
    let before = bench.state().await?;
    let mut class = Class::default();
    while !cases.is_empty() {
        let rest = cases.split_off(GOOD_EVERY.min(cases.len()));
        let tried = stream::iter(std::mem::replace(&mut cases, rest)).map(|case| {
            let bench = bench.clone();
            async move {
                let (name, kind) = (case.name.clone(), case.kind);
                (name, kind, case.run(bench).await)
            }
        });
        let tried: Vec<_> = tried.buffered(AT_ONCE).collect().await;
        for (name, kind, tried) in tried {
            match tried {
                Ok(()) => *class.good.entry(kind).or_default() += 1,
                Err(error) => class.wrong.push((name, format!("{error:#}"))),
            }
        }
        if let Err(error) = bench.good().await {
            class.wrong.push(("then a good request".into(), format!("{error:#}")));
        }
    }
    match bench.state().await {
        Ok(after) if before == after => {}
        Ok(after) => {
            class.wrong.push(("nothing is recorded".into(), format!("{before:?} became {after:?}")));
        }
        Err(error) => class.wrong.push(("then a look at all".into(), format!("{error:#}"))),
    }
    Ok(class)
}
