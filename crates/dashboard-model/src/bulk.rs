//! What can be done to all runs that a filter matches.

use stepwell_protocol::{
    Timestamp,
    rest::{BulkAction, Filter as Which, Status},
    routes::Route,
};

use crate::{
    filter::Filter,
    form::{Action, Then, json_text},
    may::May,
};

/// What can be done to all runs of a list; nothing for all runs that there are, and for a single one.
pub fn actions(filter: &Filter, may: &May, now: Timestamp) -> Vec<Action> {
    if *filter == Filter::default() || filter.is_of_one() {
        return Vec::new();
    }
    let fits = |action: BulkAction| {
        filter.status.is_none_or(|status| match action {
            BulkAction::Cancel => !status.is_terminal(),
            BulkAction::Retry => status == Status::Failed,
            BulkAction::Restart => status.is_terminal() || status == Status::Paused,
        })
    };
    let all = [
        (BulkAction::Retry, "Retry all", "Failed runs that match continue from the step that failed."),
        (
            BulkAction::Restart,
            "Restart all",
            "Runs that match and have ended or are paused start over: all their steps run again.",
        ),
        (
            BulkAction::Cancel,
            "Cancel all",
            "Runs that match and have not ended are cancelled. You cannot undo this.",
        ),
    ];
    let action = |(action, label, explained): (BulkAction, &str, &str)| {
        let explained =
            format!("Filter: {}. {explained} Runs that start later are left alone.", filter.text());
        let which = serde_json::to_string(&which(filter, now)).unwrap_or_default();
        let made = may.act(Route::StartBulk, &[], label, &explained)?;
        let made = made
            .titled(format!("{label} of these runs"))
            .fixed("action", json_text(action.as_str()))
            .fixed("filter", which)
            .then(Then::Run);
        Some(if action == BulkAction::Cancel { made.grave() } else { made })
    };
    all.into_iter().filter(|(action, ..)| fits(*action)).filter_map(action).collect()
}

fn which(filter: &Filter, now: Timestamp) -> Which {
    Which {
        workflow: filter.workflow.clone(),
        status: filter.status,
        tag: filter.tag.clone(),
        attributes: filter.attributes.iter().cloned().collect(),
        from: filter.since.as_ref().map(|since| since.at(now)),
        until: filter.until.as_ref().map(|until| until.at(now)),
    }
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
