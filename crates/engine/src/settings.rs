//! What the deployment says: variables and secrets of the Worker.

use std::{cell::RefCell, net::Ipv4Addr, rc::Rc};

use stepwell_core::{ordered::OrdSet, pools::Pool, run::SignalLimits};
use stepwell_protocol::{
    program::{Budget, STEP_TIMEOUT_MS},
    topic::parts,
    wait_token::URL_VARIABLE,
};
use worker::{Env, Url};

use crate::{
    collector::Collector,
    log,
    runtime::{self, variable},
};

/// The pool that runs go to unless their workflow says otherwise.
pub const DEFAULT_POOL: &str = "default";

/// The namespace of the deployment's own key.
pub const DEFAULT_NAMESPACE: &str = stepwell_core::catalog::DEFAULT_NAMESPACE;

/// The secret that may do everything.
pub const KEY: &str = stepwell_protocol::signature::KEY;

/// The binding of the cells' class.
pub const CELL_BINDING: &str = "CELL";

/// The binding of the catalogs' class. Without it, there is only the deployment's own key.
pub const STATION_BINDING: &str = "STATION";

/// The binding of the app, when engine and app are two Workers.
pub const APP_BINDING: &str = "APP";

/// The binding of the queue through which programs can be called, where there is one.
pub const QUEUE_BINDING: &str = "DISPATCH";

/// The fewest characters of the deployment's own key, off development.
const KEY_LENGTH_MIN: usize = 32;

/// The fewest different characters of it: 32 random hexadecimal digits have fewer once in ten million keys.
const KEY_CHARACTERS_MIN: usize = 8;

/// Keys that everybody knows.
const KEYS_KNOWN: [&str; 2] = ["0123456789abcdef0123456789abcdef", "00112233445566778899aabbccddeeff"];

/// How many origins `STEPWELL_CORS` may list.
const ORIGINS_MAX: usize = 32;

/// How many Cloudflare Queues `STEPWELL_SOURCES` may list.
const SOURCES_MAX: usize = 32;

/// The longest name of a Cloudflare Queue.
const QUEUE_LENGTH_MAX: usize = 63;

/// What Cloudflare gives each object.
const CELL_BYTES_DEFAULT: u64 = 10_000_000_000;

/// For how many days runs are kept after their end; 0 or `forever` keeps them.
const RETENTION_DAYS: &str = "STEPWELL_RETENTION_DAYS";

/// The most programs that one cell calls at once.
const WINDOW_MAX: u32 = 1_000;

/// The most signals that one run may leave unread.
const SIGNALS_MAX: u32 = 1_000_000;

/// The most calls that one activation makes on its session.
const COMMITS_MAX: u32 = 10_000;

const DAY_MS: u64 = 86_400_000;

/// The most days of any setting: a hundred years.
const DAYS_MAX: u64 = 36_500;

/// How long an activation goes on beginning steps. Where an invocation ends after 15 minutes, the last step has
/// five of them.
const ACTIVATION_MS: u64 = 600_000;

thread_local! {
    // Variables stay as they are for as long as this isolate lives.
    static DEPLOYMENT: RefCell<Option<Rc<Deployment>>> = const { RefCell::new(None) };
}

/// What the deployment says to its cells.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What the storage of a cell holds at the most: `STEPWELL_CELL_BYTES`.
    pub cell_bytes: u64,
    /// Programs that one cell calls at once: `STEPWELL_WINDOW`.
    pub window: usize,
    /// Calls that one activation makes on its session: `STEPWELL_COMMITS`.
    pub commits: u32,
    /// How long one attempt of a step may take, unless the step says otherwise: `STEPWELL_STEP_TIMEOUT`.
    pub step_timeout_ms: u64,
    /// How many signals each run is sent: `STEPWELL_SIGNALS`, `STEPWELL_SIGNAL_BYTES`.
    pub signals: SignalLimits,
    /// The cells of the latest generation, each of which has its share of a namespace's limits.
    pub shares: u32,
    /// Whether answers tell how many rows their object has written: `STEPWELL_METER`.
    pub meter: bool,
}

