//! Providers that bind each thought to everything before it: whole sessions, and sessions of which the proxy is
//! switched off, only watches or fails on the way. No client gets a refusal that it would not have had alone,
//! and a provider refuses once.

use std::sync::Arc;

use plimsoll_core::turn::Offer;
use plimsoll_scripted::rules::Mismatch;
use plimsoll_scripted::{Form, Received, Rule, Rules, Verdict, thoughts};
use plimsoll_store::Store;
use plimsoll_store::faults::Faults;
use plimsoll_store::memory::Memory;
use serde_json::Value;

use super::agent::{Agent, Heard};
use super::host::Host;
use super::rule;
use super::script::{Quirks, goes_on, output};
use super::session::Case;
use crate::support::Proxy;

pub const OPUS: &str = "claude-opus-5-5";
/// The same behind OpenRouter.
pub const ROUTED: &str = "anthropic/claude-opus-5.5";
/// The model of Responses that binds.
pub const SOL: &str = "gpt-6.2-sol";
/// The budget of a session: some five results.
const CEILING: u32 = 4_000;

fn case(form: Form, model: &'static str, outcome: Mismatch) -> Case {
    Case::new(form, model, Rule::Bound(outcome))
}

rule!(refuses, case(Form::Messages, OPUS, Mismatch::Refuse));
rule!(drops, case(Form::Messages, OPUS, Mismatch::Drop));
rule!(ignores, case(Form::Messages, OPUS, Mismatch::Ignore));
rule!(
    no_table_knows_it,
    case(Form::Messages, "mystery-1", Mismatch::Refuse)
);
rule!(
    behind_openrouter,
    case(Form::Chat, ROUTED, Mismatch::Refuse)
);
rule!(
    behind_litellm,
    case(Form::Chat, OPUS, Mismatch::Refuse).and(Rule::ThinkingBlocks)
);
rule!(responses, case(Form::Responses, SOL, Mismatch::Drop));
rule!(asked_for_late, {
    let guide = (Offer::Start, 1.0);
    Case::guided(Form::Messages, OPUS, guide).and(Rule::Bound(Mismatch::Refuse))
});
rule!(asked_for_at_a_mark, {
    let guide = (Offer::Start, 0.5);
    Case::guided(Form::Messages, OPUS, guide).and(Rule::Bound(Mismatch::Refuse))
});
rule!(asked_for_at_a_mark_in_responses, {
    let guide = (Offer::Start, 0.5);
    Case::guided(Form::Responses, SOL, guide).and(Rule::Bound(Mismatch::Drop))
});
rule!(offered_late, {
    let guide = (Offer::Line, 1.0);
    Case::guided(Form::Messages, OPUS, guide).and(Rule::Bound(Mismatch::Refuse))
});
rule!(one_long_turn, {
    let quirks = Quirks {
        alone: true,
        ..Quirks::PLAIN
    };
    case(Form::Messages, OPUS, Mismatch::Refuse).quirks(quirks)
});
rule!(long_and_thoughtful, {
    let quirks = Quirks {
        last: 120,
        thinks: 300,
        ..Quirks::PLAIN
    };
    case(Form::Messages, OPUS, Mismatch::Refuse)
        .quirks(quirks)
        .budget(8_000)
});
rule!(a_large_budget, {
    let quirks = Quirks {
        last: 250,
        thinks: 250,
        ..Quirks::PLAIN
    };
    case(Form::Messages, OPUS, Mismatch::Refuse)
        .quirks(quirks)
        .budget(40_000)
});
rule!(goes_on_with_another, {
    case(Form::Messages, "claude-opus-4-6", Mismatch::Ignore)
        .switched(OPUS, [Rule::Bound(Mismatch::Refuse)])
});

pub async fn host(form: Form, outcome: Mismatch) -> Host {
    Host::start(form, Rules::new([Rule::Bound(outcome)]), Quirks::PLAIN).await
}

fn agent(form: Form, model: &str, stream: bool) -> Agent {
    let mut agent = Agent::new(form, stream, model, CEILING);
    agent.user("go");
    agent
}

/// A proxy on a store that others have as well.
async fn sharing(host: &Host, store: &Arc<Store>) -> Proxy {
    let store = Arc::clone(store);
    Proxy::wired(host.addr, |_| {}, |app| app.store = store).await
}

