//! Accounts add up, whatever a turn was made of.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// Reads at a tenth, writes as plain, output at five; a unit is a dollar.
fn terms() -> LedgerTerms {
    LedgerTerms {
        prices: Prices {
            write: 1.0,
            usd_per_mtok: Some(1e6),
            ..Prices::default()
        },
        cache: CacheModel::Automatic {
            step: 100,
            ttl: HOUR,
        },
        ..LedgerTerms::default()
    }
}

fn asked(tokens: u64, before: u64, held: u64) -> RequestSizes {
    RequestSizes {
        tokens,
        before,
        held,
    }
}

fn usage(prompt: u64, cached: u64, cache_write: u64, completion: u64) -> Option<Usage> {
    Some(Usage {
        prompt,
        cached,
        cache_write,
        completion,
        ..Usage::default()
    })
}

fn call(asked: RequestSizes, whole: u64, usage: Option<Usage>) -> LedgerCall {
    LedgerCall {
        asked,
        whole,
        edited: whole > asked.tokens,
        usage,
        ..LedgerCall::default()
    }
}

#[track_caller]
fn close(found: f64, expect: f64) {
    assert!((found - expect).abs() < 1e-6, "{found}, not {expect}");
}

/// A view of 400 in place of 1000, where each grew by 100.
#[test]
fn between_passes_the_reads_of_what_is_gone_are_saved() {
    let call = call(asked(400, 300, 300), 1_000, usage(400, 300, 0, 10));
    let account = account(&terms(), asked(1_000, 900, 900), &[call]).unwrap();
    let own = usage(1_000, 900, 0, 10);
    assert_eq!(
        (account.sent, Some(account.client)),
        (call.usage.unwrap(), own)
    );
    close(account.parts.evicted, 60.0);
    close(account.parts.rewritten, 0.0);
    close(account.parts.annotated, 0.0);
    close(account.sent_cost.total(), 130.0 + 50.0);
    close(account.client_cost.total(), 190.0 + 50.0);
    assert_eq!(account.usd, Some(1.0));
}

/// The pass leaves 100 of 900 in the cache and 400 in all, 100 of which are new.
#[test]
fn a_pass_pays_for_what_it_writes_again() {
    let call = call(asked(400, 900, 100), 1_000, usage(400, 100, 0, 0));
    let account = account(&terms(), asked(1_000, 900, 900), &[call]).unwrap();
    close(account.parts.evicted, 60.0);
    close(account.parts.rewritten, 200.0 * 0.9);
    close(account.parts.net(), 60.0 - 180.0);
}

/// The hidden tools are 50 tokens, a lone hop says 20, and the next one reads them again.
#[test]
fn a_lone_hop_is_paid_for_by_who_asked_for_it() {
    let lone = LedgerCall {
        said: AnswerSizes {
            all: 20,
            text: 5,
            hidden: 15,
            alone: true,
        },
        ..call(asked(1_050, 950, 950), 1_050, usage(1_050, 950, 0, 20))
    };
    let last = LedgerCall {
        said: AnswerSizes {
            all: 40,
            text: 10,
            hidden: 12,
            alone: false,
        },
        ..call(
            asked(1_080, 1_050, 1_050),
            1_080,
            usage(1_080, 1_050, 0, 40),
        )
    };
    let account = account(&terms(), asked(1_000, 900, 900), &[lone, last]).unwrap();
    assert_eq!(account.sent.prompt, 2_130);
    assert_eq!(account.client, usage(1_000, 900, 0, 5 + 28).unwrap());
    close(account.parts.evicted, 0.0);
    let input = 50.0 * 0.1 + (1_050.0 * 0.1 + 30.0);
    close(account.parts.annotated, input + 5.0 * 27.0);
    close(account.parts.net(), -(input + 5.0 * 27.0));
}

