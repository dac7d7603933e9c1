//! Runs under limits: cells and their lane, with everything between them lost, doubled or late.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use stepwell_core::{
    cell::{Action, Cell, NewRun, Order},
    lane::{self, Lane, Telling, Waiter},
    object::{Hosted as _, Machine as _},
    run::{CallEnd, Signal},
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Place, RunId, Timestamp,
    lane::{Ask, Flow, Hold, LimitSpec, SetLimit, Standing, Ticket},
    program::{Open, Then},
    rest::Status,
};

use crate::{Memory, at, new_run, said};

/// The rows of a lane.
#[derive(Default)]
pub(crate) struct Table(RefCell<BTreeMap<u64, Waiter>>);

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl lane::Rows for Table {
    type Error = ();

    fn waiters(&self) -> Result<Vec<(u64, Option<Waiter>)>, ()> {
        Ok(self.0.borrow().iter().map(|(number, waiter)| (*number, Some(waiter.clone()))).collect())
    }

    fn set_limits(&self) -> Result<Vec<SetLimit>, Self::Error> {
        Ok(Vec::new())
    }

    fn write_set_limits(&self, _: &[SetLimit]) -> Result<(), Self::Error> {
        Ok(())
    }

    fn write(&self, put: &[(u64, &Waiter)], deleted: &[u64]) -> Result<(), ()> {
        let mut rows = self.0.borrow_mut();
        rows.extend(put.iter().map(|(number, waiter)| (*number, (*waiter).clone())));
        rows.retain(|number, _| !deleted.contains(number));
        Ok(())
    }
}

/// What is under way between cells and their lane.
#[derive(Clone, Debug)]
enum Post {
    Ask { cell: usize, life: u32, flight: u64, asks: Vec<Ask>, over: Vec<Ticket> },
    Answer { cell: usize, life: u32, flight: u64, standings: Option<Vec<Standing>> },
    Tell { life: u32, telling: Telling },
    Told { life: u32, flight: u64, answer: Option<Vec<bool>> },
}

struct House {
    rows: Vec<Memory>,
    cells: Vec<Cell>,
    /// How often each cell has died.
    lives: Vec<u32>,
    alarms: Vec<Option<Timestamp>>,
    table: Table,
    lane: Lane,
    lane_life: u32,
    lane_alarm: Option<Timestamp>,
    post: Vec<(Timestamp, Post)>,
    /// The programs that are called, by cell and run.
    at_work: BTreeSet<(usize, u64, Epoch)>,
    now: Timestamp,
    random: u64,
    /// Whether anything goes wrong.
    breaks: bool,
    flow: Flow,
    most: usize,
}

