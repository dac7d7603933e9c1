//! What a cell does for its callers: the Workers that serve HTTP.

use std::{rc::Rc, time::Duration};

use futures::future::{Either, select};
use stepwell_core::{
    access::{Grant, ROOT},
    bulk::{Acted, Fate},
    cell::{
        Action, KeyRow, NewRun, Reserved, Rows as _, Started, StartedAs, no_such_run, scoped_key, settled,
    },
    run::{Run, Signal},
};
use stepwell_protocol::{
    Code, Event, Payload, Place, Problem, RunId, Seq,
    access::Limits,
    filter::Filter,
    program::RawRecord,
    rest::{BulkAction, History, HistoryEvent, RunView, SignalReceipt},
};
use worker::Delay;

use super::Host;
use crate::{
    calls::cell::{ByKey, Call, Moved, Operation, Start, fingerprint},
    log,
    object::{Answered, Answering, Fault, StoreError},
    runtime,
};

/// The answer about a key that is at home in another cell.
fn moved(to: &Place) -> Answered {
    Answered::new(308, &Moved { to: to.to_string() })
}

fn started(status: u16, run: &RunView) -> Answered {
    Answered { location: Some(address_of(&run.id)), ..Answered::new(status, run) }
}

/// A run's own address.
fn address_of(id: &RunId) -> String {
    format!("/api/executions/{id}")
}

