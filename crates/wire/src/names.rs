//! The names of the hidden tools, and which misspelt names mean them. Models write `Delimiter`,
//! `functions.delimiter` or `default_api:delimiter` for the `delimiter` that they were offered, and
//! a client that got such a call would know no tool of that name. Never decides what becomes of a
//! call.

use std::sync::Arc;

use memchr::memchr2_iter;

/// The words that models put before the name of a tool. A piece of a name without a dot may be the
/// beginning of one.
const BEFORE: [&str; 4] = ["functions", "default_api", "tools", "multi_tool_use"];
/// The letters from the rarest to the most frequent.
const RARE: &str = "zqxjkvbpgywfmculdrhsnioate";

/// The names of the hidden tools as a conversation knows them, beside those of the client's tools.
/// Several readers of an answer have them, so they share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    own: Arc<[String]>,
    /// The rarest letter of each name, by which it is searched for.
    rarest: Arc<[Rarest]>,
    /// The names of the client's tools, which are never hidden, however alike.
    taken: Arc<[String]>,
}

impl<S: Into<String>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let own: Vec<String> = names.into_iter().map(Into::into).collect();
        Self {
            rarest: own.iter().map(|own| Rarest::of(own)).collect(),
            own: own.into(),
            taken: Arc::default(),
        }
    }
}

/// The letter of a name that is rarest in other text, by which the name is found. It is found out
/// once, because every frame is searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rarest {
    /// Its place in the name.
    offset: usize,
    lower: u8,
    upper: u8,
}

impl Rarest {
    fn of(name: &str) -> Self {
        let rank = |byte: u8| {
            let letter = char::from(byte.to_ascii_lowercase());
            RARE.find(letter).unwrap_or(RARE.len())
        };
        let letters = name.bytes().enumerate();
        let (offset, rarest) = letters
            .min_by_key(|(_, byte)| rank(*byte))
            .unwrap_or_default();
        Self {
            offset,
            lower: rarest.to_ascii_lowercase(),
            upper: rarest.to_ascii_uppercase(),
        }
    }
}

impl Names {
    /// These names beside these tools of the client's.
    #[must_use]
    pub fn beside(mut self, taken: &[String]) -> Self {
        self.taken = taken.into();
        self
    }

    /// The hidden tools' own names.
    #[must_use]
    pub fn own(&self) -> &[String] {
        &self.own
    }

    /// Whether nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Whether the name is a hidden tool's, letter by letter.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.own.iter().any(|own| own == name)
    }

    /// The hidden tool that a name means: the name is the tool's own, or it is the tool's with a
    /// prefix, in another case or between white space, and means no tool of the client's.
    #[must_use]
    pub fn meant(&self, name: &str) -> Option<&str> {
        let exact = self.own.iter().find(|own| *own == name);
        let like = || {
            let plain = plain(name);
            let same = |own: &&String| own.eq_ignore_ascii_case(plain);
            self.own.iter().find(same).filter(|_| !self.is_taken(name))
        };
        exact.or_else(like).map(String::as_str)
    }

    /// Whether a name may become a hidden tool's when more of it comes; an empty name may become
    /// any.
    #[must_use]
    pub fn may_become(&self, name: &str) -> bool {
        let mut own = self.own.iter();
        if own.any(|own| own.len() > name.len() && own.starts_with(name)) {
            return true;
        }
        !self.is_empty() && !self.is_taken(name) && self.begins(name.trim_start())
    }

    fn begins(&self, name: &str) -> bool {
        let begins = |whole: &str, part: &str| {
            let head = whole.get(..part.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(part))
        };
        match name.rfind(['.', ':']) {
            Some(at) => {
                let tail = name.get(at + 1..).unwrap_or_default().trim_start();
                // A number may follow a whole name.
                let number = tail.bytes().all(|byte| byte.is_ascii_digit());
                self.own.iter().any(|own| begins(own, tail))
                    || number && self.meant(name.get(..at).unwrap_or_default()).is_some()
            }
            None => {
                self.own.iter().any(|own| begins(own, name.trim_end()))
                    || BEFORE.iter().any(|before| begins(before, name))
            }
        }
    }

    /// Whether a name may mean a tool of the client's, misspelt in the same ways.
    fn is_taken(&self, name: &str) -> bool {
        let plainly = plain(name);
        let mut taken = self.taken.iter();
        taken.any(|taken| taken == name || plain(taken).eq_ignore_ascii_case(plainly))
    }

    /// The beginnings and ends of the hidden tools' names in the bytes, in any case.
    pub fn find<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = (usize, usize)> + 'a {
        let places = move |(own, rarest): (&'a String, &'a Rarest)| {
            memchr2_iter(rarest.lower, rarest.upper, bytes).filter_map(move |at| {
                let begin = at.checked_sub(rarest.offset)?;
                let end = begin + own.len();
                let same = bytes.get(begin..end)?.eq_ignore_ascii_case(own.as_bytes());
                same.then_some((begin, end))
            })
        };
        let named = self.own.iter().zip(self.rarest.iter());
        let named = named.filter(|(own, _)| !own.is_empty());
        named.flat_map(places)
    }

    /// Whether a string in the bytes is, or ends with, the name of a hidden tool.
    #[must_use]
    pub fn stand_quoted_in(&self, bytes: &[u8]) -> bool {
        self.find(bytes).any(|(begin, end)| {
            let before = begin.checked_sub(1).and_then(|at| bytes.get(at));
            let opens = before.is_some_and(|byte| matches!(byte, b'"' | b'.' | b':' | b' '));
            opens && bytes.get(end) == Some(&b'"')
        })
    }
}

