//! What requests showed, message by message: each message that was sent is read once and known by
//! a number from then on, and a request is compared with the one before it by bytes, so that a
//! history that only grew costs its new messages. Never changes a byte.

use std::collections::HashMap;

use plimsoll_core::turn::memo::Reader;
use plimsoll_model::{Role, Shape, raw};
use twox_hash::XxHash3_128;

use super::anchors::Needs;
use super::message_text::{self, TextPart};
use super::named::{self, Ids};

/// Ids of hidden calls that cost nothing begin with this.
pub const FREE: &str = "call_i";

/// One message as it was sent.
#[derive(Clone, Debug, Default)]
pub struct Element {
    /// Its size in tokens.
    pub tokens: u32,
    /// What of that are thoughts.
    pub thoughts: u32,
    /// Its distinctive strings that some later call needs, by number, each once.
    pub strings: Box<[u32]>,
    /// Its lines that some later call needs, by number, each once.
    pub lines: Box<[u32]>,
    /// Its passages that some later answer repeats, by number, each once.
    pub passages: Box<[u32]>,
    /// What it says, where it is not as the client sent it.
    pub note: Option<SentNote>,
}

/// The text of a message that the proxy wrote or edited.
#[derive(Clone, Debug)]
pub struct SentNote {
    /// All its texts.
    pub text: Box<str>,
    /// The item ids in it.
    pub ids: Box<[Ids]>,
    /// Whether it is a result: only results hold tombstones.
    pub result: bool,
}

/// All messages that were sent in a session, whatever the policy.
#[derive(Default)]
pub struct Pool {
    ids: HashMap<u128, u32>,
    elements: Vec<Element>,
}

impl Pool {
    /// A message by its number.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Element> {
        self.elements.get(id as usize)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// The number of a message of the client's.
    pub fn client(&mut self, bytes: &[u8], needs: &Needs, shape: &Shape) -> u32 {
        self.intern(bytes, || {
            Some(element(bytes, needs, shape).unwrap_or_default())
        })
        .unwrap_or_default()
    }

    /// The number of a message as it was sent; none where it can't be read, which a message of a
    /// rendered view always can.
    pub fn sent(&mut self, bytes: &[u8], needs: &Needs, reader: &Reader<'_>) -> Option<u32> {
        self.intern(bytes, || {
            let shape = reader.shape(bytes).ok()?;
            let mut element = element(bytes, needs, &shape)?;
            let mut text = String::new();
            message_text::texts(bytes, &mut |_: TextPart, part: &str| {
                text.push_str(part);
                text.push('\n');
            });
            element.note = Some(SentNote {
                ids: named::ids(&text).into_boxed_slice(),
                text: text.into_boxed_str(),
                result: shape.role == Role::Tool,
            });
            Some(element)
        })
    }

    /// A pool of these messages.
    #[cfg(test)]
    pub fn of(elements: Vec<Element>) -> Self {
        Self {
            ids: HashMap::new(),
            elements,
        }
    }

    fn intern(&mut self, bytes: &[u8], make: impl FnOnce() -> Option<Element>) -> Option<u32> {
        let key = XxHash3_128::oneshot(bytes);
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let id = u32::try_from(self.elements.len()).ok()?;
        self.elements.push(make()?);
        self.ids.insert(key, id);
        Some(id)
    }
}

fn element(bytes: &[u8], needs: &Needs, shape: &Shape) -> Option<Element> {
    let free = shape
        .calls
        .iter()
        .filter(|call| call.id.0.starts_with(FREE));
    let free: u32 = free.map(|call| call.tokens).sum();
    let held = needs.held(bytes)?;
    Some(Element {
        tokens: shape.tokens() - free,
        thoughts: shape.reasoning,
        strings: held.strings(),
        lines: held.lines.into_boxed_slice(),
        passages: held.passages.into_boxed_slice(),
        note: None,
    })
}

/// One request's messages: their bytes, and their numbers.
#[derive(Default)]
pub struct Sent {
    /// The messages array, from behind its bracket.
    bytes: Vec<u8>,
    /// Where each message ends in it.
    ends: Vec<usize>,
    /// The messages by number.
    pub ids: Vec<u32>,
}

