//! Tests of workflows: on the real machine, in memory, in virtual time. Needs the feature `testing`.
//!
//! ```
//! use stepwell::{prelude::*, testing::Test};
//!
//! #[workflow]
//! async fn remind(ctx: Ctx, name: String) -> Result<String> {
//!     ctx.sleep("a year", "365 days").await;
//!     let mail = ctx.step("send", async || Err::<String, _>(Error::msg("no mail server here"))).await?;
//!     Ok(format!("{mail} to {name}"))
//! }
//!
//! let outcome = Test::new(App::new().workflow(remind))
//!     .mock("send", |_| Ok("sent"))
//!     .run("remind", "Ada");
//! assert_eq!(outcome.output::<String>(), "sent to Ada");
//! assert_eq!(outcome.slept(), Duration::from_secs(365 * 24 * 60 * 60));
//! ```
//!
//! [`Test::crash_everywhere`] runs a workflow again and again, and kills it before and after each commit: it finds
//! code that does not do the same on every replay.
//!
//! ```should_panic
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use stepwell::{prelude::*, testing::Test};
//!
//! static CALLS: AtomicU32 = AtomicU32::new(0);
//!
//! #[workflow]
//! async fn flips(ctx: Ctx) -> Result<()> {
//!     // A replay counts on, and takes the other way.
//!     if CALLS.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
//!         ctx.step("heads", async || Ok(())).await?;
//!     } else {
//!         ctx.step("tails", async || Ok(())).await?;
//!     }
//!     Ok(())
//! }
//!
//! Test::new(App::new().workflow(flips)).crash_everywhere("flips", &());
//! ```
//!
//! Owns: mocks, virtual time, deaths and what is compared after them. Does not own: what a run does, which is the
//! same machine and the same VM as in production.

mod children;
mod clock;
mod crashes;
mod effects;
#[doc(hidden)]
pub mod engine;
mod events;
mod jobs;
mod once_more;
mod outcome;
mod replay;
mod schedules;
mod script;
mod triggers;
mod visits;
mod webhooks;
mod woken;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{Payload, Timestamp, topic::NewEvent};

pub use clock::{takes, timer};
pub use crashes::crash_everywhere;
pub use effects::{Effects, effect};
pub use outcome::Outcome;
pub use replay::replay;
pub use schedules::Tick;
pub use triggers::Triggered;
pub use webhooks::{Delivered, Webhook};

use self::{
    children::{ChildMock, ChildMocks},
    engine::{Death, Engine, Outside},
    script::Awaited,
};
use crate::{
    App, Error, Result, StepInfo,
    env::{self, Values},
    ops::millis,
};

type Mock = Box<dyn Fn(&StepInfo) -> Result<Payload>>;
type Mocks = BTreeMap<String, Mock>;

/// A test of an app's workflows: what happens around a run of one of them.
pub struct Test {
    app: Rc<App>,
    mocks: Mocks,
    child_mocks: ChildMocks,
    outside: Vec<(u64, Outside)>,
    when_waiting: Vec<Awaited>,
    /// How many tokens of each name it completes.
    tokens: BTreeMap<String, u32>,
    /// What is sent as soon as the run waits for it.
    events: Vec<NewEvent>,
    timeout: Option<Duration>,
    delay: Duration,
    env: BTreeMap<String, String>,
}

impl Test {
    /// A test of this app.
    ///
    /// # Panics
    ///
    /// If a deploy would refuse what the app declares: a limit with a key that is no expression, a schedule that cannot be
    /// read, two workflows of one lane that disagree.
    #[track_caller]
    pub fn new(app: App) -> Self {
        if let Err(problem) = stepwell_core::catalog::check_manifest(&app.manifest(), &[]) {
            panic!("a deploy of this app would be refused: {}", problem.detail);
        }
        Self {
            app: Rc::new(app),
            mocks: Mocks::new(),
            child_mocks: ChildMocks::new(),
            outside: Vec::new(),
            when_waiting: Vec::new(),
            tokens: BTreeMap::new(),
            events: Vec::new(),
            timeout: None,
            delay: Duration::ZERO,
            env: BTreeMap::new(),
        }
    }

    /// Supplies a secret: what [`crate::Env::secret`] gives to the workflow's steps.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Supplies a variable: what [`crate::Env::var`] gives to the workflow's steps.
    #[must_use]
    pub fn var(self, name: &str, value: &str) -> Self {
        // A Worker keeps both in one place, too.
        self.secret(name, value)
    }

