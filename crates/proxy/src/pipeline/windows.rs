//! How much models take, as their upstream says: when it is asked, when it refuses a prompt as too long, and when it cuts
//! one without a word. Owns when to ask, and keeps what was said in memory until the process ends. No turn ever waits for
//! an answer, and none passes from one tenant to another.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use plimsoll_core::turn::silent_cut;
use plimsoll_model::TenantId;
use plimsoll_tokens::Family;
use quick_cache::unsync::Cache;
use reqwest::Url;

use crate::record::Serves;
use crate::upstream::{ListingError, MIN_WINDOW, UpstreamClient};

/// How many pairs of a tenant and a model are remembered. Those used longest ago are dropped first.
const MODELS_HELD: usize = 4_096;
/// How many characters of a model's name are kept.
const NAME_CHARS: usize = 128;
/// How long no new question is asked after the last one, in milliseconds.
const ASK_INTERVAL_MS: u64 = 10 * 60 * 1_000;
/// How many questions run at once. A list of models may be long and is read whole.
const QUESTIONS_AT_ONCE: usize = 2;

/// A model of a tenant.
type ModelKey = (TenantId, String);

/// What an upstream has said of a model.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// When it was asked last, in milliseconds since 1970.
    asked: Option<u64>,
    /// The size of the context, as its last readable answer says.
    context: Option<u32>,
    /// The least size that a refusal has named, or at which a prompt was cut.
    refused: Option<Limit>,
}

/// The size that a refusal names, or at which prompts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    size: u32,
    /// Whether it is that of prompt and answer together. If not, it is the prompt's.
    whole: bool,
    /// Whether prompts are cut there without a word.
    cut: bool,
}

/// That prompts are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// At how many tokens.
    pub at: u32,
    /// Whether that was not known.
    pub is_new: bool,
}

/// What upstreams said about their models.
pub struct Windows {
    /// Whether upstreams are asked.
    asks: bool,
    /// Whose models the upstream serves.
    serves: Serves,
    known: Mutex<Cache<ModelKey, Said>>,
    asking: Arc<tokio::sync::Semaphore>,
}

impl Windows {
    /// Knows nothing yet. `asks` says whether upstreams are asked, and `serves` whose models they serve.
    #[must_use]
    pub fn new(asks: bool, serves: Serves) -> Self {
        Self {
            asks,
            serves,
            known: Mutex::new(Cache::new(MODELS_HELD)),
            asking: Arc::new(tokio::sync::Semaphore::new(QUESTIONS_AT_ONCE)),
        }
    }

    /// Whether the upstream is asked about a model.
    pub(super) fn asks_about(&self, family: &Family) -> bool {
        self.asks && self.beats(family)
    }

    /// Whether the upstream's word counts more than what a table says of a model. Anybody serves any model under a
    /// well-known name, and with a smaller context.
    fn beats(&self, family: &Family) -> bool {
        family.is_unmeasured() || !(self.serves == Serves::Own || family.by_user)
    }

    /// A model's family, with the context that the tenant's upstream named, unless the table knows better.
    pub(super) fn told(&self, family: Family, tenant: TenantId, model: &str) -> Family {
        let Some(said) = self.known.lock().get(&key(tenant, model)).copied() else {
            return family;
        };
        let context = said.context.filter(|_| self.beats(&family));
        let family = match context {
            None => family,
            context => Family {
                window: None,
                context,
                ..family
            },
        };
        let cut = said.refused.filter(|limit| limit.cut);
        let family = Family {
            cut: cut.map(|limit| limit.size),
            ..family
        };
        // Whatever is said elsewhere, more was refused.
        let takes = family.window.or(family.context);
        match said.refused {
            Some(Limit { size, whole, .. }) if takes.is_none_or(|takes| takes > size) => Family {
                window: Some(size).filter(|_| !whole),
                context: Some(size).filter(|_| whole),
                ..family
            },
            _ => family,
        }
    }

    /// Notes the size that an upstream named when it refused a prompt as too long. `whole` says that it is the size of
    /// prompt and answer together. It holds until the upstream tells another context that is larger.
    pub(super) fn refused(&self, tenant: TenantId, model: &str, size: u32, whole: bool) {
        if size >= MIN_WINDOW {
            self.note(key(tenant, model), |said| {
                let least = said.refused.filter(|least| least.size <= size);
                let cut = false;
                said.refused = least.or(Some(Limit { size, whole, cut }));
            });
        }
    }

