//! Chat Completions responses: the stream machine, its unstreamed equal, and the shapes of chunks.
//! Never sends anything and never invents an id.

mod answer_builder;
mod beside_text;
mod call_table;
mod machine;
mod signature_debts;
pub(crate) mod unary;
mod wire;

pub use machine::ChatMachine;

#[cfg(test)]
pub(crate) mod tests;