/// How a request differs from the one before it.
pub struct Change {
    /// Messages at the front that are the same.
    pub kept: usize,
    /// The messages behind them in the request before.
    pub gone: Vec<u32>,
}

impl Sent {
    /// The messages of the newest request, as bytes.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| end + 1));
        let spans = starts.zip(&self.ends);
        spans.filter_map(|(start, end)| self.bytes.get(start..*end))
    }

    /// Takes in the next request's messages array, brackets included. None where a message can't
    /// be read.
    pub fn next(
        &mut self,
        array: &[u8],
        mut id: impl FnMut(&[u8]) -> Option<u32>,
    ) -> Option<Change> {
        let inside = array.get(1..)?;
        let common = common(&self.bytes, inside);
        // A message that ends inside of what is common is the same one: its last brace is told.
        let kept = self.ends.partition_point(|end| *end <= common);
        let from = kept
            .checked_sub(1)
            .and_then(|last| self.ends.get(last).copied())
            .unwrap_or(0);
        let gone = self.ids.split_off(kept);
        self.ends.truncate(kept);
        self.bytes.truncate(from);
        self.bytes.extend_from_slice(inside.get(from..)?);
        let skip = usize::from(kept > 0);
        let mut rest = Vec::with_capacity(inside.len() - from + 1);
        rest.push(b'[');
        rest.extend_from_slice(inside.get(from + skip..).unwrap_or(b"]"));
        if rest.len() == 1 {
            rest.push(b']');
        }
        for span in raw::array(&rest).ok()? {
            self.ids.push(id(rest.get(span.clone())?)?);
            self.ends.push(from + skip + span.end - 1);
        }
        Some(Change { kept, gone })
    }
}

/// How many bytes two texts have in common at the front.
fn common(left: &[u8], right: &[u8]) -> usize {
    const STEP: usize = 1024;
    let chunks = left.chunks_exact(STEP).zip(right.chunks_exact(STEP));
    let whole = chunks.take_while(|(left, right)| left == right).count() * STEP;
    let (left, right) = (left.get(whole..), right.get(whole..));
    let pairs = left.into_iter().flatten().zip(right.into_iter().flatten());
    whole + pairs.take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_are_compared_message_by_message() {
        let mut sent = Sent::default();
        let mut known: Vec<Vec<u8>> = Vec::new();
        let mut next = |array: &str| {
            let change = sent
                .next(array.as_bytes(), |bytes| {
                    let at = known.iter().position(|one| one == bytes);
                    Some(at.unwrap_or_else(|| {
                        known.push(bytes.to_vec());
                        known.len() - 1
                    }) as u32)
                })
                .unwrap();
            (change.kept, change.gone, sent.ids.clone())
        };
        assert_eq!(next(r#"[{"a":1}]"#), (0, vec![], vec![0]));
        assert_eq!(next(r#"[{"a":1},{"a":2}]"#), (1, vec![], vec![0, 1]));
        assert_eq!(next(r#"[{"a":1},{"a":2}]"#), (2, vec![], vec![0, 1]));
        assert_eq!(next(r#"[{"a":1},{"a":12}]"#), (1, vec![1], vec![0, 2]));
        assert_eq!(next(r#"[{"a":1}]"#), (1, vec![2], vec![0]));
        assert_eq!(next(r#"[{"a":12},{"a":1}]"#), (0, vec![0], vec![2, 0]));
        assert_eq!(next("[]"), (0, vec![2, 0], vec![]));
    }

    proptest! {
        #[test]
        fn the_common_part_is_common_and_no_longer(
            left in proptest::collection::vec(0_u8..3, 0..4000),
            cut in 0_usize..4000, tail in proptest::collection::vec(3_u8..5, 0..9),
        ) {
            let cut = cut.min(left.len());
            let right: Vec<u8> = left[..cut].iter().chain(&tail).copied().collect();
            prop_assert_eq!(common(&left, &right), cut);
        }
    }
}
