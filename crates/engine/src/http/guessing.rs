//! Callers who try credentials that are not good, as far as this isolate sees them.
//!
//! They are told apart by the address that Cloudflare puts into `CF-Connecting-IP`. Where the runtime does not say where
//! a request comes from, nobody is throttled.

use std::cell::RefCell;

use stepwell_core::guesses::{Guesses, network};
use stepwell_protocol::{Code, Problem};
use worker::Request;

use super::error::Refusal;
use crate::runtime;

/// The caller's address, which no caller can choose behind Cloudflare.
const ADDRESS_HEADER: &str = "cf-connecting-ip";

thread_local! {
    static GUESSES: RefCell<Guesses> = const { RefCell::new(Guesses::new()) };
    static TOKENS: RefCell<Guesses> = const { RefCell::new(Guesses::new()) };
    static DELIVERIES: RefCell<Guesses> = const { RefCell::new(Guesses::of_programs()) };
}

/// Refuses an address that has failed too often, whatever it brings this time.
pub fn check(request: &Request) -> Result<(), Refusal> {
    // Most isolates never see a bad key: then this costs no look at a header.
    if GUESSES.with_borrow(Guesses::is_empty) {
        return Ok(());
    }
    let Some(address) = address(request) else { return Ok(()) };
    let checked = GUESSES.with_borrow_mut(|guesses| guesses.check(runtime::clock(), &address));
    checked.map_err(|seconds| {
        let detail = "Too many requests from your address had an invalid key. Wait, then send a valid one.";
        Refusal(Problem::new(Code::LimitReached, detail).after(seconds))
    })
}

/// Counts a refusal, if it is one of a credential that is not good.
pub fn count(request: &Request, refusal: &Refusal) {
    if refusal.0.code == Code::Unauthorized {
        failed(request);
    }
}

/// Counts a credential that is not good.
pub fn failed(request: &Request) {
    if let Some(address) = address(request) {
        GUESSES.with_borrow_mut(|guesses| guesses.failed(runtime::clock(), &address));
    }
}

/// Counts a token that is not good, apart from keys: old links keep nobody from using a key.
pub fn bad_token(request: &Request) -> Result<(), Refusal> {
    let Some(address) = address(request) else { return Ok(()) };
    let tried = TOKENS.with_borrow_mut(|tokens| tokens.tried(runtime::clock(), &address));
    tried.map_err(|seconds| {
        let detail =
            "Too many requests from your address had an invalid token. Wait, then follow a valid link.";
        Refusal(Problem::new(Code::LimitReached, detail).after(seconds))
    })
}

/// Who delivers to a webhook, by its path: whoever has the wrong secret of one may have the right one of another.
pub fn sender(request: &Request, path: &str) -> Option<String> {
    address(request).map(|address| format!("{address} {path}"))
}

/// Refuses whoever has delivered too much to this webhook that was not signed, whatever comes this time.
pub fn check_sender(request: &Request, path: &str) -> Result<(), Refusal> {
    if DELIVERIES.with_borrow(Guesses::is_empty) {
        return Ok(());
    }
    let Some(sender) = sender(request, path) else { return Ok(()) };
    let checked = DELIVERIES.with_borrow_mut(|guesses| guesses.check(runtime::clock(), &sender));
    checked.map_err(|seconds| {
        let detail = "Too many deliveries from your address to this webhook were refused. Check the secret that you sign \
                      with, then deliver again.";
        Refusal(Problem::new(Code::LimitReached, detail).after(seconds))
    })
}

/// Counts a delivery that was refused.
pub fn refused(sender: &str) {
    DELIVERIES.with_borrow_mut(|guesses| guesses.failed(runtime::clock(), sender));
}

fn address(request: &Request) -> Option<String> {
    let address = request.headers().get(ADDRESS_HEADER).ok().flatten();
    address.filter(|address| !address.is_empty()).map(|address| network(&address))
}
