//! A line below a new result in which an agent says that what was read is unchanged and stands further up, although
//! the view does not show it any more: the line names what left. Agents that remember what they read do not read it
//! again (hermes, qwen-code, nanobot, Claude Code from 2.1.86 on), so without the line a model asks for it until it gives up. Part of
//! the rung `repeat`. Never hides anything, and never changes what was sent before.

use std::collections::HashSet;

use plimsoll_model::{Kept, Mark};
use serde_json::Value;

use super::super::ask::{PolicyAsk, Text};
use crate::session::index::ItemIndex;
use crate::session::transcript::Item;

/// What agents say, in lower case: their own texts in November 2026. Claude Code 2.1.332 still knows its three, and says
/// none of them any more.
pub const SAID: [&str; 5] = [
    // hermes, nanobot, qwen-code, Claude Code.
    "unchanged since last read",
    // Claude Code, in two other versions.
    "unchanged since your last read",
    "this file is already in your context",
    // hermes, from the third time on, and where the same was really read four times running.
    "read_file on this exact region",
    "read this exact file region",
];

/// Such a result has at most so many tokens.
const MOST: u32 = 400;
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
        let no = self.ask.view.transcript().items.get(earlier)?.no;
        Some(Kept {
            lines: vec![(0, u32::try_from(text.len()).ok()?)],
            refers: Some((no, self.ask.config.recalls)),
            ..Kept::default()
        })
    }

    /// The result of a call, if it says no more than that something is unchanged.
    fn said(&self, call: &Item) -> Option<Text<'a>> {
        let texts = &self.ask.config.unchanged;
        let result = call.pair?;
        let size = self.ask.view.transcript().items.get(result)?.tokens;
        if size > MOST || texts.is_empty() {
            return None;
        }
        let text = (self.ask.originals)(result)?;
        let lower = text.to_lowercase();
        texts
            .iter()
            .any(|said| lower.contains(said))
            .then_some(text)
    }

    /// The newest earlier call that brought what a result refers to: the same call, or else one of the same tool for
    /// the same path.
    fn earlier(&mut self, call: ItemIndex, item: &Item) -> Option<ItemIndex> {
        let calls = self.ask.view.transcript().answered_calls().rev();
        let before = calls.skip_while(|(at, _)| *at >= call).take(self.looked);
        let before: Vec<(ItemIndex, &Item)> = before.collect();
        self.looked -= before.len();
        let same = |one: &&(ItemIndex, &Item)| one.1.is_same_call(item);
        let same = before.iter().filter(same);
        let mut same = same.filter(|(_, one)| self.said(one).is_none());
        if let Some((at, _)) = same.next() {
            return Some(*at);
        }
        let own = self.paths(call)?;
        let of_tool = before.iter().filter(|(_, one)| one.name == item.name);
        for (at, one) in of_tool {
            let paths = self.paths(*at)?;
            if !paths.is_disjoint(&own) && self.said(one).is_none() {
                return Some(*at);
            }
        }
        None
    }

    /// The values among a call's arguments that look like paths; `None` once too many calls were read.
    fn paths(&mut self, call: ItemIndex) -> Option<HashSet<String>> {
        self.read = self.read.checked_sub(1)?;
        let arguments = (self.ask.originals)(call).filter(|text| text.len() <= ARGUMENTS);
        let read = arguments.and_then(|text| serde_json::from_str(&text).ok());
        let Some(Value::Object(fields)) = read else {
            return Some(HashSet::new());
        };
        let texts = fields.into_iter().filter_map(|(_, value)| match value {
            Value::String(text) => Some(text),
            _ => None,
        });
        let is_path = |text: &String| text.contains(['/', '\\', '.']) && !text.contains('\n');
        Some(texts.filter(is_path).collect())
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
