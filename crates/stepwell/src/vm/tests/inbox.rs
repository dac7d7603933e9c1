//! Signals that came before anyone waited, more of them than memory has room for.

use super::*;

const LARGE: usize = 1_000_000;

fn large(name: &str) -> Event {
    let payload = Payload::encode(&"x".repeat(LARGE)).expect("a text is JSON");
    Event::SignalReceived { name: name.into(), id: None, payload, by: None, since: None, to: None }
}

/// Polls until it says something, and gives it the pages that it asks for. Says how many those were.
fn say(bench: &mut Bench, journal: &[Event], page_events: usize) -> (Commit, usize) {
    for pages in 0..100 {
        match bench.poll() {
            Poll::Ready(Order::Commit(commit)) => return (commit, pages),
            Poll::Ready(Order::Page(after)) => {
                let first = after.0 as usize;
                let events = journal.iter().skip(first).take(page_events).cloned().collect();
                let events = records(events, after.0 + 1);
                assert!(bench.vm.page(Page { events, more: true }));
            }
            Poll::Pending => panic!("it waits for nothing"),
        }
    }
    panic!("it reads the same again and again");
}

fn completed(commit: &Commit) -> &str {
    let Then::Complete { output } = &commit.then else { panic!("{:?}", commit.then) };
    output.text()
}

/// Sleeps, then takes eight signals.
fn gather() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.sleep("sleep", Duration::from_secs(1)).await;
        let mut bytes = 0;
        for _ in 0..8 {
            bytes += ctx.wait::<String>("s").await?.len();
        }
        Ok(Payload::encode(&bytes)?)
    })
}

#[test]
fn what_there_is_no_room_for_is_read_again_when_it_is_taken() {
    let mut journal = vec![large("s"); 8];
    journal.push(fired(0));
    for (page_events, expected) in [(1, 4), (3, 2)] {
        let mut bench = Bench::new(gather, journal.clone());
        let (commit, pages) = say(&mut bench, &journal, page_events);
        assert_eq!(completed(&commit), (8 * LARGE).to_string());
        assert_eq!((commit.base, commit.unread), (Seq(9), 0));
        assert_eq!(pages, expected, "four fit into memory, and a page that holds more spares a call");
    }
}

#[test]
fn a_new_life_keeps_what_was_not_in_memory() {
    fn anew() -> Definition<()> {
        Definition::new("w", |ctx: Ctx, ()| async move {
            ctx.sleep("sleep", Duration::from_secs(1)).await;
            ctx.continue_as_new(&()).await
        })
    }
    let mut journal = vec![large("s"); 8];
    journal.push(fired(0));
    let (commit, pages) = say(&mut Bench::new(anew, journal.clone()), &journal, 1);
    let Then::Anew { keeps, keeps_bytes, .. } = commit.then else { panic!("{:?}", commit.then) };
    assert_eq!((keeps.len(), keeps_bytes, pages), (8, 8 * (LARGE as u64 + 2), 0));
}

/// Takes whichever comes first of a large signal, a small one and a sleep.
fn first_of() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.sleep("sleep", Duration::from_secs(1)).await;
        let large = pin!(ctx.wait::<String>("large"));
        let other = pin!(async {
            let small = pin!(ctx.wait::<u32>("s"));
            let sleep = pin!(ctx.sleep("sleep", Duration::from_secs(1)));
            match select(small, sleep).await {
                Either::Left(_) => "small",
                Either::Right(_) => "sleep",
            }
        });
        let first = match select(large, other).await {
            Either::Left(_) => "large",
            Either::Right((other, _)) => other,
        };
        Ok(Payload::encode(&first)?)
    })
}

#[test]
fn a_workflow_goes_the_same_way_whether_memory_had_room_or_not() {
    for noise in [0, 4] {
        // Nothing that the journal has later comes first.
        let mut journal = vec![large("noise"); noise];
        journal.extend([large("large"), fired(0), fired(1), signal(1)]);
        let (commit, pages) = say(&mut Bench::new(first_of, journal.clone()), &journal, 1);
        assert_eq!((completed(&commit), pages), (r#""large""#, usize::from(noise > 0)));
        // What came before does, as it is there at once.
        let mut journal = vec![large("noise"); noise];
        journal.extend([large("large"), signal(1), fired(0)]);
        let (commit, _) = say(&mut Bench::new(first_of, journal.clone()), &journal, 1);
        assert_eq!(completed(&commit), r#""small""#, "with {noise} before");
    }
}

#[test]
fn one_that_is_dropped_is_for_the_next_wait() {
    fn changes_its_mind() -> Definition<()> {
        Definition::new("w", |ctx: Ctx, ()| async move {
            ctx.sleep("sleep", Duration::from_secs(1)).await;
            let mut wait = Box::pin(ctx.wait::<String>("s"));
            assert!(futures::poll!(&mut wait).is_pending());
            drop(wait);
            Ok(Payload::encode(&ctx.wait::<String>("s").await?.len())?)
        })
    }
    for noise in [0, 4] {
        let mut journal = vec![large("noise"); noise];
        journal.extend([large("s"), fired(0)]);
        let (commit, _) = say(&mut Bench::new(changes_its_mind, journal.clone()), &journal, 1);
        assert_eq!(completed(&commit), LARGE.to_string());
    }
}

#[test]
fn a_journal_without_what_it_had_is_no_longer_ours() {
    let mut journal = vec![large("s"); 8];
    journal.push(fired(0));
    let mut bench = Bench::new(gather, journal);
    assert!(matches!(bench.poll(), Poll::Ready(Order::Page(Seq(4)))));
    assert_eq!(bench.poll(), Poll::Pending, "it waits for the page");
    assert!(!bench.vm.page(Page { events: records(vec![signal(1)], 6), more: false }));
}

#[test]
fn two_that_are_dropped_at_once_stay_in_order() {
    fn drops_two() -> Definition<()> {
        Definition::new("w", |ctx: Ctx, ()| async move {
            ctx.sleep("sleep", Duration::from_secs(1)).await;
            let mut first = Box::pin(ctx.wait::<String>("s"));
            let mut second = Box::pin(ctx.wait::<String>("s"));
            assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
            drop(first);
            drop(second);
            let (first, second) = (ctx.wait::<String>("s").await?, ctx.wait::<String>("s").await?);
            Ok(Payload::encode(&(first.len(), second.len()))?)
        })
    }
    for noise in [0, 4] {
        let mut journal = vec![large("noise"); noise];
        let payload = Payload::encode(&"x".repeat(LARGE / 2)).expect("a text is JSON");
        let shorter =
            Event::SignalReceived { name: "s".into(), id: None, payload, by: None, since: None, to: None };
        journal.extend([large("s"), shorter, fired(0)]);
        let (commit, _) = say(&mut Bench::new(drops_two, journal.clone()), &journal, 1);
        assert_eq!(completed(&commit), format!("[{LARGE},{}]", LARGE / 2), "with {noise} before");
    }
}
