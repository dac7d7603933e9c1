//! Streams on their way out: sockets that the runtime holds while the cell sleeps. Beside each one lies its reader,
//! which says how far it has come; what to send is read from the rows.
//!
//! Nothing is sent from within a turn: readers are marked, and served a moment later, so that a commit is not slower
//! because somebody follows.

use std::{cell::RefCell, rc::Rc, time::Duration};

use js_sys::{Array, Promise};
use serde::{Deserialize, Serialize};
use stepwell_core::{
    access::Bucket,
    ordered::OrdSet,
    stream::{Batch, CellCursor, CellReader, EVENT_BYTES_MAX, Reader},
    token::STREAM_MS_MAX,
};
use stepwell_protocol::{
    Code, Payload, Problem, RunId, Timestamp, json,
    stream::{Kind, StreamEvent},
};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Delay, worker_sys::web_sys::Request};

use super::Host;
use crate::{
    calls::cell::{Call, Follow, Operation},
    guard, log,
    object::{Fault, StoreError},
    runtime,
    sockets::{self, Socket, Sockets},
};

/// How long changes are gathered before readers are served.
const GATHER_MS: u64 = 20;

/// The tag of sockets whose readers follow all runs.
const CELL_TAG: &str = "cell";

/// The tag of sockets that somebody has opened with a key that the catalog has confirmed.
const KEYED_TAG: &str = "keyed";

/// The code by which a socket is closed whose stream is over.
const OVER: u16 = 1000;

/// The code by which a socket is closed that could not be served.
const BROKEN: u16 = 1011;

/// The code by which a socket is closed whose reader may have to be refused from now on.
const UNCONFIRMED: u16 = 1008;

/// How many messages a second all readers together may send that nobody has asked for. Twice as many may come at once.
const UNASKED_PER_SECOND: u64 = 20;

/// After which time a reader that does not say that it follows is one that does not keep up.
const BEHIND_MS: u64 = 30_000;

/// How many streams one key or session may have open at a cell.
const STREAMS_MAX: u32 = 1_000;

/// What lies beside a socket.
#[derive(Debug, Serialize, Deserialize)]
struct Beside {
    follows: Follows,
    /// When the key's time is over with which it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_at: Option<Timestamp>,
    /// Since when the reader has been asked whether it follows, and has not said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked_at: Option<Timestamp>,
}

/// Whom a socket is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Follows {
    Run(Reader),
    Cell(CellReader),
}

impl Beside {
    /// After something was sent to a reader.
    fn new(follows: Follows, ends_at: Option<Timestamp>) -> Self {
        let asked_at = follows.is_asked().then(runtime::clock);
        Self { follows, ends_at, asked_at }
    }
}

impl Follows {
    /// Whether nothing more is sent until the reader says that it follows.
    fn is_asked(&self) -> bool {
        match self {
            Self::Run(reader) => reader.flow.is_closed(),
            Self::Cell(reader) => reader.flow.is_closed(),
        }
    }
}

/// Who is to be served.
#[derive(Default)]
pub struct Readers {
    marked: RefCell<Marked>,
    unasked: RefCell<Bucket>,
}

#[derive(Default)]
struct Marked {
    runs: OrdSet<u64>,
    cell: bool,
    /// Whether somebody serves them.
    is_served: bool,
}

impl Host {
    /// Opens a stream: one of the Workers in front asks for a socket.
    pub(super) fn open_stream(self: &Rc<Self>, request: &JsValue) -> Promise {
        let host = self.clone();
        let url = request.unchecked_ref::<Request>().url();
        guard::response(async move {
            match host.follow(&url).await {
                Ok(response) => Ok(response),
                Err(fault) => problem(&fault.into_problem()),
            }
        })
    }

