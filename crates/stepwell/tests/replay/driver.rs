//! The driver on a session whose answers take their time.

use std::{
    cell::RefCell,
    future::poll_fn,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use stepwell::{
    drive,
    prelude::*,
    testing::{
        engine::{Ended, Engine},
        timer,
    },
    vm::Timer,
};
use stepwell_core::run::{CallEnd, Input, Phase, Signal, Slot};
use stepwell_protocol::{
    Code, Problem, Seq,
    program::{Answer, BEAT_EVERY_MS, Beat, Budget, Commit, Page},
    rest::Status,
};

use crate::world::{note, take_notes, takes, tick};

/// A way to the cell on which every message takes this many ticks, each way.
struct Slow {
    cell: Rc<RefCell<Engine>>,
    ticks: u64,
    /// The session breaks at this commit.
    breaks_at: Option<usize>,
    beats: Rc<RefCell<Vec<(u64, Beat)>>>,
    followed: bool,
}

impl drive::Session for Slow {
    type Lost = &'static str;

    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Answer, Self::Lost>> + 'static {
        let (cell, ticks, breaks_at, commit) =
            (self.cell.clone(), self.ticks, self.breaks_at, commit.clone());
        let followed = self.followed;
        async move {
            takes(ticks).await;
            if breaks_at == Some(cell.borrow().commits.len() + 1) {
                return Err("the connection broke");
            }
            cell.borrow_mut().see_what_ran();
            let answer = cell.borrow_mut().commit(&commit);
            takes(ticks).await;
            Ok(match answer {
                Answer::Go { now, news, .. } => Answer::Go { now, news, followed },
                other @ (Answer::Stop | Answer::Refused { .. }) => other,
            })
        }
    }

    fn timer(&self) -> Option<Timer> {
        Some(timer())
    }

    fn beat(&self, beat: &Beat) -> impl Future<Output = Option<Answer>> + 'static {
        let now = self.cell.borrow().now;
        self.beats.borrow_mut().push((now.as_millis(), beat.clone()));
        let epoch = self.cell.borrow().run.epoch;
        let heard = self.cell.borrow_mut().give(Input::Heard { epoch });
        std::future::ready(Some(match heard {
            Ok(_) => Answer::Go { now, news: Vec::new(), followed: self.followed },
            Err(problem) => Answer::Refused { problem },
        }))
    }

    fn page(&self, after: Seq) -> impl Future<Output = Result<Page, Self::Lost>> + 'static {
        let (cell, ticks) = (self.cell.clone(), self.ticks);
        async move {
            takes(ticks).await;
            let page = cell.borrow().page(after);
            takes(ticks).await;
            Ok(page)
        }
    }

    fn listen(&self, after: Seq) -> impl Future<Output = Result<Answer, Self::Lost>> + 'static {
        let (cell, ticks) = (self.cell.clone(), self.ticks);
        async move {
            takes(ticks).await;
            let (tells, epoch) = (cell.borrow().tells, cell.borrow().run.epoch);
            let nothing_new =
                |cell: &Engine| cell.run.is_held_by(epoch) && cell.run.head == after && cell.tells == tells;
            while nothing_new(&cell.borrow()) {
                takes(1).await;
            }
            let answer = {
                let cell = cell.borrow();
                if cell.run.is_held_by(epoch) {
                    Answer::go(cell.now, cell.news(after, cell.run.head))
                } else {
                    Answer::Refused { problem: Problem::new(Code::StaleEpoch, "it is over") }
                }
            };
            takes(ticks).await;
            Ok(answer)
        }
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Drives one activation to its end; `each_tick` may do things to the cell meanwhile.
fn activation(
    cell: &Rc<RefCell<Engine>>,
    app: &App,
    ticks: u64,
    breaks_at: Option<usize>,
    each_tick: impl FnMut(&mut Engine),
) -> Result<(), &'static str> {
    activation_with_beats(cell, app, ticks, breaks_at, None, each_tick).0
}