/// A pass before the second hop leaves 500 of 1080, of which it reads 100, and 30 are new.
#[test]
fn a_pass_between_hops_is_told_from_the_hop() {
    let first = call(asked(1_050, 950, 950), 1_050, usage(1_050, 950, 0, 0));
    let second = call(asked(500, 1_050, 100), 1_080, usage(500, 100, 0, 0));
    let account = account(&terms(), asked(1_000, 900, 900), &[first, second]).unwrap();
    close(account.parts.rewritten, 370.0 * 0.9);
    close(account.parts.annotated, 5.0 + 50.0 + 30.0 * 0.9);
}

#[test]
fn the_client_has_the_luck_with_the_cache_that_we_had() {
    let client = asked(1_000, 900, 900);
    let grown = asked(400, 300, 300);
    let cut = asked(400, 900, 100);
    let seen = LedgerTerms {
        seen: true,
        ..terms()
    };
    let cold = LedgerTerms {
        warm: false,
        ..terms()
    };
    let silent = LedgerTerms {
        cache: CacheModel::None,
        ..terms()
    };
    let unmarked = LedgerTerms {
        client_caches: false,
        ..terms()
    };
    for (what, terms, ours, reported, expect) in [
        ("all of it", terms(), grown, usage(400, 300, 0, 0), 900),
        (
            "short of a step",
            terms(),
            grown,
            usage(400, 256, 0, 0),
            900,
        ),
        ("a third of it", terms(), grown, usage(400, 100, 0, 0), 300),
        ("nothing is cached", terms(), grown, usage(400, 0, 0, 0), 0),
        (
            "a cache that is not cold",
            cold,
            grown,
            usage(400, 300, 0, 0),
            900,
        ),
        (
            "less than is cached at all",
            seen,
            cut,
            usage(400, 0, 0, 0),
            900,
        ),
        ("never seen to cache", terms(), cut, usage(400, 0, 0, 0), 0),
        ("behind a cut", terms(), cut, usage(400, 60, 0, 0), 900),
        ("no report", terms(), grown, None, 900),
        ("no report of a cold cache", cold, grown, None, 0),
        ("no report and no cache", silent, grown, None, 0),
        (
            "no marker of the client's",
            unmarked,
            grown,
            usage(400, 300, 0, 0),
            0,
        ),
    ] {
        let account = account(&terms, client, &[call(ours, 1_000, reported)]).unwrap();
        assert_eq!(account.client.cached, expect, "{what}");
    }
    let first = call(asked(400, 0, 0), 400, usage(400, 200, 0, 0));
    let account = account(&terms(), asked(350, 0, 0), &[first]).unwrap();
    assert_eq!(
        account.client.cached, 175,
        "what other conversations began with"
    );
}

#[test]
fn both_sides_are_calibrated_and_priced_alike() {
    let terms = LedgerTerms {
        prices: Prices::default(),
        ..terms()
    };
    // Twice the tokens that were counted; half of what is not read is written.
    let call = call(asked(400, 300, 300), 1_000, usage(800, 600, 100, 0));
    let account = account(&terms, asked(1_000, 900, 900), &[call]).unwrap();
    assert_eq!(account.client, usage(2_000, 1_800, 100, 0).unwrap());
    close(account.parts.evicted, 120.0);
    assert_eq!(account.usd, None);
}

#[test]
fn a_cold_cache_is_filled_with_less() {
    let call = call(asked(400, 300, 300), 1_000, usage(400, 0, 0, 0));
    let account = account(&terms(), asked(1_000, 900, 900), &[call]).unwrap();
    close(account.parts.evicted, 600.0);
    assert!(super::account(&terms(), asked(1, 0, 0), &[]).is_none());
}

fn unsent(asked: RequestSizes, whole: u64, alike: u64) -> UnsentView {
    UnsentView {
        asked,
        whole,
        edited: whole > asked.tokens,
        alike,
    }
}

