//! Random turns, written as a provider might write them, against what they were made from.

use proptest::prelude::*;

use super::*;
use crate::stream::WhoAsked;
use crate::stream::harness::{LINE, Saying, cut_at, hops, pieces, text};

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

fn raw(text: &str) -> String {
    plimsoll_model::raw::quote(text)
}

fn quiet() -> BoxedStrategy<Saying> {
    prop_oneof![
        3 => text().prop_map(Saying::Text),
        1 => text().prop_map(Saying::Reasoning),
        1 => Just(Saying::Comment),
    ]
    .boxed()
}

fn style() -> BoxedStrategy<Style> {
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
        .boxed()
}

/// Writes a hop; `number` makes its ids its own.
fn write(number: usize, style: &Style, steps: &[Saying]) -> Bytes {
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
            Saying::Comment => stream.push_str(": hi\n\n"),
            Saying::Sealed | Saying::Ping | Saying::Unknown => {}
            Saying::Text(text) => {
                for piece in pieces(text, style.piece) {
                    stream.push_str(&event(
                        &format!(r#"{role}"content":{}"#, raw(&piece)),
                        "null",
                    ));
                }
            }
            Saying::Reasoning(text) => {
                stream.push_str(&event(&format!(r#""reasoning":{}"#, raw(text)), "null"));
            }
            Saying::Call { name, arguments } => {
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

fn texts(steps: &[Saying]) -> String {
    let texts = steps.iter().filter_map(|step| match step {
        Saying::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn case(hops: &[(Style, Vec<Saying>)]) -> Case {
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
            asked: WhoAsked::default(),
            one_text: false,
        },
        config: MachineSettings::default(),
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
    fn what_was_meant_is_what_is_seen(hops in hops(style(), quiet()), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let case = case(&hops);
        let seen = case.turn().play();
        let random = |_: usize, hop: &Bytes| cut_at(&cuts, hop);
        prop_assert_eq!(&case.turn().play_in(random), &seen);

        let view = client::read(&seen.client);
        let steps = &hops.last().unwrap().1;
        let visible: Vec<(String, String, String)> = steps
            .iter()
            .filter_map(|step| match step {
                Saying::Call { name, arguments } => Some((step, name, arguments)),
                _ => None,
            })
            .enumerate()
            .filter(|(_, (step, ..))| step.is_visible_call())
            .map(|(place, (_, name, arguments))| (format!("c{}-{place}", hops.len() - 1), (*name).to_owned(), arguments.clone()))
            .collect();
        let shown: Vec<_> = view.calls.iter().map(|call| (call.1.clone(), call.2.clone(), call.3.clone())).collect();
        prop_assert_eq!(&shown, &visible);
        let indexes: Vec<u64> = view.calls.iter().filter_map(|call| call.0).collect();
        prop_assert!(indexes.iter().enumerate().all(|(place, index)| place as u64 == *index));

        let said: Vec<String> = hops.iter().map(|(_, steps)| texts(steps)).collect();
        let (mut text, _) = join(said.iter().map(String::as_str));
        if steps.iter().any(Saying::is_hidden) && visible.is_empty() && text.is_empty() {
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
                    Saying::Call { name, arguments } => Some((*name, arguments.as_str(), step.is_hidden())),
                    _ => None,
                })
                .collect();
            prop_assert_eq!(calls, want);
        }
        let alone = hops.len() == 1 && !steps.iter().any(Saying::is_hidden);
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
