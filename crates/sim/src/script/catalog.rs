//! What clients ask of the catalog, and what breaks there.

use super::{Action, DECLARED, Fault, small};
use crate::rng::{Rng, hash};

/// In some worlds there are keys, which are made, shown and revoked, while the catalog breaks too. It is known as the
/// cell after the last one. Drawn apart, like the queue.
pub(super) fn keys(
    seed: u64,
    cells: usize,
    actions: &mut Vec<(u64, Action)>,
    faults: &mut Vec<(u64, Fault)>,
    heal_at_ms: u64,
) {
    let mut rng = Rng::new(hash(&format!("keys {seed}")));
    if !rng.percent(45) {
        return;
    }
    for _ in 0..rng.between(2, 5) {
        let (create, made) = (actions.len(), rng.between(0, heal_at_ms / 2));
        actions.push((made, Action::CreateKey));
        let revoked = made + rng.between(200, 6_000);
        for _ in 0..rng.between(3, 9) {
            let cell = usize::try_from(rng.below(cells as u64 + 1)).expect("small");
            let cell = (cell < cells).then_some(cell);
            actions.push((made + rng.between(50, 9_000), Action::UseKey { create, cell }));
        }
        if rng.percent(75) {
            actions.push((revoked, Action::RevokeKey { create }));
            if rng.percent(30) {
                actions.push((revoked + rng.below(2_000), Action::RevokeKey { create }));
            }
        }
    }
    for _ in 0..rng.between(4, 12) {
        let fault = fault_of_catalog(&mut rng, cells);
        faults.push((rng.between(1, heal_at_ms - 1), fault));
    }
}

fn fault_of_catalog(rng: &mut Rng, catalog: usize) -> Fault {
    match rng.below(13) {
        0..=1 => Fault::Crash(catalog),
        2..=3 => Fault::CrashBeforeCommit(catalog),
        4..=5 => Fault::CrashAfterCommit(catalog),
        6 => Fault::DeliveredAgain(catalog),
        7 => Fault::CrashInRecovery(catalog),
        8 => Fault::CommitThenError(catalog),
        9 => Fault::RefuseWrites(catalog, rng.between(5, 3_000)),
        10 => Fault::AlarmDropped(catalog),
        11 => Fault::SecondInstance(catalog),
        _ => Fault::ClockBack(catalog, rng.between(1, 5_000)),
    }
}

/// In some worlds, versions of the app declare what they have: newer and older ones side by side, late and more than once;
/// and people pause and resume workflows meanwhile. Drawn apart, like the queue.
pub(super) fn manifests(
    seed: u64,
    cells: usize,
    actions: &mut Vec<(u64, Action)>,
    faults: &mut Vec<(u64, Fault)>,
    heal_at_ms: u64,
) {
    let mut rng = Rng::new(hash(&format!("manifests {seed}")));
    if !rng.percent(35) {
        return;
    }
    for _ in 0..rng.between(6, 16) {
        let (version, is_explicit) = (small(&mut rng, 6), rng.percent(15));
        let at = rng.between(0, heal_at_ms - 1);
        actions.push((at, Action::Sync { version, is_explicit }));
        if rng.percent(30) {
            actions.push((at + rng.below(3_000), Action::Sync { version, is_explicit }));
        }
    }
    for _ in 0..rng.between(2, 6) {
        let (workflow, at) = (*rng.pick(&DECLARED), rng.between(0, heal_at_ms - 1));
        actions.push((at, Action::PauseWorkflow(workflow)));
        if rng.percent(50) {
            actions.push((at + rng.between(1, 8_000), Action::ResumeWorkflow(workflow)));
        }
    }
    for _ in 0..rng.between(2, 7) {
        let fault = fault_of_catalog(&mut rng, cells);
        faults.push((rng.between(1, heal_at_ms - 1), fault));
    }
    for _ in 0..rng.below(3) {
        let fault = Fault::ClockForward(cells, rng.between(200_000, 900_000));
        faults.push((rng.between(1, heal_at_ms - 1), fault));
    }
}
