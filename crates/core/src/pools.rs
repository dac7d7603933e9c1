//! The cells of a pool: how many there are, in which generations, and where a key is at home.
//!
//! A pool grows by a new generation. Nothing moves: a run stays in the cell that its id names, and new runs go
//! to the latest generation. Only a key has to be looked for where it may have been used before.
//!
//! Owns: the setting's form, the way of a keyed start through the generations ([`Walk`]), and that of somebody who only
//! looks for a key's run ([`Search`]).
//! Does not own: what a cell does about a key ([`crate::cell`]), and the calls.

use stepwell_protocol::{Place, Timestamp};

/// The most cells of one generation.
pub const CELLS_MAX: u32 = 4_096;

/// The most generations of a pool.
pub const GENERATIONS_MAX: usize = 16;

/// How many cells of a generation a child is offered to, if they are full.
pub const OFFERED_MAX: u32 = 4;

const DAY_MS: u64 = 86_400_000;

/// A pool and its generations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    name: String,
    /// Oldest first, and never empty.
    generations: Vec<Generation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Generation {
    cells: u32,
    /// The day on which the pool grew to this, if it is known.
    since: Option<Timestamp>,
}

/// What is wrong with the generations of a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} It takes the cells of each generation, oldest first, with the day of each growth if you like: 16, \
         or 16,64, or 16,64@2026-12-01."
)]
pub struct BadPool(String);

impl Pool {
    /// Reads generations, oldest first: `16`, `16,64`, or `16,64@2026-12-01` with the day of growth in UTC.
    pub fn parse(name: &str, text: &str) -> Result<Self, BadPool> {
        let mut generations: Vec<Generation> = Vec::new();
        for (index, part) in text.split(',').enumerate() {
            let (cells, day) = match part.split_once('@') {
                Some((cells, day)) => (cells.trim(), Some(day.trim())),
                None => (part.trim(), None),
            };
            let cells =
                cells.parse().ok().filter(|cells| (1..=CELLS_MAX).contains(cells)).ok_or_else(|| {
                    BadPool(format!("'{cells}' is no number of cells from 1 to {CELLS_MAX}."))
                })?;
            let since = match day {
                Some(_) if index == 0 => {
                    return Err(BadPool(format!("'{part}' is the first generation: nothing grew to it.")));
                }
                Some(day) => Some(
                    day_of(day).ok_or_else(|| BadPool(format!("'{day}' is no day such as 2026-12-01.")))?,
                ),
                None => None,
            };
            let latest = generations.iter().filter_map(|generation| generation.since).max();
            if since.is_some() && since < latest {
                return Err(BadPool(format!("'{part}' is older than the generation before it.")));
            }
            generations.push(Generation { cells, since });
        }
        if generations.len() > GENERATIONS_MAX {
            return Err(BadPool(format!("There are more than {GENERATIONS_MAX} generations.")));
        }
        Ok(Self { name: name.to_owned(), generations })
    }

