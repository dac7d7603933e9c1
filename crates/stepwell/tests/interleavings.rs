//! Any interleaving replays as it first came: random workflows of joins, selects and unordered sets, whose
//! steps, sleeps and signals end in a random order, replayed again and again in random pieces.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::{
    future::{join_all, select_all},
    stream::{FuturesUnordered, StreamExt as _},
};
use stepwell::{
    App, Ctx, Payload, Result, Timestamp,
    vm::{Order, Vm},
    workflow,
};
use stepwell_protocol::{
    Epoch, Event, Op, Outcome, PROTOCOL, Place, Record, RunId, Seq,
    program::{Activation, Answer, Budget, Command, Commit, News, Open, Page, Then},
};

/// How many interleavings, and how often each is replayed.
const INTERLEAVINGS: u64 = 1_000;
const REPLAYS: u64 = 100;

thread_local! {
    /// The steps that may end, by the number that their code waits for.
    static GATES: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
    /// Who waits for them.
    static WAKERS: RefCell<BTreeMap<u32, Waker>> = const { RefCell::new(BTreeMap::new()) };
    /// Steps whose code has begun.
    static BEGUN: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
    /// What the workflow has seen, in order.
    static TRACE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static NEXT: Cell<u32> = const { Cell::new(0) };
}

/// Chance that depends on nothing but its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % n
    }
}

/// What a random workflow is made of.
enum Node {
    Step(u32),
    Sleep,
    Wait(u32),
    All(Vec<Node>),
    First(Vec<Node>),
    Unordered(Vec<Node>),
    Then(Vec<Node>),
}

fn grow(dice: &mut Dice, depth: usize, steps: &mut u32) -> Node {
    let kind = if depth == 0 { dice.below(3) } else { dice.below(9) };
    let mut children =
        |dice: &mut Dice| (0..2 + dice.below(2)).map(|_| grow(dice, depth - 1, steps)).collect();
    match kind {
        1 => Node::Sleep,
        2 => Node::Wait(u32::try_from(dice.below(2)).expect("small")),
        3 => Node::All(children(dice)),
        4 | 5 => Node::First(children(dice)),
        6 => Node::Unordered(children(dice)),
        7 | 8 => Node::Then(children(dice)),
        _ => {
            *steps += 1;
            Node::Step(*steps)
        }
    }
}

fn go<'a>(ctx: &'a Ctx, node: &'a Node) -> Pin<Box<dyn Future<Output = String> + 'a>> {
    Box::pin(async move {
        let seen = match node {
            Node::Step(number) => {
                let step = ctx.step(format!("s{}", number % 3), async || {
                    BEGUN.with_borrow_mut(|begun| begun.insert(*number));
                    poll_fn(|cx| {
                        if GATES.with_borrow(|gates| gates.contains(number)) {
                            return Poll::Ready(());
                        }
                        WAKERS.with_borrow_mut(|wakers| wakers.insert(*number, cx.waker().clone()));
                        Poll::Pending
                    })
                    .await;
                    Ok(*number)
                });
                format!("step {:?}", step.await)
            }
            Node::Sleep => {
                ctx.sleep("sleep", Duration::from_secs(1)).await;
                "slept".into()
            }
            Node::Wait(signal) => {
                let wait = ctx.wait::<u32>(format!("w{signal}")).timeout(Duration::from_secs(5));
                format!("wait {:?}", wait.await)
            }
            Node::All(nodes) => join_all(nodes.iter().map(|node| go(ctx, node))).await.join("+"),
            Node::First(nodes) => {
                let (first, index, _) = select_all(nodes.iter().map(|node| go(ctx, node))).await;
                format!("{index}:{first}")
            }
            Node::Unordered(nodes) => {
                let set: FuturesUnordered<_> = nodes.iter().map(|node| go(ctx, node)).collect();
                set.collect::<Vec<_>>().await.join(">")
            }
            Node::Then(nodes) => {
                let mut all = String::new();
                for node in nodes {
                    all = format!("{all};{}", go(ctx, node).await);
                }
                all
            }
        };
        TRACE.with_borrow_mut(|trace| {
            trace.push(format!("{seen} {} {}", ctx.now().as_millis(), ctx.random() % 97));
        });
        seen
    })
}

