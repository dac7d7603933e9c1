//! The dashboard on this machine, for any deployment: serves its files, and passes requests to the API on.
//!
//! The page's requests go to the deployment with a session that this process holds; neither the key nor the session
//! ever reaches the browser. [`gate`] says who may ask: only a browser that came by the printed link, only by the name
//! of this machine, and only from the page itself. Everything is bounded: connections, heads, bodies, times.

mod api;
mod files;
mod gate;
mod http;
mod socket;

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use stepwell_protocol::{
    Code,
    dashboard::{ROOT, Target},
};

pub use self::files::find;
use self::{
    gate::{Entrance, Gate},
    http::{Answer, Request},
};
use crate::client::Client;

/// The most connections at once. A tab has up to six and its streams; a stream of a tab that was closed may last for
/// another fifteen seconds.
const CONNECTIONS_MAX: usize = 256;

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody has signed out in the page.
    SignedOut,
    /// The deployment does not accept the session any more.
    Refused,
}

/// What serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    link: String,
    site: Site,
    ended: Receiver<End>,
}

/// What all connections share.
#[derive(Clone, Debug)]
struct Site {
    gate: Arc<Gate>,
    client: Arc<Client>,
    folder: Arc<PathBuf>,
    tell: SyncSender<End>,
    /// Whether nobody is asked: whoever listens at the deployment's address may be somebody else.
    is_paused: Arc<AtomicBool>,
}

impl Server {
    /// Listens on loopback, for the page in this folder. The client has the session.
    pub fn new(port: u16, folder: PathBuf, client: Client) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let (gate, link) = Gate::new(listener.local_addr()?.port())?;
        // One is enough: whoever is told of the first end does not wait for another.
        let (tell, ended) = sync_channel(1);
        let (gate, client, folder) = (Arc::new(gate), Arc::new(client), Arc::new(folder));
        let site = Site { gate, client, folder, tell, is_paused: Arc::default() };
        Ok(Self { listener, link, site, ended })
    }

    /// The link that signs a browser in, once.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// What decides whether the deployment is asked.
    pub fn pause(&self) -> Arc<AtomicBool> {
        self.site.is_paused.clone()
    }

    /// Serves from here on, until this process ends. Gives what tells when that makes no sense any more.
    pub fn serve(self) -> Receiver<End> {
        let Self { listener, site, ended, .. } = self;
        thread::spawn(move || accept(&listener, &site));
        ended
    }
}

fn accept(listener: &TcpListener, site: &Site) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        // A connection that was lost before it was accepted, or too many open files: others may come.
        let Ok(mut stream) = stream else {
            thread::sleep(std::time::Duration::from_millis(10));
            continue;
        };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            let _ = http::bound(&stream);
            let _ =
                Answer::text(503, "Too many connections are open: close some tabs.\n").turn_away(&mut stream);
            continue;
        }
        let (site, counted) = (site.clone(), Counted(open.clone()));
        // Where the machine has no thread to spare, this one is lost, and others may come.
        let _ = thread::Builder::new().spawn(move || {
            let _counted = counted;
            // A browser that has gone needs no answer.
            let _ = converse(stream, &site);
        });
    }
}

/// A connection among those that are open, however it ends.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers one request. Each has a connection of its own: on one machine that costs nothing, and leaves no state.
fn converse(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    http::bound(&stream)?;
    let mut request = match Request::read_head(&mut stream)? {
        Ok(request) => request,
        Err(answer) => return answer.send(&mut stream, false),
    };
    let is_head = request.method == "HEAD";
    let answer = match site.gate.enter(&request) {
        Entrance::Refused(answer) | Entrance::SignedIn(answer) => answer,
        Entrance::Open => match request.read_body(&mut stream)?.or_else(|| site.route(&request)) {
            Some(answer) => answer,
            None if site.is_paused.load(Ordering::Acquire) => api::unreachable("it is not running"),
            None if socket::is_wanted(&request) => return socket::follow(stream, &request, site),
            None => return api::pass_on(stream, &request, site),
        },
    };
    answer.send(&mut stream, is_head)
}

impl Site {
    /// The answer, unless the deployment has to be asked.
    fn route(&self, request: &Request) -> Option<Answer> {
        let path = request.path();
        let is_read = ["GET", "HEAD"].contains(&request.method.as_str());
        match Target::of(path) {
            Some(_) if !is_read => {
                Some(Answer::text(405, "Only GET and HEAD work here.\n").with("allow", "GET, HEAD"))
            }
            Some(target) => Some(files::answer(&self.folder, target)),
            None if path == "/" => Some(Answer::text(303, "").with("location", ROOT)),
            None => api::refuses(request),
        }
    }

    /// Ends the server, because its session is over. Told once: the others are too late.
    fn end(&self, end: End) {
        let _ = self.tell.try_send(end);
    }
}

/// A problem as the engine words it, so that the page can show it.
fn problem(code: Code, detail: &str) -> Answer {
    let problem = stepwell_protocol::Problem::new(code, detail);
    let text = serde_json::to_string(&problem).unwrap_or_default();
    Answer::new(problem.status, "application/problem+json", text.into_bytes())
}
