//! The laws of the engine, over sessions of any form that grow row by row.

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_tokens::Encoding;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::settings::CompressSettings;

const KEY: &str = "0123456789abcdef0123456789abcdef";
const TOKENS: u32 = 2_000;

fn settings() -> CompressSettings {
    let mut settings = CompressSettings {
        tokens: TOKENS,
        ..CompressSettings::default()
    };
    settings.keys.add(KEY);
    settings
}

fn engine_of(settings: CompressSettings) -> Engine {
    let sizing = Sizing {
        encoding: Box::new(|_| Encoding::O200k),
        count: Box::new(|_, text| u32::try_from(text.len().div_ceil(4)).unwrap()),
    };
    Engine::new(settings, [7; 32], sizing, 8 << 20)
}

fn engine() -> Engine {
    engine_of(settings())
}

fn caller_of(engine: &Engine, headers: &[(&str, &str)]) -> Caller {
    let bearer = format!("Bearer {KEY}");
    let all = [("authorization", bearer.as_str())];
    let all = all.iter().chain(headers).map(|(name, value)| {
        let name = HeaderName::try_from(*name).unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    let headers: HeaderMap = all.collect();
    Caller::of(engine.settings(), engine.secret(), &headers).unwrap()
}

fn caller(engine: &Engine) -> Caller {
    caller_of(engine, &[("x-plimsoll-tenant", "a")])
}

fn compressed(engine: &Engine, rows: &[Value]) -> Value {
    let body = json!({"messages": rows, "model": "m"}).to_string();
    let answer = engine.compress(&caller(engine), body.as_bytes()).unwrap();
    serde_json::from_slice(&answer).unwrap()
}

fn shown(engine: &Engine, rows: &[Value]) -> Vec<Value> {
    compressed(engine, rows)["messages"]
        .as_array()
        .unwrap()
        .clone()
}

fn tool(place: usize, lines: usize) -> Value {
    let line = |line| format!("row {place}, line {line}: \"quoted\" and a \\ and ü\n");
    let text: String = (0..lines).map(line).collect();
    json!({"role": "tool", "tool_call_id": format!("c{place}"), "content": text})
}

/// A row of one of the kinds that gateways send, of about so many lines.
fn row(place: usize, kind: u8, lines: usize) -> Value {
    let said = |role| json!({"role": role, "content": "word ".repeat(lines)});
    match kind {
        0..=5 => tool(place, lines),
        6 => said("user"),
        7 => said("system"),
        8 => {
            let call = json!({"id": format!("c{place}"), "type": "function", "function": {"name": "read", "arguments": "{}"}});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        }
        9 => said("assistant"),
        10 => {
            let text = tool(place, lines)["content"].clone();
            let part = json!({"type": "text", "text": text});
            json!({"role": "tool", "tool_call_id": "x", "content": [part, {"type": "text", "text": "second"}]})
        }
        _ => {
            let image =
                json!({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}});
            json!({"role": "tool", "tool_call_id": "y", "content": [image]})
        }
    }
}

fn rows() -> impl Strategy<Value = Vec<Value>> {
    let one = (0..=11_u8, 0..80_usize);
    proptest::collection::vec(one, 1..60).prop_map(|kinds| {
        let each = kinds.into_iter().enumerate();
        each.map(|(place, (kind, lines))| row(place, kind, lines))
            .collect()
    })
}

fn is_tool(row: &Value) -> bool {
    row["role"] == "tool"
}

/// The places whose rows are not as they were sent.
fn changed(sent: &[Value], shown: &[Value]) -> Vec<usize> {
    let pairs = sent.iter().zip(shown).enumerate();
    pairs
        .filter(|(_, (sent, shown))| sent != shown)
        .map(|(place, _)| place)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A longer call begins with what the shorter one was answered, unless more is replaced; and what was replaced
    /// stays so in the same words.
    #[test]
    fn the_prefix_changes_in_passes_alone(rows in rows(), steps in proptest::collection::vec(1..6_usize, 1..40)) {
        let engine = engine();
        let (mut end, mut before): (usize, Vec<Value>) = (0, Vec::new());
        let mut gone: Vec<usize> = Vec::new();
        for step in steps {
            end = (end + step).min(rows.len());
            let sent = &rows[..end];
            let now = shown(&engine, sent);
            prop_assert_eq!(now.len(), sent.len());
            let newly = changed(sent, &now);
            prop_assert!(newly.starts_with(&gone), "the oldest go first, and none comes back");
            for place in &gone {
                prop_assert_eq!(&now[*place], &before[*place], "the same words");
            }
            if newly == gone {
                prop_assert!(now.starts_with(&before));
            }
            // Sent again, it is answered alike.
            prop_assert_eq!(&shown(&engine, sent), &now);
            (before, gone) = (now, newly);
        }
    }

    /// Only results change, and of those only the content; the rest is what was sent, byte for byte.
    #[test]
    fn nothing_but_results_is_touched(rows in rows()) {
        let engine = engine();
        let body = json!({"messages": rows, "model": "m"}).to_string();
        let answer = engine.compress(&caller(&engine), body.as_bytes()).unwrap();
        let answer = std::str::from_utf8(&answer).unwrap();
        let value: Value = serde_json::from_str(answer).unwrap();
        let now = value["messages"].as_array().unwrap();
        for (sent, shown) in rows.iter().zip(now) {
            let mut same = sent.clone();
            if is_tool(sent) {
                same["content"] = shown["content"].clone();
            }
            prop_assert_eq!(&same.to_string(), &shown.to_string());
        }
        let sums = ["tokens_before", "tokens_after", "tokens_saved"].map(|name| value[name].as_u64().unwrap());
        prop_assert_eq!(sums[0] - sums[1], sums[2]);
        prop_assert!(value["compression_ratio"].as_f64().unwrap() <= 1.0);
        let hashes = value["ccr_hashes"].as_array().unwrap();
        prop_assert_eq!(hashes.is_empty(), changed(&rows, now).is_empty());
        for hash in hashes {
            let marker = ["hash=", hash.as_str().unwrap()].concat();
            prop_assert!(answer.contains(&marker));
        }
    }

    /// A process that remembers nothing answers a list that only grew at its end as one that saw each step.
    #[test]
    fn nothing_is_lost_with_the_memory(rows in rows()) {
        let engine = engine();
        let mut last = Vec::new();
        for end in 1..=rows.len() {
            last = shown(&engine, &rows[..end]);
        }
        prop_assert_eq!(shown(&super::tests::engine(), &rows), last);
    }

    /// What users said may come in further up, as guardrails hold it back at first.
    #[test]
    fn what_is_replaced_stays_when_rows_come_in_further_up(rows in rows(), words in 0..400_usize) {
        let engine = engine();
        let before = shown(&engine, &rows);
        let user = json!({"role": "user", "content": "word ".repeat(words)});
        let later: Vec<Value> = std::iter::once(user).chain(rows.clone()).collect();
        let now = shown(&engine, &later);
        let gone = changed(&rows, &before);
        for place in gone {
            prop_assert_eq!(&now[place + 1], &before[place]);
        }
    }

    /// Every id brings its original back.
    #[test]
    fn originals_come_back(rows in rows()) {
        let engine = engine();
        let hashes = compressed(&engine, &rows)["ccr_hashes"].clone();
        let texts: Vec<String> = rows.iter().filter(|row| is_tool(row)).map(|row| match &row["content"] {
            Value::String(text) => text.clone(),
            list => list.to_string(),
        }).collect();
        for hash in hashes.as_array().unwrap() {
            let answer = engine.retrieve(&caller(&engine), hash.as_str().unwrap()).unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            prop_assert!(texts.contains(&answer["original_content"].as_str().unwrap().to_owned()));
        }
    }

    #[test]
    fn no_body_makes_it_panic(body: Vec<u8>, text in "[\\[\\]{}\":,a-z0-9\\\\ ]{0,60}") {
        let engine = engine();
        for body in [&body[..], text.as_bytes(), format!("{{\"messages\":[{text}]}}").as_bytes()] {
            let _answer = engine.compress(&caller(&engine), body);
        }
    }
}

fn long() -> Vec<Value> {
    (0..30).map(|place| tool(place, 20)).collect()
}

#[test]
fn below_the_budget_nothing_changes_and_above_it_a_pass_goes_down_to_the_floor() {
    let (engine, rows) = (engine(), long());
    let mut passes = 0;
    let mut gone = 0;
    for end in 1..=rows.len() {
        let value = compressed(&engine, &rows[..end]);
        let now = changed(&rows[..end], value["messages"].as_array().unwrap()).len();
        let tokens = |name: &str| value[name].as_u64().unwrap();
        assert!(tokens("tokens_after") <= u64::from(TOKENS));
        if gone == 0 && now > 0 {
            assert!(tokens("tokens_before") > u64::from(TOKENS));
        }
        if now > gone {
            assert!(tokens("tokens_after") <= u64::from(TOKENS) / 2);
            passes += 1;
        }
        gone = now;
    }
    assert!((3..10).contains(&passes), "{passes}");
}

#[test]
fn the_newest_exchange_stays_whole() {
    let call = |place: usize| row(place, 8, 0);
    // Three results of one answer are above the budget by themselves.
    let rows = [
        call(0),
        tool(0, 60),
        call(1),
        tool(1, 90),
        tool(2, 90),
        tool(3, 90),
    ];
    let engine = engine();
    let now = shown(&engine, &rows);
    assert_eq!(changed(&rows, &now), [1]);
    let grown: Vec<Value> = rows.into_iter().chain([row(4, 9, 3)]).collect();
    let now = shown(&engine, &grown);
    assert!(
        changed(&grown, &now).starts_with(&[1, 3]),
        "once it is answered, it is no newer than others"
    );
}

#[test]
fn what_cannot_be_replaced_makes_no_pass_at_every_step() {
    let mut rows = vec![json!({"role": "user", "content": "word ".repeat(4_000)})];
    let engine = engine();
    let (mut passes, mut gone) = (0, 0);
    for place in 0..60 {
        rows.push(tool(place, 20));
        let now = changed(&rows, &shown(&engine, &rows)).len();
        passes += usize::from(now > gone);
        gone = now;
    }
    assert!(gone > 40 && passes < 40, "{passes} passes for {gone}");
}

#[test]
fn a_long_result_keeps_some_of_its_lines() {
    let engine = engine();
    let rows: Vec<Value> = (0..3).map(|place| tool(place, 200)).collect();
    let now = shown(&engine, &rows);
    let text = now[0]["content"].as_str().unwrap();
    assert!(
        text.starts_with("[clipped ") && text.contains("row 0, line 0"),
        "{text}"
    );
    let (_, end) = text.rsplit_once('\n').unwrap();
    assert!(
        end.starts_with("[Retrieve more: hash=") && text.len() < 900,
        "{text}"
    );
}

#[test]
fn tenants_and_sessions_are_apart() {
    let engine = engine();
    let rows = long();
    let body = json!({"messages": rows}).to_string();
    let of = |headers: &[(&str, &str)]| caller_of(&engine, headers);
    let (a, b) = (
        of(&[("x-plimsoll-tenant", "a")]),
        of(&[("x-plimsoll-tenant", "b")]),
    );
    let hashes = |caller: &Caller| {
        let answer = engine.compress(caller, body.as_bytes()).unwrap();
        let value: Value = serde_json::from_slice(&answer).unwrap();
        let all = value["ccr_hashes"].as_array().unwrap().iter();
        all.map(|hash| hash.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = (hashes(&a), hashes(&b));
    assert!(!ours.is_empty() && ours.iter().all(|hash| !theirs.contains(hash)));
    for hash in &ours {
        assert!(is_id(hash) && engine.retrieve(&a, hash).is_ok());
        assert_eq!(engine.retrieve(&b, hash), Err(Gone::Unknown));
    }
    for forged in [
        "",
        "..",
        "0",
        &"0".repeat(24),
        &ours[0].to_uppercase(),
        &"ü".repeat(12),
    ] {
        assert_eq!(engine.retrieve(&a, forged), Err(Gone::Unknown), "{forged}");
    }
    let session = of(&[("x-plimsoll-tenant", "a"), ("x-headroom-affinity", "s")]);
    assert!(session.tenant == a.tenant && session.session != a.session);
    assert_eq!(hashes(&session), ours, "ids are the tenant's");
}

#[test]
fn without_originals_no_stub_says_how_to_bring_them_back() {
    let kept = CompressSettings {
        keep: false,
        ..settings()
    };
    let engine = engine_of(kept);
    let value = compressed(&engine, &long());
    assert!(!value.to_string().contains("Retrieve"));
    let text = value["messages"][0]["content"].as_str().unwrap();
    let id = text.split([' ', ',']).nth(1).unwrap();
    assert!(is_id(id), "{text}");
    assert_eq!(value["ccr_hashes"], json!([]));
    assert_eq!(engine.retrieve(&caller(&engine), id), Err(Gone::NotKept));
}

#[test]
fn a_key_may_name_its_tenant() {
    let mut named = CompressSettings::default();
    let other = KEY.replace('0', "f");
    named.keys.add_named("one", KEY);
    named.keys.add_named("two", &other);
    let of = |key: &str, header: &[(&str, &str)]| {
        let bearer = format!("Bearer {key}");
        let all = [("authorization", bearer.as_str())];
        let headers: HeaderMap = all
            .iter()
            .chain(header)
            .map(|(name, value)| {
                (
                    HeaderName::try_from(*name).unwrap(),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect();
        Caller::of(&named, &[7; 32], &headers).map(|caller| caller.tenant)
    };
    let header = [("x-plimsoll-tenant", "two")];
    assert_ne!(of(KEY, &[]).unwrap(), of(&other, &[]).unwrap());
    assert_ne!(
        of(KEY, &header).unwrap(),
        of(&other, &[]).unwrap(),
        "a header makes nobody another's tenant"
    );
    assert!(of("", &[]).is_err() && of(&KEY[1..], &header).is_err());
    assert!(!format!("{named:?}").contains(&KEY[..8]));
}

#[test]
fn bodies_that_are_no_rows_are_refused_with_what_to_send() {
    let engine = engine();
    let many = format!(
        "{{\"messages\":[{}{{}}]}}",
        "{},".repeat(crate::rows::MOST_ROWS)
    );
    for (body, told) in [
        ("", "valid JSON"),
        ("[]", "JSON object"),
        ("{}", "`messages`"),
        ("{\"messages\":{}}", "`messages`"),
        ("{\"input\":[]}", "`messages`"),
        ("{\"messages\":[1]}", "messages[0]"),
        (
            "{\"messages\":[{\"role\":\"user\"},{\"role\":1}]}",
            "messages[1]",
        ),
        ("{\"messages\":[{\"role\":\"user\"}", "valid JSON"),
        (many.as_str(), "at most 20000 rows"),
    ] {
        let error = engine
            .compress(&caller(&engine), body.as_bytes())
            .unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn a_row_that_is_unclear_stays_as_it_is() {
    let engine = engine();
    let long = "word ".repeat(3_000);
    let unclear = [
        format!(r#"{{"role":"tool","content":"{long}","content":"{long}"}}"#),
        format!(r#"{{"role":"tool","content":"\ud800{long}"}}"#),
        format!(r#"{{"role":"tool","content":{{"a":"{long}"}}}}"#),
        r#"{"role":"tool","content":null}"#.to_owned(),
        r#"{"role":"tool"}"#.to_owned(),
    ];
    let sent = format!("{{\"messages\":[{},{}]}}", unclear.join(","), tool(1, 1));
    let answer = engine.compress(&caller(&engine), sent.as_bytes()).unwrap();
    let answer = std::str::from_utf8(&answer).unwrap();
    assert!(answer.starts_with(sent.strip_suffix('}').unwrap()));
}
