//! The body of a Messages request: its units, the hosts that they are parts of, and the few fields
//! that decide how it is served. Never judges what only the upstream can judge.

use std::ops::Range;

use bytes::Bytes;
use plimsoll_model::Role;
use plimsoll_model::raw::{self, Edit, Object, Span};

use super::breakpoint::{self, Lifetime, OuterMarkers};
use super::hops::HOPS;
use super::tool_references;
use crate::Dialect;
use crate::request_fields::{
    Limit, RequestError, RequestFields, Unmanaged, asks_for_json, format_in, tools, with_messages,
};

/// How the units make up the wire's messages.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The wire's messages in order.
    pub hosts: Vec<Host>,
    /// The edit that gives the request a system text if it has none; the text goes behind the
    /// edit's own bytes.
    pub system: Edit,
    /// The client's breakpoints outside its messages.
    pub markers: OuterMarkers,
}

/// One message of the wire.
#[derive(Clone, Debug)]
pub struct Host {
    /// Who speaks: [`Role::Other`] if the wire does not tell.
    pub role: Role,
    /// Where it lies in the body.
    pub span: Span,
    /// Its units, by index.
    pub units: Range<usize>,
}

/// Reads a body.
///
/// # Errors
/// [`RequestError`] if the body is no object with an array of messages.
pub fn decode(body: Bytes) -> Result<(RequestFields, Hosts), RequestError> {
    let (object, elements, messages_span) = with_messages(&body)?;
    let mut units: Vec<Span> = Vec::with_capacity(elements.spans.len() + 1);
    units.extend(system(&object));
    let hosts: Vec<Host> = elements
        .spans
        .into_iter()
        .map(|span| host(&body, span, &mut units))
        .collect();
    let mut tools = tools(&object, "tools", |tool| {
        tool.text("name").unwrap_or_default().into_owned()
    });
    let spoken = hosts.iter().filter_map(|host| body.get(host.span.clone()));
    tools.names.extend(tool_references::names(spoken));
    // It was a member of its own while it was in beta.
    let format = format_in(&object, "output_config").or_else(|| object.present("output_format"));
    let fields = RequestFields {
        messages: units,
        objects: elements.objects,
        messages_span,
        tools,
        limit: Limit::of(&object, "max_tokens", &HOPS),
        hint: session(&object),
        // With guidance added, a request without any message would become a valid one.
        unmanaged: hosts.is_empty().then_some(Unmanaged::Empty),
        structured: asks_for_json(format),
        one_call: one_call(&object),
        checks_thoughts: checks_thoughts(&object),
        ..RequestFields::new(
            Dialect::Messages,
            &body,
            &object,
            hosts.iter().map(|host| &host.span),
        )
    };
    let layout = Hosts {
        hosts,
        system: object.set("system", b""),
        markers: outer_markers(&object),
    };
    Ok((fields, layout))
}

/// Whether the client says what becomes of thoughts that lost their place
/// (`platform.claude.com/docs/en/build-with-claude/preserved-thinking`).
fn checks_thoughts(object: &Object<'_>) -> bool {
    let thinking = object.child("thinking");
    thinking.is_some_and(|thinking| thinking.present("block_binding").is_some())
}

/// Whether the answer may hold one call at most.
fn one_call(object: &Object<'_>) -> bool {
    let choice = object.child("tool_choice");
    choice.is_some_and(|choice| choice.raw("disable_parallel_tool_use") == Some(b"true"))
}

/// The breakpoints outside the messages.
fn outer_markers(object: &Object<'_>) -> OuterMarkers {
    let arrays = ["tools", "system"].into_iter();
    let arrays = arrays.filter_map(|key| object.present(key));
    OuterMarkers {
        ahead: arrays.flat_map(breakpoint::lifetimes).collect(),
        whole: Lifetime::of(object),
    }
}

/// The span of the system text, if the text says anything.
fn system(object: &Object<'_>) -> Option<Span> {
    let raw = object.present("system")?;
    let says = match raw.first()? {
        b'"' => raw != b"\"\"",
        b'[' => !raw::array(raw).ok()?.is_empty(),
        _ => false,
    };
    says.then(|| object.get("system")).flatten()
}

/// Reads one message of the wire and appends its units.
fn host(body: &[u8], span: Span, units: &mut Vec<Span>) -> Host {
    let first = units.len();
    let raw = body.get(span.clone()).unwrap_or_default();
    let (role, parts) = split(raw);
    match parts {
        Some(parts) => units.extend(parts.iter().map(|part| raw::shift(part, span.start))),
        None => units.push(span.clone()),
    }
    Host {
        role,
        span,
        units: first..units.len(),
    }
}

/// The role of a message, and the parts that it is split into if it holds results.
fn split(raw: &[u8]) -> (Role, Option<Vec<Span>>) {
    let Ok((object, blocks)) = Object::parse_with_array(raw, "content") else {
        return (Role::Other, None);
    };
    let role = match object.text("role").as_deref() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => Role::Other,
    };
    // Parsers disagree on which of two contents counts. The unit stays whole, and its reader
    // refuses it.
    match blocks {
        Some(blocks) if role == Role::User && !object.has_duplicates() => {
            (role, results_apart(raw, &blocks.spans))
        }
        _ => (role, None),
    }
}

