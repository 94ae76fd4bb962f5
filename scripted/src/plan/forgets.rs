//! Actions whose start leaves out what they depend on, as models leave it out. Owns the choice of them. Its
//! choices are apart from all others, so that a plan without any is what it would be otherwise.

use serde_json::Value;

use crate::rng::Rng;
use crate::trace::Recording;

/// Chooses such actions. Any value does; a fixed one makes every run equal.
const SEED: u64 = 3;

/// A model that forgets at times.
pub(super) struct Forgets {
    rng: Rng,
    percent: usize,
}

impl Forgets {
    /// One that forgets so many of a hundred.
    pub(super) fn new(recording: &Recording, percent: usize) -> Self {
        Self {
            rng: Rng::from_text(&recording.id, SEED),
            percent,
        }
    }

    /// A start as it is sent.
    pub(super) fn applied(&mut self, mut start: Value) -> Value {
        let forgets = start.get("dependencies").is_some() && self.rng.chance(self.percent);
        if let (true, Some(fields)) = (forgets, start.as_object_mut()) {
            fields.remove("dependencies");
        }
        start
    }
}
