//! The `recall` protocol: reads one call, and takes the part of a document that was asked for and
//! fits. Pure. Never finds the document, and never changes a byte of a line that it takes whole.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Value};

/// Lines that are shown around a match.
const AROUND: usize = 2;
/// The most characters of a line that a search shows; of a longer line, the part around the match.
const LINE_CHARS: usize = 400;
/// Tokens of the line that replaces lines that are left out.
const MARKER: u32 = 24;

/// The id of a search without an id.
pub const EVERYTHING: &str = "all that is evicted";

/// What a call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallAsk {
    /// The item, episode, page of the ledger or path; [`EVERYTHING`] if only a search is given.
    pub id: String,
    /// The first and the last line, from 1. The last is `usize::MAX` if the range has no end.
    pub lines: Option<(usize, usize)>,
    /// The text that lines must contain.
    pub search: Option<String>,
}

/// The part of a document that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text.
    pub text: String,
    /// A description of the part, with how to get the rest.
    pub said: String,
    /// Whether it is the whole document.
    pub whole: bool,
    /// Whether it is less than was asked for, because no more fits.
    pub cut: bool,
}

/// Why no part was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoExcerpt {
    /// The document has no such line. The text says what to do instead.
    Nothing(String),
    /// Not even a part fits.
    NoRoom,
}

impl RecallAsk {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// A text for the model that says what to send instead.
    pub fn read(arguments: &str) -> Result<Self, String> {
        let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
            return Err("send the arguments as a JSON object with an id".to_owned());
        };
        let search = text(&fields, "search")?;
        let id = match (text(&fields, "id")?, search) {
            (Some(id), _) => id,
            (None, Some(_)) => EVERYTHING,
            (None, None) => {
                return Err(
                    "give the id that a line names for what is gone, a path, or a search"
                        .to_owned(),
                );
            }
        };
        let lines = text(&fields, "lines")?;
        Ok(Self {
            id: id.to_owned(),
            lines: lines.map(range).transpose()?,
            search: search.map(str::to_owned),
        })
    }
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if key == "search" => Ok(Some(text)
            .filter(|text| !text.is_empty())
            .map(String::as_str)),
        Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("send {key} as text")),
    }
}

/// `10-40`, `10-` or `10`.
fn range(text: &str) -> Result<(usize, usize), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let last = if last.trim().is_empty() {
        Some(usize::MAX)
    } else {
        number(last)
    };
    match (number(first), last) {
        (Some(first), Some(last)) if first > 0 && first <= last => Ok((first, last)),
        _ => Err("give lines as a range such as \"10-40\"".to_owned()),
    }
}

/// Takes what is asked for out of a document, in at most `limit` tokens: all of it, a range of
/// lines, or the lines that match. If that doesn't fit, takes the best part: the first lines of a
/// range, the first matches of a search, else the head and the tail.
///
/// # Errors
/// [`NoExcerpt`] where there is nothing to give.
pub fn take(
    document: &str,
    ask: &RecallAsk,
    limit: u32,
    count: &dyn Fn(&str) -> u32,
) -> Result<Excerpt, NoExcerpt> {
    let lines: Vec<&str> = document.split_inclusive('\n').collect();
    let taker = Taker {
        document,
        lines,
        limit,
        count,
    };
    let total = taker.lines.len();
    let (first, last) = ask.lines.unwrap_or((1, usize::MAX));
    if first > total.max(1) {
        return Err(NoExcerpt::Nothing(format!("{} has {total} lines", ask.id)));
    }
    let range = first - 1..last.min(total);
    match (&ask.search, ask.lines) {
        (Some(search), _) => taker.matches(range, search, &ask.id),
        (None, Some(_)) if range != (0..total) => taker.range(range),
        (None, _) if taker.is_small() => Ok(taker.whole()),
        (None, Some(_)) => taker.range(range),
        (None, None) => taker.ends(),
    }
}

struct Taker<'a> {
    document: &'a str,
    lines: Vec<&'a str>,
    limit: u32,
    count: &'a dyn Fn(&str) -> u32,
}