    async fn follow(self: &Rc<Self>, url: &str) -> Result<JsValue, Fault> {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "follow");
        let call: Option<Call> = asked.and_then(|(_, text)| json::from_str(&text).ok());
        let unknown = || Problem::new(Code::Internal, "Worker and cell do not speak the same protocol.");
        let call = call.ok_or_else(unknown)?;
        let place = call.place();
        let grant = self.enter(&call, &place).await?;
        let credential = call.access.as_ref().map(|access| key_tag(&access.credential.id));
        let by_token = call.access.as_ref().is_some_and(|access| access.vouched.is_some());
        // No await from here on: a key that is revoked meanwhile would leave a socket that nobody closes.
        let Operation::Follow { follow } = call.operation else { return Err(unknown().into()) };
        let (follows, tag) = match follow {
            Follow::Run { number, suffix, cursor, kinds, leaves } => {
                let id = RunId { place, number, suffix };
                let number = self.find(&id)?.id.number;
                self.machine.borrow_mut().watch(number);
                (Follows::Run(Reader::new(id, cursor, kinds).leaving(leaves)), run_tag(number))
            }
            Follow::Cell { from, only } => {
                let next = self.machine.borrow_mut().watch_all(runtime::clock());
                let cursor = match from {
                    Some(text) => text.parse().map_err(|_| unknown())?,
                    None => CellCursor { from: next, walk: None },
                };
                (Follows::Cell(CellReader::new(cursor, only)), CELL_TAG.to_owned())
            }
        };
        let state = self.sockets();
        if let Some(tag) = &credential
            && state.tagged(tag)?.length() >= STREAMS_MAX
        {
            let detail = format!("The key has {STREAMS_MAX} streams open here, which is the maximum.");
            return Err(Problem::new(Code::LimitReached, detail).after(1).into());
        }
        let tags = Array::of1(&tag.as_str().into());
        if grant.is_some() {
            tags.push(&KEYED_TAG.into());
            tags.push(&credential.unwrap_or_default().into());
        }
        let pair = sockets::new_pair()?;
        let (client, socket) = (pair.get(0), pair.get(1).unchecked_into::<Socket>());
        sockets::answer_pings(&state)?;
        state.accept(&socket, &tags)?;
        let granted = grant.and_then(|grant| grant.expires_at);
        let longest = by_token.then(|| runtime::clock().plus_millis(STREAM_MS_MAX));
        let beside = Beside::new(follows, granted.into_iter().chain(longest).min());
        attach(&socket, &beside)?;
        match &beside.follows {
            Follows::Run(reader) => self.mark_run(reader.run.number),
            Follows::Cell(reader) => {
                let (id, at) = (reader.cursor().to_string(), runtime::clock());
                send(&socket, &StreamEvent { id, kind: Kind::Ready, at, data: Payload::null() })?;
                self.mark_cell();
            }
        }
        Ok(sockets::upgraded(&client)?)
    }

    /// A reader says that it follows.
    pub(super) fn hear_reader(self: &Rc<Self>, socket: &JsValue) -> Result<(), Fault> {
        let socket: &Socket = socket.unchecked_ref();
        let mut beside = beside(socket)?;
        if !beside.follows.is_asked() {
            // Some of it is harmless; whoever goes on with it keeps the cell from everybody else.
            let taken = self.readers.unasked.borrow_mut().take(runtime::clock(), UNASKED_PER_SECOND, 1);
            if taken.is_err() {
                close(socket, UNCONFIRMED, "too many messages: only the answers to `ack` are read");
            }
            return Ok(());
        }
        beside.asked_at = None;
        match &mut beside.follows {
            Follows::Run(reader) => {
                reader.flow.heard();
                let number = reader.run.number;
                attach(socket, &beside)?;
                self.mark_run(number);
            }
            Follows::Cell(reader) => {
                reader.flow.heard();
                attach(socket, &beside)?;
                self.mark_cell();
            }
        }
        Ok(())
    }

    /// How many streams are open, and how many of their readers have been behind for a while.
    pub(super) fn count_streams(&self) -> Result<(u64, u64), Fault> {
        let (mut open, mut behind, now) = (0, 0, runtime::clock());
        for socket in self.sockets().all()?.iter() {
            let Ok(Beside { asked_at, .. }) = beside(socket.unchecked_ref()) else { continue };
            open += 1;
            behind += u64::from(asked_at.is_some_and(|at| at.plus_millis(BEHIND_MS) <= now));
        }
        Ok((open, behind))
    }

    /// Something about these keys and sessions has changed, or about all of them: whoever follows with one that is
    /// still good can come back.
    pub(super) fn close_keyed_streams(&self, ids: Option<&[String]>) {
        let tags = match ids {
            Some(ids) => ids.iter().map(|id| key_tag(id)).collect(),
            None => vec![KEYED_TAG.to_owned()],
        };
        for tag in tags {
            for socket in self.sockets().tagged(&tag).unwrap_or_default().iter() {
                close(socket.unchecked_ref(), UNCONFIRMED, "reconnect with your key and your cursor");
            }
        }
    }

    /// A fresh instance: says to the machine who follows what.
    pub(super) fn remember_readers(self: &Rc<Self>) {
        let Ok(all) = self.sockets().all() else { return };
        for socket in all.iter() {
            match beside(socket.unchecked_ref()).map(|beside| beside.follows) {
                Ok(Follows::Run(reader)) => self.machine.borrow_mut().watch(reader.run.number),
                Ok(Follows::Cell(_)) => {
                    self.machine.borrow_mut().watch_all(runtime::clock());
                }
                // Whoever it was can come back with its cursor.
                Err(_) => close(socket.unchecked_ref(), BROKEN, "reconnect with your cursor"),
            }
        }
    }

    /// Somebody who follows a run has something to read.
    pub(super) fn mark_run(self: &Rc<Self>, number: u64) {
        self.readers.marked.borrow_mut().runs.insert(number);
        self.serve_soon();
    }

    /// Somebody who follows all runs has something to read.
    pub(super) fn mark_cell(self: &Rc<Self>) {
        self.readers.marked.borrow_mut().cell = true;
        self.serve_soon();
    }

    /// Stores what programs have published, when it is due.
    pub(super) fn tell_at(self: &Rc<Self>, at: Timestamp) {
        let host = self.clone();
        let ms = at.as_millis().saturating_sub(runtime::clock().as_millis());
        self.state.wait_until(async move {
            Delay::from(Duration::from_millis(ms)).await;
            if let Err(fault) = host.turn(|machine, store, now| Ok(machine.tell(store, now)?)) {
                log::error!("what runs have published was not stored: {fault}");
            }
        });
    }

    fn serve_soon(self: &Rc<Self>) {
        if std::mem::replace(&mut self.readers.marked.borrow_mut().is_served, true) {
            return;
        }
        let host = self.clone();
        self.state.wait_until(async move {
            loop {
                Delay::from(Duration::from_millis(GATHER_MS)).await;
                let (runs, cell) = {
                    let mut marked = host.readers.marked.borrow_mut();
                    (std::mem::take(&mut marked.runs), std::mem::take(&mut marked.cell))
                };
                if runs.is_empty() && !cell {
                    host.readers.marked.borrow_mut().is_served = false;
                    return;
                }
                for number in runs {
                    host.serve_run(number);
                }
                if cell {
                    host.serve_cell();
                }
            }
        });
    }

    fn serve_run(self: &Rc<Self>, number: u64) {
        let found = self.sockets().tagged(&run_tag(number)).unwrap_or_default();
        if found.length() == 0 {
            self.machine.borrow_mut().unwatch(number);
        }
        for socket in found.iter() {
            let socket: Socket = socket.unchecked_into();
            match self.serve_run_reader(&socket) {
                Ok(false) => {}
                Ok(true) => self.mark_run(number),
                Err(Fault::Rejected(_)) => close(&socket, OVER, "the run is gone"),
                Err(Fault::Store(_) | Fault::Moved(_)) => {
                    close(&socket, BROKEN, "reconnect with your cursor");
                }
            }
        }
    }

    /// Sends a reader what comes next. Says whether there is more.
    fn serve_run_reader(&self, socket: &Socket) -> Result<bool, Fault> {
        let Some(Beside { follows: Follows::Run(mut reader), ends_at, .. }) = good(socket)? else {
            return Ok(false);
        };
        let before = reader.clone();
        let Batch { events, more, ends } = self.machine.borrow().read(&self.store, &mut reader)?;
        for event in &events {
            send(socket, event)?;
        }
        if ends {
            let (event, status) = self.end_event(&reader)?;
            send(socket, &event)?;
            close(socket, OVER, status);
            return Ok(false);
        }
        if reader != before {
            attach(socket, &Beside::new(Follows::Run(reader), ends_at))?;
        }
        Ok(more)
    }

    /// The last event of a stream: the run as it stands.
    fn end_event(&self, reader: &Reader) -> Result<(StreamEvent, &'static str), Fault> {
        let mut view = self.view(&reader.run)?;
        if view.output.as_ref().is_some_and(|output| output.size() > EVENT_BYTES_MAX) {
            view.output = None;
        }
        let at = view.ended_at.unwrap_or_else(runtime::clock);
        let data = Payload::encode(&view).expect("a run holds only what JSON can say");
        Ok((StreamEvent { id: reader.cursor.to_string(), kind: Kind::End, at, data }, view.status.as_str()))
    }

    fn serve_cell(self: &Rc<Self>) {
        let found = self.sockets().tagged(CELL_TAG).unwrap_or_default();
        if found.length() == 0 {
            self.machine.borrow_mut().unwatch_all();
        }
        for socket in found.iter() {
            let socket: Socket = socket.unchecked_into();
            match self.serve_cell_reader(&socket) {
                Ok(false) => {}
                Ok(true) => self.mark_cell(),
                Err(_) => close(&socket, BROKEN, "reconnect with your cursor"),
            }
        }
    }

    fn serve_cell_reader(&self, socket: &Socket) -> Result<bool, Fault> {
        let Some(Beside { follows: Follows::Cell(mut reader), ends_at, .. }) = good(socket)? else {
            return Ok(false);
        };
        let before = reader.clone();
        let Batch { events, more, .. } = self.machine.borrow().read_all(&self.store, &mut reader)?;
        for event in &events {
            send(socket, event)?;
        }
        if reader != before {
            attach(socket, &Beside::new(Follows::Cell(reader), ends_at))?;
        }
        Ok(more)
    }

    fn sockets(&self) -> Sockets {
        JsValue::from(self.state.as_raw()).unchecked_into()
    }
}

