//! The distinctive strings of a text: paths, URLs, identifiers and numbers, which agents carry from
//! what they read into their next call. And those of its lines that say something. A scanner over bytes.
//! Never parses JSON (the caller unescapes) or any language.

/// Characters of the shortest line that counts.
pub const LINE: usize = 12;

/// The lines of a text that are long enough, trimmed.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| {
        line.len() >= LINE && (line.len() >= 4 * LINE || line.chars().count() >= LINE)
    })
}

/// Characters of the shortest path.
const PATH: usize = 5;
/// Characters of the shortest identifier.
const IDENTIFIER: usize = 8;
/// Digits of the shortest number.
const NUMBER: usize = 5;

/// A letter or an underscore.
const LETTER: u8 = 1;
/// A decimal digit.
const DIGIT: u8 = 2;
/// `.` and `-`, which stand inside identifiers.
const JOINER: u8 = 4;
/// `/`.
const SLASH: u8 = 8;
/// `~@%+`, which stand inside paths only.
const PATHLY: u8 = 16;
/// `:=?&#`, which stand inside URLs only.
const BREAK: u8 = 32;
/// What an identifier is made of.
const WORD: u8 = LETTER | DIGIT | JOINER;

/// The classes of each byte. Bytes outside ASCII have none.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::indexing_slicing,
            reason = "the loop ends at 256, while compiling"
        )]
        {
            table[byte] = match byte as u8 {
                b'A'..=b'Z' | b'a'..=b'z' | b'_' => LETTER,
                b'0'..=b'9' => DIGIT,
                b'.' | b'-' => JOINER,
                b'/' => SLASH,
                b'~' | b'@' | b'%' | b'+' => PATHLY,
                b':' | b'=' | b'?' | b'&' | b'#' => BREAK,
                _ => 0,
            };
        }
        byte += 1;
    }
    table
}

fn class(byte: u8) -> u8 {
    CLASSES.get(usize::from(byte)).copied().unwrap_or(0)
}

/// The distinctive strings of a text with their byte offsets, in order and without overlap.
///
/// The text is cut into the longest runs of ASCII letters, digits and `_./-:~@%+#?=&`. In a run:
/// * what begins with a scheme and `://` is one URL, to the end of the run;
/// * else it is cut at `:=?&#`, so that `src/a.rs:12` gives the path alone, and a piece with a `/`
///   between two parts, of 5 characters or more, is one path, without a leading `./`;
/// * else a word of 8 characters or more that holds a letter is one identifier, with `.` and `-`
///   inside it (so that plain words, dotted names and hashes are identifiers, too);
/// * else a run of 5 digits or more that no letter touches is one number.
///
/// Punctuation at either end is no part of a string, nor a path's last `/`. What stands inside a
/// string is not given again.
pub fn strings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    Strings {
        text,
        at: 0,
        found: Vec::new(),
    }
    .filter_map(|(start, end)| Some((start, text.get(start..end)?)))
}

/// Whether a distinctive string says where something is: it has a slash, a dot, an underscore, a
/// digit or an inner capital.
#[must_use]
pub fn tells_place(string: &str) -> bool {
    let inner = string.bytes().skip(1).any(|byte| byte.is_ascii_uppercase());
    let lower = string.bytes().any(|byte| byte.is_ascii_lowercase());
    let mark = |byte: u8| matches!(byte, b'/' | b'.' | b'_' | b'0'..=b'9');
    string.bytes().any(mark) || (inner && lower)
}

struct Strings<'a> {
    text: &'a str,
    /// Where the next run is looked for.
    at: usize,
    /// Further strings of the newest run, last one first.
    found: Vec<(usize, usize)>,
}

impl Iterator for Strings<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        loop {
            if let Some(span) = self.found.pop() {
                return Some(span);
            }
            let (start, end, seen) = self.run()?;
            if end - start < NUMBER.min(PATH) {
                continue;
            }
            // Nearly all runs are plain words.
            if seen & !(LETTER | DIGIT) == 0 {
                let least = if seen & LETTER == 0 {
                    NUMBER
                } else {
                    IDENTIFIER
                };
                if end - start >= least {
                    return Some((start, end));
                }
                continue;
            }
            let bytes = self.text.as_bytes().get(start..end).unwrap_or_default();
            let mut run = Run {
                bytes,
                base: start,
                found: &mut self.found,
            };
            run.split(seen);
            self.found.reverse();
        }
    }
}

impl Strings<'_> {
    /// The next run, and the classes of all its bytes.
    fn run(&mut self) -> Option<(usize, usize, u8)> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let skipped = rest.iter().position(|byte| class(*byte) != 0)?;
        let mut seen = 0;
        let length = rest
            .iter()
            .skip(skipped)
            .take_while(|byte| {
                let class = class(**byte);
                seen |= class;
                class != 0
            })
            .count();
        let start = self.at + skipped;
        self.at = start + length;
        Some((start, self.at, seen))
    }
}

/// Reads a run that is more than one word.
struct Run<'a> {
    bytes: &'a [u8],
    base: usize,
    found: &'a mut Vec<(usize, usize)>,
}

