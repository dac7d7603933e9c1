//! The error of a test: `?` panics where it stands.
//!
//! A test that returned an error would drop its [`Workerd`](crate::Workerd) on the way as if all was
//! well; one that panics makes it print its log and keep its folder.

use std::fmt::Display;

/// What a test returns.
pub type TestResult = Result<(), Failure>;

/// Never exists: to make one is to panic.
#[derive(Debug)]
pub enum Failure {}

impl<E: Display> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        panic!("{error:#}")
    }
}
