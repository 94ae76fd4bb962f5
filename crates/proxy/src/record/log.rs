//! One structured line for each finished turn, with the `gen_ai.*` field names of OpenTelemetry
//! where there are such. Owns the names of the fields. Never holds content, tool arguments or keys, nor of headers more
//! than the ids of requests; sessions and tenants are short hashes.

use std::time::Duration;

use http::StatusCode;
use plimsoll_core::turn::Mode;
use plimsoll_model::GuideReason;
use plimsoll_tokens::ledger::Account;
use plimsoll_wire::request::Unmanaged;
use tracing::Level;

use super::labels::{Budget, CallRole, FailedStage, Projection, SavedPart, Unrecorded};
use super::turn_report::TurnReport;

/// Names of models and requests come from the client and the upstream. Longer ones are cut.
const NAME_LIMIT: usize = 128;

// The level of an event is part of its static description, so a macro writes the call twice.
macro_rules! turn_event {
    ($level:expr, $turn:expr) => {{
        let turn: &TurnReport = $turn;
        let context = turn.context.as_ref();
        let usage = turn.usage();
        // A watched turn saved nothing.
        let saved = Saved(turn.ledger.as_ref().filter(|_| turn.projected.is_none()));
        let projected = Saved(turn.projected.as_ref());
        tracing::event!(
            target: "plimsoll::turn",
            $level,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = turn.provider,
            gen_ai.request.model = name(&turn.model),
            gen_ai.response.model = turn.response_model.as_deref().and_then(name),
            gen_ai.conversation.id = known(&turn.session),
            parent_session = turn.parent_session,
            gen_ai.usage.input_tokens = usage.map(|usage| usage.prompt),
            gen_ai.usage.output_tokens = usage.map(|usage| usage.completion),
            gen_ai.usage.cache_read.input_tokens = usage.map(|usage| usage.cached),
            gen_ai.usage.cache_creation.input_tokens = usage.map(|usage| usage.cache_write),
            request_id = turn.request_id.as_deref().and_then(name),
            upstream_request_id = upstream_ids(turn),
            traceparent = turn.traceparent.as_deref().and_then(name),
            http.request.method = turn.method.as_str(),
            url.path = name(&turn.path),
            http.response.status_code = turn.status.as_ref().map(StatusCode::as_u16),
            route = turn.route.name(),
            dialect = turn.dialect.name(),
            tenant = known(&turn.tenant),
            turn = turn.number,
            mode = mode(turn.mode),
            profile = turn.profile,
            arm = turn.split.as_ref().map(|split| split.arm().name()),
            unmanaged = turn.unmanaged.map(Unmanaged::name),
            streamed = turn.streamed,
            hops = turn.hops.len(),
            hop_statuses = hop_statuses(turn),
            passes = turn.hops.iter().filter(|hop| hop.pass.is_some()).count(),
            pass_triggers = pass_triggers(turn),
            tokens_in = context.map(|context| context.tokens_in),
            tokens_out = turn.tokens_sent(),
            budget_tokens = context.map(|context| context.ceiling),
            floor = context.map(|context| context.floor),
            budget = context.map(|context| context.budget.name()),
            evicted_tokens = turn.evicted_now(),
            guided = turn.guided.map(GuideReason::name),
            prefix_breaks = turn.prefix_breaks,
            cached_ratio = turn.cached_ratio(),
            cache_missed_tokens = turn.missed().map(|(tokens, _)| tokens),
            cache_miss_cause = turn.missed().map(|(_, cause)| cause.name()),
            cache_miss_said = turn.missed().and(turn.cache.said.as_deref()),
            role = if turn.aside { CallRole::Aside.name() } else { CallRole::Main.name() },
            usage_unread = turn.unread.then_some(true),
            cost_usd = turn.ledger.and_then(|ledger| ledger.sent_usd()),
            saved_usd = saved.money(SavedPart::Net),
            evicted_usd = saved.money(SavedPart::Evicted),
            rewritten_usd = saved.money(SavedPart::Rewritten),
            hidden_usd = saved.money(SavedPart::Annotated),
            breakpoints_usd = saved.money(SavedPart::Breakpoints),
            unexplained_usd = saved.money(SavedPart::Unexplained),
            saved_units = saved.units(SavedPart::Net),
            evicted_units = saved.units(SavedPart::Evicted),
            rewritten_units = saved.units(SavedPart::Rewritten),
            hidden_units = saved.units(SavedPart::Annotated),
            breakpoints_units = saved.units(SavedPart::Breakpoints),
            unexplained_units = saved.units(SavedPart::Unexplained),
            would_have_sent_tokens = turn.tokens_unsent(),
            would_have_cost_usd = turn.projected.and_then(|ledger| ledger.sent_usd()),
            would_have_saved_usd = projected.money(SavedPart::Net),
            would_have_saved_units = projected.units(SavedPart::Net),
            projection = turn.projection.map(Projection::name),
            delimiter_calls = turn.delimiter_calls.len(),
            recalls = turn.recalls.len(),
            needed_in_view = turn.needed.held,
            needed_missed = turn.needed.missed,
            needed_again = turn.needed.again(),
            retries = turn.retries.len(),
            abort_side = turn.abort.map(|abort| abort.side.name()),
            abort_phase = turn.abort.map(|abort| abort.phase.name()),
            fail_open = turn.fail_open.map(FailedStage::name),
            cut_at = turn.cut,
            unrecorded = turn.unrecorded.map(Unrecorded::name),
            overhead_ms = turn.overhead.total().map(millis),
            first_token_ms = turn.first_token.map(millis),
            duration_ms = millis(turn.duration),
            "turn{}", why(turn)
        )
    }};
}

