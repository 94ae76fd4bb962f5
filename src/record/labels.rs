//! The closed sets whose members are words in metrics, logs and headers. It never makes a word of
//! anything that a request holds. Sets that another module decides by are declared there: triggers
//! in `commit`, levels in `policy`, and so on.

use crate::model::{Usage, label_set};
use crate::tokens::Cost;
use crate::tokens::ledger::SavedParts;
use crate::turn::state::MiddleError;

use super::turn::Turn;

/// A word that stands in the source, such as a provider's name: no request can make one. What a
/// metric has as a label is a closed set of its own, declared by `label_set`.
pub type Label = &'static str;

label_set!(
    /// Which of the proxy's routes a request took.
    Route {
        /// `POST …/chat/completions`, managed.
        Chat => "chat_completions",
        /// `POST …/responses`, managed.
        Responses => "responses",
        /// `POST …/messages`, managed.
        Messages => "messages",
        /// `POST …/messages/count_tokens`: the managed view is counted by the upstream.
        CountTokens => "count_tokens",
        /// Everything else under the base URL, forwarded as it is.
        Forward => "forward",
    }
);

label_set!(
    /// Where the proxy's own time goes.
    Phase {
        /// Bytes to items.
        Parse => "parse",
        /// Finding the head and folding the records on its path.
        Session => "session",
        /// Counting new items.
        Tokens => "tokens",
        /// Proposing, checking and deciding a pass.
        Policy => "policy",
        /// Marks to bytes.
        Render => "render",
        /// Reading the response and running hidden calls.
        Intercept => "intercept",
        /// Waiting for the store where the client waited too.
        Store => "store",
    }
);

label_set!(
    /// Who ended a stream before its end.
    Side {
        /// The client went away.
        Client => "client",
        /// The upstream cut the stream, stalled, or sent an error in it.
        Upstream => "upstream",
    }
);

label_set!(
    /// How far a stream had come when it was ended.
    AbortPhase {
        /// Before the client had seen any byte.
        FirstByte => "first_byte",
        /// While a hop was being passed on.
        Body => "body",
        /// After a hidden hop, before the next one answered.
        BetweenHops => "between_hops",
    }
);

label_set!(
    /// Why a connection could not be accepted.
    AcceptError {
        /// No file may be opened any more.
        Descriptors => "descriptors",
        /// The system has no memory for it.
        Memory => "memory",
        /// Anything else, such as a client that left at once.
        Other => "other",
    }
);

label_set!(
    /// Why an agent's connection was cut.
    ConnectionCut {
        /// It was idle, and another needed its place.
        Idle => "idle",
        /// Its client did not read.
        Stalled => "stalled",
    }
);

label_set!(
    /// What a token was paid for.
    CostKind {
        /// Prompt tokens at the plain price.
        Input => "input",
        /// Prompt tokens read from the provider's cache.
        CacheRead => "cache_read",
        /// Prompt tokens written to the provider's cache.
        CacheWrite => "cache_write",
        /// Completion tokens, the reasoning ones included.
        Output => "output",
    }
);

label_set!(
    /// A side of the ledger.
    LedgerSide {
        /// What the upstream was sent, hop by hop.
        Sent => "sent",
        /// What the client sent, had it gone up as it was.
        Client => "client",
        /// What the upstream would have been sent, where turns are only watched.
        Projected => "projected",
    }
);

label_set!(
    /// Tokens of the ledger.
    LedgerTokens {
        /// Prompt tokens, those of the cache included.
        Input => "input",
        /// Prompt tokens read from the provider's cache.
        CacheRead => "cache_read",
        /// Prompt tokens written to the provider's cache.
        CacheWrite => "cache_write",
        /// Completion tokens.
        Output => "output",
    }
);

label_set!(
    /// A part of what was saved: the net is what was evicted, less the other two.
    SavedPart {
        /// All of it.
        Net => "net",
        /// What was not paid for what is out of the view.
        Evicted => "evicted",
        /// What was paid to write a prefix again.
        Rewritten => "rewritten",
        /// What was paid for the hidden tools and their hops.
        Annotated => "annotated",
    }
);

label_set!(
    /// How far it is known what a turn that is only watched would have come to.
    Projection {
        /// All that went before it is known.
        Whole => "whole",
        /// It goes on with a conversation of which nothing was seen before: as after a restart.
        Anew => "anew",
        /// Its answer could not be read, so that what follows stands on the turn before.
        Unread => "unread",
        /// A mistake of ours.
        Failed => "failed",
    }
);

label_set!(
    /// An operation of the store.
    StoreOp {
        /// Looking up which records a key leads to.
        Links => "links",
        /// Reading records and stored messages.
        Blobs => "blobs",
        /// Making a turn durable, from hand-over to acknowledgement.
        Commit => "commit",
    }
);

label_set!(
    /// Whether the view was brought under the ceiling.
    Budget {
        /// The request that was sent holds at most the ceiling.
        Met => "met",
        /// It does not, and everything that may be evicted is.
        Exceeded => "exceeded",
    }
);

