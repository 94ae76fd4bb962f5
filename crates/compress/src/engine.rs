//! A call from its body to its answer. Owns the order of the steps and the form of the answer. Never reads a
//! socket, and never logs what a row says.

use bytes::Bytes;
use plimsoll_model::Digest;
use plimsoll_model::raw::{Edit, splice};
use plimsoll_tokens::Encoding;
use serde_json::json;

use crate::callers::{Caller, is_id};
use crate::memory::Memory;
use crate::passes::{Budget, RowSize, freed, passed};
use crate::rows::{BodyError, Row, Rows, Said};
use crate::settings::CompressSettings;
use crate::stub::stub;

/// How a model's tokens are counted, of which nothing may be known.
pub type EncodingOf = dyn Fn(Option<&str>) -> Encoding + Send + Sync;
/// The tokens of a text.
pub type TokensOf = dyn Fn(Encoding, &str) -> u32 + Send + Sync;

/// What the proxy knows of sizes.
pub struct Sizing {
    /// By the name of a model.
    pub encoding: Box<EncodingOf>,
    /// By the encoding.
    pub count: Box<TokensOf>,
}

/// The engine: settings, sizes and memory.
pub struct Engine {
    settings: CompressSettings,
    secret: [u8; 32],
    sizing: Sizing,
    memory: Memory,
}

/// An original was asked for that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// None is kept under this id.
    Unknown,
    /// None is ever kept.
    NotKept,
}

/// What replaces a result.
struct Replaced {
    id: String,
    edit: Edit,
    /// The tokens of the words that stand there now.
    tokens: u32,
    /// The tokens of the result.
    before: u32,
}

impl Engine {
    /// An engine whose memory takes so many bytes at most. Its ids are made with the secret.
    #[must_use]
    pub fn new(
        settings: CompressSettings,
        secret: [u8; 32],
        sizing: Sizing,
        memory: usize,
    ) -> Self {
        let memory = Memory::of(memory, settings.keep);
        Self {
            settings,
            secret,
            sizing,
            memory,
        }
    }

    pub(crate) const fn settings(&self) -> &CompressSettings {
        &self.settings
    }

    pub(crate) const fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    fn budget(&self) -> Budget {
        let tokens = f64::from(self.settings.tokens);
        Budget {
            tokens: u64::from(self.settings.tokens),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of a 32-bit number"
            )]
            floor: (tokens * self.settings.floor.clamp(0.0, 1.0)) as u64,
        }
    }

    /// The answer to a body: as many rows as it has, in their order and with their roles, byte for byte but for the
    /// contents that were replaced.
    ///
    /// # Errors
    /// [`BodyError`] if the body is not what the form asks for.
    pub(crate) fn compress(&self, caller: &Caller, body: &[u8]) -> Result<Bytes, BodyError> {
        let rows = Rows::read(body, &self.sizing.encoding, &self.sizing.count)?;
        let chains = chains(caller, &rows.rows);
        let known = self.memory.stand(&chains);
        let known = known.map(|(place, through)| (place + 1, through));
        let sizes: Vec<RowSize> = rows.rows.iter().map(size).collect();
        let through = passed(&sizes, self.budget(), known);
        if let Some(chain) = chains.last() {
            self.memory.set_stand(*chain, through);
        }
        let replaced = self.replaced(caller, &rows, through);
        Ok(answer(&rows, &replaced, self.memory.keeps()))
    }

    /// What replaces the oldest results, in their order.
    fn replaced(&self, caller: &Caller, rows: &Rows<'_>, through: usize) -> Vec<Replaced> {
        let encoding = (self.sizing.encoding)(rows.model.as_deref());
        let count = |text: &str| (self.sizing.count)(encoding, text);
        let results = rows.rows.iter().filter_map(|row| match &row.said {
            Said::Tool(result) => Some((row.tokens, result)),
            Said::Assistant | Said::Other => None,
        });
        let replaced = results.take(through).filter_map(|(before, result)| {
            let text = result.text.as_ref().filter(|_| freed(before, true) > 0)?;
            let id = caller.id(&self.secret, &text.original);
            let words = stub(&id, &text.original, before, self.memory.keeps(), &count);
            self.memory.keep(caller.tenant, &id, &text.original);
            Some(Replaced {
                id,
                edit: (text.span.clone(), Bytes::from(text.json(&words))),
                tokens: count(&words),
                before,
            })
        });
        replaced.collect()
    }

    /// An original of this caller's, as an answer.
    ///
    /// # Errors
    /// [`Gone`] if it is not there.
    pub(crate) fn retrieve(&self, caller: &Caller, id: &str) -> Result<String, Gone> {
        if !self.memory.keeps() {
            return Err(Gone::NotKept);
        }
        let original = is_id(id).then(|| self.memory.original(caller.tenant, id));
        let original = original.flatten().ok_or(Gone::Unknown)?;
        Ok(json!({"hash": id, "original_content": &*original}).to_string())
    }
}

/// The results of a session so far, chained: what the rows between them say does not matter, because some of it is
/// shown to a guardrail later than it was said.
fn chains(caller: &Caller, rows: &[Row<'_>]) -> Vec<Digest> {
    let mut chain = caller.session;
    let results = rows.iter().filter_map(|row| match &row.said {
        Said::Tool(result) => Some(&result.digest),
        Said::Assistant | Said::Other => None,
    });
    let chained = results.map(|digest| {
        chain = Digest::of(&[chain.as_bytes(), digest.as_bytes()]);
        chain
    });
    chained.collect()
}

fn size(row: &Row<'_>) -> RowSize {
    match &row.said {
        Said::Assistant => RowSize::Assistant(row.tokens),
        Said::Tool(result) => RowSize::Tool(row.tokens, result.text.is_some()),
        Said::Other => RowSize::Other(row.tokens),
    }
}

/// `retrieve` says whether originals can be brought back: a gateway that is told of ids offers a tool for it.
fn answer(rows: &Rows<'_>, replaced: &[Replaced], retrieve: bool) -> Bytes {
    let before: u64 = rows.rows.iter().map(|row| u64::from(row.tokens)).sum();
    let freed = |one: &Replaced| u64::from(one.before.saturating_sub(one.tokens));
    let saved: u64 = replaced.iter().map(freed).sum();
    let after = before - saved;
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts are far below 2^52"
    )]
    let ratio = if before == 0 {
        1.0
    } else {
        after as f64 / before as f64
    };
    let listed = if retrieve { replaced } else { &[] };
    let mut hashes: Vec<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let transforms: &[&str] = if replaced.is_empty() {
        &[]
    } else {
        &["plimsoll:evict"]
    };
    let sums = json!({
        "tokens_before": before,
        "tokens_after": after,
        "tokens_saved": saved,
        "compression_ratio": ratio,
        "transforms_applied": transforms,
        "ccr_hashes": hashes,
    });
    let spans = rows.rows.first().zip(rows.rows.last());
    let (start, end) = spans.map_or((0, 0), |(first, last)| (first.span.start, last.span.end));
    let shift = |one: &Replaced| {
        let (span, text) = &one.edit;
        (span.start - start..span.end - start, text.clone())
    };
    let edits: Vec<Edit> = replaced.iter().map(shift).collect();
    let shown = splice(rows.body.get(start..end).unwrap_or_default(), &edits);
    let sums = sums.to_string();
    let parts = [
        &b"{\"messages\":["[..],
        &shown,
        b"],",
        sums.get(1..).unwrap_or("}").as_bytes(),
    ];
    Bytes::from(parts.concat())
}

#[cfg(test)]
mod tests;
