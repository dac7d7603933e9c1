//! The journal of a run that has ended, once more: the same end, and no step runs for it.

use std::task::{Context, Poll, Waker};

use stepwell_core::run::{End, Phase};
use stepwell_protocol::program::Then;

use super::engine::{Ended, Engine};
use crate::vm::Order;

impl Engine {
    /// Checks that the whole journal gives the same end, and that no step runs for it.
    pub fn replay_once_more(&self) -> Result<(), String> {
        let Phase::Ended { how: End::Completed | End::Failed, .. } = self.run.phase else { return Ok(()) };
        if matches!(&self.result, Some(Ended::Failed(failure)) if failure.code.is_some_and(is_the_engines)) {
            return Ok(());
        }
        let mut vm = self.vm();
        let commit = loop {
            match vm.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Order::Page(after)) => {
                    vm.page(self.page(after));
                }
                Poll::Ready(Order::Commit(commit)) => break commit,
                Poll::Pending => return Err("a replay of the finished run begins a step".into()),
            }
        };
        if let Some(op) = self.just_ran.take().first() {
            return Err(format!("a replay of the finished run runs {op}"));
        }
        let again = match commit.then {
            Then::Complete { output } => Ended::Completed(output.text().to_owned()),
            Then::Fail { failure } => Ended::Failed(failure),
            Then::Pause { problem } => Ended::Paused(problem),
            Then::Continue { .. } | Then::Suspend { .. } | Then::Yield { .. } | Then::Anew { .. } => {
                return Err("a replay of the finished run does not end".into());
            }
        };
        if self.result.as_ref() == Some(&again) {
            return Ok(());
        }
        let at_first = self.result.as_ref().map(Ended::describe).unwrap_or_default();
        Err(format!(
            "a replay of the finished run ends otherwise: {}; at first, {at_first}",
            again.describe()
        ))
    }
}

/// Whether a failure of this code is the engine's decision, which no replay repeats.
pub(super) fn is_the_engines(code: stepwell_protocol::Code) -> bool {
    matches!(code, stepwell_protocol::Code::RunTimedOut | stepwell_protocol::Code::ProgramDied)
}