impl House {
    fn new(seed: u64, flow: Flow) -> Self {
        Self {
            rows: (0..3).map(|_| Memory::default()).collect(),
            cells: (0..3).map(|_| Cell::new(4)).collect(),
            lives: vec![0; 3],
            alarms: vec![None; 3],
            table: Table::default(),
            lane: Lane::default(),
            lane_life: 0,
            lane_alarm: None,
            post: Vec::new(),
            at_work: BTreeSet::new(),
            now: at(0),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            breaks: true,
            flow,
            most: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.breaks && self.draw(chances) == 0
    }

    /// Puts something on its way, or loses it, or doubles it.
    fn put(&mut self, post: &Post) {
        if self.one_in(8) {
            return;
        }
        for _ in 0..=u32::from(self.one_in(8)) {
            let late = if self.one_in(6) { self.draw(50_000) } else { self.draw(20) };
            self.post.push((self.now.plus_millis(late), post.clone()));
        }
    }

    fn place(cell: usize) -> Place {
        Place { pool: "default".into(), generation: 1, cell: u32::try_from(cell).unwrap_or(0) }
    }

    fn start(&mut self, cell: usize, customer: &str) -> RunId {
        let input = Payload::encode(&serde_json::json!({ "customer": customer })).expect("JSON");
        let flow = Some(Box::new(self.flow.clone()));
        let new = NewRun { place: Self::place(cell), input, flow, ..new_run(None) };
        let run = self.cells[cell].start(&self.rows[cell], self.now, new).expect("it is accepted").run;
        self.perform(cell);
        run.id
    }

    fn perform(&mut self, cell: usize) {
        let orders = self.cells[cell].take_orders();
        self.alarms[cell] = orders.arm.or(self.alarms[cell]);
        for order in orders.own {
            match order {
                Order::Call { number, epoch } => {
                    self.at_work.insert((cell, number, epoch));
                }
                Order::GiveUp { number, epoch } => {
                    self.at_work.remove(&(cell, number, epoch));
                }
                Order::AskLane(question) => {
                    let (flight, asks, over) = (question.flight, question.asks, question.over);
                    let life = self.lives[cell];
                    self.put(&Post::Ask { cell, life, flight, asks, over });
                }
                Order::Nudge { .. }
                | Order::TellProgram(_)
                | Order::TellEnd(_)
                | Order::TellAt(_)
                | Order::SendSpansAt(_)
                | Order::Log(_)
                | Order::TellReaders(_)
                | Order::TellCellReaders => {}
            }
        }
        for sending in orders.send {
            // What a run that kept its slots writes at its end.
            if let stepwell_core::object::Message::TicketOver { ticket } = sending.message.clone() {
                self.lane.ask(&self.table, self.now, Vec::new(), &[ticket]).expect("it is stored");
                self.perform_lane();
            }
        }
        self.check();
    }

    fn perform_lane(&mut self) {
        let orders = self.lane.take_orders();
        self.lane_alarm = orders.arm.or(self.lane_alarm);
        for lane::Order::Tell(telling) in orders.own {
            let life = self.lane_life;
            self.put(&Post::Tell { life, telling: *telling });
        }
    }

    fn deliver(&mut self, post: Post) {
        match post {
            Post::Ask { cell, life, flight, asks, over } => {
                let standings = self.lane.ask(&self.table, self.now, asks, &over).ok();
                self.perform_lane();
                self.put(&Post::Answer { cell, life, flight, standings });
            }
            Post::Answer { cell, life, flight, standings } if life == self.lives[cell] => {
                let answered = self.cells[cell].lane_answered(
                    &self.rows[cell],
                    self.now,
                    "w",
                    flight,
                    standings.as_deref(),
                );
                answered.expect("it is stored");
                self.perform(cell);
            }
            Post::Tell { life, telling } => {
                let cell = usize::try_from(telling.to.cell).unwrap_or(0);
                let answer = self.cells[cell].are_let_in(&self.rows[cell], self.now, &telling.tickets);
                let answer = Some(answer);
                self.perform(cell);
                self.put(&Post::Told { life, flight: telling.flight, answer });
            }
            Post::Told { life, flight, answer } if life == self.lane_life => {
                self.lane.told(&self.table, self.now, flight, answer.as_deref()).expect("it is stored");
                self.perform_lane();
            }
            Post::Answer { .. } | Post::Told { .. } => {}
        }
    }

    /// Time passes: what is due arrives, and alarms fire.
    fn pass(&mut self, ms: u64) {
        let until = self.now.plus_millis(ms);
        loop {
            let posts = self.post.iter().map(|(at, _)| *at).min();
            let alarms = self.alarms.iter().flatten().copied().min();
            let next = [posts, alarms, self.lane_alarm].into_iter().flatten().min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if let Some(place) = self.post.iter().position(|(at, _)| *at == next) {
                let (_, post) = self.post.remove(place);
                self.deliver(post);
            } else if self.lane_alarm == Some(next) {
                self.lane_alarm = None;
                self.lane.alarm(&self.table, self.now).expect("the rows can be read");
                self.perform_lane();
            } else if let Some(cell) = self.alarms.iter().position(|at| *at == Some(next)) {
                self.alarms[cell] = None;
                self.cells[cell].alarm(&self.rows[cell], self.now).expect("the rows can be read");
                self.perform(cell);
            }
        }
        self.now = until;
    }

    /// A program sleeps or completes, and its call ends.
    fn work(&mut self) {
        let at = usize::try_from(self.draw(self.at_work.len().max(1) as u64)).unwrap_or(0);
        let Some((cell, number, epoch)) = self.at_work.iter().nth(at).copied() else { return };
        let head = self.rows[cell].get(number).head;
        let then = if self.draw(3) == 0 {
            let op = Op { kind: OpKind::Sleep, name: "s".into(), occurrence: head.0 };
            Then::Suspend { open: vec![Open::Sleep { op, ms: self.draw(3_000) + 1 }] }
        } else {
            Then::Complete { output: Payload::null() }
        };
        drop(self.cells[cell].commit(
            &self.rows[cell],
            self.now,
            number,
            epoch,
            said(head, vec![], then),
            number,
        ));
        self.perform(cell);
        // The code is at work until its call is over.
        self.at_work.remove(&(cell, number, epoch));
        self.cells[cell]
            .call_ended(&self.rows[cell], self.now, number, epoch, CallEnd::Returned)
            .expect("it is recorded");
        self.perform(cell);
    }

    fn crash_cell(&mut self, cell: usize) {
        self.cells[cell] = Cell::new(4);
        self.lives[cell] += 1;
        self.at_work.retain(|(of, _, _)| *of != cell);
        // What runs do comes back with the alarm, which is set as ever; or at once.
        let soon = self.now.plus_millis(self.draw(5_000) + 1);
        self.alarms[cell] = Some(self.alarms[cell].map_or(soon, |at| at.min(soon)));
    }

    fn crash_lane(&mut self) {
        self.lane = Lane::default();
        self.lane_life += 1;
        // The next request repairs the alarm, or it fires.
        self.lane.found_alarm(self.lane_alarm);
        self.lane.repair(&self.table, self.now).expect("the rows can be read");
        self.perform_lane();
    }

    fn customer(&self, cell: usize, number: u64) -> String {
        let run = self.rows[cell].get(number);
        run.lane.map(|lane| lane.limits[0].key.clone()).unwrap_or_default()
    }

    fn check(&mut self) {
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        // A run that keeps its place goes on by another call while an earlier one ends.
        let runs: BTreeSet<_> = self.at_work.iter().map(|(cell, number, _)| (*cell, *number)).collect();
        for (cell, number) in &runs {
            *of.entry(self.customer(*cell, *number)).or_default() += 1;
        }
        self.most = self.most.max(runs.len());
        assert!(runs.len() <= 3, "{:?} are at work", self.at_work);
        assert!(of.values().all(|count| *count <= 2), "{of:?}");
    }

    fn all(&self) -> Vec<(usize, u64)> {
        let of = |cell: usize| (1..=self.rows[cell].runs() as u64).map(move |number| (cell, number));
        (0..3).flat_map(of).collect()
    }
}

fn flow(hold: Hold) -> Flow {
    Flow {
        limits: vec![
            LimitSpec { max: 2, key: Some("input.customer".into()), per_ms: None, drop: false, max_by: None },
            LimitSpec { max: 3, key: None, per_ms: None, drop: false, max_by: None },
        ],
        hold,
        ..Flow::default()
    }
}

#[test]
fn no_more_are_at_work_than_the_limits_say_and_all_end_whatever_is_lost() {
    for seed in 1..=60 {
        let hold = if seed % 3 == 0 { Hold::Run } else { Hold::Work };
        let mut house = House::new(seed, flow(hold));
        for round in 0..400 {
            house.breaks = round < 300;
            match house.draw(12) {
                0..=2 if round < 200 => {
                    let (cell, customer) = (house.draw(3), house.draw(3));
                    house.start(
                        usize::try_from(cell).unwrap_or(0),
                        ["a", "b", "c"][usize::try_from(customer).unwrap_or(0)],
                    );
                }
                3..=5 => house.work(),
                6 if house.one_in(4) => {
                    let cell = usize::try_from(house.draw(3)).unwrap_or(0);
                    house.crash_cell(cell);
                }
                7 if house.one_in(4) => house.crash_lane(),
                8 => {
                    let all = house.all();
                    let Some(&(cell, number)) =
                        all.get(usize::try_from(house.draw(all.len().max(1) as u64)).unwrap_or(0))
                    else {
                        continue;
                    };
                    let id = house.rows[cell].get(number).id;
                    let action = [Action::Cancel, Action::Pause, Action::Resume, Action::Retry]
                        [usize::try_from(house.draw(4)).unwrap_or(0)]
                    .clone();
                    drop(house.cells[cell].act(&house.rows[cell], house.now, &id, "somebody", action));
                    house.perform(cell);
                }
                _ => {
                    let ms = house.draw(4_000);
                    house.pass(ms);
                }
            }
        }
        // All is well from now on: everything comes to its end.
        house.breaks = false;
        for (cell, number) in house.all() {
            let id = house.rows[cell].get(number).id;
            drop(house.cells[cell].act(&house.rows[cell], house.now, &id, "somebody", Action::Resume));
            house.perform(cell);
        }
        let mut rounds = 0;
        let is_over = |house: &House, &(cell, number): &(usize, u64)| {
            house.rows[cell].get(number).status().is_terminal()
        };
        while !house.all().iter().all(|run| is_over(&house, run)) {
            house.pass(500);
            for _ in 0..house.at_work.len() {
                house.work();
            }
            rounds += 1;
            assert!(
                rounds < 2_000,
                "seed {seed}: some never end: {:?}",
                house
                    .all()
                    .iter()
                    .filter(|run| !is_over(&house, run))
                    .map(|(cell, number)| house.rows[*cell].get(*number))
                    .collect::<Vec<_>>()
            );
        }
        house.pass(1_300_000);
        assert_eq!(house.table.len(), 0, "seed {seed}: slots are left behind");
        assert!(house.most >= 2, "seed {seed}: only {} were ever at work at once", house.most);
    }
}

#[test]
fn a_workflow_without_limits_asks_nobody() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    assert_eq!(run.status(), Status::Running);
    assert!(cell.take_orders().own.iter().all(|order| !matches!(order, Order::AskLane(_))));
}

