//! Steps in lanes: cells, their runs' programs and two lanes, with everything between them lost, doubled or late.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::{
    cell::{Action, Cell, LaneQuestion, NewRun, Order, Rows as _},
    lane::{self, Lane, Telling},
    object::{Hosted as _, Machine as _},
    run::CallEnd,
};
use stepwell_protocol::{
    Epoch, Event, Failure, Op, OpKind, Payload, Place, Seq, Timestamp,
    lane::{Ask, Flow, Limit, LimitSpec, Standing, StepLane, Ticket},
    program::{Answer, Command, LetIn, Open, RawRecord, Retry, Then},
};

use stepwell_protocol::rest::StepName;

use crate::{Memory, at, lanes::Table, new_run, said};

#[derive(Clone, Debug)]
enum Post {
    Ask { cell: usize, life: u32, lane: String, flight: u64, asks: Vec<Ask>, over: Vec<Ticket> },
    Answer { cell: usize, life: u32, lane: String, flight: u64, standings: Option<Vec<Standing>> },
    Tell { lane: String, life: u32, telling: Telling },
    Told { lane: String, life: u32, flight: u64, answer: Option<Vec<bool>> },
}

#[derive(Default)]
struct LaneHost {
    table: Table,
    lane: Lane,
    life: u32,
    alarm: Option<Timestamp>,
}

/// A program that is called: what it knows of its journal, and the steps whose code is under way.
#[derive(Clone, Debug, Default)]
struct Program {
    known: Seq,
    /// What it was told of its steps' places when it was called.
    let_in: Option<Box<LetIn>>,
    at_work: BTreeSet<u32>,
    has_told: bool,
}

const STEPS: u32 = 3;

/// The steps that are to be tried again: which attempt has failed, and when the next one may begin.
type Retries = BTreeMap<u32, (u32, Timestamp)>;

struct House {
    rows: Vec<Memory>,
    cells: Vec<Cell>,
    lives: Vec<u32>,
    alarms: Vec<Option<Timestamp>>,
    lanes: BTreeMap<String, LaneHost>,
    post: Vec<(Timestamp, Post)>,
    programs: BTreeMap<(usize, u64, Epoch), Program>,
    now: Timestamp,
    random: u64,
    breaks: bool,
    has_own_limit: bool,
    most: usize,
    hashes: u64,
}

fn step(number: u32) -> Op {
    Op { kind: OpKind::Step, name: "call".into(), occurrence: number }
}

impl House {
    fn new(seed: u64) -> Self {
        Self {
            rows: (0..2).map(|_| Memory::default()).collect(),
            cells: (0..2).map(|_| Cell::new(4)).collect(),
            lives: vec![0; 2],
            alarms: vec![None; 2],
            lanes: BTreeMap::new(),
            post: Vec::new(),
            programs: BTreeMap::new(),
            now: at(0),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            breaks: true,
            has_own_limit: seed.is_multiple_of(3),
            most: 0,
            hashes: 0,
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % (below.max(1) as u64)).unwrap_or(0)
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.breaks && self.draw(chances) == 0
    }

    fn put(&mut self, post: &Post) {
        if self.one_in(8) {
            return;
        }
        for _ in 0..=u32::from(self.one_in(8)) {
            let late = if self.one_in(6) { self.draw(50_000) } else { self.draw(20) };
            self.post.push((self.now.plus_millis(late as u64), post.clone()));
        }
    }

    fn start(&mut self) {
        let (cell, customer) = (self.draw(2), self.draw(2));
        let input = Payload::encode(&customer).expect("JSON");
        let limit = LimitSpec { max: 4, key: None, per_ms: None, drop: false, max_by: None };
        let flow = Flow { limits: vec![limit], ..Flow::default() };
        let flow = self.has_own_limit.then(|| Box::new(flow));
        let place = Place { pool: "default".into(), generation: 1, cell: u32::try_from(cell).unwrap_or(0) };
        let new = NewRun { place, input, flow, ..new_run(None) };
        self.cells[cell].start(&self.rows[cell], self.now, new).expect("it is accepted");
        self.perform(cell);
    }

