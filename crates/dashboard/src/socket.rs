//! A stream over a WebSocket, for as long as somebody looks: comes back after a loss, and rests while the tab is hidden.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use leptos::{
    leptos_dom::helpers::{WindowListenerHandle, set_timeout},
    prelude::*,
};
use stepwell_dashboard_model::following::{Following, Link};
use stepwell_protocol::{
    access::SessionView,
    json,
    stream::{Kind, StreamEvent},
};
use wasm_bindgen::{JsCast as _, prelude::Closure};
use web_sys::{CloseEvent, MessageEvent, VisibilityState, WebSocket};

use crate::{
    api::{self, Trouble},
    app::{App, now},
};

/// The code of a socket that was closed because keys or settings have changed: perhaps ours.
const KEYS_CHANGED: u16 = 1008;

/// When it is looked whether they were, after that.
const CHECKS_MS: [u64; 4] = [0, 400, 800, 1_200];

type Handler = Box<dyn FnMut(StreamEvent)>;

/// A stream that is followed. Ends when it is closed.
#[derive(Clone)]
pub struct Stream(Rc<Inner>);

struct Inner {
    app: App,
    link: RwSignal<Link>,
    /// The path and query, without a cursor.
    address: String,
    handler: RefCell<Handler>,
    following: RefCell<Following>,
    socket: RefCell<Option<Connection>>,
    is_over: Cell<bool>,
    visibility: RefCell<Option<WindowListenerHandle>>,
}

/// A socket with its handlers: they live as long as it does.
struct Connection {
    socket: WebSocket,
    _message: Closure<dyn FnMut(MessageEvent)>,
    _close: Closure<dyn FnMut(CloseEvent)>,
    _open: Closure<dyn FnMut()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.set_onmessage(None);
        self.socket.set_onclose(None);
        self.socket.set_onopen(None);
        // It may be closed already.
        let _ = self.socket.close();
    }
}

impl Stream {
    /// Follows a stream, such as `/api/stream?workflow=greet`, after the event that has this cursor.
    pub fn follow(
        app: App,
        address: String,
        cursor: Option<&str>,
        handler: impl FnMut(StreamEvent) + 'static,
    ) -> Self {
        let link = app.link;
        let mut following = Following::default();
        following.took(cursor.unwrap_or_default());
        let stream = Self(Rc::new(Inner {
            app,
            link,
            address,
            handler: RefCell::new(Box::new(handler)),
            following: RefCell::new(following),
            socket: RefCell::default(),
            is_over: Cell::new(false),
            visibility: RefCell::default(),
        }));
        let looked_at = stream.clone();
        let handle = window_event_listener_untyped("visibilitychange", move |_| looked_at.look());
        *stream.0.visibility.borrow_mut() = Some(handle);
        link.set(Link::Connecting);
        stream.look();
        stream
    }

    /// Ends it.
    pub fn close(&self) {
        self.0.is_over.set(true);
        self.0.socket.borrow_mut().take();
        if let Some(handle) = self.0.visibility.borrow_mut().take() {
            handle.remove();
        }
    }

    /// Connects if somebody looks, and rests otherwise.
    fn look(&self) {
        if self.0.is_over.get() {
            return;
        }
        if document().visibility_state() == VisibilityState::Hidden {
            self.0.socket.borrow_mut().take();
            self.0.link.try_set(Link::Resting);
        } else if self.0.socket.borrow().is_none() {
            self.connect();
        }
    }

    fn connect(&self) {
        let location = window().location();
        let host = location.host().unwrap_or_default();
        let scheme =
            if location.protocol().is_ok_and(|protocol| protocol == "https:") { "wss" } else { "ws" };
        let mut address = format!("{scheme}://{host}{}", self.0.address);
        if let Some(cursor) = self.0.following.borrow().cursor() {
            address.push(if address.contains('?') { '&' } else { '?' });
            address.push_str("cursor=");
            address.push_str(&stepwell_dashboard_model::place::encoded(cursor));
        }
        let Ok(socket) = WebSocket::new(&address) else { return self.lost() };
        let (on_message, on_close, on_open) = (self.clone(), self.clone(), self.clone());
        let message = Closure::<dyn FnMut(MessageEvent)>::new(move |message: MessageEvent| {
            if let Some(text) = message.data().as_string() {
                on_message.take(&text);
            }
        });
        let close = Closure::<dyn FnMut(CloseEvent)>::new(move |event: CloseEvent| {
            if event.code() == KEYS_CHANGED {
                on_close.check_session();
            }
            // Not within the handler of the socket that is dropped.
            let on_close = on_close.clone();
            set_timeout(move || on_close.lost(), Duration::ZERO);
        });
        let open = Closure::<dyn FnMut()>::new(move || {
            on_open.0.following.borrow_mut().opened(now().as_millis());
            on_open.0.link.try_set(Link::Live);
        });
        socket.set_onmessage(Some(message.as_ref().unchecked_ref()));
        socket.set_onclose(Some(close.as_ref().unchecked_ref()));
        socket.set_onopen(Some(open.as_ref().unchecked_ref()));
        let connection = Connection { socket, _message: message, _close: close, _open: open };
        *self.0.socket.borrow_mut() = Some(connection);
    }

    fn take(&self, text: &str) {
        let Ok(event) = json::from_str::<StreamEvent>(text) else { return };
        if self.0.is_over.get() {
            return;
        }
        self.0.following.borrow_mut().took(&event.id);
        match event.kind {
            Kind::Ack => {
                if let Some(connection) = &*self.0.socket.borrow() {
                    // If it fails, the socket closes, and we come back with the cursor.
                    let _ = connection.socket.send_with_str("ack");
                }
            }
            Kind::End => {
                self.close();
                self.0.link.try_set(Link::Over);
                (self.0.handler.borrow_mut())(event);
            }
            Kind::Status
            | Kind::Step
            | Kind::Timer
            | Kind::Signal
            | Kind::Progress
            | Kind::Working
            | Kind::Log
            | Kind::Chunk
            | Kind::Ready => (self.0.handler.borrow_mut())(event),
        }
    }

    /// Looks whether the session has ended, a few times: parts of the engine learn of it within a second.
    fn check_session(&self) {
        for pause in CHECKS_MS {
            let app = self.0.app;
            let check = move || {
                leptos::task::spawn_local(async move {
                    if api::get::<SessionView>("/api/session").await == Err(Trouble::SignedOut) {
                        app.signed_out();
                    }
                });
            };
            set_timeout(check, Duration::from_millis(pause));
        }
    }

    /// Comes back after a pause, if the session is still good.
    fn lost(&self) {
        self.0.socket.borrow_mut().take();
        if self.0.is_over.get() || document().visibility_state() == VisibilityState::Hidden {
            return;
        }
        self.0.link.try_set(Link::Reconnecting);
        let pause = self.0.following.borrow_mut().lost(now().as_millis(), js_sys::Math::random());
        let stream = self.clone();
        let again = move || {
            leptos::task::spawn_local(async move {
                // A browser does not tell why a socket was refused.
                match api::get::<SessionView>("/api/session").await {
                    Err(Trouble::SignedOut) => stream.0.app.signed_out(),
                    Err(Trouble::Unreachable(_)) => stream.lost(),
                    Ok(_) | Err(Trouble::Refused(_)) => stream.look(),
                }
            });
        };
        set_timeout(again, Duration::from_millis(u64::from(pause)));
    }
}