impl Settings {
    /// Reads them.
    pub fn of(env: &Env) -> Self {
        // What cannot be read was refused by the Worker that asks: see [`Deployment::of`].
        let number = |name, most| whole_number(env, name, most).ok().flatten();
        let profile = Profile::of(variable(env, "STEPWELL_PROFILE").as_deref());
        Self {
            cell_bytes: cell_bytes(env).unwrap_or(CELL_BYTES_DEFAULT),
            window: number("STEPWELL_WINDOW", WINDOW_MAX).unwrap_or(profile.window) as usize,
            commits: number("STEPWELL_COMMITS", COMMITS_MAX).unwrap_or(profile.commits),
            step_timeout_ms: step_timeout_ms(env).unwrap_or(STEP_TIMEOUT_MS),
            signals: signal_limits(env).unwrap_or_default(),
            shares: Deployment::of(env).map_or(1, |deployment| deployment.pool.cells_of_latest()),
            meter: is_metered(env),
        }
    }

    /// What one activation may do.
    pub fn budget(&self) -> Budget {
        let step_timeout_ms = Some(self.step_timeout_ms);
        Budget { commits: self.commits, ms: Some(ACTIVATION_MS), step_timeout_ms }
    }
}

/// Whether answers tell how many rows their object has written: `STEPWELL_METER`.
pub fn is_metered(env: &Env) -> bool {
    variable(env, "STEPWELL_METER").is_some_and(|text| text == "1")
}

/// What holds where nothing else is said: `STEPWELL_PROFILE`.
struct Profile {
    cells: u32,
    window: u32,
    commits: u32,
    /// How many objects one sweep visits.
    sweep_calls: usize,
}

impl Profile {
    /// An invocation of the paid plan makes up to 10,000 calls of other services.
    const PAID: Self = Self { cells: 16, window: 12, commits: 1_000, sweep_calls: 1_000 };

    /// One of the free plan makes up to 50, those of the steps' own code included.
    const FREE: Self = Self { cells: 1, window: 4, commits: 20, sweep_calls: 40 };

    fn of(name: Option<&str>) -> Self {
        match name {
            Some("free") => Self::FREE,
            Some(_) | None => Self::PAID,
        }
    }
}

/// What the deployment says to those who choose a cell. What cannot be read here is refused: runs would be
/// looked for in the wrong places.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The cells of the default pool: `STEPWELL_CELLS`.
    pub pool: Pool,
    /// For how many days a key is looked for where it was before the pool grew: `STEPWELL_KEY_DAYS`.
    pub key_days: u64,
    /// How long a run is kept after its end, unless its workflow says otherwise: `STEPWELL_RETENTION_DAYS`.
    pub retention_ms: Option<u64>,
    /// Whether runs are started only with an idempotency key: `STEPWELL_IDEMPOTENCY`.
    pub key_required: bool,
    /// Whether this is a development server on its user's own machine: `STEPWELL_DEV`.
    pub is_dev: bool,
    /// The origins whose pages may call the API: `STEPWELL_CORS`.
    pub origins: Vec<String>,
    /// How many objects one sweep visits: what an invocation of the plan may call.
    pub sweep_calls: usize,
    /// The engine's public address, without a slash at the end: `STEPWELL_URL`.
    pub url: Option<String>,
    /// The Cloudflare Queues whose messages become events: `STEPWELL_SOURCES`.
    pub sources: Vec<Source>,
}

impl Deployment {
    /// The same as [`Self::of`], read once for each isolate.
    pub fn known(env: &Env) -> Result<Rc<Self>, String> {
        if let Some(known) = DEPLOYMENT.with_borrow(Clone::clone) {
            return Ok(known);
        }
        let read = Rc::new(Self::of(env)?);
        DEPLOYMENT.set(Some(read.clone()));
        Ok(read)
    }

