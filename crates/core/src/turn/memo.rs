//! What is known of messages. Each is parsed and counted once and remembered by the digest of its
//! raw bytes, so that a request costs its new messages only. Never crosses tenants: the digest is
//! seeded by the tenant.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_model::caches::{Bounded, MEMORY, bounded};
use plimsoll_model::{CALL_TOKENS, CacheName, CallId, CallShape, Shape, TenantId, Words, raw};
use plimsoll_tokens::{Counter, Encoding, UNREADABLE_IMAGE, area_tokens, image_tokens};
use plimsoll_wire::Dialect;
use plimsoll_wire::message::{self, MessageError, Parsed, Part};
use twox_hash::XxHash3_128;

use super::needed::GoneWords;
use crate::policy::Text;
use crate::session::index::ItemIndex;
use crate::session::note::{Left, Note};

/// A hasher of 128 bits; the trait of the standard library returns 64.
struct Wide(XxHash3_128);

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish_128() as u64
    }
}

/// An unknown content part with more bytes than this is counted as an attachment, not as text.
const ATTACHMENT: usize = 4096;
/// Bytes for each token of reasoning that only the provider can read, which is base64 with some
/// overhead.
const SEALED: usize = 6;

/// Shapes of messages and sizes of texts by the digest of their bytes.
pub struct Memo {
    shapes: Bounded<u128, Arc<Shape>>,
    sizes: Bounded<u128, u32>,
    /// What is left of calls. Every request after a pass needs it again.
    lefts: Bounded<u128, Left>,
    /// Lines of what is gone. Every request needs these again, too.
    notes: Bounded<u128, Note>,
    /// How messages begin, by the patterns that were looked for.
    fronts: Bounded<u128, Front>,
    /// The strings of originals that a pass has read, so that the next one reads only what is new.
    words: Bounded<u128, Option<Arc<Words>>>,
    /// The strings of what is gone from views, which every answer after a pass is held to.
    gone: Bounded<u128, Arc<GoneWords>>,
}

/// How a message begins; none if no pattern matches.
pub type Front = Option<Arc<str>>;

/// How many texts stay decoded: those of a call and of its neighbour.
const DECODED: usize = 4;

/// The texts that were decoded last, by item. What chooses the part of an item that is left, and
/// what then writes it, read the same text. Lives no longer than the request.
#[derive(Default)]
pub struct Decoded<'t>(RefCell<VecDeque<(ItemIndex, Text<'t>)>>);

impl<'t> Decoded<'t> {
    /// The text of an item. It is decoded unless it is still known.
    pub fn text(
        &self,
        index: ItemIndex,
        decode: impl FnOnce() -> Option<Cow<'t, str>>,
    ) -> Option<Text<'t>> {
        let known = self.0.borrow().iter().find(|(at, _)| *at == index).cloned();
        if let Some((_, text)) = known {
            return Some(text);
        }
        let text = Rc::new(decode()?);
        let mut texts = self.0.borrow_mut();
        if texts.len() == DECODED {
            texts.pop_front();
        }
        texts.push_back((index, text.clone()));
        Some(text)
    }
}

/// Reads messages of one tenant and dialect, and counts them in one encoding.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    memo: &'a Memo,
    counter: &'a Counter,
    encoding: Encoding,
    dialect: Dialect,
    seed: u64,
}

impl Default for Memo {
    fn default() -> Self {
        Self::new(MEMORY)
    }
}

impl Memo {
    /// A memo with its shares of the memory of all caches.
    #[must_use]
    pub fn new(all: usize) -> Self {
        Self {
            shapes: bounded(CacheName::Shapes, all),
            sizes: bounded(CacheName::Sizes, all),
            lefts: bounded(CacheName::Lefts, all),
            notes: bounded(CacheName::Notes, all),
            fronts: bounded(CacheName::Fronts, all),
            words: bounded(CacheName::Words, all),
            gone: bounded(CacheName::Gone, all),
        }
    }

