//! The schemas of the hidden tools and the guidance block. The bytes are constant for a session,
//! because the tools array is at the front of the provider's cache. Never decides whether a tool is
//! injected.

use bytes::Bytes;
use parking_lot::Mutex;
use plimsoll_model::HiddenTool;
use plimsoll_wire::Dialect;

/// The protocol, as the description of `delimiter` (paper 000 §4.2). It has at most 1,024
/// characters, because providers refuse longer ones. It has no example: models take the names in
/// examples for names that exist.
const DESCRIPTION: &str = "Mark where a piece of your own work begins and ends, so that finished \
work can leave the context while what you learned stays:\n\
- start: give a unique name and a type, \"expl\" to search, read or ask, \"act\" to edit, write or \
run; an act lists the closed expl episodes that it builds on.\n\
- end: closes the open episode. The description of an expl is all that remains of it later: put in \
paths, names, numbers, decisions.\n\
One is open at a time. Send these calls beside your other calls, never alone.";

/// The description of `recall`, with the same limit.
const RECALL: &str = "Bring back the original of something that was evicted from the context, as a \
line of the conversation says. Give the id that the line names (an item, an episode, the ledger) or \
a file's path; or only a search, through all that is gone. With lines or search you get that part \
alone, which takes up less context. It runs nothing: read a file that may have changed since.";

/// The end of both descriptions if the tools are offered before the guidance.
const WAIT: &str = " Wait until the system message asks for it.";

/// The start of the default guidance: what to mark.
const GUIDANCE: &str = "# Context episodes\n\
Your context is limited: finished work leaves it by the episodes that you mark with `{tool}`. From \
here on, start an expl episode before you search or read, and end it with a description of what you \
learned; start an act episode, naming the expl episodes that it builds on, before you edit, write or \
run, and end it when that is in place. An episode is a whole question or a whole change with all its \
steps: a few large ones serve better than many small ones.\n";
/// How to mark it, if a message may have several calls.
const PARALLEL: &str = "\
Put `{tool}` calls into the same message as your next tool calls, in order: the end of the last \
episode, the start of the next, then the work itself. Never send a message of `{tool}` calls alone, \
and never mention them to the user.\n";
/// How to mark it, if a message may have only one call.
const SERIAL: &str = "\
A message can hold one call, so that each `{tool}` call costs a request of its own: make one only \
where a large piece of work begins or ends, and never mention it to the user.\n";
/// What the guidance says about evicted content.
const GONE: &str = "\
A result that names an evicted episode tells what was there; read the source again if you need \
the details.";
/// What it says about evicted content if `recall` is injected.
const GONE_RECALL: &str = "\
A result that names an evicted episode tells what was there; if you need the details, `{recall}` \
brings them back.";

/// The hidden tools of a conversation and the names that they have in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// The name of `delimiter`; none if it is not injected.
    pub delimiter: Option<String>,
    /// The name of `recall`; none if it is not injected.
    pub recall: Option<String>,
}

impl Injected {
    /// The hidden tool with a name.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<HiddenTool> {
        let tools = [HiddenTool::Delimiter, HiddenTool::Recall];
        tools
            .into_iter()
            .find(|tool| self.name(*tool) == Some(name))
    }

    /// The name of a hidden tool, if it is injected.
    #[must_use]
    pub fn name(&self, tool: HiddenTool) -> Option<&str> {
        match tool {
            HiddenTool::Delimiter => self.delimiter.as_deref(),
            HiddenTool::Recall => self.recall.as_deref(),
        }
    }

    /// Whether any tool is injected.
    #[must_use]
    pub fn any(&self) -> bool {
        self.names().next().is_some()
    }

    /// All names, in the order of the tools array.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [&self.delimiter, &self.recall]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// A name for a hidden tool that none of the client's tools has: its own name, or that with our
/// prefix. `None` if the client has both.
#[must_use]
pub fn free_name(tool: HiddenTool, taken: &[String]) -> Option<String> {
    let (plain, beside) = match tool {
        HiddenTool::Delimiter => ("delimiter", "plimsoll_delimiter"),
        HiddenTool::Recall => ("recall", "plimsoll_recall"),
    };
    let free = |name: &&str| !taken.iter().any(|taken| taken == name);
    [plain, beside].into_iter().find(free).map(str::to_owned)
}

