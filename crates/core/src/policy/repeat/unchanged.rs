//! A line below a new result in which an agent says that what was read is unchanged and stands further up, although
//! the view does not show it any more: the line names what left. Agents that remember what they read do not read it
//! again (hermes, qwen-code, nanobot, Claude Code from 2.1.86 on), so without the line a model asks for it until it
//! gives up. Part of the rung `repeat`. Never hides anything, and never changes what was sent before.

use std::collections::BTreeMap;

use plimsoll_model::{Kept, Mark, ToolClass};
use serde_json::Value;

use super::super::ask::{PolicyAsk, Text};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;
use crate::session::{ids, stub};

/// What agents say, in lower case: their own texts in November 2026. Claude Code 2.1.332 still knows its three, and
/// says none of them any more.
pub const SAID: [&str; 5] = [
    // hermes, nanobot, qwen-code, Claude Code.
    "unchanged since last read",
    // Claude Code, in two other versions.
    "unchanged since your last read",
    "this file is already in your context",
    // hermes, from the third time on, and where the same was really read four times running.
    "blocked: you have called read_file on this exact region",
    "blocked: you have read this exact file region",
];

/// Such a result has at most so many tokens, and says so within so many bytes: another one may quote it.
const MOST: u32 = 400;
const BEGINS: usize = 300;
/// How many earlier calls are looked at for all new results of a request, and of how many the arguments are read.
const LOOKED: usize = 8_192;
const READ: usize = 256;
/// Arguments with more bytes than this name more than what is to be read.
const ARGUMENTS: usize = 4_096;

/// Looks for what results refer to, within a bound for each request.
pub(super) struct Referred<'p, 'a> {
    ask: &'p PolicyAsk<'a>,
    looked: usize,
    read: usize,
}

impl<'p, 'a> Referred<'p, 'a> {
    pub(super) fn new(ask: &'p PolicyAsk<'a>) -> Self {
        Self {
            ask,
            looked: LOOKED,
            read: READ,
        }
    }

    /// What is shown of the result of a new call and of the line below it; `None` if it gets none.
    pub(super) fn kept(&mut self, call: ItemIndex) -> Option<Kept> {
        let item = self.ask.view.transcript().items.get(call)?;
        let text = self.said(item)?;
        let earlier = self.earlier(call, item)?;
        if self.is_shown(earlier) {
            return None;
        }
        let items = &self.ask.view.transcript().items;
        let referred = items.get(earlier)?;
        let tokens = items.get(referred.pair?)?.tokens;
        let line = stub::referred_line(&ids::id(referred), tokens, self.ask.measure.recall);
        Some(Kept {
            refers: Some(line),
            ..Kept::whole(u32::try_from(text.len()).ok()?)
        })
    }

    /// The call that the result of a new call refers to, if the view shows what that brought.
    pub(super) fn shown(&mut self, call: ItemIndex) -> Option<ItemIndex> {
        let item = self.ask.view.transcript().items.get(call)?;
        self.said(item)?;
        self.earlier(call, item)
            .filter(|earlier| self.is_shown(*earlier))
    }

    /// The result of a call, if it says no more than that something is unchanged.
    fn said(&self, call: &Item) -> Option<Text<'a>> {
        let texts = &self.ask.config.unchanged;
        let result = call.pair?;
        let size = self.ask.view.transcript().items.get(result)?.tokens;
        // A shell and a search bring what others have written.
        let quotes = !matches!(call.class, ToolClass::Read | ToolClass::Unknown);
        if size > MOST || texts.is_empty() || quotes {
            return None;
        }
        let text = (self.ask.originals)(result)?;
        let lower = text.get(..text.floor_char_boundary(BEGINS))?.to_lowercase();
        texts
            .iter()
            .any(|said| lower.contains(said))
            .then_some(text)
    }

    /// The newest earlier call that brought what a result refers to: the same call, or else one of the same tool for
    /// the same path.
    fn earlier(&mut self, call: ItemIndex, item: &Item) -> Option<ItemIndex> {
        let transcript = self.ask.view.transcript();
        let before = || {
            let calls = transcript.answered_calls().rev();
            calls.skip_while(|(at, _)| *at >= call)
        };
        for (at, one) in before() {
            self.looked = self.looked.checked_sub(1)?;
            if one.is_same_call(item) && self.said(one).is_none() {
                return Some(at);
            }
        }
        let own = self.paths(call).filter(|own| !own.is_empty())?;
        for (at, one) in before().filter(|(_, one)| one.name == item.name) {
            // All that both calls name has to be the same.
            let paths = self.paths(at)?;
            let both = own
                .iter()
                .filter_map(|(key, path)| Some(paths.get(key)? == path));
            let both: Vec<bool> = both.collect();
            let alike = !both.is_empty() && !both.contains(&false);
            if alike && self.said(one).is_none() {
                return Some(at);
            }
        }
        None
    }

    /// The arguments of a call that look like paths, by their keys; `None` once too many calls were read.
    fn paths(&mut self, call: ItemIndex) -> Option<BTreeMap<String, String>> {
        self.read = self.read.checked_sub(1)?;
        let arguments = (self.ask.originals)(call).filter(|text| text.len() <= ARGUMENTS);
        let read = arguments.and_then(|text| serde_json::from_str(&text).ok());
        let Some(Value::Object(fields)) = read else {
            return Some(BTreeMap::new());
        };
        let texts = fields.into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((key, text)),
            _ => None,
        });
        let is_path =
            |text: &str| text.contains(['/', '\\', '.']) && !text.contains(char::is_whitespace);
        Some(texts.filter(|(_, text)| is_path(text)).collect())
    }

    /// Whether the view shows all of a call's result, in its place or, for a pointer, further up.
    fn is_shown(&self, call: ItemIndex) -> bool {
        let seen = self.ask.view.marked();
        let Some(item) = seen.transcript.items.get(call) else {
            return false;
        };
        match (seen.mark_of(call), seen.marks.kept(item.no)) {
            // What came in as a pointer, or whole with a line below it, lacks nothing.
            (mark @ Mark::Clipped, Some(kept)) if kept.is_entered(mark) => kept.shape.is_none(),
            _ => item
                .pair
                .is_some_and(|result| self.ask.view.is_whole(result)),
        }
    }
}
