//! The life of a request between the client's edge and the provider, and everything that waits.
//!
//! | part | modules |
//! |---|---|
//! | the order of the stages | [`pipeline`] |
//! | what was recorded, read from the store | [`history`] |
//! | the provider | [`upstream`] |
//! | metrics, the log line, response headers | [`record`] |

pub mod history;
pub mod pipeline;
pub mod record;
pub mod upstream;
