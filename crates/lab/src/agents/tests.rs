//! Files that the agents themselves wrote (`tests/fixtures/agents`), read as recordings: nothing that
//! was said or called is lost, and nothing is made up.

use std::path::PathBuf;

use plimsoll_core::policy::Policy;
use plimsoll_model::Role;

use super::*;
use crate::source::{self, Source};
use crate::{Lab, Options};

fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agents");
    folder.join(name)
}

fn read(name: &str) -> Vec<Trace> {
    let sources = source::find(&[fixture(name)]).unwrap().found;
    sources
        .iter()
        .flat_map(|source| source.read().unwrap())
        .collect()
}

fn messages(trace: &Trace) -> Vec<Value> {
    let raw = trace.messages.iter();
    raw.map(|message| serde_json::from_slice(&message.raw).unwrap())
        .collect()
}

/// The calls of a conversation: the id, the name, and what stands in its result.
fn calls(trace: &Trace) -> Vec<(String, String, String)> {
    let messages = messages(trace);
    let calls = messages
        .iter()
        .flat_map(|message| items(message, "tool_calls"));
    let result = |id: &str| {
        let mut results = messages
            .iter()
            .filter(|message| text(message, "tool_call_id") == id);
        let result = results
            .next()
            .map(|result| text(result, "content").to_owned());
        assert!(results.next().is_none(), "{id} has one result");
        result.unwrap_or_else(|| panic!("{id} has a result"))
    };
    let one = |call: &Value| {
        let (id, name) = (text(call, "id"), text(field(call, "function"), "name"));
        (id.to_owned(), name.to_owned(), result(id))
    };
    calls.map(one).collect()
}

fn said(trace: &Trace, role: &str) -> Vec<String> {
    let messages = messages(trace);
    let own = messages
        .iter()
        .filter(|message| text(message, "role") == role);
    own.map(|message| text(message, "content").to_owned())
        .collect()
}

/// What the script of the fixtures says in its two tasks.
const ANSWERS: [&str; 7] = [
    "First I look around.",
    "There are files to read.",
    "Now I change one.",
    "",
    "Task one is done.",
    "One more.",
    "Task two is done.",
];

#[test]
fn a_session_of_two_tasks_is_read_whole() {
    for (name, shell, reasons, tools, input) in [
        ("claude.jsonl", "Bash", true, true, 97_341),
        ("codex.jsonl", "exec_command", true, false, 82_380),
        ("pi.jsonl", "bash", false, true, 0),
    ] {
        let [trace] = &read(name)[..] else {
            panic!("{name} is one conversation");
        };
        one_of_two_tasks(name, trace, shell, reasons);
        assert_eq!(trace.tools_from == trace::Tools::Recorded, tools, "{name}");
        let usage = trace.usage.unwrap();
        assert_eq!(usage.output, 70, "{name}");
        assert!(input == 0 || usage.input == input, "{name}: {usage:?}");
        assert!(trace.skipped.is_empty(), "{name}");
        assert!(
            trace
                .messages
                .iter()
                .all(|message| message.time.is_some() || message.role == Role::System),
            "{name}"
        );
    }
    let stored = read("opencode.db");
    one_of_two_tasks("opencode.db", &stored[0], "bash", false);
    let usage = stored[0].usage.unwrap();
    assert_eq!(
        (usage.input, usage.output),
        (59_950, 70),
        "as the database adds it up"
    );
}

