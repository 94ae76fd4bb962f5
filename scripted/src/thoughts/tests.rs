//! The laws hold for what is appended, and for nothing else.

use serde_json::{Value, json};

use super::*;
use crate::rules::{Mismatch, Rule, Rules};
use crate::script::Reply;

/// A thought as a block, made by a provider for some body.
fn thought(body: &Value, text: &str) -> Value {
    let rules = Rules::new([Rule::Bound(Mismatch::Refuse)]);
    let judged = rules.judge(Form::Messages, &http::HeaderMap::new(), body);
    let mut reply = Reply::text("x").reasoning(text);
    rules.issue(Form::Messages, "", &judged, &mut reply);
    json!({"type": "thinking", "thinking": text, "signature": reply.extra.signature})
}

fn body(texts: &[&str], thoughts: &[&Value]) -> Value {
    let user = texts
        .iter()
        .map(|text| json!({"role": "user", "content": text}));
    let said = thoughts
        .iter()
        .map(|thought| json!({"role": "assistant", "content": [thought]}));
    json!({"messages": user.chain(said).collect::<Vec<_>>(), "tools": []})
}

#[test]
fn what_is_appended_extends() {
    let form = Form::Messages;
    let a = thought(&body(&["a"], &[]), "A.");
    let list = [
        body(&["a"], &[]),
        body(&["a", "b"], &[&a]),
        body(&["a", "b", "c"], &[]),
    ];
    assert_eq!(append_only(form, &list), Ok(()));
    let fault = extends(form, &list[1], &list[0]).unwrap_err();
    assert_eq!(fault, "messages.1.content.0 is not there any longer");
    let fault = extends(form, &list[0], &body(&["A"], &[])).unwrap_err();
    assert_eq!(fault, "messages.0.content.0 differs");
    let mut other = list[1].clone();
    other["tools"] = json!([{"name": "x"}]);
    assert_eq!(
        extends(form, &list[0], &other).unwrap_err(),
        "the tools differ"
    );
    other["system"] = "x".into();
    assert!(
        append_only(form, [&list[0], &other])
            .unwrap_err()
            .contains("request 1")
    );
}

#[test]
fn what_left_is_told_when_it_returns() {
    let form = Form::Messages;
    let [a, b] = ["A.", "B."].map(|text| thought(&body(&["a"], &[]), text));
    let with = |thoughts: &[&Value]| body(&["a"], thoughts);
    assert_eq!(carried(form, &with(&[&a, &b])).len(), 2);
    assert_eq!(
        none_returns(form, [&with(&[&a]), &with(&[&a, &b]), &with(&[&b])]),
        Ok(())
    );
    let back = [with(&[&a]), with(&[&b]), with(&[&a, &b])];
    assert!(
        none_returns(form, &back)
            .unwrap_err()
            .starts_with("request 2 carries")
    );
}

#[test]
fn a_watcher_tells_both_as_it_goes() {
    let form = Form::Messages;
    let a = thought(&body(&["a"], &[]), "A.");
    let mut watcher = Watcher::new(form);
    for (texts, thoughts, wanted) in [
        (vec!["a"], vec![&a], Ok(None)),
        (vec!["a", "b"], vec![], Ok(None)),
        (vec!["b"], vec![], Ok(Some("messages.0.content.0"))),
        (vec!["b"], vec![&a], Err("request 3 carries")),
    ] {
        let found = watcher.see(body(&texts, &thoughts));
        let begins = match (&found, wanted) {
            (Ok(None), Ok(None)) => true,
            (Ok(Some(found)), Ok(Some(wanted))) | (Err(found), Err(wanted)) => {
                found.starts_with(wanted)
            }
            _ => false,
        };
        assert!(begins, "{found:?}, not {wanted:?}");
    }
}

#[test]
fn words_are_seeded() {
    assert_eq!(words("a", 1, 5), words("a", 1, 5));
    assert_ne!(words("a", 1, 5), words("b", 1, 5));
    assert_eq!(words("a", 1, 300).split(' ').count(), 300);
    let about = words_about("only\nthese three", "a", 1, 300);
    assert_eq!(about.split(' ').count(), 300);
    assert!(
        about
            .split(' ')
            .all(|word| ["only", "these", "three"].contains(&word))
    );
    assert_eq!(words_about(" ", "a", 1, 5), words("a", 1, 5));
}