#[workflow]
async fn tree(ctx: Ctx, seed: u64) -> Result<String> {
    let root = grow(&mut Dice(seed), 3, &mut 0);
    Ok(go(&ctx, &root).await)
}

fn activation(seed: u64, events: &[Record], more: bool, commits: Option<u32>) -> Activation {
    let place = Place { pool: "default".into(), generation: 1, cell: 0 };
    let start = Timestamp::from_millis(1_000);
    Activation {
        protocol: PROTOCOL,
        run: RunId { place, number: 1, suffix: RunId::suffix_from(1) },
        workflow: "tree".into(),
        epoch: Epoch(1),
        seed: format!("{seed:016x}"),
        now: start,
        started_at: start,
        life: None,
        input: Payload::encode(&seed).expect("a number is JSON"),
        patches: Vec::new(),
        attributes: [].into(),
        tokens: None,
        budget: commits.map(|commits| Budget { commits, ms: None, step_timeout_ms: None }),
        let_in: None,
        trace: None,
        followed: false,
        journal: Page { events: events.to_vec(), more },
        signature: None,
    }
}

fn reset() {
    GATES.take();
    WAKERS.take();
    BEGUN.take();
    TRACE.take();
    NEXT.set(0);
}

/// The journal of one run, as a sequencer with a mind of its own writes it.
struct Sequencer {
    dice: Dice,
    journal: Vec<Record>,
    open: Vec<Open>,
}

impl Sequencer {
    fn record(&mut self, event: Event) -> Record {
        let seq = Seq(u32::try_from(self.journal.len() + 1).expect("few events"));
        let at = Timestamp::from_millis(1_000 + u64::from(seq.0) * 7);
        let record = Record { seq, at, event };
        self.journal.push(record.clone());
        record
    }

    /// Something happens outside: a timer fires, or a signal comes, wanted or not.
    fn happen(&mut self) -> Record {
        let timers: Vec<Op> = self.open.iter().map(|open| open.op().clone()).collect();
        let choice = self.dice.below(timers.len() + 2);
        let event = match timers.get(choice) {
            Some(op) => {
                self.open.retain(|open| open.op() != op);
                Event::TimerFired { op: op.clone(), since: None }
            }
            None => {
                let number = NEXT.get() + 1;
                NEXT.set(number);
                let payload = Payload::encode(&number).expect("a number is JSON");
                Event::SignalReceived {
                    name: format!("w{}", self.dice.below(2)),
                    id: None,
                    payload,
                    by: None,
                    since: None,
                    to: None,
                }
            }
        };
        self.record(event)
    }

    fn commit(&mut self, commit: &Commit) -> Answer {
        let mut news = Vec::new();
        // Sometimes the world is quicker than the commit.
        if self.dice.below(4) == 0 {
            news.push(self.happen());
        }
        for command in &commit.commands {
            if let Command::StepSucceeded { op, attempt, output, took_ms } = command {
                let (op, attempt, outcome) = (op.clone(), *attempt, Outcome::Ok(output.clone()));
                news.push(self.record(Event::StepFinished { op, attempt, outcome, took_ms: *took_ms }));
            }
        }
        match &commit.then {
            Then::Continue { open: Some(open) }
            | Then::Yield { open: Some(open) }
            | Then::Suspend { open }
                if news.is_empty() =>
            {
                self.open.clone_from(open);
            }
            Then::Continue { .. }
            | Then::Suspend { .. }
            | Then::Yield { .. }
            | Then::Anew { .. }
            | Then::Complete { .. }
            | Then::Fail { .. }
            | Then::Pause { .. } => {}
        }
        if news.is_empty() && matches!(commit.then, Then::Suspend { .. }) {
            news.push(self.happen());
        }
        let now = Timestamp::from_millis(1_000 + self.journal.len() as u64 * 7);
        Answer::go(now, news.into_iter().map(News::Record).collect())
    }
}

