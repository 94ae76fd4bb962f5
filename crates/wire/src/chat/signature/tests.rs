//! Tests of `signature`.

use super::*;

const SIGNED: &str = r#"{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"S+/="}}}"#;

#[test]
fn signatures_are_read_put_and_taken() {
    let own = Signature::of(SIGNED.as_bytes()).unwrap();
    assert_eq!(
        (own.key.as_str(), own.value.as_str()),
        ("extra_content", "S+/=")
    );
    let plain =
        br#"{"id":"b","function":{"name":"g","arguments":"{\"thought_signature\":\"x\"}"}}"#;
    assert_eq!(Signature::of(plain), None);
    let put = own.put(plain).unwrap();
    assert!(Signature::of(&put).unwrap().is(&own));
    assert_eq!(own.take(&put).unwrap(), &plain[..]);
    // As a client may write it.
    let escaped = SIGNED
        .replace("+/", r"+\/")
        .replace(r#"{"google":"#, r#"{ "google" : "#);
    assert!(Signature::of(escaped.as_bytes()).unwrap().is(&own));
    for (key, raw) in [
        ("thought_signature", r#""S+/=""#),
        (
            "provider_specific_fields",
            r#"{"thought_signature":"S+/="}"#,
        ),
        ("x", r#"{"a":{"b":{"thoughtSignature":"S+/="}}}"#),
    ] {
        assert!(
            Signature::read(key, raw.as_bytes()).unwrap().is(&own),
            "{key}"
        );
    }
    for (key, raw) in [
        ("extra_content", r#"{"google":{"thought_signature":""}}"#),
        ("extra_content", "null"),
        ("thought_signature", "null"),
        ("function", r#"{"thought_signature":"S"}"#),
    ] {
        assert_eq!(Signature::read(key, raw.as_bytes()), None, "{key}");
    }
    assert!(!String::from_utf8_lossy(&bare(SIGNED.as_bytes()).unwrap()).contains("extra"));
}

fn place(id: &str, stays: bool, signed: bool, visible: bool) -> CallPlace {
    CallPlace {
        id: id.to_owned(),
        stays,
        signed,
        visible,
    }
}

#[test]
fn details_stay_with_calls() {
    let seal = |id: &str| format!(r#"{{"type":"reasoning.encrypted","data":"D","id":"{id}"}}"#);
    let message = |ids: &[&str]| {
        let all: Vec<String> = ids.iter().map(|id| seal(id)).collect();
        format!(
            r#"{{"reasoning_details":[{{"type":"reasoning.text","text":"t"}},{}]}}"#,
            all.join(",")
        )
    };
    let edited = |message: &str, calls: &[CallPlace], drop_reasoning| {
        let edit = AssistantEdit {
            drop_reasoning,
            ..AssistantEdit::default()
        };
        details(&Object::parse(message.as_bytes()).unwrap(), calls, &edit)
    };
    let of = |edit: Option<ListEdit>| match edit {
        Some(ListEdit::Replace(array)) => String::from_utf8(array.to_vec()).unwrap(),
        other => format!("{other:?}"),
    };
    let h = |stays, signed| place("h", stays, signed, false);
    let v = |stays| place("v", stays, false, true);
    let w = |stays| place("w", stays, false, true);
    // The client's copy names its own call: the hidden one's again, where that is there.
    let got = edited(&message(&["v"]), &[h(true, true), v(true)], false);
    assert!(of(got).contains(&seal("h")));
    assert_eq!(
        edited(&message(&["v"]), &[h(false, true), v(true)], false),
        None
    );
    assert_eq!(
        edited(&message(&["v"]), &[h(true, false), v(true)], false),
        None
    );
    // What signed a call that goes signs the next that stays.
    let got = edited(&message(&["v"]), &[v(false), w(true)], false);
    assert!(of(got).contains(&seal("w")));
    let got = edited(&message(&["h"]), &[h(false, false), v(true)], false);
    assert!(of(got).contains(&seal("v")));
    // Also of two hidden calls the first, whose copy at the client names the visible one.
    let second = place("i", true, false, false);
    let calls = [h(false, true), second, v(false)];
    let got = of(edited(&message(&["v"]), &calls, false));
    assert!(got.contains(&seal("i")), "{got}");
    let got = of(edited(&message(&["v", "w"]), &[v(false), w(true)], false));
    assert!(got.contains(&seal("w")) && !got.contains(&seal("v")) && got.contains("text"));
    // A signature is no reasoning.
    let got = of(edited(&message(&["v"]), &[v(true)], true));
    assert_eq!(got, format!("[{}]", seal("v")));
    assert_eq!(
        edited(&message(&["rs_1"]), &[v(true)], true),
        Some(ListEdit::Remove)
    );
    assert_eq!(edited(&message(&["rs_1"]), &[v(true)], false), None);
}

#[test]
fn what_earlier_hops_thought_is_cut_from_what_the_client_joined() {
    let text = |text: &str| format!(r#"{{"type":"reasoning.text","text":"{text}","index":0}}"#);
    let message = |all: &[String]| format!(r#"{{"reasoning_details":[{}]}}"#, all.join(","));
    let seal = r#"{"type":"reasoning.encrypted","data":"D","id":"h"}"#.to_owned();
    let hop = message(&[text("first "), text("this"), seal]);
    for (client, expect) in [
        (
            vec![text("first "), text("this"), text("then")],
            Some(vec![text("then")]),
        ),
        (vec![text("first thisthen")], Some(vec![text("then")])),
        (vec![text("then")], None),
    ] {
        let edit = AssistantEdit {
            joined: vec![&hop],
            ..AssistantEdit::default()
        };
        let client = message(&client);
        let got = details(&Object::parse(client.as_bytes()).unwrap(), &[], &edit);
        let expect = expect.map(|all| ListEdit::Replace(format!("[{}]", all.join(",")).into()));
        assert_eq!(got, expect);
    }
}
