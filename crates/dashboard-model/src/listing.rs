//! The list of runs on the page: pages of the API one after the other, and changes that streams tell of.
//!
//! Its invariant: newest first, no run twice, and between the newest and the last row none is missing.

use std::collections::BTreeSet;

use stepwell_protocol::{
    Timestamp,
    rest::{RunList, RunView},
    stream::StatusView,
};

use crate::filter::Filter;

/// The most runs that a page keeps. Older ones are found by a filter.
pub const RUNS_MAX: usize = 50_000;

/// The most runs that are remembered as being elsewhere; then all of them are forgotten.
const ELSEWHERE_MAX: usize = 20_000;

/// What is known of a list.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    runs: Vec<RunView>,
    ids: BTreeSet<String>,
    cursor: Option<String>,
    is_loaded: bool,
    /// Whether rows at the end were dropped, because there are too many.
    is_cut: bool,
    /// All runs from the last row up to this time are in the list; of newer ones, perhaps only some.
    covered: Option<Timestamp>,
    /// Runs to ask for: new ones, and those that have more to show than a status.
    wanted: BTreeSet<String>,
    /// Runs that were asked for and are not in the part of the list that is loaded.
    elsewhere: BTreeSet<String>,
    /// Runs of the list that a stream has told of since the last request began: an answer may be older than that.
    told: BTreeSet<String>,
}

/// What a change means for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row has changed.
    Row(usize),
    /// A row does not match any more, and is gone.
    Gone(usize),
    /// It may belong to the list: ask for it.
    Unknown,
    /// It does not concern the list.
    Nothing,
}

impl Listing {
    /// The runs, newest first.
    pub fn runs(&self) -> &[RunView] {
        &self.runs
    }

