//! The metrics that finished turns move, one row each: name, help, label, and what of a turn moves it. To add one, add a
//! row; `docs/run/metrics.md` follows from this table, as a test shows. Never observes anything else. A label from a closed
//! set is a type here, so that all its series stand at zero from the start. Only statuses, methods and names of models
//! are open.

use std::time::Duration;

use http::{Method, StatusCode};
use plimsoll_core::session::view::Part;
use plimsoll_model::{Need, PinOutcome, ToolClass, label_set};
use prometheus::Error;

use super::buckets::{
    CEILING_BUCKETS, FIRST_TOKEN_BUCKETS, HOP_BUCKETS, OVERHEAD_BUCKETS, RATIO_BUCKETS,
    SHARE_BUCKETS, TOKEN_BUCKETS, UPSTREAM_BUCKETS,
};
use super::models::OTHER;
use super::money;
use super::table::{Table, each};
use crate::record::labels::{Budget, Phase, Route, TokenKind};
use crate::record::turn_report::{HopReport, PassReport, TurnReport, lossy};

/// The status label of a request or hop that got no status.
const NO_STATUS: &str = "none";

label_set!(
    /// On which side of the proxy a request is measured.
    Stage {
        /// As the client sent it.
        In => "in",
        /// As it was sent upstream.
        Out => "out",
    }
);

label_set!(
    /// All phases of a turn together.
    AllPhases {
        /// Their sum.
        Total => "total",
    }
);

/// What clients see of every request, also of one that is only counted.
pub(super) fn of_requests(t: &mut Table<'_>) -> Result<(), Error> {
    t.open(
        "http_requests_total",
        "Requests answered; status=\"none\" if the client left before its answer",
        ["route", "method", "status"],
        &[],
        |counted, add| {
            let turn = counted.turn;
            let words = [
                turn.route.name(),
                method(&turn.method),
                status(&turn.status),
            ];
            add(words, 1);
        },
    )?;
    t.spread(
        "http_request_duration_seconds",
        "From a request's head to its response's last byte",
        UPSTREAM_BUCKETS,
        |turn, observe| observe(turn.duration.as_secs_f64()),
    )?;
    t.spread(
        "time_to_first_token_seconds",
        "From a request's head to the first byte of an answer that the client could see",
        FIRST_TOKEN_BUCKETS,
        |turn, observe| each(turn.first_token, |time| observe(time.as_secs_f64())),
    )
}

/// Everything else, of turns: a view that was only counted is none, because nothing was sent to be answered.
pub(super) fn of_turns(t: &mut Table<'_>, models: &[&str]) -> Result<(), Error> {
    how_served(t)?;
    upstream(t, models)?;
    money::of_turns(t)?;
    views(t)?;
    passes(t)?;
    hidden(t)?;
    losses(t)?;
    own_time(t)
}

/// How requests were served, and how answers ended.
fn how_served(t: &mut Table<'_>) -> Result<(), Error> {
    t.pairs(
        "stream_aborts_total",
        "Responses that broke off, by who broke them off and when",
        ["side", "phase"],
        |turn, add| each(turn.abort, |abort| add(abort.side, abort.phase, 1)),
    )?;
    t.counts(
        "fail_open_total",
        "Requests that were sent as the client made them, because a stage of the proxy failed",
        "stage",
        |turn, add| each(turn.fail_open, |stage| add(stage, 1)),
    )?;
    t.counts(
        "unmanaged_total",
        "Requests that could not be managed, by what in them is the reason",
        "why",
        |turn, add| each(turn.unmanaged, |why| add(why, 1)),
    )?;
    t.counts(
        "unrecorded_total",
        "Turns that were managed, but whose record was not durable when the answer ended",
        "why",
        |turn, add| each(turn.unrecorded, |why| add(why, 1)),
    )
}

