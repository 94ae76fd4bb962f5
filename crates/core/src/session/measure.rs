//! How the proxy's own texts are made and counted. Never writes one.

use plimsoll_model::{Kept, Mark};

use super::index::ItemIndex;
use super::note::{Left, Note};

/// How the proxy's own texts are made and counted.
#[derive(Clone, Copy)]
pub struct Measure<'a> {
    /// Counts the tokens of a text.
    pub count: &'a dyn Fn(&str) -> u32,
    /// Makes a note of a text that replaces a result.
    pub note: &'a dyn Fn(String) -> Note,
    /// The ceiling in tokens, of which the ledger takes a twentieth at most.
    pub ceiling: u32,
    /// Writes what is left of a call. It needs the client's originals, so the caller provides it.
    pub left: &'a dyn Fn(ItemIndex, Mark, &Kept) -> Left,
    /// The name of `recall` if it is injected. No text may mention it otherwise.
    pub recall: Option<&'a str>,
}
