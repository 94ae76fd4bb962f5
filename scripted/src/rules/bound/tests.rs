//! What counts as an edit, row by row of the vendor's table, and what becomes of a thought for it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed"
)]

use http::HeaderMap;
use serde_json::{Value, json};

use super::super::{Rule, Rules};
use super::*;
use crate::script::{Call, Reply};
use crate::thoughts;
use crate::wire::{self, Envelope};

const MODEL: &str = "claude-opus-5-5";

/// A talk with a provider: what its next request is.
struct Talk {
    form: Form,
    rules: Rules,
    headers: HeaderMap,
    body: Value,
    number: usize,
}

impl Talk {
    fn new(form: Form, mismatch: Mismatch) -> Self {
        let schema = json!({"type": "object", "properties": {"n": {"minimum": 1}}});
        let tool = |name: &str| match form {
            Form::Messages => json!({"name": name, "input_schema": schema}),
            Form::Chat => json!({"type": "function",
                "function": {"name": name, "parameters": schema}}),
            Form::Responses => json!({"type": "function", "name": name, "parameters": schema}),
        };
        let tools = json!([tool("bash"), tool("read")]);
        let body = match form {
            Form::Messages => json!({"model": MODEL, "max_tokens": 99, "tools": tools,
                "thinking": {"type": "adaptive"}, "system": "Be brief.", "messages": [
                {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "image",
                    "source": {"type": "url", "url": "https://host/a.png?signed=1"}}]}]}),
            Form::Chat => json!({"model": MODEL, "tools": tools, "messages": [
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]}),
            Form::Responses => json!({"model": MODEL, "tools": tools, "store": false,
                "instructions": "Be brief.", "input": [{"role": "user", "content": "go"}]}),
        };
        Self {
            form,
            rules: Rules::new([Rule::Bound(mismatch)]),
            headers: HeaderMap::new(),
            body,
            number: 0,
        }
    }

    /// One with three answers: in Messages these are at 1, 3 and 5, each with a thought.
    fn long(form: Form, mismatch: Mismatch) -> Self {
        let mut talk = Self::new(form, mismatch);
        for _ in 0..3 {
            assert_eq!(talk.goes_on().refusal, None);
        }
        talk
    }

    fn list(&mut self) -> &mut Vec<Value> {
        let field = match self.form {
            Form::Responses => "input",
            Form::Chat | Form::Messages => "messages",
        };
        self.body[field].as_array_mut().unwrap()
    }

    fn judged(&self) -> Judged {
        self.rules.judge(self.form, &self.headers, &self.body)
    }

    /// What is wrong with the thoughts of another request of the talk: the numbers of those that are
    /// not valid, and what differs for the first.
    fn edited(&self, edit: impl FnOnce(&mut Value)) -> (Vec<usize>, Option<Difference>) {
        let mut body = self.body.clone();
        edit(&mut body);
        let judged = self.rules.judge(self.form, &self.headers, &body);
        let carried = thoughts::carried(self.form, &self.body);
        let number = |thought: &Thought| carried.iter().position(|own| *own == thought.own);
        let numbers = judged.invalid().filter_map(number).collect();
        let first = judged
            .invalid()
            .find_map(|thought| match &thought.standing {
                Standing::Moved(difference) => Some(difference.clone()),
                Standing::Valid | Standing::Foreign | Standing::Forged => None,
            });
        (numbers, first)
    }

    /// Asks, and takes the answer and its call's result into the history.
    fn goes_on(&mut self) -> Judged {
        let judged = self.judged();
        if judged.refusal.is_some() {
            return judged;
        }
        let (id, n) = (format!("call_{}", self.number), self.number);
        let call = Call::new(&id, "bash", json!({"n": n, "c": ["a", "b"]}).to_string());
        let mut reply = Reply::calls(vec![call]).reasoning(format!("Thought {n}."));
        let model = self.body["model"].as_str().unwrap().to_owned();
        self.rules.issue(self.form, &model, &judged, &mut reply);
        let envelope = Envelope {
            form: self.form,
            id: format!("resp_{n}"),
            created: 1,
            model,
            prompt: 1,
            cached: 0,
            completion: 1,
            include_usage: false,
        };
        let answer: Value = serde_json::from_slice(&wire::body(&reply, &envelope)).unwrap();
        let output = format!("output of {n}");
        let said = match self.form {
            Form::Messages => vec![
                json!({"role": "assistant", "content": answer["content"]}),
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": id, "content": output}]}),
            ],
            Form::Chat => vec![
                answer["choices"][0]["message"].clone(),
                json!({"role": "tool", "tool_call_id": id, "content": output}),
            ],
            Form::Responses => {
                let mut items = answer["output"].as_array().unwrap().clone();
                items.push(json!({"type": "function_call_output", "call_id": id,
                    "output": output}));
                items
            }
        };
        self.list().extend(said);
        self.number += 1;
        judged
    }
}

