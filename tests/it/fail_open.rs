//! The proxy's own failures: a store that fails or hangs, a mistake in the middle, a clock that
//! jumps. The turn goes on, or the client's own bytes go up, and nothing recorded before is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use plimsoll::config::Config;
use plimsoll_proxy::pipeline::App;
use plimsoll_scripted::{Provider, Reply, Script};
use plimsoll_store::Store;
use plimsoll_store::faults::Faults;
use plimsoll_store::memory::Memory;
use serde_json::json;

use super::agent::{
    Agent, WHOLE, annotated, bash, extends, last_key, message, metric, newest, none_refused,
    outline, plan, provider, total,
};
use super::support::Proxy;

/// A proxy on a store that fails as the handle says.
async fn faulty(provider: &Provider) -> (Proxy, Faults) {
    let faults = Faults::default();
    let store = Arc::new(Store::Memory(Memory::with_faults(faults.clone())));
    let short = |config: &mut Config| config.store.read_wait = READ_WAIT;
    let proxy = Proxy::wired(provider.address, short, |app| app.store = store).await;
    (proxy, faults)
}

/// How long a request waits to be found: all of it where the store is stuck.
const READ_WAIT: Duration = Duration::from_millis(500);

/// Two turns of work: hidden calls come with visible ones, where there is a tool for them.
fn working() -> Script {
    let plain = |id: &str| vec![Reply::calls(vec![bash(id)])];
    let (with, without) = (
        annotated(2),
        plan([("go", plain("b1")), ("b1", plain("b2"))]),
    );
    Script::ask(move |view| match view.offers("delimiter") {
        true => with.reply(view),
        false => without.reply(view),
    })
}

/// How many messages the third request of such work has upstream, of [`WHOLE`].
const RESTORED: usize = 8;

#[tokio::test]
async fn a_store_that_cannot_be_read_sends_the_clients_bytes() {
    for stream in [false, true] {
        let provider = provider(working()).await;
        let (proxy, faults) = faulty(&provider).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.work("out").await;
        agent.work("out").await;
        faults.fail_reads(true);
        // What is remembered in memory needs no store.
        let known = agent.ask().await.whole();
        assert_eq!(known.header("x-plimsoll-fail-open"), "");
        assert_eq!(outline(&newest(&provider)), WHOLE[..RESTORED]);
        // A history that is not remembered does.
        let mut stranger = agent.clone();
        stranger.history[1] = json!({"role": "user", "content": "go elsewhere"});
        let answer = stranger.ask().await;
        assert_eq!(answer.header("x-plimsoll-fail-open"), "store");
        assert_eq!(answer.whole().heard.text, "done");
        assert_eq!(newest(&provider).body, stranger.body(), "untouched");
        let counted = metric(&proxy, "plimsoll_fail_open_total{stage=\"store\"} 1").await;
        assert!(counted.is_some());
        faults.fail_reads(false);
        let answer = stranger.ask().await.whole();
        assert_eq!(answer.header("x-plimsoll-fail-open"), "");
        assert_ne!(newest(&provider).body, stranger.body(), "managed again");
        none_refused(&provider);
    }
}

#[tokio::test]
async fn a_store_that_is_stuck_at_reading_stalls_neither_its_turns_nor_others() {
    // Also where the body is large enough to be read off the async workers.
    for (stream, size) in [(false, 10), (true, 10), (true, 100_000)] {
        let provider = provider(working()).await;
        let (proxy, faults) = faulty(&provider).await;
        let mut agent = Agent::new(&proxy, stream).told("go");
        agent.history[0] = json!({"role": "system", "content": "x ".repeat(size)});
        agent.work("out").await;
        agent.work("out").await;
        let stuck = faults.hold_reads(10 * READ_WAIT);
        let mut stranger = agent.clone();
        stranger.history[1] = json!({"role": "user", "content": "go elsewhere"});
        // More at once than may be at the disk; the one that is known in memory is among them.
        let strangers = join_all((0..40).map(|_| stranger.ask()));
        let (answers, known) = tokio::join!(strangers, agent.ask());
        assert_eq!(known.whole().header("x-plimsoll-fail-open"), "");
        for answer in answers {
            assert_eq!(answer.header("x-plimsoll-fail-open"), "store");
            assert_eq!(answer.whole().heard.text, "done");
        }
        let sent = |body: &str| provider.chats().iter().filter(|r| r.body == body).count();
        assert_eq!(sent(&stranger.body()), 40, "untouched");
        let counted = metric(&proxy, "plimsoll_fail_open_total{stage=\"store\"} 40").await;
        assert!(counted.is_some());
        drop(stuck);
        let answer = stranger.ask().await.whole();
        assert_eq!(answer.header("x-plimsoll-fail-open"), "");
        assert_ne!(newest(&provider).body, stranger.body(), "managed again");
        none_refused(&provider);
    }
}

