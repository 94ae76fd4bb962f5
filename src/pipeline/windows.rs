//! How much models take that no table lists: what their upstream said when it was asked. Owns when
//! to ask, and keeps the answers in memory until the process ends. No turn ever waits for an
//! answer, and no answer passes from one tenant to another.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use reqwest::Url;

use crate::model::TenantId;
use crate::tokens::Family;
use crate::upstream::{ListingError, UpstreamClient};

/// How many pairs of a tenant and a model are remembered. Those used longest ago are dropped first.
const REMEMBERED: usize = 4_096;
/// How many characters of a model's name are kept.
const NAME: usize = 128;
/// How long no new question is asked after the last one, in milliseconds.
const EVERY: u64 = 10 * 60 * 1_000;
/// How many questions run at once. A list of models may be long and is read whole.
const AT_ONCE: usize = 2;

/// A model of a tenant.
type ModelKey = (TenantId, String);

/// What became of the last question.
#[derive(Clone, Copy, Debug)]
struct WindowAnswer {
    /// When it was asked, in milliseconds since 1970.
    asked: u64,
    /// The size of the context, as the last readable list said.
    context: Option<u32>,
}

/// What upstreams said about their models.
pub struct Windows {
    /// Whether upstreams are asked.
    asks: bool,
    known: Mutex<Cache<ModelKey, WindowAnswer>>,
    asking: Arc<tokio::sync::Semaphore>,
}

impl Windows {
    /// Knows nothing yet. `asks` says whether upstreams are asked.
    #[must_use]
    pub fn new(asks: bool) -> Self {
        Self {
            asks,
            known: Mutex::new(Cache::new(REMEMBERED)),
            asking: Arc::new(tokio::sync::Semaphore::new(AT_ONCE)),
        }
    }

    /// A model's family. If the table has no context for it, the family gets the one that the
    /// tenant's upstream named.
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

    /// Whether it is time to ask. If so, it is not time again for a while.
    fn is_due(&self, key: &ModelKey, now: u64) -> bool {
        let mut known = self.known.lock();
        let before = known.get(key).copied();
        let due = before.is_none_or(|told| now.saturating_sub(told.asked) >= EVERY);
        if due {
            let context = before.and_then(|told| told.context);
            known.insert(
                key.clone(),
                WindowAnswer {
                    asked: now,
                    context,
                },
            );
        }
        due
    }

    /// Takes in what the upstream said.
    fn learn(&self, key: ModelKey, now: u64, context: Option<u32>) {
        let asked = now;
        self.known
            .lock()
            .insert(key, WindowAnswer { asked, context });
    }
}

/// A question to an upstream.
pub(super) struct Question {
    /// The address of the turn that it accompanies.
    pub url: Url,
    /// The headers of that turn, with the credentials that were accepted.
    pub headers: HeaderMap,
    /// The tenant of that turn.
    pub tenant: TenantId,
    /// The name of the model.
    pub model: String,
    /// Now, in milliseconds since 1970.
    pub now: u64,
}

impl Windows {
    /// Asks an upstream about a model, if it is time to.
    pub(super) fn ask(self: &Arc<Self>, upstream: &UpstreamClient, question: Question) {
        if !self.asks {
            return;
        }
        // If enough questions are running, a later turn asks.
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

fn key(tenant: TenantId, model: &str) -> ModelKey {
    (tenant, model.chars().take(NAME).collect())
}

/// Notes that nothing was learned. What was known stays.
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