/// The turns of the test above, with the client's own request sent in place of the view.
#[test]
fn what_was_only_watched_is_projected_as_it_would_be_accounted() {
    let call = call(asked(1_000, 900, 900), 1_000, usage(1_000, 900, 0, 10));
    let paid = untouched(&terms(), &call);
    assert_eq!((paid.sent, paid.client), (paid.client, call.usage.unwrap()));
    close(paid.parts.net(), 0.0);
    let grown = projected(&terms(), unsent(asked(400, 300, 300), 1_000, 50), &call);
    assert_eq!(Some(grown.sent), usage(400, 300, 0, 10));
    assert_eq!(grown.client, paid.sent);
    close(grown.parts.evicted, 60.0);
    close(grown.sent_cost.total(), 130.0 + 50.0);
    close(grown.client_cost.total(), 190.0 + 50.0);
    let cut = projected(&terms(), unsent(asked(400, 900, 100), 1_000, 50), &call);
    assert_eq!(Some(cut.sent), usage(400, 100, 0, 10));
    close(cut.parts.rewritten, 200.0 * 0.9);
    close(cut.parts.net(), 60.0 - 180.0);
}

/// What the provider has of the client's own requests is none of a view's, but for what stands at the
/// front of other conversations too.
#[test]
fn a_view_reads_of_the_cache_what_it_would_have_written() {
    let unmarked = LedgerTerms {
        client_caches: false,
        ..terms()
    };
    let never = LedgerTerms {
        client_caches: false,
        view_caches: false,
        ..terms()
    };
    let first = (asked(400, 0, 0), usage(400, 200, 0, 0));
    let later = (asked(1_000, 0, 0), usage(1_000, 950, 0, 0));
    let plain = (asked(1_000, 900, 900), usage(1_000, 0, 0, 0));
    let grown = asked(400, 300, 300);
    for (what, terms, (own, reported), view, alike, expect) in [
        (
            "other conversations",
            terms(),
            first,
            asked(450, 0, 0),
            450,
            200,
        ),
        ("begun anew", terms(), later, asked(400, 1, 0), 50, 50),
        ("no marker of the client's", unmarked, plain, grown, 50, 300),
        ("no marker at all", never, plain, grown, 50, 0),
        ("a cold cache", terms(), plain, grown, 50, 0),
    ] {
        let call = call(own, own.tokens, reported);
        let account = projected(&terms, unsent(view, own.tokens, alike), &call);
        assert_eq!(account.sent.cached, expect, "{what}");
    }
    let call = call(later.0, 1_000, later.1);
    let account = projected(&terms(), unsent(asked(400, 1, 0), 1_000, 50), &call);
    close(account.parts.rewritten, (350.0 - 50.0) * 0.9);
}

prop_compose! {
    fn any_call()(
        tokens in 1_u64..200_000, before in 0_u64..200_000, held in 0_u64..200_000,
        whole in 0_u64..900_000, reported: bool, prompt in 0_u64..300_000,
        cached in 0_u64..300_000, cache_write in 0_u64..300_000, said in 0_u64..5_000,
        text in 0_u64..5_000, hidden in 0_u64..5_000, alone: bool, edited: bool, front in 0_u64..3_000,
    ) -> LedgerCall {
        LedgerCall {
            asked: asked(tokens, before, held.min(before).min(tokens)),
            whole,
            front,
            edited,
            usage: usage(prompt, cached, cache_write, said).filter(|_| reported),
            said: AnswerSizes { all: said, text, hidden, alone },
        }
    }
}

