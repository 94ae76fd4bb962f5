//! Lists in the making: where results, system messages and separators go once something between
//! them is gone.

use super::{body, request};
use crate::request::Addition;
use crate::request::Addition::{Guidance, Hop, Result, System};

/// What is put into a list.
enum Put {
    /// The client's unit.
    Unit(usize),
    /// The client's unit with other bytes.
    Edited(usize, &'static str),
    /// The proxy's own.
    Own(Addition, &'static str),
}
use Put::{Edited, Own as Ours, Unit};

/// The list that comes of these messages.
fn list(messages: &str, puts: &[Put]) -> String {
    let whole = rewritten(&format!(r#"{{"messages":{messages}}}"#), puts);
    let list = whole.strip_prefix(r#"{"messages":"#).unwrap();
    list.strip_suffix('}').unwrap().to_owned()
}

fn rewritten(text: &str, puts: &[Put]) -> String {
    let request = request(text);
    let mut splice = request.splice();
    for put in puts {
        match put {
            Unit(unit) => splice.client(*unit),
            Edited(unit, bytes) => splice.edited(*unit, bytes.as_bytes()),
            Ours(what, bytes) => splice.add(*what, bytes.as_bytes()),
        }
    }
    body(&request, splice.close())
}

const H: &str = r#"{"type":"tool_result","tool_use_id":"h","content":"ok"}"#;
const HOP: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"h"}]}"#;
const SEPARATOR: &str = r#"{"role":"user","content":"[results evicted]"}"#;

/// A turn with two calls, its results and a reminder, then another turn.
const CALLS: &str = concat!(
    r#"[ {"role":"user","content":"go"} ,"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"a"},{"type":"tool_use","id":"b"}]},"#,
    r#"{"content":[{"type":"tool_result","tool_use_id":"b"}, {"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"t"} ,{"type":"image"}],"role":"user"}, "#,
    r#"{"role":"assistant","content":"done"},{"role":"user","content":[{"type":"text","text":"more"}]} ]"#,
);

#[test]
fn nothing_edited_is_nothing_changed() {
    let all: Vec<Put> = (0..7).map(Unit).collect();
    assert_eq!(list(CALLS, &all), CALLS);
}

#[test]
fn units_go_back_into_their_hosts() {
    let puts = [
        Unit(0),
        Unit(1),
        Unit(2),
        Edited(
            3,
            r#"{"type":"tool_result","tool_use_id":"a","content":"stub"}"#,
        ),
        Unit(4),
        Unit(5),
        Unit(6),
    ];
    let want = concat!(
        r#"[{"role":"user","content":"go"} ,"#,
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"a"},{"type":"tool_use","id":"b"}]},"#,
        r#"{"content":[{"type":"tool_result","tool_use_id":"b"},{"type":"tool_result","tool_use_id":"a","content":"stub"},{"type":"text","text":"t"} ,{"type":"image"}],"role":"user"},"#,
        r#"{"role":"assistant","content":"done"},{"role":"user","content":[{"type":"text","text":"more"}]}]"#,
    );
    assert_eq!(list(CALLS, &puts), want);
}

