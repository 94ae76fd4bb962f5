//! Laws of byte-preserving JSON: splitting agrees with a full parse, edits touch nothing else.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn keys(json: &str) -> Vec<(String, String)> {
    let object = Object::parse(json.as_bytes()).unwrap();
    object
        .members()
        .iter()
        .map(|member| {
            (
                member.key.to_string(),
                json[member.value.clone()].to_owned(),
            )
        })
        .collect()
}

#[test]
fn members_keep_their_bytes() {
    let json = " { \"a\" : 1e3 ,\n\"b\\u0062\":\t[1, {\"x\":2} ] , \"\\ud800\": \"\\ud800\" } ";
    let pairs = keys(json);
    let want = [
        ("a", "1e3"),
        ("bb", "[1, {\"x\":2} ]"),
        ("\\ud800", "\"\\ud800\""),
    ];
    assert_eq!(pairs, want.map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert_eq!(
        &json[Object::parse(json.as_bytes()).unwrap().members()[0]
            .span
            .clone()],
        "\"a\" : 1e3"
    );
}

#[test]
fn refusals_name_the_kind() {
    let cases: [(&[u8], RawError); 7] = [
        (b"[1]", RawError::NotObject),
        (b"null", RawError::NotObject),
        (b"", RawError::Syntax { line: 1, column: 0 }),
        (b"{\"a\":1}}", RawError::Syntax { line: 1, column: 8 }),
        (b"{\"a\"", RawError::Syntax { line: 1, column: 4 }),
        (b"{\"\xff\":1}", RawError::Syntax { line: 1, column: 3 }),
        (
            b"{\n\"a\":\"b\xff\"}",
            RawError::Syntax { line: 2, column: 7 },
        ),
    ];
    for (bytes, want) in cases {
        assert_eq!(Object::parse(bytes).unwrap_err(), want, "{bytes:?}");
    }
    assert_eq!(array(b" {} ").unwrap_err(), RawError::NotArray);
    assert!(matches!(array(b"[1,]"), Err(RawError::Syntax { .. })));
}

#[test]
fn depth_is_no_limit() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    assert_eq!(
        Object::parse(deep.as_bytes())
            .unwrap()
            .raw("a")
            .unwrap()
            .len(),
        40_000
    );
    assert_eq!(array(&deep.as_bytes()[5..deep.len() - 1]).unwrap().len(), 1);
}

