//! How much models take of which no table says so: what their upstream said when it was asked. Owns
//! when that is, and what was said, in memory until the process ends. No turn ever waits for it, and
//! none of it passes from one tenant to another.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use reqwest::Url;

use crate::model::TenantId;
use crate::tokens::Family;
use crate::upstream::{Client, ListingError};

/// Tenants and models of which something is remembered: those used longest ago go first.
const REMEMBERED: usize = 4_096;
/// Bytes of a model's name that tell it from others.
const NAME: usize = 128;
/// How long an answer, or its absence, is not asked for again, in milliseconds.
const EVERY: u64 = 10 * 60 * 1_000;
/// Questions at once: a list may be long, and is read whole.
const AT_ONCE: usize = 2;

/// Whose model.
type Key = (TenantId, String);

/// What became of the newest question.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// When it was asked, in milliseconds since 1970.
    asked: u64,
    /// The size of the context, by the newest list that could be read.
    context: Option<u32>,
}

/// What upstreams said of their models.
pub struct Windows {
    /// Whether they are asked.
    asks: bool,
    known: Mutex<Cache<Key, Told>>,
    asking: Arc<tokio::sync::Semaphore>,
}

impl Windows {
    /// Nothing known yet.
    #[must_use]
    pub fn new(asks: bool) -> Self {
        Self {
            asks,
            known: Mutex::new(Cache::new(REMEMBERED)),
            asking: Arc::new(tokio::sync::Semaphore::new(AT_ONCE)),
        }
    }

    /// A model's family, with the context that its upstream told a tenant of where the table has none.
    pub(super) fn told(&self, family: Family, tenant: TenantId, model: &str) -> Family {
        if !self.asks || !family.is_unmeasured() {
            return family;
        }
        let told = self.known.lock().get(&key(tenant, model)).copied();
        Family {
            context: told.and_then(|told| told.context),
            ..family
        }
    }

    /// Whether it is time to ask; it is not again for a while then.
    fn is_due(&self, key: &Key, now: u64) -> bool {
        let mut known = self.known.lock();
        let before = known.get(key).copied();
        let due = before.is_none_or(|told| now.saturating_sub(told.asked) >= EVERY);
        if due {
            let context = before.and_then(|told| told.context);
            known.insert(
                key.clone(),
                Told {
                    asked: now,
                    context,
                },
            );
        }
        due
    }

    /// Takes in what the upstream said.
    fn learn(&self, key: Key, now: u64, context: Option<u32>) {
        let asked = now;
        self.known.lock().insert(key, Told { asked, context });
    }
}

/// A question to an upstream.
pub(super) struct Question {
    /// The address of the request that it was asked beside.
    pub url: Url,
    /// Its headers, with the credentials that were accepted.
    pub headers: HeaderMap,
    /// Whose model it is.
    pub tenant: TenantId,
    /// The model.
    pub model: String,
    /// Now, in milliseconds since 1970.
    pub now: u64,
}

impl Windows {
    /// Asks an upstream what it says of a model, where it is time to.
    pub(super) fn ask(self: &Arc<Self>, upstream: &Client, question: Question) {
        if !self.asks {
            return;
        }
        // Where others are being asked it is done with a later turn.
        let Ok(held) = Arc::clone(&self.asking).try_acquire_owned() else {
            return;
        };
        let Question {
            url,
            headers,
            tenant,
            model,
            now,
        } = question;
        let key = key(tenant, &model);
        if !self.is_due(&key, now) {
            return;
        }
        let (upstream, windows) = (upstream.clone(), Arc::clone(self));
        tokio::spawn(async move {
            let said = upstream.context_of(&url, headers, &key.1).await;
            drop(held);
            match said {
                Ok(context) => windows.learn(key, now, context),
                Err(error) => unknown(&key.1, &error),
            }
        });
    }
}

fn key(tenant: TenantId, model: &str) -> Key {
    (tenant, model.chars().take(NAME).collect())
}

/// Nothing is learned, and what was known stays.
fn unknown(model: &str, error: &ListingError) {
    tracing::debug!(model, %error, "the upstream does not say how much the model takes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Digest;
    use crate::tokens::Models;

    const ONE: TenantId = TenantId(Digest([7; 32]));
    const OTHER: TenantId = TenantId(Digest([8; 32]));

    #[test]
    fn what_was_said_is_the_tenants_and_never_against_the_table() {
        let windows = Windows::new(true);
        windows.learn(key(ONE, "m"), 0, Some(8_192));
        windows.learn(key(ONE, "gpt-4o"), 0, Some(8_192));
        let context = |tenant, model: &str| {
            let family = Models::builtin().family(model).clone();
            windows.told(family, tenant, model).context
        };
        assert_eq!(context(ONE, "m"), Some(8_192));
        assert_eq!(context(ONE, "gpt-4o"), None);
        assert_eq!(context(ONE, "n"), None);
        assert_eq!(context(OTHER, "m"), None);
    }

    #[test]
    fn a_question_is_asked_once_in_a_while_and_its_answer_lasts() {
        let windows = Windows::new(true);
        let key = key(ONE, "m");
        assert!(windows.is_due(&key, 5));
        assert!(!windows.is_due(&key, 5 + EVERY - 1));
        windows.learn(key.clone(), 5, Some(8_192));
        assert!(!windows.is_due(&key, 5 + EVERY - 1));
        assert!(windows.is_due(&key, 5 + EVERY));
        // What fails then takes nothing away.
        let family = windows.told(Family::default(), ONE, "m");
        assert_eq!(family.context, Some(8_192));
    }
}
