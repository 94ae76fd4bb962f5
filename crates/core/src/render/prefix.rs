//! What stands before each thought of a view, as it is sent: the tools, the system text and the messages, as
//! one digest for each place. Some providers take a thought back only behind exactly what its model had before
//! it ([`BoundTo`]). Pure. Never decides what becomes of a thought that lost its place.

use std::borrow::Cow;

use plimsoll_model::{BoundTo, Digest, ItemKind};

use super::{RenderInput, entry_bytes};
use crate::session::index::ItemIndex;
use crate::session::transcript::{Source, TranscriptEntry};
use crate::session::view::Shown;

/// The thoughts of a view that lost their place, and what the next thought will be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bonds {
    /// Reasoning that is shown behind something other than its model had before it, oldest first.
    pub broken: Vec<ItemIndex>,
    /// What the answer to the view is bound to.
    pub answer: BoundTo,
}

/// What stands in front of the messages.
pub struct Front {
    /// The digest of the tools as they are sent.
    pub tools: Digest,
    /// The canonical digest of a system text of the proxy's own that stands before all messages.
    pub system: Option<Digest>,
    /// Whether any of the tools or of the system text is the proxy's.
    pub ours: bool,
}

/// Compares what stands before each thought of a view with what its model had before it.
///
/// The comparison is by value, as the providers do it: `canonical` gives the canonical digest of a message,
/// which leaves out thoughts, cache markers and the form of the JSON. Of a thought that no record knows, the
/// client alone was served, so it is in its place while nothing before it differs from the client's request.
///
/// The thoughts themselves don't count as part of what stands before one, but each is bound to the thought
/// before it: of those that were made one after the other, the first and the last may be missing, and none
/// between (`platform.claude.com/docs/en/build-with-claude/preserved-thinking`).
///
/// Returns `None` if a message can't be read.
pub fn bonds(
    input: &RenderInput<'_>,
    front: &Front,
    canonical: &dyn Fn(&[u8]) -> Option<Digest>,
) -> Option<Bonds> {
    let mut walk = Walk::new(front);
    for entry in input.view.transcript().entries.iter() {
        let shown = input.view.shown_of(entry);
        walk.thought(input, entry, &shown);
        let bytes = entry_bytes(input, entry, &shown)?;
        let clients = matches!(entry.source, Source::Client(_) | Source::LastHop { .. });
        walk.changed |= !clients || matches!(bytes, Cow::Owned(_));
        if !bytes.is_empty() {
            walk.behind(canonical(&bytes)?);
        }
    }
    Some(Bonds {
        answer: BoundTo {
            prefix: walk.prefix,
            thought: walk.thoughts.last().map(|thought| thought.name),
        },
        broken: broken(&walk.thoughts),
    })
}

/// The thoughts that lost their place. Those that are left follow one from the other, up to the newest.
fn broken(thoughts: &[Thought]) -> Vec<ItemIndex> {
    let (mut broken, mut next) = (Vec::new(), None);
    for thought in thoughts.iter().rev() {
        let follows = next.is_none_or(|before| before == Some(thought.name));
        if thought.in_place && follows {
            next = Some(thought.before);
        } else {
            broken.push(thought.item);
            // What does not lead to the thoughts behind it ends all thoughts before it, too.
            if thought.in_place {
                next = Some(None);
            }
        }
    }
    broken.reverse();
    broken
}

/// A thought that a view shows.
struct Thought {
    item: ItemIndex,
    /// What it is called among the thoughts: what stood before it when it was made.
    name: Digest,
    /// The name of the thought before it when it was made.
    before: Option<Digest>,
    /// Whether the same stands before it now.
    in_place: bool,
}

/// A walk over the messages of a view.
struct Walk {
    /// The digest of all that stands before the message in hand.
    prefix: Digest,
    /// Whether any of it differs from what the client sent.
    changed: bool,
    /// Whether the newest thought of the conversation is not shown.
    gone: bool,
    thoughts: Vec<Thought>,
}

