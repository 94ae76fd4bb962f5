//! The encodings in which tokens are counted. Owns their names. Never loads one.

/// A vocabulary with its pattern for pre-tokenisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `o200k_base`: GPT-4o and later, and the estimate for all other families.
    #[default]
    O200k,
    /// `cl100k_base`: GPT-4 and GPT-3.5.
    Cl100k,
}
