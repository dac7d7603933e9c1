//! Writes what has happened to runs into the log.

use stepwell_core::cell::Line;

use super::Host;
use crate::log;

impl Host {
    /// Writes these lines. What cannot be told of a namespace is told without its name.
    pub(super) fn write_lines(&self, lines: &[Line]) {
        let namespace = self.own_namespace().unwrap_or_default();
        for line in lines {
            log::run(namespace, line);
        }
    }
}
