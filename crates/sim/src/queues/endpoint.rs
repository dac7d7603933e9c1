//! The endpoint that jobs are pushed to: it counts, from outside, how many are at work at once.

use std::collections::BTreeMap;

use stepwell_core::queue::Pushed;
use stepwell_protocol::queue::{Lease, PushEnd, PushFailure};

use super::{
    World,
    around::{Event, is_poison},
};
use crate::{host::Cause, one::OneStation as _};

/// A job on its way, or at work.
#[derive(Clone, Debug)]
struct Call {
    from: u64,
    lease: Lease,
    limit: u32,
    /// How often the clock had jumped when it was leased.
    jumps: u32,
    end: PushEnd,
    is_at_work: bool,
}

/// All calls.
#[derive(Debug, Default)]
pub struct Endpoint {
    calls: BTreeMap<u64, Call>,
    called: u64,
}

impl World {
    /// A job leaves for the endpoint. What becomes of it is decided here.
    pub(super) fn call(&mut self, from: u64, jumps: u32, pushed: Pushed) {
        let breaks = self.common.breaks();
        let Pushed { job, push } = pushed;
        let failed = |reason: &str, is_down| {
            PushEnd::Failed(PushFailure { reason: reason.into(), is_down, ..PushFailure::default() })
        };
        let draw = if breaks { self.common.rng.below(100) } else { 99 };
        let short_ms = self.common.rng.between(10, 2_000);
        let (reaches, ms, end) = match draw {
            // It cannot be reached.
            0..=4 => (false, 20, failed("refused", true)),
            // It says nothing, until nobody waits for it.
            5..=11 => (true, push.timeout_ms, failed("silent", true)),
            12..=16 => (true, short_ms, failed("503", true)),
            17..=26 => (true, short_ms, failed("400", false)),
            27 | 28 => {
                let failure = PushFailure { reason: "no".into(), dead: true, ..PushFailure::default() };
                (true, short_ms, PushEnd::Failed(failure))
            }
            29..=31 => {
                let delay_ms = Some(3_000);
                let failure = PushFailure { reason: "later".into(), delay_ms, ..PushFailure::default() };
                (true, short_ms, PushEnd::Failed(failure))
            }
            _ if is_poison(&job) => (true, short_ms, failed("poison", false)),
            _ => (true, short_ms, PushEnd::Done),
        };
        self.endpoint.called += 1;
        let call = self.endpoint.called;
        let limit = push.concurrency;
        let is_at_work = false;
        self.endpoint.calls.insert(call, Call { from, lease: job.lease, limit, jumps, end, is_at_work });
        if reaches {
            let delay_ms = self.common.rng.between(1, 8);
            self.common.put(delay_ms, Event::Begins(call));
        }
        self.common.put(ms, Event::Ends(call));
    }

    /// No more jobs are at work than the queue says, but for those whose leases a jump of the clock has ended.
    pub(super) fn begins(&mut self, call: u64) {
        let jumps = self.common.jumps;
        if let Some(call) = self.endpoint.calls.get_mut(&call) {
            call.is_at_work = true;
        }
        let at_work = self.endpoint.calls.values().filter(|call| call.is_at_work && call.jumps == jumps);
        let (count, most) = at_work.fold((0, 0), |(count, most), call| (count + 1, call.limit.max(most)));
        if count > most {
            let detail = format!("{count} of {most}");
            self.common.must(Err(("18 no more jobs are pushed at once than the queue says", detail)));
        }
    }

    /// The endpoint has answered, or nobody waits for it any more.
    pub(super) fn ends(&mut self, id: u64) {
        if let Some(call) = self.endpoint.calls.get_mut(&id) {
            call.is_at_work = false;
            let delay_ms = self.common.rng.between(0, 30);
            self.common.put(delay_ms, Event::Heard(id));
        }
    }

    /// The instance that has pushed hears of it, if it lives.
    pub(super) fn heard(&mut self, id: u64) {
        let Some(Call { from, lease, end, .. }) = self.endpoint.calls.remove(&id) else { return };
        self.model.push_ends(&lease, &end);
        let _ = self.turn(from, Cause::CallEnded, |queue, rows, now| queue.pushed(rows, now, &lease, end));
    }
}