    /// All cells, the oldest generation first.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let name = self.name.clone();
        let cells = self.generations.clone().into_iter().zip(1..);
        cells.flat_map(move |(generation, number)| {
            let name = name.clone();
            (0..generation.cells).map(move |cell| Place { pool: name.clone(), generation: number, cell })
        })
    }

    /// How many cells each generation has, oldest first.
    pub fn cells(&self) -> Vec<u32> {
        self.generations.iter().map(|generation| generation.cells).collect()
    }

    /// Whether the pool has ever grown.
    pub fn has_grown(&self) -> bool {
        self.generations.len() > 1
    }

    /// Whether there is a cell at this place, as far as this Worker can tell.
    pub fn find(&self, place: &Place) -> Found {
        if place.pool != self.name || place.generation as usize > GENERATIONS_MAX {
            Found::No
        } else if place.generation > self.latest() {
            Found::Unknown
        } else {
            let cells = self.generation(place.generation).map_or(0, |generation| generation.cells);
            if place.cell < cells { Found::Yes } else { Found::No }
        }
    }

    /// How many cells the latest generation has.
    pub fn cells_of_latest(&self) -> u32 {
        self.generation(self.latest()).map_or(1, |generation| generation.cells)
    }

    /// How many cells a generation has, if there is one of this number.
    pub fn cells_of(&self, generation: u32) -> Option<u32> {
        self.generation(generation).map(|generation| generation.cells)
    }

    /// A cell of the latest generation.
    pub fn any(&self, random: u64) -> Place {
        self.home(self.latest(), random)
    }

    /// The cell of a generation that something is at home in, known by a text; nothing, if this Worker does not know the
    /// generation.
    pub fn home_of(&self, generation: u32, text: &str) -> Option<Place> {
        self.generation(generation).map(|_| self.home(generation, spread(text)))
    }

    /// Where something goes whose cell is full, and which was first sent to `home`: through up to [`OFFERED_MAX`] cells of
    /// the latest generation, in an order that only depends on `home` and `draw`. Nowhere from the last of them, and from
    /// a cell of a generation that this Worker does not know.
    ///
    /// So it never comes to a cell twice: generations only follow each other, and each has one order.
    pub fn instead_of(&self, full: &Place, home: &Place, draw: u64) -> Option<Place> {
        let (latest, cells) = (self.latest(), self.cells_of_latest());
        if full.generation > latest {
            return None;
        }
        let first = if home.generation == latest { home.cell } else { self.any(draw).cell };
        let stride = stride(cells, draw >> 32);
        let mut offered = (0..cells.min(OFFERED_MAX)).map(|index| (first + index * stride) % cells);
        if full.generation == latest {
            offered.find(|cell| *cell == full.cell)?;
        }
        offered.next().map(|cell| Place { pool: self.name.clone(), generation: latest, cell })
    }

    fn latest(&self) -> u32 {
        u32::try_from(self.generations.len()).expect("there are few generations")
    }

    fn generation(&self, number: u32) -> Option<Generation> {
        self.generations.get((number as usize).checked_sub(1)?).copied()
    }

    /// Where a key of this hash is at home in a generation.
    fn home(&self, generation: u32, hash: u64) -> Place {
        let cells = self.generation(generation).map_or(1, |generation| generation.cells);
        let cell = u32::try_from(hash % u64::from(cells)).expect("below the number of cells");
        Place { pool: self.name.clone(), generation, cell }
    }

    /// The oldest generation in which a key may still be known.
    fn oldest(&self, now: Timestamp, key_days: u64) -> u32 {
        let is_over = |number: &u32| {
            let grown = self.generation(number + 1).and_then(|next| next.since);
            // The growth took place within that day, and Workers of before went on for a while.
            let days = (key_days + 2).saturating_mul(DAY_MS);
            grown.is_some_and(|since| since.plus_millis(days) <= now)
        };
        (1..self.latest()).rev().find(is_over).map_or(1, |over| over + 1)
    }
}

/// A stride that leads to each of so many cells before it comes back to the first.
fn stride(cells: u32, draw: u64) -> u32 {
    let from = draw % u64::from(cells.saturating_sub(1).max(1));
    let from = u32::try_from(from).expect("below the number of cells") + 1;
    (from..cells).find(|stride| common_divisor(cells, *stride) == 1).unwrap_or(1)
}

fn common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

/// Whether there is a cell at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is.
    Yes,
    /// There is not, and there was never a run.
    No,
    /// Only if the pool has grown to a generation that this Worker does not know of yet.
    Unknown,
}

impl Found {
    /// Whether a pool whose generations have so many cells, oldest first, has one at this place.
    pub fn of(cells: &[u32], place: &Place) -> Self {
        let index = (place.generation as usize).checked_sub(1);
        match index.and_then(|index| cells.get(index)) {
            Some(cells) if place.cell < *cells => Self::Yes,
            Some(_) | None => Self::No,
        }
    }
}

/// What a keyed start asks next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A cell of an older generation: does it know the key? If not, it must send everybody on from now on.
    Reserve {
        /// The cell to ask.
        at: Place,
        /// Where the key goes from there.
        to: Place,
    },
    /// The cell where the key is at home now: start the run.
    Start {
        /// The cell to ask.
        at: Place,
    },
}

