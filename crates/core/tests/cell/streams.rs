//! What a run publishes, and what its readers are shown.

use stepwell_core::{
    cell::{
        Action, Cell, LINGER_MS, Order, PUBLISH_EVERY_MS, PUBLISHED_BYTES_MAX, PUBLISHED_ROW_BYTES_MAX,
        Rows as _,
    },
    object::{Fault, Hosted as _},
    run::Signal,
    stream::{CellCursor, CellReader, Cursor, Kinds, Only, Reader, WALKED_MAX},
};
use stepwell_protocol::{
    Code, Epoch, Op, OpKind, Payload, Record, RunId, Seq, Timestamp,
    program::{Answer, Commit, Open, Progress, Then},
    rest::Status,
    stream::{Chunk, Item, Kind, Level, LogLine, Published, StreamEvent},
};

use super::{at, memory::Memory, new_run, said, step};

fn log(message: &str) -> Item {
    Item::Log(LogLine { level: Level::Info, message: message.into(), op: None })
}

fn published(first: u32, messages: &[&str]) -> Published {
    Published { first, items: messages.iter().map(|message| log(message)).collect() }
}

/// A cell with one run at work.
fn begun() -> (Memory, Cell, RunId) {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let id = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id;
    let _ = cell.take_orders();
    (rows, cell, id)
}

fn publish(cell: &mut Cell, rows: &Memory, ms: u64, what: Published) {
    let answer = cell.told(rows, at(ms), 1, Epoch(1), what).expect("it is at work");
    assert!(matches!(answer, Answer::Go { .. }));
}

/// When the cell wants to be called next, if it does.
fn timer(cell: &mut Cell) -> Option<Timestamp> {
    cell.take_orders()
        .own
        .into_iter()
        .find_map(|order| if let Order::TellAt(at) = order { Some(at) } else { None })
}

/// All that a reader is shown until there is no more.
fn read(cell: &Cell, rows: &Memory, reader: &mut Reader) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    loop {
        let batch = cell.read(rows, reader).expect("the run is there");
        events.extend(batch.events);
        if reader.flow.is_closed() {
            events.retain(|event| event.kind != Kind::Ack);
            reader.flow.heard();
        } else if !batch.more {
            return events;
        }
    }
}

fn texts(events: &[StreamEvent]) -> Vec<String> {
    let text = |event: &StreamEvent| {
        if event.kind == Kind::Log {
            event.data.decode::<LogLine>().expect("a line").message
        } else if event.kind == Kind::Step {
            format!("step {}", event.data.decode::<Record>().expect("a record").seq.0)
        } else {
            event.kind.to_string()
        }
    };
    events.iter().map(text).collect()
}

fn all(id: &RunId) -> Reader {
    Reader::new(id.clone(), Cursor::default(), Kinds::default())
}

#[test]
fn a_count_that_nobody_can_have_come_to_is_refused() {
    let (rows, mut cell, _) = begun();
    for (first, messages) in [(u32::MAX, &["a"][..]), (u32::MAX - 1, &["a", "b"]), (u32::MAX, &["a", "b"])] {
        let told = cell.told(&rows, at(0), 1, Epoch(1), published(first, messages));
        let Err(Fault::Rejected(problem)) = told else { panic!("{first} was taken") };
        assert_eq!(problem.code, Code::InvalidRequest);
    }
    publish(&mut cell, &rows, 0, published(u32::MAX - 1, &["the last one that can be"]));
    publish(&mut cell, &rows, 0, published(u32::MAX - 1, &["the last one that can be"]));
    cell.tell(&rows, at(LINGER_MS)).expect("it is stored");
    let told = rows.told(1, 0).expect("it can be read");
    assert_eq!(told.rows.iter().map(|row| row.items.len()).sum::<usize>(), 1);
}

#[test]
fn what_is_published_is_stored_at_most_once_a_second() {
    let (rows, mut cell, _) = begun();
    publish(&mut cell, &rows, 10, published(0, &["a"]));
    assert_eq!(timer(&mut cell), Some(at(10 + LINGER_MS)));
    publish(&mut cell, &rows, 20, published(1, &["b", "c"]));
    assert_eq!(timer(&mut cell), None, "one timer is enough");
    let stored = 10 + LINGER_MS;
    cell.tell(&rows, at(stored)).expect("it is stored");
    assert_eq!(rows.told_rows(1), 1);
    for ms in (0..5_000).step_by(50) {
        publish(&mut cell, &rows, stored + ms, published(3 + u32::try_from(ms).expect("small") / 50, &["x"]));
        cell.tell(&rows, at(stored + ms)).expect("it is stored");
    }
    assert_eq!(rows.told_rows(1), 5, "five seconds, and the last one is not over");
    assert_eq!(rows.get(1).head, Seq(0), "the journal knows nothing of it");
}

