//! Stepwell's engine on Durable Objects: the host around the machines of `stepwell-core`.
//!
//! A request goes through [`http`] to the [`cell`] that holds the run; there one loop (`cell/drive.rs`)
//! asks the machine, commits what it decided, arms the alarm and performs the effects. Everything here is
//! thin: decisions are the machines', durability is the platform's.

mod cell;
mod http;
mod runtime;
mod settings;

use worker::{Context, Env, Request, Response, Result, event};

pub use cell::Cell;

/// Everything that comes from outside.
#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    http::serve(request, env).await
}
