//! Random turns, written as a provider might write them, against what they were made from.

use proptest::prelude::*;

use super::*;
use crate::stream::harness::{Saying, cut_at, hops, pieces, text};

/// How a provider writes pieces and lines.
#[derive(Debug, Clone)]
struct Style {
    crlf: bool,
    names: bool,
    /// Strings come in pieces of at most this many characters.
    piece: usize,
    reason: &'static str,
}

/// The block as the client reads it; `None` if it is no block.
fn line(said: &Saying, id: &str) -> Option<String> {
    match said {
        Saying::Text(text) => Some(format!("text {text}")),
        Saying::Reasoning(text) => Some(format!("thinking {text} S")),
        Saying::Sealed => Some("redacted R".to_owned()),
        Saying::Ping | Saying::Comment | Saying::Unknown => None,
        Saying::Call { name, arguments } => Some(format!("tool_use {id} {name} {arguments}")),
    }
}

fn quoted(text: &str) -> String {
    plimsoll_model::raw::quote(text)
}

fn quiet() -> BoxedStrategy<Saying> {
    prop_oneof![
        3 => text().prop_map(Saying::Text),
        1 => text().prop_map(Saying::Reasoning),
        1 => Just(Saying::Sealed),
        1 => Just(Saying::Ping),
        1 => Just(Saying::Comment),
        1 => Just(Saying::Unknown),
    ]
    .boxed()
}

fn style() -> BoxedStrategy<Style> {
    let reason = prop::sample::select(vec!["end_turn", "tool_use"]);
    (any::<bool>(), any::<bool>(), 1..12_usize, reason)
        .prop_map(|(crlf, names, piece, reason)| Style {
            crlf,
            names,
            piece,
            reason,
        })
        .boxed()
}

/// Pieces of a string as they stand between its quotes.
fn inner(text: &str, size: usize) -> Vec<String> {
    let quoted = pieces(text, size).into_iter().map(|piece| quoted(&piece));
    quoted
        .map(|quoted| quoted[1..quoted.len() - 1].to_owned())
        .collect()
}

fn borrowed(pieces: &[String]) -> Vec<&str> {
    pieces.iter().map(String::as_str).collect()
}

/// Writes a hop; `number` makes its ids its own.
fn write(number: usize, style: &Style, steps: &[Saying]) -> Bytes {
    let mut stream = say::start(&format!("m{number}"));
    let mut at = 0;
    for step in steps {
        let id = format!("c{number}-{at}");
        let block = match step {
            Saying::Ping => {
                stream += &say::ping();
                continue;
            }
            Saying::Comment => {
                stream += ": hi\n\n";
                continue;
            }
            Saying::Unknown => {
                stream += &say::event(r#"{"type":"future","b":[1]}"#);
                continue;
            }
            Saying::Text(text) => {
                let pieces = inner(text, style.piece);
                say::text(at, &borrowed(&pieces))
            }
            Saying::Reasoning(text) => {
                let pieces = inner(text, style.piece);
                say::thinking(at, &borrowed(&pieces), "S")
            }
            Saying::Sealed => {
                let block = r#"{"type":"redacted_thinking","data":"R"}"#;
                say::open(at, block) + &say::close(at)
            }
            Saying::Call { name, arguments } => {
                let pieces = pieces(arguments, style.piece);
                say::call(at, &id, name, &borrowed(&pieces))
            }
        };
        stream += &block;
        at += 1;
    }
    stream += &say::end(style.reason);
    if !style.names {
        let lines = stream.lines().filter(|line| !line.starts_with("event:"));
        stream = lines.map(|line| format!("{line}\n")).collect();
    }
    Bytes::from(if style.crlf {
        stream.replace('\n', "\r\n")
    } else {
        stream
    })
}

fn case(hops: &[(Style, Vec<Saying>)]) -> Case {
    let hops = hops.iter().enumerate();
    let hops = hops.map(|(number, (style, steps))| write(number, style, steps));
    Case {
        name: "random",
        hops: hops.collect(),
        spec: corpus::spec(),
        config: MachineSettings::default(),
        passes_unchanged: false,
        strict: true,
        blocks: Vec::new(),
        finish: None,
        usage: [0; 4],
    }
}

/// What the client must read of these hops.
fn wanted(hops: &[(Style, Vec<Saying>)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, (_, steps)) in hops.iter().enumerate() {
        let blocks = steps.iter().filter(|step| line(step, "").is_some());
        for (at, step) in blocks.enumerate() {
            if !step.is_hidden() {
                lines.extend(line(step, &format!("c{number}-{at}")));
            }
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_meant_is_what_is_seen(hops in hops(style(), quiet()), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let case = case(&hops);
        let seen = case.turn().play();
        let random = |_: usize, hop: &Bytes| cut_at(&cuts, hop);
        prop_assert_eq!(&case.turn().play_in(random), &seen);

        let view = client::read(&seen.client);
        client::sound(&case, &seen, &view);
        let steps = &hops.last().unwrap().1;
        let capped = steps.iter().any(Saying::is_hidden) && !steps.iter().any(Saying::is_visible_call);
        let mute = seen.answers.iter().all(|answer| answer.text.is_empty());
        let mut want = wanted(&hops);
        if capped && mute {
            want.push(format!("text {LINE}"));
        }
        prop_assert_eq!(view.lines(), want);
        prop_assert_eq!((view.starts, view.finishes.len(), view.stops, view.open), (1, 1, 1, 0));
        let reason = hops.last().unwrap().0.reason;
        prop_assert_eq!(&view.finishes[0], if capped { "end_turn" } else { reason });
        let all = hops.iter().flat_map(|(_, steps)| steps);
        let pings = all.filter(|step| matches!(step, Saying::Ping)).count();
        prop_assert_eq!(view.pings, pings);
        prop_assert_eq!(seen.answers.len(), hops.len());
        for (answer, (_, steps)) in seen.answers.iter().zip(&hops) {
            let calls: Vec<(&str, &str, bool)> =
                answer.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str(), call.hidden)).collect();
            let want = steps.iter().filter_map(|step| match step {
                Saying::Call { name, arguments } => Some((*name, arguments.as_str(), step.is_hidden())),
                Saying::Text(_) | Saying::Reasoning(_) | Saying::Sealed | Saying::Ping | Saying::Comment | Saying::Unknown => None,
            });
            prop_assert_eq!(calls, want.collect::<Vec<_>>());
        }
        let alone = hops.len() == 1 && !steps.iter().any(Saying::is_hidden);
        prop_assert!(!alone || seen.client == case.hops[0]);
    }

    #[test]
    fn any_bytes_are_survived(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "data: ", "{\"type\":\"content_block_start\"", "{\"type\":\"content_block_delta\"", "{\"type\":\"content_block_stop\"",
                "{\"type\":\"message_delta\"", "{\"type\":\"message_stop\"}", ",\"index\":0", ",\"index\":1", ",\"content_block\":{\"type\":\"tool_use\",\"name\":",
                "\"delimiter\"", "\"read\"", ",\"delta\":{", "\"stop_reason\":\"x\"", "\"partial_json\":\"{}\"", "}", "\n", "\n\n", "\r", "[DONE]", "\u{e9}",
            ]), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut case = case(&[]);
        case.hops = vec![Bytes::from(parts.concat())];
        let at = cut.index(case.hops[0].len() + 1);
        prop_assert_eq!(case.turn().play_cut(0, &[at]), case.turn().play());
    }
}