/// What providers did and reported.
fn upstream(t: &mut Table<'_>, models: &[&str]) -> Result<(), Error> {
    t.open(
        "upstream_requests_total",
        "Upstream calls; status=\"none\" if there was no answer",
        ["provider", "model", "status"],
        &[],
        |counted, add| {
            for hop in &counted.turn.hops {
                add(
                    [counted.turn.provider, counted.model, status(&hop.status)],
                    1,
                );
            }
        },
    )?;
    t.spread(
        "upstream_duration_seconds",
        "From sending an upstream call to its answer's last byte",
        UPSTREAM_BUCKETS,
        |turn, observe| each(&turn.hops, |hop| observe(hop.duration.as_secs_f64())),
    )?;
    t.counts(
        "retries_total",
        "Upstream calls that were repeated",
        "reason",
        |turn, add| {
            each(&turn.retries, |reason| add(*reason, 1));
        },
    )?;
    t.counts(
        "rules_learned_total",
        "Kinds of edits that the upstream was found to refuse for a tenant's model; its views go without them from then on",
        "kind",
        |turn, add| each(turn.learned.iter(), |kind| add(kind, 1)),
    )?;
    t.count(
        "cut_prompts_total",
        "Turns whose prompt the upstream was seen to cut without a word",
        |turn| u64::from(turn.was_cut),
    )?;
    // A series that first appears with a value looks to Prometheus as if it had not moved.
    let known = models
        .iter()
        .flat_map(|model| TokenKind::ALL.map(|kind| [kind.name(), *model]));
    t.open(
        "tokens_total",
        "Tokens as providers reported them; input includes cache_read and cache_write, output includes reasoning",
        ["type", "model"],
        &known.collect::<Vec<_>>(),
        |counted, add| {
            for usage in counted.turn.hops.iter().filter_map(|hop| hop.usage) {
                for kind in TokenKind::ALL {
                    add([kind.name(), counted.model], kind.of(&usage));
                }
            }
        },
    )?;
    t.spread(
        "token_estimate_ratio",
        "Prompt tokens as the provider reported them over those that the proxy counted, by hop",
        RATIO_BUCKETS,
        |turn, observe| {
            each(
                turn.hops.iter().filter_map(HopReport::estimate_ratio),
                observe,
            )
        },
    )?;
    t.spread(
        "cache_hit_ratio",
        "Cached over prompt tokens as the provider reported them, by turn",
        SHARE_BUCKETS,
        |turn, observe| each(turn.cached_ratio(), observe),
    )
}

/// Contexts, budgets, and what the provider's cache had of them.
fn views(t: &mut Table<'_>) -> Result<(), Error> {
    t.spreads(
        "context_tokens",
        "Tokens of a request as the client sent it (in) and as it was sent upstream (out)",
        "stage",
        TOKEN_BUCKETS,
        |turn, observe| {
            each(&turn.context, |context| {
                observe(Stage::In, lossy(context.tokens_in));
                observe(Stage::Out, lossy(context.tokens_out));
            });
        },
    )?;
    t.spreads(
        "context_part_tokens",
        "Tokens of a request as it was sent upstream, by what they are",
        "part",
        TOKEN_BUCKETS,
        |turn, observe| {
            each(&turn.context, |context| {
                each(Part::ALL, |part| {
                    observe(part, lossy(context.parts.get(part)))
                });
            });
        },
    )?;
    t.spreads(
        "context_tool_tokens",
        "Tokens of the results of tools in a request as it was sent upstream, by what the tool is for",
        "class",
        TOKEN_BUCKETS,
        |turn, observe| {
            each(&turn.context, |context| {
                each(ToolClass::ALL, |class| {
                    observe(class, lossy(context.parts.of_class(class)))
                });
            });
        },
    )?;
    t.spread(
        "context_budget_ratio",
        "Tokens of a managed upstream call over its budget, as a ratio",
        CEILING_BUCKETS,
        |turn, observe| {
            each(
                turn.hops.iter().filter_map(|hop| hop.ceiling_ratio),
                observe,
            )
        },
    )?;
    t.count(
        "prefix_breaks_total",
        "Requests that did not extend the prefix that the provider had cached",
        |turn| turn.prefix_breaks,
    )?;
    t.counts(
        "cache_missed_tokens_total",
        "Tokens that the turn before had left in the provider's cache and that were read anew, by what changed in \
         between; provider stands for nothing",
        "cause",
        |turn, add| each(turn.missed(), |(tokens, cause)| add(cause, tokens)),
    )?;
    t.count(
        "prologue_changes_total",
        "Turns whose client had changed its system text or its tools since the turn before",
        |turn| u64::from(turn.prologue_changed),
    )
}

