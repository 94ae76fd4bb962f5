//! Sizes and prices: how many tokens a text or an image has, how far the estimate is off, what a
//! hop costs, and what is known about each family of models.
//!
//! Owns everything that turns bytes into numbers. Never looks at a transcript: callers pass texts,
//! reported usage and names of models.

pub mod calibrate;
mod counter;
mod encoding;
mod image;
pub mod ledger;
mod memo;
mod models;
mod pieces;
mod price;
mod scan;

#[cfg(test)]
mod tests;

pub use counter::Counter;
pub use encoding::Encoding;
pub use image::{UNREADABLE as UNREADABLE_IMAGE, area_tokens, image_tokens};
pub use models::{CacheModel, ContextLengthError, Family, Models, ModelsError};
pub use price::{Cost, Prices, cost};