    /// Whether the first page has come.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Where the next page begins, if there may be one.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref().filter(|_| self.runs.len() < RUNS_MAX)
    }

    /// Whether there are older runs than those in the list.
    pub fn has_older(&self) -> bool {
        self.is_cut || self.cursor.is_some()
    }

    /// Takes the page that follows.
    pub fn append(&mut self, page: RunList) {
        self.elsewhere.clear();
        for run in page.executions {
            if self.ids.insert(run.id.to_string()) {
                self.runs.push(run);
            }
        }
        self.cursor = page.cursor;
        if !self.is_loaded {
            self.covered = self.runs.first().map(|run| run.created_at);
        }
        self.is_loaded = true;
        self.bound();
    }

    /// Whether the newest runs reach down to those that the list has, so that none between them is missing. If not, the
    /// page that follows is needed, too.
    pub fn reaches(&self, newest: &RunList) -> bool {
        if !self.is_loaded || newest.cursor.is_none() {
            return true;
        }
        // A filter that finds little may look at many runs for nothing.
        let Some(last) = newest.executions.last() else { return self.covered.is_some() };
        self.covered.is_some_and(|covered| {
            last.created_at < covered
                // Of runs of the same millisecond, the list may have only some.
                || (last.created_at == covered && self.ids.contains(&last.id.to_string()))
        })
    }

    /// Takes the newest runs: new ones come to their places, known ones are replaced. Those that do not reach down to the
    /// others take the place of all. Gives the number of rows that were added before row `above`.
    pub fn refresh(&mut self, page: RunList, above: usize) -> usize {
        if !self.reaches(&page) {
            self.runs.clear();
            self.ids.clear();
            (self.is_loaded, self.is_cut) = (false, false);
        }
        if !self.is_loaded {
            self.append(page);
            return 0;
        }
        self.covered = self.covered.max(page.executions.first().map(|run| run.created_at));
        self.place(page.executions, above)
    }

    /// Takes single runs, as `refresh` does; there may be others between them.
    pub fn place(&mut self, runs: Vec<RunView>, above: usize) -> usize {
        let mut added = 0;
        for run in runs {
            let id = run.id.to_string();
            if self.ids.contains(&id) {
                if let Some(known) = self.runs.iter_mut().find(|known| known.id == run.id) {
                    let (status, ended_at) = (known.status, known.ended_at);
                    *known = run;
                    if self.told.contains(&id) {
                        (known.status, known.ended_at) = (status, ended_at);
                    }
                }
                continue;
            }
            let at = self.runs.partition_point(|known| is_before(known, &run));
            // Beyond the last row there is another page, which will have it.
            if at == self.runs.len() && self.has_older() {
                continue;
            }
            self.ids.insert(id);
            self.runs.insert(at, run);
            added += usize::from(at <= above + added);
        }
        self.bound();
        added
    }

    /// Drops the oldest rows, if there are too many.
    fn bound(&mut self) {
        for run in self.runs.drain(RUNS_MAX.min(self.runs.len())..) {
            self.ids.remove(&run.id.to_string());
            // The next page would begin after what was dropped.
            (self.is_cut, self.cursor) = (true, None);
        }
    }

    /// Takes a status that a stream tells of.
    pub fn take(&mut self, told: &StatusView, at: Timestamp, filter: &Filter) -> Change {
        if filter.workflow.as_ref().is_some_and(|workflow| *workflow != told.workflow) {
            return Change::Nothing;
        }
        let is_wanted = filter.may_admit(told.status);
        // Most changes are of runs that are not in the list.
        let is_known = self.ids.contains(&told.id.to_string());
        let known = if is_known { self.runs.iter().position(|run| run.id == told.id) } else { None };
        let Some(row) = known else {
            let id = told.id.to_string();
            let is_other = filter.id.as_ref().is_some_and(|only| *only != id)
                || (filter.key.is_some() && !self.runs.is_empty());
            if !is_wanted || is_other || self.elsewhere.contains(&id) {
                return Change::Nothing;
            }
            self.wanted.insert(id);
            return Change::Unknown;
        };
        if !is_wanted {
            self.runs.remove(row);
            self.ids.remove(&told.id.to_string());
            return Change::Gone(row);
        }
        self.told.insert(told.id.to_string());
        let run = &mut self.runs[row];
        if run.status == told.status {
            return Change::Nothing;
        }
        run.status = told.status;
        run.ended_at = told.status.is_terminal().then_some(at);
        if told.status.is_terminal() || filter.looks_inside() {
            // Its error or its cost is more than the stream tells.
            self.wanted.insert(told.id.to_string());
        }
        Change::Row(row)
    }

    /// A request begins: the runs to ask for.
    pub fn asking(&mut self) -> Vec<String> {
        self.told.clear();
        std::mem::take(&mut self.wanted).into_iter().collect()
    }

    /// These were asked for, and only those were found to match: the others are not in the list any more.
    pub fn found(&mut self, asked: &[String], found: &[String]) {
        let is_gone = |id: &String| asked.contains(id) && !found.contains(id);
        self.runs.retain(|run| !is_gone(&run.id.to_string()));
        self.ids.retain(|id| !is_gone(id));
    }

    /// The request for these runs has failed: they are still to be asked for.
    pub fn want(&mut self, ids: Vec<String>) {
        self.wanted.extend(ids);
    }

    /// Whether there are runs to ask for.
    pub fn wants(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// These were asked for, and the answers were taken. Those that are not in the list now are older than its last row
    /// or never match, because the list has all that is newer: they need not be asked for with each of their changes, unless
    /// a run may match later.
    pub fn asked(&mut self, ids: Vec<String>, filter: &Filter) {
        if filter.may_admit_later() {
            return;
        }
        if self.elsewhere.len() > ELSEWHERE_MAX {
            self.elsewhere.clear();
        }
        self.elsewhere.extend(ids.into_iter().filter(|id| !self.ids.contains(id)));
    }
}