    /// Reads it, or says what is wrong with it.
    pub fn of(env: &Env) -> Result<Self, String> {
        let profile = variable(env, "STEPWELL_PROFILE");
        if let Some(name) = profile.as_deref()
            && !["free", "paid"].contains(&name)
        {
            return Err(format!("The variable STEPWELL_PROFILE is '{name}'. It takes free or paid."));
        }
        let profile = Profile::of(profile.as_deref());
        let cells = variable(env, "STEPWELL_CELLS").unwrap_or_else(|| profile.cells.to_string());
        let pool = Pool::parse(DEFAULT_POOL, &cells)
            .map_err(|error| format!("The variable STEPWELL_CELLS is '{cells}'. {error}"))?;
        if pool.has_grown() && runtime::property(env, STATION_BINDING).is_undefined() {
            return Err(format!(
                "The variable STEPWELL_CELLS is '{cells}'. A pool that grows takes a catalog: bind the class Station \
                 as {STATION_BINDING}."
            ));
        }
        cell_bytes(env)?;
        step_timeout_ms(env)?;
        signal_limits(env)?;
        Collector::of(env)?;
        log::level_of(env)?;
        whole_number(env, "STEPWELL_WINDOW", WINDOW_MAX)?;
        whole_number(env, "STEPWELL_COMMITS", COMMITS_MAX)?;
        let retention_days = match variable(env, RETENTION_DAYS).as_deref() {
            Some("forever") => 0,
            Some(_) | None => days(env, RETENTION_DAYS, 30)?,
        };
        let retention_ms = (retention_days > 0).then_some(retention_days * DAY_MS);
        let key_required = match variable(env, "STEPWELL_IDEMPOTENCY").as_deref() {
            Some("required") => true,
            Some("optional") | None => false,
            Some(other) => {
                return Err(format!(
                    "The variable STEPWELL_IDEMPOTENCY is '{other}'. It takes required or optional."
                ));
            }
        };
        let is_dev = match variable(env, "STEPWELL_DEV").as_deref() {
            Some("1") => true,
            Some("" | "0") | None => false,
            Some(other) => {
                return Err(format!("The variable STEPWELL_DEV is '{other}'. Set it to 1, or leave it out."));
            }
        };
        let origins = origins(&variable(env, "STEPWELL_CORS").unwrap_or_default())?;
        let url = variable(env, URL_VARIABLE).filter(|text| !text.is_empty());
        let url = url.map(|text| public_url(&text)).transpose()?;
        let (key_days, sweep_calls) = (days(env, "STEPWELL_KEY_DAYS", 30)?, profile.sweep_calls);
        let sources = Source::list(&variable(env, "STEPWELL_SOURCES").unwrap_or_default())?;
        Ok(Self { pool, key_days, retention_ms, key_required, is_dev, origins, sweep_calls, url, sources })
    }

    /// What becomes of the messages of a Cloudflare Queue, if it is a source.
    pub fn source(&self, queue: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.queue == queue)
    }
}

/// A queue whose messages become events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The queue's name.
    pub queue: String,
    /// The event's.
    pub event: String,
}