proptest! {
    /// The parts are the whole of the difference, whatever was reported.
    #[test]
    fn the_parts_add_up(
        calls in prop::collection::vec(any_call(), 1..5), tokens in 0_u64..900_000,
        held in 0_u64..900_000, warm: bool, seen: bool, client_caches: bool,
        write in 0.5_f64..2.0, ratio in 0.7_f64..2.0,
    ) {
        let terms = LedgerTerms {
            prices: Prices { write, ..Prices::default() },
            warm, seen, client_caches, ratio,
            ..terms()
        };
        let client = asked(tokens, held.min(tokens), held.min(tokens));
        let account = account(&terms, client, &calls).unwrap();
        let saved = account.client_cost.total() - account.sent_cost.total();
        let told = account.parts.net() + account.parts.unexplained;
        prop_assert!((told - saved).abs() < 1e-3, "{account:?}");
        prop_assert!(account.client.cached + account.client.cache_write <= account.client.prompt);
        let prompts: u64 = calls.iter().filter_map(|call| call.usage).map(|u| u.prompt).sum();
        prop_assert!(account.sent.prompt >= prompts);
        prop_assert!(account.parts.rewritten >= -1e-6);
    }

    /// So are those of what was only watched.
    #[test]
    fn the_parts_of_a_projection_add_up(
        call in any_call(), view in any_call(), alike in 0_u64..50_000, warm: bool, seen: bool,
        client_caches: bool, view_caches: bool, write in 0.5_f64..2.0, ratio in 0.7_f64..2.0,
    ) {
        let terms = LedgerTerms {
            prices: Prices { write, ..Prices::default() },
            warm, seen, client_caches, view_caches, ratio,
            ..terms()
        };
        let account = projected(&terms, unsent(view.asked, view.whole, alike), &call);
        let saved = account.client_cost.total() - account.sent_cost.total();
        let told = account.parts.net() + account.parts.unexplained;
        prop_assert!((told - saved).abs() < 1e-3, "{account:?}");
        prop_assert!(account.sent.cached + account.sent.cache_write <= account.sent.prompt);
        prop_assert!(account.parts.rewritten >= -1e-6);
        let paid = untouched(&terms, &call);
        prop_assert_eq!(account.client, paid.sent);
    }
}

/// A session in which nothing is evicted, with what the proxy adds to it, and a provider that holds so much of the
/// request before.
#[derive(Debug)]
struct Unedited {
    front: u64,
    /// Tokens of each message that the client sends, and those that the proxy adds behind it.
    grown: Vec<(u64, u64)>,
    /// The share of what the request before had that the provider finds, or none if it does not report.
    found: Vec<Option<f64>>,
    /// The turn at which the client changes its tools.
    changed: usize,
}

prop_compose! {
    fn unedited()(
        front in 0_u64..900,
        turns in prop::collection::vec(
            ((1_u64..3_000, prop_oneof![Just(0), 0_u64..200]),
             prop_oneof![Just(None), Just(Some(0.0)), Just(Some(1.0)), (0.0_f64..1.0).prop_map(Some)]),
            1..30,
        ),
        changed in 0_usize..40,
    ) -> Unedited {
        let (grown, found) = turns.into_iter().unzip();
        Unedited { front, grown, found, changed }
    }
}

proptest! {
    /// Where nothing was evicted nothing is saved or rewritten, whatever a provider reports, and the price of the
    /// hidden tools is that of the tokens which we added.
    #[test]
    fn nothing_is_saved_where_nothing_was_evicted(
        session in unedited(), write in 0.5_f64..2.0, marked: bool, ours: bool, warm: bool, seen: bool,
    ) {
        let terms = LedgerTerms {
            prices: Prices { write, ..Prices::default() },
            cache: CacheModel::Breakpoints {
                max: 4, ttl: HOUR, look_back: None, implicit: false,
            },
            client_caches: marked,
            view_caches: marked || ours,
            warm, seen,
            ..terms()
        };
        let (mut view, mut own) = ((0, 0), (0, 0));
        for (turn, ((grown, added), found)) in session.grown.iter().zip(&session.found).enumerate() {
            let more = if turn == 0 { session.front } else { 0 };
            let before = (view.1, own.1);
            view = (before.0 + grown + added + more, view.0 + grown + added + more);
            own = (before.1 + grown, own.0 + grown);
            let kept = turn != session.changed;
            let asked = |size: (u64, u64), before: u64| asked(size.1, before, if kept { before } else { 0 });
            let (ours, theirs) = (asked(view, before.0), asked(own, before.1));
            let read = found.map(|share| scaled(before.0, share));
            let call = LedgerCall {
                front: session.front,
                edited: false,
                ..call(ours, ours.tokens, read.and_then(|read| usage(ours.tokens, read, ours.tokens - read, 7)))
            };
            let account = account(&terms, theirs, &[call]).unwrap();
            prop_assert_eq!(account.parts.evicted, 0.0);
            prop_assert_eq!(account.parts.rewritten, 0.0);
            prop_assert!(account.parts.unexplained.abs() < 1e-6, "{:?}", account);
            let extra = wide(ours.tokens - theirs.tokens);
            let (low, high) = (terms.prices.read.min(write), 1.0_f64.max(write));
            prop_assert!(account.parts.annotated >= extra * low - 1e-6, "{:?}", account);
            prop_assert!(account.parts.annotated <= extra * high + 1e-6, "{:?}", account);
            if call.usage.is_some() && (terms.client_caches || !terms.view_caches) {
                // The client's own request would have been as new to the provider as ours.
                let fresh = account.client.prompt - account.client.cached;
                let ours = account.sent.prompt - account.sent.cached;
                prop_assert!(fresh <= ours && ours - fresh <= ours.min(ours_added(&call, theirs)));
                prop_assert!(account.parts.breakpoints == 0.0);
            }
        }
    }
}

