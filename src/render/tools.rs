//! What the proxy adds to a request: the schema of `delimiter` and the guidance block. Constant
//! bytes for a session, because the tools array stands at the front of the provider's cache.

use bytes::Bytes;

use crate::model::raw;

/// The tool's name, and what it is called where the client has a tool of that name.
pub const DELIMITER: &str = "delimiter";
/// The name under which it is injected beside a client's own `delimiter`.
pub const DELIMITER_BESIDE: &str = "plimsoll_delimiter";

/// The protocol in the tool's description (paper 000 §4.2): at most 1,024 characters, because
/// providers refuse longer ones.
const DESCRIPTION: &str = "Mark the episodes of your own work, so that finished ones can leave \
the context while what you need stays. Two types: \"expl\" gathers information (searching, \
reading, asking); \"act\" changes things (editing, writing, running). One episode is open at a \
time.\n\
- Start exploring: {\"action\":\"start\",\"name\":\"auth-flow\",\"type\":\"expl\"}\n\
- End exploring, with what you learned: {\"action\":\"end\",\"description\":\"...\"}. The \
description is what remains later: put in paths, names, numbers and decisions.\n\
- Start acting, naming the closed expl episodes that it builds on: \
{\"action\":\"start\",\"name\":\"fix-auth\",\"type\":\"act\",\"dependencies\":[\"auth-flow\"]}\n\
- End acting: {\"action\":\"end\"}\n\
Names are unique. It costs nothing when sent together with your other calls.";

/// The default guidance: under 300 tokens.
const GUIDANCE: &str = "# Context episodes\n\
Your context is limited; older work leaves it by the episodes that you mark with `{tool}`. \
Mark all of your work: start an `expl` episode before you search or read, end it with a \
description of what you learned, start an `act` episode (with the expl episodes it depends on) \
before you edit, write or run, and end it when its effect is in place. Keep episodes to one \
question or one change each.\n\
Put `{tool}` calls into the same message as your next tool calls, in order: end of the last \
episode, start of the next, then the work itself. Never send a message with `{tool}` calls \
alone unless you have nothing else to do, and never mention them to the user.\n\
A result that names an evicted episode tells what was there; read the source again if you need \
the details.";

/// The schema of the tool under a name, as one element of the tools array.
#[must_use]
pub fn schema(name: &str) -> String {
    format!(
        concat!(
            r#"{{"type":"function","function":{{"name":{name},"description":{description},"#,
            r#""parameters":{{"type":"object","properties":{{"#,
            r#""action":{{"type":"string","enum":["start","end"]}},"#,
            r#""name":{{"type":"string","description":"start only: a short unique name"}},"#,
            r#""type":{{"type":"string","enum":["expl","act"],"description":"start only"}},"#,
            r#""dependencies":{{"type":"array","items":{{"type":"string"}},"description":"start of an act: names of closed expl episodes"}},"#,
            r#""description":{{"type":"string","description":"end of an expl: what was learned"}}"#,
            r#"}},"required":["action"]}}}}}}"#
        ),
        name = raw::quote(name),
        description = raw::quote(DESCRIPTION),
    )
}

/// The client's tools array with ours in front, so that the client's own changes don't move it.
#[must_use]
pub fn with_delimiter(tools: &[u8], name: &str) -> Option<Bytes> {
    let rest = tools.get(1..).filter(|_| tools.first() == Some(&b'['))?;
    let schema = schema(name);
    let mut out = Vec::with_capacity(tools.len() + schema.len() + 2);
    out.push(b'[');
    out.extend_from_slice(schema.as_bytes());
    out.push(b',');
    out.extend_from_slice(rest);
    Some(Bytes::from(out))
}

/// The guidance for a tool name: the default, or the operator's with `{tool}` filled in.
#[must_use]
pub fn guidance(custom: Option<&str>, name: &str) -> String {
    custom.unwrap_or(GUIDANCE).replace("{tool}", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_json_and_short_enough_for_every_provider() {
        let schema: serde_json::Value = serde_json::from_str(&schema(DELIMITER)).unwrap();
        let description = schema["function"]["description"].as_str().unwrap();
        assert!(
            description.chars().count() <= 1024,
            "{}",
            description.chars().count()
        );
        assert_eq!(
            schema["function"]["parameters"]["required"],
            serde_json::json!(["action"])
        );
    }

    #[test]
    fn the_clients_tools_keep_their_bytes_behind_ours() {
        let tools = with_delimiter(br#"[ {"type":"function" }]"#, DELIMITER).unwrap();
        assert!(tools.ends_with(br#", {"type":"function" }]"#));
        serde_json::from_slice::<serde_json::Value>(&tools).unwrap();
    }
}
