//! What a workflow does durable things with.

use std::{cell::RefCell, convert::Infallible, rc::Rc};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{
    Code, Life, Op, OpKind, Payload, RunId, Timestamp,
    program::{Progress, Units},
    queue::is_queue,
    stream::{Chunk, Item, Level, LogLine},
    topic::WAIT_PREFIX,
    trace::{SpanId, TraceParent, Traced},
    wait_token::{Issuer, WaitToken},
};
use uuid::Uuid;

use crate::{
    Env, Error, Result, Span, Workflow,
    app::AllTerms,
    env,
    ops::{Each, Emit, Invoke, Policy, SendJob, Sleep, Step, StepInfo, Token, Wait, WaitFor},
    random,
    vm::{Length, State, words},
};

/// The context of a workflow: its durable operations. Cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) state: Rc<RefCell<State>>,
    run: Rc<Identity>,
}

/// What never changes about a life of a run.
pub(crate) struct Identity {
    run: RunId,
    seed: String,
    started_at: Timestamp,
    life: u32,
    /// What the app says about the runs of its workflows.
    terms: AllTerms,
    /// What makes its tokens, where the engine has a public address.
    tokens: Option<Box<Issuer>>,
    /// Where its spans belong, if anybody traces them.
    trace: Option<Box<Traced>>,
}

impl Identity {
    pub(crate) fn new(
        run: RunId,
        seed: String,
        started_at: Timestamp,
        life: Option<Life>,
        terms: AllTerms,
        tokens: Option<Box<Issuer>>,
        trace: Option<Box<Traced>>,
    ) -> Self {
        Self { run, seed, started_at, life: life.map_or(1, |life| life.number), terms, tokens, trace }
    }
}

impl Ctx {
    pub(crate) fn new(state: Rc<RefCell<State>>, identity: Identity) -> Self {
        Self { state, run: Rc::new(identity) }
    }

    /// Runs code and records its result: `ctx.step("charge", async || charge(&order).await).await?`.
    ///
    /// A recorded step does not run again: on replay it returns the recorded result. An error is retried by the
    /// step's [`Step::retry`] policy; a [`crate::Terminal`] error is not. A step is identified by its name and its
    /// occurrence.
    ///
    /// Return from the code what the workflow needs. It cannot change the workflow's variables, because a replay does
    /// not run it and the change would be lost.
    pub fn step<'a, T, F>(&self, name: impl Into<String>, code: F) -> Step<'a, T>
    where
        T: Serialize + DeserializeOwned + 'a,
        F: AsyncFn() -> Result<T> + 'a,
    {
        self.step_with(name, async move |_| code().await)
    }

    /// Like [`Self::step`], for code that needs its idempotency key or attempt.
    pub fn step_with<'a, T, F>(&self, name: impl Into<String>, code: F) -> Step<'a, T>
    where
        T: Serialize + DeserializeOwned + 'a,
        F: AsyncFn(StepInfo) -> Result<T> + 'a,
    {
        let op = self.state.borrow_mut().name_op(OpKind::Step, name.into());
        Step::new(self.clone(), op, Policy::default(), code)
    }