fn one_of_two_tasks(name: &str, trace: &Trace, shell: &str, reasons: bool) {
    let answers: Vec<String> = said(trace, "assistant");
    assert_eq!(answers.len(), ANSWERS.len(), "{name}: {answers:?}");
    for (answer, wanted) in answers.iter().zip(ANSWERS) {
        assert!(answer.contains(wanted), "{name}: {answer} {wanted}");
    }
    let calls = calls(trace);
    let ids: Vec<&str> = calls
        .iter()
        .map(|(id, _, _)| id.split('|').next().unwrap())
        .collect();
    let wanted = [
        "call_s0h1n0",
        "call_s1h0n0",
        "call_s1h0n1",
        "call_s2h0n2",
        "call_s3h2n0",
        "call_s3h2n1",
        "call_s5h0n1",
    ];
    assert_eq!(ids, wanted, "{name}");
    assert_eq!(calls[0].1, shell, "{name}");
    assert!(calls[0].2.contains("notes.txt"), "{name}: {:?}", calls[0]);
    assert!(calls[2].2.contains("1 notes.txt"), "{name}: {:?}", calls[2]);
    let users = said(trace, "user").concat();
    assert!(
        users.contains("[task one]") && users.contains("[task two]"),
        "{name}: {users}"
    );
    let thought = messages(trace)
        .iter()
        .any(|message| message.get("reasoning_content").is_some());
    assert_eq!(thought, reasons, "{name}");
    assert_ne!(trace.model, "recorded", "{name}");
}

#[test]
fn a_summary_begins_another_conversation() {
    for (name, conversations) in [
        ("claude-compacted.jsonl", 2),
        ("codex-compacted.jsonl", 3),
        ("pi-compacted.jsonl", 5),
    ] {
        let traces = read(name);
        assert_eq!(traces.len(), conversations, "{name}");
        summarised(name, &traces);
    }
    let stored = read("opencode.db");
    assert_eq!(
        stored.len(),
        4,
        "two sessions, one of which was summarised twice"
    );
    summarised("opencode.db", &stored[1..]);
}

/// How many requests are made when conversations are played.
fn requests(traces: &[Trace]) -> u64 {
    let options = Options {
        policies: vec![Policy::None.into()],
        threads: 1,
        ..Options::default()
    };
    let lab = Lab::new(options).unwrap();
    let played = traces.iter().map(|trace| lab.session(trace).unwrap());
    played
        .map(|played| played.policies[0].runs[0].outcome.requests)
        .sum()
}

#[test]
fn what_a_summary_kept_is_asked_for_once() {
    // As many as there are answers in the file, the summaries left out.
    for (name, answers) in [
        ("claude-compacted.jsonl", 17),
        ("codex-compacted.jsonl", 16),
        ("pi-compacted.jsonl", 16),
        ("opencode.db", 16 + 7),
    ] {
        assert_eq!(requests(&read(name)), answers, "{name}");
    }
}

/// codex keeps answers in what replaces a history, and goes on right behind them.
#[test]
fn answers_in_a_history_that_replaces_another_are_not_asked_for_again() {
    let line = |kind: &str, payload: Value| {
        let line =
            json!({"timestamp": "2026-01-02T03:04:05.678Z", "type": kind, "payload": payload});
        line.to_string()
    };
    let said = |role: &str, said: &str| {
        let kind = match role {
            "assistant" => "output_text",
            _ => "input_text",
        };
        json!({"type": "message", "role": role, "content": [{"type": kind, "text": said}]})
    };
    let kept = json!([
        said("user", "Do it."),
        said("assistant", "Half of it is done.")
    ]);
    let compacted = json!({"message": "", "replacement_history": kept});
    let lines = [
        line("session_meta", json!({"id": "s", "cwd": "/"})),
        line("response_item", said("user", "Do it.")),
        line("response_item", said("assistant", "Half of it is done.")),
        line("compacted", compacted.clone()),
        line("response_item", said("assistant", "More is done.")),
        line("response_item", said("user", "And the rest?")),
        line("response_item", said("assistant", "All is done.")),
        // Nothing is asked between two summaries.
        line("compacted", compacted.clone()),
        line("compacted", compacted),
    ];
    let traces = Form::Codex.read("s", &lines.join("\n"));
    assert_eq!(traces.len(), 2);
    assert_eq!(requests(&traces), 3);
    let answers = self::said(&traces[1], "assistant");
    let wanted = ["Half of it is done.", "More is done.", "All is done."];
    assert_eq!(answers, wanted);
}

