//! The front door: authenticates, routes, checks, and passes on to the cell that holds the run.
//!
//! Routing is axum's. The runtime's request and response are turned into `http`'s by hand here: the body is
//! read as one text and the answer is one text, which costs a crossing each instead of a stream.

mod auth;
mod error;
mod forward;
mod list;
mod runs;
mod starts;

use std::cell::RefCell;

use axum::{
    Router,
    body::{Body, to_bytes},
    routing::{get, post},
};
use http::{Method, Request as HttpRequest, Response as HttpResponse, StatusCode};
use stepwell_protocol::{Code, Problem, program::PAYLOAD_BYTES_MAX};
use tower_service::Service as _;
use worker::{Env, Headers, Request, Response, Result};

use self::error::Refusal;
pub use self::forward::Front;

/// The largest body of a request: a payload and a little around it.
const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 8_192;

thread_local! {
    // Built once for each isolate; a clone is cheap.
    static ROUTER: RefCell<Router> = RefCell::new(router());
}

fn router() -> Router {
    Router::new()
        .route("/api/workflows/{workflow}/start", post(runs::start))
        .route("/api/executions", get(list::list))
        .route("/api/executions/{id}", get(runs::show))
        .route("/api/executions/{id}/why", get(runs::why))
        .route("/api/executions/{id}/history", get(runs::history))
        .route("/api/executions/{id}/cancel", post(runs::cancel))
        .route("/api/executions/{id}/pause", post(runs::pause))
        .route("/api/executions/{id}/resume", post(runs::resume))
        .route("/api/executions/{id}/retry", post(runs::retry))
        .route("/api/executions/{id}/restart", post(runs::restart))
        .route("/api/executions/{id}/signals/{name}", post(runs::signal))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
}

/// Answers a request.
pub async fn serve(request: Request, env: Env) -> Result<Response> {
    let response = match prepare(request, env).await {
        Ok(request) => {
            let mut router = ROUTER.with_borrow(Clone::clone);
            match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
        Err(refusal) => refusal.into_response(),
    };
    finish(response).await
}

/// Nothing of a request is read before its key was found good.
async fn prepare(mut request: Request, env: Env) -> std::result::Result<HttpRequest<Body>, Refusal> {
    auth::check(&request, &env)?;
    let front = Front::new(env)?;
    let unreadable =
        |_| Refusal::new(Code::InvalidRequest, "The request's address, headers or body cannot be read.");
    let url = request.url().map_err(unreadable)?;
    let mut path = url.path().to_owned();
    if let Some(query) = url.query() {
        path.push('?');
        path.push_str(query);
    }
    let method = Method::from_bytes(request.method().to_string().as_bytes()).map_err(|_| {
        Refusal::new(Code::MethodNotAllowed, "This is not a method of HTTP that Stepwell knows.")
    })?;
    let mut builder = HttpRequest::builder().method(method.clone()).uri(path);
    for name in runs::HEADERS {
        if let Some(value) = request.headers().get(name).map_err(unreadable)? {
            builder = builder.header(name, value);
        }
    }
    let body = if method == Method::POST { read_body(&mut request).await? } else { String::new() };
    builder.extension(front).body(Body::from(body)).map_err(|_| {
        Refusal::new(
            Code::InvalidRequest,
            "The request's address or headers hold characters that HTTP forbids.",
        )
    })
}

async fn read_body(request: &mut Request) -> std::result::Result<String, Refusal> {
    let length = request.headers().get("content-length").ok().flatten();
    let announced = length.and_then(|length| length.parse::<usize>().ok()).unwrap_or_default();
    let bytes = if announced > BODY_BYTES_MAX {
        Vec::new()
    } else {
        request
            .bytes()
            .await
            .map_err(|_| Refusal::new(Code::InvalidRequest, "The body broke off before its end."))?
    };
    if announced > BODY_BYTES_MAX || bytes.len() > BODY_BYTES_MAX {
        let detail = format!(
            "The body has {} bytes; the most is {BODY_BYTES_MAX}. Store what is larger elsewhere (R2, say) and \
             pass its name.",
            announced.max(bytes.len())
        );
        return Err(Refusal::new(Code::PayloadTooLarge, detail));
    }
    String::from_utf8(bytes).map_err(|_| Refusal::new(Code::InvalidRequest, "The body is not UTF-8 text."))
}

async fn finish(response: HttpResponse<Body>) -> Result<Response> {
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.map_err(|error| error.to_string())?;
    let headers = Headers::new();
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            headers.set(name.as_str(), value)?;
        }
    }
    Ok(Response::from_bytes(body.into())?.with_status(parts.status.as_u16()).with_headers(headers))
}

async fn no_such_route() -> Refusal {
    Refusal::new(Code::RouteNotFound, "See docs/api.md for the routes that there are.")
}

async fn no_such_method() -> Refusal {
    Refusal(Problem::new(Code::MethodNotAllowed, "See docs/api.md for the methods of this route."))
}

/// A JSON answer.
fn json(status: StatusCode, body: String) -> HttpResponse<Body> {
    let mut response = HttpResponse::new(Body::from(body));
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}
