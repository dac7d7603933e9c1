//! The front door: authenticates, routes, checks, and passes on to the cell that holds the run.
//!
//! In this order: is the deployment set up, who asks, is that key good; only then is the rest of the request read, and
//! any cell asked. A request is routed once, by the table in `stepwell_protocol::routes`; its route says who may ask,
//! how much of a body is read, and which handler answers ([`dispatch`]).

mod alerts;
mod answers;
mod audit;
mod auth;
mod body;
mod by_key;
mod caller;
mod cells;
mod cookie;
mod cors;
mod dashboard;
mod described;
mod dispatch;
mod error;
mod events;
mod failures;
mod front;
mod generations;
mod guessing;
mod issuers;
mod keys;
mod known_namespaces;
mod lanes;
mod list;
mod manifest;
mod metrics;
mod names;
mod namespaces;
mod need;
mod outbox;
mod overview;
mod pauses;
mod pressing;
mod queues;
#[cfg(not(target_arch = "wasm32"))]
pub mod reading;
mod ready;
mod request;
mod response;
mod runs;
mod schedules;
mod sessions;
mod settings;
mod starts;
mod streams;
mod token;
mod totals;
mod tracking;
mod verdicts;
mod wait_page;
mod wait_tokens;
mod webhooks;
mod workflows;

use std::rc::Rc;

use stepwell_protocol::{
    Code,
    routes::{self, Route, has_dot_segment},
};
use worker::{Env, Request, Url};

use self::{
    cors::Cors,
    error::Refusal,
    request::{Headers, Incoming, Names},
    response::Response,
};
pub use self::{
    events::accept as accept_events,
    front::Front,
    generations::has_cell,
    manifest::pull,
    request::{CALLBACK, DELAY, TRACE},
};
use crate::{log, runtime, settings::Deployment};

/// The longest address, without scheme and host, in bytes.
const ADDRESS_BYTES_MAX: usize = 65_534;

/// What a request is about. Read once, so that whoever lets it in and whoever answers it go by the same words.
struct Address {
    method: String,
    url: Url,
    route: Option<Route>,
    /// Whether a part of the path was `.` or `..`: it was written for another address than the one that is read.
    is_detour: bool,
}

impl Address {
    fn of(request: &Request) -> Result<Self, Refusal> {
        let url = request.url().map_err(unreadable)?;
        // The `worker` crate takes each method that it does not know for GET.
        let method = request.method();
        let method =
            if method == worker::Method::Get { request.inner().method() } else { method.to_string() };
        let route = Route::find(&method, url.path());
        let is_detour = has_dot_segment(path_of(&request.inner().url()));
        Ok(Self { method, url, route, is_detour })
    }

    /// The answer to whatever is no route.
    fn no_route(&self) -> Response {
        let mut methods: Vec<_> =
            Route::methods(self.url.path()).into_iter().map(routes::Method::as_str).collect();
        if methods.is_empty() {
            return no_such_route().into_response();
        }
        if methods.contains(&routes::Method::Get.as_str()) {
            methods.push("HEAD");
        }
        let detail = "See docs/api.md for the methods of this route.";
        let refusal = Refusal::new(Code::MethodNotAllowed, detail);
        refusal.into_response().with("allow", methods.join(","))
    }
}

/// Answers a request.
pub async fn serve(request: Request, env: Env) -> worker::Result<worker::Response> {
    let mut cors = Cors::default();
    let id = tracking::id_of(&request);
    let response = match admit(&request, &env) {
        Ok((address, deployment)) => {
            cors = Cors::of(&request, &deployment);
            let response = match cors.preflight(&request, &address.method, address.url.path()) {
                Some(preflight) => preflight,
                None => {
                    let responded = Box::pin(respond_as_asked(request, &address, env, &id));
                    log::on_behalf(Some(&id), responded).await
                }
            };
            tracking::answered(response, &id, Some(&address))
        }
        Err(refusal) => tracking::answered(refusal.into_response(), &id, None),
    };
    response.finish(cors.headers())
}

/// The path of an address, as it is written.
fn path_of(address: &str) -> &str {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    address.split_once("://").map_or(address, |(_, rest)| rest)
}

/// What a request is about, if this deployment answers any.
fn admit(request: &Request, env: &Env) -> Result<(Address, Rc<Deployment>), Refusal> {
    let address = Address::of(request)?;
    let deployment = ready::check(request, &address.url, env)?;
    Ok((address, deployment))
}

/// The answer: as a page where a person asks with a wait token, and its head alone where nobody asks for more.
async fn respond_as_asked(request: Request, address: &Address, env: Env, id: &str) -> Response {
    let wants_page = wait_tokens::is_token_route(address.route) && accepts_html(&request);
    let page = match address.route {
        None if !address.is_detour => dashboard::answer(&address.method, address.url.path(), &env).await,
        Some(_) | None => None,
    };
    let response = match page {
        Some(page) => page,
        None => respond(request, address, env, id).await,
    };
    let response = match address.route {
        Some(route) if wants_page => wait_page::page(route, response),
        Some(_) | None => response,
    };
    if address.method == "HEAD" { response.head() } else { response }
}

fn accepts_html(request: &Request) -> bool {
    request.headers().get("accept").ok().flatten().is_some_and(|accepted| accepted.contains("text/html"))
}

async fn respond(request: Request, address: &Address, env: Env, id: &str) -> Response {
    let since = runtime::clock();
    let (front, allowed) = match identify(&request, address, env, id).await {
        Ok(identified) => identified,
        Err(refusal) => return refusal.into_response(),
    };
    let response = match pressing::check(&front) {
        Err(refusal) => refusal.into_response(),
        Ok(()) => respond_to(request, address, &front, allowed).await,
    };
    if let Some(route) = address.route.filter(|_| front.is_known()) {
        let took_ms = runtime::clock().as_millis().saturating_sub(since.as_millis());
        answers::count(&front, route, response.status, took_ms);
    }
    response
}

