//! What a store holds of recorded sessions, for people: a list of them, and one of them written
//! out. Owns both views. Never serves a request and never changes a record.

pub(crate) mod archive;
mod dates;
pub(crate) mod export;

pub use archive::{Archive, ArchiveError, Branch, NotOne};
pub use dates::date;
pub use export::{Export, export};
