//! A turn that has every fact, for the tests of this module.

use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_core::commit::Trigger;
use plimsoll_core::intercept::delimiter::{self, DelimiterCall};
use plimsoll_core::policy::{Level, Policy};
use plimsoll_core::session::view::{Part, Parts};
use plimsoll_core::turn::needed::PassKept;
use plimsoll_core::turn::{Mode, PinReport};
use plimsoll_model::{
    DelimiterAction, EditKind, NeededCounts, RecallCall, RecallOutcome, SplitPlace, ToolClass,
    Usage,
};
use plimsoll_tokens::Cost;
use plimsoll_tokens::ledger::{Account, SavedParts};
use plimsoll_wire::request::Unmanaged;

use super::*;

/// Two hops, a pass, hidden calls, an abort, a retry, a stage that failed: one of everything.
pub(super) fn full_turn() -> TurnReport {
    let usage = |prompt, cached, cache_write, completion, reasoning| {
        Some(Usage {
            prompt,
            cached,
            cache_write,
            hour_write: None,
            completion,
            reasoning,
        })
    };
    let mut turn = TurnReport::new(Route::Chat, Method::POST);
    turn.path = "/v1/chat/completions".into();
    turn.request_id = Some("req-client-1".into());
    turn.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    turn.status = Some(StatusCode::OK);
    turn.duration = Duration::from_millis(2_500);
    turn.first_token = Some(Duration::from_millis(400));
    turn.streamed = true;
    turn.provider = provider_name("api.openai.com");
    turn.model = "gpt-5".into();
    turn.response_model = Some("gpt-5-2025-08-07".into());
    turn.tenant = "7e4a47007e4a4700".into();
    turn.session = "5e55105e55105e55".into();
    turn.parent_session = Some("9a7e479a7e479a7e".into());
    turn.number = 12;
    turn.mode = Mode::Manage;
    turn.profile = Some("coding".into());
    turn.split = Some(SplitPlace {
        profile: "coding".into(),
        tried: true,
    });
    turn.hops = vec![
        HopReport {
            status: Some(StatusCode::OK),
            duration: Duration::from_millis(900),
            first_byte: Some(Duration::from_millis(300)),
            request_id: Some("req_1".into()),
            usage: usage(1_000, 200, 300, 50, 20),
            estimated: 800,
            ceiling_ratio: Some(0.875),
            pass: Some(PassReport {
                trigger: Trigger::Ceiling,
                above_floor: true,
                evicted: vec![
                    Evicted {
                        policy: Policy::Cwl,
                        level: Level::Bulk,
                        tokens: 20_000,
                        items: 9,
                    },
                    Evicted {
                        policy: Policy::Cwl,
                        level: Level::Episode,
                        tokens: 10_000,
                        items: 4,
                    },
                ],
            }),
            ..HopReport::default()
        },
        HopReport {
            usage: usage(500, 400, 0, 25, 5),
            declined: Some(Trigger::Cold),
            ..HopReport::default()
        },
    ];
    turn.context = Some(Context {
        tokens_in: 100_000,
        tokens_out: 70_000,
        evicted: 30_000,
        ceiling: 80_000,
        window: None,
        floor: 56_000,
        partitions: None,
        parts: {
            let mut parts = Parts::default();
            parts.add(Part::Results, 40_000);
            parts.add_class(ToolClass::Read, 40_000);
            parts
        },
        pinned: None,
        budget: Budget::Exceeded,
    });
    for phase in Phase::ALL {
        turn.overhead.add(phase, Duration::from_micros(100));
    }
    turn.delimiter_calls = vec![DelimiterCall {
        action: DelimiterAction::Start,
        outcome: delimiter::DelimiterOutcome::Ok,
    }];
    turn.recalls = vec![RecallCall {
        outcome: RecallOutcome::Ok,
        tokens: 900,
    }];
    turn.needed = NeededCounts {
        held: 11,
        missed: 3,
        read_again: 2,
        asked_again: 1,
        recalled: 4,
    };
    turn.kept = vec![PassKept {
        strings: 0.75,
        lines: 0.5,
    }];
    turn.prefix_breaks = 1;
    turn.prologue_changed = true;
    turn.pins = PinReport {
        asked: [2, 1, 1],
        pinned: 3,
        loosened: 1,
    };
    turn.abort = Some(Abort {
        side: AbortSide::Client,
        phase: AbortPhase::Body,
    });
    turn.retries = vec![RetryReason::Connect];
    turn.learned = [EditKind::Reasoning].into_iter().collect();
    turn.fail_open = Some(FailedStage::Store);
    turn.unrecorded = Some(Unrecorded::Late);
    turn.unmanaged = Some(Unmanaged::Conversation);
    turn.ledger = Some(Account {
        sent: Usage {
            prompt: 1_500,
            cached: 600,
            cache_write: 300,
            hour_write: None,
            completion: 75,
            reasoning: 25,
        },
        client: Usage {
            prompt: 9_000,
            cached: 8_000,
            cache_write: 400,
            hour_write: None,
            completion: 60,
            reasoning: 0,
        },
        sent_cost: Cost {
            plain: 600.0,
            read: 60.0,
            write: 375.0,
            output: 375.0,
        },
        hidden_cost: 100.0,
        client_cost: Cost {
            plain: 600.0,
            read: 800.0,
            write: 500.0,
            output: 300.0,
        },
        parts: SavedParts {
            evicted: 1_000.0,
            rewritten: 110.0,
            annotated: 100.0,
            ..SavedParts::default()
        },
        usd: Some(2e-6),
    });
    turn
}

#[test]
fn finishing_a_turn_counts_it() {
    let metrics = Metrics::new(&["gpt-5"], None).unwrap();
    finish(&metrics, &full_turn());
    assert!(
        metrics
            .render()
            .unwrap()
            .contains("plimsoll_budget_unmet_total 1")
    );
}