/// Removes the thought of a message of Messages.
fn drop_thought(body: &mut Value, place: usize) {
    let content = body["messages"][place]["content"].as_array_mut().unwrap();
    content.retain(|block| block["type"] != "thinking");
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

type Edit = fn(&mut Value);
type Row = (&'static str, Edit);

#[test]
fn what_is_no_edit() {
    let rows: [Row; 22] = [
        ("the same", |_| {}),
        ("appended", |body| {
            let messages = body["messages"].as_array_mut().unwrap();
            messages.push(json!({"role": "user", "content": "and?"}));
        }),
        ("a deferred tool", |body| {
            let tool = json!({"name": "x", "input_schema": {}, "defer_loading": true});
            body["tools"].as_array_mut().unwrap().push(tool);
        }),
        ("from the start", |body| drop_thought(body, 1)),
        ("more from the start", |body| {
            [1, 3]
                .map(|at| drop_thought(body, at))
                .into_iter()
                .collect()
        }),
        ("from the end", |body| drop_thought(body, 5)),
        ("from both ends", |body| {
            [1, 5]
                .map(|at| drop_thought(body, at))
                .into_iter()
                .collect()
        }),
        ("all", |body| {
            [1, 3, 5]
                .map(|at| drop_thought(body, at))
                .into_iter()
                .collect()
        }),
        ("max_tokens", |body| body["max_tokens"] = 7.into()),
        ("effort", |body| {
            body["output_config"] = json!({"effort": "low"})
        }),
        ("tool_choice", |body| {
            body["tool_choice"] = json!({"type": "none"})
        }),
        ("metadata", |body| {
            body["metadata"] = json!({"user_id": "u"})
        }),
        ("display", |body| {
            body["thinking"]["display"] = "omitted".into()
        }),
        ("a marker on a block", |body| {
            body["messages"][0]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
        }),
        ("a marker on a tool", |body| {
            body["tools"][1]["cache_control"] = json!({"type": "ephemeral"});
        }),
        ("a system of blocks", |body| {
            let mut block = text("Be brief.");
            block["cache_control"] = json!({"type": "ephemeral"});
            body["system"] = json!([block]);
        }),
        ("a result of blocks", |body| {
            body["messages"][2]["content"][0]["content"] = json!([text("output of 0")]);
            body["messages"][2]["content"][0]["is_error"] = false.into();
        }),
        ("white space around", |body| {
            body["messages"][0]["content"][0]["text"] = " go\n".into();
        }),
        ("another signature of the same address", |body| {
            body["messages"][0]["content"][1]["source"]["url"] =
                "https://host/a.png?signed=2".into();
        }),
        ("tools in another order", |body| {
            body["tools"].as_array_mut().unwrap().reverse();
        }),
        ("defaults of a tool", |body| {
            body["tools"][0]["strict"] = false.into();
            body["tools"][0]["type"] = "custom".into();
        }),
        ("1.0 for 1", |body| {
            body["tools"][0]["input_schema"]["properties"]["n"]["minimum"] = json!(1.0);
        }),
    ];
    let talk = Talk::long(Form::Messages, Mismatch::Refuse);
    for (name, edit) in rows {
        assert_eq!(talk.edited(edit), (vec![], None), "{name}");
    }
    // The order of keys is none of a value.
    let spelt = talk
        .body
        .to_string()
        .replace(r#""c":["a","b"],"n":1"#, r#""n":1,"c":["a","b"]"#);
    let other = serde_json::from_str(&spelt).unwrap();
    assert_eq!(talk.edited(|body| *body = other), (vec![], None));
}

#[test]
fn what_is_an_edit() {
    let content = |path: &str| Difference::Content(path.to_owned());
    let rows: Vec<(Row, &[usize], Difference)> = vec![
        (
            ("the first message", |body| {
                body["messages"][0]["content"][0]["text"] = "Go".into();
            }),
            &[0, 1, 2],
            content("messages.0.content.0"),
        ),
        (
            ("a shorter result", |body| {
                body["messages"][2]["content"][0]["content"] = "[cleared]".into();
            }),
            &[1, 2],
            content("messages.2.content.0"),
        ),
        (
            ("a call's input", |body| {
                body["messages"][3]["content"][1]["input"]["n"] = 9.into();
            }),
            &[2],
            content("messages.3.content.1"),
        ),
        (
            ("a block more", |body| {
                let content = body["messages"][0]["content"].as_array_mut().unwrap();
                content.push(text("Mind the gap."));
            }),
            &[0, 1, 2],
            content("messages.0.content.2"),
        ),
        (
            ("a block less", |body| {
                body["messages"][0]["content"].as_array_mut().unwrap().pop();
            }),
            &[0, 1, 2],
            Difference::Missing("messages.0.content.0".to_owned()),
        ),
        (
            ("messages less", |body| {
                body["messages"].as_array_mut().unwrap().drain(1..3);
            }),
            &[1, 2],
            Difference::Missing("messages.0.content.1".to_owned()),
        ),
        (
            ("another image", |body| {
                body["messages"][0]["content"][1]["source"]["url"] = "https://host/b.png".into();
            }),
            &[0, 1, 2],
            content("messages.0.content.1"),
        ),
        (
            ("a message more", |body| {
                let note = json!({"role": "user", "content": "A note."});
                body["messages"].as_array_mut().unwrap().insert(3, note);
            }),
            &[1, 2],
            content("messages.3.content.0"),
        ),
        (
            ("the system prompt", |body| {
                body["system"] = "Be brief!".into()
            }),
            &[0, 1, 2],
            Difference::System,
        ),
        (
            ("no system prompt", |body| {
                body.as_object_mut().unwrap().remove("system");
            }),
            &[0, 1, 2],
            Difference::System,
        ),
        (
            ("a tool more", |body| {
                let tool = json!({"name": "x", "input_schema": {}});
                body["tools"].as_array_mut().unwrap().push(tool);
            }),
            &[0, 1, 2],
            Difference::Tools,
        ),
        (
            ("a tool less", |body| {
                body["tools"].as_array_mut().unwrap().pop();
            }),
            &[0, 1, 2],
            Difference::Tools,
        ),
        (
            ("no tools", |body| {
                body.as_object_mut().unwrap().remove("tools");
            }),
            &[0, 1, 2],
            Difference::Tools,
        ),
        (
            ("a tool's schema", |body| {
                body["tools"][0]["input_schema"]["properties"]["n"]["minimum"] = 2.into();
            }),
            &[0, 1, 2],
            Difference::Tools,
        ),
        (
            ("a thought from the middle", |body| drop_thought(body, 3)),
            &[2],
            Difference::Gap,
        ),
    ];
    let talk = Talk::long(Form::Messages, Mismatch::Refuse);
    for ((name, edit), numbers, difference) in rows {
        let found = talk.edited(edit);
        assert_eq!(found, (numbers.to_vec(), Some(difference)), "{name}");
    }
}

#[test]
fn a_tool_that_waits_counts_from_where_it_is_named() {
    let mut talk = Talk::new(Form::Messages, Mismatch::Refuse);
    let waits = json!({"name": "x", "input_schema": {}, "defer_loading": true});
    talk.body["tools"].as_array_mut().unwrap().push(waits);
    talk.goes_on();
    let named = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
        "content": [{"type": "tool_reference", "tool_name": "x"}]}]});
    talk.list().push(named);
    talk.goes_on();
    let renamed = talk.edited(|body| body["tools"][2]["description"] = "Now with words.".into());
    assert_eq!(renamed, (vec![1], Some(Difference::Tools)));
}

