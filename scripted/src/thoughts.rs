//! Laws over the requests of a session whose thoughts are bound to what stood before them.
//!
//! Owns what a test asks of a list of bodies, and the words of thoughts. It judges no signature:
//! `rules` does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::rng::Rng;
use crate::rules::{Form, Prefix, own_id};

/// What a thought is made of, each some token long.
const WORDS: [&str; 24] = [
    "first", "look", "file", "then", "check", "test", "because", "value", "maybe", "change",
    "line", "error", "again", "before", "result", "which", "means", "part", "keep", "other",
    "small", "read", "write", "done",
];

/// A thought of about so many tokens, the same for the same text and seed.
#[must_use]
pub fn words(text: &str, seed: u64, tokens: usize) -> String {
    let mut rng = Rng::from_text(text, seed);
    let words = (0..tokens).map(|_| rng.pick(&WORDS).copied().unwrap_or_default());
    words.collect::<Vec<_>>().join(" ")
}

/// The thoughts that a request carries, each by its own id, in order.
#[must_use]
pub fn carried(form: Form, body: &Value) -> Vec<String> {
    let prefix = Prefix::read(form, body);
    let signatures = prefix.thoughts().map(|thought| &thought.signature);
    signatures.filter_map(|text| own_id(text)).collect()
}

/// Whether a request says all that another said and goes on behind it, thoughts left out.
///
/// # Errors
/// What differs, and where.
pub fn extends(form: Form, previous: &Value, next: &Value) -> Result<(), String> {
    let (before, after) = (Prefix::read(form, previous), Prefix::read(form, next));
    if before.system != after.system {
        return Err("the system prompt differs".to_owned());
    }
    let named: BTreeSet<String> = before.named();
    if before.tools(&named) != after.tools(&named) {
        return Err("the tools differ".to_owned());
    }
    let mut there = after.blocks();
    for block in before.blocks() {
        match there.next() {
            None => return Err(format!("{} is not there any longer", block.path)),
            Some(found) if found.hash != block.hash => {
                return Err(format!("{} differs", found.path));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether each request of a session extends the one before it, and no thought that left comes back.
///
/// # Errors
/// The first request that does not, by its number, and why.
pub fn append_only<'a>(
    form: Form,
    bodies: impl IntoIterator<Item = &'a Value> + Clone,
) -> Result<(), String> {
    let pairs = bodies
        .clone()
        .into_iter()
        .zip(bodies.clone().into_iter().skip(1));
    for (number, (previous, next)) in (1..).zip(pairs) {
        extends(form, previous, next).map_err(|fault| format!("request {number}: {fault}"))?;
    }
    none_returns(form, bodies)
}

/// Whether no thought that left comes back.
///
/// # Errors
/// The first request that carries one, by its number, with the thought's id.
pub fn none_returns<'a>(
    form: Form,
    bodies: impl IntoIterator<Item = &'a Value>,
) -> Result<(), String> {
    // By id: the newest request that carried it.
    let mut newest: BTreeMap<String, usize> = BTreeMap::new();
    for (number, body) in bodies.into_iter().enumerate() {
        for own in carried(form, body) {
            let before = newest.insert(own.clone(), number);
            if let Some(before) = before.filter(|before| before + 1 < number) {
                return Err(format!(
                    "request {number} carries {own}, which was last in request {before}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