/// How many readings of the store the metrics tell of.
async fn readings(proxy: &Proxy, op: &str) -> f64 {
    total(
        proxy,
        &format!("plimsoll_store_op_seconds_count{{op=\"{op}\"}}"),
    )
    .await
}

#[tokio::test]
async fn a_look_up_that_is_late_reads_no_further() {
    let provider = provider(working()).await;
    let (proxy, faults) = faulty(&provider).await;
    let mut agent = Agent::new(&proxy, false).told("go");
    // Nothing of this history is known, and finding that out takes dozens of readings.
    for turn in 0..300 {
        let said = json!({"role": "assistant", "content": format!("said {turn}")});
        agent.history.push(said);
        agent.user("go on");
    }
    let slow = faults.hold_reads(READ_WAIT / 5);
    let answer = agent.ask().await;
    assert_eq!(answer.header("x-plimsoll-fail-open"), "store");
    let read = readings(&proxy, "links").await;
    assert!(read > 0.0, "the look-up had begun");
    tokio::time::sleep(READ_WAIT).await;
    // The reading that was under way comes to its end, and no other begins.
    let later = readings(&proxy, "links").await - read;
    assert!(later <= 1.0, "{later} more readings");
    drop(slow);
}

#[tokio::test]
async fn an_id_that_many_sessions_have_costs_few_readings() {
    const SESSIONS: usize = 200;
    // Some providers give the same id to the first call of every session.
    let one = Script::ask(|_| Reply::calls(vec![bash("b1")]));
    let provider = provider(one).await;
    let proxy = Proxy::before(provider.address).await;
    for session in 0..SESSIONS {
        Agent::new(&proxy, false)
            .told(&format!("task {session}"))
            .turn()
            .await;
    }
    let before = readings(&proxy, "blobs").await;
    // Another task with such a call: any of the sessions might be behind it.
    let mut stranger = Agent::new(&proxy, false).told("another task");
    stranger.history.push(
        json!({"role": "assistant", "content": null, "tool_calls": [{
            "id": "b1", "type": "function", "function": {"name": "bash", "arguments": "{}"},
        }]}),
    );
    stranger.result("b1", "out");
    stranger.ask().await.whole();
    let read = readings(&proxy, "blobs").await - before;
    assert!(read > 0.0, "none of the sessions was tried");
    // Each of the few that are tried is read twice at most: as a record and as a path.
    assert!(read < 150.0, "{read} readings for {SESSIONS} sessions");
}

#[tokio::test]
async fn a_store_that_fails_or_hangs_at_writing_stops_no_turn() {
    for stream in [false, true] {
        for hangs in [false, true] {
            let provider = provider(working()).await;
            let (proxy, faults) = faulty(&provider).await;
            if hangs {
                // Longer than any test waits: the answer has to come without it.
                faults.delay_commits(Duration::from_secs(3_600));
            } else {
                faults.fail_commits(true);
            }
            let mut agent = Agent::new(&proxy, stream).told("go");
            agent.work("out").await;
            agent.work("out").await;
            assert_eq!(agent.turn().await.heard.text, "done");
            assert_eq!(outline(&newest(&provider)), WHOLE[..RESTORED], "{hangs}");
            none_refused(&provider);
            extends(&provider.chats());
            // All three were managed, so none of them failed open.
            let why = if hangs { "late" } else { "failed" };
            let counted = format!("plimsoll_unrecorded_total{{why=\"{why}\"}} 3");
            assert!(metric(&proxy, &counted).await.is_some(), "{why}");
            assert_eq!(total(&proxy, "plimsoll_unrecorded_total").await, 3.0);
            assert_eq!(total(&proxy, "plimsoll_fail_open_total").await, 0.0);
        }
    }
}

