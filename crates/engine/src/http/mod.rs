//! The front door: authenticates, routes, checks, and passes on to the cell that holds the run.
//!
//! In this order: is the deployment set up, who asks, is that key good; only then is the rest of the request read, and
//! any cell asked. Routing is axum's. The runtime's request and response are turned into `http`'s by hand here: the body
//! is one text and the answer is one text, which costs a crossing each instead of a stream.

mod audit;
mod auth;
mod body;
mod bulk;
mod cors;
mod described;
mod error;
mod forward;
mod generations;
mod guessing;
mod issuers;
mod keys;
mod known;
mod list;
mod managed;
mod namespaces;
mod overview;
#[cfg(not(target_arch = "wasm32"))]
pub mod reading;
mod ready;
mod runs;
mod sessions;
mod settings;
mod starts;
mod streams;
mod token;
mod verdicts;

use std::{cell::RefCell, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    routing::{self, MethodFilter, MethodRouter},
};
use http::{Method, Request as HttpRequest, Response as HttpResponse, StatusCode};
use percent_encoding::percent_decode_str;
use stepwell_protocol::{
    Code,
    routes::{self, Entry, Route},
};
use tower_service::Service as _;
use wasm_bindgen::JsCast as _;
use worker::{Env, Headers, Request, Response, Result, Url, worker_sys::web_sys};

pub use self::forward::Front;
use self::{cors::Cors, error::Refusal, managed::Asked};
use crate::settings::Deployment;

thread_local! {
    // Built once for each isolate; a clone is cheap.
    static ROUTER: RefCell<Router> = RefCell::new(router());
}

/// All routes of the table, and no others.
fn router() -> Router {
    let all = Route::ALL.iter().fold(Router::new(), |router, route| {
        let Entry { method, path, .. } = route.entry();
        router.route(path, on(filter(method), *route))
    });
    all.fallback(|| async { no_such_route() }).method_not_allowed_fallback(|| async { no_such_method() })
}

/// What answers a route.
fn on(method: MethodFilter, route: Route) -> MethodRouter {
    match route {
        Route::StartRun => routing::on(method, runs::start),
        Route::ListRuns => routing::on(method, list::list),
        Route::ShowRun => routing::on(method, runs::show),
        Route::ListWorkflows => routing::on(method, overview::workflows),
        Route::ShowWorkflow => routing::on(method, overview::workflow),
        Route::ShowMetrics => routing::on(method, overview::metrics),
        Route::StartBulk => routing::on(method, bulk::start),
        Route::ShowApi => routing::on(method, described::openapi),
        Route::ShowDocs => routing::on(method, described::page),
        Route::ShowHealth => routing::on(method, described::health),
        Route::Why => routing::on(method, runs::why),
        Route::History => routing::on(method, runs::history),
        Route::CancelRun => routing::on(method, runs::cancel),
        Route::PauseRun => routing::on(method, runs::pause),
        Route::ResumeRun => routing::on(method, runs::resume),
        Route::RetryRun => routing::on(method, runs::retry),
        Route::RestartRun => routing::on(method, runs::restart),
        Route::SendSignal => routing::on(method, runs::signal),
        Route::ListKeys => managed::on(method, Asked::ListKeys),
        Route::CreateKey => managed::on(method, Asked::CreateKey),
        Route::RotateKey => managed::on(method, Asked::RotateKey),
        Route::RevokeKey => managed::on(method, Asked::RevokeKey),
        Route::ShowSession => managed::on(method, Asked::ShowSession),
        Route::OpenSession => managed::on(method, Asked::OpenSession),
        Route::EndSession => managed::on(method, Asked::EndSession),
        Route::ListSessions => managed::on(method, Asked::ListSessions),
        Route::RevokeSession => managed::on(method, Asked::RevokeSession),
        Route::ShowSettings => managed::on(method, Asked::ShowSettings),
        Route::SetSettings => managed::on(method, Asked::SetSettings),
        Route::SetWorkflowSettings => managed::on(method, Asked::SetWorkflowSettings),
        Route::RemoveWorkflowSettings => managed::on(method, Asked::RemoveWorkflowSettings),
        Route::Audit => managed::on(method, Asked::Audit),
        Route::ListNamespaces => managed::on(method, Asked::ListNamespaces),
        Route::CreateNamespace => managed::on(method, Asked::CreateNamespace),
        Route::ShowNamespace => managed::on(method, Asked::ShowNamespace),
        Route::CreateNamespaceKey => managed::on(method, Asked::CreateNamespaceKey),
        Route::SetLimits => managed::on(method, Asked::SetLimits),
        Route::ListIssuers => managed::on(method, Asked::ListIssuers),
        Route::SetIssuer => managed::on(method, Asked::SetIssuer),
        Route::RemoveIssuer => managed::on(method, Asked::RemoveIssuer),
        Route::FollowRun => routing::on(method, streams::run),
        Route::FollowAll => routing::on(method, streams::pool),
    }
}