    /// Runs a step for each item, several at the same time, and returns the results in the order of the items:
    /// `ctx.each("notify", &order.notify, async |address, info| notify(address, &info).await).await?`.
    ///
    /// All steps run to their end, even when one of them fails; see [`Each`].
    pub fn each<'a, I, T, F>(
        &self,
        name: impl Into<String>,
        items: impl IntoIterator<Item = I>,
        code: F,
    ) -> Each<'a, T>
    where
        I: Clone + 'a,
        T: Serialize + DeserializeOwned + 'a,
        F: AsyncFn(I, StepInfo) -> Result<T> + 'a,
    {
        let name = name.into();
        let named = items.into_iter().map(|item| {
            let op = self.state.borrow_mut().name_op(OpKind::Step, name.clone());
            (op, item)
        });
        Each::new(self.clone(), named.collect(), code)
    }

    /// Secrets, variables and bindings of the Worker: `ctx.env().secret("API_KEY")?`. Read them inside steps.
    pub fn env(&self) -> Env {
        env::env()
    }

    /// Sleeps, for a second or a year: `ctx.sleep("before the reminder", "3 days").await`. A sleeping run uses no
    /// compute.
    ///
    /// `how_long` is a [`std::time::Duration`] or text: see [`Span`].
    pub fn sleep(&self, name: impl Into<String>, how_long: impl Into<Span>) -> Sleep {
        let op = self.state.borrow_mut().name_op(OpKind::Sleep, name.into());
        let ms = self.millis_of(how_long.into()).unwrap_or_default();
        Sleep::new(self.clone(), op, Length::Ms(ms))
    }

    /// Sleeps until a point in time: `ctx.sleep_until("the deadline", order.deadline).await`. A time in the past ends
    /// the sleep immediately.
    pub fn sleep_until(&self, name: impl Into<String>, time: Timestamp) -> Sleep {
        let op = self.state.borrow_mut().name_op(OpKind::Sleep, name.into());
        Sleep::new(self.clone(), op, Length::Until(time))
    }

    /// How many milliseconds that is. Text that cannot be read fails the run.
    pub(crate) fn millis_of(&self, span: Span) -> Option<u64> {
        span.millis().map_err(|error| self.state.borrow_mut().fail(error)).ok()
    }

    /// Whether this run's code has a patch: `if ctx.patched("send by mail") { new way } else { old way }`.
    ///
    /// A run that passed this place before the patch was deployed keeps the old path; all others take the new one.
    /// When no run on the old path is left, remove the old branch, and later the call itself.
    pub fn patched(&self, name: &str) -> bool {
        self.state.borrow_mut().is_patched(name)
    }

    /// Reports the progress of the run to people, from 0 to 100. The latest value counts. It is sent with the run's
    /// next commit.
    pub fn progress(&self, percent: f64, message: impl Into<String>) {
        let percent = if percent.is_nan() { 0.0 } else { percent.clamp(0.0, 100.0) };
        let progress = Progress { percent, message: message.into(), ..Progress::default() };
        self.state.borrow_mut().asides().set_progress(progress);
    }

    /// Makes the run searchable by a name and a value, such as `customer` and a customer's number. A later value
    /// replaces an earlier one with the same name. It is sent with the run's next commit.
    ///
    /// A run has up to 16 attributes. A name has 1 to 64 bytes, without colons, control or invisible characters; an
    /// invalid name fails the run. A value is cut at 256 bytes.
    #[expect(clippy::needless_pass_by_value, reason = "a value reads better than a reference to one")]
    pub fn set_attribute(&self, name: impl Into<String>, value: impl ToString) {
        self.state.borrow_mut().asides().set_attribute(name.into(), value.to_string());
    }

    /// Reports the progress of the run in units: `ctx.progress_of(files_copied, files, "copying")`.
    pub fn progress_of(&self, done: u64, total: u64, message: impl Into<String>) {
        #[expect(clippy::cast_precision_loss, reason = "nobody counts percents to 16 places")]
        let percent = if total == 0 { 100.0 } else { (done as f64 / total as f64 * 100.0).min(100.0) };
        let units = Some(Units { done, total });
        let progress = Progress { percent, message: message.into(), units, ..Progress::default() };
        self.state.borrow_mut().asides().set_progress(progress);
    }

    /// The run's log, for people who follow it: `ctx.log().info("the order is paid")`. It also works inside a step. A
    /// replay does not repeat its lines.
    pub fn log(&self) -> Log<'_> {
        Log { ctx: self }
    }

    /// Publishes a chunk of data for people who follow the run: `ctx.publish("tokens", &token)`. It also works inside
    /// a step, while it runs. A chunk has at most 64 KiB of JSON; a larger one, or one that cannot be written as
    /// JSON, is dropped.
    pub fn publish<T: Serialize + ?Sized>(&self, name: &str, value: &T) {
        let Ok(value) = Payload::encode(value) else { return };
        let name = name.to_owned();
        self.state.borrow_mut().publish(|op| Item::Chunk(Chunk { name, value, op }));
    }

    /// Waits for a signal with this name. A signal that arrived earlier was kept.
    pub fn wait<T: DeserializeOwned>(&self, signal: impl Into<String>) -> Wait<T> {
        let op = self.name_signal(signal.into());
        Wait::new(self.clone(), op)
    }

    /// Names a wait for a signal. The names of waits for events are no names of signals, and fail the run.
    fn name_signal(&self, name: String) -> Op {
        let mut state = self.state.borrow_mut();
        if name.starts_with(WAIT_PREFIX) {
            let text = format!(
                "'{name}' cannot be the name of a signal or a token: it begins with '{WAIT_PREFIX}'. Use another name, or \
                 wait for an event with `ctx.wait_for`"
            );
            state.fail(Error::terminal(text));
        }
        state.name_op(OpKind::Wait, name)
    }

    /// A wait that a person or a system completes by a link, without a key: `let approval = ctx.token("approval");`. See
    /// [`Token`].
    ///
    /// The link needs the engine's public address, the variable `STEPWELL_URL`. Without it the run is paused here.
    pub fn token<T: DeserializeOwned>(&self, name: impl Into<String>) -> Token<T> {
        let op = self.name_signal(name.into());
        let mut state = self.state.borrow_mut();
        match &self.run.tokens {
            Some(issuer) => state.asides().use_token_key(&issuer.key),
            None => state.stop(words::no_address(&op)),
        }
        let now = state.now();
        drop(state);
        Token::new(self.clone(), op, now)
    }

    /// Waits for an event, such as one that another run emits or that somebody sends with `POST /api/events`:
    /// `ctx.wait_for::<Paid>("order/paid").matching("event.data.id == input.id").within("3 days").await?`. See [`WaitFor`].
    ///
    /// The name may end with `*`: `order/*`. The waits of one name in a run get each event once.
    pub fn wait_for<T: DeserializeOwned>(&self, events: impl Into<String>) -> WaitFor<T> {
        let events = events.into();
        let op = self.state.borrow_mut().name_op(OpKind::Wait, format!("{WAIT_PREFIX}{events}"));
        WaitFor::new(self.clone(), op, events)
    }

    /// Emits an event: `ctx.emit("order/paid", &order).await?`. Gives the event's id.
    ///
    /// It is sent once, however often the run is replayed, and stored by its topic even if everything crashes right after.
    /// Triggers start runs for it, and waits of runs get it.
    pub fn emit<T: Serialize + ?Sized>(&self, name: impl Into<String>, data: &T) -> Emit {
        let name = name.into();
        let op = self.state.borrow_mut().name_op(OpKind::Step, format!("emit {name}"));
        Emit::new(self.clone(), op, name, data)
    }

    /// Sends a job to a queue: `ctx.send("emails", &email).await?`. See [`SendJob`] for delays, priorities, groups and
    /// dedupe ids.
    ///
    /// It is sent once, however often the run is replayed, and the queue stores it even if everything crashes right after.
    /// The run does not wait for what becomes of it. If you need that, use [`Self::invoke`]. A queue that does not exist is
    /// created.
    ///
    /// # Errors
    /// If no queue can have that name, the body has more than 1,900,000 bytes, or a priority, group or dedupe id is none.
    pub fn send<T: Serialize + ?Sized>(&self, queue: impl Into<String>, body: &T) -> SendJob {
        let queue = queue.into();
        // A name that is none may be of any length.
        let shown = if is_queue(&queue) { queue.as_str() } else { "?" };
        let op = self.state.borrow_mut().name_op(OpKind::Step, format!("send {shown}"));
        SendJob::new(self.clone(), op, queue, body)
    }

    /// The link of a token of this run; empty if the run cannot make any, and is paused for it.
    pub(crate) fn link(&self, op: &Op, expires_at: Timestamp) -> String {
        let Identity { run, life, tokens, .. } = &*self.run;
        let token = |namespace: &str| WaitToken {
            namespace: namespace.to_owned(),
            run: run.clone(),
            life: *life,
            name: op.name.clone(),
            occurrence: op.occurrence,
            expires_at,
        };
        tokens.as_ref().map(|issuer| issuer.address(&token(&issuer.namespace))).unwrap_or_default()
    }

    /// Runs another workflow as a child of this run, and returns its output: `let receipt = ctx.invoke(charge,
    /// order).await?`. See [`Invoke`].
    ///
    /// `workflow` is a function of the app with `#[workflow]`. Its types determine the input and the output.
    pub fn invoke<I, O>(&self, workflow: fn() -> Workflow<I, O>, input: I) -> Invoke<O>
    where
        I: Serialize,
        O: DeserializeOwned,
    {
        let name = workflow().name();
        if !self.run.terms.contains_key(name) {
            self.state.borrow_mut().fail(self.no_such_workflow(name));
        }
        self.invoke_named(name, input)
    }

    /// Like [`Self::invoke`], for a workflow whose name is known only at run time: `ctx.invoke_named::<Order,
    /// Receipt>("charge", order).await?`.
    ///
    /// The types are not checked before the child runs: a child that cannot read its input fails, and a run that
    /// cannot read its child's output is paused.
    pub fn invoke_named<I, O>(&self, workflow: impl Into<String>, input: I) -> Invoke<O>
    where
        I: Serialize,
        O: DeserializeOwned,
    {
        let workflow = workflow.into();
        let terms = self.run.terms.get(workflow.as_str()).cloned().unwrap_or_default();
        let op = self.state.borrow_mut().name_op(OpKind::Child, workflow.clone());
        Invoke::new(self.clone(), op, workflow, &input, &terms)
    }

    fn no_such_workflow(&self, name: &str) -> Error {
        let known: Vec<_> = self.run.terms.keys().copied().collect();
        let text = format!(
            "the run invokes workflow '{name}', which its app does not have; it has: {}. Add it with `.workflow({name})`, \
             or invoke a workflow of another app with `ctx.invoke_named`",
            known.join(", ")
        );
        Error::terminal(text).coded(Code::WorkflowNotFound)
    }

    /// Ends this life of the run and begins the next one, with a new input and an empty history. Use it in endless
    /// loops. Code after it does not run:
    ///
    /// ```
    /// # use stepwell::prelude::*;
    /// #[workflow]
    /// async fn poll_feed(ctx: Ctx, mut seen: u64) -> Result<()> {
    ///     for _ in 0..100 {
    ///         seen = ctx.step("read", async || Ok(seen + 1)).await?;
    ///         ctx.sleep("until the next look", "1 minute").await;
    ///     }
    ///     ctx.continue_as_new(&seen).await
    /// }
    /// # let _ = poll_feed;
    /// ```
    ///
    /// The run keeps its id, key, tags, attributes and unread signals. Steps that are still running are dropped, as
    /// when the workflow returns. The workflow's timeout, random numbers and occurrences start over. If a life did
    /// nothing, the next one starts after a delay, and ten such lives in a row fail the run.
    ///
    /// In a `#[workflow]` function, the input must have the workflow's input type; anything else does not compile.
    pub async fn continue_as_new<I: Serialize + ?Sized>(&self, input: &I) -> ! {
        let encoded = Payload::encode(input);
        match encoded {
            Ok(input) => self.state.borrow_mut().begin_anew(input),
            Err(error) => {
                let text = format!("the input of the next life cannot be written as JSON: {error}");
                self.state.borrow_mut().fail(Error::terminal(text));
            }
        }
        match std::future::pending::<Infallible>().await {}
    }

    /// Which life of the run this is, from 1: see [`Self::continue_as_new`].
    pub fn life(&self) -> u32 {
        self.run.life
    }

    /// The idempotency key of a step: the same for all its attempts, and unique to it in all lives.
    pub(crate) fn idempotency_key(&self, op: &Op) -> String {
        let Identity { run, life, .. } = &*self.run;
        if *life == 1 { format!("{run}/{op}") } else { format!("{run}/{life}/{op}") }
    }

    /// What an attempt of a step passes to the services that it calls.
    pub(crate) fn traceparent(&self, op: &Op, attempt: u32) -> Option<String> {
        let Traced { parent, chapter } = self.run.trace.as_deref()?;
        let span = SpanId::of_op(&self.run.run, *chapter, op, attempt);
        Some(TraceParent { span, ..*parent }.to_string())
    }

    /// The time, the same on every replay: when the latest event of this run was recorded.
    pub fn now(&self) -> Timestamp {
        self.state.borrow().now()
    }

    /// When the run was accepted, in any life.
    pub fn started_at(&self) -> Timestamp {
        self.run.started_at
    }

    /// The run's id.
    pub fn run_id(&self) -> &RunId {
        &self.run.run
    }

    /// A random number, the same on every replay. Numbers drawn inside a step do not affect those outside.
    pub fn random(&self) -> u64 {
        let block = self.random_block();
        u64::from_be_bytes(block[..8].try_into().expect("a block has 32 bytes"))
    }

    /// A random UUID, the same on every replay.
    pub fn uuid(&self) -> Uuid {
        let block = self.random_block();
        let bytes = block[..16].try_into().expect("a block has 32 bytes");
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    fn random_block(&self) -> [u8; 32] {
        let (step, n) = self.state.borrow_mut().next_random();
        match step {
            None => random::block(&self.run.seed, n),
            Some(op) => random::block(&format!("{}/{op}", self.run.seed), n),
        }
    }
}

/// A run's log: see [`Ctx::log`].
#[derive(Clone, Copy)]
pub struct Log<'a> {
    ctx: &'a Ctx,
}

impl Log<'_> {
    /// For debugging.
    pub fn debug(&self, message: impl Into<String>) {
        self.say(Level::Debug, message.into());
    }

    /// For everyone who follows the run.
    pub fn info(&self, message: impl Into<String>) {
        self.say(Level::Info, message.into());
    }

    /// Something unexpected happened.
    pub fn warn(&self, message: impl Into<String>) {
        self.say(Level::Warn, message.into());
    }

    /// Something went wrong.
    pub fn error(&self, message: impl Into<String>) {
        self.say(Level::Error, message.into());
    }

    fn say(self, level: Level, mut message: String) {
        // Most of a long line is better than nothing of it.
        let cut = (0..=Item::MESSAGE_LENGTH_MAX).rev().find(|&at| message.is_char_boundary(at));
        if message.len() > Item::MESSAGE_LENGTH_MAX {
            message.truncate(cut.unwrap_or_default());
        }
        self.ctx.state.borrow_mut().publish(|op| Item::Log(LogLine { level, message, op }));
    }
}