    /// Bytes of memory that a cache takes; 0 for a cache that is not part of the memo.
    #[must_use]
    pub fn weight(&self, cache: CacheName) -> u64 {
        match cache {
            CacheName::Shapes => self.shapes.weight(),
            CacheName::Sizes => self.sizes.weight(),
            CacheName::Lefts => self.lefts.weight(),
            CacheName::Notes => self.notes.weight(),
            CacheName::Fronts => self.fronts.weight(),
            CacheName::Words => self.words.weight(),
            CacheName::Gone => self.gone.weight(),
            CacheName::Paths
            | CacheName::Sessions
            | CacheName::Watched
            | CacheName::Bodies
            | CacheName::Histories
            | CacheName::Console => 0,
        }
    }

    /// Forgets everything.
    pub fn forget(&self) {
        self.shapes.clear();
        self.sizes.clear();
        self.lefts.clear();
        self.notes.clear();
        self.fronts.clear();
        self.words.clear();
        self.gone.clear();
    }

    /// The number of texts whose strings it knows, and the bytes of memory that these take.
    #[must_use]
    pub fn read(&self) -> (usize, u64) {
        (self.words.len(), self.words.weight())
    }

    /// A reader for one tenant, one encoding and one dialect.
    #[must_use]
    pub fn reader<'a>(
        &'a self,
        counter: &'a Counter,
        encoding: Encoding,
        tenant: TenantId,
        dialect: Dialect,
    ) -> Reader<'a> {
        let mut seed = [0_u8; 8];
        seed.iter_mut()
            .zip(tenant.0.as_bytes())
            .for_each(|(to, from)| *to = *from);
        let seed = u64::from_le_bytes(seed).wrapping_add(encoding as u64 + (dialect as u64) * 16);
        Reader {
            memo: self,
            counter,
            encoding,
            dialect,
            seed,
        }
    }
}

