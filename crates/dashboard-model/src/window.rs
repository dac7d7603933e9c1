//! Which rows of a long list are drawn: those in sight, and a few around them.

use std::ops::Range;

/// The most rows that are drawn at once, however high the window is.
pub const ROWS_MAX: usize = 120;

/// How many rows are drawn beyond each edge, so that a small scroll shows no gap.
pub const MARGIN: usize = 12;

/// The rows to draw, of so many, where the list is scrolled by `top` pixels and `height` of them are in sight.
pub fn visible(top: f64, height: f64, row_height: f64, count: usize) -> Range<usize> {
    let first = rows(top, row_height).min(count);
    let in_sight = rows(height, row_height) + 2;
    let start = first.saturating_sub(MARGIN);
    let end = (first + in_sight + MARGIN).min(count).min(start + ROWS_MAX);
    start..end.max(start)
}

/// Where to scroll so that a row is in sight, if it is not.
pub fn scroll_to(row: usize, top: f64, height: f64, row_height: f64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "no list has 2^52 rows")]
    let begins = row as f64 * row_height;
    if begins < top {
        Some(begins)
    } else if begins + row_height > top + height {
        Some(begins + row_height - height)
    } else {
        None
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a list can have"
)]
fn rows(pixels: f64, row_height: f64) -> usize {
    (pixels.max(0.0) / row_height.max(1.0)).clamp(0.0, 1e9) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_at_its_top_draws_what_is_in_sight_and_a_margin() {
        assert_eq!(visible(0.0, 600.0, 30.0, 50_000), 0..34);
        assert_eq!(visible(0.0, 600.0, 30.0, 7), 0..7);
        assert_eq!(visible(0.0, 600.0, 30.0, 0), 0..0);
    }

    #[test]
    fn a_row_out_of_sight_is_brought_to_the_nearest_edge() {
        assert_eq!(scroll_to(0, 100.0, 300.0, 30.0), Some(0.0));
        assert_eq!(scroll_to(5, 100.0, 300.0, 30.0), None);
        assert_eq!(scroll_to(20, 100.0, 300.0, 30.0), Some(330.0));
    }

    proptest! {
        #[test]
        fn never_more_rows_than_the_bound_and_always_those_in_sight(
            top in -10.0..2e6_f64, height in 0.0..2_160.0_f64, count in 0..60_000_usize,
        ) {
            let range = visible(top, height, 30.0, count);
            prop_assert!(range.len() <= ROWS_MAX);
            prop_assert!(range.end <= count);
            let first = rows(top, 30.0);
            if first < count {
                prop_assert!(range.contains(&first));
                let last = (first + rows(height, 30.0)).min(count - 1);
                prop_assert!(range.contains(&last));
            }
        }
    }
}
