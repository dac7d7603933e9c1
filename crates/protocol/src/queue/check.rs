//! What no queue takes.

use super::{DELAY_MS_MAX, JOB_BYTES_MAX, PRIORITY_MAX, WORD_LENGTH_MAX, is_word};
use crate::{Code, Problem};

/// Refuses a job that says something of itself which cannot be.
pub fn check_terms(
    delay_ms: u64,
    priority: u8,
    group: Option<&str>,
    dedupe_id: Option<&str>,
) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
    if delay_ms > DELAY_MS_MAX {
        return bad(format!("`delay_ms` is at most {DELAY_MS_MAX}, which is a year."));
    }
    if priority > PRIORITY_MAX {
        return bad(format!("`priority` is 0 to {PRIORITY_MAX}."));
    }
    for (name, word) in [("group", group), ("dedupe_id", dedupe_id)] {
        if word.is_some_and(|word| !is_word(word)) {
            return bad(format!(
                "`{name}` has 1 to {WORD_LENGTH_MAX} bytes, without control or invisible characters."
            ));
        }
    }
    Ok(())
}

/// The problem of a job whose body has too many bytes.
pub fn too_large(size: usize) -> Problem {
    let detail = format!(
        "The body has {size} bytes, and {JOB_BYTES_MAX} are the most. Store large values elsewhere, for example in R2, and \
         send their name."
    );
    Problem::new(Code::PayloadTooLarge, detail)
}