/// The same; gives the beats too, with when they were.
fn activation_with_beats(
    cell: &Rc<RefCell<Engine>>,
    app: &App,
    ticks: u64,
    breaks_at: Option<usize>,
    followed: Option<u32>,
    mut each_tick: impl FnMut(&mut Engine),
) -> (Result<(), &'static str>, Vec<(u64, Beat)>) {
    let slot = Slot { session: stepwell_core::run::Transport::Capability, alone: true };
    cell.borrow_mut().give(Input::Activate(slot)).expect("it is never refused");
    let mut activation = cell.borrow().activate_message();
    if let Some(commits) = followed {
        activation.budget = Some(Budget { commits, ms: None, step_timeout_ms: None });
    }
    let followed = followed.is_some();
    activation.followed = followed;
    let epoch = activation.epoch;
    let session = Slow { cell: cell.clone(), ticks, breaks_at, beats: Rc::default(), followed };
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut driving = pin!(drive::drive(app, activation, &session));
    let mut polls = 0;
    loop {
        polls += 1;
        assert!(polls < 20_000, "it turns in circles");
        woken.0.store(false, Ordering::Relaxed);
        let driven = driving.as_mut().poll(&mut Context::from_waker(&waker));
        cell.borrow_mut().see_what_ran();
        if let Poll::Ready(end) = driven {
            let how = if end.is_ok() { CallEnd::Returned } else { CallEnd::Lost("broken".into()) };
            cell.borrow_mut().give(Input::ActivationEnded { epoch, end: how }).expect("it is never refused");
            return (end, session.beats.take());
        }
        let mut idle = 0;
        while !woken.0.load(Ordering::Relaxed) {
            idle += 1;
            assert!(idle < 5_000, "nothing wakes the driver");
            tick(&mut cell.borrow_mut());
            each_tick(&mut cell.borrow_mut());
        }
    }
}

/// Drives a run to its end, with the same delay in every activation.
fn drive_to_end(engine: Engine, app: &App, ticks: u64) -> (Ended, Engine) {
    let cell = Rc::new(RefCell::new(engine));
    for _ in 0..100 {
        let phase = cell.borrow().run.phase.clone();
        match phase {
            Phase::Pending { not_before } => {
                cell.borrow_mut().advance(not_before);
                activation(&cell, app, ticks, None, |_| {}).expect("nothing breaks");
            }
            Phase::Suspended => assert!(cell.borrow_mut().wake()),
            Phase::Ended { .. } | Phase::Paused { .. } => break,
            Phase::Running { .. } => panic!("its activation is over"),
        }
    }
    let mut engine = Rc::into_inner(cell).expect("the sessions are gone").into_inner();
    (engine.finish(), engine)
}

#[workflow]
async fn interruptible(ctx: Ctx, ticks: u64) -> Result<String> {
    let work = ctx.step("long", async || {
        takes(ticks).await;
        Ok(())
    });
    match select(work, ctx.wait::<String>("stop")).await {
        Either::Left(_) => Ok("done".into()),
        Either::Right((who, _)) => Ok(format!("stopped by {}", who?)),
    }
}

fn interruptible_app() -> App {
    App::new().workflow(interruptible)
}

#[test]
fn a_signal_is_heard_while_a_step_is_under_way() {
    for delay in [0, 1, 3] {
        let engine =
            Engine::start(interruptible_app(), "interruptible", &1_000).signal(2_000, "stop", &"Ada");
        let start = engine.now;
        let (ended, engine) = drive_to_end(engine, &interruptible_app(), delay);
        assert_eq!(ended, Ended::Completed("\"stopped by Ada\"".into()));
        let took = engine.now.as_millis() - start.as_millis();
        assert!(took < 2_300, "the step would have taken 10 s; this took {took} ms");
        assert_eq!(engine.run.epoch.0, 1);
    }
}

