//! What a store holds of recorded sessions, for people: which there are, and one of them written
//! out. Reads only; never serves a request and never changes a record.

pub mod archive;
mod dates;
pub mod export;

pub use archive::{Archive, ArchiveError, Branch, NotOne};
pub use dates::date;
pub use export::{Export, export};