#[test]
fn duplicates_are_seen_and_the_last_counts() {
    let json = br#"{"a":1,"b":2,"\u0061":3}"#;
    let object = Object::parse(json).unwrap();
    assert!(object.has_duplicates());
    assert_eq!(
        (object.number("a"), object.position("a")),
        (Some(3), Some(2))
    );
    assert!(!Object::parse(br#"{"a":1,"b":2}"#).unwrap().has_duplicates());
}

#[test]
fn one_walk_splits_the_array_too() {
    let cases: [(&str, Option<&[&str]>); 8] = [
        (
            r#"{"x":1,"m" : [ {"a":1} , 2 ] ,"y":2}"#,
            Some(&[r#"{"a":1}"#, "2"]),
        ),
        (r#"{"m":[ ]}"#, Some(&[])),
        (r#"{"m":"text","x":1}"#, None),
        (r#"{"m":null}"#, None),
        (r#"{"x":[1]}"#, None),
        (r#"{"m":[1],"m":[2]}"#, Some(&["2"])),
        (r#"{"m":1,"m":[2]}"#, Some(&["2"])),
        (r#"{"m":[1],"m":2}"#, None),
    ];
    for (json, want) in cases {
        let (object, found) = Object::parse_with_array(json.as_bytes(), "m").unwrap();
        assert_eq!(object, Object::parse(json.as_bytes()).unwrap(), "{json}");
        let elements = found.map(|found| found.spans.into_iter().map(|span| &json[span]).collect());
        assert_eq!(elements, want.map(<[&str]>::to_vec), "{json}");
    }
    assert!(Object::parse_with_array(br#"{"m":[1,]}"#, "m").is_err());
}

#[test]
fn appending_and_setting() {
    let cases = [
        ("{}", r#"{"k":7}"#),
        ("{ }", r#"{"k":7 }"#),
        (r#"{"a":1 }"#, r#"{"a":1,"k":7 }"#),
        (r#"{"k": [] ,"a":1}"#, r#"{"k": 7 ,"a":1}"#),
    ];
    for (json, want) in cases {
        let edit = Object::parse(json.as_bytes()).unwrap().set("k", b"7");
        assert_eq!(splice(json.as_bytes(), &[edit]), want);
    }
}

#[test]
fn values_decode() {
    assert_eq!(string(br#""a\n\u00e4""#).unwrap(), "a\n\u{e4}");
    assert!(matches!(
        string("\"\u{e4}\"".as_bytes()),
        Some(Cow::Borrowed("\u{e4}"))
    ));
    for bad in [&br#""\ud800""#[..], b"12", b"\"a", b"\"\xff\"", b"", b"\""] {
        assert_eq!(string(bad), None);
    }
    let object = Object::parse(br#"{"n":null,"s":"x","f":1.5}"#).unwrap();
    assert_eq!(object.present("n"), None);
    assert_eq!(object.present("s"), Some(&b"\"x\""[..]));
    assert_eq!((object.number("f"), object.text("f")), (None, None));
}

#[test]
fn unescaping_always_shows_something() {
    let cases = [
        (r"plain \u{e4}", r"plain \u{e4}"),
        (r"a\nb\\", "a\nb\\"),
        (r"\ud83d\ude00", "\u{1f600}"),
        (r"x\ud83d", "x\u{fffd}"),
        (r"\ude00\ud83d\ude00\ud83dy", "\u{fffd}\u{1f600}\u{fffd}y"),
        (r"\\ud83d\ud83d", "\\ud83d\u{fffd}"),
        ("a\u{1}\\", "a\u{1}\\"),
    ];
    for (inner, want) in cases {
        assert_eq!(unescape(inner.as_bytes()), want, "{inner}");
    }
    assert_eq!(unescape(b"\xffa"), "\u{fffd}a");
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn quoting_round_trips(text in any::<String>()) {
        let quoted = quote(&text);
        let decoded = string(quoted.as_bytes()).unwrap().into_owned();
        prop_assert_eq!(&decoded, &text);
        prop_assert_eq!(&unescape(&quoted.as_bytes()[1..quoted.len() - 1]), &text);
        prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
    }

    #[test]
    fn splitting_agrees_with_a_full_parse(value in value(), pretty in any::<bool>()) {
        let bytes = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        let bytes = bytes.unwrap();
        let read = |span: &Span| serde_json::from_slice::<Value>(&bytes[span.clone()]).unwrap();
        match &value {
            Value::Object(map) => {
                let object = Object::parse(&bytes).unwrap();
                let seen: Vec<_> =
                    object.members().iter().map(|m| (m.key.to_string(), read(&m.value))).collect();
                let want: Vec<_> = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                prop_assert_eq!(seen, want);
            }
            Value::Array(items) => {
                let seen: Vec<_> = array(&bytes).unwrap().iter().map(read).collect();
                prop_assert_eq!(&seen, items);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                prop_assert_eq!(Object::parse(&bytes).unwrap_err(), RawError::NotObject);
                prop_assert_eq!(array(&bytes).unwrap_err(), RawError::NotArray);
            }
        }
    }

    #[test]
    fn removal_leaves_the_rest(gone in prop::collection::vec(any::<bool>(), 0..9), spaced in any::<bool>()) {
        let comma = if spaced { " , " } else { "," };
        let join = |at: Vec<usize>, object: bool| {
            let parts: Vec<String> = at
                .into_iter()
                .map(|n| if object { format!("\"k{n}\":{n}") } else { n.to_string() })
                .collect();
            parts.join(comma)
        };
        let kept: Vec<usize> = (0..gone.len()).filter(|n| !gone[*n]).collect();
        for (object, open, close) in [(false, "[", "]"), (true, "{", "}")] {
            let json = format!("{open}{}{close}", join((0..gone.len()).collect(), object));
            let cuts = if object {
                Object::parse(json.as_bytes()).unwrap().remove_spans(|n| gone[n])
            } else {
                remove_spans(&array(json.as_bytes()).unwrap(), |n| gone[n])
            };
            let edits: Vec<Edit> = cuts.into_iter().map(|cut| (cut, Bytes::new())).collect();
            let want = format!("{open}{}{close}", join(kept.clone(), object));
            prop_assert_eq!(splice(json.as_bytes(), &edits), want.as_bytes());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        check(&bytes);
    }

    /// Of pieces that JSON is made of, joined in any order, many are JSON and more nearly are.
    #[test]
    fn what_looks_like_json_is_judged_as_serde_judges_it(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..14),
        around in 0..4_usize,
    ) {
        let [open, close] = [["", ""], ["[", "]"], ["{\"k\":", "}"], [" [ {\"\" : ", " } ] "]][around];
        let mut bytes = open.as_bytes().to_vec();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(close.as_bytes());
        check(&bytes);
    }

    /// One byte anywhere in a document that is sound, at every place of a long string too.
    #[test]
    fn one_changed_byte_is_judged_as_serde_judges_it(
        value in value(), length in 0..80_usize, at in any::<prop::sample::Index>(),
        byte in prop::sample::select(BYTES),
    ) {
        let text = "\u{e9}".repeat(length / 7) + &"x".repeat(length);
        let mut bytes = serde_json::to_vec(&serde_json::json!([value, text, {"k": 1}])).unwrap();
        check(&bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check(&bytes);
    }
}

const BYTES: &[u8] = b"\"\\{}[],: \n\t\r\0\x1f\x7f\x80\xbf\xc3\xe4\xf0\xff09-+.eEutnfx/";

const PARTS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"k\":",
    b"\"a\":1,",
    b"\"",
    b"\\",
    b"\"\"",
    b" ",
    b"\n",
    b"\x0b",
    b"0",
    b"-",
    b"-0",
    b"01",
    b"12",
    b"1.",
    b".5",
    b"1.5",
    b"1e",
    b"1e+",
    b"1E-7",
    b"2e5",
    b"1.0e9",
    b"true",
    b"tru",
    b"false",
    b"null",
    b"nul",
    b"\"\\u00e9\"",
    b"\"\\ud800\"",
    b"\"\\u00g0\"",
    b"\"\\x\"",
    b"\"\xff\"",
    b"\"\xc3\xa9\"",
    b"\xc3\xa9",
    b"\"a\x01\"",
    b"\"tab\there\"",
    b"\"long enough for the wide search \\n\"",
    b"\"\xed\xa0\x80\"",
    b"\"\x7f\"",
    b"\xef\xbb\xbf",
];

/// The bytes are taken and refused as `serde_json` takes and refuses a raw value.
#[track_caller]
fn check(bytes: &[u8]) {
    let raw = serde_json::from_slice::<&RawValue>(bytes);
    let kind = raw.as_ref().ok().and_then(|raw| raw.get().chars().next());
    let shown = String::from_utf8_lossy(bytes);
    match (Object::parse(bytes), kind) {
        (Ok(_), Some('{'))
        | (Err(RawError::NotObject), Some(_))
        | (Err(RawError::Syntax { .. }), None) => {}
        (other, kind) => panic!("{other:?} for {kind:?} in {shown}"),
    }
    match (array(bytes), kind) {
        (Ok(spans), Some('[')) => {
            let want: Vec<&RawValue> = serde_json::from_slice(bytes).unwrap();
            let found: Vec<&[u8]> = spans.into_iter().map(|span| &bytes[span]).collect();
            let want: Vec<&[u8]> = want.into_iter().map(|raw| raw.get().as_bytes()).collect();
            assert_eq!(found, want, "{shown}");
        }
        (Err(RawError::NotArray), Some(kind)) if kind != '[' => {}
        (Err(RawError::Syntax { .. }), None) => {}
        (other, kind) => panic!("{other:?} for {kind:?} in {shown}"),
    }
}

#[test]
fn objects_in_strings_are_text() {
    let cases = [
        ("[]", 0),
        ("[1,[{}]]", 1),
        (
            r#"[{"role":"user","content":"{ {\"a\":{}} \\"},{ "a" : {} }]"#,
            3,
        ),
        (r#"[{"a\"{":"{\\","b":[{}]}]"#, 2),
        (r#"["{"]"#, 0),
    ];
    for (json, count) in cases {
        // What stands beside the array is not counted.
        let json = format!(r#"{{"tools":[{{}}],"m":{json},"x":{{"y":{{}}}}}}"#);
        let (_, elements) = Object::parse_with_array(json.as_bytes(), "m").unwrap();
        assert_eq!(elements.unwrap().objects, count, "{json}");
    }
}
