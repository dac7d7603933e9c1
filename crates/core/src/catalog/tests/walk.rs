//! Any order of anything, over the real catalog and the real memory of cells: no key that is not good is let in once
//! its cell has been told, and a cell that has not been told is known to be behind.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stepwell_protocol::access::Scope;

use super::{
    super::{Catalog, Confirmation, Input, Rows as _},
    ROOT, World, at, create, credential, key,
};
use crate::{
    access::{About, Need},
    cell::{Admission, Cell},
    object::Hosted as _,
};

#[derive(Clone, Debug)]
enum Step {
    Create(u8),
    Rotate(u8, u8),
    Revoke(u8),
    SignIn(u8, u8),
    SignOut(u8),
    /// A cell asks about a key; the answer is under way.
    Ask(u8, u8),
    /// The oldest answer arrives.
    Answer,
    /// A cell that is behind is told, and its word comes back.
    Tell(u8),
    /// A cell that is behind is told, and its word is lost.
    TellInVain(u8),
    LoseCatalog,
    LoseCell(u8),
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0_u8..6;
    prop_oneof![
        id.clone().prop_map(Step::Create),
        (id.clone(), id.clone()).prop_map(|(a, b)| Step::Rotate(a, b)),
        id.clone().prop_map(Step::Revoke),
        (id.clone(), id.clone()).prop_map(|(a, b)| Step::SignIn(a, b)),
        id.clone().prop_map(Step::SignOut),
        (0_u8..3, id.clone()).prop_map(|(cell, id)| Step::Ask(cell, id)),
        (0_u8..3, id).prop_map(|(cell, id)| Step::Ask(cell, id + 6)),
        Just(Step::Answer),
        Just(Step::Answer),
        (0_u8..3).prop_map(Step::Tell),
        (0_u8..3).prop_map(Step::TellInVain),
        Just(Step::LoseCatalog),
        (0_u8..3).prop_map(Step::LoseCell),
        (0_u16..2_000).prop_map(Step::Pass),
    ]
}

fn key_name(number: u8) -> String {
    if number < 6 { format!("key{number}") } else { format!("session{}", number - 6) }
}

fn place(cell: u8) -> String {
    format!("default-1-{cell}")
}

pub(super) fn lets_in(cell: &mut Cell, now: u64, id: &str) -> bool {
    let need = Need { scope: Scope::Read, about: About::Whole };
    let admitted = cell.admit(at(now), &credential(id), &need, 0, 1);
    matches!(admitted, Ok(Admission::Granted(_)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_key_that_is_not_good_is_let_in_only_by_a_cell_that_is_known_to_be_behind(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::default();
        let mut cells: BTreeMap<u8, Cell> = (0..3).map(|cell| (cell, Cell::new(1))).collect();
        let mut answers: Vec<(u8, String, Confirmation)> = Vec::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Create(id) => drop(world.drive(now, create(key(&key_name(id), &["write"])))),
                Step::Rotate(id, new) => {
                    let new = credential(&key_name(new));
                    drop(world.drive(now, Input::RotateKey { id: key_name(id), new, overlap_ms: 500, maker_ends_at: None }));
                }
                Step::Revoke(id) => drop(world.drive(now, Input::RevokeKey { id: key_name(id) })),
                Step::SignIn(id, with) => {
                    let new = credential(&key_name(id + 6));
                    drop(world.drive(now, Input::OpenSession { new, key: Some(key_name(with)) }));
                }
                Step::SignOut(id) => drop(world.drive(now, Input::EndSession { id: key_name(id + 6) })),
                Step::Ask(cell, id) => {
                    let id = key_name(id);
                    let confirmed = world.desk.confirm(&world.rows, at(now), &credential(&id), None, &place(cell));
                    answers.extend(confirmed.ok().map(|confirmed| (cell, id, confirmed)));
                }
                Step::Answer => {
                    if !answers.is_empty() {
                        let (cell, id, confirmed) = answers.remove(0);
                        let cell = cells.get_mut(&cell).expect("there are three");
                        cell.remember_key(at(now), &credential(&id), confirmed);
                    }
                }
                Step::Tell(cell) | Step::TellInVain(cell) => {
                    let words = world.catalog().words();
                    if let Some(word) = words.into_iter().find(|word| word.cell == place(cell)) {
                        let told = cells.get_mut(&cell).expect("there are three");
                        told.forget_keys(word.version, word.ids.as_deref());
                        if matches!(step, Step::Tell(_)) {
                            world.must(now, Input::Heard { cell: word.cell, version: word.version });
                        }
                    }
                }
                Step::LoseCatalog => world.lose_memory(),
                Step::LoseCell(cell) => {
                    // Whoever asked is gone with the answer that it waits for.
                    answers.retain(|(asked, ..)| *asked != cell);
                    cells.insert(cell, Cell::new(1));
                }
                Step::Pass(ms) => now += u64::from(ms),
            }
            drop(world.desk.take_orders());
            for (number, cell) in &mut cells {
                for id in (0..12).map(key_name) {
                    if lets_in(cell, now, &id) && !world.is_good(now, &id) {
                        let is_behind = world.catalog().behind().any(|behind| behind == place(*number));
                        prop_assert!(is_behind, "cell {number} lets {id} in, and nobody will tell it");
                    }
                }
            }
            let stored = Catalog::from_rows(&world.rows.load().expect("rows"), world.rows.audit_last().expect("rows"))
                .map(|stored| stored.with_roots(&[ROOT.into()]));
            prop_assert_eq!(Ok(world.catalog()), stored.as_ref(), "memory is only a cache of rows");
        }
    }
}