impl Source {
    /// Reads a list: `orders-in=order/received, …`.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let listed = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let sources = listed.map(Self::read).collect::<Option<Vec<_>>>();
        let is_one = |sources: &Vec<Self>| {
            let twice = |(at, source): (usize, &Self)| {
                sources.iter().take(at).any(|other| other.queue == source.queue)
            };
            sources.len() <= SOURCES_MAX && !sources.iter().enumerate().any(twice)
        };
        sources.filter(is_one).ok_or_else(|| {
            format!(
                "The variable STEPWELL_SOURCES is '{text}'. It takes up to {SOURCES_MAX} Cloudflare Queues, each once, with \
                 the event that their messages become: orders-in=order/received."
            )
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (queue, event) = text.split_once('=')?;
        let (queue, event) = (queue.trim(), event.trim());
        let is_queue = (1..=QUEUE_LENGTH_MAX).contains(&queue.len())
            && queue.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let is_good = is_queue && parts(event).is_some();
        is_good.then(|| Self { queue: queue.to_owned(), event: event.to_owned() })
    }
}

/// Refuses a deployment's own key that somebody could guess. A development server takes any.
pub fn check_key(name: &str, key: &str) -> Result<(), String> {
    let how = format!("Set another one with `openssl rand -hex 32 | npx wrangler secret put {name}`.");
    let length = key.chars().count();
    if length < KEY_LENGTH_MIN {
        return Err(format!(
            "The secret {name} has {length} characters, and needs at least {KEY_LENGTH_MIN}. {how}"
        ));
    }
    let different = key.chars().collect::<OrdSet<_>>().len();
    if different < KEY_CHARACTERS_MIN || KEYS_KNOWN.contains(&key) {
        return Err(format!(
            "The secret {name} can be guessed: it is a known key, or repeats a few characters. {how}"
        ));
    }
    Ok(())
}

/// Whether a host, as it stands in a URL, is this machine: `localhost`, `127.0.0.0/8` or `[::1]`.
pub fn is_loopback(host: &str) -> bool {
    let is_v4 = host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    is_v4 || host == "localhost" || host == "[::1]"
}

/// The origins of a list, with commas or spaces between them.
fn origins(text: &str) -> Result<Vec<String>, String> {
    let listed: Vec<_> =
        text.split([',', ' ']).filter(|origin| !origin.is_empty()).map(str::to_owned).collect();
    let is_origin = |origin: &String| {
        let is_web = origin.starts_with("https://") || origin.starts_with("http://");
        is_web && Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == *origin)
    };
    if listed.len() > ORIGINS_MAX || !listed.iter().all(is_origin) {
        return Err(format!(
            "The variable STEPWELL_CORS is '{text}'. It takes up to {ORIGINS_MAX} origins, separated by commas, such as \
             https://app.example.com: no path, no slash at the end, no wildcard."
        ));
    }
    Ok(listed)
}

/// The public address: what stands before `/api` in links.
fn public_url(text: &str) -> Result<String, String> {
    let is_web = |url: &Url| matches!(url.scheme(), "https" | "http") && url.host_str().is_some();
    let is_plain = |url: &Url| url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let url = Url::parse(text).ok().filter(|url| is_web(url) && is_plain(url));
    let url = url.map(|url| url.as_str().trim_end_matches('/').to_owned());
    url.ok_or_else(|| {
        format!(
            "The variable {URL_VARIABLE} is '{text}'. Set the engine's public address, such as \
             https://flows.example.com."
        )
    })
}

/// What the storage of a cell holds.
fn cell_bytes(env: &Env) -> Result<u64, String> {
    let Some(text) = variable(env, "STEPWELL_CELL_BYTES") else { return Ok(CELL_BYTES_DEFAULT) };
    let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("The variable STEPWELL_CELL_BYTES is '{text}'. It takes a number of bytes."))
}

/// How many signals each run is sent.
fn signal_limits(env: &Env) -> Result<SignalLimits, String> {
    let SignalLimits { unread, bytes } = SignalLimits::default();
    Ok(SignalLimits {
        unread: whole_number(env, "STEPWELL_SIGNALS", SIGNALS_MAX)?.unwrap_or(unread),
        bytes: whole_number(env, "STEPWELL_SIGNAL_BYTES", u32::MAX)?.map_or(bytes, u64::from),
    })
}

