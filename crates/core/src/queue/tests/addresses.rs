//! Jobs that go to addresses of their own: each address is down, or gone, by itself.

use std::collections::BTreeSet;

use stepwell_protocol::queue::{Claimed, DeadCode, PushEnd, PushFailure, QueueSettings, Redrive};

use super::{Post, World, at, post};
use crate::{
    object::Machine as _,
    queue::{ADDRESSES_MAX, Order},
};

fn callbacks() -> World {
    World::with(QueueSettings::of_callbacks(at(0)))
}

fn to(address: &str, text: &str) -> Post {
    let content = post(text).content;
    Post::to_address(content, format!("https://{address}.example/"), format!("run/{address}/{text}"))
}

/// A job on its way.
#[derive(Debug)]
struct Going {
    job: Claimed,
    url: String,
}

impl Going {
    fn text(&self) -> &str {
        self.job.text.as_deref().unwrap_or_default()
    }

    fn goes_to(&self, address: &str) -> bool {
        self.url == format!("https://{address}.example/")
    }
}

impl World {
    fn going(&mut self) -> Vec<Going> {
        let pushes = self.take_orders().into_iter().filter_map(|order| match order {
            Order::Push(pushed) => Some(Going { url: pushed.push.url?, job: pushed.job }),
            Order::Wake(_) | Order::Tell(_) | Order::Delete => None,
        });
        pushes.collect()
    }

    /// What goes out, now or when the next alarm fires, if that is by this time.
    fn wake(&mut self, until: u64) -> Vec<Going> {
        let going = self.going();
        let is_due = going.is_empty() && self.alarm.is_some_and(|alarm| alarm <= at(until));
        let Some(alarm) = self.alarm.take_if(|_| is_due) else { return going };
        self.now = self.now.max(alarm.as_millis().saturating_sub(at(0).as_millis()));
        self.queue.alarm(&self.rows, at(self.now)).expect("the storage works");
        self.going()
    }

    fn ends(&mut self, going: &Going, end: PushEnd) {
        self.queue.pushed(&self.rows, at(self.now), &going.job.lease, end).expect("the storage works");
    }

    /// Answers whatever goes out until a time, and gives the texts that were taken.
    fn run_until(&mut self, until: u64, answer: impl Fn(&Going) -> PushEnd) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            let going = self.wake(until);
            if going.is_empty() && self.alarm.is_none_or(|alarm| alarm > at(until)) {
                self.now = self.now.max(until);
                return taken;
            }
            for one in going {
                let end = answer(&one);
                if end == PushEnd::Done {
                    taken.push(one.text().to_owned());
                }
                self.ends(&one, end);
            }
        }
    }

    fn reasons(&mut self) -> Vec<(DeadCode, String)> {
        let dead = self.queue.dead(&self.rows, at(self.now), &self.settings, (at(0), 0), 100);
        let deaths = dead.expect("the storage works").into_iter().filter_map(|job| job.death);
        deaths.map(|death| (death.code, death.reason.unwrap_or_default())).collect()
    }
}

fn down() -> PushEnd {
    PushEnd::Failed(PushFailure { reason: "no answer".into(), is_down: true, ..PushFailure::default() })
}

fn gone() -> PushEnd {
    PushEnd::Failed(PushFailure { reason: "HTTP 410".into(), gone: true, ..PushFailure::default() })
}

#[test]
fn a_message_that_comes_twice_is_one_job() {
    let mut world = callbacks();
    let first = world.send(vec![to("a", "1")]);
    assert_eq!(world.send(vec![to("a", "1")]), first);
    let going = world.going();
    assert_eq!(going.iter().map(Going::text).collect::<Vec<_>>(), ["1"]);
    assert!(going[0].goes_to("a"));
    world.ends(&going[0], PushEnd::Done);
    world.crash();
    assert_eq!((world.send(vec![to("a", "1")]), world.counts()), (first, (0, 0, 0)));
    // An address that is well leaves nothing behind.
    assert!(world.rows.addresses.borrow().is_empty() && world.rows.rows.borrow().is_empty());
}