/// Passes, and what they took and kept.
fn passes(t: &mut Table<'_>) -> Result<(), Error> {
    t.counts(
        "passes_above_floor_total",
        "Passes that stopped above the floor, so that the next one comes sooner",
        "trigger",
        |turn, add| {
            each(of_passes(turn), |pass| {
                add(pass.trigger, u64::from(pass.above_floor))
            })
        },
    )?;
    t.counts(
        "passes_declined_total",
        "Passes not made: they free too little for the prefix that they break, or pay at `boundary` and no policy runs there",
        "trigger",
        |turn, add| {
            each(turn.hops.iter().filter_map(|hop| hop.declined), |trigger| {
                add(trigger, 1)
            })
        },
    )?;
    t.pairs(
        "evicted_tokens_total",
        "Tokens that passes, and rungs for new results, evicted",
        ["policy", "level"],
        |turn, add| {
            let evicted = turn.hops.iter().flat_map(HopReport::evicted);
            each(evicted, |row| add(row.policy, row.level, row.tokens));
        },
    )?;
    t.pairs(
        "evicted_items_total",
        "Items whose mark a pass, or a rung for new results, moved",
        ["policy", "level"],
        |turn, add| {
            let evicted = turn.hops.iter().flat_map(HopReport::evicted);
            each(evicted, |row| add(row.policy, row.level, row.items));
        },
    )?;
    t.counts(
        "moves_dropped_total",
        "Moves that a policy proposed against a rule: each was dropped, the rest was made",
        "policy",
        |turn, add| {
            each(turn.hops.iter().flat_map(|hop| &hop.dropped), |policy| {
                add(*policy, 1)
            })
        },
    )?;
    // Each run is counted once, when it becomes one.
    t.count(
        "loops_total",
        "Times that a client's call brought the same result for the third time running",
        |turn| u64::from(turn.repetition.begins()),
    )?;
    t.count(
        "keep_loosened_total",
        "Results that a pass could not keep as [keep] asks, because they were too much",
        |turn| u64::from(turn.loosened),
    )?;
    t.counts(
        "pins_total",
        "Pins that were asked for, by what became of them",
        "outcome",
        |turn, add| {
            each(PinOutcome::ALL, |outcome| {
                add(outcome, u64::from(turn.pins.count(outcome)))
            });
        },
    )
}

/// Hidden tools.
fn hidden(t: &mut Table<'_>) -> Result<(), Error> {
    t.pairs(
        "delimiter_calls_total",
        "Calls of the hidden tool delimiter",
        ["action", "outcome"],
        |turn, add| {
            each(&turn.delimiter_calls, |call| {
                add(call.action, call.outcome, 1)
            })
        },
    )?;
    t.count(
        "serial_hops_total",
        "Hidden hops of requests that allow one call a message, where every mark costs an upstream call",
        |turn| hidden_hops(turn).filter(|_| turn.one_call).unwrap_or_default(),
    )?;
    t.counts(
        "guided_total",
        "Conversations that got the guidance late, by reason",
        "reason",
        |turn, add| each(turn.guided, |reason| add(reason, 1)),
    )?;
    t.count(
        "recalled_tokens_total",
        "Tokens that recall brought back",
        |turn| turn.recalls.iter().map(|call| call.tokens).sum(),
    )
}

