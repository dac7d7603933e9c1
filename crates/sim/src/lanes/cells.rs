//! The cells of a world of lanes: what their runs want, what they ask, and what they say.

use std::collections::BTreeMap;

use stepwell_core::lane::Telling;
use stepwell_protocol::{
    Place, RunId, Timestamp,
    lane::{Ask, Hold, Limit, Standing, Ticket},
};

use super::{Lanes, Out, Planted, World, check::Model};
use crate::{
    Sabotage,
    host::Cause,
    one::{BEGINNING_MS, BREAKS_MS, Common, OneStation as _},
};

/// How many cells there are.
const CELLS: u64 = 3;

/// How long a cell waits for an answer.
const ANSWER_MS: u64 = 30_000;

/// How many steps a run has, where they are steps, and how many tickets each of them has at the most.
const STEPS: u64 = 4;
const TICKETS: u32 = 100;

/// How often a cell asks.
const ASK_EVERY_MS: u64 = 500;

/// Something that happens around a lane.
#[derive(Clone, Debug)]
pub enum Event {
    /// A run is started, and wants to go to work.
    Start(usize),
    /// A cell asks whatever it has to ask.
    Ask(u64),
    /// A question reaches the lane.
    Question(u64),
    /// Its answer reaches the cell.
    Answer(u64, Vec<Standing>),
    /// No answer has come for long.
    Unanswered(u64),
    /// A run's work is done for now: by which ticket.
    Works(usize, u32),
    /// A run wants to go to work again.
    Wakes(usize),
    /// A cell is told who was let in.
    Tell(u64, Box<Telling>),
    /// It has said who still goes, or has not.
    Told(u64, u64, Option<Vec<bool>>),
    /// A cell dies.
    CellDies(u64),
    /// A run is cancelled, wherever it is.
    Cancel(usize),
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not started yet, or sleeps.
    Sleeps,
    /// It wants to go to work, and whether it is in line.
    Wants { in_line: bool },
    /// It works.
    AtWork,
    /// It has ended.
    Over,
}

/// A run, or one of the steps of a run.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: RunId,
    /// Which of its steps, from 1.
    step: Option<u32>,
    pub limits: Vec<Limit>,
    /// Whose it is.
    share: Option<String>,
    hold: Hold,
    pub ticket: u32,
    /// The ticket by which it first went to work.
    first: Option<u32>,
    /// How often it goes to work yet.
    rounds: u32,
    pub state: State,
}

/// What a cell asks.
#[derive(Clone, Debug)]
struct Question {
    cell: u64,
    /// How often the cell had died by then.
    life: u32,
    asks: Vec<(usize, Ask)>,
    over: Vec<Ticket>,
}

/// All cells, and what is under way between them and the lane.
#[derive(Debug)]
pub struct House {
    pub runs: Vec<Run>,
    questions: BTreeMap<u64, Question>,
    asked: u64,
    /// What cells have to say of tickets that are over: lost when they die.
    over: Vec<Vec<Ticket>>,
    /// Which cells wait for an answer.
    is_asking: Vec<Option<u64>>,
    lives: Vec<u32>,
}

