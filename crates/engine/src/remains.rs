//! What an instance that a panic stops leaves to the next.
//!
//! Where panics abort, one in a user's code takes everything with it that is in the same wasm instance: with engine and
//! app in one Worker, all objects of the isolate. Their rows are safe; what they have only counted would be lost.
//! JavaScript outlives the instance, so it keeps that until whoever had counted it is there again.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Once,
};

use serde::de::DeserializeOwned;
use stepwell_protocol::json;
use wasm_bindgen::prelude::*;

#[wasm_bindgen(inline_js = r#"
const KEPT_MAX = 1000;
const KEPT_CHARACTERS_MAX = 4 << 20;
const kept = new Map();
let characters = 0;
export function keep(name, left) {
  take(name);
  if (left.length > KEPT_CHARACTERS_MAX) return;
  while (kept.size >= KEPT_MAX || characters + left.length > KEPT_CHARACTERS_MAX) take(kept.keys().next().value);
  kept.set(name, left);
  characters += left.length;
}
export function take(name) {
  const left = kept.get(name);
  if (kept.delete(name)) characters -= left.length;
  return left;
}
"#)]
extern "C" {
    #[wasm_bindgen(js_name = keep)]
    fn keep_left(name: &str, left: &str);

    #[wasm_bindgen(js_name = take)]
    fn take_left(name: &str) -> Option<String>;
}

/// Something that has what would be lost.
pub trait Leaves {
    /// That, as JSON, if there is any. It is asked in the midst of a panic: it borrows only what nobody holds.
    fn left(&self) -> Option<String>;
}

thread_local! {
    static ALL: RefCell<Vec<(String, Weak<dyn Leaves>)>> = const { RefCell::new(Vec::new()) };
}

/// Takes what an earlier instance has left under a name; and from here on, what this one has to leave is kept under it.
pub fn inherit<T: DeserializeOwned>(name: String, heir: Weak<dyn Leaves>) -> Option<T> {
    // Where panics unwind, none stops the instance.
    if cfg!(panic = "unwind") {
        return None;
    }
    install_hook();
    let left = take_left(&name).and_then(|text| json::from_str(&text).ok());
    ALL.with_borrow_mut(|all| {
        all.retain(|(_, leaves)| leaves.strong_count() > 0);
        all.push((name, heir));
    });
    left
}

fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            before(info);
        }));
    });
}

fn leave() {
    // A second panic in here would hide the first.
    let _ = ALL.try_with(|all| {
        let Ok(all) = all.try_borrow() else { return };
        let alive = all.iter().filter_map(|(name, leaves)| Some((name, leaves.upgrade()?)));
        let left = alive.filter_map(|(name, leaves): (_, Rc<dyn Leaves>)| Some((name, leaves.left()?)));
        left.for_each(|(name, left)| keep_left(name, &left));
    });
}
