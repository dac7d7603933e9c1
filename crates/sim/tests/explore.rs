//! Every state of the small models is sound, and every planted bug that concerns them has a counterexample.

use stepwell_sim::{
    Sabotage,
    explore::{
        Bounds, Family,
        Kind::{self, Alarm, Crash, Late, Lost, Second, Storage, Twice},
        OneRun, Report, Start, explore,
    },
};

/// More states than any of these searches has.
const STATES_MAX: usize = 1_000_000;

fn one_run(start: Start, bounds: Bounds, sabotage: Option<Sabotage>) -> Report {
    let report = explore(&OneRun::new(start, bounds, sabotage), STATES_MAX);
    assert!(!report.cut_short, "there are more states");
    report
}

/// A planted bug breaks the rule that begins like this, with these faults besides.
#[track_caller]
fn breaks(rule: &str, sabotage: Sabotage, start: Start, faults: &[Kind]) {
    let found = one_run(start, Bounds::only(faults), Some(sabotage)).found;
    let found = found.unwrap_or_else(|| panic!("{sabotage:?} is not noticed"));
    assert!(found.rule.starts_with(rule), "it breaks '{}': {found:#?}", found.rule);
}

/// A planted bug breaks the rule that begins like this in a family, with these faults besides.
#[track_caller]
fn breaks_family(
    rule: &str,
    sabotage: Sabotage,
    model: fn(Bounds, Option<Sabotage>) -> Family,
    faults: &[Kind],
) {
    let report = explore(&model(Bounds::only(faults), Some(sabotage)), STATES_MAX);
    let found = report.found.unwrap_or_else(|| panic!("{sabotage:?} is not noticed"));
    assert!(found.rule.starts_with(rule), "it breaks '{}': {found:#?}", found.rule);
}

#[test]
fn no_state_of_a_family_with_one_fault_breaks_a_rule() {
    let models: [fn(Bounds, Option<Sabotage>) -> Family; 4] =
        [Family::waiting, Family::impatient, Family::leaving, Family::message];
    for model in models {
        for fault in [Crash, Lost] {
            let report = explore(&model(Bounds::only(&[fault]), None), STATES_MAX);
            assert!(report.found.is_none(), "{fault:?}: {:#?}", report.found);
            assert!(report.states > 100 && report.at_rest > 0, "it has seen too little: {report:?}");
        }
    }
}

#[test]
fn a_letter_that_is_deleted_before_it_has_arrived_is_found() {
    breaks_family("27 ", Sabotage::LetterGoneEarly, Family::message, &[]);
}

#[test]
fn a_message_that_is_answered_and_has_no_effect_is_found() {
    breaks_family("27 ", Sabotage::AnsweredWithoutEffect, Family::message, &[]);
}

#[test]
fn a_message_whose_key_is_not_stored_is_found() {
    breaks_family("2", Sabotage::MessageKeyless, Family::message, &[Twice]);
}

#[test]
fn a_fresh_instance_that_looks_for_no_letters_is_found() {
    breaks_family("1", Sabotage::LettersForgotten, Family::message, &[Crash]);
}

#[test]
fn a_child_that_is_cancelled_before_its_start_and_not_written_down_is_found() {
    breaks_family("27 ", Sabotage::GivenUpForgotten, Family::impatient, &[Lost]);
}

#[test]
fn a_parent_that_is_told_twice_is_found() {
    breaks_family("2", Sabotage::ParentToldTwice, Family::waiting, &[Twice]);
}

#[test]
fn a_child_that_is_heard_of_after_the_wait_for_it_has_timed_out_is_found() {
    breaks_family("2", Sabotage::ToldAfterTheWait, Family::impatient, &[]);
}

#[test]
fn a_child_that_is_heard_of_after_the_end_of_its_parent_is_found() {
    breaks_family("2", Sabotage::ToldAfterTheWait, Family::leaving, &[]);
}

#[test]
fn a_child_that_is_not_cancelled_when_the_wait_for_it_has_timed_out_is_found() {
    breaks_family("23 no child is left alone", Sabotage::CancelNotSent, Family::impatient, &[]);
}

#[test]
fn a_child_that_is_not_cancelled_when_its_parent_ends_is_found() {
    breaks_family("23 no child is left alone", Sabotage::CancelNotSent, Family::leaving, &[]);
    breaks_family("23 no child is left alone", Sabotage::CancelNotSent, Family::leaving, &[Crash]);
}

#[test]
fn an_object_that_does_not_store_its_address_is_found() {
    breaks_family("11 ", Sabotage::IdentityLost, Family::waiting, &[Crash]);
}

/// Only some of the faults, because these searches are slow where nothing is optimized: `just explore` has all of them.
#[test]
fn no_state_of_one_run_with_one_fault_breaks_a_rule() {
    for (start, fault) in
        [(Start::ByKey, Crash), (Start::ByNonce, Crash), (Start::ByKey, Twice), (Start::ByKey, Alarm)]
    {
        let report = one_run(start, Bounds::only(&[fault]), None);
        assert!(report.found.is_none(), "{start:?}, {fault:?}: {:#?}", report.found);
        assert!(report.states > 300 && report.at_rest > 10, "it has seen too little: {report:?}");
    }
}