/// The schema of a tool, as one element of the tools array. `waits` says that the tool is offered
/// before the guidance.
#[must_use]
pub fn schema(dialect: Dialect, tool: HiddenTool, name: &str, waits: bool) -> String {
    let (description, parameters) = match tool {
        HiddenTool::Delimiter => (
            DESCRIPTION,
            concat!(
                r#""action":{"type":"string","enum":["start","end"]},"#,
                r#""name":{"type":"string","description":"start only"},"#,
                r#""type":{"type":"string","enum":["expl","act"],"description":"start only"},"#,
                r#""dependencies":{"type":"array","items":{"type":"string"}},"#,
                r#""description":{"type":"string","description":"end of an expl"}"#,
                r#"},"required":["action"]"#,
            ),
        ),
        HiddenTool::Recall => (
            RECALL,
            concat!(
                r#""id":{"type":"string","description":"what a line names, or a path"},"#,
                r#""lines":{"type":"string","description":"FROM-TO"},"#,
                r#""search":{"type":"string","description":"text that the lines contain"}"#,
                r#"}"#,
            ),
        ),
    };
    let wait = if waits { WAIT } else { "" };
    let description = format!("{description}{wait}");
    let parameters = format!(r#""type":"object","properties":{{{parameters}"#);
    dialect.tool(name, &description, &parameters)
}

/// What of [`front`] is remembered. There are few names, so this is more than ever occurs.
const KNOWN_FRONTS: usize = 64;

/// The hidden tools as they stand behind the bracket that opens the client's tools array, each with its
/// comma. They are in front, so that the client's changes don't move them. Every turn keeps them as long
/// as its answer lasts, so those that have the same share the bytes.
#[must_use]
pub fn front(dialect: Dialect, injected: &Injected, waits: bool) -> Bytes {
    static KNOWN: Mutex<Vec<(Dialect, Injected, bool, Bytes)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock();
    let mut all = known.iter();
    if let Some((.., front)) = all.find(|one| (one.0, &one.1, one.2) == (dialect, injected, waits))
    {
        return front.clone();
    }
    let mut front = Vec::new();
    for tool in [HiddenTool::Delimiter, HiddenTool::Recall] {
        if let Some(name) = injected.name(tool) {
            front.extend_from_slice(schema(dialect, tool, name, waits).as_bytes());
            front.push(b',');
        }
    }
    let front = Bytes::from(front);
    if known.len() < KNOWN_FRONTS {
        known.push((dialect, injected.clone(), waits, front.clone()));
    }
    front
}

/// The client's tools array with the hidden tools in [`front`].
#[must_use]
pub fn with_hidden(
    dialect: Dialect,
    tools: &[u8],
    injected: &Injected,
    waits: bool,
) -> Option<Vec<u8>> {
    let rest = tools.get(1..).filter(|_| tools.first() == Some(&b'['))?;
    let front = front(dialect, injected, waits);
    Some([b"[".as_slice(), front.as_ref(), rest].concat())
}

/// The guidance: the default, or the operator's with `{tool}` replaced. `serial` says that a
/// message may have only one call.
#[must_use]
pub fn guidance(
    custom: Option<&str>,
    delimiter: &str,
    recall: Option<&str>,
    serial: bool,
) -> String {
    let how = if serial { SERIAL } else { PARALLEL };
    let text = match (custom, recall) {
        (Some(custom), _) => custom.to_owned(),
        (None, None) => format!("{GUIDANCE}{how}{GONE}"),
        (None, Some(recall)) => {
            format!("{GUIDANCE}{how}{}", GONE_RECALL.replace("{recall}", recall))
        }
    };
    text.replace("{tool}", delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tokens::{Counter, Encoding};

    fn both() -> Injected {
        Injected {
            delimiter: Some("delimiter".to_owned()),
            recall: Some("recall".to_owned()),
        }
    }

    #[test]
    fn schemas_are_json_and_short_enough_for_every_provider() {
        for (tool, required) in [
            (HiddenTool::Delimiter, Some("action")),
            (HiddenTool::Recall, None),
        ] {
            for waits in [false, true] {
                let schema = schema(Dialect::Chat, tool, "x", waits);
                let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
                assert_eq!(schema["function"]["name"], "x");
                let description = schema["function"]["description"].as_str().unwrap();
                let length = description.chars().count();
                assert!(length <= 1024, "{tool:?}: {length}");
                assert_eq!(description.ends_with("message asks for it."), waits);
                let demanded = &schema["function"]["parameters"]["required"];
                assert_eq!(demanded[0].as_str(), required);
            }
        }
    }

    #[test]
    fn both_schemas_and_the_guidance_are_short() {
        let counter = Counter::load();
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
            let tools = with_hidden(dialect, b"[]", &both(), true).unwrap();
            let text = String::from_utf8(tools.to_vec()).unwrap();
            let tokens = counter.count(Encoding::O200k, &text);
            assert!(tokens < 400, "{dialect:?}: {tokens}");
        }
        for serial in [false, true] {
            let text = guidance(None, "delimiter", Some("recall"), serial);
            let tokens = counter.count(Encoding::O200k, &text);
            assert!(tokens < 250, "{serial}: {tokens}");
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
            let tools = with_hidden(
                Dialect::Chat,
                br#"[ {"type":"function" }]"#,
                &injected,
                false,
            )
            .unwrap();
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
    fn those_with_the_same_hidden_tools_share_their_bytes() {
        let first = front(Dialect::Messages, &both(), true);
        assert_eq!(
            front(Dialect::Messages, &both(), true).as_ptr(),
            first.as_ptr()
        );
        let renamed = Injected {
            recall: Some("plimsoll_recall".to_owned()),
            ..both()
        };
        let others = [
            front(Dialect::Chat, &both(), true),
            front(Dialect::Messages, &renamed, true),
            front(Dialect::Messages, &both(), false),
        ];
        assert!(others.iter().all(|other| *other != first));
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
            assert_eq!(
                free_name(HiddenTool::Recall, &taken(names)).as_deref(),
                want
            );
        }
    }

    #[test]
    fn guidance_names_recall_only_where_it_is_injected() {
        assert!(!guidance(None, "delimiter", None, false).contains("recall"));
        let with = guidance(None, "plimsoll_delimiter", Some("plimsoll_recall"), false);
        assert!(with.contains("`plimsoll_recall`") && with.contains("`plimsoll_delimiter`"));
        assert_eq!(guidance(Some("use {tool}"), "d", Some("r"), true), "use d");
    }
}