impl Run<'_> {
    fn get(&self, start: usize, end: usize) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    fn add(&mut self, start: usize, end: usize) {
        self.found.push((self.base + start, self.base + end));
    }

    fn split(&mut self, seen: u8) {
        let all = self.bytes.len();
        let both = seen & BREAK != 0 && seen & SLASH != 0;
        let url = both.then(|| self.url()).flatten();
        self.pieces(0, url.unwrap_or(all), BREAK, Self::piece);
        if let Some(start) = url {
            let kept = self.get(start, all);
            let end = kept
                .iter()
                .rposition(|byte| !matches!(byte, b'.' | b':' | b'/' | b'-' | b'?' | b'&' | b'#'));
            self.add(start, end.map_or(start, |last| start + last + 1));
        }
    }

    /// Where a URL begins: at the scheme before the first `://`.
    fn url(&self) -> Option<usize> {
        let at = self.bytes.windows(3).position(|three| three == b"://")?;
        let before = self.get(0, at).iter().rev();
        let scheme = before.take_while(|byte| class(**byte) & (LETTER | DIGIT) != 0);
        let start = at - scheme.count();
        let named = start < at && at + 3 < self.bytes.len();
        named.then_some(start)
    }

    /// Reads the pieces between bytes of some classes.
    fn pieces(&mut self, start: usize, end: usize, cut: u8, each: fn(&mut Self, usize, usize)) {
        let mut from = start;
        while from < end {
            let rest = self.get(from, end).iter();
            let length = rest.take_while(|byte| class(**byte) & cut == 0).count();
            each(self, from, from + length);
            from += length + 1;
        }
    }

    /// Reads a path, or else its words.
    fn piece(&mut self, start: usize, end: usize) {
        if !self.get(start, end).contains(&b'/') {
            return self.pieces(start, end, !WORD, Self::word);
        }
        let (from, to) = self.path(start, end);
        let path = self.get(from, to);
        let parts = path
            .split(|byte| *byte == b'/')
            .filter(|part| part.iter().any(|byte| class(*byte) & (LETTER | DIGIT) != 0));
        if path.len() >= PATH && parts.count() > 1 {
            self.add(from, to);
        } else {
            self.pieces(start, end, !WORD, Self::word);
        }
    }

    /// A path without `./` at its front and without punctuation or slashes at its end.
    fn path(&self, start: usize, end: usize) -> (usize, usize) {
        let behind = |byte: &u8| !matches!(byte, b'.' | b'-' | b'/');
        let kept = self.get(start, end).iter().rposition(behind);
        let end = kept.map_or(start, |last| start + last + 1);
        let mut from = start;
        while self.get(from, end).first() == Some(&b'-') {
            from += 1;
        }
        while self.get(from, end).starts_with(b"./") {
            from += 2;
        }
        (from, end)
    }

    /// Reads an identifier, or else the numbers in it.
    fn word(&mut self, start: usize, end: usize) {
        let inner = |byte: &u8| class(*byte) & JOINER == 0;
        let word = self.get(start, end);
        let (Some(first), Some(last)) = (word.iter().position(inner), word.iter().rposition(inner))
        else {
            return;
        };
        let (from, to) = (start + first, start + last + 1);
        let lettered = |byte: &u8| class(*byte) & LETTER != 0;
        if !self.get(from, to).iter().any(lettered) {
            self.pieces(from, to, !DIGIT, Self::number);
        } else if to - from >= IDENTIFIER {
            self.add(from, to);
        }
    }

    fn number(&mut self, start: usize, end: usize) {
        if end - start >= NUMBER {
            self.add(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<&str> {
        strings(text).map(|(_, string)| string).collect()
    }

    #[test]
    fn paths_urls_identifiers_and_numbers_are_distinctive() {
        let table: [(&str, &[&str]); 30] = [
            ("", &[]),
            ("a few of the short", &[]),
            ("identifier", &["identifier"]),
            ("say \"distinctive\", twice.", &["distinctive"]),
            ("snake_case_name(x)", &["snake_case_name"]),
            ("self.transcript.items[0]", &["self.transcript.items"]),
            ("--allow-unrelated", &["allow-unrelated"]),
            ("3f2a91c0ab", &["3f2a91c0ab"]),
            ("1234 12345 123456", &["12345", "123456"]),
            ("1.2345678 and 2024-01-15", &["2345678"]),
            ("v12345", &[]),
            ("id:12345", &["12345"]),
            ("src/a.rs", &["src/a.rs"]),
            ("./src/a.rs:12", &["src/a.rs"]),
            ("at src/a.rs:12:7.", &["src/a.rs"]),
            ("../up/there/", &["../up/there"]),
            ("/usr/lib/", &["/usr/lib"]),
            ("/usr", &[]),
            ("/distinctive", &["distinctive"]),
            ("a/b", &[]),
            ("///// -- .../", &[]),
            ("--path=src/lib.rs", &["src/lib.rs"]),
            ("@scope/package", &["@scope/package"]),
            (
                "git@github.com:owner/repo.git",
                &["github.com", "owner/repo.git"],
            ),
            ("https://a.b/c?d=e#f.", &["https://a.b/c?d=e#f"]),
            ("SERVER_URL=http://h:1/", &["SERVER_URL", "http://h:1"]),
            ("(see http://a.b/c)", &["http://a.b/c"]),
            ("no://", &[]),
            ("std::collections::HashMap", &["collections"]),
            ("größenordnung überall", &["enordnung"]),
        ];
        for (text, expect) in table {
            assert_eq!(all(text), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn strings_stand_where_they_are_said_to_and_are_found_again_alone(
            text in "[a-z0-9_./:=~\u{e4} \"-]{0,80}"
        ) {
            let mut end = 0;
            for (at, string) in strings(&text) {
                prop_assert!(at >= end);
                end = at + string.len();
                prop_assert_eq!(&text[at..end], string);
                prop_assert_eq!(all(string), vec![string]);
            }
        }
    }
}