#[test]
fn an_address_gets_only_some_of_the_places() {
    let mut world = callbacks();
    world.send((0..10).map(|n| to("slow", &n.to_string())).collect());
    assert_eq!(world.going().len(), 3);
    world.send(vec![to("quick", "q")]);
    let going = world.going();
    assert!(going.len() == 1 && going[0].goes_to("quick"), "{going:?}");
    world.ends(&going[0], PushEnd::Done);
    assert_eq!(world.counts(), (7, 3, 0));
    // It does not look for what it cannot send more often than once a second.
    let before = world.now;
    for _ in 0..5 {
        assert_eq!(world.wake(u64::MAX >> 1).len(), 0);
    }
    assert!(world.now >= before + 2_000, "{}", world.now);
}

#[test]
fn an_address_that_is_down_keeps_no_other_waiting() {
    let mut world = callbacks();
    world.send((0..500).map(|n| to("dead", &n.to_string())).collect());
    let answer = |one: &Going| if one.goes_to("dead") { down() } else { PushEnd::Done };
    world.run_until(10_000, answer);
    let before = world.rows.written.get();
    for n in 0..20 {
        let began = world.now;
        world.send(vec![to("well", &format!("w{n}"))]);
        let taken = world.run_until(began, answer);
        assert_eq!(taken, [format!("w{n}")], "at once");
        world.now += 10_000;
    }
    // While it is down, few are tried, and the others cost nothing.
    let written = world.rows.written.get() - before;
    assert!(written < 20 * 30, "{written} rows");
    assert_eq!(world.rows.addresses.borrow().len(), 1);
    let (depth, in_flight, dead) = world.counts();
    assert_eq!((depth + in_flight, dead), (500, 0));
}

#[test]
fn an_address_with_very_many_jobs_keeps_no_other_waiting() {
    let mut world = callbacks();
    world.send((0..2_000).map(|n| to("slow", &n.to_string())).collect());
    let mut going = world.going();
    assert_eq!(going.len(), 3);
    for n in 0..10 {
        world.send(vec![to("well", &format!("w{n}"))]);
        let began = world.now;
        let until = began + 3_000;
        let mut taken = false;
        for _ in 0..50 {
            for one in world.wake(until) {
                taken |= one.goes_to("well");
                if one.goes_to("well") {
                    world.ends(&one, PushEnd::Done);
                } else {
                    going.push(one);
                }
            }
            if taken {
                break;
            }
        }
        assert!(taken && world.now <= until, "w{n} after {} ms", world.now - began);
        // Meanwhile the slow one has taken one.
        let one = going.remove(0);
        world.ends(&one, PushEnd::Done);
        going.append(&mut world.going());
        assert!(going.len() <= 3, "{}", going.len());
    }
    for one in &going {
        world.ends(one, PushEnd::Done);
    }
    let until = world.now + 3_600_000;
    world.run_until(until, |_| PushEnd::Done);
    assert_eq!(world.counts(), (0, 0, 0));
    assert!(world.rows.addresses.borrow().is_empty(), "nothing is left of it");
}

#[test]
fn an_address_that_is_well_again_keeps_no_other_waiting() {
    let mut world = callbacks();
    world.send((0..2_000).map(|n| to("dead", &n.to_string())).collect());
    world.run_until(20_000, |_| down());
    // It takes one, and the next ones take long.
    let mut going = Vec::new();
    for _ in 0..200 {
        let until = world.now + 60_000;
        for one in world.wake(until) {
            if going.is_empty() && world.now < 200_000 {
                world.ends(&one, PushEnd::Done);
            }
            going.push(one);
        }
        if going.len() > 3 {
            break;
        }
    }
    for n in 0..5 {
        world.send(vec![to("well", &format!("w{n}"))]);
        let until = world.now + 2_000;
        let mut taken = world.going();
        for _ in 0..50 {
            if taken.iter().all(|one| !one.goes_to("well")) && world.now < until {
                taken.append(&mut world.wake(until));
            }
        }
        let one = taken.iter().find(|one| one.goes_to("well")).expect("it goes at once");
        world.ends(one, PushEnd::Done);
    }
}

