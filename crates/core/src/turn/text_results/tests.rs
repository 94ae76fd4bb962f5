//! Tests of `text_results`.

use plimsoll_model::{CacheName, Digest, TenantId};
use plimsoll_tokens::{Counter, Encoding};
use plimsoll_wire::Dialect;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::turn::memo::Memo;

#[test]
fn every_pattern_of_ours_is_one() {
    for profile in TextProfile::ALL {
        assert_eq!(profile.compiled().len(), profile.patterns().len());
        for one in profile.patterns() {
            pattern(one).unwrap();
        }
        // Who is known by a sentence is held to a syntax.
        assert_eq!(
            profile.compiled_syntax().is_some(),
            profile.sentence().is_some()
        );
    }
    for bad in [
        "Observation:",
        "(?i)^observation:",
        "^",
        "^(",
        "^.*",
        "^.",
        r"^\w",
        r"^\S+",
        r"^[A-Z]",
        "^[a-z]",
        "^[^<]",
        r"^\p{L}",
    ] {
        assert!(pattern(bad).is_err(), "{bad}");
    }
    for good in ["^(?i)observation:", "^/", r"^\d+\t", "^<", r"^\[[a-z]+\]"] {
        pattern(good).unwrap();
    }
}
#[test]
fn a_message_that_came_before_is_not_read_again() {
    let memo = Memo::default();
    let counter = Counter::load();
    let tenant = TenantId(Digest([7; 32]));
    let reader = memo.reader(&counter, Encoding::O200k, tenant, Dialect::Chat);
    let results = TextResults {
        profile: Some(TextProfile::Smolagents),
        ..TextResults::default()
    };
    let known = || memo.weight(CacheName::Fronts);
    let find = |results: &TextResults, turns: usize| {
        let user = |text: String| json!({"role": "user", "content": text});
        let mut messages = vec![user("go".to_owned())];
        for turn in 0..turns {
            messages.push(json!({"role": "assistant", "content": format!("run {turn}")}));
            messages.push(user(match turn % 2 {
                0 => format!("Observation: {turn}"),
                _ => format!("and now {turn}"),
            }));
        }
        let body = json!({"model": "m", "messages": messages}).to_string();
        let request = Dialect::Chat.decode(body.into()).unwrap();
        let shapes: Vec<_> = (0..request.messages.len())
            .map(|at| reader.shape(request.message(at)).unwrap())
            .collect();
        let fronts = results.find(None, &reader, &request, &shapes);
        fronts.iter().flatten().count()
    };
    assert_eq!(find(&results, 40), 20);
    let whole = known();
    assert_eq!(find(&results, 40), 20);
    assert_eq!(known(), whole, "read again");
    assert_eq!(find(&results, 42), 21);
    let two = known() - whole;
    assert!(
        0 < two && two <= whole / 20,
        "{two} of {whole} for two turns"
    );
    // What other patterns find is told apart.
    let other = TextResults {
        patterns: vec![pattern("^and now").unwrap()],
        profile: None,
    };
    assert_eq!(find(&other, 40), 20);
    assert!(known() > 2 * whole - whole / 4);
}

/// What agents that are known by themselves write: answers with a call, and results.
fn written(profile: TextProfile) -> (&'static [&'static str], &'static [&'static str]) {
    match profile {
        TextProfile::Smolagents | TextProfile::Dspy => (
            &[
                "Thought: go.\n<code>\nrun(1)\n</code>",
                "Thought: go.\nCode:\n```py\nrun(1)\n```<end_code>",
                "Thought: go.\n```python\nrun(1)\n```",
                "Go.Calling tools:\n[{'id': 'call_1', 'type': 'function', 'function': {'name': 'python_interpreter'}}]",
            ],
            &[
                "Observation:\nExecution logs:\n1\n2\nLast output from code snippet:\nNone",
                "Observation:\nExecution logs:\nLast output from code snippet:\n3",
                "Observation:\nExecution logs:\n1\nCall id: call_1\nError:\nno\nNow let's retry: take care.\n",
                "Call id: call_1\nError:\nno such name\nNow let's retry: take care not to repeat it.\n",
                "Error:\nno such name\nNow let's retry: take care not to repeat it.\n",
            ],
        ),
        TextProfile::MiniSweAgent => (
            &[
                "THOUGHT: go.\n\n```bash\nls\n```",
                "```bash\nls\n```\n\n```bash\npwd\n```",
                "THOUGHT: go.\n```mswea_bash_command\ncat <<'EOF'\n1\nEOF\n```",
            ],
            &[
                "<returncode>0</returncode>\n<output>\na.rs\n</output>",
                "<returncode>-9</returncode>\n<output></output>\n",
                "<returncode>1</returncode>\n<warning>\nlong\n</warning><output_head>\n1\n</output_head>\n<output_tail>\n2\n</output_tail>",
                "Observation: {'output': 'a.rs', 'returncode': 0}",
                "The last command <command>ls</command> timed out and has been killed.\nThe output of the command was:\n <output>\n</output>\nPlease try another command and make sure to avoid those requiring interactive input.",
                "Please always provide EXACTLY ONE action in triple backticks, found 2 actions.",
            ],
        ),
    }
}