/// The way of one keyed start through the generations, from the oldest in which its key may be known.
///
/// Whoever goes this way, in whatever order and with whatever settings, ends at the same run: each cell sends
/// a key on for good or starts its run for good, and does so once.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    pool: &'a Pool,
    hash: u64,
    at: Place,
}

impl<'a> Walk<'a> {
    /// The way of a key, given by its hash. A key is forgotten after so many days.
    pub fn new(pool: &'a Pool, hash: u64, now: Timestamp, key_days: u64) -> Self {
        Self { pool, hash, at: pool.home(pool.oldest(now, key_days), hash) }
    }

    /// What to ask next.
    pub fn ask(&self) -> Ask {
        let at = self.at.clone();
        // A generation that this Worker does not know is newer than all that it knows.
        if at.generation < self.pool.latest() {
            let to = self.pool.home(at.generation + 1, self.hash);
            Ask::Reserve { at, to }
        } else {
            Ask::Start { at }
        }
    }

    /// The cell has sent the key on. Says whether that leads anywhere: the way goes up the generations only.
    pub fn sent_on(&mut self, to: Place) -> bool {
        let leads_on = leads_up(&self.at, &to);
        self.at = to;
        leads_on
    }
}

/// Whether a cell may send a key there.
fn leads_up(from: &Place, to: &Place) -> bool {
    to.pool == from.pool
        && to.generation > from.generation
        && to.generation as usize <= GENERATIONS_MAX
        && to.cell < CELLS_MAX
}

/// The way of somebody who looks for the run of a key, and leaves nothing behind.
///
/// It goes up the generations as a start does ([`Walk`]), so it finds the run that a start with this key would be
/// answered with. Only then does it go down those that starts ask no more: a run that is kept for longer than keys are
/// remembered is still found, unless the key has started another one since.
#[derive(Clone, Debug)]
pub struct Search<'a> {
    pool: &'a Pool,
    hash: u64,
    at: Place,
    /// The oldest generation that a start would ask.
    oldest: u32,
}

impl<'a> Search<'a> {
    /// The way of a key, given by its hash. A key is forgotten after so many days.
    pub fn new(pool: &'a Pool, hash: u64, now: Timestamp, key_days: u64) -> Self {
        let oldest = pool.oldest(now, key_days);
        Self { pool, hash, at: pool.home(oldest, hash), oldest }
    }

    /// The cell to ask.
    pub fn at(&self) -> &Place {
        &self.at
    }

    /// The cell knows no run of this key. Says whether there is another cell to ask.
    pub fn not_here(&mut self) -> bool {
        let next = match self.at.generation {
            before if before < self.oldest => before - 1,
            up if up < self.pool.latest() => up + 1,
            _ => self.oldest - 1,
        };
        self.at = self.pool.home(next.max(1), self.hash);
        next > 0
    }

    /// The cell has sent the key on. Says whether there is another cell to ask, or nothing, if that leads nowhere.
    pub fn sent_on(&mut self, to: Place) -> Option<bool> {
        if !leads_up(&self.at, &to) {
            return None;
        }
        if self.at.generation < self.oldest {
            // What is above was asked before.
            return Some(self.not_here());
        }
        self.at = to;
        Some(true)
    }
}