impl House {
    /// Cells whose runs come in one after the other.
    pub fn new(common: &mut Common<Lanes, Event, Out>) -> Self {
        let per_key = u32::try_from(common.rng.between(1, 2)).unwrap_or(1);
        let in_all = u32::try_from(common.rng.between(2, 4)).unwrap_or(2);
        let rate = common.rng.percent(50).then(|| u32::try_from(common.rng.between(3, 8)).unwrap_or(3));
        let hold = if common.rng.percent(25) { Hold::Run } else { Hold::Work };
        let is_fair = common.rng.percent(30);
        let mut runs = Vec::new();
        for number in 0..common.rng.between(15, 40) {
            let customer = ["ada", "bob", "eve"][usize::try_from(common.rng.below(3)).unwrap_or(0)];
            let at_once = |by: &str, key: &str, max| Limit {
                by: by.into(),
                key: key.into(),
                max,
                per_ms: None,
                is_own: false,
            };
            let mut limits = vec![at_once("input.customer", customer, per_key), at_once("", "", in_all)];
            limits.extend(rate.map(|max| Limit { per_ms: Some(20_000), ..at_once("", "", max) }));
            let by_key = rate.filter(|max| max % 2 == 0).map(|_| at_once("input.customer", customer, 2));
            limits.extend(by_key.map(|limit| Limit { per_ms: Some(5_000), ..limit }));
            let cell = u32::try_from(number % CELLS).unwrap_or(0);
            let place = Place { pool: "default".into(), generation: 1, cell };
            let rounds = u32::try_from(common.rng.between(1, 3)).unwrap_or(1);
            runs.push(Run {
                id: RunId { place, number: number + 1, suffix: RunId::suffix_from(number) },
                step: None,
                limits,
                share: is_fair.then(|| customer.to_owned()),
                hold,
                ticket: 0,
                first: None,
                rounds,
                state: State::Sleeps,
            });
            let at_ms = common.rng.between(0, BREAKS_MS);
            common.put_at(at_ms, Event::Start(runs.len() - 1));
            if common.rng.percent(10) {
                let at_ms = at_ms + common.rng.between(0, 60_000);
                common.put_at(at_ms, Event::Cancel(runs.len() - 1));
            }
        }
        if common.rng.percent(30) {
            Self::make_steps(&mut runs);
        }
        for cell in 0..CELLS {
            common.put_at(cell * 100, Event::Ask(cell));
            for _ in 0..common.rng.between(0, 4) {
                let at_ms = common.rng.between(1_000, BREAKS_MS);
                common.put_at(at_ms, Event::CellDies(cell));
            }
        }
        let cells = usize::try_from(CELLS).unwrap_or(0);
        Self {
            runs,
            questions: BTreeMap::new(),
            asked: 0,
            over: vec![Vec::new(); cells],
            is_asking: vec![None; cells],
            lives: vec![0; cells],
        }
    }

    /// They are steps instead, four of each run. Each has tickets of its own.
    fn make_steps(runs: &mut [Run]) {
        for (run, index) in runs.iter_mut().zip(0_u64..) {
            let (of_cell, cell) = (index / CELLS, index % CELLS);
            let number = 1 + cell + CELLS * (of_cell / STEPS);
            let step = 1 + u32::try_from(of_cell % STEPS).unwrap_or(0);
            run.id = RunId { number, suffix: RunId::suffix_from(number), ..run.id.clone() };
            (run.step, run.ticket, run.hold) = (Some(step), step * TICKETS, Hold::Work);
        }
    }
}

fn index(cell: u64) -> usize {
    usize::try_from(cell).unwrap_or(0)
}

impl Run {
    fn cell(&self) -> u64 {
        u64::from(self.id.place.cell)
    }

    fn as_ticket(&self) -> Ticket {
        Ticket { run: self.id.clone(), number: self.ticket, is_step: self.step.is_some() }
    }

    fn is_of(&self, ticket: &Ticket) -> bool {
        self.id == ticket.run && self.step.is_none_or(|step| step == ticket.number / TICKETS)
    }

    /// Whether it keeps its ticket from its beginning to its end.
    fn keeps(&self) -> bool {
        self.hold == Hold::Run && self.first.is_some()
    }

    /// The limits that its ticket is under: rates count its beginning alone.
    fn in_force(&self) -> Vec<Limit> {
        // Each attempt of a step is a beginning.
        let begins = self.step.is_some() || self.first.is_none_or(|first| first == self.ticket);
        self.limits.iter().filter(|limit| limit.per_ms.is_none() || begins).cloned().collect()
    }
}

impl World {
    pub(super) fn on(&mut self, event: Event) {
        match event {
            Event::Ask(cell) => {
                self.common.put(ASK_EVERY_MS, Event::Ask(cell));
                self.ask(cell);
            }
            Event::Question(question) => self.on_question(question),
            Event::Answer(question, standings) => self.on_answer(question, Some(standings)),
            Event::Unanswered(question) => self.on_answer(question, None),
            Event::Works(run, ticket) => self.on_worked(run, ticket),
            Event::Start(run) | Event::Wakes(run) => self.wants(run),
            Event::Tell(from, telling) => self.on_tell(from, &telling),
            Event::Told(to, flight, answer) => {
                let answer = match answer {
                    None if self.is(Planted::SilenceIsOver) => Some(vec![false; self.told_of(to, flight)]),
                    answer => answer,
                };
                self.turn(to, Cause::CallEnded, |lane, rows, now| {
                    lane.told(rows, now, flight, answer.as_deref())
                });
            }
            Event::CellDies(cell) => self.cell_dies(cell),
            Event::Cancel(run) => self.cancel(run),
        }
        let checked = Model::at_work(&self.house);
        self.common.must(checked);
    }