impl Reader<'_> {
    /// The shape of a message.
    ///
    /// # Errors
    /// [`MessageError`] where the message is not what the dialect allows.
    pub fn shape(&self, bytes: &[u8]) -> Result<Arc<Shape>, MessageError> {
        let key = XxHash3_128::oneshot_with_seed(self.seed, bytes);
        if let Some(shape) = self.memo.shapes.get(&key) {
            return Ok(shape);
        }
        let shape = match self.dialect.parse(bytes) {
            Ok(parsed) => self.measure(parsed),
            Err(error) => self.halved(bytes).ok_or(error)?,
        };
        let shape = Arc::new(shape);
        self.memo.shapes.insert(key, shape.clone());
        Ok(shape)
    }

    /// The shape of a message with half of a surrogate pair, which no text can hold. It is counted
    /// as one character. Nothing could write it again, so the message is never edited.
    fn halved(&self, bytes: &[u8]) -> Option<Shape> {
        let mended = raw::mended(bytes)?;
        let parsed = self.dialect.parse(&mended).ok()?;
        Some(Shape {
            opaque: true,
            ..self.measure(parsed)
        })
    }

    /// The size in tokens of a text that every request repeats, such as the tools array.
    #[must_use]
    pub fn remembered(&self, text: &str) -> u32 {
        let key = XxHash3_128::oneshot_with_seed(self.seed, text.as_bytes());
        if let Some(size) = self.memo.sizes.get(&key) {
            return size;
        }
        let size = self.count(text);
        self.memo.sizes.insert(key, size);
        size
    }

    /// What is left of a call, made once. `key` identifies the originals and what was kept of them.
    #[must_use]
    pub fn left(&self, key: &impl Hash, make: impl FnOnce() -> Left) -> Left {
        let key = self.key(key);
        if let Some(left) = self.memo.lefts.get(&key) {
            return left;
        }
        let left = make();
        self.memo.lefts.insert(key, left.clone());
        left
    }

    /// The strings of what is gone from a view, found once. `key` identifies what came before and the marks.
    pub fn gone(&self, key: &impl Hash, find: impl FnOnce() -> GoneWords) -> Arc<GoneWords> {
        let key = self.key(key);
        if let Some(gone) = self.memo.gone.get(&key) {
            return gone;
        }
        let gone = Arc::new(find());
        self.memo.gone.insert(key, Arc::clone(&gone));
        gone
    }

    fn key(&self, of: &impl Hash) -> u128 {
        let mut hasher = Wide(XxHash3_128::with_seed(self.seed));
        of.hash(&mut hasher);
        hasher.0.finish_128()
    }

    /// A text that replaces a result. It is counted once, and its strings are read once.
    #[must_use]
    pub fn note(&self, text: String) -> Note {
        let key = XxHash3_128::oneshot_with_seed(self.seed, text.as_bytes());
        if let Some(note) = self.memo.notes.get(&key) {
            return note;
        }
        let size = self.count(&text);
        let note = Note::new(text, size);
        self.memo.notes.insert(key, note.clone());
        note
    }

    /// How a message begins, looked for once. `patterns` identifies what is looked for.
    pub fn front(&self, patterns: u64, bytes: &[u8], find: impl FnOnce() -> Front) -> Front {
        let key = XxHash3_128::oneshot_with_seed(self.seed.wrapping_add(patterns), bytes);
        if let Some(front) = self.memo.fronts.get(&key) {
            return front;
        }
        let front = find();
        self.memo.fronts.insert(key, front.clone());
        front
    }

    /// The strings of an original, read once. `name` identifies it.
    pub fn words(&self, name: &[u8], make: impl FnOnce() -> Option<Words>) -> Option<Arc<Words>> {
        let key = XxHash3_128::oneshot_with_seed(self.seed, name);
        if let Some(words) = self.memo.words.get(&key) {
            return words;
        }
        let words = make().map(Arc::new);
        self.memo.words.insert(key, words.clone());
        words
    }

    /// The size of a text in tokens.
    #[must_use]
    pub fn count(&self, text: &str) -> u32 {
        self.counter.count(self.encoding, text)
    }

    /// The size of a call in tokens: name, arguments and 8.
    #[must_use]
    pub fn call(&self, name: &str, arguments: &str) -> u32 {
        CALL_TOKENS + self.count(name) + self.count(arguments)
    }

    fn measure(&self, parsed: Parsed<'_>) -> Shape {
        let text = parsed.parts.iter().map(|part| self.part(part)).sum();
        let blank = |part: &Part<'_>| matches!(part, Part::Text(text) | Part::Quoted(text) if text.trim().is_empty());
        let blank = parsed.parts.iter().all(blank);
        let reasoning: u32 = parsed.reasoning.iter().map(|text| self.count(text)).sum();
        let sealed = u32::try_from(parsed.sealed / SEALED).unwrap_or(u32::MAX);
        let calls = parsed.calls.iter().map(|call| CallShape {
            id: CallId(call.id.clone().into_owned()),
            name: call.name.clone().into_owned(),
            tokens: self.call(&call.name, &call.arguments),
            digest: message::call_digest(&call.name, &call.arguments),
        });
        Shape {
            role: parsed.role,
            canonical: parsed.canonical,
            nameless: parsed.nameless,
            calls: calls.collect(),
            result_of: parsed.result_of,
            text,
            reasoning: reasoning.saturating_add(sealed),
            opaque: parsed.opaque,
            whole: parsed.whole,
            blank,
        }
    }

    fn part(&self, part: &Part<'_>) -> u32 {
        match part {
            Part::Text(text) | Part::Quoted(text) => self.count(text),
            Part::Image { url, detail } => image_tokens(url, detail.as_deref()),
            Part::Picture(base64) => area_tokens(base64),
            Part::Other(raw) if raw.len() > ATTACHMENT => UNREADABLE_IMAGE,
            Part::Other(raw) => std::str::from_utf8(raw).map_or(0, |text| self.count(text)),
        }
    }
}
