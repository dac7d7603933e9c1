//! Numbers with a fraction, as people read them.
//!
//! The standard library writes any float exactly, which takes more code than a page. These have few digits.

/// A number with so many digits after its point. One that is negative or none is 0.
pub fn fixed(value: f64, digits: u32) -> String {
    let scale = 10_u64.saturating_pow(digits);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded"
    )]
    let scaled = (value * scale as f64).round() as u64;
    let (whole, rest) = (scaled / scale, scaled % scale);
    let mut text = whole.to_string();
    if digits > 0 {
        let rest = rest.to_string();
        text.push('.');
        (rest.len()..digits as usize).for_each(|_| text.push('0'));
        text.push_str(&rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_digits() {
        for (value, digits, text) in [
            (0.0, 0, "0"),
            (99.5, 0, "100"),
            (12.345_6, 3, "12.346"),
            (0.000_036_15, 6, "0.000036"),
            (5.0, 2, "5.00"),
            (-1.0, 2, "0.00"),
            (f64::NAN, 1, "0.0"),
        ] {
            assert_eq!(fixed(value, digits), text, "{value}");
        }
    }
}
