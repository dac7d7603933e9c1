//! An app: the workflows and the handlers of jobs that a program has.

use std::{collections::BTreeMap, marker::PhantomData, pin::Pin, rc::Rc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use stepwell_protocol::{
    Payload,
    lane::{Flow, Hold, LimitSpec, StartRule},
    manifest::{Manifest, ScheduleDescription, TriggerDescription, WorkerVersion},
    program::{Dispatch, WorkflowDescription, is_reserved},
    topic::{EventWait, topic_of},
};

use crate::{Ctx, Error, JobHandler, Result, Schedule, Trigger, ops::millis, shape::shape_of};

/// A workflow's future, whatever its types.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Payload>>>>;

type Start = Box<dyn Fn(Ctx, &Payload) -> Result<Running>>;

/// The JSON Schema of a workflow's input. Asked for only when the app describes itself.
type Schema = Box<dyn Fn() -> Option<Value>>;

/// A workflow with its name and the types of its input and output. `#[workflow]` makes one of an `async fn`.
pub struct Workflow<I, O = Payload> {
    name: &'static str,
    terms: Terms,
    schema: Schema,
    schedules: Vec<Schedule>,
    triggers: Vec<Trigger>,
    start: Start,
    types: PhantomData<fn(I) -> O>,
}

/// What an app says about the runs of one of its workflows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub timeout_ms: Option<u64>,
    pub retention_ms: Option<u64>,
    pub dispatch: Dispatch,
    /// The address that is called when one of them ends.
    pub callback: Option<String>,
    /// How many of them are at work at once, if that is limited.
    pub flow: Option<Box<Flow>>,
    key_required: bool,
    /// The event that cancels a run.
    cancel_on: Option<EventWait>,
}

/// The terms of all workflows of an app, by name.
pub(crate) type AllTerms = Rc<BTreeMap<&'static str, Terms>>;

