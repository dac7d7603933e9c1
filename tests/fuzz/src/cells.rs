//! What programs say to a cell: the real machine on rows in memory, which are read back after each word.

use stepwell_core::{
    cell::{Action, Cell, NewRun, Order, Rows as _},
    object::{Fault, Hosted as _, Machine as _},
    run::{CallEnd, Phase, Run, Signal},
};
use stepwell_protocol::{
    Code, Op, Payload, Place, RunId, Seq, Timestamp,
    program::{Answer, Commit, Dispatch},
    rest::{RunView, StepName},
    stream::{Published, StoredItem},
};

use crate::{json, memory::Memory, text};

/// How many lines of an input are looked at.
const LINES_MAX: usize = 24;

/// What a program and its surroundings say, a line each: commits as JSON, and words such as `signal decision`,
/// `wake`, `pause`. A run that hurries has a day.
pub fn commit(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut bench = Bench::new(text.starts_with("hurry").then_some(86_400_000));
    for line in text.lines().take(LINES_MAX) {
        match json::read_back::<Commit>(line) {
            Some(commit) => bench.say(commit, line),
            None => bench.happens(line),
        }
        bench.check();
    }
}

/// What a program publishes, a line each: sent twice, it is stored once.
pub fn published(data: &[u8]) {
    let Some(text) = text(data) else { return };
    json::check::<Vec<StoredItem>>(text);
    let mut bench = Bench::new(None);
    let mut count = 0;
    for line in text.lines().take(LINES_MAX) {
        let Some(published) = json::read_back::<Published>(line) else { continue };
        for item in &published.items {
            assert!(item.size() + 64 >= json::write(item).len() / 6, "a size is about right");
        }
        let sent = published.items.len();
        let taken = bench.publish(&published);
        assert!(taken <= sent, "{taken} of {sent}");
        assert_eq!(bench.publish(&published), 0, "what is sent twice is stored twice");
        count += taken;
        assert_eq!(bench.told().len(), count);
    }
}

/// A cell with one run whose program is at work.
struct Bench {
    cell: Cell,
    rows: Memory,
    now: Timestamp,
    id: RunId,
}

impl Bench {
    fn new(timeout_ms: Option<u64>) -> Self {
        let (mut cell, rows) = (Cell::new(4), Memory::default());
        let now = Timestamp::from_millis(1_700_000_000_000);
        let place = Place { pool: "default".into(), generation: 1, cell: 0 };
        let new = NewRun {
            place,
            suffix: RunId::suffix_from(7),
            seed: 5,
            workflow: "order".into(),
            input: Payload::null(),
            dispatch: Dispatch::Direct,
            timeout_ms,
            retention_ms: None,
            tags: Vec::new(),
            key: None,
            by: None,
            parent: None,
            ticked: None,
            starts_at: None,
            triggered: None,
            trace: None,
            callback: None,
            flow: None,
            joins: None,
        };
        let Ok(()) = cell.repair(&rows, now) else { panic!("there is nothing to repair") };
        let Ok(started) = cell.start(&rows, now, new) else { panic!("nothing is in its way") };
        assert!(matches!(started.run.phase, Phase::Running { .. }));
        Self { cell, rows, now, id: started.run.id }
    }

    fn run(&self) -> Run {
        let Ok(run) = self.cell.find(&self.rows, &self.id) else { panic!("it is there") };
        run
    }

    /// A program reports. One that has lost its place gets another try, and what was recorded is never recorded twice.
    fn say(&mut self, commit: Commit, line: &str) {
        // What becomes of that has a target of its own.
        let mut commit = Commit { published: Published::default(), ..commit };
        let (before, hash) = (self.run(), hash(line));
        let (epoch, number) = (before.epoch, self.id.number);
        let mut answer = self.cell.commit(&self.rows, self.now, number, epoch, commit.clone(), hash);
        if matches!(&answer, Err(Fault::Rejected(problem)) if problem.code == Code::BaseMismatch) {
            commit.base = before.last_counted();
            answer = self.cell.commit(&self.rows, self.now, number, epoch, commit.clone(), hash);
        }
        match answer {
            Ok(answer) => {
                self.check_answer(&answer, &commit);
                let head = self.run().head;
                assert!(
                    head.0 <= before.head.0 + u32::try_from(commit.commands.len()).expect("few commands")
                );
                drop(self.cell.commit(&self.rows, self.now, number, epoch, commit, hash));
                assert_eq!(self.run().head, head, "a repeated commit was recorded twice");
            }
            Err(Fault::Rejected(_)) => assert_eq!(self.run(), before, "what is refused changes nothing"),
            Err(Fault::Moved(_)) => panic!("the run has no key"),
            Err(Fault::Storage(error)) => panic!("{error:?}"),
        }
    }