#[test]
fn nobody_is_shown_what_is_not_stored() {
    let (rows, mut cell, id) = begun();
    let mut reader = all(&id);
    publish(&mut cell, &rows, 10, published(0, &["a"]));
    assert_eq!(texts(&read(&cell, &rows, &mut reader)), ["status"]);
    cell.tell(&rows, at(500)).expect("it is stored");
    assert_eq!(texts(&read(&cell, &rows, &mut reader)), ["a"]);
    assert_eq!(texts(&read(&cell, &rows, &mut reader)), Vec::<String>::new());
}

#[test]
fn who_only_looks_leaves_once_all_that_is_there_was_shown() {
    let (rows, mut cell, id) = begun();
    let long = "x".repeat(4_000);
    // More than goes out at once.
    for second in 0..4_u32 {
        let now = 10 + u64::from(second) * 2_000;
        publish(&mut cell, &rows, now, published(second * 100, &vec![long.as_str(); 100]));
        cell.tell(&rows, at(now + 1_000)).expect("it is stored");
    }
    let mut reader = all(&id).leaving(true);
    let (mut lines, mut batches) = (0, 0);
    loop {
        let batch = cell.read(&rows, &mut reader).expect("the run is there");
        lines += batch.events.iter().filter(|event| event.kind == Kind::Log).count();
        batches += 1;
        assert_eq!(batch.ends, lines == 400, "it leaves with the last line, and not before");
        if batch.ends {
            break;
        }
        reader.flow.heard();
    }
    assert!(batches > 1, "it was asked whether it follows");
    let waits = cell.read(&rows, &mut all(&id)).expect("the run is there");
    assert!(!waits.ends, "others wait for the run's end");
}

#[test]
fn the_last_word_of_a_program_stores_all_that_it_said_before() {
    let (rows, mut cell, id) = begun();
    publish(&mut cell, &rows, 10, published(0, &["a"]));
    let then = Then::Complete { output: Payload::null() };
    let commit = Commit { published: published(1, &["b"]), ..said(Seq(0), vec![step("s")], then) };
    cell.commit(&rows, at(11), 1, Epoch(1), commit, 1).expect("in turn");
    assert_eq!(rows.told_rows(1), 1);
    let mut reader = all(&id);
    let batch = cell.read(&rows, &mut reader).expect("the run is there");
    assert!(batch.ends);
    assert_eq!(texts(&batch.events), ["a", "b", "step 1", "status"]);
    assert_eq!(rows.get(1).meter().rows_written, 2 + 1 + 1 + 1, "start, step, end, and one for what it said");
}

#[test]
fn a_run_that_is_cancelled_has_said_what_it_said() {
    let (rows, mut cell, id) = begun();
    publish(&mut cell, &rows, 10, published(0, &["a"]));
    cell.act(&rows, at(11), &id, "root", Action::Cancel).expect("it is there");
    assert_eq!(texts(&read(&cell, &rows, &mut all(&id))), ["a", "status"]);
}

#[test]
fn what_is_sent_again_is_taken_once_even_by_another_instance() {
    let (rows, mut cell, id) = begun();
    publish(&mut cell, &rows, 10, published(0, &["a", "b"]));
    publish(&mut cell, &rows, 11, published(0, &["a", "b"]));
    cell.tell(&rows, at(500)).expect("it is stored");
    // The answer was lost with the instance. The next one hears it again, and a little more.
    let mut next = Cell::new(4);
    publish(&mut next, &rows, 600, published(1, &["b", "c"]));
    next.tell(&rows, at(5_000)).expect("it is stored");
    assert_eq!(texts(&read(&next, &rows, &mut all(&id))), ["a", "b", "c", "status"]);
}

#[test]
fn a_later_activation_counts_anew_and_an_earlier_one_is_refused() {
    let (rows, mut cell, id) = begun();
    publish(&mut cell, &rows, 10, published(0, &["a"]));
    let op = Op { kind: OpKind::Wait, name: "s".into(), occurrence: 0 };
    let open = vec![Open::Wait {
        op,
        signal: "s".into(),
        timeout_ms: None,
        shape: stepwell_protocol::Shape::Any,
        asked: None,
        event: None,
    }];
    cell.commit(&rows, at(11), 1, Epoch(1), said(Seq(0), vec![], Then::Suspend { open }), 1)
        .expect("in turn");
    cell.signal(&rows, at(12), &id, Signal::new("s", Payload::null())).expect("it is kept");
    cell.told(&rows, at(13), 1, Epoch(1), published(1, &["late"])).expect_err("another activation has it");
    cell.told(&rows, at(14), 1, Epoch(2), published(0, &["b"])).expect("it is at work");
    cell.tell(&rows, at(2_000)).expect("it is stored");
    let kinds = "log".parse().expect("a kind");
    let mut reader = Reader::new(id, Cursor::default(), kinds);
    assert_eq!(texts(&read(&cell, &rows, &mut reader)), ["a", "b"]);
}