    /// Replaces the code of all steps of this name. An error is tried again by the step's policy, as ever; the
    /// attempt is in the [`StepInfo`]. The test panics if no step of this name runs.
    #[must_use]
    pub fn mock<T: Serialize>(mut self, step: &str, code: impl Fn(&StepInfo) -> Result<T> + 'static) -> Self {
        let mock: Mock = Box::new(move |info| {
            let value = code(info)?;
            Payload::encode(&value).map_err(Error::from)
        });
        self.mocks.insert(step.to_owned(), mock);
        self
    }

    /// Replaces all children of this workflow: makes their output of their input, at once. Without it, a child runs its
    /// workflow of the same app, with its own journal and with the mocks of this test. The test panics if nothing invokes
    /// it and other children ran.
    #[must_use]
    pub fn mock_child<I: DeserializeOwned, O: Serialize>(
        mut self,
        workflow: &str,
        code: impl Fn(I) -> Result<O> + 'static,
    ) -> Self {
        let name = workflow.to_owned();
        let mock: ChildMock = Box::new(move |input| {
            let input = input.decode().map_err(|error| {
                Error::msg(format!("the input does not fit the mock of workflow '{name}': {error}"))
            })?;
            Payload::encode(&code(input)?).map_err(Error::from)
        });
        self.child_mocks.insert(workflow.to_owned(), mock);
        self
    }

    /// Sends a signal before anything else happens.
    #[must_use]
    pub fn signal<P: Serialize + ?Sized>(self, name: &str, payload: &P) -> Self {
        self.signal_after(Duration::ZERO, name, payload)
    }

    /// Sends a signal so long after the start.
    #[must_use]
    pub fn signal_after<P: Serialize + ?Sized>(self, after: Duration, name: &str, payload: &P) -> Self {
        self.happens(after, Outside::Signal(name.to_owned(), encode(payload)))
    }

    /// Sends a signal as soon as the run waits for it, and to each child as soon as that does.
    #[must_use]
    pub fn signal_when_waiting<P: Serialize + ?Sized>(mut self, name: &str, payload: &P) -> Self {
        let (name, payload) = (name.to_owned(), encode(payload));
        self.when_waiting.push(Awaited { name, occurrence: None, payload });
        self
    }

    /// Completes the token of this name as soon as the run waits for it, as whoever opens its link does. Called again with
    /// the same name, it completes the next token of that name.
    #[must_use]
    pub fn complete_token<P: Serialize + ?Sized>(mut self, name: &str, payload: &P) -> Self {
        let (occurrence, payload) = (Some(self.next_token(name)), encode(payload));
        self.when_waiting.push(Awaited { name: name.to_owned(), occurrence, payload });
        self
    }

    /// Completes the token of this name so long after the start, perhaps before the run waits for it: the answer is kept
    /// until it does.
    #[must_use]
    pub fn complete_token_after<P: Serialize + ?Sized>(
        mut self,
        after: Duration,
        name: &str,
        payload: &P,
    ) -> Self {
        let occurrence = self.next_token(name);
        self.happens(after, Outside::Token(name.to_owned(), occurrence, encode(payload)))
    }

    fn next_token(&mut self, name: &str) -> u32 {
        let next = self.tokens.entry(name.to_owned()).or_default();
        *next += 1;
        *next - 1
    }

    /// Cancels the run so long after the start.
    #[must_use]
    pub fn cancel_after(self, after: Duration) -> Self {
        self.happens(after, Outside::Cancel)
    }

    /// Pauses the run at one time after the start, and resumes it at another.
    #[must_use]
    pub fn pause_between(self, from: Duration, to: Duration) -> Self {
        self.happens(from, Outside::Pause).happens(to, Outside::Resume)
    }

