//! The closed sets whose members are words in metrics, logs and headers. Owns those that no other
//! module decides by; the others stand where they are decided, such as triggers in `commit` and
//! levels in `policy`. Never makes a word of anything that a request holds.

use plimsoll_core::turn::state::MiddleError;
use plimsoll_model::{Usage, label_set};
use plimsoll_tokens::ledger::SavedParts;

use crate::upstream::RetryCause;

/// A word that stands in the source, such as the name of a provider. No request can make one.
/// Labels of metrics come from closed sets, which `label_set` declares.
pub type Label = &'static str;

label_set!(
    /// Which of the proxy's routes a request took.
    #[derive(Default)]
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
        #[default]
        Forward => "forward",
    }
);

label_set!(
    /// Where the proxy spends its own time.
    Phase {
        /// Turning bytes into items.
        Parse => "parse",
        /// Finding the head and folding the records on its path.
        Session => "session",
        /// Counting new items.
        Tokens => "tokens",
        /// Proposing, checking and deciding a pass.
        Policy => "policy",
        /// Turning marks into bytes.
        Render => "render",
        /// Reading the response and running hidden calls.
        Intercept => "intercept",
        /// Waiting for the store while the client waits too.
        Store => "store",
    }
);

label_set!(
    /// Who ended a response before its end.
    AbortSide {
        /// The client went away.
        Client => "client",
        /// The upstream cut the stream, stalled, or sent an error in it.
        Upstream => "upstream",
    }
);

label_set!(
    /// How far a response had come when it was ended.
    AbortPhase {
        /// The client had seen no byte yet.
        FirstByte => "first_byte",
        /// A hop was being passed on.
        Body => "body",
        /// A hidden hop had ended, and the next had not answered.
        BetweenHops => "between_hops",
    }
);

label_set!(
    /// Why a connection could not be accepted.
    AcceptError {
        /// The process may open no more files.
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
        /// It was idle, and another connection needed its place.
        Idle => "idle",
        /// The client did not read.
        Stalled => "stalled",
    }
);

label_set!(
    /// A side of the ledger.
    LedgerSide {
        /// What the upstream was sent, over all hops.
        Sent => "sent",
        /// What the client sent, as if it had been forwarded.
        Client => "client",
        /// What the upstream would have been sent, for turns that are only watched.
        Projected => "projected",
    }
);

label_set!(
    /// Tokens in the ledger, by what is paid for them.
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
    /// A part of what was saved. The net is what was evicted and what breakpoints saved, less what was rewritten and
    /// annotated.
    SavedPart {
        /// Everything together.
        Net => "net",
        /// What eviction saved.
        Evicted => "evicted",
        /// What was paid to write a prefix to the cache again.
        Rewritten => "rewritten",
        /// What was paid for the hidden tools and their hops.
        Annotated => "hidden",
        /// What was not paid because the proxy set breakpoints.
        Breakpoints => "breakpoints",
        /// What no cause explains. It is no part of the net.
        Unexplained => "unexplained",
    }
);

label_set!(
    /// What an upstream call is for.
    CallRole {
        /// The session's work.
        Main => "main",
        /// Only hidden calls answered it.
        Hidden => "hidden",
        /// It offers no tools: a title, a summary.
        Aside => "aside",
    }
);

label_set!(
    /// How much is known about a watched turn as it would have been if it were managed.
    Projection {
        /// Its whole past is known.
        Whole => "whole",
        /// It goes on with a conversation whose past is not known, such as after a restart.
        Anew => "anew",
        /// Its answer could not be read, so what follows builds on the turn before.
        Unread => "unread",
        /// The proxy made a mistake.
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
        /// Making a turn durable, from its hand-over until the store acknowledges it.
        Commit => "commit",
    }
);

label_set!(
    /// What a round trip to a server of the store was for.
    StoreTrip {
        /// Reading.
        Read => "read",
        /// Writing.
        Write => "write",
    }
);

