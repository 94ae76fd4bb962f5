//! The parameters of a question, each taken once. Owns how they are decoded and what is said of those
//! that nobody takes. Never knows what they mean.

use std::str::FromStr;

use super::error::ConsoleError;

/// The longest query that is read, in bytes.
const QUERY_BYTES: usize = 4096;

/// Parameters that nobody has taken yet.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// A query that is too long, or a parameter that comes twice.
    pub fn read(query: &str) -> Result<Self, ConsoleError> {
        if query.len() > QUERY_BYTES {
            let message = format!("a query has at most {QUERY_BYTES} bytes");
            return Err(ConsoleError::parameter(message));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name), decoded(value));
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(ConsoleError::parameter(format!("`{name}` is given twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Takes a parameter; none if it is missing or empty.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        let (_, value) = self.0.swap_remove(at);
        (!value.is_empty()).then_some(value)
    }

    /// Takes a parameter that is one of some words.
    ///
    /// # Errors
    /// The words, if it is none of them.
    pub fn word(&mut self, name: &str, words: &[&str]) -> Result<Option<String>, ConsoleError> {
        let value = self.take(name);
        match value {
            Some(value) if !words.contains(&value.as_str()) => {
                let words = words.join(", ");
                let message = format!("`{name}` is one of: {words}");
                Err(ConsoleError::parameter(message))
            }
            value => Ok(value),
        }
    }

    /// Takes a number from `least` to `most`.
    ///
    /// # Errors
    /// The limits, if it is none.
    pub fn number(
        &mut self,
        name: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, ConsoleError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let number = value.parse().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        let message = || format!("`{name}` is a number from {least} to {most}");
        number
            .map(Some)
            .ok_or_else(|| ConsoleError::parameter(message()))
    }

    /// Takes the number of a turn.
    ///
    /// # Errors
    /// If it is none.
    pub fn turn(&mut self, name: &str) -> Result<Option<u32>, ConsoleError> {
        let most = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
        let turn = self.number(name, 1, most)?;
        Ok(turn.and_then(|turn| u32::try_from(turn).ok()))
    }

    /// Takes the number that the page before gave as its `next`.
    ///
    /// # Errors
    /// If it is none.
    pub fn cursor<T: FromStr>(&mut self) -> Result<Option<T>, ConsoleError> {
        let Some(text) = self.take("cursor") else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let message = format!("`{text}` is not the `next` of an earlier page");
            ConsoleError::new(400, "bad_cursor", message)
        })
    }

    /// Refuses what nobody has taken.
    ///
    /// # Errors
    /// The name of a parameter that is left.
    pub fn end(self, of: &str) -> Result<(), ConsoleError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let message =
                    format!("`{name}` is no parameter of {of}: docs/console/openapi.json has all");
                Err(ConsoleError::parameter(message))
            }
        }
    }
}

/// A part of a query without its escapes. What is none of UTF-8 reads as the replacement character.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let escaped = || {
            let mut ahead = rest.clone();
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(ahead.next())?, digit(ahead.next())?);
            Some((u8::try_from(high * 16 + low).ok()?, ahead))
        };
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match escaped() {
                Some((byte, ahead)) => {
                    bytes.push(byte);
                    rest = ahead;
                }
                None => bytes.push(b'%'),
            },
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_taken_once() {
        let mut query = Query::read("q=a%20b+c%2&limit=7&empty=").unwrap();
        assert_eq!(query.take("q").as_deref(), Some("a b c%2"));
        assert_eq!(query.take("empty"), None);
        assert_eq!(query.number("limit", 1, 9), Ok(Some(7)));
        assert_eq!(query.number("limit", 1, 9), Ok(None));
        assert_eq!(query.end("it"), Ok(()));
        assert_eq!(
            Query::read("a=%C3%A4").unwrap().take("a").as_deref(),
            Some("ä")
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(Query::read("a=1&a=2").is_err());
        assert!(Query::read(&"a".repeat(5000)).is_err());
        assert!(Query::read("a=1").unwrap().end("the list").is_err());
        let zone = |text: &str| Query::read(text).unwrap().word("zone", &["red"]);
        assert!(zone("zone=blue").is_err() && zone("zone=red").is_ok());
        let limit = |text: &str| Query::read(text).unwrap().number("limit", 1, 9);
        assert!(limit("limit=0").is_err() && limit("limit=ten").is_err());
    }
}
