//! `stepwell dashboard`: the real command before a deployment that stands in, asked as browsers and strangers ask.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

const KEY: &str = "sw_live_acme_00jmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12";
const TOKEN: &str = "sw_session_acme_11kmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12";
const LIMIT: Duration = Duration::from_secs(20);

/// A deployment: remembers the heads of all requests.
struct Deployment {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Deployment {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it listens"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                thread::spawn(move || answer(stream, &kept));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no thread has panicked").clone()
    }
}

fn answer(mut stream: TcpStream, kept: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().expect("it is open")).lines().map_while(Result::ok);
    let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let Some(first) = head.first().cloned() else { return };
    kept.lock().expect("no thread has panicked").push(head.join("\n"));
    let view = r#""id":"s1","namespace":"acme","subject":"key:00jmmvwm","scopes":["read"],"created_at":0,"expires_at":9"#;
    let (status, kind, body) = match first.trim_end_matches(" HTTP/1.1") {
        "POST /api/session" => (201, "application/json", format!("{{\"token\":\"{TOKEN}\",{view}}}")),
        "GET /api/session" => (200, "application/json", format!("{{{view}}}")),
        "DELETE /api/session" => (200, "application/json", r#"{"ended":true}"#.into()),
        "GET /api/revoked" => (401, "application/problem+json", r#"{"code":"unauthorized"}"#.into()),
        "GET /api/large" => (200, "application/octet-stream", "x".repeat(3 << 20)),
        "GET /api/elsewhere" => {
            let _ = stream.write_all(
                b"HTTP/1.1 302 Found\r\nlocation: http://evil.example/\r\ncontent-length: 0\r\n\r\n",
            );
            return;
        }
        "GET /api/stream?workflow=greet" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
            let _ = stream.write_all(b": alive\n\ndata: {\"type\":\"ready\",\"id\":\"1\"}\n\n");
            let long = "x".repeat(70_000);
            let _ = stream.write_all(format!("data: {{\"type\":\"end\",\"id\":\"{long}\"}}\n\n").as_bytes());
            return;
        }
        other => (200, "application/json", format!("{{\"asked\":\"{other}\"}}")),
    };
    let _ = write!(
        stream,
        "HTTP/1.1 {status} Answered\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nset-cookie: s={TOKEN}\r\n\
         cache-control: public, max-age=31536000, immutable\r\netag: \"1\"\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
}

/// The command. It ends with the test.
struct Dashboard {
    child: Child,
    lines: Receiver<String>,
    host: String,
    link: String,
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dashboard {
    fn start(deployment: &Deployment, folder: &Path) -> Self {
        fs::create_dir_all(folder.join("dash/assets")).expect("made");
        fs::write(folder.join("dash/page.htm"), "<p>the page").expect("written");
        fs::write(folder.join("dash/assets/app-1.js"), "start()").expect("written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
            .args(["dashboard", "--json", "--assets"])
            .arg(folder)
            .env("STEPWELL_ADDRESS", &deployment.address)
            .env("STEPWELL_KEY", KEY)
            .env("STEPWELL_CONFIG", "/dev/null")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (tell, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
        let ready = lines.recv_timeout(LIMIT).expect("it gets ready");
        assert!(!ready.contains(KEY) && !ready.contains(TOKEN), "{ready}");
        let ready: serde_json::Value = serde_json::from_str(&ready).expect("it is JSON");
        let link = ready["link"].as_str().expect("it has a link").to_owned();
        let host = link.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        Self { child, lines, host, link }
    }

    /// Sends a request; gives the whole answer. `Host` is this server's, unless the headers have another.
    fn ask(&self, line: &str, headers: &str, body: &str) -> String {
        let mut stream = self.connect();
        let host = if headers.contains("host:") { String::new() } else { format!("host: {}\r\n", self.host) };
        write!(stream, "{line} HTTP/1.1\r\n{host}{headers}content-length: {}\r\n\r\n{body}", body.len())
            .expect("it listens");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let answer = String::from_utf8(answer).expect("it is text");
        assert!(!answer.contains(KEY) && !answer.contains(TOKEN), "a secret left in {line}: {answer}");
        answer
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream
    }

    fn path(&self) -> &str {
        self.link.split_once(&self.host).expect("it leads here").1
    }

    /// Signs in: the header with the cookie.
    fn sign_in(&self) -> String {
        let answer = self.ask(&format!("GET {}", self.path()), "", "");
        assert_eq!(status(&answer), 200, "{answer}");
        let cookie =
            answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("it has a cookie");
        assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
        format!("cookie: {}\r\n", cookie.split(';').next().unwrap_or_default())
    }

    fn has_ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

#[test]
fn only_the_browser_that_used_the_link_gets_in_and_only_once() {
    let (deployment, folder) = (Deployment::start(), tempfile::tempdir().expect("a folder"));
    let dashboard = Dashboard::start(&deployment, folder.path());
    for path in ["/", "/dash/", "/dash/assets/app-1.js", "/api/session", "/api/executions"] {
        assert_eq!(status(&dashboard.ask(&format!("GET {path}"), "", "")), 401, "{path} without a cookie");
    }
    let cookie = dashboard.sign_in();
    let link = format!("GET {}", dashboard.path());
    assert_eq!(status(&dashboard.ask(&link, "", "")), 403, "the link was used twice");
    let page = dashboard.ask("GET /dash/runs", &cookie, "");
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    assert_eq!((status(&page), body(&page)), (200, "<p>the page"));
    let file = dashboard.ask("GET /dash/assets/app-1.js", &cookie, "");
    assert!(file.contains("content-type: text/javascript") && file.ends_with("start()"), "{file}");
    assert_eq!(status(&dashboard.ask("GET /dash/assets/../../secret.js", &cookie, "")), 404);
    let session = dashboard.ask("GET /api/session", &cookie, "");
    assert!(body(&session).contains("\"subject\":\"key:00jmmvwm\""), "{session}");
    assert!(!session.contains("set-cookie"), "{session}");
    assert!(session.contains("cache-control: no-store") && !session.contains("etag"), "{session}");
    assert!(!session.contains("immutable"), "the next dashboard on this port would show it: {session}");
    let own = format!("origin: http://{}\r\n{cookie}", dashboard.host);
    assert_eq!(status(&dashboard.ask("POST /api/session", &own, "")), 403, "signing in is for the command");
}

#[test]
fn other_names_other_pages_and_other_paths_get_nothing_of_the_deployment() {
    let (deployment, folder) = (Deployment::start(), tempfile::tempdir().expect("a folder"));
    let dashboard = Dashboard::start(&deployment, folder.path());
    let cookie = dashboard.sign_in();
    let before = deployment.heads().len();
    for (wanted, line, headers) in [
        (421, "GET /api/executions", "host: evil.example\r\n".to_owned()),
        (400, "GET /api/executions", format!("host: {}\r\nhost: evil.example\r\n", dashboard.host)),
        (403, "GET /api/executions", "origin: http://evil.example\r\n".into()),
        (403, "GET /api/executions", "sec-fetch-site: same-site\r\n".into()),
        (403, "POST /api/executions/x/cancel", "origin: null\r\n".into()),
        (403, "POST /api/executions/x/cancel", String::new()),
        (403, "GET /api/stream", "upgrade: websocket\r\norigin: http://evil.example\r\n".into()),
        (400, "GET /api/../admin", String::new()),
        (400, "GET /api/%2e%2E/admin", String::new()),
        (404, "GET /admin", String::new()),
        (404, "GET /apis", String::new()),
        (405, "TRACE /api/executions", format!("origin: http://{}\r\n", dashboard.host)),
        (400, "GET http://evil.example/", String::new()),
        (400, "GET /api/session#x", String::new()),
        (403, "GET /api/namespaces", String::new()),
        (
            411,
            "POST /api/executions/x/cancel",
            format!("origin: http://{}\r\ntransfer-encoding: chunked\r\n", dashboard.host),
        ),
    ] {
        let answer = dashboard.ask(line, &format!("{headers}{cookie}"), "");
        assert_eq!(status(&answer), wanted, "{line} {headers}{answer}");
    }
    // Somebody who may not come in is not given the memory for a body: none is waited for.
    let mut stream = dashboard.connect();
    let head = format!("POST /api/x HTTP/1.1\r\nhost: {}\r\ncontent-length: 4194304\r\n\r\n", dashboard.host);
    stream.write_all(head.as_bytes()).expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers at once");
    assert_eq!(status(&answer), 403, "{answer}");
    let mut stream = dashboard.connect();
    let own = format!("origin: http://{}\r\n{cookie}", dashboard.host);
    write!(
        stream,
        "POST /api/x HTTP/1.1\r\nhost: {}\r\n{own}content-length: 99999999\r\n\r\n",
        dashboard.host
    )
    .expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert_eq!(status(&answer), 413, "{answer}");
    assert_eq!(deployment.heads().len(), before, "the deployment was asked: {:?}", deployment.heads());
}

#[test]
fn requests_are_passed_on_with_the_session_and_without_the_cookie() {
    let (deployment, folder) = (Deployment::start(), tempfile::tempdir().expect("a folder"));
    let mut dashboard = Dashboard::start(&deployment, folder.path());
    let cookie = dashboard.sign_in();
    let headers =
        format!("{cookie}idempotency-key: k1\r\norigin: http://{}\r\nx-other: 1\r\n", dashboard.host);
    let answer = dashboard.ask("POST /api/executions/x/signals/go?a=b", &headers, "{\"n\":1}");
    assert!(answer.contains("{\"asked\":\"POST /api/executions/x/signals/go?a=b\"}"), "{answer}");
    let heads = deployment.heads();
    assert!(heads[0].contains(&format!("Bearer {KEY}")), "it signs in with the key: {}", heads[0]);
    let head = heads.last().expect("it was asked").to_lowercase();
    assert!(head.contains(&format!("bearer {TOKEN}")) && head.contains("idempotency-key: k1"), "{head}");
    for other in ["cookie", "origin", "x-other", KEY] {
        assert!(!head.contains(other), "{other} was passed on: {head}");
    }
    let large = dashboard.ask("GET /api/large", &cookie, "");
    assert!(large.contains("transfer-encoding: chunked"), "it is not held in memory");
    assert_eq!(
        large.matches('x').count(),
        (3 << 20) + "x-content-type-options: sandbox".matches('x').count()
    );
    assert_eq!(status(&dashboard.ask("GET /api/elsewhere", &cookie, "")), 502);
    let out = dashboard.ask("DELETE /api/session", &headers, "");
    assert_eq!(status(&out), 200, "{out}");
    assert_eq!(dashboard.has_ended(), Some(0), "signing out ends it");
    assert!(dashboard.lines.recv_timeout(LIMIT).is_ok_and(|line| line.contains("signed out")));
}

#[test]
fn a_session_that_the_deployment_refuses_ends_the_command() {
    let (deployment, folder) = (Deployment::start(), tempfile::tempdir().expect("a folder"));
    let mut dashboard = Dashboard::start(&deployment, folder.path());
    let cookie = dashboard.sign_in();
    assert_eq!(status(&dashboard.ask("GET /api/revoked", &cookie, "")), 401);
    assert_eq!(dashboard.has_ended(), Some(1));
}

#[test]
fn a_stream_of_the_deployment_is_a_websocket_of_the_page() {
    let (deployment, folder) = (Deployment::start(), tempfile::tempdir().expect("a folder"));
    let dashboard = Dashboard::start(&deployment, folder.path());
    let cookie = dashboard.sign_in();
    let mut stream = dashboard.connect();
    write!(
        stream,
        "GET /api/stream?workflow=greet HTTP/1.1\r\nhost: {0}\r\norigin: http://{0}\r\n{cookie}\
         connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        dashboard.host
    )
    .expect("it listens");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).expect("it answers"), 0, "{head}");
    }
    // The pair of the specification's example.
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let mut frame = |wanted: &[u8], length: usize| {
        let mut start = vec![0; wanted.len()];
        reader.read_exact(&mut start).expect("a frame comes");
        assert_eq!(start, wanted);
        let mut message = vec![0; length];
        reader.read_exact(&mut message).expect("a message comes");
        message
    };
    frame(&[0x89, 0], 0);
    let ready = r#"{"type":"ready","id":"1"}"#;
    assert_eq!(
        frame(&[0x81, u8::try_from(ready.len()).expect("it is short")], ready.len()),
        ready.as_bytes()
    );
    let length = 70_000 + r#"{"type":"end","id":""}"#.len();
    let mut long = vec![0x81, 127];
    long.extend((length as u64).to_be_bytes());
    assert!(frame(&long, length).starts_with(br#"{"type":"end","id":"xxx"#));
    assert_eq!(frame(&[0x88, 2], 2), 1000_u16.to_be_bytes(), "it has ended well");
    let head = deployment.heads().pop().expect("it was asked").to_lowercase();
    assert!(
        head.contains("accept: text/event-stream") && head.contains(&format!("bearer {TOKEN}")),
        "{head}"
    );
}
