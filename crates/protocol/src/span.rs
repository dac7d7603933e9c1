//! Lengths of time, as people write them.

/// The longest text that is read, in bytes.
pub const TEXT_LENGTH_MAX: usize = 128;

/// The milliseconds that a text means, if it is one that can be read: one or more whole numbers with a unit, such as
/// `3 days`, `90 minutes` or `1h 30m`.
pub fn parse(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if rest.is_empty() || rest.len() > TEXT_LENGTH_MAX {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let ms = number.parse::<u64>().ok()?.checked_mul(unit_ms(unit)?)?;
        total = total.checked_add(ms)?;
        rest = after.trim_start();
        if let Some(next) = rest.strip_prefix(',') {
            // A comma is followed by something.
            rest = next.trim_start();
            if rest.is_empty() {
                return None;
            }
        }
    }
    Some(total)
}

/// A length of time in words: `1 minute`, `90 seconds`.
pub fn in_words(ms: u64) -> String {
    let units =
        [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"), (1, "millisecond")];
    let fits = |(length, _): &(u64, &str)| ms >= *length && ms.is_multiple_of(*length);
    let (length, unit) = units.into_iter().find(fits).unwrap_or((1, "millisecond"));
    let count = ms / length;
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

fn unit_ms(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        "w" | "week" | "weeks" => 604_800_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_in_words_reads_as_the_same() {
        for (ms, words) in [
            (0, "0 milliseconds"),
            (1, "1 millisecond"),
            (60_000, "1 minute"),
            (90_000, "90 seconds"),
            (7_200_000, "2 hours"),
            (86_400_000, "1 day"),
        ] {
            assert_eq!(in_words(ms), words);
            assert_eq!(parse(words), Some(ms));
        }
    }

    #[test]
    fn text_says_how_long() {
        for (text, ms) in [
            ("3 days", 259_200_000),
            ("90 minutes", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("1 day, 2 hours", 93_600_000),
            (" 1 Week ", 604_800_000),
            ("500ms", 500),
            ("0 s", 0),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn text_that_means_nothing_is_refused() {
        let long = "1s ".repeat(100);
        for text in [
            "", " ", "3", "days", "3 dayz", "-1 s", "1.5 h", "1 month", "1 s,", ",1 s", "１ s", "9e9 s",
            &long,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("18446744073709551615 ms"), Some(u64::MAX));
        assert_eq!(parse("18446744073709551616 ms"), None);
        assert_eq!(parse("18446744073709551615 ms 1 ms"), None);
        assert_eq!(parse("30500568905 weeks"), None);
    }
}