/// A cell with a run that waits for its lane's answer, and the question.
fn asked() -> (Memory, Cell, RunId, stepwell_core::cell::LaneQuestion) {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let new = NewRun { flow: Some(Box::new(flow(Hold::Work))), ..new_run(None) };
    let run = cell.start(&rows, at(0), new).expect("it is accepted").run;
    let question = cell.take_orders().own.into_iter().find_map(|order| match order {
        Order::AskLane(question) => Some(*question),
        Order::Call { .. }
        | Order::GiveUp { .. }
        | Order::Nudge { .. }
        | Order::TellProgram(_)
        | Order::TellEnd(_)
        | Order::TellAt(_)
        | Order::SendSpansAt(_)
        | Order::Log(_)
        | Order::TellReaders(_)
        | Order::TellCellReaders => None,
    });
    (rows, cell, run.id, question.expect("its lane is asked"))
}

#[test]
fn a_run_goes_to_work_when_it_is_let_in_and_not_before() {
    let (rows, mut cell, id, question) = asked();
    assert_eq!(rows.get(1).status(), Status::Pending);
    let why = cell.why(&rows, at(1), &id).expect("it is there");
    assert!(why.because.contains("2 at once for those with input.customer = ''"), "{}", why.because);
    cell.lane_answered(&rows, at(5), "w", question.flight, Some(&[Standing::In])).expect("it is stored");
    assert_eq!(rows.get(1).status(), Status::Running);
}