impl<I: DeserializeOwned + 'static, O> Workflow<I, O> {
    /// A workflow with this name that runs this code.
    pub fn new<F, R>(name: &'static str, code: F) -> Self
    where
        F: Fn(Ctx, I) -> R + 'static,
        R: Future<Output = Result<Payload>> + 'static,
    {
        let start: Start = Box::new(move |ctx, input| {
            let input = input
                .decode()
                .map_err(|error| Error::msg(format!("the input does not fit workflow '{name}': {error}")))?;
            Ok(Box::pin(code(ctx, input)))
        });
        let schema: Schema = Box::new(|| shape_of::<I>().schema());
        Self::bare(name, schema, start)
    }

    /// How long a run of it may take; after that it is failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout_ms = Some(millis(timeout));
        self
    }

    /// How long a run is kept after its end, before it is deleted. Zero keeps it forever.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.terms.retention_ms = Some(millis(retention));
        self
    }

    /// The https address that is called when a run of it ends: `.callback("https://example.com/done")`. Whoever starts a
    /// run may name another one for it.
    #[must_use]
    pub fn callback(mut self, url: &str) -> Self {
        self.terms.callback = Some(url.to_owned());
        self
    }

    /// How many of its runs are at work at once. A run that sleeps or waits is not at work: see [`Self::hold`].
    #[must_use]
    pub fn concurrency(self, max: u32) -> Self {
        self.limit(LimitSpec { max, key: None, per_ms: None, drop: false, max_by: None })
    }

    /// How many of its runs are at work at once for each value of an expression over `input`: `"input.customer"`.
    /// Several limits can be declared; a run goes to work when each of them has room.
    #[must_use]
    pub fn concurrency_by(self, key: &str, max: u32) -> Self {
        self.limit(LimitSpec { max, key: Some(key.to_owned()), per_ms: None, drop: false, max_by: None })
    }

    /// How many of its runs begin within any such time. Those beyond it wait.
    #[must_use]
    pub fn rate(self, max: u32, per: Duration) -> Self {
        self.limit(LimitSpec { max, key: None, per_ms: Some(millis(per)), drop: false, max_by: None })
    }

    /// How many of its runs begin within any such time, for each value of an expression over `input`.
    #[must_use]
    pub fn rate_by(self, key: &str, max: u32, per: Duration) -> Self {
        self.limit(LimitSpec {
            max,
            key: Some(key.to_owned()),
            per_ms: Some(millis(per)),
            drop: false,
            max_by: None,
        })
    }

    /// Spreads its runs evenly: at most `max` begin within `per`, and at most `burst` of them close together. Those beyond
    /// it wait.
    #[must_use]
    pub fn throttle(self, max: u32, per: Duration, burst: u32) -> Self {
        self.limit(throttle(None, max, per, burst))
    }

    /// The same for each value of an expression over `input`.
    #[must_use]
    pub fn throttle_by(self, key: &str, max: u32, per: Duration, burst: u32) -> Self {
        self.limit(throttle(Some(key.to_owned()), max, per, burst))
    }

    /// Another limit. With `drop`, starts beyond a rate are refused, and become no runs that wait.
    #[must_use]
    pub fn limit(mut self, limit: LimitSpec) -> Self {
        self.flow().limits.push(limit);
        self
    }

    /// How starts become runs, if not each of them a run of its own: singleton, debounce or batch.
    #[must_use]
    pub fn starts(mut self, rule: StartRule) -> Self {
        self.flow().starts = Some(rule);
        self
    }

    fn flow(&mut self) -> &mut Flow {
        self.terms.flow.get_or_insert_default()
    }

    /// Which of its waiting runs go to work first: an expression over `input`, a number from -100 to 100. Each point is
    /// worth ten seconds of waiting.
    #[must_use]
    pub fn priority(mut self, expression: &str) -> Self {
        self.flow().priority = Some(expression.to_owned());
        self
    }

    /// Lets the owners of waiting runs take turns, however many each of them has: an expression over `input` says whose a
    /// run is.
    #[must_use]
    pub fn fair_by(mut self, expression: &str) -> Self {
        self.flow().fair_by = Some(expression.to_owned());
        self
    }

    /// The lane that it shares with other workflows of the app: their runs count together. They declare the same limits.
    #[must_use]
    pub fn lane(mut self, name: &str) -> Self {
        self.flow().lane = Some(name.to_owned());
        self
    }

    /// For how long a run counts: while its code is at work, or from its beginning to its end.
    #[must_use]
    pub fn hold(mut self, hold: Hold) -> Self {
        self.flow().hold = hold;
        self
    }

    /// How its program is called.
    #[must_use]
    pub fn dispatch(mut self, dispatch: Dispatch) -> Self {
        self.terms.dispatch = dispatch;
        self
    }

    /// Lets a run of it be started only with an idempotency key.
    #[must_use]
    pub fn requires_key(mut self) -> Self {
        self.terms.key_required = true;
        self
    }

    /// Cancels a run of it when such an event comes: `.cancel_on("order/cancelled", Some("event.data.id == input.id"))`.
    ///
    /// # Panics
    /// If the name is none of events: a mistake in the program.
    #[must_use]
    pub fn cancel_on(mut self, events: &str, condition: Option<&str>) -> Self {
        assert!(
            topic_of(events).is_some(),
            "'{events}' names no events: write 'order/cancelled' or 'order/*'"
        );
        let (on, when) = (events.to_owned(), condition.map(ToOwned::to_owned));
        self.terms.cancel_on = Some(EventWait { on, when, looking_back_ms: None, cancels: true });
        self
    }

    /// Starts runs of it by itself, with `null` as their input.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// The JSON Schema of its input, in place of what Stepwell finds out about the type by itself: what `schemars` makes
    /// of it, say. It stands in the app's manifest, for clients to check inputs by; the engine does not.
    #[must_use]
    pub fn input_schema<S: Serialize + 'static>(self, schema: fn() -> S) -> Self {
        Self { schema: Box::new(move || serde_json::to_value(schema()).ok()), ..self }
    }
}

/// A rate that lets in `burst` runs in the time that they have on average.
fn throttle(key: Option<String>, max: u32, per: Duration, burst: u32) -> LimitSpec {
    let per_ms = millis(per).saturating_mul(u64::from(burst)).div_ceil(u64::from(max.max(1)));
    LimitSpec { max: burst, key, per_ms: Some(per_ms), drop: false, max_by: None }
}