#[test]
fn a_signal_while_the_first_commit_is_on_its_way_is_heard_too() {
    for at in (0..100).step_by(10) {
        let engine = Engine::start(interruptible_app(), "interruptible", &100).signal(at, "stop", &"Ada");
        let (ended, _) = drive_to_end(engine, &interruptible_app(), 2);
        assert_eq!(ended, Ended::Completed("\"stopped by Ada\"".into()), "signal at {at} ms");
    }
}

#[workflow]
async fn limited(ctx: Ctx) -> Result<String> {
    let work = ctx.step("long", async || {
        takes(1_000).await;
        Ok(())
    });
    match select(work, ctx.sleep("sleep", Duration::from_millis(300))).await {
        Either::Left(_) => Ok("done".into()),
        Either::Right(_) => Ok("timed out".into()),
    }
}

#[test]
fn a_sleep_beside_a_step_ends_in_time_even_if_there_was_news_when_it_began() {
    let app = || App::new().workflow(limited);
    for at in (0..100).step_by(10) {
        let engine = Engine::start(app(), "limited", &()).signal(at, "noise", &0);
        let (ended, _) = drive_to_end(engine, &app(), 2);
        assert_eq!(ended, Ended::Completed("\"timed out\"".into()), "news at {at} ms");
    }
}

#[test]
fn a_cancelled_run_stops_its_program_in_the_middle_of_a_step() {
    let cell = Rc::new(RefCell::new(Engine::start(interruptible_app(), "interruptible", &4_000)));
    let mut ticks = 0;
    let end = activation(&cell, &interruptible_app(), 1, None, |engine| {
        ticks += 1;
        if ticks == 50 {
            engine.give(Input::Cancel).expect("it has not ended");
        }
    });
    assert_eq!(end, Ok(()));
    assert!(ticks < 60, "{ticks}");
    assert_eq!(cell.borrow_mut().finish(), Ended::Cancelled);
}

#[test]
fn a_broken_session_ends_the_activation_and_the_next_one_goes_on() {
    let cell = Rc::new(RefCell::new(Engine::start(interruptible_app(), "interruptible", &10)));
    let end = activation(&cell, &interruptible_app(), 1, Some(2), |_| {});
    assert_eq!(end, Err("the connection broke"));
    assert_eq!(cell.borrow().run.trouble.losses, 1);
    assert_eq!(cell.borrow_mut().finish(), Ended::Completed("\"done\"".into()));
}

#[workflow]
async fn retry_beside_a_long_step(ctx: Ctx) -> Result<u64> {
    let retry = Retry { attempts: 3, initial_ms: 1_000, factor: 1.0, max_ms: 1_000, jitter: 0.0 };
    let flaky = ctx.step_with(
        "flaky",
        async |info| {
            if info.attempt < 3 { Err(Error::msg("not yet")) } else { Ok(()) }
        },
    );
    let long = ctx.step("long", async || {
        takes(1_000).await;
        Ok(())
    });
    let flaky = async {
        flaky.retry(retry).await?;
        Ok::<_, Error>(ctx.now().as_millis() - ctx.started_at().as_millis())
    };
    let (took, long) = futures::join!(flaky, long);
    long?;
    took
}

#[test]
fn a_retry_does_not_wait_for_a_long_step_beside_it() {
    let app = || App::new().workflow(retry_beside_a_long_step);
    for delay in [0, 2] {
        let engine = Engine::start(app(), "retry_beside_a_long_step", &());
        let (ended, _) = drive_to_end(engine, &app(), delay);
        let Ended::Completed(took) = ended else { panic!("it completes") };
        let took: u64 = took.parse().expect("it is a number");
        assert!((2_000..3_000).contains(&took), "{took} ms for two pauses of one second");
    }
}

