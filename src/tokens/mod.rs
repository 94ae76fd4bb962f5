//! Sizes and prices: how many tokens a text or an image is, how far the estimate is off, what a
//! hop costs, and what is known about each model family.
//!
//! Owns everything that turns bytes into numbers. It never looks at a transcript: callers hand
//! in texts, reported usage and model names.

mod backtrack;
pub(crate) mod calibrate;
mod counter;
mod grouped;
mod image;
pub(crate) mod ledger;
mod longest;
mod memo;
mod merge;
mod models;
mod pairs;
mod pieces;
mod price;
mod ranks;
mod run;
mod scan;

#[cfg(test)]
mod tests;

pub use counter::{Counter, Encoding};
pub use image::{UNREADABLE as UNREADABLE_IMAGE, area_tokens, image_tokens};
pub use models::{CacheModel, ContextLengthError, Family, Models, ModelsError};
pub use price::{Cost, Prices, cost};
