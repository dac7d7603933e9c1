//! What waits are for, and what they are found by: the events, and a path of them that has to have a certain value.

use serde_json::Value as Json;
use stepwell_protocol::{Timestamp, topic::Waiter};

use super::{Rows, waits::NAMES};
use crate::{
    expression::{Expression, Path, Side, index_key},
    ordered::OrdMap,
};

/// How many kinds of waits a topic knows: what they wait for, and what they are found by.
pub(super) const KINDS_MAX: usize = 10_000;

/// By how many paths the waits for the same events are found; those beyond are compared one by one.
const PATHS_MAX: usize = 16;

/// How often it is looked for what nobody waits for any more, if there is no room for more.
const TIDY_MS: u64 = 60_000;

/// What waits are for, and by which paths they are found.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds {
    /// By the events.
    paths: OrdMap<String, OrdMap<String, Option<Path>>>,
    /// How many there are.
    count: usize,
    /// How many of the events are all that begin alike.
    globs: usize,
    /// When those that nobody waits for any more were last forgotten.
    tidied: Timestamp,
}

/// The equality that a wait can be found by, if its condition has one: a path of the event, and a value. One with the
/// run's input is better than one with what all waits of the kind have in common.
fn equality(waiter: &Waiter) -> Option<(String, String)> {
    let when = Expression::parse(waiter.when.as_deref()?, &NAMES).ok()?;
    let input = waiter.input.decode::<Json>().unwrap_or_default();
    let (mut own, mut common) = (None, None);
    for equality in when.equalities().into_iter().filter(|equality| equality.path.root == "event") {
        let found = |value: Option<String>| value.map(|value| (equality.path.to_string(), value));
        match &equality.side {
            Side::Literal(literal) => common = common.or_else(|| found(index_key(&Json::from(literal)))),
            Side::Path(path) if path.root == "input" => {
                own = own.or_else(|| found(path.find(&[("input", &input)]).and_then(index_key)));
            }
            Side::Path(_) => {}
        }
    }
    own.or(common)
}

impl Kinds {
    /// Those that the rows tell of: whoever nobody waits for any more is forgotten.
    pub fn read<R: Rows>(rows: &R, now: Timestamp) -> Result<Self, R::Error> {
        let mut kinds = Self { tidied: now, ..Self::default() };
        for (on, path) in rows.wait_kinds()? {
            kinds.add(on, path);
        }
        Ok(kinds)
    }

    /// There is one more, unless it is known.
    pub fn add(&mut self, on: String, path: String) {
        let is_glob = on.ends_with('*');
        let paths = self.paths.get_or_default(on);
        self.globs += usize::from(is_glob && paths.is_empty());
        let read = Path::read(&path);
        self.count += usize::from(paths.insert(path, read).is_none());
    }

    /// Whether there is such a one.
    pub fn has(&self, on: &str, path: &str) -> bool {
        self.paths.get(on).is_some_and(|paths| paths.contains_key(path))
    }

    /// Under what a wait is found; nothing if there are too many kinds already. Those of one event beyond so many are
    /// compared one by one. Looks now and then whether there is room if there seems to be none.
    pub fn place<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        waiter: &Waiter,
    ) -> Result<Option<(String, String)>, R::Error> {
        if self.is_full(&waiter.on) && self.tidied.plus_millis(TIDY_MS) <= now {
            *self = Self::read(rows, now)?;
        }
        let (path, value) = equality(waiter).unwrap_or_default();
        let has_room = self.paths.get(&waiter.on).is_none_or(|paths| paths.len() < PATHS_MAX);
        let is_found = has_room || self.has(&waiter.on, &path);
        let (path, value) = if is_found { (path, value) } else { (String::new(), String::new()) };
        Ok((self.has(&waiter.on, &path) || self.count < KINDS_MAX).then_some((path, value)))
    }

    /// Whether another kind of wait for these events would be one too many.
    fn is_full(&self, on: &str) -> bool {
        self.count >= KINDS_MAX || self.paths.get(on).is_some_and(|paths| paths.len() >= PATHS_MAX)
    }

    /// The kinds that are for events of this name.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str, Option<&'a Path>)> {
        let beginnings = if self.globs == 0 { 0 } else { name.len() + 1 };
        let globs = (0..beginnings).filter_map(move |end| {
            let glob = format!("{}*", name.get(..end)?);
            self.paths.range(glob.clone()..=glob).next()
        });
        let exact = self.paths.range(name.to_owned()..=name.to_owned());
        let paths = exact.chain(globs);
        paths.flat_map(|(on, paths)| {
            paths.iter().map(move |(path, read)| (on.as_str(), path.as_str(), read.as_ref()))
        })
    }

    /// Whether nobody waits for anything.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