#[test]
fn a_run_in_line_lets_its_cell_sleep_and_is_let_in_by_word() {
    let (rows, mut cell, id, question) = asked();
    cell.lane_answered(&rows, at(5), "w", question.flight, Some(&[Standing::InLine])).expect("it is stored");
    assert_eq!(cell.pending_in_memory(), 0);
    let ticket = Ticket::of_run(id, 1);
    // Whatever instance hears it.
    let mut cell = Cell::new(4);
    assert_eq!(cell.are_let_in(&rows, at(60_000), std::slice::from_ref(&ticket)), [true]);
    assert_eq!(rows.get(1).status(), Status::Running);
    assert_eq!(cell.are_let_in(&rows, at(60_001), &[ticket]), [true]);
    assert_eq!(rows.get(1).epoch, Epoch(1));
}

#[test]
fn a_ticket_that_was_given_up_never_goes_again() {
    let (rows, mut cell, id, _) = asked();
    let ticket = Ticket::of_run(id.clone(), 1);
    cell.act(&rows, at(1), &id, "somebody", Action::Pause).expect("it is paused");
    assert_eq!(cell.are_let_in(&rows, at(2), std::slice::from_ref(&ticket)), [false]);
    cell.act(&rows, at(3), &id, "somebody", Action::Resume).expect("it goes on");
    assert_eq!(cell.are_let_in(&rows, at(4), &[ticket]), [false]);
    assert_eq!(rows.get(1).status(), Status::Pending);
}

