//! What a store holds of recorded sessions, for people: a list of them, one of them written out, and
//! what erasing some of them takes. Owns these views. Never serves a request and never changes a
//! record.

pub(crate) mod archive;
mod dates;
mod erase;
pub(crate) mod export;

pub use archive::{Archive, ArchiveError, Branch, NotOne};
pub use dates::date;
pub use erase::{Erasure, erasure};
pub use export::{Export, export, written};
