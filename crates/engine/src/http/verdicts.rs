//! What objects have said of callers' keys, as far as this isolate remembers.
//!
//! A key that an object has just accepted is let through to the cells, which decide for themselves: so a verdict that is
//! out of date lets nobody in. A key that was just refused is refused again without asking anybody, for a second: a key
//! that is made in that second has to wait for its end.

use std::cell::RefCell;

use stepwell_core::recent::Recent;

use crate::runtime;

/// How long an accepted key needs no check before its request is read.
const GOOD_MS: u64 = 60_000;

/// How long a refused key is refused without another check.
const BAD_MS: u64 = 1_000;

/// How many of each are remembered.
const KEYS_MAX: usize = 2_048;

thread_local! {
    static GOOD: RefCell<Recent> = const { RefCell::new(Recent::new(GOOD_MS, KEYS_MAX)) };
    static BAD: RefCell<Recent> = const { RefCell::new(Recent::new(BAD_MS, KEYS_MAX)) };
}

/// Whether an object has accepted the key of this hash lately.
pub fn is_good(namespace: &str, hash: &str) -> bool {
    GOOD.with_borrow(|good| good.contains(runtime::clock(), &name(namespace, hash)))
}

/// Whether the key of this hash was refused a moment ago.
pub fn is_bad(namespace: &str, hash: &str) -> bool {
    BAD.with_borrow(|bad| bad.contains(runtime::clock(), &name(namespace, hash)))
}

/// An object has accepted a key.
pub fn accepted(namespace: &str, hash: &str) {
    let (now, name) = (runtime::clock(), name(namespace, hash));
    GOOD.with_borrow_mut(|good| {
        // Every answer says so again; only the first one is worth the memory.
        if !good.contains(now, &name) {
            good.insert(now, name);
        }
    });
}

/// The catalog has refused a key.
pub fn refused(namespace: &str, hash: &str) {
    BAD.with_borrow_mut(|bad| bad.insert(runtime::clock(), name(namespace, hash)));
}

/// A cell has refused a key. Why is for the catalog to say, at the next request.
pub fn doubted(namespace: &str, hash: &str) {
    GOOD.with_borrow_mut(|good| good.remove(&name(namespace, hash)));
}

/// Whether a namespace was not there a moment ago.
pub fn is_missing(namespace: &str) -> bool {
    is_bad(namespace, "")
}

/// A namespace is not there, whatever the key.
pub fn missing(namespace: &str) {
    refused(namespace, "");
}

/// Names of namespaces have no slash.
fn name(namespace: &str, hash: &str) -> String {
    format!("{namespace}/{hash}")
}
