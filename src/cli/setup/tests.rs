//! The law of `setup`: taking back is the inverse, for every file that a person may have written.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Blanks, ends of lines and comments, as they stand between two values.
fn space(comments: &'static [&'static str]) -> impl Strategy<Value = String> {
    let pieces = ["", "", " ", "\n", "\n  ", "\t", "\r\n"]
        .into_iter()
        .chain(comments.iter().copied());
    proptest::collection::vec(select(pieces.collect::<Vec<_>>()), 0..3).prop_map(|all| all.concat())
}

fn json_space() -> impl Strategy<Value = String> {
    space(&["// é {\n", "/* \" , */"])
}

fn json_object() -> impl Strategy<Value = String> {
    let leaf = select(vec![
        "1",
        "\"x\"",
        "\"\\u00e9\\\"\"",
        "null",
        "-2.5e3",
        "\"ü // no\"",
        "[]",
    ]);
    let leaf = leaf.prop_map(str::to_owned).boxed();
    let names = [
        "model",
        "env",
        "provider",
        "openai",
        "options",
        "providers",
        "ANTHROPIC_BASE_URL",
        "baseURL",
        "b é",
    ];
    let object = move |inner: BoxedStrategy<String>| {
        let entry = (
            json_space(),
            select(names.to_vec()),
            json_space(),
            inner,
            json_space(),
        );
        let entries = proptest::collection::vec(entry, 0..4);
        (entries, any::<bool>(), json_space()).prop_map(|(mut entries, comma, last)| {
            entries.sort_by_key(|entry| entry.1);
            entries.dedup_by_key(|entry| entry.1);
            let mut text = "{".to_owned();
            for (at, (before, name, between, value, behind)) in entries.iter().enumerate() {
                let comma = if at + 1 < entries.len() || comma {
                    ","
                } else {
                    ""
                };
                text += &format!("{before}\"{name}\":{between}{value}{behind}{comma}");
            }
            text + &last + "}"
        })
    };
    let object = std::rc::Rc::new(object);
    let deeper = object.clone();
    let inner = leaf.prop_recursive(3, 12, 3, move |inner| deeper(inner.boxed()).boxed());
    (json_space(), object(inner.boxed()), json_space())
        .prop_map(|(before, object, behind)| before + &object + &behind)
}

fn toml_text() -> impl Strategy<Value = String> {
    let lines = vec![
        "# é",
        "",
        "  ",
        "model = 'x'",
        "openai_base_url = \"http://x/v1\" # mine",
        "list = [\n  1, # one\n]",
        "model_provider = \"m\"",
        "a.b = 1",
        "t = { x = 1 }",
        "[model_providers.m]\nbase_url = 'http://m/v1'",
        "[projects.\"/p\"]\ntrust_level = \"trusted\"",
        "[[hooks]]\nx = \"\"\"\n[no]\n\"\"\"",
    ];
    let picked = proptest::sample::subsequence(lines.clone(), 0..lines.len());
    let ends = select(vec!["\n", "\r\n"]);
    (picked, ends, any::<bool>()).prop_map(|(lines, end, last)| {
        let text = lines.join("\n").replace('\n', end);
        if last && !text.is_empty() {
            text + end
        } else {
            text
        }
    })
}

fn env_text() -> impl Strategy<Value = String> {
    let lines = vec![
        "# é",
        "",
        "MSWEA_MODEL_NAME='openai/x'",
        "export OPENAI_API_BASE=http://x # y",
        "A = \"b c\"",
        "OPENAI_API_KEY=k",
    ];
    let picked = proptest::sample::subsequence(lines.clone(), 0..lines.len());
    (picked, any::<bool>())
        .prop_map(|(lines, last)| lines.join("\n") + if last { "\n" } else { "" })
}

fn file() -> impl Strategy<Value = (Agent, Option<String>)> {
    let json = [Agent::Opencode, Agent::Claude, Agent::Pi];
    prop_oneof![
        (
            select(json.to_vec()),
            proptest::option::weighted(0.95, json_object())
        ),
        (
            Just(Agent::Codex),
            proptest::option::weighted(0.95, toml_text())
        ),
        (
            Just(Agent::Mini),
            proptest::option::weighted(0.95, env_text())
        ),
    ]
}

/// What `setup` writes, and its note.
fn set_up(agent: Agent, before: Option<&str>, proxy: &str) -> Option<(String, Record, Format)> {
    let environment: Environment = [("HOME", "/nowhere")].into_iter().collect();
    let format = Format::of(&agent.settings(&environment).unwrap());
    let text = before.unwrap_or_default();
    let known = Known {
        text,
        format,
        environment: &environment,
        proxy,
        provider: None,
    };
    let plan = plan::plan(agent, &known).ok()??;
    let was = format.get(text, &plan.names()).ok()?;
    let Edited { text, made } = format.set(text, &plan.names(), &plan.value).ok()?;
    let record =
        Record::new(std::path::Path::new("f"), before, &text, &plan).with_setting(was, made);
    Some((text, record, format))
}

proptest! {
    #[test]
    fn undo_is_the_inverse_of_setup((agent, before) in file()) {
        // What can't be edited safely is refused, and nothing is written.
        if let Some((after, record, format)) = set_up(agent, before.as_deref(), PROXY) {
            let note = serde_json::to_string(&record).unwrap();
            let record: Record = serde_json::from_str(&note).unwrap();
            let back = record.take_back(format, Some(&after)).unwrap();
            prop_assert_eq!(back.text, before);
            prop_assert_eq!(back.others, None);
        }
    }

    /// A file that was changed since means without the proxy what it meant before, and what was
    /// added is there.
    #[test]
    fn undo_takes_only_what_is_ours((agent, before) in file()) {
        let Some((after, record, format)) = set_up(agent, before.as_deref(), PROXY) else {
            return Ok(());
        };
        let path = match format {
            Format::Json => vec!["somebody", "else"],
            Format::Toml | Format::DotEnv => vec!["SOMEBODY"],
        };
        let changed = format.set(&after, &path, "new").unwrap().text;
        let back = record.take_back(format, Some(&changed)).unwrap();
        let wanted = format.set(before.as_deref().unwrap_or_default(), &path, "new").unwrap().text;
        prop_assert_eq!(meant(format, &back.text.unwrap()), meant(format, &wanted));
    }
}

/// What a file says, whatever its layout.
fn meant(format: Format, text: &str) -> serde_json::Value {
    match format {
        Format::Json => {
            let options = jsonc_parser::ParseOptions::default();
            let root = jsonc_parser::cst::CstRootNode::parse(text, &options).unwrap();
            root.to_serde_value().unwrap()
        }
        Format::Toml => serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap(),
        Format::DotEnv => {
            // Quotes mean nothing where they are not needed.
            let text = text.replace('\'', "");
            let mut lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
            lines.sort_unstable();
            lines.into()
        }
    }
}

#[test]
fn generated_files_can_be_edited() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut edited = 0;
    for _ in 0..200 {
        let (agent, before) = file().new_tree(&mut runner).unwrap().current();
        edited += usize::from(set_up(agent, before.as_deref(), PROXY).is_some());
    }
    assert!(
        edited > 100,
        "most of what is generated is edited: {edited} of 200"
    );
}