    /// A run becomes due: by another ticket, unless it keeps the one it has.
    fn wants(&mut self, number: usize) {
        let reuses = self.is(Planted::TicketReused);
        let run = &mut self.house.runs[number];
        if run.state != State::Sleeps {
            return;
        }
        if run.keeps() {
            run.state = State::AtWork;
            let ticket = run.ticket;
            let ms = self.common.rng.between(10, 5_000);
            return self.common.put(ms, Event::Works(number, ticket));
        }
        if !reuses || run.ticket.is_multiple_of(TICKETS) {
            run.ticket += 1;
        }
        run.state = State::Wants { in_line: false };
    }

    /// A cell asks for all of its runs that want to go to work, one question at a time.
    fn ask(&mut self, cell: u64) {
        if self.house.is_asking[index(cell)].is_some() {
            return;
        }
        let (loses, is_mistaken) = (self.is(Planted::LimitLost), self.is(Planted::StepTakenForRun));
        let since = Timestamp::from_millis(BEGINNING_MS + self.common.now_ms);
        let is_asked = |run: &Run| run.cell() == cell && run.state == State::Wants { in_line: false };
        let asks = self.house.runs.iter().enumerate().filter(|(_, run)| is_asked(run));
        let asks: Vec<_> = asks
            .map(|(number, run)| {
                let mut limits = run.in_force();
                if loses {
                    limits.retain(|limit| !limit.by.is_empty());
                }
                let mut ticket = run.as_ticket();
                ticket.is_step &= !is_mistaken;
                let ask = Ask {
                    ticket,
                    limits,
                    priority: 0,
                    share: run.share.clone(),
                    hold: run.hold,
                    since,
                    started: Timestamp::from_millis(BEGINNING_MS),
                    step: run.step.map(|step| step.to_string()),
                };
                (number, ask)
            })
            .collect();
        let over = std::mem::take(&mut self.house.over[index(cell)]);
        if asks.is_empty() && over.is_empty() {
            return;
        }
        self.house.asked += 1;
        let id = self.house.asked;
        let life = self.house.lives[index(cell)];
        self.house.questions.insert(id, Question { cell, life, asks, over });
        self.house.is_asking[index(cell)] = Some(id);
        self.common.put(ANSWER_MS, Event::Unanswered(id));
        for _ in 0..=u32::from(self.common.breaks() && self.common.rng.percent(10)) {
            if let Some(delay_ms) = self.common.travels() {
                self.common.put(delay_ms, Event::Question(id));
            }
        }
    }

    /// A question reaches the lane.
    fn on_question(&mut self, id: u64) {
        let Some(question) = self.house.questions.get(&id) else { return };
        let asks: Vec<_> = question.asks.iter().map(|(_, ask)| ask.clone()).collect();
        let mut over = question.over.clone();
        if self.is(Planted::WrongTicketOver) {
            let at_work = self.house.runs.iter().filter(|run| run.state == State::AtWork);
            let others: Vec<_> = at_work.map(Run::as_ticket).collect();
            over = over.into_iter().zip(others).map(|(_, other)| other).collect();
        }
        let Some(instance) = self.load_for_request() else { return };
        let answered =
            self.turn(instance, Cause::Request, |lane, rows, now| lane.ask(rows, now, asks, &over));
        if let Some(Ok(mut standings)) = answered {
            if self.is(Planted::AnswersMixedUp) {
                standings.reverse();
            }
            let early = self.is(Planted::AnsweredEarly).then_some(Sabotage::GateOpen);
            self.send(instance, Out::Answer { question: id, standings }, early);
        }
    }

    /// Something leaves the lane.
    pub(super) fn leaves(&mut self, out: Out) {
        match out {
            Out::Answer { question, standings } => {
                if let Some(delay_ms) = self.common.travels() {
                    self.common.put(delay_ms, Event::Answer(question, standings));
                }
            }
            Out::Tell { from, telling } => {
                let flight = telling.flight;
                self.model.tells.insert((from, flight), telling.tickets.len());
                self.common.put(ANSWER_MS, Event::Told(from, flight, None));
                for _ in 0..=u32::from(self.common.breaks() && self.common.rng.percent(10)) {
                    if let Some(delay_ms) = self.common.travels() {
                        self.common.put(delay_ms, Event::Tell(from, telling.clone()));
                    }
                }
            }
        }
    }

    fn told_of(&self, from: u64, flight: u64) -> usize {
        self.model.tells.get(&(from, flight)).copied().unwrap_or_default()
    }

