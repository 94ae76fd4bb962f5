//! Limits what is kept of the arguments of a hidden call, because every later request sends them
//! again. Pure. Never decides what a call does.

use std::fmt::Write as _;

use plimsoll_model::{HiddenTool, raw};
use serde_json::{Map, Value};

/// A call whose arguments have more bytes is refused, and nothing is kept of them.
pub const MOST: usize = 16 * 1024;
/// Bytes that arguments may have beyond what their own fields need: unknown fields, white space,
/// escapes. If there are more, only the own fields are kept.
const LOOSE: usize = 256;
/// What is kept instead of arguments that can't be kept.
const NOTHING: &str = "{}";

/// Whether arguments are an object. Some providers require that of every call in a history: vLLM
/// (<https://github.com/vllm-project/vllm/blob/main/vllm/entrypoints/chat_utils.py>) and llama.cpp
/// (<https://github.com/ggml-org/llama.cpp/blob/master/common/chat.cpp>) parse them before the
/// model's own template does, and refuse the request if they can't.
#[must_use]
fn is_object(arguments: &str) -> bool {
    raw::Object::parse(arguments.as_bytes()).is_ok()
}

/// Why a call is refused unread, and what the model should do instead.
#[must_use]
pub fn refusal(tool: HiddenTool, arguments: &str) -> Option<String> {
    if arguments.len() <= MOST && !is_object(arguments) {
        let with = match tool {
            HiddenTool::Delimiter => "an action",
            HiddenTool::Recall => "an id",
        };
        return Some(format!("send the arguments as a JSON object with {with}"));
    }
    let shorter = match tool {
        HiddenTool::Delimiter => "a description of a few sentences",
        HiddenTool::Recall => "a short id",
    };
    (arguments.len() > MOST).then(|| {
        format!(
            "refused: arguments of {} KB, and {} KB is the most; send it again with {shorter} and no other fields",
            arguments.len().div_ceil(1024),
            MOST / 1024
        )
    })
}

/// What the model is told of calls that were too many for one answer.
#[must_use]
pub fn too_many(calls: usize, most: usize) -> String {
    format!(
        "{calls} further calls of this answer were refused and are forgotten: make {most} at most at once"
    )
}

/// What is kept of a call's arguments, if that is not what was sent.
#[must_use]
pub fn kept(tool: HiddenTool, arguments: &str) -> Option<String> {
    if arguments.len() > MOST {
        return Some(NOTHING.to_owned());
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(arguments) else {
        // Providers that parse arguments refuse what is not an object, and objects that no parser
        // accepts: nested too deeply, or with half of a surrogate pair.
        return Some(NOTHING.to_owned());
    };
    let own = own(tool, &fields);
    (arguments.len() > own.len() + LOOSE).then_some(own)
}

/// The tool's own fields, without white space.
fn own(tool: HiddenTool, fields: &Map<String, Value>) -> String {
    let known: &[&str] = match tool {
        HiddenTool::Delimiter => &["action", "name", "type", "dependencies", "description"],
        HiddenTool::Recall => &["id", "lines", "search"],
    };
    let mut own = String::from("{");
    for key in known {
        if let Some(value) = fields.get(*key) {
            let comma = if own.len() > 1 { "," } else { "" };
            let _ = write!(own, "{comma}\"{key}\":{value}");
        }
    }
    own.push('}');
    own
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::intercept::delimiter::{EpisodeNames, Protocol};
    use crate::intercept::recall::RecallAsk;

    #[test]
    fn what_is_kept_of_arguments() {
        let white = |bytes: usize| format!(r#"{{"action":"end",{}"name":"a"}}"#, " ".repeat(bytes));
        let unknown = |bytes: usize| {
            format!(
                r#"{{"note":"{}","action":"end","name":"a"}}"#,
                "x".repeat(bytes)
            )
        };
        let own = r#"{"action":"end","name":"a"}"#;
        let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for (arguments, want) in [
            (own.to_owned(), None),
            ("{ \"action\" : \"end\" }".to_owned(), None),
            ("{\"action\": start".to_owned(), Some(NOTHING)),
            (String::new(), Some(NOTHING)),
            ("[1,  2]".to_owned(), Some(NOTHING)),
            ("\"{}\"".to_owned(), Some(NOTHING)),
            (white(250), None),
            (white(300), Some(own)),
            (white(180_000), Some(NOTHING)),
            (unknown(200), None),
            (unknown(300), Some(own)),
            (unknown(1 << 20), Some(NOTHING)),
            ("x".repeat(MOST), Some(NOTHING)),
            ("x".repeat(MOST + 1), Some(NOTHING)),
            (deep, Some(NOTHING)),
            (r#"{"name":"\ud800"}"#.to_owned(), Some(NOTHING)),
        ] {
            let got = kept(HiddenTool::Delimiter, &arguments);
            assert_eq!(got.as_deref(), want, "{} bytes", arguments.len());
            let refused = refusal(HiddenTool::Delimiter, &arguments).is_some();
            let unread = arguments.len() > MOST || !is_object(&arguments);
            assert_eq!(refused, unread);
        }
        let recall = format!(r#"{{"x":"{}","id":"read:3"}}"#, "x".repeat(300));
        let got = kept(HiddenTool::Recall, &recall);
        assert_eq!(got.as_deref(), Some(r#"{"id":"read:3"}"#));
    }

    fn field() -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec![
            "action",
            "name",
            "type",
            "dependencies",
            "description",
            "id",
            "lines",
            "search",
            "note",
        ]);
        let value = prop_oneof![
            Just(r#""start""#.to_owned()),
            Just(r#""end""#.to_owned()),
            Just(r#""expl""#.to_owned()),
            Just(r#"["a",  "b"]"#.to_owned()),
            Just("null".to_owned()),
            Just("7e0".to_owned()),
            "[a-z:0-9 ]{0,400}".prop_map(|text| format!("\"{text}\"")),
        ];
        (key, value, 0..300_usize)
            .prop_map(|(key, value, white)| format!("{}\"{key}\": {value}", " ".repeat(white)))
    }

    proptest! {
        /// What is kept means what was sent, and is never much more than it needs.
        #[test]
        fn what_is_kept_means_the_same(fields in prop::collection::vec(field(), 0..8)) {
            let sent = format!("{{{}}}", fields.join(","));
            for tool in [HiddenTool::Delimiter, HiddenTool::Recall] {
                let kept = kept(tool, &sent).unwrap_or_else(|| sent.clone());
                prop_assert!(kept.len() <= MOST);
                let protocol = Protocol { auto_close: false };
                match tool {
                    HiddenTool::Delimiter => prop_assert_eq!(
                        EpisodeNames::default().run(&sent, protocol, ""),
                        EpisodeNames::default().run(&kept, protocol, "")
                    ),
                    HiddenTool::Recall => prop_assert_eq!(RecallAsk::read(&sent), RecallAsk::read(&kept)),
                }
            }
        }
    }
}