#[test]
fn too_much_at_once_is_left_out_and_said_so() {
    let (rows, mut cell, id) = begun();
    let value = Payload::encode(&"x".repeat(60_000)).expect("a text");
    let chunk = Item::Chunk(Chunk { name: "tokens".into(), value, op: None });
    let fit = PUBLISHED_ROW_BYTES_MAX / chunk.size();
    let items = vec![chunk; fit + 5];
    publish(&mut cell, &rows, 10, Published { first: 0, items });
    cell.tell(&rows, at(500)).expect("it is stored");
    let events = read(&cell, &rows, &mut all(&id));
    let (last, chunks) = (&events[fit], &events[..fit]);
    assert!(chunks.iter().all(|event| event.kind == Kind::Chunk && event.data.size() > 60_000));
    assert_eq!(last.data.decode::<Item>().expect("an item"), Item::LeftOut { count: 5 });
}

#[test]
fn what_a_run_publishes_in_all_is_bounded_and_the_stream_says_so_once() {
    let (rows, mut cell, _) = begun();
    let value = Payload::encode(&"x".repeat(60_000)).expect("a text");
    let chunk = Item::Chunk(Chunk { name: "tokens".into(), value, op: None });
    let each = PUBLISHED_ROW_BYTES_MAX / chunk.size();
    let (mut first, mut ms) = (0, 0);
    for _ in 0..80 {
        publish(&mut cell, &rows, ms, Published { first, items: vec![chunk.clone(); each] });
        first += u32::try_from(each).expect("small");
        ms += 2 * PUBLISH_EVERY_MS;
        cell.tell(&rows, at(ms)).expect("it is stored");
    }
    let told = rows.told_bytes(1);
    assert!(told <= PUBLISHED_BYTES_MAX && told > PUBLISHED_BYTES_MAX / 10 * 9, "{told} bytes are stored");
    assert!(rows.told_rows(1) < 70, "{} rows: each second of silence is one", rows.told_rows(1));
    // Another instance knows it too.
    let mut next = Cell::new(4);
    publish(&mut next, &rows, ms, Published { first, items: vec![chunk; each] });
    next.tell(&rows, at(ms + 5_000)).expect("there is nothing to store");
    assert_eq!(rows.told_bytes(1), told);
}

/// A run with steps, logs and progress in between; gives the texts of all events in the order in which a reader that
/// followed has seen them.
fn eventful(rows: &Memory, cell: &mut Cell, id: &RunId) -> Vec<StreamEvent> {
    let mut follower = all(id);
    let mut seen = read(cell, rows, &mut follower);
    let mut told = 0;
    for (turn, base) in (0..8_u32).zip(0..) {
        let ms = u64::from(turn) * 2_000;
        publish(cell, rows, ms, published(told, &["one", "two", "three"][..=turn as usize % 3]));
        told += 1 + turn % 3;
        if turn % 2 == 0 {
            cell.tell(rows, at(ms + 1_500)).expect("it is stored");
            seen.extend(read(cell, rows, &mut follower));
        }
        let progress = (turn == 3).then(|| Box::new(Progress { percent: 30.0, ..Progress::default() }));
        let name = format!("s{turn}");
        let commit = Commit { progress, ..said(Seq(base), vec![step(&name)], Then::Continue { open: None }) };
        cell.commit(rows, at(ms + 1_600), 1, Epoch(1), commit, ms).expect("in turn");
        if turn % 3 == 0 {
            seen.extend(read(cell, rows, &mut follower));
        }
        cell.tell(rows, at(ms + 1_700)).expect("it is stored");
    }
    seen.extend(read(cell, rows, &mut follower));
    seen
}

#[test]
fn whoever_comes_late_sees_the_same_in_the_same_order() {
    let (rows, mut cell, id) = begun();
    let seen = eventful(&rows, &mut cell, &id);
    let is_event = |event: &&StreamEvent| !matches!(event.kind, Kind::Status | Kind::Progress);
    let late = read(&cell, &rows, &mut all(&id));
    let of = |events: &[StreamEvent]| texts(&events.iter().filter(is_event).cloned().collect::<Vec<_>>());
    assert_eq!(of(&late), of(&seen));
    assert_eq!(of(&late).len(), 8 + 15);
}