label_set!(
    /// What failed where the client's own bytes were sent, or a turn was not recorded.
    Stage {
        /// The request could not be edited safely.
        Dialect => "dialect",
        /// The store could not be read, or not in time.
        Store => "store",
        /// The eviction broke one of its own rules.
        Policy => "policy",
        /// A view could not be turned into bytes.
        Render => "render",
        /// A mistake of ours.
        Panic => "panic",
        /// The upstream refused our body, and was sent the client's.
        Refused => "refused",
        /// The same, and the client's was refused, too.
        RefusedTwice => "refused_twice",
        /// The answer could not be read.
        Intercept => "intercept",
        /// The turn's record is late, or could not be written.
        Record => "record",
        /// The request came in a coding that we can't read.
        Ingress => "ingress",
    }
);

label_set!(
    /// Why an upstream call was made again.
    RetryReason {
        /// No connection stood.
        Connect => "connect",
        /// The upstream answered with a status that the configuration retries.
        Status => "status",
        /// A later hop failed, which the client can't retry.
        Hop => "hop",
        /// The upstream refused a breakpoint of ours.
        Breakpoints => "breakpoints",
        /// The upstream refused a view for another edit, as it seemed.
        Edits => "edits",
    }
);

label_set!(
    /// Tokens as providers count them.
    TokenKind {
        /// Prompt tokens, those of the cache included.
        Input => "input",
        /// Completion tokens, the reasoning ones included.
        Output => "output",
        /// Prompt tokens read from the provider's cache.
        CacheRead => "cache_read",
        /// Prompt tokens written to the provider's cache.
        CacheWrite => "cache_write",
        /// Completion tokens of reasoning.
        Reasoning => "reasoning",
    }
);

impl Stage {
    /// The stage in which the middle failed.
    #[must_use]
    pub const fn of(error: &MiddleError) -> Self {
        match error {
            MiddleError::Message(_) => Self::Dialect,
            MiddleError::Plan(_) => Self::Policy,
            MiddleError::Render(_) | MiddleError::Inject => Self::Render,
        }
    }
}

impl SavedPart {
    /// The part among all.
    #[must_use]
    pub fn of(self, parts: &SavedParts) -> f64 {
        match self {
            Self::Net => parts.net(),
            Self::Evicted => parts.evicted,
            Self::Rewritten => parts.rewritten,
            Self::Annotated => parts.annotated,
        }
    }
}

impl LedgerTokens {
    /// The count among all.
    #[must_use]
    pub const fn of(self, usage: &Usage) -> u64 {
        match self {
            Self::Input => usage.prompt,
            Self::CacheRead => usage.cached,
            Self::CacheWrite => usage.cache_write,
            Self::Output => usage.completion,
        }
    }
}

impl LedgerSide {
    /// The tokens and the cost of the side in a turn, and what a unit of that costs in US dollars.
    #[must_use]
    pub fn of(self, turn: &Turn) -> Option<(&Usage, &Cost, Option<f64>)> {
        let account = match self {
            Self::Sent | Self::Client => turn.ledger.as_ref()?,
            Self::Projected => turn.projected.as_ref()?,
        };
        let (usage, cost) = match self {
            Self::Sent | Self::Projected => (&account.sent, &account.sent_cost),
            Self::Client => (&account.client, &account.client_cost),
        };
        Some((usage, cost, account.usd))
    }
}

/// What an upstream is called whose host is not listed.
pub(super) const UNKNOWN_PROVIDER: Label = "custom";

/// The provider of an upstream host by its `gen_ai.provider.name`, else `custom`. A host ends in
/// the listed domain or is it; ports don't count.
#[must_use]
pub fn provider_name(host: &str) -> Label {
    const KNOWN: &[(&str, Label)] = &[
        ("openai.com", "openai"),
        ("openai.azure.com", "azure.ai.openai"),
        ("anthropic.com", "anthropic"),
        ("deepseek.com", "deepseek"),
        ("moonshot.ai", "moonshot_ai"),
        ("moonshot.cn", "moonshot_ai"),
        ("groq.com", "groq"),
        ("mistral.ai", "mistral_ai"),
        ("x.ai", "x_ai"),
        ("googleapis.com", "gcp.gen_ai"),
        ("perplexity.ai", "perplexity"),
        ("openrouter.ai", "openrouter"),
    ];
    let host = host.split(':').next().unwrap_or(host).to_ascii_lowercase();
    let matches = |domain: &str| {
        host.strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    KNOWN
        .iter()
        .find(|(domain, _)| matches(domain))
        .map_or(UNKNOWN_PROVIDER, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_known_by_their_domain() {
        for (host, expect) in [
            ("api.openai.com", "openai"),
            ("API.OpenAI.com:443", "openai"),
            ("my.openai.azure.com", "azure.ai.openai"),
            ("x.ai", "x_ai"),
            ("api.x.ai", "x_ai"),
            ("notx.ai", "custom"),
            ("openai.com.evil.test", "custom"),
            ("127.0.0.1:8080", "custom"),
            ("", "custom"),
        ] {
            assert_eq!(provider_name(host), expect, "{host}");
        }
    }
}
