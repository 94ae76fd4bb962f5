//! One turn, decided. Pure: it does no IO, reads no clock and runs nothing asynchronous.
//!
//! | part | modules |
//! |---|---|
//! | one turn | [`turn`] |
//! | the conversation as the model is to see it | [`session`]; what stays of a large result: [`clip`] |
//! | whether a pass is due and how deep it goes; what it evicts | [`commit`]; [`policy`] |
//! | the view as bytes | [`render`] |
//! | what hidden calls mean | [`intercept`] |

pub mod clip;
pub mod commit;
pub mod intercept;
pub mod policy;
pub mod render;
pub mod session;
pub mod turn;
