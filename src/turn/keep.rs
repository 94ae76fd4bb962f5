//! The rung `keep`: which results the policies behind it take last because the operator says so: those of some tools, of instruction
//! files, failures, texts, the newest few (paper 001, tier 2 and "Selective Tool Output
//! Preservation"; paper 004 §5.1). Decides nothing else; a budget that can't be met otherwise is
//! still met.

use std::collections::HashSet;

use super::originals::Originals;
use crate::model::{Globs, ItemKind, Mark};
use crate::policy::Held;
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;
use crate::session::view::View;

/// What is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepSettings {
    /// Tools whose results are kept.
    pub tools: Globs,
    /// Names of files: what a call brought in whose arguments name one.
    pub files: Vec<String>,
    /// Which failures are kept.
    pub errors: KeepErrors,
    /// Texts: what holds one of them is kept.
    pub texts: Vec<String>,
    /// How many of the newest results are kept.
    pub newest: usize,
    /// The largest share of the ceiling, in 0..=0.5, that all of it may take.
    pub share: f64,
}

impl Default for KeepSettings {
    fn default() -> Self {
        Self {
            tools: Globs::default(),
            files: Vec::new(),
            errors: KeepErrors::Last,
            texts: Vec::new(),
            newest: 0,
            share: 0.1,
        }
    }
}

impl KeepSettings {
    /// Whether nothing is kept, so that nothing has to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.files.is_empty()
            && self.errors == KeepErrors::Off
            && self.texts.is_empty()
            && self.newest == 0
    }
}

/// Which failures are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepErrors {
    /// None.
    Off,
    /// The newest of each tool, unless the same call has succeeded since.
    #[default]
    Last,
    /// All, unless the same call has succeeded since.
    All,
}

impl KeepErrors {
    /// The words for each.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("last", Self::Last), ("all", Self::All)];
}

/// What is kept of a view, and how many results had to be let go because they were too much.
pub(super) fn held(
    settings: &KeepSettings,
    ceiling: u32,
    view: &View,
    originals: Originals<'_>,
) -> (Held, u32) {
    if settings.is_empty() {
        return (Held::default(), 0);
    }
    let calls: Vec<(ItemIndex, &Item)> = shown(view).collect();
    let failed = failed(settings.errors, &calls, originals);
    let first_newest = calls.len().saturating_sub(settings.newest);
    let mut room = share(settings.share, ceiling);
    let (mut held, mut loosened) = (HashSet::new(), 0);
    // The newest first: what does not fit is let go, oldest first.
    for (place, (at, call)) in calls.iter().enumerate().rev() {
        let kept = place >= first_newest
            || failed.contains(at)
            || settings.tools.match_name(&call.name)
            || names_file(settings, *at, originals)
            || holds_text(settings, call, originals);
        if !kept {
            continue;
        }
        let result = call.pair.and_then(|at| view.transcript().items.get(at));
        let size = call.tokens + result.map_or(0, |result| result.tokens);
        if size > room {
            loosened += 1;
            continue;
        }
        room -= size;
        held.insert(*at);
    }
    (Held::new(held), loosened)
}

/// The client's calls whose results are still shown whole, oldest first.
fn shown(view: &View) -> impl Iterator<Item = (ItemIndex, &Item)> {
    let seen = view.marked();
    let calls = view.transcript().items.indexed();
    calls.filter(move |(at, item)| {
        let own = item.kind == ItemKind::Call && !item.hidden && item.delimiter.is_none();
        own && item.pair.is_some() && seen.mark_of(*at) <= Mark::Clipped
    })
}

/// The calls that failed and have not succeeded since.
fn failed(
    which: KeepErrors,
    calls: &[(ItemIndex, &Item)],
    originals: Originals<'_>,
) -> HashSet<ItemIndex> {
    let mut out = HashSet::new();
    if which == KeepErrors::Off {
        return out;
    }
    // Walked from the newest on: what a call came to later decides.
    let (mut worked, mut seen) = (HashSet::new(), HashSet::new());
    for (at, call) in calls.iter().rev() {
        let text = call.pair.and_then(|result| originals.text(result));
        let failure = text.is_some_and(|text| is_failure(&text));
        if !failure {
            worked.insert(call.digest);
        } else if !worked.contains(&call.digest)
            && (which == KeepErrors::All || seen.insert(call.name.clone()))
        {
            out.insert(*at);
        }
    }
    out
}

