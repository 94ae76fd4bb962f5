//! Where a request stands: the chain that names its prefix, the path of turn records behind it,
//! the transcript that both make, and the episode graph over it. Pure: it is given shapes, sizes
//! and records, and never reads a store or a clock.

pub mod align;
pub mod chain;
pub mod graph;
pub mod hours;
pub mod ids;
pub mod index;
pub mod marked;
pub mod measure;
pub mod note;
pub mod overlap;
pub mod path;
pub mod stub;
pub mod tombstone;
pub mod transcript;
pub mod view;