/// Takes some turns, all of which have to be answered.
async fn work(agent: &mut Agent, turns: usize) -> Vec<Heard> {
    let mut all = Vec::new();
    for turn in 0..turns {
        let heard = agent.ask().await;
        assert_eq!(heard.status, 200, "turn {turn}: {}", heard.bytes);
        agent.keep(&heard);
        for (id, ..) in &heard.calls {
            agent.result(id, &output(id, Quirks::PLAIN));
        }
        if heard.calls.is_empty() {
            let words = goes_on(&heard.text, Quirks::PLAIN).unwrap_or_else(|| "on 1".to_owned());
            agent.user(&words);
        }
        all.push(heard);
    }
    all
}

pub fn refused(request: &&Received) -> bool {
    matches!(request.verdict, Verdict::Refused(_))
}

/// What a provider accepted, as bodies.
fn accepted(host: &Host) -> Vec<Value> {
    let requests = host.requests();
    let accepted = requests.iter().filter(|request| !refused(request));
    accepted.map(Received::value).collect()
}

const FORMS: [(Form, &str); 2] = [(Form::Messages, OPUS), (Form::Chat, ROUTED)];

/// What is sent past the proxy's views is the client's own: it is refused, and goes up again without thoughts.
#[tokio::test]
async fn a_session_lives_through_off_and_observe_and_back() {
    for (form, model) in FORMS {
        for stream in [false, true] {
            let host = host(form, Mismatch::Refuse).await;
            let proxy = Proxy::before(host.addr).await;
            let mut agent = agent(form, model, stream);
            agent.at(proxy.addr);
            work(&mut agent, 14).await;
            assert_eq!(host.refusals().len(), 1, "{form:?}: the first pass teaches");
            for mode in ["off", "observe"] {
                agent.mode = Some(mode);
                let heard = work(&mut agent, 4).await;
                assert!(
                    heard
                        .iter()
                        .all(|heard| heard.header("x-plimsoll-fail-open").is_empty())
                );
            }
            let before = host.refusals().len();
            agent.mode = None;
            work(&mut agent, 12).await;
            assert_eq!(
                host.refusals().len(),
                before,
                "{form:?}: managed again, nothing is refused"
            );
            proxy.end().await;
        }
    }
}

/// A client that never had the proxy before may have a history with thoughts.
#[tokio::test]
async fn a_session_that_began_without_the_proxy_keeps_its_thoughts_until_a_pass() {
    for (form, model) in FORMS {
        let host = host(form, Mismatch::Refuse).await;
        let proxy = Proxy::before(host.addr).await;
        let mut agent = agent(form, model, false);
        agent.at(host.addr);
        work(&mut agent, 3).await;
        agent.at(proxy.addr);
        work(&mut agent, 2).await;
        assert_eq!(host.refusals(), [], "{form:?}");
        let bodies = accepted(&host);
        thoughts::append_only(form, &bodies).unwrap();
        let carried = thoughts::carried(form, bodies.last().unwrap());
        assert!(carried.len() >= 3, "{form:?}: {carried:?}");
        work(&mut agent, 20).await;
        assert!(
            host.refusals().len() <= 1,
            "{form:?}: {:?}",
            host.refusals()
        );
        proxy.end().await;
    }
}

/// What one process learned is known to another one with the same store, and to one that begins later.
#[tokio::test]
async fn another_replica_has_nothing_refused_again() {
    let host = host(Form::Messages, Mismatch::Refuse).await;
    let store = Arc::new(Store::forgetful(64 << 20));
    let one = sharing(&host, &store).await;
    let mut first = agent(Form::Messages, OPUS, true);
    first.at(one.addr);
    work(&mut first, 16).await;
    assert_eq!(host.refusals().len(), 1);
    let other = sharing(&host, &store).await;
    let mut second = agent(Form::Messages, OPUS, true);
    second.session = "another";
    second.at(other.addr);
    work(&mut second, 16).await;
    // And the first session goes on there.
    first.at(other.addr);
    work(&mut first, 8).await;
    assert_eq!(host.refusals().len(), 1, "{:?}", host.refusals());
    one.end().await;
    other.end().await;
}

/// A client may say itself what becomes of thoughts that lost their place.
#[tokio::test]
async fn a_client_that_asks_for_a_wish_of_its_own_gets_it() {
    let host = host(Form::Messages, Mismatch::Refuse).await;
    let proxy = Proxy::before(host.addr).await;
    let mut agent = agent(Form::Messages, OPUS, false);
    agent.binding = Some("drop_block");
    agent.at(proxy.addr);
    let heard = work(&mut agent, 24).await;
    assert_eq!(host.refusals(), [], "the client has them dropped");
    // One that is dropped may take all behind it along, so none is sent.
    let invalid = host
        .requests()
        .iter()
        .map(|request| request.judged.invalid().count())
        .sum::<usize>();
    assert_eq!(invalid, 0);
    assert!(
        heard
            .iter()
            .all(|heard| heard.bytes.contains("input_transformations"))
    );
    proxy.end().await;
}