    fn check_answer(&self, answer: &Answer, commit: &Commit) {
        assert!(json::read_back::<Answer>(&json::write(answer)).is_some());
        if let Some(now) = answer.in_short(commit.base, commit.told()) {
            assert_eq!(&Answer::from_short(now, commit.base, commit.told()), answer);
            assert!(now <= self.now);
        }
    }

    /// Something happens from outside.
    fn happens(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Self { cell, rows, now, id } = self;
        let (rows, now) = (&*rows, *now);
        let done = match word {
            "signal" => {
                let payload = Payload::encode(rest).expect("a text is JSON");
                cell.signal(rows, now, id, Signal::new(rest, payload)).map(drop)
            }
            "pause" => cell.act(rows, now, id, rest, Action::Pause),
            "resume" => cell.act(rows, now, id, rest, Action::Resume),
            "cancel" => cell.act(rows, now, id, rest, Action::Cancel),
            "retry" => cell.act(rows, now, id, rest, Action::Retry),
            "restart" => {
                let op = rest.parse::<Op>().ok();
                let from = op.map(|Op { name: step, occurrence, .. }| StepName { step, occurrence });
                cell.act(rows, now, id, rest, Action::Restart { from })
            }
            "wake" => {
                let Ok(run) = cell.find(rows, id) else { panic!("it is there") };
                self.now = run.wake_at().map_or(now, |at| at.max(now));
                let (number, epoch) = (id.number, run.epoch);
                // Its program cannot have waited for so long.
                let ended = cell.call_ended(rows, self.now, number, epoch, CallEnd::Returned);
                ended.and_then(|()| cell.alarm(rows, self.now))
            }
            _ => Ok(()),
        };
        match done {
            Ok(()) | Err(Fault::Rejected(_)) => {}
            Err(Fault::Moved(_)) => panic!("the run has no key"),
            Err(Fault::Storage(error)) => panic!("{error:?}"),
        }
    }

    /// Publishes, lets the cell store it when it is due, and says how many items are new.
    fn publish(&mut self, published: &Published) -> usize {
        let (before, run) = (self.told().len(), self.run());
        let told = self.cell.told(&self.rows, self.now, self.id.number, run.epoch, published.clone());
        if let Err(Fault::Rejected(problem)) = &told {
            assert_eq!(problem.code, Code::InvalidRequest);
        }
        for order in self.cell.take_orders().own {
            if let Order::TellAt(at) = order {
                self.now = self.now.max(at);
                let Ok(()) = self.cell.tell(&self.rows, self.now) else { panic!("memory takes it") };
            }
        }
        self.told().len() - before
    }

    /// All that is stored of what was published, in order.
    fn told(&self) -> Vec<StoredItem> {
        let (mut items, mut after) = (Vec::new(), 0);
        loop {
            let page = self.rows.told(self.id.number, after).expect("memory gives it");
            for row in page.rows {
                assert!(
                    row.last > after
                        && row.last - after == u32::try_from(row.items.len()).expect("few items")
                );
                after = row.last;
                items.extend(row.items);
            }
            if !page.more {
                return items;
            }
        }
    }

    fn check(&mut self) {
        let orders = self.cell.take_orders();
        let told = orders
            .own
            .iter()
            .filter_map(|order| if let Order::TellAt(at) = order { Some(*at) } else { None });
        assert!(
            orders.arm.into_iter().chain(told).all(|at| at <= Timestamp::MAX),
            "no alarm can be set so late"
        );
        let mut run = self.run();
        let stored = self.rows.get(self.id.number);
        // The bill is an estimate: what a lost instance had counted for it is not worth a row.
        run.spent = stored.spent;
        // Stored with the row: a failed attempt alone is not worth one.
        run.last_error.clone_from(&stored.last_error);
        let (row, again) = (run.to_row(), stored.to_row());
        json::assert_same(&row.state, &again.state);
        assert_eq!((row.status, row.wake_at, run.head), (again.status, again.wake_at, stored.head));
        assert!(row.wake_at.is_none_or(|at| at <= Timestamp::MAX), "nobody can wait so long");
        let is_at_rest = matches!(run.phase, Phase::Paused { .. } | Phase::Ended { .. });
        let waits = run.open.iter().any(|open| open.signal.is_some());
        assert!(is_at_rest || waits || row.wake_at.is_some(), "nothing wakes the run");
        assert!(json::read_back::<RunView>(&json::write(&RunView::from(&run))).is_some());
        assert_eq!(self.rows.history(self.id.number).last().map_or(Seq(0), |record| record.seq), run.head);
        json::write(&run.why(self.now));
    }
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(7, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