/// The order of the API: by time, and within a millisecond by place.
fn is_before(one: &RunView, other: &RunView) -> bool {
    one.created_at > other.created_at
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepwell_protocol::rest::Status;

    use super::*;

    fn run(n: u64, created_at: u64, status: &str) -> RunView {
        let view = json!({
            "id": format!("default-1-3-{n}-bvyaw3bemryy"), "workflow": "greet", "status": status,
            "created_at": created_at, "head": 0, "activations": 1,
        });
        serde_json::from_value(view).expect("a run")
    }

    fn page(runs: &[(u64, u64)], cursor: Option<&str>) -> RunList {
        let executions = runs.iter().map(|&(n, at)| run(n, at, "running")).collect();
        RunList { executions, cursor: cursor.map(str::to_owned) }
    }

    fn told(n: u64, status: Status) -> StatusView {
        let RunView { id, workflow, .. } = run(n, 0, "running");
        StatusView { id, workflow, status }
    }

    fn times(listing: &Listing) -> Vec<u64> {
        listing.runs().iter().map(|run| run.created_at.as_millis()).collect()
    }

    #[test]
    fn pages_follow_each_other_and_no_run_is_there_twice() {
        let mut listing = Listing::default();
        listing.append(page(&[(9, 90), (8, 80)], Some("c")));
        listing.append(page(&[(8, 80), (7, 70)], None));
        assert_eq!(times(&listing), [90, 80, 70]);
        assert_eq!(listing.cursor(), None);
    }

    #[test]
    fn new_runs_come_first_and_say_how_far_the_rest_has_moved() {
        let mut listing = Listing::default();
        listing.append(page(&[(9, 90), (8, 80)], Some("c")));
        assert_eq!(listing.refresh(page(&[(11, 110), (10, 85), (9, 90), (1, 10)], Some("d")), 1), 2);
        assert_eq!(times(&listing), [110, 90, 85, 80]);
        assert_eq!(listing.cursor(), Some("c"));
    }

    /// What the API answers: the newest `limit` of `count` runs, after those before the cursor.
    fn asked_for(count: u64, limit: u64, cursor: Option<&str>) -> RunList {
        let from: u64 = cursor.map_or(count, |cursor| cursor.parse().expect("a number"));
        let last = from.saturating_sub(limit);
        let runs: Vec<_> = (last + 1..=from).rev().map(|n| (n, n * 10)).collect();
        page(&runs, (last > 0).then(|| last.to_string()).as_deref())
    }

    #[test]
    fn a_burst_of_more_runs_than_a_page_leaves_no_hole() {
        let mut listing = Listing::default();
        listing.append(asked_for(300, 100, None));
        // One of them was asked for by its id, so the list has a newer row than those that are missing.
        listing.place(asked_for(460, 1, None).executions, 0);
        let mut newest = asked_for(500, 50, None);
        let mut pages = 1;
        while !listing.reaches(&newest) {
            let next = asked_for(500, 100, newest.cursor.as_deref());
            newest.executions.extend(next.executions);
            newest.cursor = next.cursor;
            pages += 1;
        }
        assert_eq!(pages, 3);
        listing.refresh(newest, 0);
        assert_eq!(times(&listing), (201..=500).rev().map(|n| n * 10).collect::<Vec<_>>());
        assert_eq!(listing.cursor(), Some("200"));
    }

    #[test]
    fn a_burst_that_is_too_long_to_catch_up_with_begins_the_list_anew() {
        let mut listing = Listing::default();
        listing.append(asked_for(300, 100, None));
        assert_eq!(listing.refresh(asked_for(500, 50, None), 0), 0);
        assert_eq!(times(&listing), (451..=500).rev().map(|n| n * 10).collect::<Vec<_>>());
        listing.append(asked_for(500, 100, Some("450")));
        assert_eq!(listing.runs().len(), 150);
        // A list without any row does not know what is missing.
        let mut listing = Listing::default();
        listing.append(page(&[], None));
        assert!(!listing.reaches(&asked_for(200, 50, None)));
        listing.refresh(asked_for(200, 50, None), 0);
        assert_eq!(listing.cursor(), Some("150"));
    }

    #[test]
    fn a_full_list_drops_its_oldest_rows_and_does_not_say_that_they_are_all() {
        let mut listing = Listing::default();
        let most = u64::try_from(RUNS_MAX).expect("a number");
        listing.append(asked_for(most, most, None));
        assert_eq!((listing.runs().len(), listing.has_older()), (RUNS_MAX, false));
        listing.refresh(asked_for(most + 2, 50, None), 0);
        assert_eq!((listing.runs().len(), listing.has_older(), listing.cursor()), (RUNS_MAX, true, None));
        assert_eq!(times(&listing).last(), Some(&30));
        // What was dropped does not come back when a row leaves the list.
        let running = Filter::default().with_status(Some(Status::Running));
        listing.take(&told(9, Status::Failed), Timestamp::from_millis(1), &running);
        listing.place(vec![run(1, 10, "running")], 0);
        assert_eq!((listing.runs().len(), listing.cursor()), (RUNS_MAX - 1, None));
    }

    #[test]
    fn a_list_of_one_run_takes_no_other() {
        let (one, at) = (told(9, Status::Running).id.to_string(), Timestamp::from_millis(100));
        let by_id = Filter::of(&format!("id:{one}")).expect("a filter");
        let by_key = Filter::of("workflow:greet key:order-1").expect("a filter");
        assert!(by_id.admits(&run(9, 90, "running"), at) && !by_id.admits(&run(8, 80, "running"), at));
        let mut listing = Listing::default();
        listing.append(page(&[], None));
        assert_eq!(listing.take(&told(8, Status::Running), at, &by_id), Change::Nothing);
        // It may be the one that has this key: the key tells.
        assert_eq!(listing.take(&told(8, Status::Running), at, &by_key), Change::Unknown);
        listing.append(page(&[(9, 90)], None));
        for filter in [&by_id, &by_key] {
            assert_eq!(listing.take(&told(7, Status::Running), at, filter), Change::Nothing);
        }
        assert_eq!(listing.take(&told(9, Status::Waiting), at, &by_id), Change::Row(0));
        assert_eq!(listing.take(&told(9, Status::Failed), at, &by_key), Change::Row(0));
    }

    #[test]
    fn a_status_changes_its_row_or_takes_it_out_of_the_filter() {
        let (mut listing, all) = (Listing::default(), Filter::default());
        listing.append(page(&[(9, 90), (8, 80)], None));
        let at = Timestamp::from_millis(100);
        assert_eq!(listing.take(&told(8, Status::Completed), at, &all), Change::Row(1));
        assert_eq!(listing.runs()[1].ended_at, Some(at));
        assert_eq!(listing.take(&told(8, Status::Completed), at, &all), Change::Nothing);
        assert_eq!(listing.take(&told(5, Status::Running), at, &all), Change::Unknown);
        let running = all.with_status(Some(Status::Running));
        assert_eq!(listing.take(&told(9, Status::Failed), at, &running), Change::Gone(0));
        assert_eq!(listing.take(&told(9, Status::Failed), at, &running), Change::Nothing);
        assert_eq!(listing.take(&told(9, Status::Running), at, &running), Change::Unknown);
        let other = all.with_workflow(Some("other".into()));
        assert_eq!(listing.take(&told(8, Status::Failed), at, &other), Change::Nothing);
    }

    #[test]
    fn an_answer_does_not_take_back_what_was_told_since_it_was_asked_for() {
        let (mut listing, all) = (Listing::default(), Filter::default());
        listing.append(page(&[(9, 90), (8, 80)], None));
        let at = Timestamp::from_millis(100);
        listing.asking();
        listing.take(&told(9, Status::Waiting), at, &all);
        listing.refresh(page(&[(9, 90), (8, 80)], None), 0);
        assert_eq!(listing.runs()[0].status, Status::Waiting);
        // What is asked for after that is newer.
        listing.asking();
        listing.refresh(page(&[(9, 90), (8, 80)], None), 0);
        assert_eq!(listing.runs()[0].status, Status::Running);
        listing.want(vec!["x".into()]);
        assert_eq!(listing.asking(), ["x"]);
    }

    #[test]
    fn a_run_that_is_not_in_the_loaded_part_is_asked_for_once() {
        let (mut listing, all) = (Listing::default(), Filter::default());
        listing.append(page(&[(9, 90), (8, 80)], Some("c")));
        let at = Timestamp::from_millis(100);
        assert_eq!(listing.take(&told(3, Status::Running), at, &all), Change::Unknown);
        let ids = listing.asking();
        assert_eq!((ids.len(), listing.wants()), (1, false));
        listing.refresh(page(&[(3, 30)], None), 0);
        listing.asked(ids.clone(), &all);
        assert_eq!(times(&listing), [90, 80]);
        assert_eq!(listing.take(&told(3, Status::Sleeping), at, &all), Change::Nothing);
        // With the next page it may be there.
        listing.append(page(&[(3, 30)], None));
        assert_eq!(listing.take(&told(3, Status::Waiting), at, &all), Change::Row(2));
        // What ends has more to show.
        listing.take(&told(3, Status::Failed), at, &all);
        assert_eq!(listing.asking(), ids);
        // In a list of one status, a run may come and go.
        let failed = all.with_status(Some(Status::Failed));
        listing.asked(vec![told(1, Status::Failed).id.to_string()], &failed);
        assert_eq!(listing.take(&told(1, Status::Failed), at, &failed), Change::Unknown);
    }
}