/// Answers without a call in any known syntax.
const TALK: [&str; 5] = [
    "All is done.",
    "Observation: it works.",
    "The code is `run(1)`, and the file is a.py.",
    "```rust\nfn main() {}\n```",
    "[[ ## reasoning ## ]]\nnothing to call",
];

/// How users begin lines that results begin with, too.
const BEGINS: [&str; 10] = [
    "Observation: ",
    "Observation:\n",
    "Error:\n",
    "Call id: 3\nError:\n",
    "<returncode>1</returncode> ",
    "<returncode>0</returncode>\n",
    "The last command <command>ls</command> ",
    "The last command <command>",
    "Please always provide EXACTLY ONE action in triple backticks",
    "[[ ## observation ## ]]",
];

/// The messages that count as results, in a conversation of these answers with what follows each.
fn results_of(profile: TextProfile, dialect: Dialect, turns: &[(String, String)]) -> Vec<bool> {
    let (memo, counter) = (Memo::default(), Counter::load());
    let tenant = TenantId(Digest([7; 32]));
    let reader = memo.reader(&counter, Encoding::O200k, tenant, dialect);
    let say = |role: &str, text: &str| json!({"role": role, "content": text});
    let sentence = format!("{}\nMore.", profile.sentence().unwrap());
    let mut messages = vec![say("user", "go")];
    for (answer, next) in turns {
        messages.extend([say("assistant", answer), say("user", next)]);
    }
    let body = match dialect {
        Dialect::Messages => json!({"model": "m", "system": sentence, "messages": messages}),
        Dialect::Chat | Dialect::Responses => {
            messages.insert(0, say("system", &sentence));
            let list = if dialect == Dialect::Chat {
                "messages"
            } else {
                "input"
            };
            json!({"model": "m", list: messages})
        }
    };
    let request = dialect.decode(body.to_string().into()).unwrap();
    let shapes: Vec<_> = (0..request.messages.len())
        .map(|at| reader.shape(request.message(at)).unwrap())
        .collect();
    let fronts = TextResults::default().find(None, &reader, &request, &shapes);
    let users = shapes
        .iter()
        .zip(fronts)
        .filter(|(shape, _)| shape.role == Role::User);
    users.skip(1).map(|(_, front)| front.is_some()).collect()
}

/// What follows an answer: a result of the agent's, or a user's line.
fn turn(profile: TextProfile) -> impl Strategy<Value = (String, String, bool)> {
    let (calls, results) = written(profile);
    let line = ("[a-z ,.]{0,40}", "[a-z ,.\n]{0,40}").prop_map(|(one, two)| one + &two);
    let user = (proptest::sample::select(&BEGINS[..]), line)
        .prop_map(|(begin, line)| format!("{begin}{line}"));
    let ours = proptest::sample::select(results).prop_map(str::to_owned);
    let called = proptest::sample::select(calls).prop_map(str::to_owned);
    let talk = proptest::sample::select(&TALK[..]).prop_map(str::to_owned);
    prop_oneof![
        (called.clone(), ours.clone()).prop_map(|(answer, next)| (answer, next, true)),
        // Even a result's whole form is the user's where nothing was called.
        (talk, prop_oneof![ours.clone(), user.clone()])
            .prop_map(|(answer, next)| (answer, next, false)),
        (called.clone(), user).prop_map(|(answer, next)| (answer, next, false)),
        // What the user wants next, which smolagents joins to a result.
        (called, ours, "[a-z ]{1,20}").prop_map(move |(answer, next, task)| {
            let joined = match profile {
                TextProfile::Smolagents | TextProfile::Dspy => format!("{next}\nNew task:\n{task}"),
                TextProfile::MiniSweAgent => format!("{task}\n{next}"),
            };
            (answer, joined, false)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn only_whole_results_behind_a_call_are_results(
        smolagents in proptest::collection::vec(turn(TextProfile::Smolagents), 0..12),
        mini in proptest::collection::vec(turn(TextProfile::MiniSweAgent), 0..12),
    ) {
        for (profile, said) in [(TextProfile::Smolagents, smolagents), (TextProfile::MiniSweAgent, mini)] {
            // The first result, by which the agent is known.
            let (calls, results) = written(profile);
            let mut turns = vec![(calls[0].to_owned(), results[0].to_owned())];
            let mut expect = vec![true];
            for (answer, next, is_result) in said {
                turns.push((answer, next));
                expect.push(is_result);
            }
            for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
                let found = results_of(profile, dialect, &turns);
                prop_assert_eq!(&found, &expect, "{:?} {:?} {:#?}", profile, dialect, turns);
            }
        }
    }
}
