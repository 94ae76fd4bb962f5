//! Random turns, written as a provider might write them, against what they were made from.

use proptest::prelude::*;

use super::*;
use crate::dialect::stream::harness::{LINE, arguments, pieces, text};

/// How a provider writes calls and lines.
#[derive(Debug, Clone)]
struct Style {
    indexes: bool,
    crlf: bool,
    /// Names and arguments come in pieces of at most this many characters.
    piece: usize,
    roles: bool,
    padding: bool,
    finish: &'static str,
}

#[derive(Debug, Clone)]
enum Step {
    Text(String),
    Reasoning(String),
    Comment,
    Call {
        name: &'static str,
        arguments: String,
    },
}

impl Step {
    fn is_hidden(&self) -> bool {
        matches!(
            self,
            Self::Call {
                name: "delimiter" | "recall",
                ..
            }
        )
    }

    fn is_visible(&self) -> bool {
        matches!(self, Self::Call { .. }) && !self.is_hidden()
    }
}

fn call(names: Vec<&'static str>) -> impl Strategy<Value = Step> {
    (prop::sample::select(names), arguments())
        .prop_map(|(name, arguments)| Step::Call { name, arguments })
}

fn raw(text: &str) -> String {
    crate::model::raw::quote(text)
}

fn quiet() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => text().prop_map(Step::Text),
        1 => text().prop_map(Step::Reasoning),
        1 => Just(Step::Comment),
    ]
}

fn style() -> impl Strategy<Value = Style> {
    let finish = prop::sample::select(vec!["stop", "tool_calls"]);
    (
        any::<bool>(),
        any::<bool>(),
        1..12_usize,
        any::<bool>(),
        any::<bool>(),
        finish,
    )
        .prop_map(|(indexes, crlf, piece, roles, padding, finish)| Style {
            indexes,
            crlf,
            piece,
            roles,
            padding,
            finish,
        })
}

/// Hops of hidden calls, then a last one of anything.
fn turn() -> impl Strategy<Value = Vec<(Style, Vec<Step>)>> {
    let hidden = || call(vec!["delimiter", "recall"]);
    let visible = || call(vec!["read", "del", "recal", "delimiters", "x"]);
    let early = prop::collection::vec(prop_oneof![quiet(), hidden()], 0..5);
    let early = (early, hidden()).prop_map(|(mut steps, last)| {
        steps.push(last);
        steps
    });
    let last = prop::collection::vec(
        prop_oneof![3 => quiet(), 1 => hidden(), 2 => visible()],
        0..7,
    );
    (
        prop::collection::vec((style(), early), 0..3),
        (style(), last),
    )
        .prop_map(|(mut hops, last)| {
            hops.push(last);
            hops
        })
}