#[test]
fn all_that_stood_back_goes_out_when_the_address_is_well_again_whoever_died_meanwhile() {
    let mut world = callbacks();
    world.send((0..300).map(|n| to("dead", &n.to_string())).collect());
    world.run_until(30_000, |_| down());
    world.crash();
    world.send(vec![to("dead", "late")]);
    assert_eq!(world.going().len(), 0, "it is left alone");
    world.run_until(60_000, |_| down());
    world.crash();
    let until = world.now + 7 * 3_600_000;
    let mut taken = world.run_until(until, |_| PushEnd::Done);
    taken.sort_by_key(|text| text.parse::<u32>().unwrap_or(u32::MAX));
    assert_eq!(taken.len(), 301);
    taken.dedup();
    assert_eq!((taken.len(), world.counts()), (301, (0, 0, 0)));
    assert!(world.rows.addresses.borrow().is_empty(), "nothing is left of it");
}

#[test]
fn an_address_that_is_gone_is_disabled_until_a_redriven_job_is_taken() {
    let mut world = callbacks();
    let ids = world.send((0..5).map(|n| to("gone", &n.to_string())).collect());
    let going = world.going();
    for one in &going {
        world.ends(one, gone());
    }
    world.run_until(1_000, |one| panic!("{} must not go", one.text()));
    assert_eq!(world.counts(), (0, 0, 5));
    world.crash();
    // A later one is dead at once, and says why; other addresses are not concerned.
    world.send(vec![to("gone", "later"), to("well", "w")]);
    let taken = world.run_until(2_000, |_| PushEnd::Done);
    assert_eq!((taken, world.counts()), (vec!["w".to_owned()], (0, 0, 6)));
    let reasons = world.reasons();
    let of = |code: DeadCode| reasons.iter().filter(|(known, _)| *known == code).count();
    assert_eq!((of(DeadCode::Rejected), of(DeadCode::Disabled)), (3, 3));
    assert!(reasons.iter().any(|(_, why)| why.contains("disabled") && why.contains("410")), "{reasons:?}");
    // A redriven one that is refused again changes nothing.
    world.queue.redrive_one(&world.rows, at(3_000), &world.settings, &ids[0]).expect("it is dead");
    world.now = 3_000;
    world.run_until(4_000, |_| gone());
    assert_eq!(world.counts(), (0, 0, 6));
    // One that is taken enables the address.
    world.queue.redrive_one(&world.rows, at(5_000), &world.settings, &ids[1]).expect("it is dead");
    world.now = 5_000;
    assert_eq!(world.run_until(6_000, |_| PushEnd::Done), ["1"]);
    world.send(vec![to("gone", "again")]);
    assert_eq!(world.run_until(7_000, |_| PushEnd::Done), ["again"]);
    assert_eq!(world.counts(), (0, 0, 5));
    assert!(world.rows.addresses.borrow().is_empty());
}

#[test]
fn only_so_many_addresses_are_remembered() {
    let mut world = callbacks();
    for n in 0..ADDRESSES_MAX + 50 {
        world.send(vec![to(&format!("a{n}"), "x")]);
        let began = world.now;
        world.run_until(began, |_| gone());
        world.now += 1;
    }
    assert_eq!(world.rows.addresses.borrow().len(), ADDRESSES_MAX);
    // The oldest are forgotten, and are asked again.
    let dead = world.counts().2;
    world.send(vec![to("a0", "y"), to(&format!("a{}", ADDRESSES_MAX + 49), "y")]);
    let going = world.going();
    assert!(going.len() == 1 && going[0].goes_to("a0"), "{going:?}");
    assert_eq!(world.counts(), (0, 1, dead + 1));
}

#[test]
fn addresses_that_hang_do_not_take_all_places() {
    let mut world = callbacks();
    for n in 0..10 {
        world.send(vec![to(&format!("hangs{n}"), "x"), to(&format!("hangs{n}"), "y")]);
    }
    let hangs = |one: &Going| !one.goes_to("well");
    let mut at_work: Vec<Going> = Vec::new();
    for round in 0..40 {
        at_work.extend(world.wake(u64::MAX >> 1));
        if round > 20 {
            world.send(vec![to("well", &round.to_string())]);
            at_work.extend(world.going());
            let well = at_work.iter().position(|one| !hangs(one)).expect("it goes at once");
            let well = at_work.remove(well);
            world.ends(&well, PushEnd::Done);
        }
        assert!(at_work.len() <= 6);
        world.now += 15_000;
        for one in std::mem::take(&mut at_work) {
            world.ends(&one, down());
        }
    }
}

