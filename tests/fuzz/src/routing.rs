//! Which route a request takes: the table, which says who may ask, and the router, which answers, must agree.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::Path,
    routing::{self, MethodFilter},
};
use http::{Request, StatusCode};
use stepwell_engine::reading;
use stepwell_protocol::routes::{Entry, Method, Route, Subject};
use tower_service::Service as _;

use crate::{parted, text};

thread_local! {
    static ROUTER: RefCell<Router> = RefCell::new(router());
}

/// A method and, in the next line, a path.
pub fn route(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (method, path) = parted(text);
    // What the table does not have gets to no handler, whatever the router makes of its path.
    let Some(found) = Route::find(method, path) else { return };
    let Entry { path: pattern, .. } = found.entry();
    assert_eq!(pattern.split('/').count(), path.split('/').count(), "{path} is no {pattern}");
    // What is no request never comes to either of them.
    let Ok(request) = Request::builder().method(method).uri(path).body(Body::empty()) else { return };
    if request.uri().path() != path || request.uri().authority().is_some() {
        return;
    }
    let mut router = ROUTER.with_borrow(Clone::clone);
    let Ok(response) = at_once(router.call(request));
    match response.status() {
        // Its path has bytes that are no text: whoever asks is refused there.
        StatusCode::BAD_REQUEST => {}
        StatusCode::OK => {
            let answered = response.extensions().get::<Answered>().expect("each route says it").clone();
            assert_eq!(found, answered.route, "{method} {path}: let in as one and answered as another");
            let Entry { path: pattern, subject, .. } = answered.route.entry();
            if subject == Subject::Workflow {
                assert_eq!(reading::workflow_of(pattern, path).as_ref(), answered.named.get("workflow"));
            }
            let body = at_once(to_bytes(response.into_body(), usize::MAX)).expect("it is here");
            assert!(body.is_empty());
        }
        other => panic!("{method} {path}: {other}"),
    }
}

/// What a future gives that has nothing to wait for.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..100 {
        if let Poll::Ready(given) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return given;
        }
    }
    panic!("it waits for something");
}

/// The route that was taken, and what its path names.
#[derive(Clone)]
struct Answered {
    route: Route,
    named: BTreeMap<String, String>,
}

/// A router of the same table, made in the same way as the front's.
fn router() -> Router {
    Route::ALL.iter().fold(Router::new(), |router, &route| {
        let Entry { method, path, .. } = route.entry();
        let answer = move |Path(named): Path<BTreeMap<String, String>>| async move {
            Extension(Answered { route, named })
        };
        router.route(path, routing::on(filter(method), answer))
    })
}

fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Delete => MethodFilter::DELETE,
    }
}
