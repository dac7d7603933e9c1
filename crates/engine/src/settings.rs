//! What the deployment says: variables and secrets of the Worker.

use stepwell_core::pools::Pool;
use stepwell_protocol::program::Budget;
use worker::Env;

use crate::runtime;

/// The pool that runs go to unless their workflow says otherwise.
pub const DEFAULT_POOL: &str = "default";

/// The namespace of the deployment's own key.
pub const DEFAULT_NAMESPACE: &str = stepwell_core::catalog::DEFAULT_NAMESPACE;

/// The secret that may do everything.
pub const KEY: &str = "STEPWELL_KEY";

/// The binding of the cells' class.
pub const CELL_BINDING: &str = "CELL";

/// The binding of the catalogs' class. Without it, there is only the deployment's own key.
pub const CATALOG_BINDING: &str = "CATALOG";

/// The binding of the app, when engine and app are two Workers.
pub const APP_BINDING: &str = "APP";

/// The binding of the queue through which programs can be called, where there is one.
pub const QUEUE_BINDING: &str = "DISPATCH";

/// What Cloudflare gives each object.
const CELL_BYTES_DEFAULT: u64 = 10_000_000_000;

/// For how many days runs are kept after their end; 0 or `forever` keeps them.
const RETENTION_DAYS: &str = "STEPWELL_RETENTION_DAYS";

/// The most programs that one cell calls at once.
const WINDOW_MAX: u32 = 1_000;

/// The most calls that one activation makes on its session.
const COMMITS_MAX: u32 = 10_000;

const DAY_MS: u64 = 86_400_000;

/// The most days of any setting: a hundred years.
const DAYS_MAX: u64 = 36_500;

/// How long an activation goes on beginning steps. Where an invocation ends after 15 minutes, the last step has
/// five of them.
const ACTIVATION_MS: u64 = 600_000;

/// What the deployment says to its cells.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What the storage of a cell holds at the most: `STEPWELL_CELL_BYTES`.
    pub cell_bytes: u64,
    /// Programs that one cell calls at once: `STEPWELL_WINDOW`.
    pub window: usize,
    /// Calls that one activation makes on its session: `STEPWELL_COMMITS`.
    pub commits: u32,
    /// The cells of the latest generation, each of which has its share of a namespace's limits.
    pub shares: u32,
    /// Whether answers tell how many rows their cell has written: `STEPWELL_METER`.
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
            shares: Deployment::of(env).map_or(1, |deployment| deployment.pool.cells_of_latest()),
            meter: variable(env, "STEPWELL_METER").is_some_and(|text| text == "1"),
        }
    }

    /// What one activation may do.
    pub fn budget(&self) -> Budget {
        Budget { commits: self.commits, ms: Some(ACTIVATION_MS) }
    }
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
    /// How many objects one sweep visits: what an invocation of the plan may call.
    pub sweep_calls: usize,
}

impl Deployment {
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
        if pool.has_grown() && runtime::property(env, CATALOG_BINDING).is_undefined() {
            return Err(format!(
                "The variable STEPWELL_CELLS is '{cells}'. A pool that grows takes a catalog: bind the class Catalog \
                 as {CATALOG_BINDING}."
            ));
        }
        cell_bytes(env)?;
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
        let (key_days, sweep_calls) = (days(env, "STEPWELL_KEY_DAYS", 30)?, profile.sweep_calls);
        Ok(Self { pool, key_days, retention_ms, key_required, sweep_calls })
    }
}

/// What the storage of a cell holds.
fn cell_bytes(env: &Env) -> Result<u64, String> {
    let Some(text) = variable(env, "STEPWELL_CELL_BYTES") else { return Ok(CELL_BYTES_DEFAULT) };
    let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("The variable STEPWELL_CELL_BYTES is '{text}'. It takes a number of bytes."))
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

fn variable(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string())
}