/// Why a line is a warning, for people who read no fields. Empty if it is none.
fn why(turn: &TurnReport) -> String {
    if let Some(stage) = turn.fail_open {
        let what = match stage {
            FailedStage::Ingress => "its coding can't be read",
            FailedStage::Dialect => "it can't be read or edited safely",
            FailedStage::Store => "the store could not be read in time",
            FailedStage::Render => "its view could not be written",
            FailedStage::Panic => "the proxy made a mistake",
            FailedStage::Refused => "the upstream refused the view of it",
            FailedStage::RefusedTwice => "the upstream refused the view of it, and itself, too",
            FailedStage::Intercept => "the answer to its view could not be read",
        };
        return format!(": the agent's own request was sent, because {what}");
    }
    let context = turn.context.as_ref();
    let Some(over) = context.filter(|context| context.budget == Budget::Exceeded) else {
        return String::new();
    };
    let stays = over.pinned.and_then(|pinned| {
        let parts = pinned.parts().into_iter();
        let (name, tokens) = parts.max_by_key(|(_, tokens)| *tokens)?;
        Some(format!(
            "; the most of what has to stay is {name}: {tokens}"
        ))
    });
    format!(
        ": over its budget with {} of {} tokens{}",
        over.tokens_out,
        over.ceiling,
        stays.unwrap_or_default()
    )
}

/// Writes the line. It is a warning if the budget was exceeded, or if the client's bytes were sent
/// because a stage failed. Otherwise it is for information.
pub fn log_turn(turn: &TurnReport) {
    let context = turn.context.as_ref();
    let exceeded = context.is_some_and(|context| context.budget == Budget::Exceeded);
    if exceeded || turn.fail_open.is_some() {
        turn_event!(Level::WARN, turn);
    } else {
        turn_event!(Level::INFO, turn);
    }
}

/// What was saved: in money, or in units of a plain input token if the price is not known.
struct Saved<'a>(Option<&'a Account>);

impl Saved<'_> {
    fn money(&self, part: SavedPart) -> Option<f64> {
        let ledger = self.0?;
        Some(part.of(&ledger.parts) * ledger.usd?)
    }

    fn units(&self, part: SavedPart) -> Option<f64> {
        let ledger = self.0.filter(|ledger| ledger.usd.is_none())?;
        Some(part.of(&ledger.parts))
    }
}

fn known(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The part of a model's name that looks like one. The rest is dropped, so that a client can't
/// carry a paragraph into the log by its name for a model.
fn name(text: &str) -> Option<&str> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/@+".contains(letter);
    let end = text
        .find(|letter| !plain(letter))
        .unwrap_or(text.len())
        .min(NAME_LIMIT);
    text.get(..end).and_then(known)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Manage => "manage",
        Mode::Observe => "observe",
        Mode::Off => "off",
    }
}

fn hop_statuses(turn: &TurnReport) -> String {
    let word = |status: &Option<StatusCode>| {
        status
            .as_ref()
            .map_or_else(|| "none".to_owned(), |status| status.as_str().to_owned())
    };
    turn.hops
        .iter()
        .map(|hop| word(&hop.status))
        .collect::<Vec<_>>()
        .join(",")
}

/// The upstream's ids of all calls.
fn upstream_ids(turn: &TurnReport) -> Option<String> {
    let ids = turn.hops.iter().map(|hop| &hop.request_id);
    let ids = ids.chain([&turn.forwarded_id]).flatten();
    let ids: Vec<&str> = ids.filter_map(|id| name(id)).collect();
    (!ids.is_empty()).then(|| ids.join(","))
}

/// Milliseconds, to the tenth.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

