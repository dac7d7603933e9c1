//! Children in a test: each is a run of its own, with its own journal, in a cell of its own.
//!
//! A child runs when it is invoked, in virtual time that begins then and that its parent does not see. The parent hears
//! of its end when that much time has passed for it. So children run side by side, however long each of them takes.

use std::{collections::BTreeMap, rc::Rc};

use stepwell_core::run::Start;
use stepwell_protocol::{
    Code, Event, Failure, Invocation, OnClose, Op, Outcome as Gave, Parent, Payload, RunId, Seq, Timestamp,
};

use super::{
    clock,
    effects::Effects,
    engine::{Ended, Engine, Outside},
    outcome::Outcome,
};
use crate::Result;

/// What replaces a workflow that is invoked: makes its output of its input.
pub(super) type ChildMock = Box<dyn Fn(&Payload) -> Result<Payload>>;
pub(super) type ChildMocks = BTreeMap<String, ChildMock>;

/// What became of the children of a run.
#[derive(Default)]
pub(super) struct Family {
    pub mocks: Rc<ChildMocks>,
    /// The workflows that were mocked.
    pub mocked: Vec<String>,
    /// Those that ran, with what they are called.
    pub ran: Vec<(String, Outcome)>,
    /// Those that do not end, and why.
    pub stuck: BTreeMap<Seq, String>,
}

impl Engine {
    /// Runs a child that the run has invoked.
    pub(super) fn invoke(&mut self, invoked: Seq, invocation: Invocation) {
        let invocation_event =
            self.journal.iter().find(|record| record.seq == invoked).map(|record| &record.event);
        let Some(Event::ChildInvoked { op, .. }) = invocation_event.cloned() else {
            unreachable!("what is invoked is on record")
        };
        let abandoned = invocation.detached && invocation.on_close == OnClose::Abandon;
        let depth = self.run.depth() + 1;
        let parent = Parent {
            run: self.run.id.clone(),
            op: op.clone(),
            invoked,
            depth,
            abandoned,
            home: None,
            trace: None,
        };
        let run = self.child_id(&op);
        if invocation.detached {
            let started = Outside::ChildStarted { op: op.clone(), invoked, run: run.clone(), abandoned };
            self.happens_at(self.now, started);
        }
        let (at, outcome) = if let Some(mock) = self.family.mocks.get(&invocation.workflow) {
            let outcome = match mock(&invocation.input) {
                Ok(output) => Gave::Ok(output),
                Err(error) => Gave::Err(error.into_failure()),
            };
            self.family.mocked.push(invocation.workflow);
            (self.now, outcome)
        } else {
            let (at, ended) = self.run_child(parent, run.clone(), invocation);
            match gave(&ended) {
                Some(outcome) => (at, outcome),
                None => {
                    let why =
                        format!("it waits for child '{}', which does not end: {}", op.name, ended.describe());
                    self.family.stuck.insert(invoked, why);
                    return;
                }
            }
        };
        if !abandoned {
            self.happens_at(at, Outside::ChildFinished { op, invoked, run, outcome });
        }
    }

    /// Why it will never be woken, if that is because of a child.
    pub(super) fn stuck_child(&self) -> Option<&String> {
        self.run.open.iter().find_map(|open| self.family.stuck.get(&open.child?.invoked))
    }

    /// Runs a child to its end; says when that was.
    fn run_child(&mut self, parent: Parent, id: RunId, invocation: Invocation) -> (Timestamp, Ended) {
        let Invocation { workflow, input, timeout_ms, .. } = invocation;
        assert!(
            self.app.starter(&workflow).is_some(),
            "the run invokes workflow '{workflow}', which the app of this test does not have: replace it with \
             `.mock_child(\"{workflow}\", …)`"
        );
        let name = parent.op.name.clone();
        let seed = hash(&id.to_string());
        let start =
            Start { timeout_ms, parent: Some(parent), ..Start::plain(id, workflow, input.size(), seed) };
        let began_at = self.now;
        let (at, mocked, outcome) = clock::beside(|| {
            let mut child = self.beside(start, input);
            let ended = child.run_to_end();
            let (at, mocked) = (child.now, std::mem::take(&mut child.family.mocked));
            (at, mocked, Outcome::new(ended, began_at, child, Effects::default()))
        });
        let ended = outcome.ended.clone();
        self.family.mocked.extend(mocked);
        self.family.ran.push((name, outcome));
        (at, ended)
    }

    /// The same id for the same invocation, whenever it is made: its steps' idempotency keys begin with it.
    fn child_id(&self, op: &Op) -> RunId {
        let life = self.run.life.map_or(1, |life| life.number);
        let hash = hash(&format!("{}/{life}/{op}", self.run.id));
        let number = 1 + (hash >> 33);
        RunId { place: self.run.id.place.clone(), number, suffix: RunId::suffix_from(hash) }
    }
}

/// What a parent is told of its child's end; nothing, if there is none.
fn gave(ended: &Ended) -> Option<Gave> {
    match ended {
        Ended::Completed(text) => {
            Some(Gave::Ok(Payload::from_text(text.clone()).expect("it was recorded as JSON")))
        }
        Ended::Failed(failure) => Some(Gave::Err(Failure { terminal: true, ..failure.clone() })),
        Ended::Cancelled => {
            Some(Gave::Err(Failure::coded(Code::ChildCancelled, Code::ChildCancelled.title())))
        }
        Ended::Paused(_) | Ended::Halted | Ended::Waiting(_) | Ended::Stuck(_) => None,
    }
}

fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
