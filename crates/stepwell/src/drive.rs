//! Drives a [`Vm`] on a session: the same loop for every transport.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use stepwell_protocol::{
    Seq,
    program::{Activation, Answer, BEAT_EVERY_MS, Beat, Commit, Page, StepAtWork},
    stream::Published,
};

use crate::{
    App,
    panics::LastWords,
    vm::{Clock, Order, Timer, Vm},
};

/// The pause between two calls that only publish: each one counts against what an invocation may do.
const PUBLISH_EVERY_MS: u64 = 500;

/// How many calls one activation makes on its session, whatever is answered. The engine's budget ends it long before.
const CALLS_MAX: u32 = 1 << 20;

/// How many answers in a row may bring nothing: a page without events that is not the last, no news for who listens.
const EMPTY_MAX: u32 = 1_000;

/// A program's way to its cell, for one run and one activation.
pub trait Session {
    /// Why a call got no answer.
    type Lost;

    /// Reports.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Answer, Self::Lost>> + 'static;
    /// Reads the journal after a position.
    fn page(&self, after: Seq) -> impl Future<Output = Result<Page, Self::Lost>> + 'static;
    /// How code waits for a while on this platform, for steps with a time-out; without it they have none.
    fn timer(&self) -> Option<Timer> {
        None
    }
    /// The clock where the code runs; without one, no commit is spared.
    fn clock(&self) -> Option<Clock> {
        None
    }
    /// What an earlier activation left behind that was stopped by a panic.
    fn last_words(&self) -> Option<LastWords> {
        None
    }
    /// Publishes logs and chunks while a step is under way. An engine that does not know how gives no answer: then they
    /// travel with the next commit.
    fn publish(&self, _published: &Published) -> impl Future<Output = Option<Answer>> + 'static {
        std::future::ready(None)
    }
    /// Says that steps are under way. An engine that does not know how gives no answer.
    fn beat(&self, _beat: &Beat) -> impl Future<Output = Option<Answer>> + 'static {
        std::future::ready(None)
    }
    /// Waits until something happens after a position.
    fn listen(&self, after: Seq) -> impl Future<Output = Result<Answer, Self::Lost>> + 'static;
}

/// Goes on with a run until this activation has nothing left to do.
pub async fn drive<S: Session>(app: &App, activation: Activation, session: &S) -> Result<(), S::Lost> {
    let mut vm = Vm::new(app, activation);
    if let Some(timer) = session.timer() {
        vm = vm.with_timer(timer);
    }
    if let Some(clock) = session.clock() {
        vm = vm.with_clock(clock);
    }
    if let Some(words) = session.last_words() {
        vm = vm.with_last_words(words);
    }
    let timer = session.timer();
    let patience = Patience { calls: CALLS_MAX, empty: EMPTY_MAX };
    let mut driver = Driver {
        vm,
        call: None,
        listen: None,
        publish: None,
        rest: None,
        beat: None,
        until_beat: None,
        named: Vec::new(),
        timer,
        patience,
        session,
    };
    poll_fn(|cx| driver.poll(cx)).await
}

type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>>>>;

struct Driver<'s, S: Session> {
    vm: Vm,
    call: Option<Pending<Called, S::Lost>>,
    listen: Option<Pending<Answer, S::Lost>>,
    publish: Option<Pin<Box<dyn Future<Output = Option<Answer>>>>>,
    /// The pause before the next call that only publishes.
    rest: Option<Pin<Box<dyn Future<Output = ()>>>>,
    beat: Option<Pin<Box<dyn Future<Output = Option<Answer>>>>>,
    /// The time until the next beat, while no call is under way that has something else to say.
    until_beat: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// The steps that the latest beat has named. The engine forgets them with a commit.
    named: Vec<StepAtWork>,
    timer: Option<Timer>,
    patience: Patience,
    session: &'s S,
}

/// How much of a session's answers is left to be taken: one that answers for ever is not listened to for ever.
struct Patience {
    calls: u32,
    empty: u32,
}

impl Patience {
    /// Another answer has come. Says whether to go on.
    fn bears(&mut self, brings_something: bool) -> bool {
        self.calls = self.calls.saturating_sub(1);
        self.empty = if brings_something { EMPTY_MAX } else { self.empty.saturating_sub(1) };
        self.calls > 0 && self.empty > 0
    }
}

