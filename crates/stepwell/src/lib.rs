//! Durable workflows on Cloudflare in plain async Rust.
//!
//! ```
//! use stepwell::prelude::*;
//!
//! #[workflow]
//! async fn greet(ctx: Ctx, name: String) -> Result<String> {
//!     let greeting = ctx.step("compose", async || Ok(format!("Hello, {name}!"))).await?;
//!     ctx.sleep("a moment", "5 seconds").await;
//!     Ok(greeting)
//! }
//!
//! #[stepwell::main]
//! fn app() -> App {
//!     App::new().workflow(greet)
//! }
//! # let _ = app();
//! ```
//!
//! A workflow is an `async fn`. When its process dies, Stepwell runs it again from the top, and every recorded step
//! returns its recorded result instead of running. Put every side effect in a step, and keep the code between steps
//! deterministic. Each step's result is recorded once; its code may run more than once.
//!
//! Owns: the API that people write workflows with, the replay [`vm`], and how a program talks to its cell.
//! Does not own: any durable state; that is the engine's.

pub mod app;
pub mod ctx;
pub mod drive;
pub mod env;
pub mod error;
pub mod fetch;
mod job;
pub mod ops;
pub mod panics;
mod random;
mod schedule;
mod shape;
mod span;
#[cfg(feature = "testing")]
pub mod testing;
mod trigger;
pub mod vm;
#[cfg(target_arch = "wasm32")]
mod workers;

pub use app::{App, Workflow};
pub use ctx::{Ctx, Log};
pub use env::{Env, EnvError, Secret, env};
pub use error::{Error, FailedChild, Result, Terminal};
pub use fetch::fetch;
pub use job::{Job, JobHandler};
pub use ops::{
    Detached, Each, Emit, Event, Invoke, LaneKey, SendJob, Sleep, Step, StepInfo, Token, Wait, WaitError,
    WaitFor,
};
pub use schedule::Schedule;
pub use span::Span;
pub use stepwell_macros::{job, main, workflow};
pub use stepwell_protocol::queue::{DeadCode, DeadLetter, JobId};
pub use stepwell_protocol::{
    Code, OnClose, Payload, RunId, Timestamp,
    lane::{Hold, LimitSpec, StartRule},
    program::{Dispatch, Retry},
    schedule::Overlap,
    wait_token::{Decision, Verdict},
};
pub use trigger::Trigger;
pub use uuid::Uuid;
/// The `worker` crate in the version that Stepwell uses: the types of bindings.
pub use worker;

/// What a file of workflows needs.
pub mod prelude {
    pub use std::time::Duration;

    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        App, Ctx, Error, Job, OnClose, Result, Retry, RunId, Terminal, WaitError, bail, ensure, job, workflow,
    };
}

/// What the macros' output needs. Not for people.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_arch = "wasm32")]
    pub use {js_sys, wasm_bindgen, wasm_bindgen_futures};

    pub use crate::app::{Returns, encode_output};
    #[cfg(target_arch = "wasm32")]
    pub use crate::workers::{activate, describe, job};
}

/// The examples of the page on workflows, run as tests.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/workflows.md")]
struct WorkflowsPage;

/// The examples of the page on calling an API.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/calling-an-api.md")]
struct CallingPage;

/// What a run tells, of the page on streams.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/streams.md")]
struct StreamsPage;

/// The examples of the page on schedules.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/schedules.md")]
struct SchedulesPage;

/// The example of the page on jobs.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/jobs.md")]
struct JobsPage;

/// The example of the page on callbacks.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/callbacks.md")]
struct CallbacksPage;

/// The example of the page on events.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/events.md")]
struct EventsPage;

/// The example of the page on Cloudflare Queues.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/cloudflare-queues.md")]
struct CloudflareQueuesPage;

/// The examples of the page on concurrency.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/concurrency.md")]
struct ConcurrencyPage;

/// The examples of the guide to starts that share a run.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/starts.md")]
struct StartsPage;

/// The example of the page on webhooks.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/webhooks.md")]
struct WebhooksPage;

/// The example of the page on traces.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/traces.md")]
struct TracesPage;

/// The examples of the page on concepts.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/concepts.md")]
struct ConceptsPage;

/// The examples of the guide to human approval.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/human-approval.md")]
struct ApprovalPage;

/// The examples of the guide to agents.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/agents.md")]
struct AgentsPage;

/// The example of the guide to moving from Cloudflare Workflows.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/from-cloudflare-workflows.md")]
struct MovingPage;
