//! What the dashboard decides, without a browser: which address shows what, what a filter means, which rows are drawn
//! and where.
//!
//! Owns no element, no request and no clock: `now` and the offset of a time zone are parameters. All of it compiles to
//! WebAssembly, and its tests run natively.

pub mod book;
pub mod bulk;
pub mod chart;
pub mod counts;
pub mod filter;
pub mod following;
pub mod form;
pub mod json;
pub mod listing;
pub mod map;
pub mod may;
pub mod nav;
pub mod number;
pub mod pacing;
pub mod pages;
pub mod place;
pub mod recorded;
pub mod schema;
pub mod sheet;
pub mod shown;
pub mod timeline;
pub mod when;
pub mod window;