#[test]
fn a_signal_that_wakes_a_run_does_not_let_it_in() {
    let (rows, mut cell, id, question) = asked();
    cell.lane_answered(&rows, at(5), "w", question.flight, Some(&[Standing::In])).expect("it is stored");
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait {
        op,
        signal: "s".into(),
        timeout_ms: None,
        shape: stepwell_protocol::Shape::Any,
        asked: None,
        event: None,
    }];
    let commit = said(rows.get(1).head, vec![], Then::Suspend { open });
    cell.commit(&rows, at(6), 1, Epoch(1), commit, 1).expect("in turn");
    cell.call_ended(&rows, at(7), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    cell.signal(&rows, at(8), &id, Signal::new("s", Payload::null())).expect("it is kept");
    let run = rows.get(1);
    assert_eq!((run.status(), run.ticket()), (Status::Pending, Some(2)));
}

#[test]
fn a_run_whose_earlier_code_is_still_at_work_waits_for_its_end_without_waking_its_cell() {
    let (rows, mut cell, id, question) = asked();
    cell.lane_answered(&rows, at(5), "w", question.flight, Some(&[Standing::In])).expect("it is stored");
    cell.act(&rows, at(10), &id, "somebody", Action::Pause).expect("it is paused");
    cell.act(&rows, at(11), &id, "somebody", Action::Resume).expect("it goes on");
    let orders = cell.take_orders();
    assert!(orders.own.iter().all(|order| !matches!(order, Order::AskLane(_))), "its first ticket is in use");
    cell.alarm(&rows, at(20)).expect("the rows can be read");
    let orders = cell.take_orders();
    assert!(orders.arm.is_none_or(|arm| arm > at(1_000)), "{:?}", orders.arm);
    cell.call_ended(&rows, at(30), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    let asks = cell.take_orders().own.into_iter().filter_map(|order| {
        let Order::AskLane(question) = order else { return None };
        Some((question.over.len(), question.asks[0].ticket.number))
    });
    assert_eq!(asks.collect::<Vec<_>>(), [(1, 2)]);
}

/// The questions among what the host has to do: whose tickets are over, and which are wanted.
fn questions(cell: &mut Cell) -> Vec<(Vec<u32>, Vec<u32>)> {
    let orders = cell.take_orders().own.into_iter();
    let questions =
        orders.filter_map(|order| if let Order::AskLane(question) = order { Some(question) } else { None });
    let numbers = questions.map(|question| {
        let over = question.over.iter().map(|ticket| ticket.number).collect();
        (over, question.asks.iter().map(|ask| ask.ticket.number).collect())
    });
    numbers.collect()
}

fn goes(cell: &mut Cell, rows: &Memory, ms: u64, id: &RunId, number: u32) -> bool {
    cell.are_let_in(rows, at(ms), &[Ticket::of_run(id.clone(), number)]) == [true]
}

#[test]
fn a_ticket_is_in_use_until_the_code_is_done_however_often_its_run_is_stopped() {
    let (rows, mut cell, id, question) = asked();
    cell.lane_answered(&rows, at(5), "w", question.flight, Some(&[Standing::In])).expect("it is stored");
    for (ms, action) in [(10, Action::Pause), (11, Action::Resume), (12, Action::Pause)] {
        cell.act(&rows, at(ms), &id, "somebody", action).expect("it is done");
    }
    assert!(goes(&mut cell, &rows, 20, &id, 1), "its code is at work");
    assert!(questions(&mut cell).iter().all(|(over, _)| over.is_empty()));
    cell.call_ended(&rows, at(30), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(questions(&mut cell), [(vec![2], vec![])]);
    assert!(!goes(&mut cell, &rows, 31, &id, 1));
}

#[test]
fn the_end_of_an_earlier_call_gives_back_nothing_that_a_later_one_uses() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let new = NewRun { flow: Some(Box::new(flow(Hold::Run))), ..new_run(None) };
    let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
    assert!(goes(&mut cell, &rows, 1, &id, 1));
    cell.act(&rows, at(2), &id, "somebody", Action::Pause).expect("it is done");
    cell.act(&rows, at(3), &id, "somebody", Action::Resume).expect("it keeps its ticket");
    assert!(rows.get(1).is_held_by(Epoch(2)));
    cell.act(&rows, at(4), &id, "somebody", Action::Cancel).expect("it is done");
    drop(cell.take_orders());
    cell.call_ended(&rows, at(5), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert!(goes(&mut cell, &rows, 6, &id, 1), "its second call is at work");
    cell.call_ended(&rows, at(7), 1, Epoch(2), CallEnd::Returned).expect("it is recorded");
    assert!(!goes(&mut cell, &rows, 8, &id, 1));
}

#[test]
fn a_run_that_a_consumer_has_keeps_its_ticket_when_it_is_stopped() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4).with_queue(true));
    let flow = Some(Box::new(flow(Hold::Work)));
    let new = NewRun { flow, dispatch: stepwell_protocol::program::Dispatch::Queued, ..new_run(None) };
    let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
    let nothing = cell.claim(&rows, at(1), 1, true).expect("it is there");
    assert!(matches!(nothing, stepwell_core::cell::Claim::Nothing), "it was not let in");
    assert!(goes(&mut cell, &rows, 2, &id, 1));
    let claim = cell.claim(&rows, at(3), 1, true).expect("it is there");
    assert!(matches!(claim, stepwell_core::cell::Claim::Yours(_)));
    cell.act(&rows, at(4), &id, "somebody", Action::Cancel).expect("it is done");
    assert!(goes(&mut cell, &rows, 5, &id, 1), "the consumer is at work");
    cell.call_ended(&rows, at(6), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert!(!goes(&mut cell, &rows, 7, &id, 1));
}