#[test]
fn jobs_that_stand_back_for_too_long_are_dead_letters() {
    let retention_ms = 3_600_000;
    let mut world = World::with(QueueSettings { retention_ms, ..QueueSettings::of_callbacks(at(0)) });
    world.send((0..10_000).map(|n| to("dead", &n.to_string())).collect());
    world.run_until(retention_ms - 60_000, |_| down());
    // Each was written when it came and when it stood back; few were tried.
    let written = world.rows.written.get();
    assert!(written < 40_000, "{written} rows");
    assert_eq!(world.counts(), (10_000, 0, 0));
    world.run_until(100 * retention_ms, |_| down());
    assert_eq!(world.counts(), (0, 0, 10_000));
    assert!(world.reasons().iter().any(|(code, _)| *code == DeadCode::Expired));
}

/// What an address does in a random history.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    Down,
    Gone,
    Hangs,
}

/// Random histories of a few addresses that come and go, and crashes. In the end all are well, and what died is redriven.
/// Gives what is wrong, if anything is.
fn history(seed: u64) -> Option<String> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut world = callbacks();
    let mut moods = [Mood::Well; 5];
    let mut at_work: Vec<(Going, u64)> = Vec::new();
    let (mut sent, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for step in 0..3_000 {
        let is_healed = step >= 600;
        if is_healed {
            moods = [Mood::Well; 5];
            if step == 600 {
                let redrive = Redrive::default();
                world.queue.redrive(&world.rows, at(world.now), &world.settings, redrive).expect("it begins");
            }
        }
        let until = world.now + if is_healed { 60_000 } else { next(4_000) };
        let going = world.wake(until);
        // Whatever is not heard of is over with its lease.
        let now = world.now;
        at_work.retain(|(_, over)| *over > now);
        at_work.extend(going.into_iter().map(|going| (going, now + 20_000)));
        if at_work.len() > 6 {
            return Some(format!("{} at once", at_work.len()));
        }
        match next(12) {
            0..=3 if !is_healed => {
                let (address, text) = (next(5), format!("{step}"));
                let posted = to(&address.to_string(), &text);
                world.send(vec![posted.clone()]);
                if next(4) == 0 {
                    world.send(vec![posted]);
                }
                sent.insert(text);
            }
            4 if !is_healed => {
                let which = usize::try_from(next(5)).unwrap_or(0);
                moods[which] =
                    [Mood::Well, Mood::Down, Mood::Gone, Mood::Hangs][usize::try_from(next(4)).unwrap_or(0)];
            }
            5 if !is_healed && next(4) == 0 => world.crash(),
            _ => {
                let before = at_work.len();
                for (going, over) in std::mem::take(&mut at_work) {
                    let address = going.url.as_bytes().get(8).map_or(0, |digit| usize::from(digit - b'0'));
                    match moods[address.min(4)] {
                        Mood::Hangs => at_work.push((going, over)),
                        mood @ (Mood::Well | Mood::Down | Mood::Gone) => {
                            let end = match mood {
                                Mood::Down => down(),
                                Mood::Gone => gone(),
                                Mood::Well | Mood::Hangs => PushEnd::Done,
                            };
                            if end == PushEnd::Done {
                                taken.insert(going.text().to_owned());
                            }
                            world.ends(&going, end);
                        }
                    }
                }
                if at_work.len() == before && world.alarm.is_none_or(|alarm| alarm > at(until)) {
                    world.now = until;
                }
            }
        }
        if is_healed && taken.len() == sent.len() {
            break;
        }
    }
    // What had no attempt left when it was well again is a dead letter.
    world.run_until(world.now + 30 * 3_600_000, |_| PushEnd::Done);
    let (depth, in_flight, dead) = world.counts();
    if depth + in_flight > 0 || (taken.len() as u64 + dead) < sent.len() as u64 {
        return Some(format!(
            "{} of {} taken, {depth} queued, {in_flight} held, {dead} dead",
            taken.len(),
            sent.len()
        ));
    }
    let left = world.rows.rows.borrow().values().filter(|row| row.is_back).count();
    (left > 0).then(|| format!("{left} stand back for ever"))
}

#[test]
fn in_no_random_history_is_a_callback_lost() {
    for seed in 1..=300 {
        if let Some(wrong) = history(seed) {
            panic!("seed {seed}: {wrong}");
        }
    }
}