#[tokio::test]
async fn a_record_that_was_not_written_is_a_gap_and_no_more() {
    let provider = provider(working()).await;
    let (proxy, faults) = faulty(&provider).await;
    let mut agent = Agent::new(&proxy, true).told("go");
    agent.work("out").await;
    faults.fail_commits(true);
    agent.work("out").await;
    faults.fail_commits(false);
    // Another process on the same store remembers nothing but what was written.
    let store = Arc::clone(&proxy.app.store);
    let other = Proxy::wired(provider.address, |_| {}, |app| app.store = store).await;
    agent.url = other.url("/v1/chat/completions");
    assert_eq!(agent.turn().await.heard.text, "done");
    assert_eq!(
        outline(&newest(&provider)),
        [&WHOLE[..5], &["assistant b2", "tool b2"]].concat()
    );
    none_refused(&provider);
}

/// A clock that fails at one reading: each turn of one hop reads it first when the hop is
/// prepared and then when the turn is recorded.
fn failing_at(app: &mut App, reading: usize) {
    static READING: AtomicUsize = AtomicUsize::new(0);
    static FAILS: AtomicUsize = AtomicUsize::new(0);
    READING.store(0, Ordering::SeqCst);
    FAILS.store(reading, Ordering::SeqCst);
    app.clock = || {
        let now = READING.fetch_add(1, Ordering::SeqCst);
        assert_ne!(now, FAILS.load(Ordering::SeqCst), "injected");
        1_000
    };
}

#[tokio::test]
async fn a_mistake_in_the_middle_costs_the_turn_its_management_and_nothing_else() {
    for stream in [false, true] {
        // Also where the body is large enough to be read off the async workers.
        for size in [10, 200_000] {
            for reading in [0, 1, 2] {
                let provider = provider(working()).await;
                let rewire = |app: &mut App| failing_at(app, reading);
                let proxy = Proxy::wired(provider.address, |_| {}, rewire).await;
                let mut agent = Agent::new(&proxy, stream).told("go");
                agent.history[0] = json!({"role": "system", "content": "x ".repeat(size)});
                let sent = agent.body();
                let first = agent.ask().await.whole();
                let what = format!("{stream} {size} {reading}");
                if reading == 0 {
                    assert_eq!(first.header("x-plimsoll-fail-open"), "panic", "{what}");
                    assert_eq!(newest(&provider).body, sent, "{what}");
                }
                agent.keep(&first.heard);
                agent.result("b1", "out");
                agent.work("out").await;
                agent.turn().await;
                none_refused(&provider);
                let third = outline(&newest(&provider));
                let kept = ["tool d1", "tool d2"].map(|line| third.contains(&line.to_owned()));
                let expect = match reading {
                    // The first turn went up as it came, or was not recorded.
                    0 | 1 => [false, true],
                    // So did the second.
                    _ => [true, false],
                };
                assert_eq!(kept, expect, "{what} {third:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_clock_that_jumps_changes_nothing_but_when_a_pass_is_free() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    const DAY: u64 = 24 * 3_600 * 1_000;
    let provider = provider(Script::ask(|view| {
        let key = last_key(view.messages());
        match key.strip_prefix("ask ") {
            Some(number) => Reply::calls(vec![bash(&format!("b{number}"))]),
            None => Reply::text("done"),
        }
    }))
    .await;
    let proxy = Proxy::wired(
        provider.address,
        |config| config.budget.ceiling = 5_000,
        |app| app.clock = || NOW.load(Ordering::SeqCst),
    )
    .await;
    let mut agent = Agent::new(&proxy, true).told("go");
    let times = [100 * DAY, 99 * DAY, 0, u64::MAX, 5, 50 * DAY, 50 * DAY + 1];
    for (number, now) in times.into_iter().enumerate() {
        NOW.store(now, Ordering::SeqCst);
        agent.user(&format!("ask {number}"));
        // Above the floor of 3,500 tokens from the sixth time on, and never above the ceiling.
        agent
            .work(&format!("{number} {}", "lorem ipsum ".repeat(200)))
            .await;
        agent.turn().await;
    }
    none_refused(&provider);
    // Forward jumps look like a cold cache, in which a pass is free; backward ones never do.
    let sizes: Vec<usize> = provider
        .chats()
        .iter()
        .map(|request| request.size)
        .collect();
    let fell: Vec<usize> = (1..sizes.len())
        .filter(|at| sizes[*at] < sizes[at - 1])
        .collect();
    assert_eq!(fell, [10], "{sizes:?}");
    assert_eq!(message(&newest(&provider), 0)["role"], "system");
}