/// The beginning of a day such as 2026-12-01, in UTC.
fn day_of(text: &str) -> Option<Timestamp> {
    let mut parts = text.split('-');
    let mut part = |length: usize| {
        let part = parts.next().filter(|part| part.len() == length)?;
        if part.bytes().all(|byte| byte.is_ascii_digit()) { part.parse::<u64>().ok() } else { None }
    };
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = months.get(..usize::try_from(month).ok()?.checked_sub(1)?)?;
    if parts.next().is_some() || year < 1970 || day == 0 || day > *months.get(before.len())? {
        return None;
    }
    let leaps = |years: u64| years / 4 - years / 100 + years / 400;
    let days = (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + before.iter().sum::<u64>() + day - 1;
    Some(Timestamp::from_millis(days * DAY_MS))
}

/// Spreads texts evenly, and for ever in the same way: FNV-1a, and its bits mixed.
pub fn spread(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> Pool {
        Pool::parse("default", text).expect("it is a pool")
    }

    fn place(generation: u32, cell: u32) -> Place {
        Place { pool: "default".into(), generation, cell }
    }

    #[test]
    fn a_day_is_the_one_in_the_calendar() {
        for (text, days) in
            [("1970-01-01", 0), ("2000-02-29", 11_016), ("2026-12-01", 20_788), ("2100-03-01", 47_541)]
        {
            assert_eq!(day_of(text), Some(Timestamp::from_millis(days * DAY_MS)), "{text}");
        }
        for bad in [
            "",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-1-1",
            "2026-01-32",
            "2026-01-01-",
            "1969-12-31",
        ] {
            assert_eq!(day_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_no_pool_is_refused_and_says_why() {
        for (bad, why) in [
            ("", "'' is no number of cells"),
            ("16,", "'' is no number of cells"),
            ("0", "'0' is no number"),
            ("16,4097", "'4097' is no number"),
            ("16;64", "'16;64' is no number"),
            ("-1", "'-1' is no number"),
            ("16@2026-12-01", "first generation"),
            ("16,64@yesterday", "'yesterday' is no day"),
            ("16,32@2026-12-01,64@2026-11-30", "older than the generation before"),
            ("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "more than 16 generations"),
        ] {
            let error = Pool::parse("default", bad).expect_err(bad).to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn all_cells_of_all_generations_are_there_and_those_of_later_ones_may_be() {
        let pool = pool(" 2, 3@2026-12-01");
        let places: Vec<_> = pool.places().collect();
        assert_eq!(places, [place(1, 0), place(1, 1), place(2, 0), place(2, 1), place(2, 2)]);
        assert!(places.iter().all(|place| pool.find(place) == Found::Yes));
        let other = Place { pool: "other".into(), ..place(1, 0) };
        for not in [place(1, 2), place(2, 3), place(0, 0), place(17, 0), other] {
            assert_eq!(pool.find(&not), Found::No, "{not}");
        }
        for later in [place(3, 0), place(16, CELLS_MAX)] {
            assert_eq!(pool.find(&later), Found::Unknown, "{later}");
        }
        assert_eq!(Found::of(&[2, 3, 5], &place(3, 4)), Found::Yes);
        assert_eq!(Found::of(&[2, 3, 5], &place(3, 5)), Found::No);
        assert_eq!(Found::of(&[], &place(3, 0)), Found::No);
    }

    #[test]
    fn new_runs_go_to_the_latest_generation() {
        let pool = pool("16,64");
        assert!((0..1_000).all(|random| pool.any(random).generation == 2));
        assert_eq!(pool.any(63), place(2, 63));
    }

    #[test]
    fn what_is_sent_on_comes_to_other_cells_of_the_latest_generation_and_to_none_twice() {
        for cells in ["1", "2", "3", "4", "6", "16", "4096", "2,1", "3,16"] {
            let pool = pool(cells);
            let most = pool.cells_of_latest().min(OFFERED_MAX) as usize;
            for draw in (0..400_u64).map(|draw| draw.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                for home in [pool.any(draw >> 7), place(1, 0)] {
                    let mut way = vec![home.clone()];
                    while let Some(next) = pool.instead_of(&way[way.len() - 1], &home, draw) {
                        assert!(pool.find(&next) == Found::Yes && next.generation == pool.latest(), "{next}");
                        assert!(!way.contains(&next), "{cells}: {way:?} and then {next}");
                        way.push(next);
                    }
                    let is_older = home.generation < pool.latest();
                    assert_eq!(way.len(), most + usize::from(is_older), "{cells}: {way:?}");
                }
            }
        }
        assert_eq!(pool("2").instead_of(&place(2, 0), &place(1, 0), 5), None, "it is newer than this Worker");
    }

    #[test]
    fn a_pool_that_has_grown_takes_what_all_cells_of_before_were_too_full_for() {
        let (old, grown) = (pool("2"), pool("2,3"));
        let (home, other) = (place(1, 1), place(1, 0));
        assert_eq!(old.instead_of(&home, &home, 9), Some(other.clone()));
        assert_eq!(old.instead_of(&other, &home, 9), None);
        let next = grown.instead_of(&other, &home, 9).expect("there are three more");
        assert_eq!(next.generation, 2);
        assert_eq!(grown.instead_of(&next, &home, 9).map(|place| place.generation), Some(2));
    }

    #[test]
    fn older_homes_are_asked_until_the_keys_of_before_the_growth_are_forgotten() {
        let pool = pool("2,3@2026-12-01,5@2027-03-01");
        let first = |text: &str| Walk::new(&pool, 7, day_of(text).expect("a day"), 30).ask();
        let through = |generation: u32, cell: u32, to: u32| Ask::Reserve {
            at: place(generation, cell),
            to: place(generation + 1, to),
        };
        assert_eq!(first("2027-01-01"), through(1, 1, 1));
        assert_eq!(first("2027-01-02"), through(2, 1, 2));
        assert_eq!(first("2027-04-01"), through(2, 1, 2));
        assert_eq!(first("2027-04-02"), Ask::Start { at: place(3, 2) });
    }

    #[test]
    fn without_a_day_older_homes_are_always_asked() {
        let pool = pool("2,3");
        let late = Timestamp::MAX;
        assert_eq!(Walk::new(&pool, 4, late, 30).ask(), Ask::Reserve { at: place(1, 0), to: place(2, 1) });
    }

    #[test]
    fn a_way_goes_up_the_generations_only_even_into_one_that_is_not_known() {
        let pool = pool("2");
        let mut walk = Walk::new(&pool, 5, Timestamp::default(), 30);
        assert_eq!(walk.ask(), Ask::Start { at: place(1, 1) });
        assert!(walk.sent_on(place(2, 40)));
        assert_eq!(walk.ask(), Ask::Start { at: place(2, 40) });
        assert!(!walk.clone().sent_on(place(2, 41)));
        assert!(!walk.clone().sent_on(place(1, 0)));
        assert!(!walk.sent_on(place(3, CELLS_MAX)));
    }

    /// The generations of the cells that are asked if none of them knows the key.
    fn asked(pool: &Pool, now: Timestamp) -> Vec<u32> {
        let mut search = Search::new(pool, 7, now, 30);
        let mut asked = vec![search.at().generation];
        while search.not_here() {
            asked.push(search.at().generation);
            assert!(asked.len() <= GENERATIONS_MAX, "it never ends: {asked:?}");
        }
        asked
    }

    #[test]
    fn a_search_asks_each_generation_once_and_those_that_starts_ask_first() {
        let pool = pool("2,3@2026-12-01,5@2027-03-01");
        for (today, order) in [
            ("2027-01-01", [1, 2, 3]),
            ("2027-01-02", [2, 3, 1]),
            ("2027-04-01", [2, 3, 1]),
            ("2027-04-02", [3, 2, 1]),
        ] {
            assert_eq!(asked(&pool, day_of(today).expect("a day")), order, "{today}");
        }
        assert_eq!(asked(&self::pool("2"), Timestamp::default()), [1]);
    }

    #[test]
    fn a_search_goes_where_it_is_sent_even_into_a_generation_that_is_not_known() {
        let one = pool("2");
        let mut search = Search::new(&one, 5, Timestamp::default(), 30);
        assert_eq!(search.sent_on(place(2, 40)), Some(true));
        assert_eq!(search.at(), &place(2, 40));
        assert_eq!(search.clone().sent_on(place(1, 0)), None);
        assert_eq!(search.clone().sent_on(place(3, CELLS_MAX)), None);
        assert!(!search.not_here(), "there is no other");

        // A key that was sent on by a generation that starts ask no more leads to cells that were asked before.
        let grown = pool("2,3@2026-12-01,5@2027-03-01");
        let mut search = Search::new(&grown, 7, day_of("2027-04-02").expect("a day"), 30);
        assert!(search.not_here());
        assert_eq!(search.sent_on(place(3, 2)), Some(true));
        assert_eq!(search.at(), &place(1, 1));
        assert_eq!(search.sent_on(place(2, 1)), Some(false));
    }
}
