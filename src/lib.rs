//! Plimsoll: the load line for an agent's context window.
//!
//! An OpenAI-compatible reverse proxy that keeps what a model reads below a budget of tokens.
//! Where each part of a request's life is:
//!
//! | part | modules |
//! |---|---|
//! | the command line, the settings | [`cli`], [`config`] |
//! | connections, limits, who calls; hands each request to `pipeline` | [`ingress`] |
//! | the order of the stages, and everything that waits | [`pipeline`] |
//! | a wire format, read and written | [`dialect`] |
//! | what was recorded of the conversation | [`store`], and [`history`] which reads it |
//! | one turn | [`turn`] |
//! | the conversation as the model is to see it, and its size in tokens | [`session`], [`tokens`]; what stays of a large result: [`clip`] |
//! | whether a pass is due and how deep it goes; what it evicts | [`commit`]; [`policy`] |
//! | the view as bytes | `render` |
//! | what hidden calls mean | `intercept` |
//! | the provider | [`upstream`] |
//! | metrics, the log line, response headers | [`record`] |
//! | what a person sees of it in a browser | [`console`] |
//! | beside requests: stored sessions, the lab | [`inspect`], [`replay`] |
//! | what all of them share | [`model`] |
//!
//! The pure core is `dialect`, `session`, `clip`, `tokens`, `policy`, `commit`, `render`, `intercept` and
//! `turn`: it does no IO, reads no clock and runs nothing asynchronous.

pub mod model;

pub mod pipeline;

pub mod turn;

pub mod ingress;

pub mod dialect;

pub mod clip;

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

pub mod console;

#[cfg(feature = "lab")]
pub mod replay;

pub mod cli;
