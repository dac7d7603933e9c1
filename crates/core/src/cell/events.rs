//! Events that runs wait for: which topics hear of a wait, and what an event does to whoever waits for it.
//!
//! A wait is said once, with the commit that begins it. An event that comes for a wait which is over is answered with
//! *gone*, so a topic need not be told that; it is told of those that it would otherwise keep for long.

use stepwell_protocol::{
    Code, Event, Payload, Timestamp,
    rest::{Act, Deed},
    topic::{EventView, Waiter, topic_of},
};

use super::{Cell, Rows, mail::is_end, unreadable::unreadable_or_failed};
use crate::{
    object::{Address, Envelope, Fault, Hosted as _, Message, Receipt},
    run::{Entry, Input, OpenOp, Phase, Run, Signal},
    topic::{from_when, input_for},
};

/// For how long a topic keeps a wait that is over without being told.
const LEFT_MS: u64 = 86_400_000;

/// The waits for events that begin with these entries, or are for something else than they were.
pub(super) fn waits(run: &Run, entries: &[Entry]) -> Vec<OpenOp> {
    let open = entries
        .iter()
        .rev()
        .find_map(|entry| if let Entry::OpenChanged(open) = entry { Some(open) } else { None });
    let is_new = |open: &&OpenOp| {
        open.event.is_some()
            && !run.open.iter().any(|known| (&known.op, &known.event) == (&open.op, &open.event))
    };
    open.into_iter().flatten().filter(is_new).cloned().collect()
}

/// What topics are told of waits that end with these entries without an event.
pub(super) fn lapsed(run: &Run, now: Timestamp, entries: &[Entry]) -> Vec<(String, Message)> {
    let soon = now.plus_millis(LEFT_MS);
    let mut open: Vec<_> = run.open.iter().filter(|open| open.event.is_some()).collect();
    open.retain(|open| open.until.or(run.deadline).is_none_or(|until| until > soon));
    if open.is_empty() {
        return Vec::new();
    }
    let mut lapsed = Vec::new();
    for entry in entries {
        if let Some(Event::SignalReceived { name, to: Some(to), .. }) =
            entry.record().map(|record| &record.event)
        {
            open.retain(|open| (&open.op.name, open.op.occurrence) != (name, *to));
        } else if let Entry::OpenChanged(left) = entry {
            let is_left = |open: &&OpenOp| left.iter().any(|left| left.op == open.op);
            lapsed.extend(open.iter().copied().filter(|open| !is_left(open)));
            open.retain(is_left);
        } else if is_end(entry) || matches!(entry, Entry::BegunAnew { .. } | Entry::Rewound(_)) {
            lapsed.append(&mut open);
        }
    }
    let told = lapsed.into_iter().filter_map(|open| {
        let topic = topic_of(&open.event.as_ref()?.on)?.to_owned();
        let (run_id, life, op) = (run.id.clone(), run.life_number(), open.op.clone());
        Some((topic, Message::WaitOver { run: run_id, life, op, epoch: run.epoch }))
    });
    told.collect()
}

impl Cell {
    /// What topics are told of waits that begin.
    pub(super) fn registrations<R: Rows>(
        rows: &R,
        now: Timestamp,
        run: &Run,
        namespace: &str,
        waits: Vec<OpenOp>,
    ) -> Result<Vec<Envelope>, Fault<R::Error>> {
        let mut input: Option<Payload> = None;
        let mut envelopes = Vec::new();
        for OpenOp { op, until, since, event, .. } in waits {
            let Some(wait) = event else { continue };
            let Some(topic) = topic_of(&wait.on) else { continue };
            if wait.when.is_some() && input.is_none() {
                input = Some(rows.input(run.id.number).map_err(unreadable_or_failed::<R>)?);
            }
            let since = if wait.cancels { run.created_at } else { since.unwrap_or(now) };
            let triggered = run.triggered.as_ref().filter(|triggered| triggered.topic == topic);
            let waiter = Waiter {
                run: run.id.clone(),
                life: run.life_number(),
                op,
                epoch: run.epoch,
                input: input_for(&wait, input.as_ref())?,
                from: from_when(&wait, since),
                until: until.or(run.deadline),
                except: triggered.map(|triggered| triggered.event),
                cancels: wait.cancels,
                on: wait.on.clone(),
                when: wait.when,
            };
            let message = Message::Waits { waiter: Box::new(waiter) };
            envelopes.push(Envelope { to: Address::topic(namespace, topic), message });
        }
        Ok(envelopes)
    }

    /// An event has come that these waits are for. Says what became of each.
    pub fn meet<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        event: &EventView,
        waits: Vec<Waiter>,
    ) -> Vec<Receipt> {
        let now = self.now(clock);
        let receipts = waits.into_iter().map(|waiter| match self.meet_one(rows, now, event, waiter) {
            Ok(receipt) => receipt,
            Err(Fault::Rejected(problem)) if matches!(problem.code, Code::RunNotFound | Code::RunEnded) => {
                Receipt::Gone
            }
            // Whatever keeps this one from taking it holds up no other.
            Err(_) => Receipt::Later,
        });
        let receipts: Vec<_> = receipts.collect();
        if receipts.contains(&Receipt::Gone) {
            // This instance may have been superseded: only a write says that it has not.
            self.object.arm_anew(now);
        }
        self.dispatch(rows, now);
        receipts
    }

    fn meet_one<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        event: &EventView,
        waiter: Waiter,
    ) -> Result<Receipt, Fault<R::Error>> {
        let Waiter { run: id, life, op, .. } = waiter;
        let run = self.kept(rows, id.number)?.filter(|run| run.id == id);
        let Some(run) = run else { return Ok(Receipt::Gone) };
        // An event is had once by the waits of one name: the next one of a loop looks back, too.
        let known_by = Signal::event_id(event, &op.name);
        let is_known = rows.has_signal(id.number, &known_by).map_err(Fault::Storage)?;
        let is_open = life == run.life_number() && !matches!(run.phase, Phase::Ended { .. });
        let open = run.open.iter().find(|open| open.op == op && is_open);
        let Some(wait) = open.and_then(|open| open.event.as_ref()) else {
            if is_known {
                // As with waits that are gone: what is known here may be older than the wait that is meant.
                self.object.arm_anew(now);
                return Ok(Receipt::Taken);
            }
            return Ok(Receipt::Gone);
        };
        if wait.cancels {
            let act = Act { at: now, by: event.tag.clone(), what: Deed::Cancel };
            self.drive_run(rows, now, run.into(), Some(act), |_| Input::Cancel)?;
            return Ok(Receipt::Taken);
        }
        if is_known {
            return Ok(Receipt::Passed);
        }
        let signal = Signal::of_event(event, op);
        self.drive_run(rows, now, run.into(), None, |slot| Input::Signal { signal, slot })?;
        Ok(Receipt::Taken)
    }
}
