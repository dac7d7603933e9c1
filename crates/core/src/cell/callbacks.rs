//! What the address that a run names is told at its end.

use stepwell_protocol::{
    Payload, Timestamp,
    callback::{CALLBACK_QUEUE, Callback, EndedRun, RESULT_BYTES_MAX},
    rest::Status,
};

use crate::{
    object::{Address, Envelope, Message},
    run::{Entry, Run},
    schedule::civil,
};

/// The message that a run's end sends to the queue of callbacks, if the run has an address for it. `run` is the state
/// before the end.
pub(super) fn callback(run: &Run, namespace: &str, entries: &[Entry]) -> Option<Envelope> {
    let url = run.callback.clone()?;
    let (end, at) = entries.iter().find_map(|entry| Some((entry, ended_at(entry)?)))?;
    let callback = Callback { kind: String::new(), timestamp: civil::shown(at), data: ended(run, end) };
    let kind = format!("run.{}", callback.data.status.as_str());
    let body = Payload::encode(&Callback { kind, ..callback }).ok()?;
    // No two ends of a run have the same: after the first, its status has changed.
    let id = format!("{}/{}.{}", run.id, run.epoch.0, run.stamps.status);
    let to = Address::queue(namespace, CALLBACK_QUEUE, 0);
    Some(Envelope { to, message: Message::Callback { run: run.id.clone(), id, url, body } })
}

/// When a run has ended, if this entry says so.
fn ended_at(entry: &Entry) -> Option<Timestamp> {
    if let Entry::Completed { at, .. } | Entry::Failed { at, .. } | Entry::Cancelled { at } = entry {
        Some(*at)
    } else {
        None
    }
}

fn ended(run: &Run, end: &Entry) -> EndedRun {
    // Keys of the engine's own begin in another way.
    let key = run.key.as_ref().and_then(|key| key.strip_prefix(&run.workflow)?.strip_prefix('\n'));
    let ended = EndedRun {
        run: run.id.clone(),
        workflow: run.workflow.clone(),
        status: Status::Cancelled,
        key: key.map(ToOwned::to_owned),
        tags: run.tags.clone(),
        result: None,
        result_bytes: None,
        error: None,
    };
    if let Entry::Completed { output, .. } = end {
        let fits = output.size() <= RESULT_BYTES_MAX;
        EndedRun {
            status: Status::Completed,
            result: fits.then(|| output.clone()),
            result_bytes: (!fits).then(|| output.size()),
            ..ended
        }
    } else if let Entry::Failed { failure, .. } = end {
        EndedRun { status: Status::Failed, error: Some(failure.clone()), ..ended }
    } else {
        ended
    }
}
