//! How texts that the proxy writes are made and sized. Never writes one.

use super::index::ItemIndex;
use super::note::{Left, Note};
use crate::model::{Kept, Mark};

/// How texts that the proxy writes are made and sized.
#[derive(Clone, Copy)]
pub struct Measure<'a> {
    /// Counts the tokens of a text.
    pub count: &'a dyn Fn(&str) -> u32,
    /// Makes a text one that stands in place of a result.
    pub note: &'a dyn Fn(String) -> Note,
    /// The ceiling in tokens, of which the ledger takes a twentieth at most.
    pub ceiling: u32,
    /// Writes what is left of a call. The originals are the client's, so this is given.
    pub left: &'a dyn Fn(ItemIndex, Mark, &Kept) -> Left,
    /// The name of `recall`, where it is injected: only there may a text mention it.
    pub recall: Option<&'a str>,
}