fn filter(method: routes::Method) -> MethodFilter {
    match method {
        routes::Method::Get => MethodFilter::GET,
        routes::Method::Post => MethodFilter::POST,
        routes::Method::Put => MethodFilter::PUT,
        routes::Method::Delete => MethodFilter::DELETE,
    }
}

/// What a request is about. Read once, so that whoever lets it in and whoever answers it go by the same words.
struct Address {
    method: String,
    url: Url,
    route: Option<Route>,
}

impl Address {
    fn of(request: &Request) -> std::result::Result<Self, Refusal> {
        let url = request.url().map_err(unreadable)?;
        // The `worker` crate takes each method that it does not know for GET.
        let method = request.method();
        let method =
            if method == worker::Method::Get { request.inner().method() } else { method.to_string() };
        let route = Route::find(&method, url.path());
        Ok(Self { method, url, route })
    }

    /// The answer to whatever is no route.
    fn no_route(&self) -> HttpResponse<Body> {
        let mut methods: Vec<_> =
            Route::methods(self.url.path()).into_iter().map(routes::Method::as_str).collect();
        if methods.is_empty() {
            return no_such_route().into_response();
        }
        if methods.contains(&routes::Method::Get.as_str()) {
            methods.push("HEAD");
        }
        let mut response = no_such_method().into_response();
        let allowed = http::HeaderValue::from_str(&methods.join(",")).expect("methods are words");
        response.headers_mut().insert(http::header::ALLOW, allowed);
        response
    }
}

/// Answers a request.
pub async fn serve(request: Request, env: Env) -> Result<Response> {
    let mut cors = Cors::default();
    let response = match admit(&request, &env) {
        Ok((address, deployment)) => {
            cors = Cors::of(&request, &deployment);
            match cors.preflight(&request, &address.method, address.url.path()) {
                Some(preflight) => preflight,
                None => respond(request, &address, env).await,
            }
        }
        Err(refusal) => refusal.into_response(),
    };
    finish(response, &cors).await
}

/// What a request is about, if this deployment answers any.
fn admit(request: &Request, env: &Env) -> std::result::Result<(Address, Arc<Deployment>), Refusal> {
    let address = Address::of(request)?;
    let deployment = ready::check(request, &address.url, env)?;
    Ok((address, deployment))
}

