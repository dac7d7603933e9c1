//! The world outside of the engine, as programs meet it: time that passes, work that has effects, and the
//! wires by which a program reaches its cell.
//!
//! Workflows are plain functions, so what they touch hangs on the thread; a world has its thread to itself
//! while it runs.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use stepwell::{
    Error, Result, StepInfo, Terminal, drive,
    vm::{Clock, Timer},
};
use stepwell_protocol::{
    Seq,
    program::{Answer, Beat, Commit, Page},
};

use crate::rng::hash;

thread_local! {
    static OUTSIDE: RefCell<Outside> = RefCell::default();
}

/// What the programs of one world share.
#[derive(Default)]
struct Outside {
    now_ms: u64,
    /// The program that is being polled.
    current: u32,
    calls: u32,
    mail: Vec<Mail>,
    effects: Vec<Effect>,
    /// Work that is under way: when it is over, whose it is, whom to wake.
    work: Vec<(u64, u32, Waker)>,
    answers: BTreeMap<(u32, u32), Received>,
    listening: BTreeMap<(u32, u32), Waker>,
    timers_are_lost: bool,
}

/// What a program sends to its cell.
#[derive(Debug)]
pub struct Mail {
    /// Which program.
    pub program: u32,
    /// Which call of all.
    pub call: u32,
    /// What it says.
    pub message: Message,
}

/// What a program says to its cell.
#[derive(Clone, Debug)]
pub enum Message {
    /// It reports. As text, which is what travels.
    Commit(String),
    /// It reads on in its journal.
    Page(Seq),
    /// It wants to know what happens.
    Listen(Seq),
    /// It is at work.
    Beat(Beat),
}

/// What comes back.
#[derive(Clone, Debug)]
pub enum Received {
    /// An answer to a commit or a listener.
    Answer(Answer),
    /// A page.
    Page(Page),
    /// Nothing: the connection broke.
    Lost,
}

/// A step's code began: the one thing that cannot be taken back.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Which program.
    pub program: u32,
    /// The step's key: the run's id and the operation.
    pub key: String,
    /// Which attempt.
    pub attempt: u32,
    /// The most attempts that its policy allows.
    pub limit: u32,
    /// Whether it must not begin twice.
    pub is_once: bool,
    /// What it does beside its work.
    pub deed: Deed,
}

/// What a step does beside its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing.
    Plain,
    /// It kills its cell.
    Poison,
    /// It makes its program throw.
    Throws,
}

/// A new world begins on this thread. Only a planted bug takes the time-outs of steps away.
pub fn reset(timers_are_lost: bool) {
    OUTSIDE.with_borrow_mut(|outside| *outside = Outside { timers_are_lost, ..Outside::default() });
}

/// Time has passed.
pub fn set_now(now_ms: u64) {
    OUTSIDE.with_borrow_mut(|outside| outside.now_ms = now_ms);
}

/// This program is about to be polled.
pub fn enter(program: u32) {
    OUTSIDE.with_borrow_mut(|outside| outside.current = program);
}

/// What the program that was polled has sent and done.
pub fn leave() -> (Vec<Mail>, Vec<Effect>) {
    OUTSIDE
        .with_borrow_mut(|outside| (std::mem::take(&mut outside.mail), std::mem::take(&mut outside.effects)))
}

/// When the next piece of a program's work is over.
pub fn next_work(program: u32) -> Option<u64> {
    OUTSIDE.with_borrow(|outside| {
        outside.work.iter().filter(|(_, of, _)| *of == program).map(|(due, ..)| *due).min()
    })
}

/// Wakes the work of a program that is over by now.
pub fn finish_work(program: u32) {
    let due: Vec<_> = OUTSIDE.with_borrow_mut(|outside| {
        let now_ms = outside.now_ms;
        let (due, rest) = std::mem::take(&mut outside.work)
            .into_iter()
            .partition(|(due, of, _)| *of == program && *due <= now_ms);
        outside.work = rest;
        due
    });
    for (_, _, waker) in due {
        waker.wake();
    }
}

