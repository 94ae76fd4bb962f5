//! The body of a Messages request: its units, the hosts that they are parts of, and the few fields
//! that decide how it is served. Never judges what only the upstream can judge.

use std::ops::Range;

use bytes::Bytes;

use super::breakpoint::{self, Ahead, Life};
use crate::dialect::request::{
    Layout, Limit, Refers, Request, RequestError, Unmanaged, asks_for_json, format_in,
};
use crate::dialect::stream::{Echo, UsageWish};
use crate::model::raw::{self, Edit, Object, Span};
use crate::model::{Dialect, Role};

/// How the units make up the wire's messages.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The wire's messages in order.
    pub hosts: Vec<Host>,
    /// What gives the request a system text where it has none; the value goes behind it.
    pub system: Edit,
    /// The client's breakpoints outside its messages.
    pub ahead: Ahead,
}

/// One message of the wire.
#[derive(Clone, Debug)]
pub struct Host {
    /// Who speaks: [`Role::Other`] where the wire does not tell.
    pub role: Role,
    /// Where it lies in the body.
    pub span: Span,
    /// Its units, by index.
    pub units: Range<usize>,
}

/// Reads a body.
///
/// # Errors
/// [`RequestError`] where the body is no object with an array of messages.
pub fn decode(body: Bytes) -> Result<Request, RequestError> {
    const MISSING: RequestError = RequestError::Missing {
        field: "messages",
        form: "an array of message objects",
    };
    let (object, elements) = Object::parse_with_array(&body, "messages")?;
    let elements = elements.ok_or(MISSING)?;
    if object.has_duplicates() {
        return Err(RequestError::DuplicateKey);
    }
    let messages_span = object.get("messages").ok_or(MISSING)?;
    let mut units: Vec<Span> = Vec::with_capacity(elements.len() + 1);
    units.extend(system(&object));
    let hosts: Vec<Host> = elements
        .into_iter()
        .map(|span| host(&body, span, &mut units))
        .collect();
    let (tools, tool_names) = tools(&object);
    // It was a member of its own while it was in beta.
    let format = format_in(&object, "output_config").or_else(|| object.present("output_format"));
    Ok(Request {
        dialect: Dialect::Messages,
        model: object.text("model").unwrap_or_default().into_owned(),
        messages_span,
        tools,
        tool_names,
        stream: object.raw("stream") == Some(b"true"),
        usage_wish: UsageWish::Refused,
        limit: limit(&object),
        hint: session(&object),
        // Guidance on top of no message at all would make a request of what is none.
        unmanaged: hosts.is_empty().then_some(Unmanaged::Empty),
        refers: Refers::default(),
        structured: asks_for_json(format),
        one_call: one_call(&object),
        stored: false,
        echo: Echo::default(),
        layout: Layout::Hosts(Hosts {
            hosts,
            system: object.set("system", b""),
            ahead: ahead(&object),
        }),
        messages: units,
        body: body.clone(),
    })
}

/// Whether the answer may hold one call at most.
fn one_call(object: &Object<'_>) -> bool {
    let choice = object.present("tool_choice").map(Object::parse);
    let choice = choice.and_then(Result::ok);
    choice.is_some_and(|choice| choice.raw("disable_parallel_tool_use") == Some(b"true"))
}

/// The breakpoints outside the messages.
fn ahead(object: &Object<'_>) -> Ahead {
    let arrays = ["tools", "system"].into_iter();
    let arrays = arrays.filter_map(|key| object.present(key));
    Ahead {
        lives: arrays.flat_map(breakpoint::lives).collect(),
        whole: Life::of(object),
    }
}

/// Where the system text lies, if it says anything.
fn system(object: &Object<'_>) -> Option<Span> {
    let raw = object.present("system")?;
    let says = match raw.first()? {
        b'"' => raw != b"\"\"",
        b'[' => !raw::array(raw).ok()?.is_empty(),
        _ => false,
    };
    says.then(|| object.get("system")).flatten()
}

/// Reads one message of the wire, and lists its units.
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

/// Who speaks in a message, and the parts that it is split into if it holds results.
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
    // Parsers disagree on which of two contents counts: whoever reads the unit refuses it then.
    match blocks {
        Some(blocks) if role == Role::User && !object.has_duplicates() => {
            (role, results_apart(raw, &blocks))
        }
        _ => (role, None),
    }
}

/// The results one by one, and the runs of other blocks between them; none where there is no
/// result.
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

fn tools(object: &Object<'_>) -> (Option<Span>, Vec<String>) {
    let raw = object.present("tools").unwrap_or_default();
    let elements = raw::array(raw).unwrap_or_default();
    let name = |tool: &[u8]| {
        let tool = Object::parse(tool).ok();
        let name = tool.and_then(|tool| tool.text("name"));
        name.unwrap_or_default().into_owned()
    };
    let names: Vec<String> = elements
        .into_iter()
        .filter_map(|element| raw.get(element))
        .map(name)
        .collect();
    let span = object.get("tools").filter(|_| !names.is_empty());
    (span, names)
}

/// The limit of an answer. What is thought counts towards it, and the provider refuses a limit that
/// leaves no room beside it.
fn limit(object: &Object<'_>) -> Option<Limit> {
    let thinking = object
        .raw("thinking")
        .and_then(|raw| Object::parse(raw).ok());
    let budget = thinking.and_then(|thinking| thinking.number("budget_tokens"));
    Some(Limit {
        field: "max_tokens",
        tokens: object.number("max_tokens")?,
        least: budget.unwrap_or(0).saturating_add(1),
    })
}

/// The session that an agent names in `metadata.user_id`: as a member of an object that is sent as
/// a string, or at the end of a name.
fn session(object: &Object<'_>) -> Option<String> {
    let metadata = Object::parse(object.raw("metadata")?).ok()?;
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

    fn units(body: &str) -> Vec<String> {
        let request = decode(Bytes::copy_from_slice(body.as_bytes())).unwrap();
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
            let request = decode(Bytes::from(body)).unwrap();
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
            let request = decode(Bytes::from(body)).unwrap();
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
        let request = decode(Bytes::from(body)).unwrap();
        assert_eq!(request.tool_names, ["a", "bash", ""]);
        let none = decode(Bytes::from_static(br#"{"messages":[],"tools":[]}"#)).unwrap();
        assert_eq!((none.tools, none.tool_names.len()), (None, 0));
    }
}