/// Whether an answer says more than that there is nothing to say.
fn brings_something(answer: &Answer) -> bool {
    !matches!(answer, Answer::Go { news, .. } if news.is_empty())
}

enum Called {
    Page(Page),
    Answer(Answer),
}

impl<S: Session> Driver<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Lost>> {
        loop {
            if let Some(call) = &mut self.call
                && let Poll::Ready(called) = call.as_mut().poll(cx)
            {
                self.call = None;
                match called {
                    Err(lost) => return Poll::Ready(Err(lost)),
                    Ok(Called::Page(page)) => {
                        if !self.patience.bears(!page.more || !page.events.is_empty()) {
                            return Poll::Ready(Ok(()));
                        }
                        if !self.vm.page(page) {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Ok(Called::Answer(answer)) => {
                        if !self.patience.bears(true) || !self.vm.answered(answer) {
                            return Poll::Ready(Ok(()));
                        }
                    }
                }
            }
            if let Some(listen) = &mut self.listen
                && let Poll::Ready(heard) = listen.as_mut().poll(cx)
            {
                self.listen = None;
                match heard {
                    Err(lost) => return Poll::Ready(Err(lost)),
                    Ok(answer) => {
                        if !self.patience.bears(brings_something(&answer)) || !self.vm.heard(answer) {
                            return Poll::Ready(Ok(()));
                        }
                    }
                }
            }
            if let Some(publish) = &mut self.publish
                && let Poll::Ready(answer) = publish.as_mut().poll(cx)
            {
                self.publish = None;
                if !self.vm.published(answer) {
                    return Poll::Ready(Ok(()));
                }
            }
            if let Some(beat) = &mut self.beat
                && let Poll::Ready(answer) = beat.as_mut().poll(cx)
            {
                self.beat = None;
                if answer.is_some_and(|answer| !self.vm.heard(answer)) {
                    return Poll::Ready(Ok(()));
                }
            }
            let order = self.vm.poll(cx);
            if order.is_ready() {
                self.until_beat = None;
            }
            match order {
                Poll::Ready(Order::Commit(commit)) => {
                    self.named.clear();
                    let answer = self.session.commit(&commit);
                    self.call = Some(Box::pin(async { answer.await.map(Called::Answer) }));
                }
                Poll::Ready(Order::Page(after)) => {
                    let page = self.session.page(after);
                    self.call = Some(Box::pin(async { page.await.map(Called::Page) }));
                }
                Poll::Pending if self.publishes(cx) || self.beats(cx) => {}
                Poll::Pending if self.call.is_none() && self.listen.is_none() && self.vm.wants_news() => {
                    let after = self.vm.listen();
                    self.listen = Some(Box::pin(self.session.listen(after)));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Says what is under way when nothing else was said for long, or soon if somebody follows. Says whether it did.
    fn beats(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(timer) = &self.timer else { return false };
        // The engine owes an answer: it has heard of this activation.
        if self.call.is_some() || self.beat.is_some() {
            return false;
        }
        let shown = self.vm.shows();
        let until = self.until_beat.get_or_insert_with(|| {
            let is_news = !shown.is_empty() && shown != self.named;
            timer(if is_news { Beat::SOON_MS } else { BEAT_EVERY_MS })
        });
        if until.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.until_beat = None;
        let beat = self.vm.beat();
        self.beat = Some(Box::pin(self.session.beat(&beat)));
        self.named = beat.steps;
        true
    }

    /// Sends what a step that is under way has published, now and then. Says whether it did.
    fn publishes(&mut self, cx: &mut Context<'_>) -> bool {
        // Without a timer there is no now and then: it travels with commits.
        let Some(timer) = &self.timer else { return false };
        if let Some(rest) = &mut self.rest {
            if rest.as_mut().poll(cx).is_pending() {
                return false;
            }
            self.rest = None;
        }
        if self.call.is_some() || self.publish.is_some() {
            return false;
        }
        let Some(published) = self.vm.publishes() else { return false };
        self.rest = Some(timer(PUBLISH_EVERY_MS));
        self.publish = Some(Box::pin(self.session.publish(&published)));
        true
    }
}
