//! What a store holds of recorded sessions, for people: which there are, and one of them written
//! out. Reads only; never serves a request and never changes a record.

pub(crate) mod archive;
mod dates;
pub(crate) mod export;

pub use archive::{Archive, ArchiveError, Branch, NotOne};
pub use dates::date;
pub use export::{Export, export};