/// What passes leave of what they find.
fn losses(t: &mut Table<'_>) -> Result<(), Error> {
    t.spread(
        "pass_strings_kept_ratio",
        "Of the distinctive strings that stood in view as they came, the share that a pass left in view",
        SHARE_BUCKETS,
        |turn, observe| each(&turn.kept, |kept| observe(kept.strings)),
    )?;
    t.spread(
        "pass_lines_kept_ratio",
        "Of the lines of at least 12 characters that stood in view as they came, the share that a pass left in view",
        SHARE_BUCKETS,
        |turn, observe| each(&turn.kept, |kept| observe(kept.lines)),
    )
}

/// What a split is judged by: of each arm, while sessions are split.
pub(super) fn of_arms(t: &mut Table<'_>) -> Result<(), Error> {
    money::of_arms(t)?;
    t.spread(
        "hidden_hops",
        "Upstream calls of a managed turn beyond its first",
        HOP_BUCKETS,
        |turn, observe| each(hidden_hops(turn), |hops| observe(lossy(hops))),
    )?;
    t.count(
        "budget_unmet_total",
        "Turns over budget although everything that may be evicted was",
        |turn| {
            let exceeded = |budget| budget == Budget::Exceeded;
            u64::from(turn.context.is_some_and(|context| exceeded(context.budget)))
        },
    )?;
    t.counts(
        "passes_total",
        "Passes committed",
        "trigger",
        |turn, add| {
            each(of_passes(turn), |pass| add(pass.trigger, 1));
        },
    )?;
    t.counts(
        "recall_total",
        "Calls of the hidden tool recall",
        "outcome",
        |turn, add| {
            each(&turn.recalls, |call| add(call.outcome, 1));
        },
    )?;
    t.count(
        "refetch_total",
        "Calls of an agent that ask again for what was evicted",
        |turn| u64::from(turn.needed.again()),
    )?;
    t.counts(
        "needed_total",
        "What was evicted and needed later: strings that a call uses (in_view: the view had them all the same; missed), \
         calls that ask for the same again (read_again by a tool that reads, asked_again), recalls that brought something back",
        "how",
        |turn, add| each(Need::ALL, |how| add(how, u64::from(turn.needed.of(how)))),
    )
}

/// The proxy's own time.
fn own_time(t: &mut Table<'_>) -> Result<(), Error> {
    let seconds = |time: Duration| time.as_secs_f64();
    let phases = t.spreads(
        "overhead_seconds",
        "The proxy's own time by phase; phase=\"total\" is the sum of a turn",
        "phase",
        OVERHEAD_BUCKETS,
        move |turn, observe| {
            for phase in Phase::ALL {
                each(turn.overhead.get(phase), |time| {
                    observe(phase, seconds(time))
                });
            }
        },
    )?;
    t.more(&phases, move |turn, observe| {
        each(turn.overhead.total(), |time| {
            observe(AllPhases::Total, seconds(time))
        });
    });
    Ok(())
}

fn of_passes(turn: &TurnReport) -> impl Iterator<Item = &PassReport> {
    turn.hops.iter().filter_map(|hop| hop.pass.as_ref())
}

/// The hidden hops of a turn. Only managed turns can have any.
fn hidden_hops(turn: &TurnReport) -> Option<u64> {
    let managed = matches!(turn.route, Route::Chat | Route::Responses | Route::Messages);
    (managed && !turn.hops.is_empty()).then(|| turn.hidden_hops() as u64)
}

/// The method if it is a standard one. An extension method is the client's own word.
fn method(method: &Method) -> &str {
    const STANDARD: [Method; 9] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
        Method::CONNECT,
    ];
    // Any word can be a method. Without this list, clients could make as many series as they like.
    if STANDARD.contains(method) {
        method.as_str()
    } else {
        OTHER
    }
}

fn status(status: &Option<StatusCode>) -> &str {
    status.as_ref().map_or(NO_STATUS, StatusCode::as_str)
}
