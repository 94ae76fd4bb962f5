//! Plimsoll: the load line for an agent's context window.
//!
//! An OpenAI-compatible reverse proxy that keeps what a model reads below a budget of tokens.
//! `pipeline` names every stage of a request, and `turn` names those of the pure core: `dialect`,
//! `session`, `tokens`, `policy`, `commit`, `render`, `turn` and `intercept` do no IO, read no clock
//! and run nothing asynchronous.

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
