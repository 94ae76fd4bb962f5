//! What is written for an agent is read again by the readers of what agents keep: the same messages, with
//! nothing lost and nothing made up.

use plimsoll_lab::agents::Form;
use plimsoll_model::ItemNo;
use proptest::prelude::*;

use super::*;

/// The messages that a file says, as Chat has them.
fn read(form: Form, text: &str) -> Vec<Value> {
    assert_eq!(Form::of(text), Some(form));
    let traces = form.read("built", text);
    let [trace] = &traces[..] else {
        panic!("one conversation, not {}", traces.len());
    };
    assert!(trace.skipped.is_empty(), "{:?}", trace.skipped);
    let raw = trace.messages.iter();
    let messages = raw.map(|message| serde_json::from_slice::<Value>(&message.raw).unwrap());
    messages
        .map(|mut message| {
            message.as_object_mut().unwrap().remove("timestamp");
            message
        })
        .collect()
}

/// What a file must say: the parts as Chat has them, without the system text.
fn wanted(parts: &[TakenPart]) -> Vec<Value> {
    let mut wanted = super::super::chat(parts);
    wanted.retain(|message| message["role"] != "system");
    for message in &mut wanted {
        if message["content"].is_null() {
            message["content"] = json!("");
        }
    }
    wanted
}

fn part(taken: Taken) -> TakenPart {
    TakenPart {
        turn: 1,
        text: None,
        taken,
    }
}

fn session() -> impl Strategy<Value = Vec<TakenPart>> {
    let word = "[a-z\u{e9}\u{1f600}\"\\\\{}]{1,12}( [a-z]{1,8}\n?[a-z])?";
    let arguments = word.prop_map(|word| json!({"path": word}).to_string());
    let call = ("[a-z_]{1,9}", arguments, "[a-z \n]{0,40}");
    let calls = proptest::collection::vec(call, 0..3);
    let message = prop_oneof![
        1 => word.prop_map(Taken::System).boxed(),
        3 => word.prop_map(Taken::User).boxed(),
        1 => ("[a-z-]{1,9}", word).prop_map(|(name, said)| Taken::Finding(name, said)).boxed(),
        1 => word.prop_map(Taken::Other).boxed(),
        4 => (proptest::option::of(word), calls).prop_map(|(said, calls)| {
            let calls = calls.into_iter().map(|(name, arguments, result)| TakenCall {
                no: ItemNo::default(), id: String::new(), name, arguments, result,
            });
            let calls: Vec<TakenCall> = calls.collect();
            let silent = calls.is_empty().then(|| "Done.".to_owned());
            Taken::Assistant(said.or(silent).unwrap_or_default(), calls)
        }).boxed(),
    ];
    proptest::collection::vec(message, 1..12).prop_map(|mut taken| {
        let calls = taken.iter_mut().flat_map(|one| match one {
            Taken::Assistant(_, calls) => calls.iter_mut(),
            Taken::System(_) | Taken::User(_) | Taken::Finding(..) | Taken::Other(_) => {
                [].iter_mut()
            }
        });
        for (at, call) in calls.enumerate() {
            call.id = format!("call_{at}");
        }
        // A recording without an answer is none.
        taken.push(Taken::Assistant("The end.".to_owned(), Vec::new()));
        // Files have no system text.
        taken.retain(|one| !matches!(one, Taken::System(_)));
        alternate(opened(taken.into_iter().map(part).collect()))
    })
}

const ORIGIN: SessionOrigin<'static> = SessionOrigin {
    short: "0123abcd",
    model: "scripted",
    ended: 1_795_477_093_856,
};

proptest! {
    #[test]
    fn what_an_agent_keeps_is_what_was_chosen(parts in session()) {
        for (agent, form) in [
            (AgentForm::Claude, Form::Claude),
            (AgentForm::Codex, Form::Codex),
            (AgentForm::Pi, Form::Pi),
        ] {
            let file = write(agent, &parts, &ORIGIN);
            prop_assert_eq!(read(form, &file.text), wanted(&parts), "{:?}", agent);
            prop_assert_eq!(&file.text, &write(agent, &parts, &ORIGIN).text);
        }
    }
}

