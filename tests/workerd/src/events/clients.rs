//! The clients: what each of them wants, and how it goes on until it has it.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{engine::Client, kill::repeat};

/// How many events are sent in one request by those who send several.
const BATCH: u32 = 5;

/// How long after the start of its run an event is sent: often before the run waits for it.
const SENT_WITHIN_MS: u64 = 2_500;

/// How long a client looks whether its run waits.
const LOOKS_FOR: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(200);

/// How many waits are for events that nobody sends: one for so many events, and a few.
const UNPAID: (u32, u32, u32) = (50, 2, 20);

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Sends several events at once, which only triggers are interested in.
    Place {
        /// How many.
        count: u32,
    },
    /// Starts a run that waits, and sends its event; or only when it waits.
    Pay {
        /// Whether the client looks.
        looks: bool,
    },
    /// The same the other way round.
    PayEarly,
    /// Starts a run that waits for nothing that comes.
    Owe,
    /// Starts a run that an event cancels, and sends that.
    Cancel,
    /// Starts such a run, and sends nothing.
    Travel,
}

/// What one client wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its order: no two have the same.
    pub order: u32,
    what: What,
    /// When it begins.
    after: Duration,
    /// How long it waits between the start and the event.
    between: Duration,
}

/// An event that is to be sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its id.
    pub id: String,
    /// The amount that it tells.
    pub amount: u64,
    name: &'static str,
    order: u32,
}

/// A wish that was fulfilled.
#[derive(Clone, Debug)]
pub struct Done {
    /// Which.
    pub wish: Wish,
    /// The run that was started, if one was.
    pub run: Option<String>,
    /// Requests that had to be sent again.
    pub repeats: u32,
    /// Events whose first answer said that they were there: the one before was lost.
    pub unheard: u32,
}

impl Wish {
    /// What the clients want that send so many events, spread over a time.
    pub fn all(events: u32, seed: u64, span_ms: u64) -> Vec<Self> {
        let mut random = StdRng::seed_from_u64(seed ^ 2);
        let mut all = Vec::new();
        let mut wish = |order: u32, what: What, from_ms: u64| {
            let between = Duration::from_millis(random.random_range(0..SENT_WITHIN_MS));
            all.push(Self { order, what, after: Duration::from_millis(from_ms), between });
        };
        for number in 0..events {
            let from_ms = span_ms * u64::from(number) / u64::from(events);
            match number % 10 {
                0 => wish(number, What::Place { count: BATCH.min(events - number) }, from_ms),
                1..BATCH => {}
                5 | 6 => wish(number, What::Pay { looks: number % 10 == 5 }, from_ms),
                7 => wish(number, What::PayEarly, from_ms),
                _ => {
                    wish(number, What::Cancel, from_ms);
                    wish(events + number, What::Travel, from_ms);
                }
            }
        }
        // They begin first: each takes a minute.
        let (for_each, least, most) = UNPAID;
        let unpaid = (events / for_each).clamp(least, most);
        for number in 0..unpaid {
            wish(2 * events + number, What::Owe, span_ms / 4 * u64::from(number) / u64::from(unpaid));
        }
        all
    }

    /// The events that it sends.
    pub fn events(&self) -> Vec<Sent> {
        let one = |kind: &str, name| {
            vec![Sent { id: format!("{kind}-{}", self.order), name, order: self.order, amount: 0 }]
        };
        match self.what {
            What::Place { count } => (self.order..self.order + count)
                .map(|order| Sent {
                    id: format!("placed-{order}"),
                    name: "order/placed",
                    order,
                    amount: 50 * u64::from(order % BATCH),
                })
                .collect(),
            What::Pay { .. } | What::PayEarly => one("paid", "order/paid"),
            What::Cancel => one("cancelled", "order/cancelled"),
            What::Owe | What::Travel => Vec::new(),
        }
    }

    /// Whether its run waits for an event.
    pub fn waits(&self) -> bool {
        matches!(self.what, What::Pay { .. } | What::PayEarly | What::Owe)
    }

