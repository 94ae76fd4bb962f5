//! The stream machine and the editor of the formats whose messages are made of blocks.

pub mod edit;
pub mod events;
mod machine;
pub mod shown;

pub use machine::BlockMachine;

/// What a block is, whatever its type is called in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What the model says, a refusal included.
    Text,
    /// Reasoning, in whatever form.
    Reasoning,
    /// A call that somebody outside the server answers.
    Call,
    /// Anything else, such as what a server's own tool did.
    Other,
}