impl Taker<'_> {
    fn total(&self) -> usize {
        self.lines.len()
    }

    /// The text of a run of lines.
    fn text(&self, range: Range<usize>) -> String {
        self.lines.get(range).unwrap_or_default().concat()
    }

    /// Whether the whole document fits. A few lines suffice to see that a document is far too long.
    fn is_small(&self) -> bool {
        let (mut used, enough) = (0, self.limit.saturating_add(self.limit / 4));
        let short = self.lines.iter().all(|line| {
            used += (self.count)(line);
            used <= enough
        });
        short && (self.count)(self.document) <= self.limit
    }

    fn whole(&self) -> Excerpt {
        Excerpt {
            text: self.document.to_owned(),
            said: plural(self.total()),
            whole: true,
            cut: false,
        }
    }

    /// Head and tail, two to one.
    fn ends(&self) -> Result<Excerpt, NoExcerpt> {
        let total = self.total();
        let limit = self.limit.saturating_sub(MARKER);
        let head = self.fits(0..total, limit / 3 * 2, false);
        if head == 0 {
            return self.beginning(0);
        }
        // Lines that fit one by one may not fit together, so at least one line is left out.
        let tail = self.fits(head..total, limit / 3, true);
        let tail = tail.min((total - head).saturating_sub(1));
        let (from, to) = (head + 1, total - tail);
        let left_out = span(from..to + 1);
        let mut text = self.text(0..head);
        let mut said = format!("lines {}", span(1..head + 1));
        text.push_str(&format!("[... {left_out} left out ...]\n"));
        if tail > 0 {
            text.push_str(&self.text(to..total));
            said.push_str(&format!(" and {}", span(to + 1..total + 1)));
        }
        said.push_str(&format!(
            " of {total}; no more fits: ask for lines \"{left_out}\", or search"
        ));
        Ok(Excerpt {
            text,
            said,
            whole: false,
            cut: true,
        })
    }

    fn range(&self, range: Range<usize>) -> Result<Excerpt, NoExcerpt> {
        let taken = self.fits(range.clone(), self.limit, false);
        if taken == 0 {
            return self.beginning(range.start);
        }
        let end = range.start + taken;
        let mut said = format!(
            "lines {} of {}",
            span(range.start + 1..end + 1),
            self.total()
        );
        if end < range.end {
            let rest = span(end + 1..range.end + 1);
            said.push_str(&format!("; no more fits: ask for lines \"{rest}\""));
        }
        Ok(Excerpt {
            text: self.text(range.start..end),
            said,
            whole: false,
            cut: end < range.end,
        })
    }

    /// The part of one line that fits, if the whole line doesn't.
    fn beginning(&self, line: usize) -> Result<Excerpt, NoExcerpt> {
        let whole = self.lines.get(line).copied().unwrap_or_default();
        let mut end = whole.len().min(self.limit as usize * 16);
        loop {
            end = whole.floor_char_boundary(end);
            let text = whole.get(..end).unwrap_or_default();
            let size = (self.count)(text);
            if size <= self.limit {
                break;
            }
            // Tokens are spread evenly enough over a line to compute the cut directly.
            let aim = end as u64 * u64::from(self.limit) / u64::from(size.max(1));
            end = usize::try_from(aim).unwrap_or(0).min(end - 1);
        }
        if end < 40.min(whole.len()) {
            return Err(NoExcerpt::NoRoom);
        }
        let total = self.total();
        let number = line + 1;
        Ok(Excerpt {
            text: whole.get(..end).unwrap_or_default().to_owned(),
            said: format!(
                "the first {end} of {} bytes of line {number} of {total}; no more fits: search for what you need of it",
                whole.len()
            ),
            whole: false,
            cut: true,
        })
    }

    /// How many lines of a range fit, counted from its front or its back.
    fn fits(&self, range: Range<usize>, limit: u32, back: bool) -> usize {
        let lines = self.lines.get(range.clone()).unwrap_or_default();
        let (mut used, mut taken) = (0_u32, 0);
        let mut add = |line: &&str| {
            used += (self.count)(line);
            let fits = used <= limit;
            taken += usize::from(fits);
            fits
        };
        if back {
            let _ = lines.iter().rev().all(&mut add);
        } else {
            let _ = lines.iter().all(&mut add);
        }
        // Several lines may have another count together than one by one.
        loop {
            let run = if back {
                range.end - taken..range.end
            } else {
                range.start..range.start + taken
            };
            if taken == 0 || (self.count)(&self.text(run)) <= limit {
                return taken;
            }
            taken -= 1;
        }
    }

    fn matches(&self, range: Range<usize>, search: &str, id: &str) -> Result<Excerpt, NoExcerpt> {
        let total = self.total();
        let found = self.found(range.clone(), search);
        let (Some(first), count) = (found.first().copied(), found.len()) else {
            let within = span(range.start + 1..range.end + 1);
            return Err(NoExcerpt::Nothing(format!(
                "no line of {id} has {search:?}: it has {total} lines, {within} were searched"
            )));
        };
        let mut around = AROUND;
        let mut given = self.fitting(&found, &range, search, around);
        if given == 0 {
            around = 0;
            given = self.fitting(&found, &range, search, around);
        }
        let shown = found.get(..given).unwrap_or_default();
        if shown.is_empty() {
            return Err(NoExcerpt::NoRoom);
        }
        let mut said = format!("{given} of {count} lines with {search:?}, of {total}");
        if given < count {
            let next = found.get(given).copied().unwrap_or(first) + 1;
            said.push_str(&format!("; no more fits: search on in lines \"{next}-\""));
        }
        Ok(Excerpt {
            text: self.shown(shown, &range, search, around),
            said,
            whole: false,
            cut: given < count,
        })
    }

    /// The lines that contain a text. If there are none, case is ignored.
    fn found(&self, range: Range<usize>, search: &str) -> Vec<usize> {
        let lines = || {
            range
                .clone()
                .filter_map(|at| Some((at, *self.lines.get(at)?)))
        };
        let exact: Vec<usize> = lines()
            .filter(|(_, line)| line.contains(search))
            .map(|(at, _)| at)
            .collect();
        if !exact.is_empty() {
            return exact;
        }
        let lower = search.to_lowercase();
        lines()
            .filter(|(_, line)| line.to_lowercase().contains(&lower))
            .map(|(at, _)| at)
            .collect()
    }

    /// How many of the matches fit with the lines around them.
    fn fitting(&self, found: &[usize], range: &Range<usize>, search: &str, around: usize) -> usize {
        // A line with its number has at least two tokens.
        let (mut low, mut high) = (0, found.len().min(self.limit as usize / 2));
        while low < high {
            let middle = (low + high).div_ceil(2);
            let text = self.shown(
                found.get(..middle).unwrap_or_default(),
                range,
                search,
                around,
            );
            if (self.count)(&text) <= self.limit {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// Matches as `12: text`, the lines around them as `11- text`, and `--` where lines are left
    /// out.
    fn shown(&self, found: &[usize], range: &Range<usize>, search: &str, around: usize) -> String {
        let mut out = String::new();
        let mut next = range.start;
        for (place, at) in found.iter().enumerate() {
            let from = at.saturating_sub(around).max(next);
            if from > next && !out.is_empty() {
                out.push_str("--\n");
            }
            // Lines between two matches are written once, before the second match.
            let following = found.get(place + 1).copied().unwrap_or(range.end);
            next = (at + around + 1).min(following);
            for line in from..next {
                let mark = if line == *at { ':' } else { '-' };
                let text = self.lines.get(line).copied().unwrap_or_default();
                let text = window(text.trim_end_matches(['\n', '\r']), search);
                let _ = writeln!(out, "{}{mark} {text}", line + 1);
            }
        }
        out
    }
}

/// A line, or the part of a long line around the searched text.
fn window<'a>(line: &'a str, search: &str) -> Cow<'a, str> {
    if line.len() <= LINE_CHARS {
        return line.into();
    }
    let lower = || line.to_lowercase().find(&search.to_lowercase());
    let at = line.find(search).or_else(lower).unwrap_or(0);
    let from = line.floor_char_boundary(at.saturating_sub(LINE_CHARS / 2));
    let to = line.floor_char_boundary((from + LINE_CHARS).max(at + search.len()).min(line.len()));
    let (before, after) = (
        if from > 0 { "..." } else { "" },
        if to < line.len() { "..." } else { "" },
    );
    format!("{before}{}{after}", line.get(from..to).unwrap_or_default()).into()
}

/// Line numbers: `7` or `7-9`.
fn span(lines: Range<usize>) -> String {
    let last = lines.end.saturating_sub(1);
    if last <= lines.start {
        lines.start.to_string()
    } else {
        format!("{}-{last}", lines.start)
    }
}

fn plural(lines: usize) -> String {
    match lines {
        0 => "nothing was in it".to_owned(),
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    }
}

#[cfg(test)]
mod tests;
