//! Runs the real `workerd` for tests: writes its configuration, starts it, kills it, starts it again on
//! the same port and the same disk, and talks to it over HTTP.
//!
//! A test describes a process with [`Config`], runs it with [`Workerd`], and asks it with [`Http`]. What
//! a Worker calls back on is a [`Listener`]. All traffic stays on 127.0.0.1.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use stepwell_workerd_tests::{Config, Workerd, Worker, bundle};
//!
//! let config = Config::serving("main")
//!     .worker(Worker::bundle("main", &bundle("probe")?).durable_object("CELL", "Cell"));
//! let mut workerd = Workerd::start(&config).await?;
//! workerd.http().post("/a/sql", "SELECT 1").await?.json()?;
//! workerd.kill();
//! workerd.restart().await?;
//! # Ok(())
//! # }
//! ```

pub mod access;
pub mod bad_input;
pub mod cli;
mod config;
pub mod dev;
pub mod endpoint;
pub mod engine;
pub mod events;
pub mod evil;
mod failure;
pub mod family;
pub mod following;
pub mod growth;
pub mod hardening;
mod http;
pub mod kill;
pub mod lanes;
mod listener;
pub mod miniflare;
mod outside;
pub mod page;
mod paths;
mod probe;
mod process;
mod server;
pub mod size;
pub mod sqlite;
pub mod streams;

pub use config::{COMPATIBILITY_DATE, Config, Worker};
pub use failure::{Failure, TestResult};
pub use http::{Answer, Http, without_request};
pub use listener::{Call, Listener};
pub use outside::{Asked, Outside};
pub use paths::{bundle, node_binary, repository_root, workerd_binary};
pub use probe::{Object, probe, probe_app, probe_with_app, probe_with_remote_app};
pub use process::{Workerd, free_port};