impl<O> Workflow<(), O> {
    /// A workflow that takes no input: whatever it is started with is ignored.
    pub fn without_input<F, R>(name: &'static str, code: F) -> Self
    where
        F: Fn(Ctx) -> R + 'static,
        R: Future<Output = Result<Payload>> + 'static,
    {
        let start: Start = Box::new(move |ctx, _| Ok(Box::pin(code(ctx))));
        Self::bare(name, Box::new(|| None), start)
    }
}

impl<I, O> Workflow<I, O> {
    fn bare(name: &'static str, schema: Schema, start: Start) -> Self {
        let (schedules, triggers) = (Vec::new(), Vec::new());
        Self { name, terms: Terms::default(), schema, schedules, triggers, start, types: PhantomData }
    }

    /// Starts runs of it by events.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.triggers.push(trigger);
        self
    }

    /// Its name, by which runs are started.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// What a workflow's function returns: gives the type of its output.
#[diagnostic::on_unimplemented(
    message = "a workflow returns `stepwell::Result<T>`, and this one returns `{Self}`",
    label = "not a `Result`"
)]
pub trait Returns {
    /// What the workflow gives.
    type Output;
}

impl<T, E> Returns for Result<T, E> {
    type Output = T;
}

/// The workflows that a program has.
#[derive(Default)]
pub struct App {
    starters: BTreeMap<&'static str, Start>,
    schemas: BTreeMap<&'static str, Schema>,
    schedules: BTreeMap<String, ScheduleDescription>,
    /// By their topics and names.
    triggers: BTreeMap<String, TriggerDescription>,
    /// By their queues.
    jobs: BTreeMap<&'static str, JobHandler>,
    terms: AllTerms,
}

impl App {
    /// An app without workflows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workflow: what `#[workflow]` has made of a function goes by the function's name.
    ///
    /// # Panics
    /// If there is one of that name already, or the name begins with `stepwell.`: both are mistakes in the program.
    #[must_use]
    pub fn workflow<I, O>(mut self, define: fn() -> Workflow<I, O>) -> Self {
        let Workflow { name, terms, schema, schedules, triggers, start, .. } = define();
        let before = self.starters.insert(name, start);
        self.schemas.insert(name, schema);
        Rc::make_mut(&mut self.terms).insert(name, terms);
        assert!(!is_reserved(name), "the name '{name}' is the engine's own: begin it with another word");
        assert!(before.is_none(), "there are two workflows named '{name}'");
        let app = schedules
            .into_iter()
            .fold(self, |app, schedule| app.declare(schedule.describe(name, Payload::null())));
        triggers.into_iter().fold(app, |app, trigger| app.declare_trigger(trigger.describe(name)))
    }

    /// Handles the jobs of a queue: what `#[job]` has made of a function goes by the function's name.
    ///
    /// # Panics
    /// If the queue has a handler already: a mistake in the program.
    #[must_use]
    pub fn job(mut self, define: fn() -> JobHandler) -> Self {
        let mut handler = define();
        let (queue, triggers) = (handler.queue(), handler.take_triggers());
        let before = self.jobs.insert(queue, handler);
        assert!(before.is_none(), "there are two handlers of the queue '{queue}'");
        triggers.into_iter().fold(self, |app, trigger| app.declare_trigger(trigger.describe_for(queue)))
    }

    /// Starts a run of a workflow for each event of this name, with what the event says: `.on("order/paid", charge)`.
    ///
    /// # Panics
    /// As [`Self::trigger`].
    #[must_use]
    pub fn on<I, O>(self, events: &str, define: fn() -> Workflow<I, O>) -> Self {
        self.trigger(Trigger::on(events), define)
    }

    /// Starts runs of a workflow by events. The workflow is one of the app's.
    ///
    /// # Panics
    /// If the topic of the events has a trigger of that name already: a mistake in the program.
    #[must_use]
    pub fn trigger<I, O>(self, trigger: Trigger, define: fn() -> Workflow<I, O>) -> Self {
        self.declare_trigger(trigger.describe(define().name))
    }

    fn declare_trigger(mut self, trigger: TriggerDescription) -> Self {
        let name = trigger.full_name();
        let before = self.triggers.insert(name.clone(), trigger);
        assert!(before.is_none(), "there are two triggers named '{name}': name one with `Trigger::named`");
        self
    }

