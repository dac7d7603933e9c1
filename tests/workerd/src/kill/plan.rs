//! What to do: how many kills, how many runs, and what each run is like. The same seed makes the same plan.

use std::{ops::Range, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use super::{HEALED_EACH, HEALED_WITHIN, Transport};

/// A kill, the pause before it and the restart take no longer, on a machine that has other work to do.
const RESTART_MAX: Duration = Duration::from_secs(6);

/// How many of what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// SIGKILLs in all.
    pub kills: u32,
    /// Runs in all.
    pub runs: u32,
    /// Runs that are live at once, at the least.
    pub live: u32,
    /// Cells in the pool.
    pub cells: u32,
    /// How programs are called.
    pub transport: Transport,
    /// The pause before each kill.
    pub pause_ms: Range<u64>,
    /// Where chance comes from.
    pub seed: u64,
}

/// One run that a client wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// When, from the beginning.
    pub start_after: Duration,
    /// What the run is started with.
    pub input: Value,
    /// Whether it waits for a signal.
    pub waits: bool,
    /// When the signal is sent, after the run was acknowledged; often before the run waits for it.
    pub signal_after: Duration,
    /// When it is paused for a while, after it was acknowledged.
    pub pause_after: Option<Duration>,
    /// How often its flaky step fails.
    pub failures: u32,
    /// How many steps its loop has.
    pub items: u32,
}

impl Plan {
    /// What the clients do, spread over the time of the kills.
    pub fn wishes(&self, ledger: &str) -> Vec<Wish> {
        let mut random = StdRng::seed_from_u64(self.seed ^ 1);
        let span_ms = u64::from(self.kills) * (self.pause_ms.start + self.pause_ms.end) / 2;
        (0..self.runs)
            .map(|number| {
                let (mut waits, failures, items) =
                    (random.random_bool(0.5), random.random_range(0..4), random.random_range(1..6));
                // The first ones begin together, and end only when they are told to.
                let together = number < self.live;
                waits |= together;
                let sleep_ms = random.random_range(1..1_500);
                let input = json!({
                    "ledger": ledger, "failures": failures, "sleep_ms": sleep_ms,
                    "waits": waits, "items": items,
                });
                let start_after_ms = random.random_range(0..span_ms.max(1));
                let signal_after_ms = random.random_range(0..2_500);
                let held_ms = if together { self.held_ms() } else { 0 };
                Wish {
                    start_after: Duration::from_millis(if together { 0 } else { start_after_ms }),
                    input,
                    waits,
                    signal_after: Duration::from_millis(held_ms + signal_after_ms),
                    pause_after: random
                        .random_bool(0.2)
                        .then(|| Duration::from_millis(random.random_range(0..1_500))),
                    failures,
                    items,
                }
            })
            .collect()
    }
}

impl Plan {
    /// How long a client goes on trying: for as long as somebody is killed, and then until all has healed.
    pub(crate) fn patience(&self) -> Duration {
        self.healed_within() + self.kills * RESTART_MAX
    }

    /// How long runs may take to end after the last kill.
    pub(crate) fn healed_within(&self) -> Duration {
        HEALED_WITHIN + self.runs * HEALED_EACH
    }

    /// How long the runs that are live at once are kept waiting: until all are there, which takes longer the more
    /// they are. A run gives up waiting after two minutes.
    fn held_ms(&self) -> u64 {
        (2_000 + u64::from(self.live) * 10).min(100_000)
    }
}

impl Wish {
    /// The groups of steps that such a run goes through: all of a group are acknowledged before the next
    /// group begins.
    pub fn stages(&self) -> Vec<Vec<String>> {
        let one = |name: &str| vec![format!("step:0:{name}")];
        let mut stages = vec![one("first"), one("once"), one("flaky")];
        stages.extend((0..self.items).map(|n| vec![format!("step:{n}:item")]));
        stages.push(vec!["step:0:left".into(), "step:0:right".into()]);
        stages.push((0..3).map(|n| format!("step:0:race-{n}")).collect());
        stages.push(one("last"));
        stages
    }
}
