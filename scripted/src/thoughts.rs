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

/// The characters of a word of a thought at most.
const WORD_CHARS: usize = 16;

/// A thought of about so many tokens, the same for the same text and seed.
#[must_use]
pub fn words(text: &str, seed: u64, tokens: usize) -> String {
    picked(&WORDS, text, seed, tokens)
}

/// The same in the words of what is thought about, where that has any.
#[must_use]
pub fn words_about(about: &str, text: &str, seed: u64, tokens: usize) -> String {
    let short = |word: &str| word.chars().take(WORD_CHARS).collect::<String>();
    let mut own: Vec<String> = about.split_whitespace().map(short).collect();
    if own.is_empty() {
        own = WORDS.map(str::to_owned).to_vec();
    }
    picked(&own, text, seed, tokens)
}

fn picked<T: AsRef<str>>(words: &[T], text: &str, seed: u64, tokens: usize) -> String {
    let mut rng = Rng::from_text(text, seed);
    let words = (0..tokens).filter_map(|_| rng.pick(words).map(AsRef::as_ref));
    words.collect::<Vec<&str>>().join(" ")
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
    let mut newest = Newest::default();
    let mut bodies = bodies.into_iter();
    bodies.try_for_each(|body| newest.see(carried(form, body)))
}

/// The thoughts of a session's requests, each with the number of the newest request that carried it.
#[derive(Debug, Default)]
struct Newest {
    by_id: BTreeMap<String, usize>,
    requests: usize,
}

impl Newest {
    /// Takes in the thoughts of the next request.
    fn see(&mut self, carried: Vec<String>) -> Result<(), String> {
        let number = self.requests;
        self.requests += 1;
        for own in carried {
            let before = self.by_id.insert(own.clone(), number);
            if let Some(before) = before.filter(|before| before + 1 < number) {
                return Err(format!(
                    "request {number} carries {own}, which was last in request {before}"
                ));
            }
        }
        Ok(())
    }
}

/// The laws over one session, request by request, for sessions that are too long to keep.
#[derive(Debug)]
pub struct Watcher {
    form: Form,
    newest: Newest,
    last: Option<Value>,
}

impl Watcher {
    /// A watcher of a session that has not begun.
    #[must_use]
    pub fn new(form: Form) -> Self {
        Self {
            form,
            newest: Newest::default(),
            last: None,
        }
    }

    /// Takes in the next request. Returns where it does not extend the one before it, if it does not.
    ///
    /// # Errors
    /// The request carries a thought that left before.
    pub fn see(&mut self, body: Value) -> Result<Option<String>, String> {
        self.newest.see(carried(self.form, &body))?;
        let last = self.last.as_ref();
        let differs = last.and_then(|last| extends(self.form, last, &body).err());
        self.last = Some(body);
        Ok(differs)
    }
}

#[cfg(test)]
mod tests;