/// Lines at either end of a result that are read for how a command ended.
const ENDS: usize = 12;

/// Whether a result says that its call failed.
fn is_failure(text: &str) -> bool {
    let head = text.lines().take(ENDS);
    let tail = text.lines().rev().take(ENDS);
    head.chain(tail).any(says_failure)
}

fn says_failure(line: &str) -> bool {
    let line = line.trim().to_ascii_lowercase();
    let begins = [
        "traceback (most recent call last)",
        "error:",
        "fatal:",
        "panicked at",
        "command failed",
        "<tool_use_error>",
        "<error>",
    ];
    begins.iter().any(|begin| line.starts_with(begin))
        || exit_code(&line).is_some_and(|code| code != 0)
}

/// The exit code that a line tells.
fn exit_code(line: &str) -> Option<i32> {
    let told = [
        "exit code",
        "exit status",
        "exited with",
        "returncode",
        "return code",
        "exit_code",
    ];
    let at = told
        .iter()
        .find_map(|word| line.find(word).map(|at| at + word.len()))?;
    let rest = line.get(at..)?;
    let number = rest.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '-');
    // A number far from the word is about something else.
    if rest.len() - number.len() > 12 {
        return None;
    }
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '-');
    number.get(..end.unwrap_or(number.len()))?.parse().ok()
}

fn names_file(settings: &KeepSettings, call: ItemIndex, originals: Originals<'_>) -> bool {
    if settings.files.is_empty() {
        return false;
    }
    let arguments = originals.text(call);
    let arguments = arguments.as_deref().map_or("", |text| text);
    settings.files.iter().any(|name| is_named(arguments, name))
}

/// Whether some arguments name a file: nothing that could be part of its name stands beside it.
fn is_named(arguments: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.';
    arguments.match_indices(name).any(|(at, _)| {
        let before = arguments
            .get(..at)
            .and_then(|text| text.chars().next_back());
        let behind = arguments.get(at + name.len()..);
        let behind = behind.and_then(|text| text.chars().next());
        !before.is_some_and(part) && !behind.is_some_and(part)
    })
}

fn holds_text(settings: &KeepSettings, call: &Item, originals: Originals<'_>) -> bool {
    if settings.texts.is_empty() {
        return false;
    }
    let text = call.pair.and_then(|result| originals.text(result));
    text.is_some_and(|text| {
        settings
            .texts
            .iter()
            .any(|wanted| text.contains(wanted.as_str()))
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of at most a half of a u32"
)]
fn share(share: f64, ceiling: u32) -> u32 {
    (share * f64::from(ceiling)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_by_what_stands_at_the_ends() {
        for text in [
            "Exit code 1\nsrc/a.rs",
            "<returncode>2</returncode>\n<output>",
            "...\nTraceback (most recent call last):\n  File \"a.py\"",
            "building\nerror: could not compile `a`",
            "Process exited with code -9",
            "<tool_use_error>File has not been read</tool_use_error>",
        ] {
            assert!(is_failure(text), "{text}");
        }
        let deep = format!("{}error: x\n{}", "fine\n".repeat(30), "fine\n".repeat(30));
        for text in [
            "Exit code 0\nok",
            "<returncode>0</returncode>",
            "exit code\nis what 12 lines below is about",
            "fn error() {}",
            "",
            &deep,
        ] {
            assert!(!is_failure(text), "{text}");
        }
    }

    #[test]
    fn a_file_is_named_by_its_whole_name() {
        for arguments in [
            r#"{"path":"AGENTS.md"}"#,
            r#"{"path":"/a/b/AGENTS.md"}"#,
            "cat ./AGENTS.md",
        ] {
            assert!(is_named(arguments, "AGENTS.md"), "{arguments}");
        }
        for arguments in [r#"{"path":"MY_AGENTS.md"}"#, "AGENTS.md.bak", ""] {
            assert!(!is_named(arguments, "AGENTS.md"), "{arguments}");
        }
    }
}
