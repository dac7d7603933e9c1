//! The toy of `docs/new-object.md`, and what every object has from the kernel: shown on it.

use std::cell::{Cell as Slot, RefCell};

use stepwell_core::object::{DEAD_MAN_MS, Fault, Hosted, LOOK_AGAIN_MS, Machine, Object};
use stepwell_protocol::{Code, Problem, Timestamp};

// [counter]
/// How long until a change of the count is reported.
const REPORT_MS: u64 = 60_000;

/// What is stored of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Row {
    count: u64,
    /// When the count has to be reported, if it has changed.
    report_at: Option<Timestamp>,
}

/// What a counter needs of its storage.
trait Rows {
    type Error;
    fn load(&self) -> Result<Row, Self::Error>;
    fn store(&self, row: Row) -> Result<(), Self::Error>;
}

/// What the host has to do for a counter: send the count to whoever wants it.
#[derive(Debug, PartialEq)]
struct Report(u64);

/// A number that only grows, and is reported a minute after it has changed.
#[derive(Default)]
struct Counter {
    object: Object<Report>,
}

impl Counter {
    fn add<R: Rows>(&mut self, rows: &R, clock: Timestamp, more: u64) -> Result<u64, Fault<R::Error>> {
        let now = self.now(clock);
        let row = rows.load().map_err(Fault::Storage)?;
        let full = || Problem::new(Code::InvalidRequest, "The counter is full.");
        let count = row.count.checked_add(more).ok_or_else(full)?;
        let report_at = row.report_at.unwrap_or_else(|| now.plus_millis(REPORT_MS));
        rows.store(Row { count, report_at: Some(report_at) }).map_err(Fault::Storage)?;
        self.object.arm_by(now, report_at);
        Ok(count)
    }
}

impl Hosted for Counter {
    type Order = Report;

    fn object(&mut self) -> &mut Object<Report> {
        &mut self.object
    }
}

impl<R: Rows> Machine<R> for Counter {
    type Error = R::Error;

    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let row = rows.load().map_err(Fault::Storage)?;
        if row.report_at.is_none_or(|at| now < at) {
            return Ok(row.report_at);
        }
        rows.store(Row { report_at: None, ..row }).map_err(Fault::Storage)?;
        self.object.order(Report(row.count));
        Ok(None)
    }

    fn first_due(&mut self, rows: &R, _now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        Ok(rows.load().map_err(Fault::Storage)?.report_at)
    }
}
// [/counter]

/// Rows in memory.
#[derive(Default)]
struct Memory {
    row: RefCell<Row>,
    refuses: Slot<bool>,
}

#[derive(Debug)]
struct Refused;

impl Rows for Memory {
    type Error = Refused;

    fn load(&self) -> Result<Row, Refused> {
        if self.refuses.get() { Err(Refused) } else { Ok(*self.row.borrow()) }
    }

