//! Plimsoll: the load line for an agent's context window.
//!
//! An OpenAI-compatible reverse proxy that holds what a model reads below a token budget. The
//! modules stand in the order in which a request meets them; `pipeline` names every stage, and `turn`
//! those of its pure core. The middle (`dialect` to `turn`, and `intercept`) is pure: no IO, no clock, no
//! async.

pub mod model;

pub mod pipeline;

pub mod turn;

pub mod ingress;

pub mod dialect;

pub mod session;

pub mod tokens;

pub mod policy;

pub mod commit;

pub(crate) mod render;

pub mod upstream;

pub(crate) mod intercept;

pub mod record;

pub mod store;

pub mod history;

pub mod config;

pub mod inspect;

#[cfg(feature = "lab")]
pub mod replay;

pub mod cli;
