//! Lines with columns.

/// Aligns columns; the last one may be as long as it likes.
pub fn align(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| shown(cell)).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let missing = width.saturating_sub(shown(cell));
            format!("{cell}{:missing$}", "")
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Writes them to standard output.
pub fn print(rows: &[Vec<String>]) {
    for line in align(rows) {
        anstream::println!("{line}");
    }
}

/// How many characters of a cell are seen: colours are not.
fn shown(cell: &str) -> usize {
    anstream::adapter::strip_str(cell).to_string().chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_seen_in_them() {
        let rows = [["a", "\u{1b}[32mgood\u{1b}[0m", "x"], ["naïve", "revoked", ""]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        assert_eq!(align(&rows), ["a      \u{1b}[32mgood\u{1b}[0m     x", "naïve  revoked"]);
    }
}