/// Runs a random workflow to its end, in as many activations as a budget makes of it; gives its journal and its end,
/// and how often it was cut.
fn first_run(app: &App, seed: u64, commits: Option<u32>) -> (Vec<Record>, Then, u32) {
    let (mut cuts, mut began) = (0, 0);
    let mut sequencer = Sequencer { dice: Dice(seed ^ 0xabcd), journal: Vec::new(), open: Vec::new() };
    let mut vm = Vm::new(app, activation(seed, &[], false, commits));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        match vm.poll(&mut cx) {
            Poll::Ready(Order::Commit(commit)) => match commit.then {
                Then::Anew { .. } | Then::Complete { .. } | Then::Fail { .. } | Then::Pause { .. } => {
                    return (sequencer.journal, commit.then, cuts);
                }
                Then::Yield { .. } => {
                    sequencer.commit(&commit);
                    assert!(sequencer.journal.len() > began, "seed {seed}: nothing was done");
                    began = sequencer.journal.len();
                    cuts += 1;
                    // What was under way has ended before, and whatever was begun in vain begins anew.
                    BEGUN.take();
                    GATES.take();
                    TRACE.take();
                    vm = Vm::new(app, activation(seed, &sequencer.journal, false, commits));
                }
                Then::Continue { .. } | Then::Suspend { .. } => {
                    let answer = sequencer.commit(&commit);
                    assert!(vm.answered(answer));
                }
            },
            Poll::Ready(Order::Page(_)) => unreachable!("the journal is complete"),
            Poll::Pending => {
                // A step that has begun may end, or something else happens first.
                let waiting: Vec<_> = BEGUN.with_borrow(|begun| {
                    GATES.with_borrow(|gates| begun.difference(gates).copied().collect())
                });
                match waiting.get(sequencer.dice.below(waiting.len() + 1)) {
                    Some(number) => {
                        GATES.with_borrow_mut(|gates| gates.insert(*number));
                        if let Some(waker) = WAKERS.with_borrow_mut(|wakers| wakers.remove(number)) {
                            waker.wake();
                        }
                    }
                    None => {
                        let news = vec![News::Record(sequencer.happen())];
                        vm.heard(Answer::go(Timestamp::from_millis(1_000), news));
                    }
                }
            }
        }
    }
    panic!("the run of seed {seed} did not end");
}

/// Feeds a journal to a fresh VM in random pieces; gives what it says first, if it says anything.
fn replay(app: &App, seed: u64, journal: &[Record], dice: &mut Dice) -> Option<Commit> {
    let mut at = dice.below(journal.len() + 1);
    let mut vm = Vm::new(app, activation(seed, &journal[..at], at < journal.len(), None));
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match vm.poll(&mut cx) {
            Poll::Ready(Order::Page(_)) => {
                let next = (at + 1 + dice.below(4)).min(journal.len());
                vm.page(Page { events: journal[at..next].to_vec(), more: next < journal.len() });
                at = next;
            }
            Poll::Ready(Order::Commit(commit)) => return Some(commit),
            // Steps are under way, and nothing is to be said besides.
            Poll::Pending => return None,
        }
    }
}

#[test]
fn a_thousand_interleavings_replay_a_hundred_times_as_they_first_came() {
    let app = App::new().workflow(tree);
    let (mut events, mut cuts) = (0, 0);
    for seed in 0..INTERLEAVINGS {
        reset();
        // Every other one in small pieces.
        let commits = (seed % 2 == 1).then(|| 1 + u32::try_from(seed / 2 % 5).expect("small"));
        let (journal, end, cut) = first_run(&app, seed, commits);
        cuts += cut;
        let trace = TRACE.take();
        events += journal.len();
        let mut dice = Dice(seed);
        let mut said = BTreeMap::new();
        for _ in 0..REPLAYS {
            reset();
            let last = replay(&app, seed, &journal, &mut dice).map(|commit| commit.then);
            assert_eq!(last.as_ref(), Some(&end), "seed {seed}");
            assert_eq!(TRACE.take(), trace, "seed {seed}");
            // A part of the journal always leads to the same words, and to a part of the same story: what comes
            // later only adds to it.
            reset();
            let part = dice.below(journal.len() + 1);
            let now = (replay(&app, seed, &journal[..part], &mut dice), TRACE.take());
            assert!(
                trace.starts_with(&now.1),
                "seed {seed} after {part}: {:?} is not how {trace:?} begins",
                now.1
            );
            assert_eq!(*said.entry(part).or_insert_with(|| now.clone()), now, "seed {seed} after {part}");
        }
    }
    println!("{INTERLEAVINGS} interleavings, {events} events, {cuts} cuts, {REPLAYS} replays each");
    assert!(cuts > 300, "too few were cut: {cuts}");
    assert!(events > 3_000, "the workflows are too small: {events} events");
}