fn pass_triggers(turn: &TurnReport) -> Option<String> {
    let passes = turn.hops.iter().filter_map(|hop| hop.pass.as_ref());
    let triggers = passes.map(|pass| pass.trigger.name()).collect::<Vec<_>>();
    (!triggers.is_empty()).then(|| triggers.join(","))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::Value;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::record::tests::full_turn;

    /// Collects what the subscriber writes.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Sink {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// The lines that a turn writes, as JSON objects.
    fn logged(turn: &TurnReport) -> Vec<Value> {
        let sink = Sink::default();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(sink.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || log_turn(turn));
        let text = String::from_utf8(sink.0.lock().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_turn_is_one_line_with_the_conventions_names() {
        let lines = logged(&full_turn());
        assert_eq!(lines.len(), 1);
        let expect = serde_json::json!({
            "level": "WARN",
            "message": "turn: the agent's own request was sent, because the store could not be read in time",
            "request_id": "req-client-1",
            "upstream_request_id": "req_1",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "url.path": "/v1/chat/completions",
            "duration_ms": 2_500.0,
            "first_token_ms": 400.0,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5",
            "gen_ai.response.model": "gpt-5-2025-08-07",
            "gen_ai.conversation.id": "5e55105e55105e55",
            "gen_ai.usage.input_tokens": 1_500,
            "gen_ai.usage.output_tokens": 75,
            "gen_ai.usage.cache_read.input_tokens": 600,
            "gen_ai.usage.cache_creation.input_tokens": 300,
            "http.request.method": "POST",
            "http.response.status_code": 200,
            "parent_session": "9a7e479a7e479a7e",
            "tenant": "7e4a47007e4a4700",
            "turn": 12,
            "mode": "manage",
            "profile": "coding",
            "arm": "tried",
            "hops": 2,
            "hop_statuses": "200,none",
            "pass_triggers": "budget",
            "tokens_in": 100_000,
            "tokens_out": 70_000,
            "budget_tokens": 80_000,
            "budget": "exceeded",
            "fail_open": "store",
            "unrecorded": "late",
            "unmanaged": "conversation",
            "abort_side": "client",
            "cost_usd": 0.002_82,
            "saved_usd": 0.001_58,
            "evicted_usd": 0.002,
            "rewritten_usd": 0.000_22,
            "hidden_usd": 0.000_2,
        });
        for (field, value) in expect.as_object().unwrap() {
            assert_eq!(lines[0].get(field), Some(value), "{field} in {}", lines[0]);
        }
    }

    #[test]
    fn without_a_price_what_was_saved_is_told_in_tokens() {
        let mut turn = full_turn();
        if let Some(ledger) = &mut turn.ledger {
            ledger.usd = None;
        }
        let line = logged(&turn).remove(0);
        for (field, value) in [
            ("saved_units", 790.0),
            ("evicted_units", 1_000.0),
            ("rewritten_units", 110.0),
            ("hidden_units", 100.0),
        ] {
            assert_eq!(line[field], value, "{field}");
        }
        for field in ["saved_usd", "evicted_usd", "cost_usd"] {
            assert_eq!(line.get(field), None, "{field}");
        }
    }

    #[test]
    fn of_what_was_only_watched_nothing_was_saved() {
        let mut turn = full_turn();
        turn.mode = Mode::Observe;
        turn.projected = turn.ledger;
        turn.projection = Some(Projection::Anew);
        let line = logged(&turn).remove(0);
        assert_eq!(
            line["tokens_out"], line["tokens_in"],
            "it was sent as it came"
        );
        assert_eq!(line["would_have_sent_tokens"], 70_000);
        assert_eq!(line["would_have_saved_usd"], 0.001_58);
        assert_eq!(line["would_have_cost_usd"], 0.002_82);
        assert_eq!(line["projection"], "anew");
        for field in ["saved_usd", "evicted_usd", "would_have_saved_units"] {
            assert_eq!(line.get(field), None, "{field}");
        }
    }

    #[test]
    fn a_warning_says_its_reason_in_words_and_times_have_one_digit() {
        let mut turn = full_turn();
        turn.fail_open = None;
        turn.duration = Duration::from_micros(1_234_567);
        let line = logged(&turn).remove(0);
        let said = line["message"].as_str().unwrap();
        let over = "turn: over its budget with 70000 of 80000 tokens";
        assert!(said.starts_with(over), "{said}");
        assert_eq!(line["duration_ms"], 1_234.6);
    }

    #[test]
    fn facts_that_are_absent_leave_no_field() {
        let mut turn = full_turn();
        turn.context = None;
        turn.fail_open = None;
        turn.unrecorded = None;
        turn.unmanaged = None;
        turn.session.clear();
        turn.parent_session = None;
        turn.profile = None;
        turn.split = None;
        turn.hops.clear();
        let line = logged(&turn).remove(0);
        assert_eq!(line["level"], "INFO");
        for field in [
            "gen_ai.conversation.id",
            "parent_session",
            "profile",
            "arm",
            "gen_ai.usage.input_tokens",
            "budget",
            "budget_tokens",
            "fail_open",
            "unrecorded",
            "unmanaged",
        ] {
            assert_eq!(line.get(field), None, "{field}");
        }
    }

    #[test]
    fn a_name_carries_no_content() {
        let long = "m".repeat(500);
        for (text, expect) in [
            ("gpt-5", Some("gpt-5")),
            ("openai/gpt-5:free", Some("openai/gpt-5:free")),
            ("gpt-5\nlevel=error", Some("gpt-5")),
            ("please read my secret", Some("please")),
            ("é", None),
            ("", None),
            (long.as_str(), long.get(..NAME_LIMIT)),
        ] {
            assert_eq!(name(text), expect, "{text}");
        }
        let mut turn = full_turn();
        turn.model = "gpt-5 the user said: open sesame".into();
        turn.response_model = Some("x\u{1b}[31m sesame".into());
        let line = logged(&turn).remove(0).to_string();
        assert!(
            !line.contains("sesame") && !line.contains("\\u001b"),
            "{line}"
        );
    }
}