    fn store(&self, row: Row) -> Result<(), Refused> {
        *self.row.borrow_mut() = row;
        Ok(())
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

#[test]
fn a_count_is_reported_once_and_when_it_is_due() {
    let (rows, mut counter) = (Memory::default(), Counter::default());
    for ms in 0..3 {
        counter.add(&rows, at(ms), 2).expect("there is room");
    }
    assert_eq!(counter.take_orders().arm, Some(at(REPORT_MS)), "the first change is the one that counts");
    counter.alarm(&rows, at(REPORT_MS - 1)).expect("the rows can be read");
    let orders = counter.take_orders();
    assert_eq!(
        (orders.arm, orders.own),
        (Some(at(REPORT_MS)), vec![]),
        "an alarm that comes early is set again"
    );
    counter.alarm(&rows, at(REPORT_MS)).expect("the rows can be read");
    let orders = counter.take_orders();
    assert_eq!((orders.arm, orders.own), (None, vec![Report(6)]));
    counter.alarm(&rows, at(REPORT_MS + 1)).expect("the rows can be read");
    assert_eq!(counter.take_orders().own, []);
}

#[test]
fn a_fresh_instance_finds_out_that_the_alarm_was_lost() {
    let rows = Memory::default();
    let mut first = Counter::default();
    first.add(&rows, at(0), 1).expect("there is room");
    drop(first.take_orders());
    // What the platform says of the alarm, and what it is then set for.
    for (found, armed) in [(None, REPORT_MS), (Some(at(REPORT_MS)), REPORT_MS - 1), (Some(at(9)), REPORT_MS)]
    {
        let mut next = Counter::default();
        next.found_alarm(found);
        next.repair(&rows, at(5)).expect("the rows can be read");
        assert_eq!(next.take_orders().arm, Some(at(armed)), "{found:?}");
        next.repair(&rows, at(6)).expect("the rows can be read");
        assert_eq!(next.take_orders().arm, None, "once is enough");
    }
}

#[test]
fn an_instance_that_is_awake_notices_that_the_alarm_did_not_fire() {
    let (rows, mut counter) = (Memory::default(), Counter::default());
    counter.add(&rows, at(0), 1).expect("there is room");
    drop(counter.take_orders());
    // A little late is not lost.
    counter.add(&rows, at(REPORT_MS + DEAD_MAN_MS - 1), 1).expect("there is room");
    assert_eq!(counter.take_orders().arm, None);
    let late = REPORT_MS + DEAD_MAN_MS;
    counter.add(&rows, at(late), 1).expect("there is room");
    assert_eq!(counter.take_orders().arm, Some(at(late + 1)));
    // Whatever is asked, and not only what arms.
    let later = late + 1 + DEAD_MAN_MS;
    counter.repair(&rows, at(later)).expect("the rows can be read");
    assert_eq!(counter.take_orders().arm, Some(at(later + 1)));
    counter.repair(&rows, at(later + 2)).expect("the rows can be read");
    assert_eq!(counter.take_orders().arm, None, "the new one has its time too");
}

#[test]
fn an_alarm_that_the_platform_does_not_know_of_is_set_again() {
    let (rows, mut counter) = (Memory::default(), Counter::default());
    counter.add(&rows, at(0), 1).expect("there is room");
    drop(counter.take_orders());
    counter.not_armed();
    counter.add(&rows, at(1), 1).expect("there is room");
    assert_eq!(counter.take_orders().arm, Some(at(2)));
    // That one was set, and then lost.
    counter.found_alarm(None);
    counter.repair(&rows, at(1)).expect("the rows can be read");
    assert_eq!(counter.take_orders().arm, Some(at(REPORT_MS)));
}

#[test]
fn an_alarm_that_could_not_be_set_is_set_with_the_next_request() {
    let (rows, mut counter) = (Memory::default(), Counter::default());
    counter.add(&rows, at(0), 1).expect("there is room");
    assert_eq!(counter.take_orders().arm, Some(at(REPORT_MS)));
    counter.not_armed();
    counter.repair(&rows, at(10)).expect("the rows can be read");
    assert_eq!(counter.take_orders().arm, Some(at(11)), "nobody knows what is set: it looks at once");
    counter.alarm(&rows, at(11)).expect("the rows can be read");
    assert_eq!(counter.take_orders().arm, Some(at(REPORT_MS)));
}

#[test]
fn an_alarm_that_cannot_read_the_rows_comes_back_later_and_later() {
    let (rows, mut counter) = (Memory::default(), Counter::default());
    rows.refuses.set(true);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(matches!(counter.alarm(&rows, at(0)), Err(Fault::Storage(Refused))));
        let armed = counter.take_orders().arm.expect("it comes back");
        pauses.push(armed.as_millis() - at(0).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, DEAD_MAN_MS, DEAD_MAN_MS]);
    rows.refuses.set(false);
    counter.alarm(&rows, at(0)).expect("the rows can be read");
    rows.refuses.set(true);
    drop(counter.alarm(&rows, at(0)));
    assert_eq!(counter.take_orders().arm, Some(at(LOOK_AGAIN_MS)), "a success is a new beginning");
}

#[test]
fn time_never_goes_back_while_an_instance_lives() {
    let (rows, mut counter) = (Memory::default(), Counter::default());
    assert_eq!(counter.now(at(5_000)), at(5_000));
    counter.add(&rows, at(0), 1).expect("there is room");
    assert_eq!(rows.row.borrow().report_at, Some(at(5_000 + REPORT_MS)));
    let full = counter.add(&rows, at(0), u64::MAX);
    assert!(matches!(full, Err(Fault::Rejected(problem)) if problem.code == Code::InvalidRequest));
}