    /// How long the run may take, instead of what its workflow says.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Starts the run so much later than it is accepted, as `stepwell start --in` does. The time passes at once.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn happens(mut self, after: Duration, what: Outside) -> Self {
        self.outside.push((millis(after), what));
        self
    }

    /// Runs a workflow to its end, or until it waits for something that will not come.
    ///
    /// # Panics
    /// If a mock has replaced nothing and a step ran without one: the mock has the wrong name.
    #[track_caller]
    pub fn run<I: Serialize + ?Sized>(self, workflow: &str, input: &I) -> Outcome {
        let scenario = self.scenario(workflow, input);
        scenario.play(Death::Never)
    }

    /// Runs a workflow once as [`Self::run`] does, then again and again with a crash before and after each of its
    /// commits, and asserts each time the same end and the same [`effect`]s.
    ///
    /// # Panics
    /// If anything differs, with where the crash was and what differs.
    #[track_caller]
    pub fn crash_everywhere<I: Serialize + ?Sized>(self, workflow: &str, input: &I) -> Outcome {
        self.scenario(workflow, input).crash_everywhere()
    }

    #[track_caller]
    fn scenario<I: Serialize + ?Sized>(self, workflow: &str, input: &I) -> Scenario {
        assert!(
            self.app.starter(workflow).is_some(),
            "the app has no workflow '{workflow}'; it has: {}",
            self.app.names().collect::<Vec<_>>().join(", ")
        );
        let around = self.around();
        Scenario {
            workflow: workflow.to_owned(),
            input: encode(input),
            timeout_ms: around.timeout_ms.or_else(|| around.app.timeout_ms(workflow)),
            ..around
        }
    }

    /// All that happens around a run, whichever it is.
    fn around(self) -> Scenario {
        let Self { app, mocks, child_mocks, outside, when_waiting, tokens: _, events, timeout, delay, env } =
            self;
        Scenario {
            workflow: String::new(),
            input: Payload::null(),
            timeout_ms: timeout.map(millis),
            accepted_at: Timestamp::from_millis(engine::START_MS),
            delay_ms: millis(delay),
            app,
            mocks: Rc::new(mocks),
            child_mocks: Rc::new(child_mocks),
            outside,
            when_waiting,
            events,
            env: Rc::new(env),
        }
    }
}

/// One workflow with all that happens around it: can be played any number of times.
#[derive(Clone)]
struct Scenario {
    app: Rc<App>,
    workflow: String,
    input: Payload,
    timeout_ms: Option<u64>,
    accepted_at: Timestamp,
    delay_ms: u64,
    mocks: Rc<Mocks>,
    child_mocks: Rc<ChildMocks>,
    outside: Vec<(u64, Outside)>,
    when_waiting: Vec<Awaited>,
    events: Vec<NewEvent>,
    env: Values,
}

impl Scenario {
    #[track_caller]
    fn play(&self, death: Death) -> Outcome {
        effects::take();
        let _supplied = env::supply(self.env.clone());
        let engine = Engine::accept(
            self.app.clone(),
            &self.workflow,
            self.input.clone(),
            self.timeout_ms,
            (self.accepted_at, self.delay_ms),
        );
        let mut engine = engine
            .mocks(self.mocks.clone(), self.child_mocks.clone())
            .signals_when_waiting(self.when_waiting.clone())
            .events_when_waiting(self.events.clone())
            .dies(death);
        for (after_ms, what) in &self.outside {
            engine = engine.happens(*after_ms, what.clone());
        }
        let start = engine.now;
        let ended = engine.run_to_end();
        let mocked = std::mem::take(&mut engine.family.mocked);
        let outcome = Outcome::new(ended, start, engine, effects::take());
        if matches!(death, Death::Never) {
            self.check_mocks(&outcome);
            self.check_child_mocks(&mocked, &outcome);
        }
        outcome
    }

    /// A mock that replaces nothing has the wrong name: the step's own code ran instead.
    #[track_caller]
    fn check_mocks(&self, outcome: &Outcome) {
        let (steps, ended): (BTreeSet<_>, _) = (outcome.all_ran().into_iter().collect(), &outcome.ended);
        let unused = self.mocks.keys().find(|mock| !steps.contains(mock.as_str()));
        let own: Vec<_> = steps.into_iter().filter(|step| !self.mocks.contains_key(*step)).collect();
        // Where every step that ran had a mock, the others are for runs that go further.
        assert!(
            unused.is_none() || own.is_empty(),
            "no step '{}' ran, so its mock replaced nothing; the steps that ran without a mock: {own:?}; the \
             run: {ended:?}",
            unused.map_or("", String::as_str)
        );
    }

    /// The same of a workflow that nothing invokes, if others ran without a mock.
    #[track_caller]
    fn check_child_mocks(&self, mocked: &[String], outcome: &Outcome) {
        let unused = self.child_mocks.keys().find(|mock| !mocked.contains(mock));
        let own: Vec<_> = outcome.children().iter().map(|(name, _)| name).collect();
        assert!(
            unused.is_none() || own.is_empty(),
            "nothing invoked workflow '{}', so its mock replaced nothing; the children that ran: {own:?}",
            unused.map_or("", String::as_str)
        );
    }
}

/// Its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/testing.md")]
struct Page;

fn encode<T: Serialize + ?Sized>(value: &T) -> Payload {
    Payload::encode(value).expect("inputs and signals can be written as JSON")
}
