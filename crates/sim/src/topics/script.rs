//! What people do in a world, and when it breaks.

use serde_json::json;
use stepwell_core::cell::Action;
use stepwell_protocol::{
    Payload,
    manifest::TriggerDescription,
    topic::{NewEvent, TriggerInput, TriggerSpec},
};

use super::{
    BREAKS_MS, CELLS, World,
    events::{Event, FaultKind},
    flows::{CALLED, Job},
    host::Any,
    people::Act,
};

/// How many kinds of events there are that conditions tell apart.
const KINDS: u64 = 5;

/// When all has been well for long enough that nothing of what broke is under way.
const WELL_MS: u64 = BREAKS_MS + 130_000;

fn spec(on: &str, when: Option<&str>, workflow: &str) -> TriggerSpec {
    TriggerSpec {
        on: on.into(),
        when: when.map(Into::into),
        workflow: workflow.into(),
        queue: None,
        input: TriggerInput::Data,
        tags: Vec::new(),
    }
}

impl World {
    pub(super) fn write_script(&mut self) {
        self.write_triggers();
        self.write_declared();
        self.write_webhook();
        for n in 0..self.rng.between(14, 26) {
            let at = self.rng.between(0, BREAKS_MS);
            self.send_some(at, n);
        }
        for n in 0..self.rng.between(10, 18) {
            let at = self.rng.between(0, BREAKS_MS - 20_000);
            self.start_some(at, n);
        }
        for cell in 0..CELLS {
            for _ in 0..self.rng.between(0, 3) {
                let at = self.rng.between(10_000, BREAKS_MS);
                let action =
                    if self.rng.percent(50) { Action::Cancel } else { Action::Restart { from: None } };
                self.act(at, Act::Manage(cell, action, None));
            }
            for _ in 0..self.rng.between(0, 2) {
                let (at, says) = (self.rng.between(10_000, BREAKS_MS), self.rng.bits() >> 12);
                self.act(at, Act::Token(cell, says, None));
            }
            for _ in 0..self.rng.between(0, 2) {
                let from = self.rng.between(5_000, BREAKS_MS);
                self.declining.push((cell, from, (from + self.rng.between(2_000, 90_000)).min(BREAKS_MS)));
            }
        }
        // Once all is well, everything goes on as ever.
        for n in 100..103 {
            self.start_some(WELL_MS + n, n);
            self.send_some(WELL_MS + 10_000 + n, n);
        }
        for _ in 0..self.rng.between(30, 50) {
            let at = self.rng.between(1_000, BREAKS_MS);
            let kind = *self.rng.pick(&FaultKind::ALL);
            let any = *self.rng.pick(&[Any::Topic, Any::Topic, Any::Cell(0), Any::Cell(1)]);
            self.put_at(at, Event::Fault(any, kind));
        }
        self.put_at(BREAKS_MS, Event::Heal);
    }

    fn write_triggers(&mut self) {
        let all = [
            ("all", spec("order/*", None, "noted"), false),
            ("odd", spec("order/paid", Some("event.data.odd"), "again"), false),
            ("asked", spec("order/asked", None, "answers"), false),
            ("paused", spec("order/*", None, "noted"), true),
            ("deleted", spec("order/paid", None, "noted"), true),
        ];
        for (id, spec, is_touched) in all {
            self.model.expect(id, &spec, is_touched);
            let at = self.rng.between(0, 15_000);
            self.act(at, Act::Put(id.into(), Box::new(spec)));
        }
        let mut at = self.rng.between(20_000, 80_000);
        for _ in 0..self.rng.between(1, 2) {
            self.act(at, Act::Pause("paused".into()));
            at += self.rng.between(25_000, 60_000);
            self.act(at, Act::Resume("paused".into()));
            at += self.rng.between(25_000, 60_000);
        }
        let at = self.rng.between(30_000, BREAKS_MS);
        self.act(at, Act::Delete("deleted".into()));
    }

    /// The code declares a trigger, changes it and drops it; words of the catalog come late, and again.
    fn write_declared(&mut self) {
        let declares = |on: &str| TriggerDescription { name: "code".into(), spec: spec(on, None, "noted") };
        let revisions = [vec![declares("order/paid")], vec![declares("order/shipped")], Vec::new()];
        let mut at = 0;
        for (revision, triggers) in (1..).zip(revisions) {
            at += self.rng.between(1_000, 70_000);
            self.model.expect_revision(revision, &triggers);
            self.act(at, Act::Declare(revision, triggers.clone()));
            let late = at + self.rng.between(1_000, 90_000);
            self.act(late, Act::Declare(revision, triggers));
        }
    }

    fn write_webhook(&mut self) {
        self.act(0, Act::Hook(0));
        let mut at = 0;
        for secret in 1..=self.rng.between(0, 2) {
            at += self.rng.between(40_000, 90_000);
            self.act(at, Act::Hook(usize::try_from(secret).expect("small")));
        }
        for n in 0..self.rng.between(4, 8) {
            let at = self.rng.between(1_000, BREAKS_MS + 60_000);
            let secret = usize::try_from(self.rng.below(3)).expect("small");
            let n = if self.rng.percent(30) { 0 } else { n };
            let data = Payload::encode(&json!({"n": n % KINDS, "delivery": n})).unwrap_or_default();
            let event = NewEvent { name: "order/paid".into(), id: Some(format!("delivery-{n}")), data };
            self.act(at, Act::Deliver(Box::new(event), secret));
        }
        if self.rng.percent(60) {
            let at = self.rng.between(60_000, BREAKS_MS);
            self.act(at, Act::Redeliver("redelivered".into(), None));
        }
    }

    /// Somebody sends events, one or several, with and without ids.
    fn send_some(&mut self, at: u64, request: u64) {
        let names = ["order/paid", "order/paid", "order/shipped", "order/cancelled"];
        let count = if self.rng.percent(60) { 1 } else { self.rng.between(2, 4) };
        let events = (0..count).map(|index| {
            let name = *self.rng.pick(&names);
            let mut data = json!({"n": self.rng.below(KINDS), "sent": request * 10 + index});
            if self.rng.percent(80) {
                data["odd"] = self.rng.percent(50).into();
            }
            let id = match self.rng.below(4) {
                0 => Some(format!("again-{}", self.rng.below(6))),
                1 => Some(format!("own-{request}-{index}")),
                _ => None,
            };
            NewEvent { name: name.into(), id, data: Payload::encode(&data).unwrap_or_default() }
        });
        let events = events.collect();
        self.act(at, Act::Send(format!("m{request}"), events));
    }

    /// Somebody starts a run.
    fn start_some(&mut self, at: u64, request: u64) {
        let workflow = *self.rng.pick(&CALLED);
        let ms = if self.rng.percent(50) {
            self.rng.between(1_000, 30_000)
        } else {
            self.rng.between(30_000, 400_000)
        };
        let job = Job { n: self.rng.below(KINDS), ms };
        let cell = usize::try_from(self.rng.below(2)).expect("small");
        self.act(at, Act::Start(cell, workflow, job, format!("start-{request}")));
    }
}
