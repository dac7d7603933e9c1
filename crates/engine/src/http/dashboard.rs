//! The dashboard under `/dash/`: a page and its files, from the binding `ASSETS`. Nothing of it is in the engine.
//!
//! Which names lead to which file, and under which policy, is in `stepwell_protocol::dashboard`. Needs no key: the page
//! has no data, and asks the API for them like any other client.

use stepwell_promises::settled;
use stepwell_protocol::dashboard::{PAGE, POLICY, ROOT, Target, content_type};
use wasm_bindgen::{JsCast as _, JsValue};
use worker::{Env, Fetcher, worker_sys::web_sys};

use super::response::Response;
use crate::runtime::ObjectStub;

/// The binding that has its files.
const BINDING: &str = "ASSETS";

/// What to do where the files are missing.
const MISSING: &str = "The dashboard is not part of this deployment.\n\n\
    Install it beside the engine and deploy again:\n\n  npm install @stepwell/dashboard\n\n\
    and in the engine's wrangler.toml:\n\n  [assets]\n  \
    directory = \"node_modules/@stepwell/dashboard/dist\"\n  binding = \"ASSETS\"\n";

/// What to do where the page is of another deployment than its files.
const OUTDATED: &str = "There is no such file. The dashboard may have been updated: reload the page.\n";

/// The answer, if this is the dashboard's.
pub async fn answer(method: &str, path: &str, env: &Env) -> Option<Response> {
    let is_asked = ["GET", "HEAD"].contains(&method);
    let target = Target::of(path).filter(|_| is_asked)?;
    let file = match target {
        Target::Elsewhere => {
            return Some(Response::new(308, "text/plain; charset=utf-8", "").with("location", ROOT));
        }
        Target::Nothing => return Some(not_found("There is no such file.\n")),
        Target::Page => PAGE,
        Target::File(file) => file,
    };
    let Ok(assets) = env.assets(BINDING) else { return Some(not_found(MISSING)) };
    let Some(stored) = fetch(assets, file).await else {
        return Some(not_found(if target == Target::Page { MISSING } else { OUTDATED }));
    };
    let response = Response::raw(stored).with("content-type", content_type(file));
    Some(match target {
        Target::File(_) => response.with("cache-control", "public, max-age=31536000, immutable"),
        Target::Page | Target::Elsewhere | Target::Nothing => {
            response.with("content-security-policy", POLICY).with("referrer-policy", "no-referrer")
        }
    })
}

/// A file, with headers that can be set.
async fn fetch(assets: Fetcher, file: &str) -> Option<web_sys::Response> {
    // Only the path counts: no request leaves the Worker.
    let address = ["https://assets.local", ROOT, file].concat();
    let asked = assets.into_rpc::<ObjectStub>().fetch(&address, &JsValue::UNDEFINED).ok()?;
    let stored: web_sys::Response = settled(&asked).await.ok()?.dyn_into().ok()?;
    if stored.status() != 200 {
        return None;
    }
    web_sys::Response::new_with_opt_readable_stream(stored.body().as_ref()).ok()
}

fn not_found(text: &'static str) -> Response {
    Response::new(404, "text/plain; charset=utf-8", text)
}
