//! A Worker that exercises the platform, so that tests can see what the platform does.
//!
//! It decides nothing: each path makes one thing happen and answers what was seen. `/NAME/COMMAND` goes
//! to the object of that name ([`cell`]); the same Worker also exports the method `activate`
//! ([`program`]), so one bundle can play the engine, the app, or both.

mod cell;
mod program;
mod runtime;

use worker::{Context, Env, Request, Response, Result, event};

#[event(fetch, respond_with_errors)]
async fn fetch(request: Request, env: Env, _context: Context) -> Result<Response> {
    let path = request.path();
    let Some((object, _command)) = path.trim_start_matches('/').split_once('/') else {
        return Response::ok("platform probe");
    };
    env.durable_object("CELL")?.get_by_name(object)?.fetch_with_request(request).await
}