#[test]
fn a_late_commit_that_is_not_fenced_is_found() {
    breaks("6 a superseded", Sabotage::NoFence, Start::ByKey, &[Crash, Late, Late]);
}

#[test]
fn a_journal_that_is_shown_to_a_superseded_activation_is_found() {
    breaks("6 a superseded", Sabotage::PagesUnfenced, Start::ByKey, &[Crash, Late, Late]);
}

#[test]
fn a_repeated_commit_that_is_not_known_is_found() {
    breaks("6 a repeat", Sabotage::RepeatUnknown, Start::ByKey, &[Twice]);
}

#[test]
fn a_repeated_commit_that_is_recorded_twice_is_found() {
    breaks("6 a repeat", Sabotage::RepeatRecorded, Start::ByKey, &[Twice]);
}

#[test]
fn a_fresh_instance_that_trusts_its_alarm_is_found() {
    breaks("12 ", Sabotage::NoRepair, Start::ByKey, &[Crash, Alarm]);
}

#[test]
fn an_alarm_that_waits_for_the_programs_it_calls_is_found() {
    breaks("11 ", Sabotage::AlarmAwaitsDispatch, Start::ByKey, &[Lost]);
}

#[test]
fn an_alarm_that_is_never_set_is_found() {
    breaks("12 ", Sabotage::NeverArmed, Start::ByKey, &[]);
}

#[test]
fn an_alarm_that_could_not_be_set_unheard_is_found() {
    breaks("12 ", Sabotage::UnarmedUnheard, Start::ByKey, &[Storage]);
}

#[test]
fn an_alarm_that_sets_no_other_is_found() {
    breaks("12 ", Sabotage::AlarmNotRearmed, Start::ByKey, &[]);
}

#[test]
fn an_early_signal_that_is_dropped_is_found() {
    breaks("15 ", Sabotage::EarlySignalDropped, Start::ByKey, &[]);
}

#[test]
fn a_timer_that_fires_early_is_found() {
    breaks("12 ", Sabotage::TimerEarly, Start::ByKey, &[Alarm]);
}

#[test]
fn a_late_commit_that_is_written_to_a_run_that_has_ended_is_found() {
    breaks("24 memory", Sabotage::EndedRunWritten, Start::ByKey, &[Crash, Late, Late]);
}

#[test]
fn a_page_that_skips_an_event_is_found() {
    breaks("4 ", Sabotage::PageSkipped, Start::ByKey, &[]);
}

#[test]
fn a_key_that_is_not_stored_is_found() {
    breaks("3 ", Sabotage::KeyLost, Start::ByKey, &[Twice]);
}

#[test]
fn a_fresh_instance_that_does_not_know_the_nonces_of_the_last_is_found() {
    breaks("3 ", Sabotage::NonceForgotten, Start::ByNonce, &[Crash]);
}

#[test]
fn a_signal_id_that_is_not_looked_up_is_found() {
    breaks("16 ", Sabotage::SignalIdLost, Start::ByKey, &[Twice]);
}

#[test]
fn a_signal_nonce_that_is_not_looked_up_is_found() {
    breaks("16 ", Sabotage::SignalIdLost, Start::ByNonce, &[Twice]);
}

#[test]
fn a_crash_that_loses_the_last_row_of_a_journal_is_found() {
    breaks("15 ", Sabotage::JournalRowLost, Start::ByKey, &[Crash]);
}

#[test]
fn answers_that_leave_before_the_commit_is_durable_is_found() {
    breaks("8 ", Sabotage::GateOpen, Start::ByKey, &[Crash]);
}

#[test]
fn a_superseded_instance_that_writes_is_found() {
    breaks("1 ", Sabotage::StaleInstanceWrites, Start::ByKey, &[Second]);
}

#[test]
fn an_activation_that_is_not_on_record_is_found() {
    breaks("24 memory", Sabotage::IntentLost, Start::ByKey, &[]);
}

#[test]
fn a_row_that_keeps_its_old_wake_time_is_found() {
    breaks("12 ", Sabotage::WakeTimeLost, Start::ByKey, &[]);
}

#[test]
fn a_result_that_reads_back_differently_is_found() {
    breaks("24 a replay", Sabotage::ResultAltered, Start::ByKey, &[]);
}

#[test]
fn a_call_that_hangs_and_is_never_given_up_is_found() {
    breaks("11 ", Sabotage::SilenceNeverEnds, Start::ByKey, &[Lost]);
}

#[test]
fn a_journal_that_does_not_say_which_commit_was_the_last_is_found() {
    breaks("24 memory", Sabotage::TrailerLost, Start::ByKey, &[Crash, Late, Twice]);
}

#[test]
fn a_neighbour_that_is_convicted_is_found() {
    breaks("24 memory", Sabotage::NeighbourConvicted, Start::ByKey, &[Crash, Crash]);
}