/// How long one attempt of a step may take: a number and a unit.
fn step_timeout_ms(env: &Env) -> Result<u64, String> {
    const NAME: &str = "STEPWELL_STEP_TIMEOUT";
    let Some(text) = variable(env, NAME) else { return Ok(STEP_TIMEOUT_MS) };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let unit_ms: Option<u64> = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(DAY_MS),
        _ => None,
    };
    let ms = count.parse::<u64>().ok().zip(unit_ms).and_then(|(count, unit)| count.checked_mul(unit));
    let ms = ms.filter(|ms| (1..=DAYS_MAX * DAY_MS).contains(ms));
    ms.ok_or_else(|| format!("The variable {NAME} is '{text}'. Set a number and a unit: 90s, 5m, 2h."))
}

/// A whole number from 1 on, if there is one.
fn whole_number(env: &Env, name: &str, most: u32) -> Result<Option<u32>, String> {
    let Some(text) = variable(env, name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    let number = number.ok_or_else(|| {
        format!("The variable {name} is '{text}'. It takes a whole number from 1 to {most}.")
    })?;
    Ok(Some(number))
}

/// A whole number of days.
fn days(env: &Env, name: &str, default: u64) -> Result<u64, String> {
    let Some(text) = variable(env, name) else { return Ok(default) };
    let days = text.parse().ok().filter(|days| *days <= DAYS_MAX);
    days.ok_or_else(|| format!("The variable {name} is '{text}'. It takes whole days, up to {DAYS_MAX}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_can_be_guessed_is_refused() {
        for bad in ["", "local-key", "x", &"a".repeat(64), &"abcdefg".repeat(9), KEYS_KNOWN[0], KEYS_KNOWN[1]]
        {
            let wrong = check_key(KEY, bad).expect_err(bad);
            assert!(bad.len() < 2 || !wrong.contains(bad), "the message tells the key: {wrong}");
        }
        for good in ["9f86d081884c7d659a2feaa0c55ad015", "correct horse battery staple, and more"] {
            assert_eq!(check_key(KEY, good), Ok(()));
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.255.3.4", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "10.0.0.1",
            "[::]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_public_address_is_one_of_the_web_without_anything_behind_it() {
        assert_eq!(public_url("https://flows.example.com/"), Ok("https://flows.example.com".into()));
        assert_eq!(public_url("http://127.0.0.1:8787"), Ok("http://127.0.0.1:8787".into()));
        assert_eq!(public_url("https://example.com/flows"), Ok("https://example.com/flows".into()));
        for bad in [
            "flows.example.com",
            "ftp://a.example",
            "https://a.example/?x",
            "https://me@a.example",
            "https://",
        ] {
            assert!(public_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn origins_are_listed_exactly_or_not_at_all() {
        let read = origins("https://app.example.com, http://localhost:3000").expect("two origins");
        assert_eq!(read, ["https://app.example.com", "http://localhost:3000"]);
        assert_eq!(origins(""), Ok(Vec::new()));
        for bad in
            ["*", "null", "app.example.com", "https://app.example.com/", "https://*.example.com/x", "ftp://a"]
        {
            assert!(origins(bad).is_err(), "{bad}");
        }
        assert!(origins(&"https://a.example,".repeat(33)).is_err());
    }

    #[test]
    fn sources_are_queues_with_an_event_each() {
        let one = |queue: &str, event: &str| Source { queue: queue.into(), event: event.into() };
        assert_eq!(Source::list(""), Ok(vec![]));
        assert_eq!(
            Source::list("orders-in=order/received, dead = order/dead"),
            Ok(vec![one("orders-in", "order/received"), one("dead", "order/dead")])
        );
        let many = (0..33).map(|n| format!("q{n}=a/b")).collect::<Vec<_>>().join(",");
        let long = format!("a={}/{}", "t".repeat(40), "e".repeat(65));
        for bad in
            ["orders-in", "orders-in=paid", "=a/b", "Orders=a/b", "a=b/c,a=d/e", "a=order/*", &many, &long]
        {
            assert!(Source::list(bad).is_err(), "{bad}");
        }
    }
}