/// No call is lost between the conversations, and each goes on with the same system text.
fn summarised(name: &str, traces: &[Trace]) {
    let mut seen: Vec<String> = Vec::new();
    for (at, trace) in traces.iter().enumerate() {
        let numbered = trace.name.ends_with(&format!("#{}", at + 1));
        assert_eq!(numbered, at > 0, "{name}: {}", trace.name);
        let system = |trace: &Trace| said(trace, "system").first().cloned();
        assert_eq!(system(trace), system(&traces[0]), "{name}");
        seen.extend(calls(trace).into_iter().map(|(id, _, _)| id));
    }
    // The script reads fourteen chapters, each in a step of its own.
    for step in 0..14 {
        let found = seen
            .iter()
            .any(|id| id.starts_with(&format!("call_s{step}h")));
        assert!(found, "{name}: step {step} of {seen:?}");
    }
}

#[test]
fn lines_that_can_not_be_read_are_counted_and_cost_nothing_else() {
    let whole = std::fs::read_to_string(fixture("codex.jsonl")).unwrap();
    let mut lines: Vec<&str> = whole.lines().collect();
    let last = lines.pop().unwrap();
    let torn = &last[..last.len() / 2];
    lines.insert(5, "{ torn");
    lines.insert(9, "[]");
    lines.push(torn);
    let traces = Form::Codex.read("s", &lines.join("\n"));
    assert_eq!(traces[0].skipped, [6, 10, lines.len()]);
    assert_eq!(calls(&traces[0]), calls(&read("codex.jsonl")[0]));
    // Of a file cut anywhere, what is whole is read.
    for at in (0..whole.len())
        .step_by(997)
        .filter(|at| whole.is_char_boundary(*at))
    {
        let _read = Form::Codex.read("s", &whole[..at]);
        let _read = Form::Claude.read("s", &whole[..at]);
        let _read = Form::Pi.read("s", &whole[..at]);
    }
    assert!(
        Form::Pi
            .read(
                "s",
                "{\"type\":\"session\",\"id\":\"a\",\"parentId\":\"a\"}"
            )
            .is_empty()
    );
}

#[test]
fn what_was_left_of_a_tree_is_not_read() {
    let line = |id: &str, parent: &str, kind: &str, said: &str| {
        let message = json!({"role": kind, "id": id, "content": [{"type": "text", "text": said}]});
        json!({"type": kind, "uuid": id, "parentUuid": parent, "sessionId": "s", "message": message}).to_string()
    };
    let lines = [
        line("1", "", "user", "Do it."),
        line("2", "1", "assistant", "Wrongly done."),
        line("3", "2", "user", "No."),
        line("4", "1", "assistant", "Well done."),
        line("5", "4", "user", "Thanks."),
    ];
    let text = lines.join("\n");
    assert_eq!(Form::of(&text), Some(Form::Claude));
    let traces = Form::Claude.read("s", &text);
    assert_eq!(said(&traces[0], "assistant"), ["Well done."]);
    assert_eq!(said(&traces[0], "user"), ["Do it.", "Thanks."]);
}

#[test]
fn our_own_recordings_stay_ours() {
    assert_eq!(
        Form::of("{\"_meta\": {\"id\": \"x\"}}\n{\"role\": \"user\", \"content\": \"type\"}"),
        None
    );
    assert_eq!(Form::of("no JSON"), None);
    let wrong = std::fs::read_dir(fixture("")).unwrap();
    assert!(wrong.count() > 6, "the fixtures are there");
    let missing = Source::Stored {
        database: fixture("claude.jsonl"),
        session: "s".into(),
        bytes: 0,
    };
    let error = missing.read().unwrap_err().to_string();
    assert!(
        error.contains("claude.jsonl") && error.contains("database"),
        "{error}"
    );
}