fn ours_added(call: &LedgerCall, client: RequestSizes) -> u64 {
    call.whole - client.tokens
}

/// A view of which nothing is evicted, 50 tokens of it ours, and 950 that the provider held.
fn unedited_view() -> LedgerCall {
    LedgerCall {
        front: 50,
        ..call(asked(1_050, 950, 950), 1_050, usage(1_050, 950, 0, 0))
    }
}

/// A provider that caches by itself what nobody marked: Claude by way of a host that sets breakpoints.
#[test]
fn where_nobody_sets_a_breakpoint_the_provider_caches_for_both() {
    let unmarked = LedgerTerms {
        client_caches: false,
        view_caches: false,
        ..terms()
    };
    let view = unedited_view();
    let account = account(&unmarked, asked(1_000, 900, 900), &[view]).unwrap();
    assert_eq!(account.client, usage(1_000, 900, 0, 0).unwrap());
    close(account.parts.evicted, 0.0);
    close(account.parts.annotated, 5.0);
    let silent = LedgerCall {
        usage: None,
        ..view
    };
    let account = super::account(&unmarked, asked(1_000, 900, 900), &[silent]).unwrap();
    assert_eq!((account.sent.cached, account.client.cached), (0, 0));
}

/// Ours are breakpoints where the client sets none: what they save is a part of its own.
#[test]
fn breakpoints_of_ours_save_by_themselves() {
    let ours = LedgerTerms {
        client_caches: false,
        ..terms()
    };
    let view = unedited_view();
    let account = account(&ours, asked(1_000, 900, 900), &[view]).unwrap();
    close(account.parts.evicted, 0.0);
    close(account.parts.annotated, 5.0);
    close(account.parts.breakpoints, 900.0 * 0.9);
    close(account.parts.net(), 1_000.0 - 95.0 - 100.0);
}

#[test]
fn the_guidance_pays_for_what_it_rewrites() {
    let view = LedgerCall {
        front: 150,
        ..call(asked(1_150, 950, 0), 1_150, usage(1_150, 0, 0, 0))
    };
    let seen = LedgerTerms {
        seen: true,
        ..terms()
    };
    let account = account(&seen, asked(1_000, 900, 900), &[view]).unwrap();
    close(account.parts.rewritten, 0.0);
    close(account.parts.annotated, 1_150.0 - 100.0 - 90.0);
}

/// What is written for an hour costs more on both sides.
#[test]
fn an_hour_has_its_price_on_both_sides() {
    let hourly = LedgerTerms {
        prices: Prices {
            write: 1.25,
            hour_write: 2.0,
            ..Prices::default()
        },
        hourly: true,
        ..terms()
    };
    let silent = usage(400, 300, 100, 0);
    let told = silent.map(|usage| Usage {
        hour_write: Some(50),
        ..usage
    });
    for (reported, expect) in [(silent, 200.0), (told, 50.0 * 2.0 + 50.0 * 1.25)] {
        let call = call(asked(400, 300, 300), 1_000, reported);
        let account = account(&hourly, asked(1_000, 900, 900), &[call]).unwrap();
        close(account.sent_cost.write, expect);
        close(account.client_cost.write, expect);
        close(account.parts.evicted, 60.0);
    }
}