#[test]
fn results_of_a_mixed_hop_go_first_in_the_clients_message() {
    let puts = [
        Unit(0),
        Unit(1),
        Ours(Result, H),
        Unit(2),
        Unit(3),
        Unit(4),
        Unit(5),
        Unit(6),
    ];
    let merged = list(CALLS, &puts);
    let front = format!(r#"{{"content":[{H},{{"type":"tool_result","tool_use_id":"b"}},"#);
    assert!(merged.contains(&front), "{merged}");
    // The client gave its own results up.
    for (content, after) in [
        (r#""no\n""#, r#",{"type":"text","text":"no\n"}"#),
        (r#"[{"type":"image"}]"#, r#",{"type":"image"}"#),
        (r#""""#, ""),
    ] {
        let messages = format!(r#"[{HOP},{{"role":"user","content":{content}}}]"#);
        let puts = [Unit(0), Ours(Result, H), Unit(1)];
        let want = format!(r#"[{HOP},{{"role":"user","content":[{H}{after}]}}]"#);
        assert_eq!(list(&messages, &puts), want);
    }
}

#[test]
fn results_of_hidden_hops_are_messages_of_their_own() {
    let other = r#"{"type":"tool_result","tool_use_id":"g","content":"ok"}"#;
    let puts = [
        Unit(0),
        Ours(Hop, HOP),
        Ours(Result, H),
        Ours(Result, other),
        Unit(5),
        Unit(6),
    ];
    let want = format!(
        r#"[{{"role":"user","content":"go"}},{HOP},{{"role":"user","content":[{H},{other}]}},{}"#,
        r#"{"role":"assistant","content":"done"},{"role":"user","content":[{"type":"text","text":"more"}]}]"#
    );
    assert_eq!(list(CALLS, &puts), want);
    let open = r#"[{"role":"user","content":"go"}]"#;
    let want =
        format!(r#"[{{"role":"user","content":"go"}},{HOP},{{"role":"user","content":[{H}]}}]"#);
    assert_eq!(
        list(open, &[Unit(0), Ours(Hop, HOP), Ours(Result, H)]),
        want
    );
}

#[test]
fn answers_that_were_no_neighbours_are_kept_apart() {
    let answer = r#"{"role":"assistant","content":"a"}"#;
    let puts = [
        Unit(0),
        Edited(1, r#"{"role":"assistant","content":"a"}"#),
        Unit(5),
        Unit(6),
    ];
    assert!(list(CALLS, &puts).contains(&format!(
        r#"{answer},{SEPARATOR},{{"role":"assistant","content":"done"}}"#
    )));
    // Where the client itself has two in a row, they stay so, and so does a hop right behind one.
    let paused = format!(r#"[{{"role":"user","content":"u"}},{answer},{answer}]"#);
    assert_eq!(list(&paused, &[Unit(0), Unit(1), Unit(2)]), paused);
    let hop = list(
        &paused,
        &[Unit(0), Unit(1), Ours(Hop, HOP), Ours(Result, H), Unit(2)],
    );
    let between = format!(r#"{answer},{HOP},{{"role":"user","content":[{H}]}},{answer}"#);
    assert!(hop.contains(&between), "{hop}");
    // Two hops whose results are gone.
    let hops = list(
        &paused,
        &[Unit(0), Ours(Hop, answer), Ours(Hop, answer), Unit(2)],
    );
    let between = format!("{answer},{SEPARATOR},{answer},{SEPARATOR},{answer}");
    assert!(hops.contains(&between), "{hops}");
}

/// System messages behind a user's, as an agent sends them.
const TOLD: &str = concat!(
    r#"[{"role":"user","content":"u"},"#,
    r#"{"role":"system","content":"s1"},"#,
    r#"{"role":"assistant","content":[{"type":"tool_use","id":"a"}]},"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]},"#,
    r#"{"role":"system","content":[{"type":"text","text":"s2"}],"output_config":{"effort":"low"}},"#,
    r#"{"role":"assistant","content":"b"},{"role":"user","content":"v"}]"#,
);

#[test]
fn system_messages_keep_a_place_that_the_api_takes() {
    let all: Vec<Put> = (0..7).map(Unit).collect();
    assert_eq!(list(TOLD, &all), TOLD);
    // Without the turn between them they are one, with the last one's members.
    let one = r#"{"role":"system","content":[{"type":"text","text":"s1"},{"type":"text","text":"s2"}],"output_config":{"effort":"low"}}"#;
    let (user, b, v) = (
        r#"{"role":"user","content":"u"}"#,
        r#"{"role":"assistant","content":"b"}"#,
        r#"{"role":"user","content":"v"}"#,
    );
    let gone = [Unit(0), Unit(1), Unit(4), Unit(5), Unit(6)];
    assert_eq!(list(TOLD, &gone), format!("[{user},{one},{b},{v}]"));
    // Without the answers behind them they wait for the end.
    let gone = [Unit(0), Unit(1), Unit(4), Unit(6)];
    assert_eq!(list(TOLD, &gone), format!("[{user},{v},{one}]"));
    // Without the results before it, it does not stand behind an answer.
    let answer = r#"{"role":"assistant","content":"a"}"#;
    let gone = [
        Unit(0),
        Unit(1),
        Edited(2, r#"{"role":"assistant","content":"a"}"#),
        Unit(4),
        Unit(5),
        Unit(6),
    ];
    let second = r#"{"role":"system","content":[{"type":"text","text":"s2"}],"output_config":{"effort":"low"}}"#;
    let told = r#"{"role":"system","content":"s1"}"#;
    assert_eq!(
        list(TOLD, &gone),
        format!("[{user},{told},{answer},{SEPARATOR},{second},{b},{v}]")
    );
    // Results of the proxy's own take the place of those that are gone.
    let ours = [
        Unit(0),
        Unit(1),
        Unit(2),
        Ours(Result, H),
        Unit(4),
        Unit(5),
        Unit(6),
    ];
    let listed = list(TOLD, &ours);
    assert!(
        listed.contains(&format!(
            r#"{{"role":"user","content":[{H}]}},{second},{b}"#
        )),
        "{listed}"
    );
}

/// Guidance stands behind what the user says and before an answer, whatever is gone around it.
#[test]
fn a_system_message_of_the_proxys_own_keeps_such_a_place_too() {
    const G: &str = r#"{"role":"system","content":"G"}"#;
    let answer = r#"{"role":"assistant","content":"b"}"#;
    let (u, s1) = (
        r#"{"role":"user","content":"u"}"#,
        r#"{"role":"system","content":"s1"}"#,
    );
    // At the end, behind results of the client's and of a hidden call.
    let put = |more: &[Put]| -> String {
        let mut puts = vec![Unit(0), Unit(1)];
        puts.extend(more.iter().map(|put| match put {
            Unit(unit) => Unit(*unit),
            Edited(unit, bytes) => Edited(*unit, bytes),
            Ours(what, bytes) => Ours(*what, bytes),
        }));
        list(TOLD, &puts)
    };
    let results = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}"#;
    let end = put(&[Unit(2), Unit(3), Ours(Guidance, G)]);
    assert!(end.ends_with(&format!("{results},{G}]")), "{end}");
    let hidden = put(&[Ours(Hop, HOP), Ours(Result, H), Ours(Guidance, G), Unit(5)]);
    let own = format!(r#"{{"role":"user","content":[{H}]}}"#);
    assert!(
        hidden.ends_with(&format!("{own},{G},{answer}]")),
        "{hidden}"
    );
    // Beside one of the client's they are one.
    let both = list(TOLD, &[Unit(0), Unit(1), Ours(Guidance, G), Unit(5)]);
    let one =
        r#"{"role":"system","content":[{"type":"text","text":"s1"},{"type":"text","text":"G"}]}"#;
    assert_eq!(both, format!("[{u},{one},{answer}]"));
    // Without what stood before it.
    let alone = put(&[Edited(2, answer), Ours(Guidance, G), Unit(5)]);
    assert_eq!(
        alone,
        format!("[{u},{s1},{answer},{SEPARATOR},{G},{answer}]")
    );
    // Without the answer behind it, it waits for the next.
    let waits = list(TOLD, &[Unit(0), Ours(Guidance, G), Unit(6)]);
    let v = r#"{"role":"user","content":"v"}"#;
    assert_eq!(waits, format!("[{u},{v},{G}]"));
}

#[test]
fn what_the_client_sends_invalid_is_passed_on() {
    let odd = r#"[{"role":"system","content":"s"},{"role":"system"},{"role":"assistant","content":"a"},{"role":"system","content":"t"},{"role":"tutor"},7,{"role":"user","content":"u"}]"#;
    let all: Vec<Put> = (0..7).map(Unit).collect();
    assert_eq!(list(odd, &all), odd);
}

#[test]
fn the_system_text_is_edited_where_it_stands() {
    let before = r#"{"system":"s","messages":[{"role":"user","content":"u"}],"model":"m"}"#;
    let after =
        r#"{"messages":[{"role":"user","content":"u"}],"system" : [{"type":"text","text":"s"}]}"#;
    let guided = [Edited(0, r#""s G""#), Unit(1)];
    for (body, text) in [
        (before, r#""s""#),
        (after, r#"[{"type":"text","text":"s"}]"#),
    ] {
        assert_eq!(rewritten(body, &[Unit(0), Unit(1)]), body);
        assert_eq!(rewritten(body, &guided), body.replace(text, r#""s G""#));
    }
    let own = [Ours(System, r#""G""#), Unit(0)];
    for (members, with) in [
        ("", r#","system":"G""#),
        (r#","system":null"#, r#","system":"G""#),
        (r#","system":"","x":1"#, r#","system":"G","x":1"#),
        (r#","system":[]"#, r#","system":"G""#),
        (r#","max_tokens":5"#, r#","max_tokens":5,"system":"G""#),
    ] {
        let body =
            |members: &str| format!(r#"{{"messages":[{{"role":"user","content":"u"}}]{members}}}"#);
        assert_eq!(rewritten(&body(members), &own), body(with));
        assert_eq!(rewritten(&body(members), &[Unit(0)]), body(members));
    }
}