#[test]
fn a_thought_that_left_must_not_come_back() {
    for (gone, invalid) in [(&[1][..], vec![3]), (&[1, 3], vec![3]), (&[5], vec![3])] {
        let mut talk = Talk::long(Form::Messages, Mismatch::Refuse);
        let whole = talk.body["messages"].clone();
        for at in gone {
            drop_thought(&mut talk.body, *at);
        }
        assert_eq!(talk.goes_on().refusal, None, "{gone:?}");
        assert_eq!(talk.judged().refusal, None, "{gone:?}");
        for at in gone {
            talk.body["messages"][*at] = whole[*at].clone();
        }
        let (found, _) = talk.edited(|_| {});
        assert_eq!(found, invalid, "{gone:?}");
    }
}

#[test]
fn what_is_said_of_it() {
    let mut talk = Talk::long(Form::Messages, Mismatch::Refuse);
    talk.body["system"] = "Other.".into();
    let base = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound \
                to a different conversation. Remove the block, or set \
                `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".";
    let last = "The `system` prompt differs from the one this block was created with.";
    let refusal = talk.judged().refusal.unwrap();
    let setting = "That setting requires the `thinking-binding-controls-2026-08-01` value in the \
                   `anthropic-beta` header.";
    assert_eq!(refusal.message, format!("{base} {setting} {last}"));
    talk.headers
        .insert("anthropic-beta", format!("a, {CONTROLS}").parse().unwrap());
    let refusal = talk.judged().refusal.unwrap();
    assert_eq!(refusal.message, format!("{base} {last}"));
    let body: Value = serde_json::from_str(&refusal.body(Form::Messages)).unwrap();
    assert_eq!(body["error"]["message"], refusal.message);

    let mut talk = Talk::long(Form::Messages, Mismatch::Refuse);
    talk.body["messages"][5]["content"][0]["thinking"] = "Other.".into();
    let text = talk.judged().refusal.unwrap().message;
    assert!(
        text.contains("latest assistant message cannot be modified"),
        "{text}"
    );
    let mut talk = Talk::long(Form::Messages, Mismatch::Drop);
    talk.body["messages"][3]["content"][0]["signature"] = "EqQBCg".into();
    let text = talk.judged().refusal.unwrap().message;
    assert_eq!(
        text,
        "messages.3.content.0: Invalid `signature` in `thinking` block"
    );
}

#[test]
fn dropped_thoughts_are_as_if_they_were_not_there() {
    let mut talk = Talk::long(Form::Messages, Mismatch::Drop);
    talk.body["messages"][2]["content"][0]["content"] = "[cleared]".into();
    let judged = talk.goes_on();
    let seen: Vec<bool> = judged.thoughts.iter().map(|thought| thought.seen).collect();
    assert_eq!((seen, judged.valid()), (vec![true, false, false], 1));
    assert_eq!((judged.refusal, judged.transformations), (None, None));
    // What was thought without them stands, whether they are sent again or not.
    let (found, _) = talk.edited(|_| {});
    assert_eq!(found, [1, 2]);
    let (found, _) = talk.edited(|body| {
        [3, 5]
            .map(|at| drop_thought(body, at))
            .into_iter()
            .collect()
    });
    assert_eq!(found, [0_usize; 0]);

    let mut talk = Talk::long(Form::Messages, Mismatch::Ignore);
    talk.body["system"] = "Other.".into();
    let judged = talk.judged();
    assert!(judged.thoughts.iter().all(|thought| thought.seen));
    assert_eq!(
        (judged.refusal.clone(), judged.invalid().count()),
        (None, 3)
    );
}

#[test]
fn a_request_says_what_is_to_become_of_them() {
    for mismatch in [Mismatch::Refuse, Mismatch::Drop, Mismatch::Ignore] {
        let mut talk = Talk::long(Form::Messages, mismatch);
        talk.body["messages"][2]["content"][0]["content"] = "[cleared]".into();
        talk.body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
        let text = talk.judged().refusal.unwrap().message;
        assert_eq!(
            text,
            "thinking.adaptive.block_binding: Extra inputs are not permitted"
        );
        talk.headers
            .insert("anthropic-beta", CONTROLS.parse().unwrap());
        let judged = talk.judged();
        assert_eq!(judged.refusal, None);
        let told = |place| {
            json!({"type": "thinking_dropped", "reason": "prefix_binding_mismatch",
            "path": format!("messages.{place}.content.0")})
        };
        assert_eq!(judged.transformations, Some(json!([told(3), told(5)])));
        talk.body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "error"});
        assert!(talk.judged().refusal.is_some());
        talk.body["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "shrug"});
        assert!(talk.judged().refusal.is_some());
    }
    let mut talk = Talk::long(Form::Messages, Mismatch::Ignore);
    talk.headers
        .insert("anthropic-beta", CONTROLS.parse().unwrap());
    assert_eq!(talk.judged().transformations, Some(json!([])));
    talk.body["system"] = "Other.".into();
    let told = talk.judged().transformations.unwrap();
    assert_eq!(told[0]["type"], "thinking_mismatch_allowed");
}

#[test]
fn another_model_reads_none_of_them_and_goes_on() {
    let mut talk = Talk::long(Form::Messages, Mismatch::Refuse);
    talk.body["model"] = "claude-sonnet-5-5".into();
    let judged = talk.goes_on();
    assert_eq!(
        (judged.refusal, judged.thoughts[2].standing.clone()),
        (None, Standing::Foreign)
    );
    assert_eq!((talk.judged().valid(), talk.judged().refusal), (1, None));
    talk.body["model"] = MODEL.into();
    assert_eq!((talk.judged().valid(), talk.judged().refusal), (3, None));
}

#[test]
fn another_provider_judges_alike() {
    for form in [Form::Messages, Form::Chat, Form::Responses] {
        let mut talk = Talk::long(form, Mismatch::Refuse);
        talk.rules = Rules::new([Rule::Bound(Mismatch::Refuse)]);
        assert_eq!(
            (talk.judged().refusal, talk.judged().valid()),
            (None, 3),
            "{form:?}"
        );
    }
}

#[test]
fn openrouter_wraps_what_is_said() {
    let mut talk = Talk::long(Form::Chat, Mismatch::Refuse);
    let shortened = |body: &mut Value| body["messages"][3]["content"] = "[cleared]".into();
    let (found, first) = talk.edited(shortened);
    let first = first.unwrap();
    assert_eq!(
        (found, first),
        (
            vec![1, 2],
            Difference::Content("messages.2.content.0".to_owned())
        )
    );
    // Arguments are compared as the JSON that they are.
    let (found, _) = talk.edited(|body| {
        let arguments = &mut body["messages"][2]["tool_calls"][0]["function"]["arguments"];
        *arguments = r#"{ "n": 0, "c": ["a", "b"] }"#.into();
    });
    assert_eq!(found, [0_usize; 0]);
    shortened(&mut talk.body);
    let refusal = talk.judged().refusal.unwrap();
    let body: Value = serde_json::from_str(&refusal.body(Form::Chat)).unwrap();
    assert_eq!(body["error"]["message"], "Provider returned error");
    let metadata = &body["error"]["metadata"];
    assert_eq!(metadata["provider_name"], "Anthropic");
    let raw: Value = serde_json::from_str(metadata["raw"].as_str().unwrap()).unwrap();
    assert_eq!(raw["error"]["message"], refusal.message);
    assert!(
        refusal
            .message
            .starts_with("messages.3.content.0: Invalid `signature`")
    );
}

#[test]
fn responses_drop_without_a_word_before_the_answer() {
    let mut talk = Talk::long(Form::Responses, Mismatch::Refuse);
    let rows: [(Edit, &[usize]); 5] = [
        (|body| body["instructions"] = "Other.".into(), &[0, 1, 2]),
        (
            |body| body["tools"].as_array_mut().unwrap().reverse(),
            &[0, 1, 2],
        ),
        (
            |body| body["input"][3]["output"] = "[cleared]".into(),
            &[1, 2],
        ),
        // Ids are none of what is said, and whether another item is there binds nothing.
        (
            |body| {
                body["input"][2].as_object_mut().unwrap().remove("id");
            },
            &[],
        ),
        (
            |body| {
                body["input"].as_array_mut().unwrap().remove(4);
            },
            &[],
        ),
    ];
    for (at, (edit, numbers)) in rows.into_iter().enumerate() {
        assert_eq!(talk.edited(edit).0, numbers, "{at}");
    }
    talk.body["input"][3]["output"] = "[cleared]".into();
    let judged = talk.goes_on();
    let told = judged.transformations.unwrap();
    assert_eq!(told[0]["reason"], "prefix_mismatch");
    assert_eq!(
        (told[0]["id"].as_str(), judged.refusal),
        (Some("rs_1"), None)
    );
    let (found, _) = talk.edited(|_| {});
    assert_eq!(
        found,
        [1, 2],
        "what is thought behind the change is bound to it"
    );
}