    /// Notes the size at which the upstream's reports stay while prompts grow. If that is the size of a window, or half of
    /// it, prompts are cut there. It then is a limit as one that a refusal names: of prompt and answer together, which
    /// such servers keep in one context, or of the prompt alone where it is half of that. `None` if it is no such size, or if the upstream is a vendor, who refuses.
    pub(super) fn cut(
        &self,
        tenant: TenantId,
        (model, table): (&str, &Family),
        size: u64,
    ) -> Option<Cut> {
        let size = u32::try_from(size)
            .ok()
            .filter(|size| *size >= MIN_WINDOW)?;
        if self.serves == Serves::Own {
            return None;
        }
        let mut cut = None;
        self.note(key(tenant, model), |said| {
            let refused = said.refused.map(|limit| limit.size);
            let stated = [table.window, table.context, said.context, refused];
            let Some(of) = cut_of(size, stated.into_iter().flatten()) else {
                return;
            };
            let known = |limit: &Limit| limit.cut && is_near(size, limit.size);
            let is_new = !said.refused.as_ref().is_some_and(known);
            if is_new {
                let least = said
                    .refused
                    .filter(|least| !least.cut && least.size <= size);
                // A server that keeps half of its window for the answer has the other half for the prompt alone.
                let whole = least.map_or(of == CutOf::Window, |least| least.whole);
                let size = least.map_or(size, |least| least.size);
                said.refused = Some(Limit {
                    size,
                    whole,
                    cut: true,
                });
            }
            cut = said.refused.map(|limit| Cut {
                at: limit.size,
                is_new,
            });
        });
        cut
    }

    /// Takes in what the upstream answered. A model that was loaded anew with more takes more.
    fn learn(&self, key: ModelKey, context: Option<u32>) {
        self.note(key, |said| {
            let grown = context.filter(|_| said.context != context);
            let holds = |limit: &Limit| grown.is_none_or(|grown| grown <= limit.size);
            said.refused = said.refused.filter(holds);
            said.context = context;
        });
    }

    /// Whether it is time to ask. If so, it is not time again for a while.
    fn is_due(&self, key: &ModelKey, now: u64) -> bool {
        let mut known = self.known.lock();
        let said = known.get(key).copied().unwrap_or_default();
        let waited = |asked| now.saturating_sub(asked) >= ASK_INTERVAL_MS;
        let due = said.asked.is_none_or(waited);
        if due {
            let asked = Some(now);
            known.insert(key.clone(), Said { asked, ..said });
        }
        due
    }

    fn note(&self, key: ModelKey, change: impl FnOnce(&mut Said)) {
        let mut known = self.known.lock();
        let mut said = known.get(&key).copied().unwrap_or_default();
        change(&mut said);
        known.insert(key, said);
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
        let local = self.serves == Serves::Anything;
        let (upstream, windows) = (upstream.clone(), Arc::clone(self));
        tokio::spawn(async move {
            let said = upstream.context_of(&url, &headers, &key.1, local).await;
            drop(held);
            match said {
                Ok(context) => windows.learn(key, context),
                Err(error) => unknown(&key.1, &error),
            }
        });
    }
}

/// What a server keeps of a prompt that it cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutOf {
    /// As much as its window holds.
    Window,
    /// Half of that.
    Half,
}

/// What a size at which prompts are cut is of a window. Where nobody states one it is a power of two: what servers that
/// cut load by themselves (2,048 and 4,096 tokens; 32,768 and 262,144 with more memory), and nearly always what people
/// set. `None` if it is neither.
fn cut_of(size: u32, stated: impl Iterator<Item = u32>) -> Option<CutOf> {
    let stated: Vec<u32> = stated.collect();
    let is = |share: u32| stated.iter().any(|window| is_near(size, window / share));
    // From 1,024 to 1,048,576.
    let usual = || (10..=20).any(|bits| is_near(size, 1 << bits));
    match (is(1), is(2)) {
        (false, true) => Some(CutOf::Half),
        (true, _) => Some(CutOf::Window),
        (false, false) => usual().then_some(CutOf::Window),
    }
}

/// Whether a size is this one. A server may set a few tokens apart.
fn is_near(size: u32, window: u32) -> bool {
    silent_cut::stays(size.into(), window.into())
}

fn key(tenant: TenantId, model: &str) -> ModelKey {
    (tenant, model.chars().take(NAME_CHARS).collect())
}