    /// Starts runs of a workflow by a cron expression, with this input: `.cron("0 9 * * MON-FRI", report, &())`.
    ///
    /// # Panics
    /// As [`Self::schedule`].
    #[must_use]
    pub fn cron<I: Serialize, O>(self, expression: &str, define: fn() -> Workflow<I, O>, input: &I) -> Self {
        self.schedule(Schedule::cron(expression), define, input)
    }

    /// Starts runs of a workflow at intervals or on days, with this input: `.every("5 minutes", report, &())`.
    ///
    /// # Panics
    /// As [`Self::schedule`].
    #[must_use]
    pub fn every<I: Serialize, O>(self, interval: &str, define: fn() -> Workflow<I, O>, input: &I) -> Self {
        self.schedule(Schedule::every(interval), define, input)
    }

    /// Starts runs of a workflow by a schedule, with this input. The workflow is one of the app's.
    ///
    /// # Panics
    /// If there is a schedule of that name already, or the input cannot be written as JSON: both are mistakes in the
    /// program.
    #[must_use]
    pub fn schedule<I: Serialize, O>(
        self,
        schedule: Schedule,
        define: fn() -> Workflow<I, O>,
        input: &I,
    ) -> Self {
        let name = define().name;
        let input = Payload::encode(input).unwrap_or_else(|error| {
            panic!("the input of a schedule of '{name}' cannot be written as JSON: {error}")
        });
        self.declare(schedule.describe(name, input))
    }

    fn declare(mut self, schedule: ScheduleDescription) -> Self {
        let name = schedule.name.clone();
        let before = self.schedules.insert(name.clone(), schedule);
        assert!(before.is_none(), "there are two schedules named '{name}': name one with `Schedule::named`");
        self
    }

    /// The names of its workflows, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.starters.keys().copied()
    }

    /// What it declares.
    pub fn manifest(&self) -> Manifest {
        self.manifest_of(None)
    }

    /// What a version of a Worker declares that has it.
    pub(crate) fn manifest_of(&self, version: Option<WorkerVersion>) -> Manifest {
        let workflows = self.terms.iter().map(|(name, terms)| WorkflowDescription {
            name: (*name).to_owned(),
            timeout_ms: terms.timeout_ms,
            retention_ms: terms.retention_ms,
            dispatch: terms.dispatch,
            key_required: terms.key_required,
            callback: terms.callback.clone(),
            flow: terms.flow.clone(),
            input_schema: self
                .schemas
                .get(name)
                .and_then(|schema| schema())
                .and_then(|schema| Payload::encode(&schema).ok()),
        });
        let schedules = self.schedules.values().cloned().collect();
        let triggers = self.triggers.values().cloned().collect();
        let jobs = self.jobs.values().map(JobHandler::describe).collect();
        let manifest = Manifest::new(workflows.collect(), version);
        manifest.with_schedules(schedules).with_triggers(triggers).with_jobs(jobs)
    }

    /// The event that cancels a run of this workflow.
    pub(crate) fn cancel_on(&self, name: &str) -> Option<EventWait> {
        self.terms.get(name)?.cancel_on.clone()
    }

    /// How long a run of this workflow may take.
    #[cfg(feature = "testing")]
    pub(crate) fn timeout_ms(&self, name: &str) -> Option<u64> {
        self.terms.get(name)?.timeout_ms
    }

    /// The schedules that it declares, by name.
    #[cfg(feature = "testing")]
    pub(crate) fn schedules(&self) -> impl Iterator<Item = &ScheduleDescription> {
        self.schedules.values()
    }

    /// The triggers that it declares, by topic and name.
    #[cfg(feature = "testing")]
    pub(crate) fn triggers(&self) -> impl Iterator<Item = &TriggerDescription> {
        self.triggers.values()
    }

    /// The handler of a queue's jobs.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn handler(&self, queue: &str) -> Option<&JobHandler> {
        self.jobs.get(queue)
    }

    /// How a run of this workflow is started.
    pub(crate) fn starter(&self, name: &str) -> Option<&Start> {
        self.starters.get(name)
    }

    /// What it says about the runs of its workflows.
    pub(crate) fn terms(&self) -> AllTerms {
        self.terms.clone()
    }
}

/// Encodes what a workflow returned.
pub fn encode_output<T: Serialize>(output: &T) -> Result<Payload> {
    Payload::encode(output)
        .map_err(|error| Error::msg(format!("the output cannot be written as JSON: {error}")))
}