#[test]
fn whoever_comes_back_with_any_cursor_misses_nothing_and_sees_nothing_twice() {
    let (rows, mut cell, id) = begun();
    eventful(&rows, &mut cell, &id);
    let whole = read(&cell, &rows, &mut all(&id));
    for (index, event) in whole.iter().enumerate() {
        // Another instance, and a reader that knows nothing but the event's id.
        let cursor = event.id.parse().expect("an id is a cursor");
        let mut reader = Reader::new(id.clone(), cursor, Kinds::default());
        assert_eq!(read(&Cell::new(4), &rows, &mut reader), whole[index + 1..], "after {index}");
    }
}

#[test]
fn a_filter_leaves_out_and_loses_nothing_else() {
    let (rows, mut cell, id) = begun();
    eventful(&rows, &mut cell, &id);
    let whole = texts(&read(&cell, &rows, &mut all(&id)));
    let kinds = "step,progress".parse().expect("kinds");
    let some = texts(&read(&cell, &rows, &mut Reader::new(id, Cursor::default(), kinds)));
    let wanted: Vec<_> =
        whole.into_iter().filter(|text| text.starts_with("step") || text == "progress").collect();
    assert_eq!(some, wanted);
    assert_eq!(some.len(), 9);
}

#[test]
fn a_reader_that_does_not_follow_is_asked_and_gets_no_more() {
    let (rows, mut cell, id) = begun();
    let value = Payload::encode(&"x".repeat(60_000)).expect("a text");
    let chunk = Item::Chunk(Chunk { name: "tokens".into(), value, op: None });
    publish(&mut cell, &rows, 10, Published { first: 0, items: vec![chunk; 15] });
    cell.tell(&rows, at(500)).expect("it is stored");
    let mut reader = all(&id);
    let batch = cell.read(&rows, &mut reader).expect("the run is there");
    let last = batch.events.last().expect("it is asked");
    assert_eq!(last.kind, Kind::Ack);
    assert_eq!(last.id, batch.events[batch.events.len() - 2].id);
    assert!(batch.events.len() < 11 && !batch.more);
    assert!(cell.read(&rows, &mut reader).expect("the run is there").events.is_empty());
    let sent = batch.events.len() - 1;
    reader.flow.heard();
    let rest = read(&cell, &rows, &mut reader);
    assert_eq!(sent + rest.len(), 15 + 1, "all chunks, and the status");
}

#[test]
fn readers_are_told_of_runs_that_they_follow_and_of_no_others() {
    let (rows, mut cell, _) = begun();
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let _ = cell.take_orders();
    cell.watch(2);
    for number in [1, 2] {
        let commit = said(Seq(0), vec![step("a")], Then::Continue { open: None });
        cell.commit(&rows, at(1), number, Epoch(1), commit, 1).expect("in turn");
    }
    let told: Vec<_> =
        cell.take_orders().own.into_iter().filter(|order| matches!(order, Order::TellReaders(_))).collect();
    assert_eq!(told, [Order::TellReaders(2)]);
    cell.unwatch(2);
    cell.commit(&rows, at(2), 2, Epoch(1), said(Seq(1), vec![step("b")], Then::Continue { open: None }), 2)
        .expect("in turn");
    assert!(!cell.take_orders().own.contains(&Order::TellReaders(2)));
}

#[test]
fn progress_tells_when_it_will_be_done() {
    let (rows, mut cell, _) = begun();
    for (ms, percent) in [(0, 0.0), (10_000, 25.0), (20_000, 50.0)] {
        let progress = Some(Box::new(Progress { percent, message: "copying".into(), ..Progress::default() }));
        let commit = Commit { progress, ..said(Seq(0), vec![], Then::Continue { open: None }) };
        cell.commit(&rows, at(ms), 1, Epoch(1), commit, ms).expect("in turn");
    }
    let progress = rows.get(1).progress.expect("it was said");
    assert_eq!((progress.at, progress.ends_at), (Some(at(20_000)), Some(at(40_000))));
}

fn statuses(cell: &Cell, rows: &Memory, reader: &mut CellReader) -> Vec<(u64, String)> {
    let batch = cell.read_all(rows, reader).expect("the rows can be read");
    assert!(!batch.more);
    let view =
        |event: &StreamEvent| event.data.decode::<stepwell_protocol::stream::StatusView>().expect("a status");
    batch.events.iter().map(view).map(|view| (view.id.number, view.status.as_str().to_owned())).collect()
}

