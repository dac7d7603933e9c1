//! Short answers.

use super::*;

fn yours(seq: u32, at: u64, command: usize) -> News {
    News::Yours { seq: Seq(seq), at: Timestamp::from_millis(at), command }
}

fn go(now: u64, news: Vec<News>) -> Answer {
    Answer::go(Timestamp::from_millis(now), news)
}

#[test]
fn a_short_answer_stands_for_the_whole_one() {
    for (base, news) in [(0, vec![]), (7, vec![yours(8, 5, 0)]), (0, vec![yours(1, 5, 0), yours(2, 5, 1)])] {
        let (base, commands, answer) = (Seq(base), news.len(), go(5, news));
        let now = answer.in_short(base, commands).expect("there is nothing more to say");
        assert_eq!(Answer::from_short(now, base, commands), answer);
    }
}

#[test]
fn whatever_else_there_is_to_say_is_said() {
    let signal = crate::Event::SignalReceived {
        name: "go".into(),
        id: None,
        payload: Payload::null(),
        by: None,
        since: None,
        to: None,
    };
    let signal = News::Record(Record { seq: Seq(8), at: Timestamp::from_millis(5), event: signal });
    let longer = [
        (vec![signal.clone(), yours(9, 5, 0)], 1),
        (vec![signal], 1),
        (vec![yours(9, 5, 0)], 1),
        (vec![yours(8, 4, 0)], 1),
        (vec![yours(8, 5, 0)], 2),
        (vec![], 1),
    ];
    for (news, commands) in longer {
        assert_eq!(go(5, news.clone()).in_short(Seq(7), commands), None, "{news:?}");
    }
    assert_eq!(Answer::Stop.in_short(Seq(7), 1), None);
}
