//! What must hold whatever comes from outside: one function for each parser, which takes any bytes and asserts.
//!
//! Owns: the properties. The bytes come from two sides: from the corpora in `fuzz/corpus`, which `tests/corpora.rs`
//! replays with all other tests, and from libFuzzer, which the programs in `fuzz/fuzz_targets` hand on to here.
//!
//! A target never asserts only that nothing panics: what was read is written and read again, what one parser takes
//! the others refuse, and what was refused has changed nothing.

mod access;
mod bodies;
mod cells;
mod command_line;
mod cursors;
mod expressions;
mod json;
#[path = "../../../crates/core/tests/cell/memory.rs"]
#[expect(dead_code, reason = "the tests of the machine use the rest")]
mod memory;
mod names;
mod programs;
mod requests;
mod routing;
mod stored;
mod tokens;

pub use access::{api_key, credential, permission};
pub use bodies::{request_body, server_answer};
pub use cells::{commit, published};
pub use command_line::{cli_config, cli_time};
pub use cursors::{list_cursor, stream_cursor};
pub use expressions::expression;
pub use json::json_text;
pub use names::{operation, pool, run_id};
pub use programs::{activation, answer, description, export};
pub use requests::{internal_call, list_query, start_request, stream_query};
pub use routing::route;
pub use stored::{catalog_rows, run_row};
pub use tokens::{jwks, token};

/// A function that takes any bytes, and panics if something does not hold.
pub type Target = fn(&[u8]);

/// Lists functions with their names.
macro_rules! targets {
    ($($name:ident)+) => { &[$((stringify!($name), $name as Target)),+] };
}

/// Every target by its name, which is that of its corpus and of its program too.
pub const TARGETS: &[(&str, Target)] = targets![
    activation answer api_key catalog_rows cli_config cli_time commit credential description export
    expression internal_call json_text jwks list_cursor list_query operation permission pool published request_body route run_id run_row
    server_answer start_request stream_cursor stream_query token
];

/// The bytes as a text, which is all that most parsers ever see.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// A text in two: the rest is empty where there is nothing to part it.
fn parted(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}