/// A store that can't be read has the client's own request sent, and the session goes on behind that.
#[tokio::test]
async fn a_session_lives_through_a_store_that_fails() {
    for (form, model) in FORMS {
        let host = host(form, Mismatch::Refuse).await;
        let faults = Faults::default();
        let store = Arc::new(Store::Memory(Memory::with_faults(faults.clone())));
        let one = sharing(&host, &store).await;
        let mut agent = agent(form, model, true);
        agent.at(one.addr);
        work(&mut agent, 14).await;
        // Another process remembers nothing.
        let other = sharing(&host, &store).await;
        agent.at(other.addr);
        faults.fail_reads(true);
        let heard = work(&mut agent, 3).await;
        let stages = heard
            .iter()
            .map(|heard| heard.header("x-plimsoll-fail-open"));
        assert_eq!(stages.collect::<Vec<_>>(), ["store"; 3], "{form:?}");
        faults.fail_reads(false);
        let before = host.refusals().len();
        let heard = work(&mut agent, 12).await;
        assert!(
            heard
                .iter()
                .all(|heard| heard.header("x-plimsoll-fail-open").is_empty())
        );
        assert_eq!(host.refusals().len(), before, "{form:?}: managed again");
        one.end().await;
        other.end().await;
    }
}

/// Another model answers for a while, with a client that keeps thoughts and with one that drops them.
#[tokio::test]
async fn a_session_comes_back_to_a_model_that_binds() {
    const OTHER: &str = "claude-opus-4-6";
    for keeps in [true, false] {
        let rules = Rules::default()
            .of(OPUS, [Rule::Bound(Mismatch::Refuse)])
            .of(OTHER, [Rule::Bound(Mismatch::Ignore)]);
        let host = Host::start(Form::Messages, rules, Quirks::PLAIN).await;
        let proxy = Proxy::before(host.addr).await;
        let mut agent = agent(Form::Messages, OPUS, true);
        agent.at(proxy.addr);
        work(&mut agent, 12).await;
        for (model, turns) in [(OTHER, 5), (OPUS, 12)] {
            match keeps {
                true => model.clone_into(&mut agent.model),
                false => agent.switch(model),
            }
            work(&mut agent, turns).await;
        }
        assert!(
            host.refusals().len() <= 1,
            "keeps {keeps}: {:?}",
            host.refusals()
        );
        proxy.end().await;
    }
}

/// A fork, a history that its client has summed up, and one whose older results its client clears.
#[tokio::test]
async fn a_session_lives_whatever_its_client_makes_of_its_history() {
    for (form, model) in FORMS {
        let host = host(form, Mismatch::Refuse).await;
        let proxy = Proxy::before(host.addr).await;
        let mut agent = agent(form, model, true);
        agent.at(proxy.addr);
        work(&mut agent, 12).await;
        let mut fork = agent.clone();
        work(&mut agent, 10).await;
        let refusals = host.refusals().len();
        assert!(refusals <= 1, "{form:?}: {refusals}");
        work(&mut fork, 8).await;
        assert_eq!(host.refusals().len(), refusals, "{form:?}: a fork");
        let mut summed = agent.clone();
        summed.history.clear();
        summed.user("on 20");
        work(&mut summed, 8).await;
        assert_eq!(host.refusals().len(), refusals, "{form:?}: summed up");
        // At the provider this client would be refused.
        let old = agent.history.iter_mut().find(|message| is_result(message));
        clear(old.unwrap());
        work(&mut agent, 6).await;
        assert_eq!(host.refusals().len(), refusals, "{form:?}: cleared");
        proxy.end().await;
    }
}

fn is_result(message: &Value) -> bool {
    message["role"] == "tool" || message["content"][0]["type"] == "tool_result"
}

fn clear(message: &mut Value) {
    let place = match message["role"] == "tool" {
        true => &mut message["content"],
        false => &mut message["content"][0]["content"],
    };
    *place = "[cleared]".into();
}

