//! Plimsoll: the load line for an agent's context window.
//!
//! An OpenAI-compatible reverse proxy that holds what a model reads below a token budget. The
//! modules stand in the order in which a request meets them; `pipeline` names every stage.
//! The middle (`dialect` to `render`, and `intercept`) is pure: no IO, no clock, no async.

pub mod model;

pub mod dialect;
pub mod tokens;

pub mod intercept;
pub mod upstream;
pub mod store;
pub mod record;
pub mod pipeline;

pub mod ingress;
pub mod config;
pub mod cli;