async fn respond(request: Request, address: &Address, env: Env) -> HttpResponse<Body> {
    match identify(&request, address, env).await {
        Ok((front, allowed)) => {
            let answered = match allowed {
                // What the table does not have gets to no handler, whatever the router makes of its path.
                Ok(()) if address.route.is_none() => address.no_route(),
                Ok(()) => answer(request, address, &front).await,
                Err(refusal) => refusal.into_response(),
            };
            front.vouched(answered).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Who asks, and whether that can be enough. Nothing else of a request is read for a key that is not good, and no cell
/// is asked.
type Identified = (Front, std::result::Result<(), Refusal>);

async fn identify(
    request: &Request,
    address: &Address,
    env: Env,
) -> std::result::Result<Identified, Refusal> {
    let route = address.route;
    let caller = auth::caller(request, &env, route).await?;
    let is_good = async {
        namespaces::check(&env, &caller).await?;
        let access = caller.access(auth::need(route, &address.url));
        let front = Front::of(env, &caller, access)?.over(address.url.scheme());
        front.vouch().await?;
        Ok(front)
    };
    let front = is_good.await.inspect_err(|refusal| guessing::count(request, refusal))?;
    Ok((front, auth::check_root(route, &caller)))
}

async fn answer(request: Request, address: &Address, front: &Front) -> HttpResponse<Body> {
    match prepare(request, address, front.clone()).await {
        Ok(request) => {
            let mut router = ROUTER.with_borrow(Clone::clone);
            match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Answers a call of a Worker that is bound to this one: the same as a request, without a key.
pub async fn call(
    front: Front,
    method: routes::Method,
    path: &str,
    headers: Vec<(&'static str, String)>,
    body: String,
) -> (u16, String) {
    let mut builder = HttpRequest::builder().method(method.as_str()).uri(path).extension(front);
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    let response = match builder.body(Body::from(body)) {
        Ok(request) => {
            let mut router = ROUTER.with_borrow(Clone::clone);
            match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
        Err(_) => {
            let detail = "An argument holds characters that HTTP forbids.";
            Refusal::new(Code::InvalidRequest, detail).into_response()
        }
    };
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn prepare(
    mut request: Request,
    Address { method, url, route }: &Address,
    front: Front,
) -> std::result::Result<HttpRequest<Body>, Refusal> {
    // The router would say so in words of its own.
    if percent_decode_str(url.path()).decode_utf8().is_err() {
        return Err(Refusal::new(Code::InvalidRequest, "The address is not UTF-8 text."));
    }
    let mut path = url.path().to_owned();
    if let Some(query) = url.query() {
        path.push('?');
        path.push_str(query);
    }
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| {
        Refusal::new(Code::MethodNotAllowed, "This is not a method of HTTP that Stepwell knows.")
    })?;
    let mut builder = HttpRequest::builder().method(method).uri(path);
    // Each look at a header is a crossing: those of streams are not looked for where nobody needs them.
    let of_streams: &[&str] = if url.path().ends_with("/stream") { &streams::HEADERS } else { &[] };
    for &name in runs::HEADERS.iter().chain(of_streams) {
        if let Some(value) = request.headers().get(name).map_err(unreadable)? {
            builder = builder.header(name, value);
        }
    }
    let body = match route {
        Some(route) if route.entry().method.has_body() => {
            body::receive(&mut request, route.body_bytes_max()).await?
        }
        Some(_) | None => String::new(),
    };
    builder.extension(front).body(Body::from(body)).map_err(|_| {
        Refusal::new(
            Code::InvalidRequest,
            "The request's address or headers hold characters that HTTP forbids.",
        )
    })
}

fn unreadable(_: worker::Error) -> Refusal {
    Refusal::new(Code::InvalidRequest, "The request's address, headers or body cannot be read.")
}

/// What every answer says: it may hold secrets, and is what its type says. Nobody keeps or reinterprets it.
const ALWAYS: [(&str, &str); 2] = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")];

async fn finish(response: HttpResponse<Body>, cors: &Cors) -> Result<Response> {
    let (mut parts, body) = response.into_parts();
    if let Some(streams::Raw(raw)) = parts.extensions.remove() {
        let raw = (*raw).clone().unchecked_into::<web_sys::Response>();
        // A socket is handed over as it came, and has no headers to set.
        if raw.status() != 101 {
            for (name, value) in ALWAYS.into_iter().chain(cors.headers()) {
                let _ = raw.headers().set(name, value);
            }
        }
        return Ok(raw.into());
    }
    let body = to_bytes(body, usize::MAX).await.map_err(|error| error.to_string())?;
    let headers = Headers::new();
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            headers.set(name.as_str(), value)?;
        }
    }
    for (name, value) in ALWAYS.into_iter().chain(cors.headers()) {
        headers.set(name, value)?;
    }
    // The runtime takes no body with this status, not even an empty one.
    let response = if parts.status == StatusCode::NO_CONTENT {
        Response::empty()?
    } else {
        Response::from_bytes(body.into())?
    };
    Ok(response.with_status(parts.status.as_u16()).with_headers(headers))
}

fn no_such_route() -> Refusal {
    Refusal::new(Code::RouteNotFound, "See docs/api.md for the routes that there are.")
}

fn no_such_method() -> Refusal {
    Refusal::new(Code::MethodNotAllowed, "See docs/api.md for the methods of this route.")
}

/// A JSON answer.
fn json(status: StatusCode, body: String) -> HttpResponse<Body> {
    let mut response = HttpResponse::new(Body::from(body));
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}