#[workflow]
async fn busy(ctx: Ctx) -> Result<Vec<u64>> {
    let mut steps: FuturesUnordered<_> = [9, 4, 7, 1, 4, 12]
        .into_iter()
        .map(|ticks| {
            ctx.step("part", async move || {
                takes(ticks).await;
                Ok(ticks)
            })
        })
        .collect();
    let mut order = Vec::new();
    let mut waits = (0..3).map(|_| Box::pin(ctx.wait::<u64>("extra"))).collect::<FuturesUnordered<_>>();
    while !(steps.is_empty() && waits.is_empty()) {
        poll_fn(|cx| {
            if let Poll::Ready(Some(part)) = steps.poll_next_unpin(cx) {
                return Poll::Ready(part.map(|part| order.push(part)));
            }
            if let Poll::Ready(Some(extra)) = waits.poll_next_unpin(cx) {
                return Poll::Ready(extra.map(|extra| order.push(extra)).map_err(Error::from));
            }
            Poll::Pending
        })
        .await?;
    }
    Ok(order)
}

#[test]
fn whatever_the_delays_a_replay_takes_the_same_turns() {
    let app = || App::new().workflow(busy);
    for delay in 0..6 {
        for offset in [0, 5, 35, 61] {
            let mut engine = Engine::start(app(), "busy", &());
            for extra in 0..3_u64 {
                engine = engine.signal(offset + extra * 23, "extra", &(100 + extra));
            }
            // `finish` replays the whole journal and compares.
            let (ended, _) = drive_to_end(engine, &app(), delay);
            let Ended::Completed(order) = ended else { panic!("it completes") };
            assert_eq!(order.split(',').count(), 9, "{order}");
        }
    }
}

#[test]
fn a_journal_in_pages_is_fetched_before_anything_runs() {
    let app = || App::new().workflow(interruptible);
    let mut engine = Engine::start(app(), "interruptible", &10).pages_of(1);
    for n in 0..5 {
        let payload = stepwell::Payload::encode(&n).expect("a number is JSON");
        engine.give(Input::Signal { signal: Signal::new("noise", payload), slot: None }).expect("it is kept");
    }
    let (ended, engine) = drive_to_end(engine, &app(), 2);
    assert_eq!(ended, Ended::Completed("\"done\"".into()));
    assert_eq!(engine.commits[0].base, Seq(5));
}

#[workflow]
async fn noted(ctx: Ctx) -> Result<()> {
    let all = [9, 4, 7, 1, 4, 12].map(|ticks| {
        ctx.step("part", async move || {
            note(format!("{ticks} begins"));
            takes(ticks).await;
            Ok(())
        })
    });
    futures::future::try_join_all(all).await?;
    Ok(())
}

#[test]
fn nothing_begins_while_the_last_word_is_on_its_way() {
    let app = || App::new().workflow(noted);
    for delay in [0, 1, 3] {
        for commits in 0..9 {
            take_notes();
            let engine = Engine::start(app(), "noted", &()).budget(commits);
            let (ended, _) = drive_to_end(engine, &app(), delay);
            assert_eq!(ended, Ended::Completed("null".into()));
            // A step that was cut short would begin again.
            let notes = take_notes();
            assert_eq!(notes.len(), 6, "delay {delay}, budget {commits}: {notes:?}");
        }
    }
}

#[workflow]
async fn long(ctx: Ctx, ticks: u64) -> Result<()> {
    ctx.step("quick", async || Ok(())).await?;
    ctx.step("long", async || {
        takes(ticks).await;
        Ok(())
    })
    .await?;
    Ok(())
}

/// Drives the only activation of `long`, and gives when its beats were and which steps they named.
fn beats_of(ticks: u64, each_tick: impl FnMut(&mut Engine)) -> (Vec<(u64, Vec<String>)>, Status) {
    beats_while(None, ticks, each_tick)
}

/// The same, while somebody follows the run, if so many calls are given for that.
fn beats_while(
    followed: Option<u32>,
    ticks: u64,
    each_tick: impl FnMut(&mut Engine),
) -> (Vec<(u64, Vec<String>)>, Status) {
    let app = App::new().workflow(long);
    let engine = Engine::start(App::new().workflow(long), "long", &ticks);
    let start = engine.now.as_millis();
    let cell = Rc::new(RefCell::new(engine));
    let (end, beats) = activation_with_beats(&cell, &app, 0, None, followed, each_tick);
    end.expect("nothing breaks");
    let named = |beat: Beat| beat.steps.into_iter().map(|step| step.op.name).collect();
    let beats = beats.into_iter().map(|(at, beat)| (at - start, named(beat))).collect();
    let status = cell.borrow().run.status();
    (beats, status)
}