/// A name without the additions of models: white space around it, `functions.` or `default_api:`
/// before it, and the number of the call behind it.
fn plain(name: &str) -> &str {
    let name = name.trim();
    let numbered = name.rsplit_once(':').filter(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let name = numbered.map_or(name, |(name, _)| name);
    let tail = name.rsplit(['.', ':']).next();
    tail.unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        ["delimiter", "recall"].into_iter().collect()
    }

    #[test]
    fn misspelt_names_are_taken_as_meant() {
        for name in [
            "delimiter",
            "Delimiter",
            "DELIMITER",
            " delimiter\n",
            "functions.delimiter",
            "functions.delimiter:0",
            "default_api.delimiter",
            "default_api:Delimiter",
            "tool.delimiter",
            "a.b.delimiter",
        ] {
            assert_eq!(names().meant(name), Some("delimiter"), "{name:?}");
        }
        for name in [
            "",
            "delimit",
            "delimiters",
            "my_delimiter",
            "delimiter.x",
            "delimiter:x",
            "de limiter",
            "functions.",
            "plimsoll_delimiter",
        ] {
            assert_eq!(names().meant(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_name_of_the_clients_is_the_clients() {
        let taken = ["Recall".to_owned(), "mcp.delimiter".to_owned()];
        let names = names().beside(&taken);
        assert_eq!(names.meant("Recall"), None);
        assert_eq!(names.meant("mcp.delimiter"), None);
        assert!(!names.may_become("Recall") && !names.may_become("mcp.delimiter"));
        // Nor is one that may as well be theirs, misspelt.
        for name in ["RECALL", "functions.Recall", "functions.mcp.delimiter"] {
            assert_eq!(names.meant(name), None, "{name}");
        }
        assert_eq!(names.meant("recall"), Some("recall"));
    }

    #[test]
    fn pieces_wait_where_more_may_make_a_hidden_name() {
        for name in [
            "",
            " ",
            "d",
            "De",
            "delimiter",
            "functions",
            "func",
            "functions.",
            "functions.de",
            "x.",
            "x:reca",
            "functions.delimiter:",
            "functions.delimiter:1",
        ] {
            assert!(
                names().may_become(name) || names().contains(name),
                "{name:?}"
            );
        }
        for name in [
            "read",
            "delimiters",
            "functions.read",
            "rea",
            "x.y",
            "functionsx",
        ] {
            assert!(!names().may_become(name), "{name:?}");
        }
        assert!(!Names::default().may_become(""));
    }

    #[test]
    fn names_are_found_in_any_case() {
        let bytes = br#"{"name":"functions.DeLimiter"} recalled "recall""#;
        let found: Vec<_> = names().find(bytes).collect();
        assert_eq!(found, [(19, 28), (31, 37), (41, 47)]);
        assert!(names().stand_quoted_in(bytes));
        assert!(!names().stand_quoted_in(b"a recall of \"recalled\""));
    }
}
