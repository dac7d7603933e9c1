//! What a workflow waits for from outside: all that the engine has to know of it.

use stepwell_protocol::{Op, OpKind, Shape, lane::VISITS_MAX, program::Open, topic::EventWait};

use super::{
    super::slot::{ChildStage, Length, Once, What},
    State,
};

impl State {
    /// All that the workflow waits for, in the order in which it began to.
    pub fn open(&self) -> Vec<Open> {
        let open = self.outside().filter_map(|(op, what)| {
            let op = op.clone();
            Some(match what {
                What::Step { retry_at, visit, .. } => {
                    match visit.as_ref().filter(|_| *retry_at <= self.clock) {
                        Some(visit) => Open::Lane { op, lane: Box::new(visit.lane.clone()) },
                        None => Open::Retry { op, at: *retry_at },
                    }
                }
                What::Sleep { length: Length::Ms(ms), .. } => Open::Sleep { op, ms: *ms },
                What::Sleep { length: Length::Until(at), .. } => Open::SleepUntil { op, at: *at },
                What::Wait { timeout_ms, shape, asked, event, .. } => {
                    let (signal, shape) = (op.name.clone(), shape.clone());
                    let (asked, event) = (asked.clone(), event.clone());
                    Open::Wait { op, signal, timeout_ms: *timeout_ms, shape, asked, event }
                }
                What::Child(child) => {
                    let ChildStage::Invoked(invoked) = child.stage else { return None };
                    Open::Child { op, invoked, awaits: child.awaits, timeout_ms: child.timeout_ms }
                }
            })
        });
        open.chain(self.cancel.clone()).collect()
    }

    /// Lets an event cancel the run, whatever else it waits for.
    pub fn cancel_on(&mut self, event: Option<EventWait>) {
        self.cancel = event.map(|event| {
            let name = format!("cancel on {}", event.on);
            let op = Op { kind: OpKind::Wait, name: name.clone(), occurrence: 0 };
            let event = Some(Box::new(event));
            Open::Wait { op, signal: name, timeout_ms: None, shape: Shape::Any, asked: None, event }
        });
    }

    /// Whether nothing in it can let the workflow go on.
    pub fn is_stuck(&self, open: &[Open]) -> bool {
        open.len() <= usize::from(self.cancel.is_some())
    }

    /// Whether this is what [`Self::open`] would give.
    pub fn is_open(&self, told: &[Open]) -> bool {
        let told = match (&self.cancel, told.split_last()) {
            (None, _) => told,
            (Some(cancel), Some((last, rest))) if last == cancel => rest,
            (Some(_), _) => return false,
        };
        let mut told = told.iter();
        let mut outside = self.outside();
        loop {
            match (told.next(), outside.next()) {
                (None, None) => return true,
                (Some(Open::Retry { op, at }), Some((actual, What::Step { retry_at, .. })))
                    if op == actual && at == retry_at && *retry_at > self.clock => {}
                (Some(Open::Lane { op, .. }), Some((actual, What::Step { retry_at, .. })))
                    if op == actual && *retry_at <= self.clock => {}
                (
                    Some(Open::Sleep { op, .. } | Open::SleepUntil { op, .. } | Open::Wait { op, .. }),
                    Some((actual, _)),
                ) if op == actual => {}
                (Some(Open::Child { op, invoked, .. }), Some((actual, What::Child(child))))
                    if op == actual && matches!(child.stage, ChildStage::Invoked(at) if at == *invoked) => {}
                (Some(_) | None, _) => return false,
            }
        }
    }

    /// What waits for something from outside. A step that could run at once does not, nor does a child that could be
    /// invoked at once: nobody polls it. Of those that wait for lanes, as many as may do so at once.
    fn outside(&self) -> impl Iterator<Item = (&Op, &What)> {
        let mut room =
            VISITS_MAX.saturating_sub(self.slots.values().filter(|slot| slot.holds_place()).count());
        self.waiting.values().filter_map(move |op| match &self.slots.get(op)?.what {
            what @ What::Step { retry_at, visit: Some(visit), once, .. }
                if *retry_at <= self.clock && visit.is_awaited && !visit.is_in && *once != Once::Before =>
            {
                room = room.checked_sub(1)?;
                Some((op, what))
            }
            What::Step { retry_at, .. } if *retry_at <= self.clock => None,
            What::Child(child) if !matches!(child.stage, ChildStage::Invoked(_)) => None,
            what @ (What::Step { .. } | What::Sleep { .. } | What::Wait { .. } | What::Child(_)) => {
                Some((op, what))
            }
        })
    }
}