fn run_tag(number: u64) -> String {
    format!("run-{number}")
}

/// The tag of sockets that somebody has opened with this key or session.
fn key_tag(id: &str) -> String {
    format!("by-{id}")
}

fn beside(socket: &Socket) -> Result<Beside, Fault> {
    let unreadable = || Fault::Store(StoreError::Unreadable("reader"));
    let text = socket.attachment()?.as_string().ok_or_else(unreadable)?;
    json::from_str(&text).map_err(|_| unreadable())
}

/// The same, unless the key's time is over: then the socket is closed.
fn good(socket: &Socket) -> Result<Option<Beside>, Fault> {
    let beside = beside(socket)?;
    if beside.ends_at.is_some_and(|end| end <= runtime::clock()) {
        close(socket, UNCONFIRMED, "the key's time is over");
        return Ok(None);
    }
    Ok(Some(beside))
}

fn attach(socket: &Socket, beside: &Beside) -> Result<(), Fault> {
    let text = serde_json::to_string(beside).expect("a reader holds only what JSON can say");
    Ok(socket.attach(&text.into())?)
}

fn send(socket: &Socket, event: &StreamEvent) -> Result<(), Fault> {
    Ok(socket.send(&serde_json::to_string(event).expect("an event holds only what JSON can say"))?)
}

pub(super) fn close(socket: &Socket, code: u16, reason: &str) {
    // One that is closed already stays so.
    let _ = socket.close(code, reason);
}

fn problem(problem: &Problem) -> Result<JsValue, JsValue> {
    let body = serde_json::to_string(problem).expect("a problem holds only what JSON can say");
    let response = worker::Response::ok(body)?.with_status(problem.status);
    response.headers().set("content-type", "application/problem+json")?;
    Ok(worker::worker_sys::web_sys::Response::from(response).into())
}