#[test]
fn a_run_that_was_resumed_while_its_lane_was_asked_is_asked_for_again() {
    let (rows, mut cell, id, question) = asked();
    cell.act(&rows, at(1), &id, "somebody", Action::Pause).expect("it is done");
    cell.act(&rows, at(2), &id, "somebody", Action::Resume).expect("it is done");
    cell.alarm(&rows, at(5_000)).expect("the rows can be read");
    drop(cell.take_orders());
    cell.lane_answered(&rows, at(5_001), "w", question.flight, Some(&[Standing::In])).expect("it is stored");
    assert_eq!(questions(&mut cell), [(vec![1], vec![2])]);
}

#[test]
fn a_late_word_that_a_run_is_in_line_does_not_put_it_to_sleep() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    cell.start(&rows, at(0), new_run(None)).expect("it takes the only place");
    let new = NewRun { flow: Some(Box::new(flow(Hold::Work))), ..new_run(None) };
    let id = cell.start(&rows, at(0), new).expect("it is accepted").run.id;
    assert!(goes(&mut cell, &rows, 1, &id, 1));
    cell.lane_answered(&rows, at(2), "w", 1, Some(&[Standing::InLine])).expect("it is stored");
    let commit = said(rows.get(1).head, vec![], Then::Complete { output: Payload::null() });
    cell.commit(&rows, at(3), 1, Epoch(1), commit, 1).expect("in turn");
    cell.call_ended(&rows, at(4), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    assert_eq!(rows.get(2).status(), Status::Running);
}

#[test]
fn a_run_whose_time_is_over_fails_whatever_its_lane_says() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let new = NewRun { flow: Some(Box::new(flow(Hold::Work))), ..new_run(Some(5_000)) };
    cell.start(&rows, at(0), new).expect("it is accepted");
    cell.lane_answered(&rows, at(6_000), "w", 1, Some(&[Standing::InLine])).expect("it is stored");
    assert_eq!(rows.get(1).status(), Status::Failed);
}

#[test]
fn a_full_lane_costs_no_row_and_is_asked_again_after_a_while() {
    let (rows, mut cell, _, question) = asked();
    let before = rows.get(1);
    cell.lane_answered(&rows, at(5), "w", question.flight, Some(&[Standing::Full])).expect("it is stored");
    assert_eq!(rows.get(1), before);
    let orders = cell.take_orders();
    assert!(orders.own.iter().all(|order| !matches!(order, Order::AskLane(_))));
    cell.alarm(&rows, at(5_005)).expect("the rows can be read");
    assert_eq!(questions(&mut cell), [(vec![], vec![1])]);
}
