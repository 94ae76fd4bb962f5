//! Plimsoll: the load line for an agent's context window.
//!
//! An OpenAI-compatible reverse proxy that keeps what a model reads below a budget of tokens. This crate is
//! the program: the command line ([`cli`]) and the settings ([`config`]), which hands each part those that
//! it owns. Where each part of a request's life is, and which crates it stands on:
//!
//! | crate | what it owns | stands on |
//! |---|---|---|
//! | `ingress` | connections, limits, who calls; hands each request to the pipeline | `proxy`, `console` |
//! | `proxy` | the order of the stages and everything that waits, the provider, metrics and headers | `core`, `store` |
//! | `core` | one turn, decided: the conversation as the model is to see it, what a pass evicts and when | `wire`, `tokens` |
//! | `wire` | a wire format, read and written | `model` |
//! | `tokens` | how many tokens a text is for a model | `model` |
//! | `store` | what was recorded of the conversation | `model` |
//! | `console` | what a person sees of it in a browser | `proxy`, and `lab` where it is built in |
//! | `lab` | recorded sessions, played against the policies | `core` |
//! | `model` | what all of them share | |
//!
//! `model`, `wire`, `tokens` and `core` are pure: they do no IO, read no clock and run nothing asynchronous.

pub mod cli;
pub mod config;
