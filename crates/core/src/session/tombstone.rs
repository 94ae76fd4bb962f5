//! The texts that replace what was evicted: lines of what is gone, tombstones and the ledger. Pure
//! functions of the transcript and its marks. Never counts a token itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_model::{ItemKind, ItemNo, MESSAGE_TOKENS, Mark};

use super::graph::{Episode, EpisodeKind};
use super::index::{EpisodeIndex, ItemIndex};
use super::marked::Marked;
use super::measure::Measure;
use super::transcript::{Item, Transcript};

/// Characters of a description that a ledger line keeps.
const LEDGER_CHARS: usize = 80;
/// How the ledger begins.
const LEDGER_HEAD: &str = "ledger of evicted episodes, newest first";

/// The name of an episode in the view. An implicit episode is named by its first item that is not
/// reasoning, because clients drop reasoning.
#[must_use]
pub fn name(transcript: &Transcript, episode: &Episode) -> String {
    if episode.kind != EpisodeKind::Implicit {
        return episode.name.clone();
    }
    let first = episode
        .items
        .iter()
        .filter_map(|index| transcript.items.get(*index))
        .find(|item| item.kind != ItemKind::Reasoning);
    format!("auto-{}", first.map_or(ItemNo(0), |item| item.no))
}

/// What was evicted of an episode, as one line with item ids: `evicted 3 items, 2.1k tokens:
/// read:3,5 grep:7`. `None` if nothing was.
#[must_use]
pub fn evicted(seen: Marked<'_>, episode: &Episode) -> Option<String> {
    let mut by_tool: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let (mut count, mut tokens) = (0_u32, 0_u32);
    let carrier = seen.carrier(episode);
    // A call that is shown in part has a note of its own.
    let gone = |index: &ItemIndex, item: &Item| match seen.marks.get(item.no) {
        Mark::Live | Mark::Clipped | Mark::Masked => false,
        Mark::Tombstone | Mark::Trimmed => carrier == Some(*index),
        // Thoughts are no work that was evicted, and a line that told of them would change with each that goes.
        Mark::Removed => item.kind != ItemKind::Reasoning,
    };
    let all = episode
        .items
        .iter()
        .filter_map(|index| Some((index, seen.transcript.items.get(*index)?)));
    // A call counts with its result, which has the same number.
    for (_, item) in all.filter(|(index, item)| item.delimiter.is_none() && gone(index, item)) {
        count += 1;
        tokens += item.tokens;
        if item.kind == ItemKind::Call {
            by_tool.entry(&item.name).or_default().push(item.no.0);
            let result = item.pair.and_then(|pair| seen.transcript.items.get(pair));
            tokens += result.map_or(0, |result| result.tokens + MESSAGE_TOKENS);
        }
    }
    // Before the first strip there is nothing to tell.
    (count > 0).then(|| evicted_line(count, tokens, &by_tool))
}

/// How many items were evicted, their tokens, and their numbers by tool, as one line.
#[must_use]
pub fn evicted_line(count: u32, tokens: u32, by_tool: &BTreeMap<&str, Vec<u32>>) -> String {
    let mut line = format!("evicted {count} items, {} tokens", thousands(tokens));
    for (place, (tool, numbers)) in by_tool.iter().enumerate() {
        let _ = write!(
            line,
            "{} {tool}:{}",
            if place == 0 { ":" } else { "" },
            ranges(numbers)
        );
    }
    line
}

/// A token count as people read it: `820`, `8.2k`.
#[must_use]
pub fn thousands(tokens: u32) -> String {
    if tokens < 1000 {
        tokens.to_string()
    } else {
        format!("{}.{}k", tokens / 1000, tokens % 1000 / 100)
    }
}

/// Ascending numbers with runs of three and more joined: `3,5,7-10`.
fn ranges(numbers: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = numbers;
    while let Some((first, _)) = rest.split_first() {
        let run = rest
            .iter()
            .zip(*first..)
            .take_while(|(number, next)| *number == next)
            .count();
        let (taken, left) = rest.split_at(run);
        let comma = if out.is_empty() { "" } else { "," };
        let last = taken.last().unwrap_or(first);
        let _ = match run {
            1 => write!(out, "{comma}{first}"),
            2 => write!(out, "{comma}{first},{last}"),
            _ => write!(out, "{comma}{first}-{last}"),
        };
        rest = left;
    }
    out
}

/// The result of an episode's `end` or start call once a part of the episode is evicted. `state` is
/// `closed` or `opened`.
#[must_use]
pub fn stripped(seen: Marked<'_>, episode: &Episode, state: &str) -> Option<String> {
    let line = evicted(seen, episode)?;
    let kind = match episode.kind {
        EpisodeKind::Expl => "expl",
        EpisodeKind::Act => "act",
        EpisodeKind::Implicit => {
            return Some(format!("{}: {line}", name(seen.transcript, episode)));
        }
    };
    Some(format!("{state} {kind} \"{}\" · {line}", episode.name))
}

/// What replaces an evicted expl episode: its name, the agent's description, and what was evicted.
#[must_use]
pub fn tombstone(seen: Marked<'_>, episode: &Episode) -> String {
    let line = evicted(seen, episode);
    let line = line.as_deref().unwrap_or("nothing else was said in it");
    match episode.kind {
        EpisodeKind::Implicit => format!("{}: {line}", name(seen.transcript, episode)),
        EpisodeKind::Expl | EpisodeKind::Act => {
            told(&episode.name, description(seen, episode), line)
        }
    }
}