impl Walk {
    fn new(front: &Front) -> Self {
        let mut walk = Self {
            prefix: Digest::of(&[b"front", front.tools.as_bytes()]),
            changed: front.ours,
            gone: false,
            thoughts: Vec::new(),
        };
        if let Some(system) = front.system {
            walk.behind(system);
        }
        walk
    }

    /// Goes on behind a message.
    fn behind(&mut self, canonical: Digest) {
        self.prefix = Digest::of(&[b"prefix", self.prefix.as_bytes(), canonical.as_bytes()]);
    }

    /// Judges the thought of a message, if it has one.
    fn thought(&mut self, input: &RenderInput<'_>, entry: &TranscriptEntry, shown: &Shown<'_>) {
        let mut items = input.view.transcript().indexed_items_of(entry);
        let thought = items.find(|(_, item)| item.kind == ItemKind::Reasoning);
        let Some((item, _)) = thought else { return };
        // A message that is shown in part is not the one that was thought for.
        let (stays, whole) = match shown {
            Shown::Whole | Shown::Note(_) => (true, true),
            Shown::Less { reasoning, .. } => (*reasoning, false),
            Shown::Gone => (false, false),
        };
        let newest = self.thoughts.last().map(|thought| thought.name);
        let follows_gone = std::mem::replace(&mut self.gone, !stays);
        if !stays {
            return;
        }
        self.thoughts.push(match bound_to(input, entry) {
            Some(made) => Thought {
                item,
                name: made.prefix,
                before: made.thought,
                in_place: whole && made.prefix == self.prefix,
            },
            // The client's own requests had all thoughts that it has.
            None => Thought {
                item,
                name: self.prefix,
                before: newest.filter(|_| !follows_gone),
                in_place: whole && !self.changed,
            },
        });
    }
}

/// What the thought of a message is bound to, as its record says.
fn bound_to(input: &RenderInput<'_>, entry: &TranscriptEntry) -> Option<BoundTo> {
    let hop = match entry.source {
        Source::Client(_) | Source::HiddenResult { .. } | Source::Guidance => None,
        Source::Hop { step, hop } => input.path.hop(input.pending, step, hop),
        Source::LastHop { step, .. } => input.path.entries.get(step)?.record.hops.last(),
    };
    hop?.bound_to.as_deref().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thoughts by name, each with the one before it when it was made; a name in capitals is out of place.
    fn thoughts(all: &str) -> Vec<Thought> {
        let name = |name: &str| Digest::of(&[name.to_lowercase().as_bytes()]);
        let thought = |(item, word): (usize, &str)| {
            let (own, before) = word.split_once('<').unwrap();
            Thought {
                item: ItemIndex(item),
                name: name(own),
                before: Some(before).filter(|before| !before.is_empty()).map(name),
                in_place: own.to_lowercase() == own,
            }
        };
        all.split_whitespace().enumerate().map(thought).collect()
    }

    #[test]
    fn what_is_left_is_one_run_up_to_the_newest() {
        for (all, gone) in [
            ("", vec![]),
            ("a< b<a c<b", vec![]),
            // The first are missing.
            ("c<b d<c", vec![]),
            // Something changed before the last two, and then nothing did.
            ("a< B<a C<b", vec![1, 2]),
            ("a< d<a e<d", vec![]),
            ("A< B<a C<b d< e<d", vec![0, 1, 2]),
            // One between others is missing: those before it go, and not those behind it.
            ("a< b<a d<c e<d", vec![0, 1]),
            // Made while those out of place were still shown.
            ("a< B<a c<b d<c", vec![0, 1]),
            // One is back that was gone when the next one was made.
            ("a< b<a c<a", vec![0, 1]),
        ] {
            let gone: Vec<ItemIndex> = gone.into_iter().map(ItemIndex).collect();
            assert_eq!(broken(&thoughts(all)), gone, "{all}");
        }
    }
}