label_set!(
    /// Whether the view was brought to its ceiling or below.
    Budget {
        /// The request that was sent is not over the ceiling.
        Met => "met",
        /// It is, although everything that may be evicted is evicted.
        Exceeded => "exceeded",
    }
);

label_set!(
    /// What failed when the client's own bytes were sent.
    FailedStage {
        /// The request could not be edited safely.
        Dialect => "dialect",
        /// The store could not be read in time, or at all.
        Store => "store",
        /// A view could not be turned into bytes.
        Render => "render",
        /// The proxy made a mistake and caught it.
        Panic => "panic",
        /// The upstream refused the view, so it was sent the client's own request.
        Refused => "refused",
        /// It refused the client's own request, too.
        RefusedTwice => "refused_twice",
        /// The answer could not be read.
        Intercept => "intercept",
        /// The request came in a coding that the proxy can't read.
        Ingress => "ingress",
    }
);

label_set!(
    /// Why a turn that was managed had no durable record yet when its answer ended.
    Unrecorded {
        /// The store took longer than a client should wait. The record is written later.
        Late => "late",
        /// The store refused the record.
        Failed => "failed",
        /// The answer was longer than what is recorded of one.
        Long => "long",
    }
);

label_set!(
    /// Why an upstream call was repeated.
    RetryReason {
        /// There was no connection.
        Connect => "connect",
        /// The upstream answered with a status that the configuration names.
        Status => "status",
        /// A kept connection had died while it was idle.
        Idle => "idle",
        /// A later hop failed. The client can't retry it.
        Hop => "hop",
        /// The upstream refused a breakpoint that the proxy set.
        Breakpoints => "breakpoints",
        /// The upstream seemed to refuse a view for one of its other edits.
        Edits => "edits",
        /// The upstream refused thoughts because something before them had changed.
        Thoughts => "thoughts",
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

impl TokenKind {
    /// This count of `usage`.
    #[must_use]
    pub const fn of(self, usage: &Usage) -> u64 {
        match self {
            Self::Input => usage.prompt,
            Self::Output => usage.completion,
            Self::CacheRead => usage.cached,
            Self::CacheWrite => usage.cache_write,
            Self::Reasoning => usage.reasoning,
        }
    }
}

impl From<RetryCause> for RetryReason {
    fn from(cause: RetryCause) -> Self {
        match cause {
            RetryCause::Connect => Self::Connect,
            RetryCause::Status => Self::Status,
            RetryCause::Idle => Self::Idle,
        }
    }
}

impl FailedStage {
    /// The stage in which the middle failed.
    #[must_use]
    pub const fn of(error: &MiddleError) -> Self {
        match error {
            MiddleError::Message(_) => Self::Dialect,
            MiddleError::Render(_) | MiddleError::Inject => Self::Render,
        }
    }
}

impl SavedPart {
    /// This part of `parts`.
    #[must_use]
    pub fn of(self, parts: &SavedParts) -> f64 {
        match self {
            Self::Net => parts.net(),
            Self::Evicted => parts.evicted,
            Self::Rewritten => parts.rewritten,
            Self::Annotated => parts.annotated,
            Self::Breakpoints => parts.breakpoints,
            Self::Unexplained => parts.unexplained,
        }
    }
}

impl LedgerTokens {
    /// This count of `usage`.
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

/// The name of an upstream whose host is not listed.
pub(super) const UNKNOWN_PROVIDER: Label = "custom";

/// The `gen_ai.provider.name` of an upstream's host, or `custom`. A host matches a listed domain
/// and its subdomains. The port does not count.
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

/// Whose models a provider serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Its own, as they are listed anywhere.
    Own,
    /// Those of others, with limits of its own.
    Others,
    /// Nothing is known: it may be a server on the user's own machine.
    Anything,
}

/// Whose models the provider of this name serves.
#[must_use]
pub fn serves(provider: Label) -> Serves {
    match provider {
        UNKNOWN_PROVIDER => Serves::Anything,
        "azure.ai.openai" | "groq" | "openrouter" => Serves::Others,
        _ => Serves::Own,
    }
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