    /// A cell hears how its runs stand, or waits no longer.
    fn on_answer(&mut self, id: u64, standings: Option<Vec<Standing>>) {
        let Some(question) = self.house.questions.get(&id).cloned() else { return };
        let cell = index(question.cell);
        if question.life != self.house.lives[cell] || self.house.is_asking[cell] != Some(id) {
            return;
        }
        self.house.is_asking[cell] = None;
        let Some(standings) = standings else {
            // What was to be said is said again.
            self.house.over[cell].extend(question.over);
            if self.is(Planted::Impatient) {
                for (number, ask) in question.asks {
                    self.let_in(number, ask.ticket.number);
                }
            }
            return;
        };
        for ((number, ask), standing) in question.asks.into_iter().zip(standings) {
            match standing {
                Standing::In => self.let_in(number, ask.ticket.number),
                Standing::InLine => {
                    let run = &mut self.house.runs[number];
                    if run.ticket == ask.ticket.number && run.state == (State::Wants { in_line: false }) {
                        run.state = State::Wants { in_line: true };
                    }
                }
                Standing::Over | Standing::Full => {}
            }
        }
    }

    /// A run was let in by a ticket.
    fn let_in(&mut self, number: usize, ticket: u32) {
        let takes_any = self.is(Planted::LateAnswerTaken);
        let run = &mut self.house.runs[number];
        if !matches!(run.state, State::Wants { .. }) || run.ticket != ticket && !takes_any {
            return;
        }
        run.state = State::AtWork;
        run.first.get_or_insert(run.ticket);
        let ticket = run.ticket;
        let is_long = self.common.rng.percent(15);
        let ms = if is_long {
            self.common.rng.between(20_000, 90_000)
        } else {
            self.common.rng.between(10, 3_000)
        };
        self.common.put(ms, Event::Works(number, ticket));
    }

    /// A run's code is done for now.
    fn on_worked(&mut self, number: usize, ticket: u32) {
        let run = &mut self.house.runs[number];
        if run.state != State::AtWork || run.ticket != ticket {
            return;
        }
        run.rounds = run.rounds.saturating_sub(1);
        if run.rounds > 0 {
            self.rests(number);
        } else {
            self.ends(number);
        }
    }

    /// It sleeps for a while.
    fn rests(&mut self, number: usize) {
        let run = &mut self.house.runs[number];
        run.state = State::Sleeps;
        if !run.keeps() {
            let (cell, ticket) = (index(run.cell()), run.as_ticket());
            self.house.over[cell].push(ticket);
        }
        let ms = self.common.rng.between(1, 20_000);
        self.common.put(ms, Event::Wakes(number));
    }

    fn ends(&mut self, number: usize) {
        let run = &mut self.house.runs[number];
        run.state = State::Over;
        let (cell, ticket) = (index(run.cell()), run.as_ticket());
        self.house.over[cell].push(ticket);
    }

    fn cancel(&mut self, number: usize) {
        match self.house.runs[number].state {
            // The code of one that works ends first.
            State::AtWork => self.house.runs[number].rounds = 1,
            State::Over => {}
            State::Sleeps | State::Wants { .. } => self.ends(number),
        }
    }

    /// A lane says who was let in: the cell says who still goes.
    fn on_tell(&mut self, from: u64, telling: &Telling) {
        let mut goes = Vec::new();
        for ticket in &telling.tickets {
            let number = self.house.runs.iter().position(|run| run.is_of(ticket));
            let Some(number) = number else { continue };
            self.let_in(number, ticket.number);
            let run = &self.house.runs[number];
            let is_current = run.ticket == ticket.number;
            let goes_on = match run.state {
                State::Wants { .. } | State::AtWork => is_current,
                State::Sleeps => is_current && run.keeps(),
                State::Over => false,
            };
            goes.push(goes_on && !self.is(Planted::TicketDenied));
        }
        if let Some(delay_ms) = self.common.travels() {
            self.common.put(delay_ms, Event::Told(from, telling.flight, Some(goes)));
        }
    }

    /// A cell dies: its code is dead, and what it had to say is forgotten. Its runs are due again.
    fn cell_dies(&mut self, cell: u64) {
        self.house.lives[index(cell)] += 1;
        self.house.is_asking[index(cell)] = None;
        self.house.over[index(cell)].clear();
        for number in 0..self.house.runs.len() {
            let run = &mut self.house.runs[number];
            if run.cell() != cell {
                continue;
            }
            match run.state {
                State::AtWork => {
                    run.state = State::Sleeps;
                    let ms = self.common.rng.between(1, 90_000);
                    self.common.put(ms, Event::Wakes(number));
                }
                // Its row says that it is in line; otherwise it is asked for again.
                State::Wants { .. } | State::Sleeps | State::Over => {}
            }
        }
    }
}