/// The answer to whoever is let in.
async fn respond_to(
    request: Request,
    address: &Address,
    front: &Front,
    allowed: Result<(), Refusal>,
) -> Response {
    let answered = match (allowed, address.route) {
        (Err(refusal), _) => refusal.into_response(),
        (Ok(()), None) => address.no_route(),
        (Ok(()), Some(_)) if address.is_detour => {
            let detail = "No part of an address is `.` or `..`, also not as `%2e`.";
            Refusal::new(Code::InvalidRequest, detail).into_response()
        }
        (Ok(()), Some(route)) => {
            let is_delivery = route == Route::ReceiveWebhook;
            let sender = is_delivery.then(|| guessing::sender(&request, address.url.path())).flatten();
            let response = match receive(request, address, route).await {
                Ok(incoming) => dispatch::answer(route, front, incoming).await,
                Err(refusal) => Err(refusal),
            };
            let response = response.unwrap_or_else(Refusal::into_response);
            webhooks::count(sender.as_deref(), &response);
            pressing::count(front, &response);
            response
        }
    };
    front.vouched(answered).await
}

/// Who asks, and whether that can be enough. Nothing else of a request is read for a key that is not good, and no cell
/// is asked.
type Identified = (Front, Result<(), Refusal>);

async fn identify(request: &Request, address: &Address, env: Env, id: &str) -> Result<Identified, Refusal> {
    let route = address.route;
    if wait_tokens::is_token_route(route) {
        wait_tokens::check(request, &address.url, &env)?;
    }
    if route == Some(Route::ReceiveWebhook) {
        webhooks::check(request, &address.url, &env)?;
    }
    let caller = auth::caller(request, &env, route).await?;
    let is_good = async {
        known_namespaces::check(&env, &caller).await?;
        let access = caller.access(need::of(route, &address.url));
        let front = Front::of(env, &caller, access)?.over(address.url.scheme()).for_request(id);
        let allowed = match front.vouch(route.is_some_and(Route::is_checked_first)).await {
            // A key that may not do this is a good one.
            Err(refusal) if refusal.0.code == Code::Forbidden => {
                front.is_known_now();
                Err(refusal)
            }
            vouched => vouched.map(|()| need::check_root(route, &caller))?,
        };
        Ok((front, allowed))
    };
    is_good.await.inspect_err(|refusal| guessing::count(request, refusal))
}

/// Reads the rest of a request, its body last.
async fn receive(
    mut request: Request,
    Address { url, .. }: &Address,
    route: Route,
) -> Result<Incoming, Refusal> {
    let entry = route.entry();
    let Some(names) = Names::of(entry.path, url.path()) else {
        return Err(Refusal::new(Code::InvalidRequest, "The address is not UTF-8 text."));
    };
    let query = url.query().unwrap_or_default().to_owned();
    let length = url.path().len() + query.len();
    if length > ADDRESS_BYTES_MAX {
        let detail = format!("The address has {length} bytes; the most is {ADDRESS_BYTES_MAX}.");
        return Err(Refusal::new(Code::InvalidRequest, detail));
    }
    // Each look at a header is a crossing: those of streams are not looked for where nobody needs them.
    let is_stream = matches!(route, Route::FollowRun | Route::FollowAll);
    let of_streams: &[&str] = if is_stream { &streams::HEADERS } else { &[] };
    let mut headers = Vec::new();
    for &name in request::HEADERS.iter().chain(of_streams) {
        if let Some(value) = request.headers().get(name).map_err(unreadable)? {
            headers.push((name, value));
        }
    }
    let Some(headers) = Headers::of(headers) else {
        let detail = "The request's headers hold characters that HTTP forbids.";
        return Err(Refusal::new(Code::InvalidRequest, detail));
    };
    let mut sent = if route == Route::ReceiveWebhook { webhooks::headers(&request) } else { Vec::new() };
    let body = if route == Route::SendJobs {
        let content_type = request.headers().get("content-type").map_err(unreadable)?;
        let (body, raw) = body::receive_any(&mut request, route.body_bytes_max(), content_type).await?;
        sent.extend(raw);
        body
    } else if entry.method.has_body() {
        body::receive(&mut request, route.body_bytes_max()).await?
    } else {
        String::new()
    };
    Ok(Incoming { names, query, headers, sent, body })
}

/// Answers a call of a Worker that is bound to this one: the same as a request, without a key. Gives a status and a
/// JSON text.
pub async fn call(
    front: &Front,
    route: Route,
    names: Vec<(&'static str, String)>,
    query: String,
    headers: Vec<(&'static str, String)>,
    body: String,
) -> (u16, String) {
    let answered = async {
        let names = Names::given(names).ok_or_else(no_such_route)?;
        let headers = Headers::of(headers).ok_or_else(|| {
            Refusal::new(Code::InvalidRequest, "An argument holds characters that HTTP forbids.")
        })?;
        body::check_length(body.len(), route.body_bytes_max())?;
        dispatch::answer(route, front, Incoming { names, query, headers, sent: Vec::new(), body }).await
    };
    let response = answered.await.unwrap_or_else(Refusal::into_response);
    (response.status, response.into_text())
}

fn unreadable(_: worker::Error) -> Refusal {
    Refusal::new(Code::InvalidRequest, "The request's address, headers or body cannot be read.")
}

fn no_such_route() -> Refusal {
    Refusal::new(Code::RouteNotFound, "See docs/api.md for all routes.")
}
