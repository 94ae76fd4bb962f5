//! What the proxy adds to a request: the schemas of the hidden tools and the guidance block.
//! Constant bytes for a session, because the tools array stands at the front of the provider's
//! cache. Never decides whether a tool is injected.

use bytes::Bytes;

use crate::model::{Dialect, Hidden};

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

/// How what was evicted comes back, in as many characters at most.
const RECALL: &str = "Bring back the exact original of what was evicted from the context. Where \
something is gone or clipped, a line names it (\"[evicted read:3, 2.1k tokens]\", \"evicted 3 \
items: read:3,5 grep:7\") or the episode that it was in.\n\
- One item, the call and its result: {\"id\":\"read:3\"}\n\
- A part of it: {\"id\":\"read:3\",\"lines\":\"10-40\"} or {\"id\":\"read:3\",\"search\":\"refresh_token\"}\n\
- All that is gone of an episode: {\"id\":\"auth-flow\"}\n\
- More of the ledger of evicted episodes: {\"id\":\"ledger:1\"}\n\
It returns what was there then and runs nothing; where a file may have changed since, read the \
file. Ask for lines or a search where a part will do: what comes back takes up context like any \
result, and what is too long is cut.";

/// The default guidance: under 300 tokens, with the sentence on what is gone.
const GUIDANCE: &str = "# Context episodes\n\
Your context is limited; older work leaves it by the episodes that you mark with `{tool}`. \
Mark all of your work: start an `expl` episode before you search or read, end it with a \
description of what you learned, start an `act` episode (with the expl episodes it depends on) \
before you edit, write or run, and end it when its effect is in place. Keep episodes to one \
question or one change each.\n\
Put `{tool}` calls into the same message as your next tool calls, in order: end of the last \
episode, start of the next, then the work itself. Never send a message with `{tool}` calls \
alone unless you have nothing else to do, and never mention them to the user.\n";
/// What the guidance says of what is gone.
const GONE: &str = "\
A result that names an evicted episode tells what was there; read the source again if you need \
the details.";
/// The same where `recall` is injected.
const GONE_RECALL: &str = "\
A result that names an evicted episode tells what was there; if you need the details, `{recall}` \
brings them back by the names and ids that it lists.";

/// The hidden tools of a conversation, by the names under which it knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// The name of `delimiter`; none where it is not injected.
    pub delimiter: Option<String>,
    /// The name of `recall`; none where it is not injected.
    pub recall: Option<String>,
}

impl Injected {
    /// The hidden tool of a name.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<Hidden> {
        let tools = [Hidden::Delimiter, Hidden::Recall];
        tools
            .into_iter()
            .find(|tool| self.name(*tool) == Some(name))
    }

    /// The name of a hidden tool, where it is injected.
    #[must_use]
    pub fn name(&self, tool: Hidden) -> Option<&str> {
        match tool {
            Hidden::Delimiter => self.delimiter.as_deref(),
            Hidden::Recall => self.recall.as_deref(),
        }
    }

    /// Whether there is any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.names().next().is_some()
    }

    /// All names, in the order in which the tools stand.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&self.delimiter, &self.recall]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// The name for a hidden tool beside the client's own tools: its own, or one that says whose it
/// is; none where the client has both.
#[must_use]
pub fn free_name(tool: Hidden, taken: &[String]) -> Option<String> {
    let (plain, beside) = match tool {
        Hidden::Delimiter => ("delimiter", "plimsoll_delimiter"),
        Hidden::Recall => ("recall", "plimsoll_recall"),
    };
    let free = |name: &&str| !taken.iter().any(|taken| taken == name);
    [plain, beside].into_iter().find(free).map(str::to_owned)
}

