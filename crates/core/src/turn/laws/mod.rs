//! The laws of eviction and rendering, held to whole conversations: every test here drives the
//! request half as a turn does, and judges the bodies that it would send.

mod annotated;
mod baselines;
mod bound;
mod grown;
mod ladder;
mod levels;
mod paper;
mod plan;
mod properties;
mod protected;
mod protocol;
mod recalls;
mod say;
mod sim;
mod stable;
mod terminals;
mod texts;
mod thinkers;
mod unannotated;