/// The tombstone of an episode by its parts: its name, what its description says, and the line that tells what was
/// evicted.
#[must_use]
pub fn told(name: &str, description: Option<&str>, line: &str) -> String {
    match description {
        Some(description) => format!("expl \"{name}\": {description}\n{line}"),
        None => format!("expl \"{name}\"\n{line}"),
    }
}

/// The description, unless the `end` call is in view, which says it.
fn description<'a>(seen: Marked<'_>, episode: &'a Episode) -> Option<&'a str> {
    let end = episode.end.and_then(|end| seen.transcript.items.get(end));
    let told = end.is_some_and(|end| seen.marks.get(end.no) != Mark::Removed);
    episode.description.as_deref().filter(|_| !told)
}

/// What replaces the result of a call that carried a tombstone once but no longer does.
#[must_use]
pub fn stray(call: &Item) -> String {
    format!("evicted {}:{}", call.name, call.no)
}

/// The ledger: a line for each episode that left nothing else, newest first, in at most a twentieth
/// of the ceiling. The lines that don't fit are counted. `gone` is oldest first.
#[must_use]
pub fn ledger(seen: Marked<'_>, gone: &[EpisodeIndex], measure: Measure<'_>) -> String {
    fitted(&ledger_lines(seen, gone), measure).0
}

/// The lines that did not fit into the ledger, newest first.
#[must_use]
pub fn ledger_rest(seen: Marked<'_>, gone: &[EpisodeIndex], measure: Measure<'_>) -> Vec<String> {
    let mut lines = ledger_lines(seen, gone);
    let shown = fitted(&lines, measure).1;
    lines.split_off(shown)
}

fn ledger_lines(seen: Marked<'_>, gone: &[EpisodeIndex]) -> Vec<String> {
    let lines = gone.iter().rev().filter_map(|index| {
        let episode = seen.transcript.graph.episodes.get(*index)?;
        Some(ledger_line(seen, episode))
    });
    lines.collect()
}

fn ledger_line(seen: Marked<'_>, episode: &Episode) -> String {
    let name = name(seen.transcript, episode);
    match (episode.kind, description(seen, episode)) {
        (EpisodeKind::Act, _) => format!("- {name} (act)"),
        (EpisodeKind::Expl | EpisodeKind::Implicit, Some(text)) => {
            let short: String = text.chars().take(LEDGER_CHARS).collect();
            format!("- {name}: {}", short.replace('\n', " "))
        }
        (EpisodeKind::Expl | EpisodeKind::Implicit, None) => format!("- {name}"),
    }
}

/// The lines that fit, with a count of the rest, and how many fit. Room for the count is reserved
/// first.
fn fitted(lines: &[String], measure: Measure<'_>) -> (String, usize) {
    let (count, limit) = (measure.count, measure.ceiling / 20);
    let mut text = String::from(LEDGER_HEAD);
    let mut used = count(LEDGER_HEAD) + count(&rest(lines.len(), measure.recall));
    for (place, line) in lines.iter().enumerate() {
        used += count(line) + 1;
        if used > limit {
            text.push_str(&rest(lines.len() - place, measure.recall));
            return (text, place);
        }
        let _ = write!(text, "\n{line}");
    }
    (text, lines.len())
}

fn rest(count: usize, recall: Option<&str>) -> String {
    match recall {
        Some(recall) => format!("\n{count} earlier, {recall}(\"ledger:1\")"),
        None => format!("\n{count} earlier"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::note::{Left, Note};

    #[test]
    fn runs_are_joined() {
        for (numbers, expect) in [
            (vec![3], "3"),
            (vec![3, 4], "3,4"),
            (vec![3, 4, 5, 9], "3-5,9"),
            (vec![], ""),
        ] {
            assert_eq!(ranges(&numbers), expect);
        }
    }

    #[test]
    fn counts_read_like_counts() {
        assert_eq!(
            [thousands(999), thousands(1000), thousands(81_950)],
            ["999", "1.0k", "81.9k"]
        );
    }

    #[test]
    fn the_ledger_keeps_its_limit_and_says_how_many_did_not_fit() {
        let lines: Vec<String> = (0..9).map(|n| format!("- e{n}")).collect();
        let count = |text: &str| u32::try_from(text.len()).unwrap();
        let run = |limit: u32, recall| {
            let ceiling = limit * 20;
            let (text, shown) = fitted(
                &lines,
                Measure {
                    count: &count,
                    note: &|text| Note::new(text, 0),
                    ceiling,
                    left: &|_, _, _| Left::default(),
                    recall,
                },
            );
            let listed = text.lines().filter(|line| line.starts_with("- ")).count();
            assert_eq!(listed, shown, "{text}");
            (text, shown)
        };
        for (recall, more) in [(None, ""), (Some("r"), ", r(\"ledger:1\")")] {
            for limit in 70..120 {
                let (text, shown) = run(limit, recall);
                assert!(count(&text) <= limit, "{limit}: {text}");
                let left = format!("\n{} earlier{more}", 9 - shown);
                assert_eq!(text.ends_with(&left), shown < 9, "{text}");
            }
            assert_eq!(run(1000, recall).1, 9);
        }
    }
}
