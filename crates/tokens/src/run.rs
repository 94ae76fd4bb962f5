//! Counts a single piece by BPE, in limited time even for long runs of one byte.
//!
//! Owns the choice between two ways of encoding, and the joining of what they encode. Never cuts a
//! text into pieces and never remembers them.
//!
//! Going from left to right (see `backtrack`) tries at each place the tokens that begin there, from
//! the longest down. A vocabulary may have a token for nearly every length of a run, as it has for
//! spaces, tabs, dashes and a few more. That takes up to sixty times the time of ordinary text. So
//! stretches with long runs are encoded group by group (see `grouped`), and the rest from left to
//! right.
//!
//! Why the encodings of two stretches can be joined: a sequence of tokens is the encoding of its
//! text exactly if every two neighbours are the encoding of their joined text, which is the theorem
//! behind the `bpe` crate. So it is enough to encode a window around the seam again. If the new
//! encoding begins with the same token as the left one did there, and ends with the same as the
//! right one, all neighbours are sound. If not, the window grows on that side.

use super::backtrack;
use super::grouped;
use super::merge::Merges;

/// A shorter run takes less time to encode than to set apart.
const RUN_MIN: usize = 12;
/// A gap between two long runs that is encoded together with them, because two seams would cost
/// more.
const GAP_MAX: usize = 64;
/// A stretch ends at the first long run after this many groups, because longer ones outgrow the
/// caches.
const GROUPS_MAX: usize = 256;

/// The number of tokens of one piece.
pub(super) fn count(merges: &Merges, piece: &[u8]) -> u32 {
    let tokens = if has_long_run(piece) {
        joined(merges, piece).len()
    } else {
        backtrack::encode(merges, piece).len()
    };
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn has_long_run(piece: &[u8]) -> bool {
    piece.len() >= RUN_MIN && runs(piece).any(|run| run.len() >= RUN_MIN)
}

fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.chunk_by(|left, right| left == right)
}

/// The tokens of a piece, encoded stretch by stretch.
fn joined(merges: &Merges, piece: &[u8]) -> Vec<u32> {
    let mut tokens = Vec::new();
    for stretch in stretches(piece) {
        let right = match stretch {
            Stretch::Runs(text) => by_groups(merges, text),
            Stretch::Rest(text) => backtrack::encode(merges, text),
        };
        join(merges, &mut tokens, &right);
    }
    tokens
}

/// A part of a piece. It is never empty.
#[derive(Debug, PartialEq, Eq)]
enum Stretch<'a> {
    /// It begins and ends with a long run.
    Runs(&'a [u8]),
    /// It has no long run.
    Rest(&'a [u8]),
}

/// Cuts a piece at the ends of long runs.
fn stretches<'a>(piece: &'a [u8]) -> Vec<Stretch<'a>> {
    let mut found = Vec::new();
    let mut cut = |span: std::ops::Range<usize>, make: fn(&'a [u8]) -> Stretch<'a>| {
        let text = piece.get(span).unwrap_or_default();
        found.extend((!text.is_empty()).then(|| make(text)));
    };
    // Up to where the piece is cut, up to where the stretch of runs after that goes, and how many
    // groups it has.
    let (mut done, mut end, mut groups) = (0, 0, 0);
    let mut at = 0;
    for run in runs(piece) {
        groups += 1;
        if run.len() >= RUN_MIN {
            if at - end > GAP_MAX || groups > GROUPS_MAX || end == done {
                cut(done..end, Stretch::Runs);
                cut(end..at, Stretch::Rest);
                (done, groups) = (at, 1);
            }
            end = at + run.len();
        }
        at += run.len();
    }
    cut(done..end, Stretch::Runs);
    cut(end..piece.len(), Stretch::Rest);
    found
}

fn by_groups(merges: &Merges, text: &[u8]) -> Vec<u32> {
    let groups = grouped::encode(merges, text);
    let tokens = groups.into_iter();
    tokens
        .flat_map(|(token, count)| std::iter::repeat_n(token, count as usize))
        .collect()
}

/// Appends an encoding to another, so that the result is the encoding of the joined text.
fn join(merges: &Merges, left: &mut Vec<u32>, right: &[u32]) {
    let (mut before, mut behind) = (1, 1);
    loop {
        let from = left.len().saturating_sub(before);
        let upto = right.len().min(behind);
        let window = || left.iter().skip(from).chain(right.iter().take(upto));
        let text: Vec<u8> = window()
            .flat_map(|token| merges.text(*token))
            .copied()
            .collect();
        let anew = by_groups(merges, &text);
        // A side holds if the window reaches its end, or meets the same token there.
        let left_holds = from == 0 || anew.first() == left.get(from);
        let right_holds = upto == right.len() || anew.last() == right.get(upto - 1);
        if left_holds && right_holds {
            left.truncate(from);
            left.extend(anew);
            left.extend(right.iter().skip(upto));
            return;
        }
        before *= if left_holds { 1 } else { 4 };
        behind *= if right_holds { 1 } else { 4 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_cut_at_long_runs() {
        let run = "-".repeat(RUN_MIN);
        let gap = "=>".repeat(GAP_MAX / 2);
        let wide = format!("{gap}+");
        let cases: [(String, &[&str]); 5] = [
            (String::new(), &[]),
            (format!("{wide}{run}"), &[&wide, &run]),
            (
                format!("{run}{gap}{run}>"),
                &[&format!("{run}{gap}{run}"), ">"],
            ),
            (format!("{run}{wide}{run}"), &[&run, &wide, &run]),
            (format!("{run}="), &[&run, "="]),
        ];
        for (piece, want) in cases {
            let found: Vec<&[u8]> = stretches(piece.as_bytes())
                .into_iter()
                .map(|stretch| match stretch {
                    Stretch::Runs(text) | Stretch::Rest(text) => text,
                })
                .collect();
            let want: Vec<&[u8]> = want.iter().map(|text| text.as_bytes()).collect();
            assert_eq!(found, want, "{piece}");
        }
        let long = format!("{run}=").repeat(GROUPS_MAX);
        let found = stretches(long.as_bytes());
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