/// Notes that nothing was learned. What was known stays.
fn unknown(model: &str, error: &ListingError) {
    tracing::debug!(model, %error, "the upstream does not say how much the model takes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::Digest;
    use plimsoll_tokens::Models;

    const ONE: TenantId = TenantId(Digest([7; 32]));
    const OTHER: TenantId = TenantId(Digest([8; 32]));

    fn says(windows: &Windows, model: &str, context: u32) {
        windows.learn(key(ONE, model), Some(context));
    }

    fn takes(windows: &Windows, tenant: TenantId, model: &str) -> (Option<u32>, Option<u32>) {
        let family = Models::builtin().family(model).clone();
        let family = windows.told(family, tenant, model);
        (family.window, family.context)
    }

    #[test]
    fn what_was_said_is_the_tenants_and_beats_the_table_unless_the_vendor_is_asked() {
        let table = takes(&Windows::new(true, Serves::Own), ONE, "gpt-4o");
        for serves in [Serves::Own, Serves::Others, Serves::Anything] {
            let windows = Windows::new(true, serves);
            says(&windows, "m", 8_192);
            says(&windows, "gpt-4o", 8_192);
            let own = (None, Some(8_192));
            assert_eq!(takes(&windows, ONE, "m"), own);
            let known = if serves == Serves::Own { table } else { own };
            assert_eq!(takes(&windows, ONE, "gpt-4o"), known);
            assert_eq!(takes(&windows, ONE, "n"), (None, None));
            assert_eq!(takes(&windows, OTHER, "m"), (None, None));
        }
        // What the user's own table says stands.
        let windows = Windows::new(true, Serves::Anything);
        says(&windows, "gpt-4o", 8_192);
        let own = "[[family]]\nname = \"own\"\nmodels = [\"gpt-4o\"]\nwindow = 9_000";
        let models = Models::builtin()
            .clone()
            .overlay(Models::parse(own).unwrap());
        let family = windows.told(models.family("gpt-4o").clone(), ONE, "gpt-4o");
        assert_eq!(family.window, Some(9_000));
    }

    #[test]
    fn what_was_refused_holds_whatever_else_is_said() {
        let windows = Windows::new(false, Serves::Own);
        windows.refused(ONE, "gpt-4o", 16_384, true);
        windows.refused(ONE, "gpt-4o", 20_000, true);
        // No model takes as little: that is the number of something else.
        windows.refused(ONE, "gpt-4o", 12, true);
        assert_eq!(takes(&windows, ONE, "gpt-4o"), (None, Some(16_384)));
        says(&windows, "m", 8_192);
        windows.refused(ONE, "m", 16_384, true);
        assert_eq!(takes(&windows, ONE, "m"), (None, Some(8_192)));
        // Where it is the prompt's alone, the answer takes nothing of it.
        windows.refused(ONE, "n", 200_000, false);
        assert_eq!(takes(&windows, ONE, "n"), (Some(200_000), None));
        // The list says as before, and then that the model was loaded anew.
        let windows = Windows::new(true, Serves::Anything);
        says(&windows, "m", 131_072);
        windows.refused(ONE, "m", 4_096, true);
        says(&windows, "m", 131_072);
        assert_eq!(takes(&windows, ONE, "m"), (None, Some(4_096)));
        says(&windows, "m", 32_768);
        assert_eq!(takes(&windows, ONE, "m"), (None, Some(32_768)));
    }

    #[test]
    fn a_size_at_which_prompts_are_cut_holds_as_one_that_was_refused() {
        let windows = Windows::new(true, Serves::Anything);
        let nobody = Family::default();
        let cut = |size| windows.cut(ONE, ("m", &nobody), size);
        let at = |at, is_new| Some(Cut { at, is_new });
        // No window has such a size, unless somebody says so.
        for size in [0, 512, 5_000, 12_288, 6_144] {
            assert_eq!(cut(size), None, "{size}");
        }
        says(&windows, "m", 12_288);
        assert_eq!(cut(6_146), at(6_146, true));
        assert_eq!(cut(6_144), at(6_146, false));
        assert_eq!(takes(&windows, ONE, "m"), (Some(6_146), None));
        let told = |model| windows.told(Family::default(), ONE, model).cut;
        assert_eq!((told("m"), told("n")), (Some(6_146), None));
        // The model was loaded anew.
        says(&windows, "m", 32_768);
        assert_eq!(
            (told("m"), takes(&windows, ONE, "m").1),
            (None, Some(32_768))
        );
        assert_eq!(cut(16_387), at(16_387, true));
        assert_eq!(cut(32_760), at(32_760, true));
        // A refusal has named less.
        windows.refused(ONE, "m", 8_192, false);
        assert_eq!(cut(16_380), at(8_192, true));
        // What a table says is a window, too.
        let table = Family {
            window: Some(20_000),
            ..Family::default()
        };
        assert_eq!(windows.cut(ONE, ("t", &table), 10_001), at(10_001, true));
        // A vendor refuses what is too long.
        let windows = Windows::new(true, Serves::Own);
        assert_eq!(windows.cut(ONE, ("m", &nobody), 4_096), None);
    }

    #[test]
    fn a_question_is_asked_once_in_a_while_and_its_answer_lasts() {
        let windows = Windows::new(true, Serves::Own);
        let key = key(ONE, "m");
        assert!(windows.is_due(&key, 5));
        assert!(!windows.is_due(&key, 5 + ASK_INTERVAL_MS - 1));
        says(&windows, "m", 8_192);
        assert!(!windows.is_due(&key, 5 + ASK_INTERVAL_MS - 1));
        assert!(windows.is_due(&key, 5 + ASK_INTERVAL_MS));
        // What fails then takes nothing away.
        let family = windows.told(Family::default(), ONE, "m");
        assert_eq!(family.context, Some(8_192));
    }
}