/// The results one by one, and the runs of other blocks between them; `None` if there is no result.
fn results_apart(raw: &[u8], blocks: &[Span]) -> Option<Vec<Span>> {
    let mut parts: Vec<Span> = Vec::with_capacity(blocks.len());
    let (mut in_run, mut found) = (false, false);
    for block in blocks {
        let is_result = raw.get(block.clone()).is_some_and(is_result);
        found |= is_result;
        match parts.last_mut().filter(|_| in_run && !is_result) {
            Some(run) => run.end = block.end,
            None => parts.push(block.clone()),
        }
        in_run = !is_result;
    }
    found.then_some(parts)
}

fn is_result(raw: &[u8]) -> bool {
    let block = Object::parse(raw).ok();
    block.is_some_and(|block| block.text("type").as_deref() == Some("tool_result"))
}

/// The session that an agent names in `metadata.user_id`: as a member of a JSON object in a string,
/// or at the end of a name.
fn session(object: &Object<'_>) -> Option<String> {
    let metadata = object.child("metadata")?;
    let user = metadata.text("user_id")?;
    if let Ok(user) = Object::parse(user.as_bytes()) {
        let session = user.text("session_id")?;
        return (!session.is_empty()).then(|| session.into_owned());
    }
    let (_, session) = user.rsplit_once("_session_")?;
    let uuid = |c: char| c.is_ascii_hexdigit() || c == '-';
    (session.len() == 36 && session.chars().all(uuid)).then(|| session.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_fields::Tools;

    fn units(body: &str) -> Vec<String> {
        let request = decode(Bytes::copy_from_slice(body.as_bytes())).unwrap().0;
        (0..request.messages.len())
            .map(|at| String::from_utf8_lossy(request.message(at)).into_owned())
            .collect()
    }

    #[test]
    fn units_are_told_apart() {
        for (body, want) in [
            (
                r#"{"messages":[{"role":"user","content":"a"}],"system":"s"}"#,
                vec![r#""s""#, r#"{"role":"user","content":"a"}"#],
            ),
            (
                r#"{"system":[{"type":"text","text":"s"}],"messages":[{"role":"assistant","content":[{"type":"tool_use"}]}]}"#,
                vec![
                    r#"[{"type":"text","text":"s"}]"#,
                    r#"{"role":"assistant","content":[{"type":"tool_use"}]}"#,
                ],
            ),
            (
                r#"{"system":"","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image"}]}]}"#,
                vec![r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"image"}]}"#],
            ),
            (
                r#"{"messages":[{"content":[{"type":"tool_result","n":1}, {"type":"tool_result","n":2},{"type":"text"} , {"type":"image"},{"type":"tool_result","n":3}],"role":"user"}]}"#,
                vec![
                    r#"{"type":"tool_result","n":1}"#,
                    r#"{"type":"tool_result","n":2}"#,
                    r#"{"type":"text"} , {"type":"image"}"#,
                    r#"{"type":"tool_result","n":3}"#,
                ],
            ),
            (
                r#"{"messages":[7,{"role":"user","content":[{"type":"tool_result"}],"role":"user"}]}"#,
                vec![
                    "7",
                    r#"{"role":"user","content":[{"type":"tool_result"}],"role":"user"}"#,
                ],
            ),
        ] {
            assert_eq!(units(body), want, "{body}");
        }
    }

    #[test]
    fn limits_leave_room_to_think() {
        let limit = |members: &str| {
            let body = format!(r#"{{"messages":[]{members}}}"#);
            let request = decode(Bytes::from(body)).unwrap().0;
            request.limit.map(|_| request.limit_left(8000).unwrap())
        };
        assert_eq!(limit(""), None);
        assert_eq!(limit(r#","max_tokens":8192"#), Some(192));
        assert_eq!(limit(r#","max_tokens":100"#), Some(1));
        assert_eq!(
            limit(r#","max_tokens":8192,"thinking":{"type":"enabled","budget_tokens":7168}"#),
            Some(7169)
        );
        assert_eq!(
            limit(r#","max_tokens":8192,"thinking":{"type":"adaptive"}"#),
            Some(192)
        );
    }

    #[test]
    fn sessions_are_named_in_two_ways() {
        let id = "7238609f-b64d-4421-97e3-6617ac5f688c";
        for (user, want) in [
            (
                format!(r#"{{\"device_id\":\"d\",\"session_id\":\"{id}\"}}"#),
                Some(id),
            ),
            (format!("user_ab_account_cd_session_{id}"), Some(id)),
            ("user_ab_session_7".to_owned(), None),
            (r#"{\"device_id\":\"d\"}"#.to_owned(), None),
            ("someone".to_owned(), None),
        ] {
            let body = format!(r#"{{"messages":[],"metadata":{{"user_id":"{user}"}}}}"#);
            let request = decode(Bytes::from(body)).unwrap().0;
            assert_eq!(request.hint.as_deref(), want, "{user}");
            assert_eq!(request.unmanaged, Some(Unmanaged::Empty));
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"messages":"x"}"#,
            r#"{"messages":[],"messages":[]}"#,
        ] {
            assert!(decode(Bytes::from(body)).is_err(), "{body}");
        }
    }

    #[test]
    fn tools_have_names() {
        let body = r#"{"messages":[],"tools":[{"name":"a","input_schema":{}},{"type":"bash_20250124","name":"bash"},{}]}"#;
        let request = decode(Bytes::from(body)).unwrap().0;
        assert_eq!(request.tools.names, ["a", "bash", ""]);
        let none = decode(Bytes::from_static(br#"{"messages":[],"tools":[]}"#))
            .unwrap()
            .0;
        assert_eq!(none.tools, Tools::default());
    }
}