    /// Whether its event is sent before the run is started.
    pub fn is_early(&self) -> bool {
        self.what == What::PayEarly
    }

    /// Whether its run may be cancelled by an event.
    pub fn travels(&self) -> bool {
        matches!(self.what, What::Cancel | What::Travel)
    }

    /// Goes on until everything is acknowledged.
    pub async fn fulfil(self, client: Client, patience: Duration) -> Result<Done> {
        sleep(self.after).await;
        let mut asking = Asking { client, patience, asked: AtomicU32::new(0), requests: 0, unheard: 0 };
        let run = match self.what {
            What::Place { .. } => {
                asking.send(&self.events()).await?;
                None
            }
            What::PayEarly => {
                asking.send(&self.events()).await?;
                Some(asking.start("ship", self.order).await?)
            }
            What::Pay { .. } | What::Owe | What::Cancel | What::Travel => {
                let workflow = if self.waits() { "ship" } else { "on_the_road" };
                let run = asking.start(workflow, self.order).await?;
                let events = self.events();
                if !events.is_empty() {
                    if self.what == (What::Pay { looks: true }) {
                        asking.until_waiting(&run).await;
                    }
                    sleep(self.between).await;
                    asking.send(&events).await?;
                }
                Some(run)
            }
        };
        let repeats = asking.asked.into_inner() - asking.requests;
        Ok(Done { wish: self, run, repeats, unheard: asking.unheard })
    }
}

/// A client that repeats what it asks for.
struct Asking {
    client: Client,
    patience: Duration,
    /// How often it has asked, and for how much.
    asked: AtomicU32,
    requests: u32,
    unheard: u32,
}

impl Asking {
    /// Sends events until they are acknowledged; then some of them once more, which has to have no effect.
    async fn send(&mut self, events: &[Sent]) -> Result<()> {
        let all: Vec<_> = events
            .iter()
            .map(|sent| {
                let data = json!({ "id": sent.order, "amount": sent.amount });
                json!({ "name": sent.name, "id": sent.id, "data": data })
            })
            .collect();
        let body = match all.as_slice() {
            [one] => one.to_string(),
            _ => json!({ "events": all }).to_string(),
        };
        let before = self.asked.load(Ordering::Relaxed);
        for status in self.post(&body).await? {
            let is_repeat = self.asked.load(Ordering::Relaxed) > before + 1;
            ensure!(status == "accepted" || status == "duplicate" && is_repeat, "{body}: {status}");
            self.unheard += u32::from(status == "duplicate");
        }
        if events.iter().any(|sent| sent.order.is_multiple_of(20) || sent.order % 20 == 5) {
            let again = self.post(&body).await?;
            ensure!(again.iter().all(|status| status == "duplicate"), "{body} again: {again:?}");
        }
        Ok(())
    }

    /// Posts events, and gives what became of each.
    async fn post(&mut self, body: &str) -> Result<Vec<String>> {
        self.requests += 1;
        let answer = repeat(self.patience, || {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.client.send_post("/api/events", body)
        });
        let answer: Value = serde_json::from_str(&answer.await?)?;
        let results = answer["results"].as_array().cloned().unwrap_or_else(|| vec![answer.clone()]);
        Ok(results.iter().map(|one| one["status"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Looks whether a run waits; not for long.
    async fn until_waiting(&self, run: &str) {
        let began = Instant::now();
        while began.elapsed() < LOOKS_FOR {
            if let Ok(answer) = self.client.show(run, 0).await
                && answer.json().is_ok_and(|view| view["status"] == "waiting")
            {
                return;
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// Starts a run under its key until that is acknowledged.
    async fn start(&mut self, workflow: &str, order: u32) -> Result<String> {
        self.requests += 1;
        let (key, input) = (format!("{workflow}-{order}"), json!({ "id": order }));
        let started = repeat(self.patience, || {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.client.start(workflow, &input, Some(&key), 0)
        });
        let run: Value = serde_json::from_str(&started.await?)?;
        Ok(run["id"].as_str().context("a run has an id")?.to_owned())
    }
}
