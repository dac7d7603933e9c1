//! What the messages of other cells do here: they start children, end them, and tell a parent of its child's end. Each
//! takes effect once, however often it comes.

use stepwell_protocol::{
    Code, Invocation, Parent, Place, Problem, RunId, Timestamp,
    queue::URL_LENGTH_MAX,
    rest::{Act, Deed},
};

use super::{Cell, KeyRow, NewRun, Rows, StoredKey, access::Unasked, child_key};
use crate::{
    lane::check_flow,
    object::{Fault, Hosted as _, Message, Receipt},
    run::{Input, Phase},
};

/// What a run that comes by mail is made of besides.
#[derive(Clone, Debug)]
pub struct Chance {
    /// The random part of its id.
    pub suffix: String,
    /// Where its random numbers will come from.
    pub seed: u64,
}

/// A child to be started.
struct Child {
    parent: Parent,
    invocation: Invocation,
    /// Where it goes if this cell is full.
    spare: Option<Place>,
}

impl Cell {
    /// Another cell has written. Whatever it says takes effect once, however often it comes.
    pub fn receive<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        place: Place,
        chance: Chance,
        message: Message,
    ) -> Result<Receipt, Fault<R::Error>> {
        let now = self.now(clock);
        match message {
            Message::Start { parent, invocation, spare, .. } => {
                let child = Child { parent, invocation: *invocation, spare };
                self.start_child(rows, clock, place, chance, child)
            }
            Message::Ended { parent, run: child, outcome } => {
                let run = self.kept(rows, parent.run.number)?.filter(|run| run.id == parent.run);
                let Some(run) = run.filter(|run| parent.invoked <= run.head) else {
                    // It was deleted; or this instance was superseded before it came to that, and does not know. The
                    // answer lets the sender forget its letter, so it has to wait for a write, which only the instance
                    // that has the name can make.
                    self.object.arm_anew(now);
                    return Ok(Receipt::Gone);
                };
                if !run.children.contains(parent.invoked) {
                    return Ok(Receipt::Gone);
                }
                self.drive_run(rows, now, run.into(), None, |slot| Input::ChildFinished {
                    op: parent.op,
                    invoked: parent.invoked,
                    run: Some(child),
                    outcome,
                    slot,
                })?;
                self.dispatch(rows, now);
                Ok(Receipt::Taken)
            }
            // Only stations are told of these.
            Message::TickEnded { .. }
            | Message::Emitted { .. }
            | Message::Waits { .. }
            | Message::WaitOver { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. } => Ok(Receipt::Gone),
            Message::Unbind { parent, invoked, .. } => self.unbind(rows, now, &child_key(&parent, invoked)),
            Message::Cancel { parent, invoked } => {
                let key = child_key(&parent, invoked);
                let number = match rows.key(&key).map_err(Fault::Storage)? {
                    Some(StoredKey::Run(run)) => run.number,
                    Some(StoredKey::Moved(to)) => return Ok(Receipt::Moved { to }),
                    Some(StoredKey::GivenUp) => return Ok(Receipt::Gone),
                    // Its start is still under way, perhaps for days, and starts nothing any more.
                    None => {
                        self.give_up(rows, now, &key)?;
                        return Ok(Receipt::Gone);
                    }
                };
                let Some(run) = self.kept(rows, number)? else { return Ok(Receipt::Gone) };
                if let Phase::Ended { .. } = run.phase {
                    return Ok(Receipt::Gone);
                }
                let act = Act { at: now, by: started_by(&parent), what: Deed::Cancel };
                self.drive_run(rows, now, run.into(), Some(act), |_| Input::Cancel)?;
                self.dispatch(rows, now);
                Ok(Receipt::Taken)
            }
        }
    }

    fn start_child<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        place: Place,
        chance: Chance,
        Child { parent, invocation, spare }: Child,
    ) -> Result<Receipt, Fault<R::Error>> {
        let key = child_key(&parent.run, parent.invoked);
        // Whatever has become of it since, it was started. It may be deleted by now, and its parent still waits for this
        // answer: so the key says its whole id.
        if let Some(known) = Self::known_start(rows, &place, &key)? {
            return Ok(known);
        }
        let now = self.now(clock);
        let Invocation { workflow, input, dispatch, timeout_ms, retention_ms, callback, flow, .. } =
            invocation;
        if flow.as_ref().is_some_and(|flow| flow.starts.is_some()) {
            let detail = format!(
                "The workflow '{workflow}' cannot be invoked: its starts are not each a run (singleton, debounce or \
                 batch), so there may be no run to wait for. Emit an event that it is started by."
            );
            return Err(Problem::new(Code::InvalidRequest, detail).into());
        }
        let unasked = Unasked {
            workflow: &workflow,
            bytes: input.size(),
            timeout_ms,
            retention_ms: match retention_ms {
                Some(0) => None,
                Some(ms) => Some(ms),
                None => self.retention_ms,
            },
            retention_is_default: retention_ms.is_none(),
        };
        let (timeout_ms, retention_ms) = self.admit_unasked(rows, now, &unasked)?;
        let new = NewRun {
            place,
            suffix: chance.suffix.clone(),
            seed: chance.seed,
            workflow,
            input,
            dispatch,
            timeout_ms,
            retention_ms,
            tags: Vec::new(),
            // The same invocation is the same start, whatever is in it.
            key: Some(KeyRow { key: key.clone(), fingerprint: chance.suffix }),
            by: Some(started_by(&parent.run)),
            trace: parent.trace.as_deref().copied(),
            parent: Some(parent),
            ticked: None,
            starts_at: None,
            triggered: None,
            callback: callback.filter(|url| url.len() <= URL_LENGTH_MAX),
            flow: flow.filter(|flow| check_flow("", flow).is_ok()),
            joins: None,
        };
        match (self.start(rows, clock, new), spare) {
            (Ok(started), _) => Ok(Receipt::Started { run: started.run.id }),
            (Err(Fault::Rejected(problem)), Some(to)) if problem.code == Code::CellFull => {
                rows.reserve(&key, &to).map_err(Fault::Storage)?;
                Ok(Receipt::Moved { to })
            }
            (Err(fault), _) => Err(fault),
        }
    }
}

/// Who has started a child, and who ends it.
fn started_by(parent: &RunId) -> String {
    format!("run:{parent}")
}