#[test]
fn a_program_beats_while_a_step_takes_long_and_says_which() {
    let (beats, status) = beats_of(6_500, |_| {});
    let names = |beats: &[(u64, Vec<String>)]| -> Vec<_> {
        beats.iter().map(|(at, names)| (at / BEAT_EVERY_MS, names.clone())).collect()
    };
    assert_eq!(names(&beats), [1, 2, 3].map(|n| (n, vec!["long".to_owned()])));
    assert_eq!(status, Status::Completed);
    assert_eq!(beats_of(1_900, |_| {}).0, [], "a step that is done sooner costs nothing");
}

#[test]
fn a_program_names_its_steps_soon_and_once_while_somebody_follows() {
    let (beats, status) = beats_while(Some(1_000), 2_500, |_| {});
    let times: Vec<_> = beats.iter().map(|(at, names)| (at / Beat::SOON_MS, names.clone())).collect();
    let long = || vec!["long".to_owned()];
    assert_eq!(times, [(1, long()), ((BEAT_EVERY_MS + Beat::SOON_MS) / Beat::SOON_MS, long())]);
    assert_eq!(status, Status::Completed);
    assert_eq!(beats_while(Some(1_000), 40, |_| {}).0, [], "a step that is done sooner costs nothing");
    // The calls that are left are those with which the step is reported.
    let (beats, status) = beats_while(Some(3), 2_500, |_| {});
    let times: Vec<_> = beats.iter().map(|(at, _)| at / BEAT_EVERY_MS).collect();
    assert_eq!((times.as_slice(), status), (&[1][..], Status::Completed));
}

#[test]
fn a_program_whose_run_was_cancelled_ends_at_its_next_beat() {
    let (beats, status) = beats_of(1_000_000, |engine| {
        // It is refused once it is cancelled.
        let _ = engine.give(Input::Cancel);
    });
    assert_eq!((beats.len(), status), (1, Status::Cancelled));
}

/// A cell that always has an answer, and never anything to say.
struct Endless {
    calls: std::cell::Cell<u32>,
}

impl Endless {
    fn answer<T: 'static>(
        &self,
        answer: T,
    ) -> impl Future<Output = Result<T, &'static str>> + 'static + use<T> {
        self.calls.set(self.calls.get() + 1);
        std::future::ready(if self.calls.get() < 5_000 { Ok(answer) } else { Err("enough") })
    }
}

impl drive::Session for Endless {
    type Lost = &'static str;

    fn commit(&self, _: &Commit) -> impl Future<Output = Result<Answer, Self::Lost>> + 'static {
        self.answer(Answer::go(stepwell::Timestamp::from_millis(1), vec![]))
    }

    fn page(&self, _: Seq) -> impl Future<Output = Result<Page, Self::Lost>> + 'static {
        self.answer(Page { events: vec![], more: true })
    }

    fn listen(&self, _: Seq) -> impl Future<Output = Result<Answer, Self::Lost>> + 'static {
        self.answer(Answer::go(stepwell::Timestamp::from_millis(1), vec![]))
    }
}

#[test]
fn a_cell_that_answers_for_ever_is_not_listened_to_for_ever() {
    let app = Rc::new(interruptible_app());
    for more in [true, false] {
        let mut activation = Engine::start(app.clone(), "interruptible", &1_000_000_u64).activate_message();
        activation.journal.more = more;
        let session = Endless { calls: 0.into() };
        let mut driving = pin!(drive::drive(&app, activation, &session));
        let driven = driving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(driven, Poll::Ready(Ok(())), "after {} calls", session.calls.get());
    }
}
