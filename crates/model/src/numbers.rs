//! Numbers as people read them, and shares of tokens. Never rounds a number that is shown.

/// A number with its thousands separated: `1,234,567`.
#[must_use]
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The tokens of a share in 0..=1, rounded down.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are far below 2^52 and the share lies in 0..=1"
)]
pub fn share_tokens(tokens: u64, share: f64) -> u64 {
    (tokens as f64 * share) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let got = [0, 12, 999, 1000, 52_310, 1_234_567].map(grouped);
        assert_eq!(got, ["0", "12", "999", "1,000", "52,310", "1,234,567"]);
    }
}