impl Host {
    pub(super) fn answering(self: Rc<Self>, call: serde_json::Result<Call>) -> Answering {
        Box::pin(async move {
            let operated = match call {
                Ok(mut call) => {
                    let request = call.request.take();
                    log::on_behalf(request.as_deref(), Box::pin(self.operate(call))).await
                }
                Err(error) => Err(Answered::foreign(&error)),
            };
            let answered = match operated {
                Ok(answered) => answered,
                Err(Fault::Moved(to)) => moved(&to),
                Err(fault) => fault.into(),
            };
            let rows = self.settings.meter.then(|| (self.store.rows_written(), self.store.rows_read()));
            answered.into_array(rows)
        })
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    async fn operate(self: &Rc<Self>, call: Call) -> Result<Answered, Fault> {
        let place = call.place();
        let grant = self.enter(&call, &place).await?;
        self.check_cells(&place, &call.operation)?;
        let namespace = call.namespace;
        match call.operation {
            Operation::Touch => Ok(Answered::new(200, &())),
            Operation::ShowSweep => Ok(Answered::new(200, &self.store.sweep_cursor()?)),
            Operation::KeepSweep { cursor } => {
                self.prepare(&namespace, &place)?;
                Ok(Answered::new(200, &self.store.keep_sweep_cursor(&cursor)?))
            }
            Operation::ForgetKeys { version, ids } => {
                self.machine.borrow_mut().forget_keys(version, ids.as_deref());
                self.close_keyed_streams(ids.as_deref());
                Ok(Answered::new(200, &()))
            }
            Operation::Start(Start {
                workflow,
                input,
                key,
                nonce,
                dispatch,
                timeout_ms,
                retention_ms,
                retention_is_default,
                tags,
                starts_at,
                callback,
                trace,
                flow,
                joins,
                is_strict,
                wait_ms,
            }) => {
                let (timeout_ms, retention_ms) = match &grant {
                    Some(grant) => {
                        self.check_live(&grant.limits)?;
                        settled(grant, &workflow, timeout_ms, retention_ms, retention_is_default)
                    }
                    None => (timeout_ms, retention_ms),
                };
                let key = key.map(|key| KeyRow { key, fingerprint: fingerprint(&workflow, &input) });
                let (suffix, seed) = (suffix_of(nonce), runtime::random());
                let new = NewRun {
                    place,
                    suffix,
                    seed,
                    workflow,
                    input,
                    dispatch,
                    timeout_ms,
                    retention_ms,
                    tags,
                    key,
                    by: grant.map(|grant| grant.actor.clone()),
                    parent: None,
                    ticked: None,
                    starts_at,
                    triggered: None,
                    callback,
                    trace,
                    flow,
                    joins,
                };
                self.start_run(&namespace, new, is_strict, wait_ms).await
            }
            Operation::Reserve { key, fingerprint, to, wait_ms } => {
                self.reserve(&namespace, &place, &KeyRow { key, fingerprint }, &to, wait_ms).await
            }
            Operation::ByKey { workflow, key, ask } => {
                self.by_key(grant.as_deref(), &scoped_key(&workflow, &key), ask).await
            }
            Operation::Get { number, suffix, wait_ms } => {
                self.show(&RunId { place, number, suffix }, wait_ms).await
            }
            Operation::Why { number, suffix } => {
                let id = RunId { place, number, suffix };
                let why = self.turn(|machine, store, now| Ok(machine.why(store, now, &id)?))?;
                Ok(Answered::new(200, &why))
            }
            Operation::List { filter, below, limit } => {
                let among = grant.and_then(|grant| grant.seen_workflows());
                Ok(Answered::new(
                    200,
                    &self.store.list(&filter, among.as_ref(), below, limit, runtime::clock())?,
                ))
            }
            Operation::ActOnAll { filter, below, limit, action, by, limits } => {
                Ok(Answered::new(200, &self.act_on_all(&filter, below, limit, action, &by, &limits)?))
            }
            Operation::Count => Ok(Answered::new(200, &self.count()?)),
            Operation::Measure => self.measure(),
            Operation::CountAnswers { answers } => {
                self.prepare(&namespace, &place)?;
                Ok(Answered::new(200, &self.store.add_answers(&answers)?))
            }
            Operation::Sum { spans } => self.sum(&spans),
            Operation::ListMinutes { since, workflow } => self.list_minutes(since, workflow.as_deref()),
            Operation::Total { since, workflow } => self.total(since, workflow.as_deref()),
            Operation::ListFailures { workflow } => self.list_failures(workflow.as_deref()),
            Operation::History { number, suffix, after, limit, outline, replay } => {
                let limit = limit.unwrap_or(usize::MAX);
                self.history(&RunId { place, number, suffix }, after, limit, outline, replay)
            }
            Operation::Signal { number, suffix, name, id, nonce, payload } => {
                let to = RunId { place, number, suffix };
                let by = grant.map(|grant| grant.actor.clone());
                self.signal(&to, Signal { name, id, nonce, payload, by, to: None })
            }
            Operation::NewToken { number, suffix, new } => {
                self.new_token(&namespace, &RunId { place, number, suffix }, new)
            }
            Operation::ShowToken { token } => {
                self.admit_link(&namespace, &token, 0).await?;
                self.show_token(&token)
            }
            Operation::CompleteToken { token, answer } => {
                self.admit_link(&namespace, &token, answer.size()).await?;
                self.complete_token(&token, answer)
            }
            Operation::Act { number, suffix, action } => {
                self.act_as(grant.as_deref(), &RunId { place, number, suffix }, action)
            }
            Operation::Follow { .. } => {
                Err(Problem::new(Code::Internal, "A stream is opened with a socket, and no other way.")
                    .into())
            }
            Operation::ShowOutbox { only_dead, after, limit } => {
                Ok(Answered::new(200, &self.store.list_letters(only_dead, after, limit)?))
            }
            Operation::Redeliver { letter } => self.redeliver(&place, letter),
            Operation::Discard { letter } => self.discard(&place, letter),
            Operation::Receive { message } => self.receive(&namespace, place, message).await,
            Operation::Tick { run } => self.start_tick(&namespace, place, *run).await,
            Operation::Triggered { run } => self.start_triggered(&namespace, place, *run).await,
            Operation::Meet { event, waits } => self
                .turn(|machine, store, now| Ok(Answered::new(200, &machine.meet(store, now, &event, waits)))),
            Operation::LetIn { tickets } => self.turn(|machine, store, now| {
                Ok(Answered::new(200, &machine.are_let_in(store, now, &tickets)))
            }),
            Operation::Consume { ask } => self.answer_consumer(ask).await,
        }
    }

    /// Makes sure that there are tables, before something is stored.
    pub(super) fn prepare(&self, namespace: &str, place: &Place) -> Result<(), Fault> {
        let life = self.own_life(namespace)?;
        Ok(self.store.prepare(namespace, place, life, || self.cells_of(place))?)
    }

    /// The same to the run that a key has started here as to one that is named by its id.
    async fn by_key(
        self: &Rc<Self>,
        grant: Option<&Grant>,
        key: &str,
        ask: ByKey,
    ) -> Result<Answered, Fault> {
        let number = self.machine.borrow().find_key(&self.store, key)?;
        let found = match number {
            Some(number) => self.store.ids(&[number])?.pop(),
            None => None,
        };
        let id = found.ok_or_else(no_such_run::<StoreError>)?;
        let answered = match ask {
            ByKey::Get { wait_ms } => self.show(&id, wait_ms).await?,
            ByKey::Signal { name, id: known_as, nonce, payload } => {
                let by = grant.map(|grant| grant.actor.clone());
                return self.signal(&id, Signal { name, id: known_as, nonce, payload, by, to: None });
            }
            ByKey::Act { action } => self.act_as(grant, &id, action)?,
            ByKey::Again { fingerprint, is_strict, wait_ms } => {
                let key = KeyRow { key: key.to_owned(), fingerprint };
                let run = self.machine.borrow().keyed(&self.store, &key)?;
                let run = run.ok_or_else(no_such_run::<StoreError>)?;
                return self.repeat(&run, is_strict, wait_ms).await;
            }
        };
        Ok(Answered { location: Some(address_of(&id)), ..answered })
    }

    async fn show(self: &Rc<Self>, id: &RunId, wait_ms: u64) -> Result<Answered, Fault> {
        match self.find(id) {
            Ok(run) => Ok(Answered::new(200, &self.view_at_end(&run, wait_ms).await?)),
            Err(Fault::Rejected(problem)) if problem.code == Code::RunUnreadable => {
                let view = self.store.unreadable_view(id)?;
                let view = view.ok_or_else(no_such_run::<StoreError>)?;
                Ok(Answered::new(200, &view))
            }
            Err(fault) => Err(fault),
        }
    }

    fn signal(self: &Rc<Self>, to: &RunId, signal: Signal) -> Result<Answered, Fault> {
        let (is_new, warning) =
            self.turn(|machine, store, now| Ok(machine.signal_with_warning(store, now, to, signal)?))?;
        let receipt = SignalReceipt { duplicate: !is_new, warning };
        Ok(Answered::new(if is_new { 202 } else { 200 }, &receipt))
    }

    fn act_as(self: &Rc<Self>, grant: Option<&Grant>, id: &RunId, action: Action) -> Result<Answered, Fault> {
        if let Some(grant) = grant
            && action.revives(self.find(id)?.status())
        {
            self.check_live(&grant.limits)?;
        }
        self.act(id, grant.map_or(ROOT, |grant| &grant.actor), action)?;
        Ok(Answered::new(200, &self.view(id)?))
    }

    fn act(self: &Rc<Self>, id: &RunId, by: &str, action: Action) -> Result<(), Fault> {
        self.turn(|machine, store, now| Ok(machine.act(store, now, id, by, action)?))
    }

    /// Does something to a slice of the runs that fit. One that cannot be changed keeps no other from it.
    fn act_on_all(
        self: &Rc<Self>,
        filter: &Filter,
        below: u64,
        limit: u32,
        action: BulkAction,
        by: &str,
        limits: &Limits,
    ) -> Result<Acted, Fault> {
        let found = self.store.find_runs(filter, None, below, limit, runtime::clock())?;
        let next = found.next.map(|reached| reached.number);
        let mut acted = Acted { changed: 0, unchanged: 0, next, top: self.store.top()? };
        for id in self.store.ids(&found.numbers)? {
            let run = match self.find(&id) {
                Ok(run) => run,
                // One that cannot be read, or is gone by now.
                Err(Fault::Rejected(_)) => {
                    acted.count(false);
                    continue;
                }
                Err(fault @ (Fault::Store(_) | Fault::Moved(_))) => return Err(fault),
            };
            match Fate::of(&run.workflow, run.status(), action) {
                Fate::PassedOver => {}
                Fate::Left => acted.count(false),
                Fate::Acted => acted.count(self.did(&run, by, action, limits)?),
            }
        }
        Ok(acted)
    }

    /// Whether something could be done to a run where it stands.
    fn did(self: &Rc<Self>, run: &Run, by: &str, action: BulkAction, limits: &Limits) -> Result<bool, Fault> {
        let action = match action {
            BulkAction::Cancel => Action::Cancel,
            BulkAction::Retry => Action::Retry,
            BulkAction::Restart => Action::Restart { from: None },
        };
        let is_allowed = if action.revives(run.status()) { self.check_live(limits) } else { Ok(()) };
        match is_allowed.and_then(|()| self.act(&run.id, by, action)) {
            Ok(()) => Ok(true),
            Err(Fault::Rejected(_)) => Ok(false),
            Err(fault @ (Fault::Store(_) | Fault::Moved(_))) => Err(fault),
        }
    }

    async fn start_run(
        self: &Rc<Self>,
        namespace: &str,
        new: NewRun,
        is_strict: bool,
        wait_ms: u64,
    ) -> Result<Answered, Fault> {
        self.prepare(namespace, &new.place)?;
        let Started { run, how } = self.turn(|machine, store, now| Ok(machine.start(store, now, new)?))?;
        // What has become of it is decided when its run begins.
        let gathers = run.gathering.as_ref().is_some_and(|known| known.until.is_some());
        let is_later = gathers && run.begins_at().is_some();
        let status = match how {
            StartedAs::New if is_later => 202,
            StartedAs::New => 201,
            StartedAs::Joined => 202,
            StartedAs::Skipped => 200,
            StartedAs::Before => return self.repeat(&run, is_strict, wait_ms).await,
        };
        if wait_ms == 0 {
            return Ok(started(status, &RunView::from(&run)));
        }
        let number = run.id.number;
        if how != StartedAs::New {
            return Ok(started(status, &self.view_at_end(&run, wait_ms).await?));
        }
        self.listeners.borrow_mut().begin_start(number);
        let view = self.view_at_end(&run, wait_ms).await;
        self.listeners.borrow_mut().end_start(number);
        Ok(started(status, &view?))
    }

    /// Answers a start whose key has started this run before.
    async fn repeat(&self, run: &Run, is_strict: bool, wait_ms: u64) -> Result<Answered, Fault> {
        if is_strict && wait_ms > 0 && self.listeners.borrow().is_starting(run.id.number) {
            let detail = format!(
                "The first request with this Idempotency-Key waits for the end of its run, {}. Show that run, or \
                 repeat the request later.",
                run.id
            );
            return Err(Problem::new(Code::IdempotencyKeyInFlight, detail).into());
        }
        Ok(Answered::new(200, &self.view_at_end(run, wait_ms).await?))
    }

    async fn reserve(
        self: &Rc<Self>,
        namespace: &str,
        place: &Place,
        key: &KeyRow,
        to: &str,
        wait_ms: u64,
    ) -> Result<Answered, Fault> {
        let to: Place =
            to.parse().map_err(|_| Problem::new(Code::InvalidRequest, "The key's next home is no place."))?;
        self.prepare(namespace, place)?;
        match self.turn(|machine, store, _| Ok(machine.reserve(store, key, &to)?))? {
            Reserved::Moved(to) => Ok(moved(&to)),
            Reserved::Run(run) => Ok(Answered::new(200, &self.view_at_end(&run, wait_ms).await?)),
        }
    }

    fn history(
        &self,
        id: &RunId,
        after: Seq,
        limit: usize,
        outline: bool,
        replay: bool,
    ) -> Result<Answered, Fault> {
        let run = self.find(id)?;
        let page = self.store.read_page(id.number, after, limit)?;
        let next = page.more.then(|| page.events.last().map(|record| record.seq)).flatten();
        let input = if after == Seq(0) { Some(self.store.input(id.number)?) } else { None };
        let replay = (replay && after == Seq(0)).then(|| run.replay_facts());
        let life = run.life.filter(|_| after == Seq(0));
        let events = page.events.into_iter().map(|RawRecord { seq, at, mut event }| {
            let (cut, mut bytes) = (!run.counts(seq), None);
            // What cannot be read is shown as it is.
            if outline && let Ok(mut whole) = event.read::<Event>() {
                bytes = whole.leave_out();
                if bytes.is_some()
                    && let Ok(without) = Payload::encode(&whole)
                {
                    event = without;
                }
            }
            HistoryEvent { seq, at, event, cut, bytes }
        });
        Ok(Answered::new(200, &History { input, life, events: events.collect(), next, replay }))
    }

    pub(super) fn find(&self, id: &RunId) -> Result<Run, Fault> {
        Ok(self.machine.borrow().find(&self.store, id)?)
    }

    pub(super) fn view(&self, id: &RunId) -> Result<RunView, Fault> {
        let run = self.find(id)?;
        let mut view = self.machine.borrow().view(&run);
        self.store.add_result(&mut view)?;
        Ok(view)
    }

    /// The run when it has ended, or the time is over.
    async fn view_at_end(&self, run: &Run, wait_ms: u64) -> Result<RunView, Fault> {
        if wait_ms > 0 && !run.status().is_terminal() {
            let ended = self.listeners.borrow_mut().end(run.id.number);
            let time_is_over = Delay::from(Duration::from_millis(wait_ms));
            if let Either::Left((Ok(view), _)) = select(ended, time_is_over).await {
                return Ok(view);
            }
        }
        self.view(&run.id)
    }
}

/// The random part of a new run's id: what the front has drawn, if it has.
fn suffix_of(nonce: Option<String>) -> String {
    let nonce = nonce.filter(|nonce| RunId::is_suffix(nonce));
    nonce.unwrap_or_else(|| RunId::suffix_from(runtime::random()))
}
