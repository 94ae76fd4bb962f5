//! Where markers of ours stand: goldens of whole bodies, and what real agents leave room for.

use serde_json::Value;

use super::captures::captures;
use super::{body, request};
use crate::request::Breakpoint::{self, Cut, Prologue, Tail};
use crate::request::Request;

const M: &str = r#","cache_control":{"type":"ephemeral"}"#;
const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

/// The body with breakpoints before these units; a tail is always of use.
fn with(request: &Request, wanted: &[(Breakpoint, usize)], max: usize) -> String {
    let mut splice = request.splice();
    splice.allow(max);
    for unit in 0..request.messages.len() {
        let here = wanted.iter().filter(|(_, at)| *at == unit);
        here.for_each(|(what, _)| splice.breakpoint(*what));
        splice.client(unit);
    }
    splice.breakpoint(Tail);
    body(request, splice.close())
}

/// Holds a body to where markers stand: `@` for one of ours, `^` for one of the client's, `#` for
/// one that is kept for an hour and is ours, `&` for such of the client's. Other texts are bodies
/// as they are.
#[track_caller]
fn check(golden: &str, wanted: &[(Breakpoint, usize)]) {
    let sent = golden
        .replace(['@', '#'], "")
        .replace('^', M)
        .replace('&', LONG);
    let want = golden.replace(['@', '^'], M).replace(['#', '&'], LONG);
    assert_eq!(with(&request(&sent), wanted, 4), want);
}

#[test]
fn a_client_that_sets_none_gets_all() {
    check(
        concat!(
            r#"{"model":"m","system":[{"type":"text","text":"s"}],"tools":[{"name":"t"}],"messages":["#,
            r#"{"role":"user","content":[{"type":"text","text":"go"@}]},"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"a","name":"t","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"@}]},"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"b","name":"t","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"y"}]@}]},"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"z"},{"type":"text","text":"and"@}]}]}"#,
        ),
        &[(Prologue, 2), (Cut, 4), (Cut, 6)],
    );
}

#[test]
fn strings_become_blocks_where_they_are_marked() {
    let sent = r#"{"messages":[{"role":"user","content":"a\"b"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]}"#;
    let want = [
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a\"b""#,
        M,
        r#"}]},{"role":"assistant","content":"c"},{"role":"user","content":[{"type":"text","text":"d""#,
        M,
        "}]}]}",
    ];
    assert_eq!(with(&request(sent), &[(Prologue, 1)], 4), want.concat());
}

#[test]
fn a_client_that_sets_some_gets_the_cut() {
    // As agents do it: tools or system, and the tail.
    check(
        concat!(
            r#"{"tools":[{"name":"t"^}],"system":[{"type":"text","text":"s"^}],"messages":["#,
            r#"{"role":"user","content":[{"type":"text","text":"go"}]},"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"@}]},"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"b","name":"t","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":"y"}]},"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"z"^}]}]}"#,
        ),
        &[(Prologue, 2), (Cut, 4), (Cut, 6)],
    );
}

#[test]
fn what_has_no_room_is_left() {
    for body in [
        // Four, one of them in a result.
        r#"{"system":[{"type":"text","text":"s"^}],"messages":[{"role":"user","content":[{"type":"text","text":"a"^}]},{"role":"assistant","content":[{"type":"tool_use","id":"a"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"^}]}]},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"c"^}]}]}"#,
        // The cut stands where the client's own does.
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"^}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}"#,
        // The provider sets one at the tail by itself, and the cut has nothing before it.
        r#"{"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"a"}]}"#,
    ] {
        check(body, &[(Prologue, 1), (Cut, 1), (Cut, 0)]);
    }
}

#[test]
fn markers_stand_on_what_may_be_marked() {
    check(
        concat!(
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"go"@},{"type":"text","text":" "}]},"#,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a"@}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_reference","tool_name":"x"}]}]},"#,
            r#"{"role":"system","content":"a note"}]}"#,
        ),
        &[(Prologue, 1)],
    );
}

#[test]
fn markers_are_kept_as_long_as_the_clients_next() {
    let turn = |first: &str, last: &str| {
        [
            r#"{"system":[{"type":"text","text":"s"&}],"messages":[{"role":"user","content":[{"type":"text","text":"a""#,
            first,
            r#"}]},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"c""#,
            last,
            "}]}]}",
        ]
        .concat()
    };
    for (first, last) in [("#", "&"), ("@", "^"), ("&", "")] {
        check(&turn(first, last), &[(Cut, 2)]);
    }
    // None behind it: as the last before it.
    check(&turn("#", ""), &[(Cut, 2)]);
}

#[test]
fn without_leave_there_are_none() {
    let body = r#"{"messages":[{"role":"user","content":"a"}]}"#;
    assert_eq!(with(&request(body), &[], 0), body);
}

/// Real agents leave one place free, and ours goes there.
#[test]
fn real_agents_leave_room_for_one() {
    let count = |text: &str| text.matches(r#""cache_control""#).count();
    for (file, captured) in captures() {
        for request in captured.iter().map(|captured| &captured.request) {
            let sent = std::str::from_utf8(&request.body).unwrap();
            let units = request.messages.len();
            let wanted: Vec<_> = (1..units).map(|at| (Cut, at)).collect();
            let marked = with(request, &wanted, 4);
            assert!(count(&marked) <= 4, "{file}");
            assert!(count(&marked) >= count(sent), "{file}");
            let value: Value = serde_json::from_str(&marked).unwrap();
            assert_eq!(
                value["system"],
                serde_json::from_str::<Value>(sent).unwrap()["system"]
            );
        }
    }
}