#[test]
fn a_reader_of_all_runs_sees_each_change_once_also_after_a_restart() {
    let (rows, mut cell, _) = begun();
    let from = cell.watch_all(at(1));
    let mut reader = CellReader::new(CellCursor { from, walk: None }, Only::default());
    assert_eq!(statuses(&cell, &rows, &mut reader), []);
    cell.start(&rows, at(2), new_run(None)).expect("it is accepted");
    assert!(cell.take_orders().own.contains(&Order::TellCellReaders));
    let ended = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    cell.commit(&rows, at(3), 2, Epoch(1), ended.clone(), 1).expect("in turn");
    let mut followed = reader.clone();
    assert_eq!(statuses(&cell, &rows, &mut followed), [(2, "running".into()), (2, "completed".into())]);
    assert_eq!(statuses(&cell, &rows, &mut followed), []);
    // One that wants to hear of ends only comes as far, and is shown those.
    let mut of_ends = reader.clone();
    of_ends.only.status = Some(Status::Completed);
    assert_eq!(statuses(&cell, &rows, &mut of_ends), [(2, "completed".into())]);
    assert_eq!(of_ends.from, followed.from);
    // Another instance has only the rows: what was overtaken is left out.
    let mut next = Cell::new(4);
    next.watch_all(at(10));
    assert_eq!(statuses(&next, &rows, &mut reader), [(2, "completed".into())]);
    assert_eq!(statuses(&next, &rows, &mut followed), []);
    next.commit(&rows, at(11), 1, Epoch(1), ended, 1).expect("in turn");
    for reader in [&mut reader, &mut followed] {
        assert_eq!(statuses(&next, &rows, reader), [(1, "completed".into())]);
        assert_eq!(statuses(&next, &rows, reader), []);
    }
}

#[test]
fn a_reader_from_the_start_walks_through_the_runs_in_bounded_parts() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let count = 2 * WALKED_MAX + 10;
    for _ in 0..count {
        cell.start(&rows, at(1), new_run(None)).expect("it is accepted");
    }
    cell.watch_all(at(2));
    let mut reader = CellReader::new(CellCursor::default(), Only::default());
    let (mut seen, mut parts) = (Vec::new(), 0);
    loop {
        let batch = cell.read_all(&rows, &mut reader).expect("the rows can be read");
        parts += 1;
        assert!(batch.events.len() <= WALKED_MAX + CellReader::CHANGES_MAX, "{} at once", batch.events.len());
        // Whoever is cut off comes back with what it was told last, and nothing else.
        let last = batch.events.iter().rfind(|event| event.kind == Kind::Status);
        seen.extend(batch.events.iter().filter(|event| event.kind == Kind::Status).cloned());
        if !batch.more && !reader.flow.is_closed() {
            break;
        }
        reader.flow.heard();
        if parts == 2 {
            // One that was seen already ends meanwhile, and one that was not.
            for number in [1, u64::try_from(count).expect("small")] {
                let head = rows.get(number).head;
                let id = rows.get(number).id;
                assert_eq!(head, Seq(0));
                cell.act(&rows, at(3), &id, "root", Action::Cancel).expect("it is there");
            }
            let cursor = last.expect("something was shown").id.parse().expect("a cursor");
            reader = CellReader::new(cursor, Only::default());
        }
        assert!(parts < 20, "it does not end");
    }
    let view =
        |event: &StreamEvent| event.data.decode::<stepwell_protocol::stream::StatusView>().expect("a status");
    let views: Vec<_> = seen.iter().map(view).collect();
    let of = |number: u64| {
        views.iter().filter(|view| view.id.number == number).map(|view| view.status).collect::<Vec<_>>()
    };
    assert!((1..=count as u64).all(|number| !of(number).is_empty()), "each is shown");
    assert_eq!(of(1).last(), Some(&Status::Cancelled));
    assert_eq!(of(count as u64), [Status::Cancelled], "what was overtaken is left out");
    assert_eq!(views.len(), count + 1, "nothing comes twice");
}

#[test]
fn a_run_goes_on_without_its_logs_if_the_last_of_them_cannot_be_read() {
    let (rows, mut cell, id) = begun();
    rows.untold.borrow_mut().insert(id.number);
    let commit = Commit {
        published: published(0, &["a"]),
        ..said(Seq(0), vec![], Then::Complete { output: Payload::null() })
    };
    cell.commit(&rows, at(1), id.number, Epoch(1), commit, 1).expect("the result is recorded");
    assert_eq!(rows.get(id.number).status(), Status::Completed);
}