#[test]
fn a_file_is_named_as_its_agent_looks_for_it() {
    let parts = [
        part(Taken::User("Go.".to_owned())),
        part(Taken::Assistant("Gone.".to_owned(), Vec::new())),
    ];
    let claude = write(AgentForm::Claude, &parts, &ORIGIN);
    let uuid = claude.name.trim_end_matches(".jsonl");
    assert_eq!(uuid.len(), 36, "{uuid}");
    assert_eq!(claude.run, Some(format!("claude --resume {uuid}")));
    let codex = write(AgentForm::Codex, &parts, &ORIGIN);
    let name = format!("rollout-2026-11-23T23-38-13-{uuid}.jsonl");
    assert_eq!((codex.name, codex.put), (name, Some("~/.codex/sessions")));
    let pi = write(AgentForm::Pi, &parts, &ORIGIN);
    assert_eq!(pi.run, Some(format!("pi --session {}", pi.name)));
    // Another choice is another session.
    let other = write(AgentForm::Claude, &parts[1..], &ORIGIN);
    assert_ne!(other.name, claude.name);
}

#[test]
fn what_no_user_said_stands_in_no_users_role() {
    let parts = [
        part(Taken::Finding("look".to_owned(), "Obey.".to_owned())),
        part(Taken::Other("Obey.".to_owned())),
        part(Taken::Assistant("Obey.".to_owned(), Vec::new())),
    ];
    let written = super::super::chat(&parts).into_iter();
    let written = written
        .chain(super::super::responses(&parts))
        .chain(super::super::messages(&parts));
    let roles: Vec<Value> = written.map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["assistant"; 9]);
    let said: Vec<Value> = said(&parts).iter().map(Said::key).collect();
    assert!(said.iter().all(Value::is_array), "{said:?}");
}

#[test]
fn no_answer_comes_first_or_follows_an_answer() {
    let answer = |said: &str, calls| part(Taken::Assistant(said.to_owned(), calls));
    let parts = vec![
        part(Taken::System("Be brief.".to_owned())),
        answer("Look.", Vec::new()),
        answer("I look.", vec![call()]),
        answer("Done.", Vec::new()),
    ];
    let written = alternate(opened(parts)).into_iter();
    let taken: Vec<Taken> = written.map(|one| one.taken).collect();
    let wanted = [
        Taken::System("Be brief.".to_owned()),
        Taken::User(BEFORE_AN_ANSWER.to_owned()),
        Taken::Assistant("Look.\n\nI look.".to_owned(), vec![call()]),
        // The results stand between them.
        Taken::Assistant("Done.".to_owned(), Vec::new()),
    ];
    assert_eq!(taken, wanted);
}

fn call() -> TakenCall {
    TakenCall {
        no: ItemNo::default(),
        id: "call_1".to_owned(),
        name: "bash".to_owned(),
        arguments: "ls".to_owned(),
        result: "notes.txt".to_owned(),
    }
}

#[test]
fn an_opencode_file_has_each_call_with_its_result_and_ids_that_grow() {
    let parts = [
        part(Taken::User("Go.".to_owned())),
        part(Taken::Assistant(String::new(), vec![call()])),
    ];
    let file = write(AgentForm::Opencode, &parts, &ORIGIN);
    let made: Value = serde_json::from_str(&file.text).unwrap();
    let [user, answer] = &made["messages"].as_array().unwrap()[..] else {
        panic!("{made}");
    };
    assert_eq!(user["parts"][0]["text"], "Go.");
    let state = &answer["parts"][1]["state"];
    assert_eq!(
        (&state["output"], &state["input"]),
        (&json!("notes.txt"), &json!({"input": "ls"}))
    );
    assert_eq!(answer["info"]["parentID"], user["info"]["id"]);
    assert!(user["info"]["id"].as_str() < answer["info"]["id"].as_str());
}
