//! The response headers that tell a client about its turn. Owns their names. Never
//! touches a header of the upstream, and never says more than sizes, counts and hashes.

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::policy::{Partition, PartitionUse, Zone};
use plimsoll_core::turn::PinReport;
use plimsoll_model::PinOutcome;

use super::turn_report::{Context, TurnReport, lossy};

const SESSION: HeaderName = HeaderName::from_static("x-plimsoll-session");
const TURN: HeaderName = HeaderName::from_static("x-plimsoll-turn");
const CONTEXT_TOKENS: HeaderName = HeaderName::from_static("x-plimsoll-context-tokens");
/// How many pins the conversation has, how many of them don't hold, and how many of those that the
/// request asked for name nothing.
const PIN: HeaderName = HeaderName::from_static("x-plimsoll-pin");
const LOOP: HeaderName = HeaderName::from_static("x-plimsoll-loop");
const EVICTED_TOKENS: HeaderName = HeaderName::from_static("x-plimsoll-evicted-tokens");
const ZONE: HeaderName = HeaderName::from_static("x-plimsoll-zone");
const WINDOW_ZONE: HeaderName = HeaderName::from_static("x-plimsoll-window-zone");
/// What each partition of the window takes, and what it is allowed, in tokens.
const PARTITIONS: HeaderName = HeaderName::from_static("x-plimsoll-partitions");
const BUDGET: HeaderName = HeaderName::from_static("x-plimsoll-budget");
/// What keeps a view above its budget: parts in tokens, under names of a closed set.
const PINNED: HeaderName = HeaderName::from_static("x-plimsoll-pinned");
/// At how many tokens the upstream is known to cut prompts without a word.
const CUT: HeaderName = HeaderName::from_static("x-plimsoll-cut");
const OVERHEAD: HeaderName = HeaderName::from_static("x-plimsoll-overhead-ms");
/// The stage that failed, if the client's own bytes were forwarded for that reason.
pub const FAIL_OPEN: HeaderName = HeaderName::from_static("x-plimsoll-fail-open");

/// What in the request keeps it from being managed, if it was forwarded for that reason.
pub const UNMANAGED: HeaderName = HeaderName::from_static("x-plimsoll-unmanaged");

/// A header of the request that is named as one of the proxy's and is none.
const UNKNOWN_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-unknown-header");

/// The headers of a turn, as far as it is known when the response begins. What comes later, such as
/// a second hop or the store's wait, is in the metrics and in the log. A fact that is not known
/// gets no header.
#[must_use]
pub fn response_headers(turn: &TurnReport) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // A session's name is a short hash. If it ever held what a header can't, no header would be
    // sent.
    if let (false, Ok(session)) = (
        turn.session.is_empty(),
        HeaderValue::from_str(&turn.session),
    ) {
        headers.insert(SESSION, session);
    }
    if turn.number > 0 {
        headers.insert(TURN, turn.number.into());
    }
    if let Some(context) = &turn.context {
        context_headers(context, &mut headers);
    }
    // What is not measured has no header: a zero would say that it took no time.
    if let Some(total) = turn.overhead.total() {
        let micros = u64::try_from(total.as_micros()).unwrap_or(u64::MAX);
        let text = format!("{:.3}", lossy(micros) / 1_000.0);
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(OVERHEAD, value);
        }
    }
    if turn.repetition.is_loop() {
        headers.insert(LOOP, turn.repetition.times.into());
    }
    pin_header(&turn.pins, &mut headers);
    if let Some(at) = turn.cut {
        headers.insert(CUT, at.into());
    }
    if let Some(why) = turn.unmanaged {
        headers.insert(UNMANAGED, HeaderValue::from_static(why.name()));
    }
    if let Some(name) = &turn.unknown_header {
        headers.insert(UNKNOWN_HEADER, name.clone().into());
    }
    if let Some(stage) = turn.fail_open {
        headers.insert(FAIL_OPEN, HeaderValue::from_static(stage.name()));
    }
    headers
}

fn pin_header(pins: &PinReport, headers: &mut HeaderMap) {
    if *pins == PinReport::default() {
        return;
    }
    let parts = [
        ("pinned", pins.pinned),
        ("loosened", pins.loosened),
        ("unknown", pins.count(PinOutcome::Unknown)),
    ];
    // The first stands there in any case, so that a client sees that it was heard.
    let said = parts.iter().enumerate();
    let said = said.filter(|(at, (_, count))| *at == 0 || *count > 0);
    let said: Vec<String> = said
        .map(|(_, (name, count))| format!("{name}={count}"))
        .collect();
    if let Ok(value) = HeaderValue::try_from(said.join(", ")) {
        headers.insert(PIN, value);
    }
}

