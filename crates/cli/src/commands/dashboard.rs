//! `stepwell dashboard`: the dashboard on this machine, for the deployment of any profile.
//!
//! It opens a session with the key, as somebody does who signs in, and holds it while it runs.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    },
    thread,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::de::IgnoredAny;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepwell_protocol::access::{OpenedSession, SessionView};

use super::keys::scopes;
use crate::{
    Global, browser,
    client::{Answer, Ask, Client},
    config::{Key, Target},
    dashboard::{self, End, Server},
    failure::{Exit, Failure, Result},
    words,
};

/// How often it looks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);

/// How long the page has to hear that it is over.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How long a deployment has to hear that its session is over.
const SIGN_OUT: Duration = Duration::from_secs(2);

/// What it takes.
#[derive(Debug, Args)]
pub struct Dashboard {
    /// The port on 127.0.0.1; the default is a free one.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Open the page in a browser.
    #[arg(long)]
    open: bool,
    /// The folder with the dashboard's files; the default is the project's, or the npm package `@stepwell/dashboard`.
    #[arg(long, value_name = "FOLDER")]
    assets: Option<PathBuf>,
}

impl Dashboard {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let folder = dashboard::find(self.assets.as_deref())?;
        let target = global.target()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())
                .map_err(|error| Failure::local(format!("signals cannot be taken: {error}")))?;
        }
        // What is in there acts with the key.
        anstream::eprintln!("the page is {}", words::plain(&folder.display().to_string()));
        let opened = Opened::new(self.port, folder, &target)?;
        opened.session.tell(global, &target, &opened.link);
        if self.open {
            browser::open_secret(&opened.link, browser::folder());
        }
        let end = loop {
            match opened.ended.recv_timeout(TICK) {
                Ok(end) => break Some(end),
                Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break None,
            }
        };
        match end {
            None => opened.end(),
            Some(End::SignedOut) => {
                thread::sleep(LAST_ANSWERS);
                say(global, "signed out in the page");
            }
            Some(End::Refused) => {
                thread::sleep(LAST_ANSWERS);
                return Err(Failure::new(Exit::Refused, "the session has ended, or its key was revoked")
                    .next(
                        "Run `stepwell dashboard` again. Sessions end after twelve hours without a request, and after seven days.",
                    ));
            }
        }
        Ok(())
    }
}

/// The dashboard of a deployment, served on this machine for whoever has its link.
pub struct Opened {
    session: Arc<Session>,
    /// Signs a browser in, once.
    pub link: String,
    ended: Receiver<End>,
    is_paused: Arc<AtomicBool>,
}

impl Opened {
    /// Opens a session with the target's key, and serves the page in this folder.
    pub fn new(port: u16, folder: PathBuf, target: &Target) -> Result<Self> {
        let session = Session::open(target)?;
        let page = Client::new(session.target.clone());
        let server = Server::new(port, folder, page).map_err(|error| {
            session.end();
            Failure::local(format!("127.0.0.1:{port} cannot be listened on: {error}"))
                .next("Another program may use this port. Take another one, or none for a free one.")
        })?;
        let link = server.link().to_owned();
        let is_paused = server.pause();
        Ok(Self { session: Arc::new(session), link, is_paused, ended: server.serve() })
    }

    /// Passes nothing on while the deployment's address is not its own; or goes on.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Whether somebody has signed out, or the session is over.
    pub fn is_over(&self) -> bool {
        self.ended.try_recv() != Err(TryRecvError::Empty)
    }

    /// Signs out. Where nobody answers soon, the session ends by itself later.
    pub fn end(self) {
        let (tell, told) = sync_channel(1);
        let session = self.session.clone();
        thread::spawn(move || {
            session.end();
            // Nobody may wait any more.
            let _ = tell.send(());
        });
        let _ = told.recv_timeout(SIGN_OUT);
    }
}

/// Whoever listens at the deployment's address from here on is asked nothing by a page that is still open.
impl Drop for Opened {
    fn drop(&mut self) {
        self.pause(true);
    }
}

/// What the page's requests are sent with.
struct Session {
    /// The deployment, with the session's token as the key.
    target: Target,
    /// Who it is.
    view: SessionView,
    /// Whether it was opened here, and so ends here.
    is_own: bool,
}

impl Session {
    fn open(target: &Target) -> Result<Self> {
        let client = Client::new(target.clone());
        let doubt = Some("A session may be open. Nobody has its token, and it ends by itself: try again.");
        let opened: Result<Answer<OpenedSession>> =
            client.post(&["session"], &Ask { doubt, ..Ask::default() });
        match opened {
            Ok(Answer { value: OpenedSession { token, view }, .. }) => {
                let target = Target { key: Some(Key::from(token)), ..target.clone() };
                Ok(Self { target, view, is_own: true })
            }
            // The token of a session was named as the key.
            Err(failure) if failure.code.as_deref() == Some("wrong_status") => {
                let view: Answer<SessionView> = client.get(&["session"], &Ask::default())?;
                Ok(Self { target: target.clone(), view: view.value, is_own: false })
            }
            Err(failure) => Err(failure),
        }
    }

    /// Signs out, if it was signed in here. A deployment that does not answer ends the session by itself later.
    fn end(&self) {
        if self.is_own {
            let _ = Client::new(self.target.clone()).delete::<IgnoredAny>(&["session"], &Ask::default());
        }
    }

    fn tell(&self, global: &Global, target: &Target, link: &str) {
        if global.json {
            let ready = json!({ "event": "ready", "link": link, "address": target.address });
            anstream::println!("{ready}");
            return;
        }
        let (green, bold) = (AnsiColor::Green.on_default().bold(), Style::new().bold());
        anstream::println!("{green}ready:{green:#} {bold}{link}{bold:#}");
        anstream::println!("       The link works once. It shows {}, as {}.", target.address, self.who());
        anstream::println!("       Ctrl-C ends it and signs out.");
    }

    /// Who looks, and what that allows.
    fn who(&self) -> String {
        let SessionView { subject, namespace, scopes: allowed, .. } = &self.view;
        let (subject, namespace) = (words::plain(subject), words::plain(namespace));
        format!("{subject} in the namespace {namespace} ({})", scopes(allowed))
    }
}

fn say(global: &Global, text: &str) {
    if global.json {
        anstream::println!("{}", json!({ "event": "note", "text": text }));
    } else {
        anstream::eprintln!("{text}");
    }
}