/// Writes a hop; `number` makes its ids its own.
fn write(number: usize, style: &Style, steps: &[Step]) -> Bytes {
    let role = if style.roles && number > 0 {
        r#""role":"assistant","#
    } else {
        ""
    };
    let padding = if style.padding {
        r#","obfuscation":"zz""#
    } else {
        ""
    };
    let event = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"r{number}\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish}}}]{padding}}}\n\n"
        )
    };
    let mut stream = String::new();
    let mut calls = 0;
    for step in steps {
        match step {
            Step::Comment => stream.push_str(": hi\n\n"),
            Step::Text(text) => {
                for piece in pieces(text, style.piece) {
                    stream.push_str(&event(
                        &format!(r#"{role}"content":{}"#, raw(&piece)),
                        "null",
                    ));
                }
            }
            Step::Reasoning(text) => {
                stream.push_str(&event(&format!(r#""reasoning":{}"#, raw(text)), "null"));
            }
            Step::Call { name, arguments } => {
                let index = if style.indexes {
                    format!(r#""index":{calls},"#)
                } else {
                    String::new()
                };
                let id = format!(r#""id":"c{number}-{calls}","#);
                // Without an index, a piece with a name could only be a call of its own.
                let whole = style.piece == 11 || !style.indexes;
                let names = if whole {
                    vec![(*name).to_owned()]
                } else {
                    pieces(name, style.piece)
                };
                for (place, piece) in names.iter().enumerate() {
                    let id = if place == 0 { id.as_str() } else { "" };
                    let arguments = if whole { arguments.as_str() } else { "" };
                    stream.push_str(&event(
                        &format!(r#""tool_calls":[{{{index}{id}"function":{{"name":{},"arguments":{}}}}}]"#, raw(piece), raw(arguments)),
                        "null",
                    ));
                }
                for piece in pieces(arguments, style.piece).iter().filter(|_| !whole) {
                    stream.push_str(&event(
                        &format!(
                            r#""tool_calls":[{{{index}"function":{{"arguments":{}}}}}]"#,
                            raw(piece)
                        ),
                        "null",
                    ));
                }
                calls += 1;
            }
        }
    }
    stream.push_str(&event("", &format!("{:?}", style.finish)));
    stream.push_str("data: [DONE]\n\n");
    Bytes::from(if style.crlf {
        stream.replace('\n', "\r\n")
    } else {
        stream
    })
}

fn texts(steps: &[Step]) -> String {
    let texts = steps.iter().filter_map(|step| match step {
        Step::Text(text) => Some(text.as_str()),
        Step::Reasoning(_) | Step::Comment | Step::Call { .. } => None,
    });
    texts.collect()
}

fn case(hops: &[(Style, Vec<Step>)]) -> Case {
    Case {
        name: "random",
        hops: hops
            .iter()
            .enumerate()
            .map(|(number, (style, steps))| write(number, style, steps))
            .collect(),
        spec: Spec {
            dialect: Dialect::Chat,
            hidden: ["delimiter", "recall"].into_iter().collect(),
            usage_wish: UsageWish::Refused,
            echo: Echo::default(),
        },
        config: Config::default(),
        passes_unchanged: false,
        text: "",
        calls: &[],
        finish: None,
        usage: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_was_meant_is_what_is_seen(hops in turn(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let case = case(&hops);
        let seen = case.turn().play();
        let random = |_: usize, hop: &Bytes| {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(hop.len() + 1)).collect();
            places.extend([0, hop.len()]);
            places.sort_unstable();
            places.windows(2).map(|pair| Bytes::copy_from_slice(&hop[pair[0]..pair[1]])).collect()
        };
        prop_assert_eq!(&case.turn().play_in(random), &seen);

        let view = client::read(&seen.client);
        let steps = &hops.last().unwrap().1;
        let visible: Vec<(String, String, String)> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Call { name, arguments } => Some((step, name, arguments)),
                Step::Text(_) | Step::Reasoning(_) | Step::Comment => None,
            })
            .enumerate()
            .filter(|(_, (step, ..))| step.is_visible())
            .map(|(place, (_, name, arguments))| (format!("c{}-{place}", hops.len() - 1), (*name).to_owned(), arguments.clone()))
            .collect();
        let shown: Vec<_> = view.calls.iter().map(|call| (call.1.clone(), call.2.clone(), call.3.clone())).collect();
        prop_assert_eq!(&shown, &visible);
        let indexes: Vec<u64> = view.calls.iter().filter_map(|call| call.0).collect();
        prop_assert!(indexes.iter().enumerate().all(|(place, index)| place as u64 == *index));

        let said: Vec<String> = hops.iter().map(|(_, steps)| texts(steps)).collect();
        let (mut text, _) = join(said.iter().map(String::as_str));
        if steps.iter().any(Step::is_hidden) && visible.is_empty() && text.is_empty() {
            text = LINE.to_owned();
        }
        prop_assert_eq!(&view.text, &text);
        prop_assert_eq!((view.finishes.len(), view.dones, view.late, view.errors), (1, 1, 0, 0));
        prop_assert!(view.ids.iter().all(|id| id == "r0"));
        prop_assert_eq!(seen.answers.len(), hops.len());
        for (answer, (_, steps)) in seen.answers.iter().zip(&hops) {
            let calls: Vec<(&str, &str, bool)> =
                answer.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str(), call.hidden)).collect();
            let want: Vec<(&str, &str, bool)> = steps
                .iter()
                .filter_map(|step| match step {
                    Step::Call { name, arguments } => Some((*name, arguments.as_str(), step.is_hidden())),
                    Step::Text(_) | Step::Reasoning(_) | Step::Comment => None,
                })
                .collect();
            prop_assert_eq!(calls, want);
        }
        let alone = hops.len() == 1 && !steps.iter().any(Step::is_hidden);
        prop_assert!(!alone || seen.client == case.hops[0]);
    }

    #[test]
    fn any_bytes_are_survived(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "data: ", "{\"choices\":[{\"delta\":{", "\"tool_calls\":[{", "\"index\":0", "\"id\":\"a\"", ",", "\"function\":{\"name\":\"",
                "delimiter\"", "del", "\"", "}", "]", "\\", "\n", "\n\n", "\r", "[DONE]", "\"finish_reason\":\"stop\"", "\u{e9}", "\"content\":\"x\"",
            ]), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut case = case(&[]);
        case.hops = vec![Bytes::from(parts.concat())];
        let at = cut.index(case.hops[0].len() + 1);
        prop_assert_eq!(case.turn().play_cut(0, &[at]), case.turn().play());
    }
}