/// An answer arrives at a program. The first one counts.
pub fn deliver(program: u32, call: u32, received: Received) {
    let waker = OUTSIDE.with_borrow_mut(|outside| {
        let waker = outside.listening.remove(&(program, call))?;
        outside.answers.insert((program, call), received);
        Some(waker)
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A program is gone.
pub fn forget(program: u32) {
    OUTSIDE.with_borrow_mut(|outside| {
        outside.work.retain(|(_, of, _)| *of != program);
        outside.answers.retain(|(of, _), _| *of != program);
        outside.listening.retain(|(of, _), _| *of != program);
    });
}

/// What a step is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// How long it takes.
    pub ms: u64,
    /// How many attempts fail.
    pub fails: u32,
    /// The most attempts that its policy allows.
    pub limit: u32,
    /// Whether its failure is final.
    pub is_terminal: bool,
    /// Whether it never ends.
    pub hangs: bool,
    /// How many attempts never end; those after them do.
    pub hangs_first: u32,
    /// Whether it must not begin twice.
    pub is_once: bool,
    /// What it does beside.
    pub deed: Deed,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            ms: 5,
            fails: 0,
            limit: 3,
            is_terminal: false,
            hangs: false,
            hangs_first: 0,
            is_once: false,
            deed: Deed::Plain,
        }
    }
}

/// The code of every step: has its effect, takes its time, and gives what its key says.
pub async fn work(info: StepInfo, work: Work) -> Result<u64> {
    let due = OUTSIDE.with_borrow_mut(|outside| {
        let program = outside.current;
        let key = info.idempotency_key.clone();
        let (attempt, limit, is_once, deed) = (info.attempt, work.limit, work.is_once, work.deed);
        outside.effects.push(Effect { program, key, attempt, limit, is_once, deed });
        outside.now_ms + work.ms
    });
    if work.hangs || info.attempt <= work.hangs_first {
        std::future::pending::<()>().await;
    }
    until(due).await;
    if work.is_terminal {
        return Err(Terminal::new("this cannot work").into());
    }
    if info.attempt <= work.fails {
        return Err(Error::msg(format!("attempt {} failed", info.attempt)));
    }
    Ok(hash(&info.idempotency_key))
}

/// Ready when the world's time has come.
async fn until(due_ms: u64) {
    poll_fn(|cx| {
        OUTSIDE.with_borrow_mut(|outside| {
            if outside.now_ms >= due_ms {
                return Poll::Ready(());
            }
            let current = outside.current;
            outside.work.push((due_ms, current, cx.waker().clone()));
            Poll::Pending
        })
    })
    .await;
}

/// A program's wire to its cell.
pub struct Wire(pub u32);

impl drive::Session for Wire {
    type Lost = ();

    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Answer, ()>> + 'static {
        let text = serde_json::to_string(commit).expect("a commit is JSON");
        let received = ask(self.0, Message::Commit(text));
        async move { answer(received.await) }
    }

    fn page(&self, after: Seq) -> impl Future<Output = Result<Page, ()>> + 'static {
        let received = ask(self.0, Message::Page(after));
        async move {
            match received.await {
                Received::Page(page) => Ok(page),
                Received::Answer(_) | Received::Lost => Err(()),
            }
        }
    }

    fn timer(&self) -> Option<Timer> {
        Some(Rc::new(|ms| {
            let (now_ms, is_lost) = OUTSIDE.with_borrow(|outside| (outside.now_ms, outside.timers_are_lost));
            if is_lost { Box::pin(std::future::pending()) } else { Box::pin(until(now_ms + ms)) }
        }))
    }

    fn clock(&self) -> Option<Clock> {
        // A program in another language need not foresee anything.
        (!self.0.is_multiple_of(4))
            .then(|| -> Clock { Rc::new(|| OUTSIDE.with_borrow(|outside| outside.now_ms)) })
    }

    fn beat(&self, beat: &Beat) -> impl Future<Output = Option<Answer>> + 'static {
        let received = ask(self.0, Message::Beat(beat.clone()));
        async move { answer(received.await).ok() }
    }

    fn listen(&self, after: Seq) -> impl Future<Output = Result<Answer, ()>> + 'static {
        let received = ask(self.0, Message::Listen(after));
        async move { answer(received.await) }
    }
}

fn answer(received: Received) -> Result<Answer, ()> {
    match received {
        Received::Answer(answer) => Ok(answer),
        Received::Page(_) | Received::Lost => Err(()),
    }
}

/// Sends at once, and waits for what comes back.
fn ask(program: u32, message: Message) -> impl Future<Output = Received> + 'static {
    let call = OUTSIDE.with_borrow_mut(|outside| {
        outside.calls += 1;
        let call = outside.calls;
        outside.mail.push(Mail { program, call, message });
        call
    });
    poll_fn(move |cx| {
        OUTSIDE.with_borrow_mut(|outside| match outside.answers.remove(&(program, call)) {
            Some(received) => Poll::Ready(received),
            None => {
                outside.listening.insert((program, call), cx.waker().clone());
                Poll::Pending
            }
        })
    })
}
