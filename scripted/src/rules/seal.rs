//! The signature of a thought: all that its provider needs to judge it when it comes back.
//!
//! Owns the text of it. It holds no state, so that another process judges alike; it never looks at
//! a request.

use super::prefix::digest;
use crate::rng::Rng;

/// How many blocks before a thought are told apart.
pub(super) const TRAIL: usize = 16;

/// What a signature says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seal {
    pub model: String,
    /// The thought's own id.
    pub own: u64,
    /// The id of the thought that came before it; 0 for none.
    pub before: u64,
    /// How many thoughts came before it.
    pub count: usize,
    pub system: u64,
    pub tools: u64,
    /// The chain over the blocks before it.
    pub messages: u64,
    /// How many blocks came before it.
    pub blocks: usize,
    /// Short hashes of the last of them.
    pub trail: Vec<u16>,
    /// The hash of what is shown of the thought.
    pub text: u64,
    /// How many bytes were thought.
    pub length: usize,
    /// What only the provider could read, where what was thought is not shown: it makes the signature
    /// as long as a real one.
    pub sealed: String,
}

impl Seal {
    pub(super) fn written(&self) -> String {
        let plain = self.plain();
        format!("{plain}.{:016x}", digest(&plain))
    }

    fn plain(&self) -> String {
        let trail: String = self
            .trail
            .iter()
            .map(|hash| format!("{hash:04x}"))
            .collect();
        format!(
            "sig-{}-{:016x}.{:x}.{:x}.{:x}.{:x}.{:x}.{:x}.{trail}.{:x}.{:x}.{}",
            self.model,
            self.own,
            self.before,
            self.count,
            self.system,
            self.tools,
            self.messages,
            self.blocks,
            self.text,
            self.length,
            self.sealed
        )
    }

    /// Reads a signature; nothing if it was not made here, or was changed.
    pub(super) fn read(signature: &str) -> Option<Self> {
        let (model, rest) = signature.strip_prefix("sig-")?.rsplit_once('-')?;
        let fields: Vec<&str> = rest.split('.').collect();
        let [
            own,
            before,
            count,
            system,
            tools,
            messages,
            blocks,
            trail,
            text,
            length,
            sealed,
            _,
        ] = *fields
        else {
            return None;
        };
        let number = |field: &str| u64::from_str_radix(field, 16).ok();
        let count_of = |field: &str| usize::from_str_radix(field, 16).ok();
        let trail = trail.as_bytes().chunks(4).map(|hash| {
            let hash = std::str::from_utf8(hash).ok()?;
            u16::from_str_radix(hash, 16).ok()
        });
        let seal = Self {
            model: model.to_owned(),
            own: number(own)?,
            before: number(before)?,
            count: count_of(count)?,
            system: number(system)?,
            tools: number(tools)?,
            messages: number(messages)?,
            blocks: count_of(blocks)?,
            trail: trail.collect::<Option<_>>()?,
            text: number(text)?,
            length: count_of(length)?,
            sealed: sealed.to_owned(),
        };
        (seal.written() == signature).then_some(seal)
    }

    /// The id of the thought as text.
    pub(super) fn id(&self) -> String {
        format!("{:016x}", self.own)
    }
}

/// Letters and digits in place of a text that is sealed: four for each three bytes, as base64 has.
pub(super) fn sealed(text: &str) -> String {
    let mut rng = Rng::from_text(text, 11);
    let count = text.len().div_ceil(3) * 4;
    let letters = (0..count).map(|_| char::from_digit(u32::try_from(rng.below(36)).ok()?, 36));
    letters.map(Option::unwrap_or_default).collect()
}
