//! The routes of streams: server-sent events, or a WebSocket if the request asks for one.
//!
//! A run's WebSocket is its cell's own: the Worker hands it over and is done. For server-sent events the Worker holds
//! the response and follows the cell by such a socket itself, and for a whole pool it follows all its cells: so a cell
//! whose streams are quiet may sleep, however long a response is held.

use std::fmt::Write as _;

use futures::future::join_all;
use js_sys::{Array, Object, Reflect};
use stepwell_core::stream::{Cursor, Kinds, Only, PoolCursor};
use stepwell_protocol::{Code, Place, json, rest::Status};
use wasm_bindgen::{JsCast, JsValue};
use worker::worker_sys::web_sys;

use super::{
    body::shown,
    error::Refusal,
    front::Front,
    generations::locate,
    request::{Headers, pairs},
    response::Response,
};
use crate::{
    calls::cell::{Follow, Operation},
    log, runtime, sockets,
};

/// The headers that these routes look at, and no others do.
pub const HEADERS: [&str; 2] = ["upgrade", "last-event-id"];

/// The cursor of a pool's reader that wants to see all runs that there are first.
const START: &str = "start";

/// The longest name of a workflow to be asked for: it lies beside sockets, where there is little room.
const WORKFLOW_LENGTH_MAX: usize = 256;

/// `GET /api/executions/{id}/stream`
pub async fn run(front: &Front, id: &str, query: &str, headers: &Headers) -> Result<Response, Refusal> {
    let id = locate(front, id).await?;
    let Asked { cursor, kinds, leaves, .. } = asked(query, headers, true)?;
    let cursor = match cursor {
        Some(text) => text.parse().map_err(|error| invalid(&error))?,
        None => Cursor::default(),
    };
    let kinds: Kinds = kinds.unwrap_or_default().parse().map_err(|error| invalid(&error))?;
    let place = id.place;
    let follow = Follow::Run { number: id.number, suffix: id.suffix, cursor, kinds, leaves };
    let opened = open(front, &place, follow).await?;
    if wants_socket(headers) {
        return Ok(Response::raw(opened));
    }
    let socket = Array::of1(&runtime::property(&opened.into(), "webSocket"));
    sockets::event_stream(&socket, &Array::new())
        .map(|response| Response::raw(response.unchecked_into()))
        .map_err(broken)
}

/// `GET /api/stream`
pub async fn pool(front: &Front, query: &str, headers: &Headers) -> Result<Response, Refusal> {
    let Asked { cursor, only, .. } = asked(query, headers, false)?;
    let cursor = match cursor.as_deref() {
        Some(START) => Some(PoolCursor::default()),
        Some(text) => Some(text.parse::<PoolCursor>().map_err(|error| invalid(&error))?),
        None => None,
    };
    let places: Vec<_> = front.cells().collect();
    let opened = join_all(places.iter().map(|place| {
        // A cell that the cursor does not know is newer than it.
        let from = cursor.as_ref().map(|cursor| cursor.get(place).unwrap_or_default().to_string());
        let only = only.clone();
        async move { open(front, place, Follow::Cell { from, only }).await }
    }))
    .await;
    let (to_cells, names) = (Array::new(), Array::new());
    for (place, opened) in places.iter().zip(opened) {
        to_cells.push(&runtime::property(&opened?.into(), "webSocket"));
        names.push(&name(place).into());
    }
    let response = if wants_socket(headers) {
        sockets::socket_stream(&to_cells, &names)
    } else {
        sockets::event_stream(&to_cells, &names)
    };
    response.map(|response| Response::raw(response.unchecked_into())).map_err(broken)
}

/// What a request asks for.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) cursor: Option<String>,
    pub(super) kinds: Option<String>,
    /// Whether it wants only what is there already.
    pub(super) leaves: bool,
    /// Which runs it wants to hear of.
    pub(super) only: Only,
}

/// `?cursor=` counts more than `Last-Event-ID`: whoever names one means it.
pub(super) fn asked(query: &str, headers: &Headers, is_of_run: bool) -> Result<Asked, Refusal> {
    let last = headers.plain("last-event-id");
    let mut asked = Asked { cursor: last.filter(|id| !id.is_empty()).map(str::to_owned), ..Asked::default() };
    for (name, value) in pairs(query) {
        match name.as_str() {
            "cursor" => asked.cursor = Some(value),
            "types" if is_of_run => asked.kinds = Some(value),
            "follow" if is_of_run => {
                let follows: bool = value.parse().map_err(|_| {
                    let detail = "`follow` is true or false: false ends the stream after what is there.";
                    Refusal::new(Code::InvalidRequest, detail)
                })?;
                asked.leaves = !follows;
            }
            "workflow" if !is_of_run => {
                if value.len() > WORKFLOW_LENGTH_MAX {
                    let detail = format!("`workflow` takes a name of up to {WORKFLOW_LENGTH_MAX} bytes.");
                    return Err(Refusal::new(Code::InvalidRequest, detail));
                }
                asked.only.workflow = Some(value);
            }
            "status" if !is_of_run => {
                let status = Status::of(&value).ok_or_else(|| {
                    let detail =
                        format!("`status` takes a status such as 'failed', not '{}'.", shown(&value));
                    Refusal::new(Code::InvalidRequest, detail)
                })?;
                asked.only.status = Some(status);
            }
            _ => {
                let detail = format!("There is no parameter '{}' of this stream.", shown(&name));
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    Ok(asked)
}

fn wants_socket(headers: &Headers) -> bool {
    headers.get("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// A cell's name in a cursor: see [`PoolCursor`].
fn name(place: &Place) -> String {
    format!("{}-{}", place.generation, place.cell)
}

/// Asks a cell for a socket, on the caller's behalf.
async fn open(front: &Front, place: &Place, follow: Follow) -> Result<web_sys::Response, Refusal> {
    let text = front.call(place, Operation::Follow { follow })?;
    let mut url = String::from("https://cell/?follow=");
    let _ = write!(url, "{}", form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>());
    let (init, headers) = (Object::new(), Object::new());
    // Fresh objects take any property.
    let _ = Reflect::set(&headers, &"upgrade".into(), &"websocket".into());
    let _ = Reflect::set(&init, &"headers".into(), &headers);
    let response = front.cell(place).and_then(|cell| cell.fetch(&url, &init)).map_err(broken)?;
    let response: web_sys::Response =
        runtime::settle(response.into()).await.map_err(broken)?.unchecked_into();
    front.hear(response.status());
    if response.status() == 101 {
        return Ok(response);
    }
    let text = response.text().map_err(broken)?;
    let text = runtime::settle(text.into()).await.map_err(broken)?.as_string().unwrap_or_default();
    Err(json::from_str(&text).map_or_else(|_| broken(JsValue::UNDEFINED), Refusal))
}

fn invalid(error: &dyn std::error::Error) -> Refusal {
    let mut detail = error.to_string();
    if let Some(first) = detail.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Refusal::new(Code::InvalidRequest, format!("{detail}."))
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn broken(thrown: JsValue) -> Refusal {
    log::error!("a stream could not be opened: {}", runtime::message(&thrown));
    Refusal::new(Code::Internal, "The stream could not be opened. Try again, with the same cursor.")
}
