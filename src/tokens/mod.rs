//! Sizes and prices: how many tokens a text or an image is, how far the estimate is off, what a
//! hop costs, and what is known about each model family.
//!
//! Owns everything that turns bytes into numbers. It never looks at a transcript: callers hand
//! in texts, reported usage and model names.

mod counter;
mod memo;
mod run;
mod scan;

#[cfg(test)]
mod tests;

pub use counter::{Counter, Encoding};