    fn perform(&mut self, cell: usize) {
        let orders = self.cells[cell].take_orders();
        self.alarms[cell] = orders.arm.or(self.alarms[cell]);
        for order in orders.own {
            match order {
                Order::Call { number, epoch } => {
                    let activation = self.cells[cell].activation(&self.rows[cell], self.now, number, epoch);
                    let let_in = activation.ok().and_then(|activation| activation.let_in);
                    self.programs.insert((cell, number, epoch), Program { let_in, ..Program::default() });
                }
                Order::GiveUp { number, epoch } => {
                    self.programs.remove(&(cell, number, epoch));
                }
                Order::AskLane(question) => {
                    let (lane, flight) = (question.lane, question.flight);
                    let (asks, over, life) = (question.asks, question.over, self.lives[cell]);
                    self.put(&Post::Ask { cell, life, lane, flight, asks, over });
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
        self.check();
    }

    fn perform_lane(&mut self, name: &str) {
        let host = self.lanes.get_mut(name).expect("it was asked");
        let orders = host.lane.take_orders();
        host.alarm = orders.arm.or(host.alarm);
        let life = host.life;
        for lane::Order::Tell(telling) in orders.own {
            self.put(&Post::Tell { lane: name.to_owned(), life, telling: *telling });
        }
    }

    fn deliver(&mut self, post: Post) {
        match post {
            Post::Ask { cell, life, lane, flight, asks, over } => {
                let host = self.lanes.entry(lane.clone()).or_default();
                let standings = host.lane.ask(&host.table, self.now, asks, &over).ok();
                self.perform_lane(&lane);
                self.put(&Post::Answer { cell, life, lane, flight, standings });
            }
            Post::Answer { cell, life, lane, flight, standings } if life == self.lives[cell] => {
                let rows = &self.rows[cell];
                self.cells[cell]
                    .lane_answered(rows, self.now, &lane, flight, standings.as_deref())
                    .expect("it is stored");
                self.perform(cell);
            }
            Post::Tell { lane, life, telling } => {
                let cell = usize::try_from(telling.to.cell).unwrap_or(0);
                let answer = Some(self.cells[cell].are_let_in(&self.rows[cell], self.now, &telling.tickets));
                self.perform(cell);
                self.put(&Post::Told { lane, life, flight: telling.flight, answer });
            }
            Post::Told { lane, life, flight, answer } => {
                let host = self.lanes.get_mut(&lane).expect("it has told");
                if life == host.life {
                    host.lane.told(&host.table, self.now, flight, answer.as_deref()).expect("it is stored");
                    self.perform_lane(&lane);
                }
            }
            Post::Answer { .. } => {}
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now.plus_millis(ms);
        loop {
            let posts = self.post.iter().map(|(at, _)| *at).min();
            let alarms = self.alarms.iter().flatten().copied().min();
            let of_lanes = self.lanes.values().filter_map(|host| host.alarm).min();
            let next = [posts, alarms, of_lanes].into_iter().flatten().min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if let Some(place) = self.post.iter().position(|(at, _)| *at == next) {
                let (_, post) = self.post.remove(place);
                self.deliver(post);
            } else if let Some(cell) = self.alarms.iter().position(|at| *at == Some(next)) {
                self.alarms[cell] = None;
                self.cells[cell].alarm(&self.rows[cell], self.now).expect("the rows can be read");
                self.perform(cell);
            } else {
                let due = self.lanes.iter().find(|(_, host)| host.alarm == Some(next));
                let name = due.map(|(name, _)| name.clone()).expect("one of them is due");
                let host = self.lanes.get_mut(&name).expect("just found");
                host.alarm = None;
                host.lane.alarm(&host.table, self.now).expect("the rows can be read");
                self.perform_lane(&name);
            }
        }
        self.now = until;
    }

    /// What a program sees in its journal: which steps are done, which were let in, and which are to be tried again.
    fn look(&mut self, key: (usize, u64, Epoch)) -> Option<(BTreeSet<u32>, Retries)> {
        let (cell, number, epoch) = key;
        let mut events = Vec::new();
        loop {
            let after = events.last().map_or(Seq(0), |record: &RawRecord| record.seq);
            let page = self.cells[cell].page(&self.rows[cell], number, epoch, after).ok()?;
            events.extend(page.events);
            if !page.more {
                break;
            }
        }
        let (mut done, mut let_in, mut retries) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let program = self.programs.get_mut(&key)?;
        for record in &events {
            program.known = program.known.max(record.seq);
            match record.event.read::<Event>().expect("it is an event") {
                Event::StepFinished { op, .. } => {
                    assert!(done.insert(op.occurrence), "twice on record");
                }
                Event::StepRetrying { op, attempt, retry_at, .. } => {
                    let_in.remove(&op.occurrence);
                    retries.insert(op.occurrence, (attempt, retry_at));
                }
                Event::StepLetIn { op, ticket, .. } => {
                    if program.let_in.as_ref().is_none_or(|told| told.holds(record.seq, ticket)) {
                        let_in.insert(op.occurrence);
                    }
                }
                Event::StepBegun { .. }
                | Event::TimerFired { .. }
                | Event::SignalReceived { .. }
                | Event::ChildInvoked { .. }
                | Event::ChildStarted { .. }
                | Event::ChildFinished { .. } => {}
            }
        }
        program.at_work = let_in.difference(&done).copied().collect();
        Some((done, retries))
    }

    fn limits(&self, cell: usize, number: u64) -> StepLane {
        let customer = self.customer(cell, number);
        let limit =
            |by: &str, key: String, max| Limit { by: by.into(), key, max, per_ms: None, is_own: false };
        StepLane { lane: "api".into(), limits: vec![limit("", String::new(), 3), limit("key", customer, 2)] }
    }

    fn customer(&self, cell: usize, number: u64) -> String {
        self.rows[cell].input(number).expect("it is stored").text().to_owned()
    }

    /// A program does the next thing: it hears what has happened, records a step, or suspends.
    fn work(&mut self) {
        let index = self.draw(self.programs.len());
        let Some(key) = self.programs.keys().nth(index).copied() else { return };
        let (cell, number, epoch) = key;
        let Some((done, retries)) = self.look(key) else {
            self.end_call(key, CallEnd::Returned);
            return;
        };
        self.check();
        let Program { known, at_work, has_told, .. } = self.programs[&key].clone();
        if self.one_in(20) {
            self.end_call(key, CallEnd::Lost("gone".into()));
            return;
        }
        let lane = self.limits(cell, number);
        let open: Vec<_> = (0..STEPS)
            .filter(|number| !done.contains(number) && !at_work.contains(number))
            .map(|number| match retries.get(&number) {
                Some((_, at)) if *at > self.now => Open::Retry { op: step(number), at: *at },
                _ => Open::Lane { op: step(number), lane: Box::new(lane.clone()) },
            })
            .collect();
        let (commands, then) = match at_work.iter().nth(self.draw(at_work.len())) {
            // It says what else it waits for before it goes on.
            Some(_) if !has_told && !open.is_empty() => (vec![], Then::Continue { open: Some(open) }),
            Some(number) => {
                let attempt = retries.get(number).map_or(0, |(attempt, _)| *attempt) + 1;
                let op = step(*number);
                let command = if attempt < 3 && self.draw(4) == 0 {
                    let retry = Retry { attempts: 5, initial_ms: 500, ..Retry::default() };
                    let failure = Failure::new("not now");
                    Command::StepFailed { op, attempt, failure, retry, retry_after_ms: None, took_ms: None }
                } else {
                    Command::StepSucceeded { op, attempt, output: Payload::null(), took_ms: None }
                };
                (vec![command], Then::Continue { open: None })
            }
            None if open.is_empty() => (vec![], Then::Complete { output: Payload::null() }),
            None => (vec![], Then::Suspend { open }),
        };
        let tells = matches!(&then, Then::Continue { open: Some(_) });
        self.hashes += 1;
        let hash = self.hashes;
        // The code of a step is done before that is on record.
        if let Some(Command::StepSucceeded { op, .. } | Command::StepFailed { op, .. }) = commands.first() {
            let program = self.programs.get_mut(&key).expect("it is at work");
            program.at_work.remove(&op.occurrence);
            program.has_told = false;
        }
        let commit = said(known, commands, then);
        let answer = self.cells[cell].commit(&self.rows[cell], self.now, number, epoch, commit, hash);
        self.perform(cell);
        match answer {
            Ok(Answer::Go { .. }) => {
                if let Some(program) = self.programs.get_mut(&key) {
                    program.has_told |= tells;
                }
            }
            Ok(Answer::Stop | Answer::Refused { .. }) | Err(_) => self.end_call(key, CallEnd::Returned),
        }
    }

    fn end_call(&mut self, key: (usize, u64, Epoch), end: CallEnd) {
        let (cell, number, epoch) = key;
        if self.programs.remove(&key).is_some() {
            self.cells[cell]
                .call_ended(&self.rows[cell], self.now, number, epoch, end)
                .expect("it is recorded");
            self.perform(cell);
        }
    }

    fn crash_cell(&mut self) {
        let cell = self.draw(2);
        self.cells[cell] = Cell::new(4);
        self.lives[cell] += 1;
        self.programs.retain(|(of, _, _), _| *of != cell);
        let soon = self.now.plus_millis(self.draw(5_000) as u64 + 1);
        self.alarms[cell] = Some(self.alarms[cell].map_or(soon, |at| at.min(soon)));
    }

    fn crash_lane(&mut self) {
        let index = self.draw(self.lanes.len());
        let Some(name) = self.lanes.keys().nth(index).cloned() else { return };
        let host = self.lanes.get_mut(&name).expect("just found");
        host.lane = Lane::default();
        host.life += 1;
        host.lane.found_alarm(host.alarm);
        host.lane.repair(&host.table, self.now).expect("the rows can be read");
        self.perform_lane(&name);
    }

    fn act(&mut self, action: Option<Action>) {
        let all = self.all();
        let Some(&(cell, number)) = all.get(self.draw(all.len())) else { return };
        let id = self.rows[cell].get(number).id;
        let from = Some(StepName { step: "call".into(), occurrence: 1 });
        let restarts = [Action::Restart { from }, Action::Restart { from: None }];
        let actions = [Action::Cancel, Action::Pause, Action::Resume, Action::Resume, Action::Retry];
        let actions: Vec<_> = actions.into_iter().chain(restarts).collect();
        let action = action.unwrap_or_else(|| actions[self.draw(actions.len())].clone());
        drop(self.cells[cell].act(&self.rows[cell], self.now, &id, "somebody", action));
        self.perform(cell);
    }

    /// What somebody outside sees: how many steps are at work.
    fn check(&mut self) {
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        // Two calls of one run may both be at the same step, one of them for the last time.
        let steps: BTreeSet<_> = (self.programs.iter())
            .flat_map(|((cell, number, _), program)| {
                program.at_work.iter().map(move |step| (*cell, *number, *step))
            })
            .collect();
        for (cell, number, _) in &steps {
            *of.entry(self.customer(*cell, *number)).or_default() += 1;
        }
        self.most = self.most.max(steps.len());
        assert!(steps.len() <= 3, "{steps:?} are at work");
        assert!(of.values().all(|count| *count <= 2), "{of:?}");
    }

    fn all(&self) -> Vec<(usize, u64)> {
        let of = |cell: usize| (1..=self.rows[cell].runs() as u64).map(move |number| (cell, number));
        (0..2).flat_map(of).collect()
    }
}

#[test]
fn no_more_steps_are_at_work_than_their_lane_says_and_all_runs_end_whatever_is_lost() {
    for seed in 1..=40 {
        let mut house = House::new(seed);
        for round in 0..400 {
            house.breaks = round < 300;
            match house.draw(14) {
                0..=1 if round < 200 => house.start(),
                2..=7 => house.work(),
                8 if house.one_in(4) => house.crash_cell(),
                9 if house.one_in(4) => house.crash_lane(),
                10 => house.act(None),
                _ => {
                    let ms = house.draw(4_000);
                    house.pass(ms as u64);
                }
            }
        }
        house.breaks = false;
        for (cell, number) in house.all() {
            let id = house.rows[cell].get(number).id;
            drop(house.cells[cell].act(&house.rows[cell], house.now, &id, "somebody", Action::Resume));
            house.perform(cell);
        }
        let is_over = |house: &House, &(cell, number): &(usize, u64)| {
            house.rows[cell].get(number).status().is_terminal()
        };
        let mut rounds = 0;
        while !house.all().iter().all(|run| is_over(&house, run)) {
            house.pass(200);
            for _ in 0..3 * house.programs.len() {
                house.work();
            }
            rounds += 1;
            assert!(
                rounds < 3_000,
                "seed {seed}: some never end: {:?}",
                house.all().iter().find(|run| !is_over(&house, run)).map(|run| house.rows[run.0].get(run.1))
            );
        }
        while !house.programs.is_empty() {
            house.work();
        }
        house.pass(1_300_000);
        for (name, host) in &house.lanes {
            assert_eq!(host.table.len(), 0, "seed {seed}: slots of {name} are left behind");
        }
        assert!(house.most >= 2, "seed {seed}: only {} were ever at work at once", house.most);
    }
}

/// A run whose only step waits for its lane, and the question to the lane.
fn asked() -> (Memory, Cell, LaneQuestion) {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let limit = Limit { by: String::new(), key: String::new(), max: 1, per_ms: None, is_own: false };
    let lane = Box::new(StepLane { lane: "api".into(), limits: vec![limit] });
    let suspend = Then::Suspend { open: vec![Open::Lane { op: step(0), lane }] };
    cell.commit(&rows, at(1), 1, Epoch(1), said(Seq(0), vec![], suspend), 1).expect("in turn");
    cell.call_ended(&rows, at(2), 1, Epoch(1), CallEnd::Returned).expect("it is recorded");
    let question = question(&mut cell).expect("the lane is asked");
    (rows, cell, question)
}

fn question(cell: &mut Cell) -> Option<LaneQuestion> {
    let mut orders = cell.take_orders().own.into_iter();
    orders.find_map(|order| if let Order::AskLane(question) = order { Some(*question) } else { None })
}

fn complete(cell: &mut Cell, rows: &Memory, epoch: Epoch) -> u32 {
    let done = Command::StepSucceeded { op: step(0), attempt: 1, output: Payload::null(), took_ms: None };
    let commit = said(rows.get(1).head, vec![done], Then::Complete { output: Payload::null() });
    cell.commit(rows, at(10), 1, epoch, commit, 2).expect("in turn");
    rows.get(1).spent.rows
}

#[test]
fn a_step_in_a_lane_costs_five_rows_more_in_its_cell_and_two_more_if_it_has_to_wait() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let plain = complete(&mut cell, &rows, Epoch(1));
    for (standing, more) in [(Standing::In, 5), (Standing::InLine, 7)] {
        let (rows, mut cell, LaneQuestion { lane, flight, asks, .. }) = asked();
        cell.lane_answered(&rows, at(3), &lane, flight, Some(&[standing])).expect("it is stored");
        assert_eq!(cell.are_let_in(&rows, at(4), &[asks[0].ticket.clone()]), [true]);
        assert_eq!(complete(&mut cell, &rows, Epoch(2)), plain + more);
    }
}

#[test]
fn a_lane_that_has_no_room_is_not_asked_again_at_once() {
    let (rows, mut cell, LaneQuestion { lane, flight, .. }) = asked();
    cell.lane_answered(&rows, at(3), &lane, flight, Some(&[Standing::Full])).expect("it is stored");
    for ms in [4, 10_000, 29_000] {
        cell.alarm(&rows, at(ms)).expect("the rows can be read");
        assert_eq!(question(&mut cell), None, "after {ms} ms");
    }
    cell.alarm(&rows, at(30_100)).expect("the rows can be read");
    assert!(question(&mut cell).is_some());
}
