//! What can be done to all runs that a filter matches.

use stepwell_protocol::{
    Timestamp,
    filter::Filter as Which,
    rest::{BulkAction, Status},
    routes::Route,
};

use crate::{
    filter::Filter,
    form::{Action, Then, json_text},
    may::May,
};

/// What can be done to many runs, in the order of the buttons, with what is said of it.
const ALL: [(BulkAction, &str, &str); 3] = [
    (BulkAction::Retry, "Retry", "Failed runs of these continue from the step that failed."),
    (
        BulkAction::Restart,
        "Restart",
        "Those of these runs that have ended or are paused start over: all their steps run again.",
    ),
    (
        BulkAction::Cancel,
        "Cancel",
        "Those of these runs that have not ended are cancelled. You cannot undo this.",
    ),
];

/// What can be done to all runs of a list; nothing for all runs that there are, and for a single one.
pub fn actions(filter: &Filter, may: &May, now: Timestamp) -> Vec<Action> {
    if *filter == Filter::default() || filter.is_of_one() {
        return Vec::new();
    }
    let fits = |action: BulkAction| {
        filter.status.is_empty()
            || filter.status.iter().any(|status| match action {
                BulkAction::Cancel => !status.is_terminal(),
                BulkAction::Retry => *status == Status::Failed,
                BulkAction::Restart => status.is_terminal() || *status == Status::Paused,
            })
    };
    let about = format!("Filter: {}. Runs that start later are left alone.", filter.text());
    let wanted = ALL.into_iter().filter(|(action, ..)| fits(*action));
    wanted
        .filter_map(|one| act(one, ("all", "all runs that match"), &about, &filter.which(now), may))
        .collect()
}

/// What can be done to runs that somebody has selected.
pub fn of_selected(ids: &[String], may: &May) -> Vec<Action> {
    let ids: Vec<_> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    if ids.is_empty() {
        return Vec::new();
    }
    let which = Which { ids, ..Which::default() };
    let about = format!("Selected runs: {}.", which.ids.len());
    ALL.into_iter()
        .filter_map(|one| act(one, ("selected", "the selected runs"), &about, &which, may))
        .collect()
}

fn act(
    (action, verb, explained): (BulkAction, &str, &str),
    (whom, whom_in_full): (&str, &str),
    about: &str,
    which: &Which,
    may: &May,
) -> Option<Action> {
    let label = format!("{verb} {whom}");
    let made = may.act(Route::StartBulk, &[], &label, &format!("{about} {explained}"))?;
    let made = made
        .titled(format!("{verb} {whom_in_full}"))
        .fixed("action", json_text(action.as_str()))
        .fixed("filter", serde_json::to_string(which).unwrap_or_default())
        .then(Then::Run);
    Some(if action == BulkAction::Cancel { made.grave() } else { made })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        let filter = Filter::of(text).expect("it is a filter");
        let actions = actions(&filter, &May::root(), Timestamp::from_millis(10_000_000));
        actions.into_iter().map(|action| action.label).collect()
    }

    #[test]
    fn what_is_done_to_many_fits_their_status() {
        assert_eq!(labels("status:failed"), ["Retry all", "Restart all"]);
        assert_eq!(labels("status:waiting"), ["Cancel all"]);
        assert_eq!(labels("status:paused"), ["Restart all", "Cancel all"]);
        assert_eq!(labels("tag:vip").len(), 3);
        assert_eq!(labels("").len(), 0);
        assert_eq!(labels("id:x").len(), 0);
        let filter = Filter::of("tag:vip").expect("it is a filter");
        assert_eq!(actions(&filter, &May::default(), Timestamp::default()), []);
    }

    #[test]
    fn selected_runs_are_sent_by_their_ids() {
        let ids = ["default-1-3-1-bvyaw3bemryy".to_owned(), "default-1-3-2-bvyaw3bemryy".to_owned()];
        let actions = of_selected(&ids, &May::root());
        assert_eq!(
            actions.iter().map(|action| action.label.as_str()).collect::<Vec<_>>(),
            ["Retry selected", "Restart selected", "Cancel selected"]
        );
        let request = actions[2].request(&[], "once").expect("it asks for nothing");
        let sent: stepwell_protocol::rest::Bulk =
            serde_json::from_str(request.body.as_deref().unwrap_or_default()).expect("it is one");
        assert_eq!((sent.action, sent.filter.ids.len()), (BulkAction::Cancel, 2));
        assert_eq!((of_selected(&ids, &May::default()), of_selected(&[], &May::root())), (vec![], vec![]));
    }

    #[test]
    fn the_filter_is_sent_as_the_api_reads_it() {
        let filter = Filter::of("workflow:greet attr:customer=acme since:1h").expect("it is a filter");
        let actions = actions(&filter, &May::root(), Timestamp::from_millis(10_000_000));
        let request = actions[0].request(&[], "once").expect("it asks for nothing");
        let sent: stepwell_protocol::rest::Bulk =
            serde_json::from_str(request.body.as_deref().unwrap_or_default()).expect("it is one");
        assert_eq!(sent.action, BulkAction::Retry);
        assert_eq!(sent.filter.workflow.as_deref(), Some("greet"));
        assert_eq!(sent.filter.attributes.get("customer").map(String::as_str), Some("acme"));
        assert_eq!(sent.filter.from, Some(Timestamp::from_millis(6_400_000)));
        assert_eq!(request.path, "/api/bulk");
    }
}
