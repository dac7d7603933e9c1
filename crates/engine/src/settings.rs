//! What the deployment says: variables and secrets of the Worker.

use stepwell_protocol::Place;
use worker::Env;

/// The pool that runs go to unless their workflow says otherwise.
pub const DEFAULT_POOL: &str = "default";

/// The namespace of a deployment with a single key.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The secret that every request has to bring.
pub const KEY: &str = "STEPWELL_KEY";

/// The binding of the cells' class.
pub const CELL_BINDING: &str = "CELL";

/// The binding of the app, when engine and app are two Workers.
pub const APP_BINDING: &str = "APP";

/// What the deployment says.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Cells in the default pool: `STEPWELL_CELLS`.
    pub cells: u32,
    /// Programs that one cell calls at once: `STEPWELL_WINDOW`.
    pub window: usize,
    /// Whether answers tell how many rows their cell has written: `STEPWELL_METER`.
    pub meter: bool,
}

impl Settings {
    /// Reads them.
    pub fn of(env: &Env) -> Self {
        let number = |name| variable(env, name).and_then(|text| text.parse::<u32>().ok());
        Self {
            cells: number("STEPWELL_CELLS").unwrap_or(16).clamp(1, 4_096),
            window: number("STEPWELL_WINDOW").unwrap_or(12).clamp(1, 1_000) as usize,
            meter: variable(env, "STEPWELL_METER").is_some_and(|text| text == "1"),
        }
    }

    /// Whether there is a cell at this place.
    pub fn has(&self, place: &Place) -> bool {
        place.pool == DEFAULT_POOL && place.generation == 1 && place.cell < self.cells
    }
}

fn variable(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string())
}