fn context_headers(context: &Context, headers: &mut HeaderMap) {
    let zone = Zone::of_ceiling(context.tokens_out, context.ceiling);
    headers.insert(CONTEXT_TOKENS, context.tokens_out.into());
    headers.insert(EVICTED_TOKENS, context.evicted.into());
    headers.insert(ZONE, HeaderValue::from_static(zone.name()));
    if let Some(window) = context.window {
        let zone = Zone::of_window(context.tokens_out, window);
        headers.insert(WINDOW_ZONE, HeaderValue::from_static(zone.name()));
    }
    if let Some(partitions) = context.partitions {
        let parts = Partition::ALL.into_iter().zip(partitions);
        let parts = parts.map(|(name, PartitionUse { used, allowed })| {
            format!("{}={used}/{allowed}", name.name())
        });
        let parts: Vec<String> = parts.collect();
        if let Ok(value) = HeaderValue::try_from(parts.join(", ")) {
            headers.insert(PARTITIONS, value);
        }
    }
    headers.insert(BUDGET, HeaderValue::from_static(context.budget.name()));
    let Some(pinned) = &context.pinned else {
        return;
    };
    // Parts of no size would only make the header longer.
    let parts = pinned.parts().into_iter().filter(|(_, tokens)| *tokens > 0);
    let parts: Vec<String> = parts
        .map(|(name, tokens)| format!("{name}={tokens}"))
        .collect();
    if let Ok(value) = HeaderValue::try_from(parts.join(", ")) {
        headers.insert(PINNED, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;

    use super::*;
    use crate::record::{Budget, FailedStage, Phase, Route};
    use plimsoll_core::policy::Pinned;
    use plimsoll_core::session::view::Parts;

    #[test]
    fn every_fact_becomes_its_header() {
        let mut turn = TurnReport::new(Route::Chat, Method::POST);
        turn.session = "0123456789abcdef".into();
        turn.number = 17;
        turn.context = Some(Context {
            tokens_in: 120_000,
            tokens_out: 61_000,
            evicted: 59_000,
            ceiling: 80_000,
            window: Some(128_000),
            floor: 56_000,
            parts: Parts::default(),
            partitions: None,
            budget: Budget::Met,
            pinned: None,
        });
        turn.overhead
            .add(Phase::Parse, Duration::from_micros(1_234));
        turn.fail_open = Some(FailedStage::Store);
        turn.cut = Some(4_096);
        let headers = response_headers(&turn);
        let expect = [
            ("x-plimsoll-session", "0123456789abcdef"),
            ("x-plimsoll-turn", "17"),
            ("x-plimsoll-context-tokens", "61000"),
            ("x-plimsoll-evicted-tokens", "59000"),
            ("x-plimsoll-zone", "yellow"),
            ("x-plimsoll-window-zone", "green"),
            ("x-plimsoll-budget", "met"),
            ("x-plimsoll-overhead-ms", "1.234"),
            ("x-plimsoll-fail-open", "store"),
            ("x-plimsoll-cut", "4096"),
        ];
        for (name, value) in expect {
            assert_eq!(
                headers.get(name).map(HeaderValue::as_bytes),
                Some(value.as_bytes()),
                "{name}"
            );
        }
        assert_eq!(headers.len(), expect.len());
    }

    #[test]
    fn what_is_pinned_is_said_part_by_part() {
        let mut turn = TurnReport::new(Route::Responses, Method::POST);
        turn.context = Some(Context {
            tokens_in: 9_000,
            tokens_out: 9_000,
            evicted: 0,
            ceiling: 8_000,
            window: None,
            floor: 5_000,
            parts: Parts::default(),
            partitions: None,
            budget: Budget::Exceeded,
            pinned: Some(Pinned {
                user: 1_200,
                opaque: 7_800,
                ..Pinned::default()
            }),
        });
        let headers = response_headers(&turn);
        assert_eq!(headers["x-plimsoll-pinned"], "user=1200, opaque=7800");
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let mut turn = TurnReport::new(Route::Forward, Method::GET);
        assert!(response_headers(&turn).is_empty());
        turn.session = "two\nlines".into();
        assert!(response_headers(&turn).is_empty());
    }
}