/// The guidance in a request: its place in the list, or nothing if it stands elsewhere.
fn guided_at(body: &Value) -> Vec<Option<usize>> {
    let guides = |value: &Value| value.to_string().contains("# Context episodes");
    let list = |field: &str| body[field].as_array().cloned().unwrap_or_default();
    let listed = [list("messages"), list("input")].concat();
    let system = |message: &Value| {
        ["system", "developer"]
            .iter()
            .any(|role| message["role"] == *role)
    };
    let found = listed.iter().enumerate();
    let found = found.filter(|(_, message)| system(message) && guides(message));
    let front = ["system", "instructions"]
        .iter()
        .any(|field| guides(&body[*field]));
    let places = found.map(|(at, _)| Some(at));
    places.chain(front.then_some(None)).collect()
}

/// A proxy that has work marked from a third of the budget on.
async fn asking(host: &Host) -> Proxy {
    Proxy::with(host.addr, |config| config.budget.guide_at = 0.3).await
}

#[tokio::test]
async fn guidance_without_a_pass_stands_at_the_end_and_ends_no_thought() {
    for (form, model) in [(Form::Messages, OPUS), (Form::Responses, SOL)] {
        for stream in [true, false] {
            let host = host(form, Mismatch::Refuse).await;
            let proxy = asking(&host).await;
            let mut agent = Agent::new(form, stream, model, 12_000);
            agent.user("go");
            agent.at(proxy.addr);
            work(&mut agent, 11).await;
            assert_eq!(host.refusals(), [], "{form:?}");
            let bodies = accepted(&host);
            thoughts::append_only(form, &bodies).unwrap();
            let places: Vec<_> = bodies.iter().map(guided_at).collect();
            let first = places.iter().position(|places| !places.is_empty());
            let first = first.expect("guidance comes");
            // At the end of the request that brings it, and there in all behind it.
            let list = ["messages", "input"].map(|field| bodies[first][field].as_array());
            let last = list.into_iter().flatten().next().unwrap().len() - 1;
            assert!(first > 2 && first + 2 < bodies.len(), "{form:?}: {first}");
            for places in &places[first..] {
                assert_eq!(places, &[Some(last)], "{form:?}");
            }
            let carried = thoughts::carried(form, bodies.last().unwrap());
            assert_eq!(carried.len(), bodies.len() - 1, "{form:?}");
            proxy.end().await;
        }
    }
}

/// It is refused once, comes with a pass, and no other session has it refused again.
#[tokio::test]
async fn a_provider_that_takes_no_guidance_at_the_end_gets_it_with_a_pass() {
    for stream in [true, false] {
        let rules = [Rule::Bound(Mismatch::Refuse), Rule::NoSystemAmong];
        let host = Host::start(Form::Messages, Rules::new(rules), Quirks::PLAIN).await;
        let proxy = asking(&host).await;
        for session in ["one", "another"] {
            let mut agent = agent(Form::Messages, OPUS, stream);
            agent.session = session;
            agent.at(proxy.addr);
            work(&mut agent, 16).await;
            let refusals = host.refusals();
            let system = refusals
                .iter()
                .filter(|(_, words)| words.contains("role 'system'"));
            assert_eq!((system.count(), refusals.len()), (1, 2), "{refusals:?}");
            let bodies = accepted(&host);
            assert_eq!(guided_at(bodies.last().unwrap()), [None], "{session}");
        }
        proxy.end().await;
    }
}

/// A fork from before the guidance has its own, and one from behind it the same.
#[tokio::test]
async fn forks_have_guidance_at_the_end_as_well() {
    let host = host(Form::Messages, Mismatch::Refuse).await;
    let store = Arc::new(Store::forgetful(64 << 20));
    let proxy = |store: &Arc<Store>| {
        let store = Arc::clone(store);
        let set = |config: &mut plimsoll::config::Config| config.budget.guide_at = 0.3;
        Proxy::wired(host.addr, set, |app| app.store = store)
    };
    let one = proxy(&store).await;
    let mut agent = Agent::new(Form::Messages, true, OPUS, 12_000);
    agent.user("go");
    agent.at(one.addr);
    work(&mut agent, 3).await;
    let early = agent.clone();
    work(&mut agent, 6).await;
    let late = agent.clone();
    // At another replica.
    let other = proxy(&store).await;
    for mut fork in [early, late] {
        fork.at(other.addr);
        let before = host.requests().len();
        work(&mut fork, 7).await;
        let bodies = accepted(&host).split_off(before);
        thoughts::append_only(Form::Messages, &bodies).unwrap();
        assert_eq!(guided_at(bodies.last().unwrap()).len(), 1);
    }
    assert_eq!(host.refusals(), []);
    one.end().await;
    other.end().await;
}