/// The schema of a tool under a name, as one element of the tools array.
#[must_use]
pub fn schema(dialect: Dialect, tool: Hidden, name: &str) -> String {
    let (description, parameters) = match tool {
        Hidden::Delimiter => (
            DESCRIPTION,
            concat!(
                r#""action":{"type":"string","enum":["start","end"]},"#,
                r#""name":{"type":"string","description":"start only: a short unique name"},"#,
                r#""type":{"type":"string","enum":["expl","act"],"description":"start only"},"#,
                r#""dependencies":{"type":"array","items":{"type":"string"},"description":"start of an act: names of closed expl episodes"},"#,
                r#""description":{"type":"string","description":"end of an expl: what was learned"}"#,
                r#"},"required":["action"]"#,
            ),
        ),
        Hidden::Recall => (
            RECALL,
            concat!(
                r#""id":{"type":"string","description":"an item id, the name of an episode, or ledger:1"},"#,
                r#""lines":{"type":"string","description":"a range of lines, such as 10-40"},"#,
                r#""search":{"type":"string","description":"only lines that contain this text"}"#,
                r#"},"required":["id"]"#,
            ),
        ),
    };
    let parameters = format!(r#""type":"object","properties":{{{parameters}"#);
    dialect.tool(name, description, &parameters)
}

/// The client's tools array with ours in front, so that the client's own changes don't move them.
#[must_use]
pub fn with_hidden(dialect: Dialect, tools: &[u8], injected: &Injected) -> Option<Bytes> {
    let rest = tools.get(1..).filter(|_| tools.first() == Some(&b'['))?;
    let mut out = vec![b'['];
    for tool in [Hidden::Delimiter, Hidden::Recall] {
        if let Some(name) = injected.name(tool) {
            out.extend_from_slice(schema(dialect, tool, name).as_bytes());
            out.push(b',');
        }
    }
    out.extend_from_slice(rest);
    Some(Bytes::from(out))
}

/// The guidance for the names of the tools: the default, or the operator's with `{tool}` filled in.
#[must_use]
pub fn guidance(custom: Option<&str>, delimiter: &str, recall: Option<&str>) -> String {
    let text = match (custom, recall) {
        (Some(custom), _) => custom.to_owned(),
        (None, None) => format!("{GUIDANCE}{GONE}"),
        (None, Some(recall)) => format!("{GUIDANCE}{}", GONE_RECALL.replace("{recall}", recall)),
    };
    text.replace("{tool}", delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Counter, Encoding};

    fn both() -> Injected {
        Injected {
            delimiter: Some("delimiter".to_owned()),
            recall: Some("recall".to_owned()),
        }
    }

    #[test]
    fn schemas_are_json_and_short_enough_for_every_provider() {
        for (tool, required) in [(Hidden::Delimiter, "action"), (Hidden::Recall, "id")] {
            let schema: serde_json::Value =
                serde_json::from_str(&schema(Dialect::Chat, tool, "x")).unwrap();
            assert_eq!(schema["function"]["name"], "x");
            let description = schema["function"]["description"].as_str().unwrap();
            let length = description.chars().count();
            assert!(length <= 1024, "{tool:?}: {length}");
            assert_eq!(
                schema["function"]["parameters"]["required"],
                serde_json::json!([required])
            );
        }
    }

    #[test]
    fn the_clients_tools_keep_their_bytes_behind_ours() {
        let without = Injected {
            recall: None,
            ..both()
        };
        for (injected, names) in [
            (both(), vec!["delimiter", "recall"]),
            (without, vec!["delimiter"]),
        ] {
            let tools =
                with_hidden(Dialect::Chat, br#"[ {"type":"function" }]"#, &injected).unwrap();
            assert!(tools.ends_with(br#", {"type":"function" }]"#));
            let read: serde_json::Value = serde_json::from_slice(&tools).unwrap();
            let read = read.as_array().unwrap().iter();
            let read: Vec<&str> = read
                .filter_map(|tool| tool["function"]["name"].as_str())
                .collect();
            assert_eq!(read, names);
            assert_eq!(injected.names().collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn a_taken_name_is_left_to_the_client() {
        let taken =
            |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        let cases: [(&[&str], Option<&str>); 3] = [
            (&["read"], Some("recall")),
            (&["recall"], Some("plimsoll_recall")),
            (&["recall", "plimsoll_recall"], None),
        ];
        for (names, want) in cases {
            assert_eq!(free_name(Hidden::Recall, &taken(names)).as_deref(), want);
        }
    }

    #[test]
    fn guidance_names_recall_only_where_it_is_injected() {
        assert!(!guidance(None, "delimiter", None).contains("recall"));
        let with = guidance(None, "plimsoll_delimiter", Some("plimsoll_recall"));
        assert!(with.contains("`plimsoll_recall`") && with.contains("`plimsoll_delimiter`"));
        assert_eq!(guidance(Some("use {tool}"), "d", Some("r")), "use d");
        let tokens = Counter::load().count(Encoding::O200k, &with);
        assert!(tokens < 300, "{tokens}");
    }
}
