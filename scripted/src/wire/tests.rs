//! Every shape of stream says the same, and faults strike where they are told to.

use super::*;
use crate::heard::Heard;
use crate::rng::Rng;
use crate::script::{IndexStyle, UsagePlace};

fn envelope(include_usage: bool) -> Envelope {
    Envelope {
        form: Form::Chat,
        id: "chatcmpl-1".into(),
        created: 7,
        model: "m".into(),
        prompt: 100,
        cached: 40,
        completion: 9,
        include_usage,
    }
}

fn reply() -> Reply {
    let calls = vec![
        Call::new(
            "call_a",
            "read_file",
            r#"{"path":"src/größe.rs","why":"…"}"#,
        ),
        Call::new("call_b", "ls", "{}"),
        Call::new("call_c", "bash", ""),
    ];
    Reply::calls(calls)
        .saying("Ich prüfe das – sofort. 🚢")
        .reasoning("Was ist hier zu tun?")
}

fn joined(steps: &VecDeque<Step>) -> Vec<u8> {
    steps
        .iter()
        .filter_map(|step| match step {
            Step::Send(bytes) => Some(bytes.to_vec()),
            Step::Wait(_) | Step::Break | Step::Stall => None,
        })
        .flatten()
        .collect()
}

#[test]
fn every_style_says_the_same() {
    for seed in 0..400 {
        let style = Style::any(&mut Rng::new(seed));
        let reply = reply().style(style);
        let heard = Heard::stream(&joined(&stream_steps(&reply, &envelope(seed % 2 == 0))));
        assert_eq!(heard.faults, Vec::<String>::new(), "{:?}", reply.style);
        assert_eq!(heard.text, reply.text, "{:?}", reply.style);
        assert_eq!(heard.reasoning, reply.reasoning);
        assert_eq!(heard.calls, reply.calls, "{:?}", reply.style);
        assert_eq!(heard.finish.as_deref(), Some(reply.finish_reason()));
        let told = match reply.style.usage {
            UsagePlace::Extra => seed % 2 == 0,
            UsagePlace::OnFinish | UsagePlace::OnEach => true,
            UsagePlace::Never => false,
        };
        assert_eq!(heard.usage.is_some(), told, "{:?}", reply.style);
    }
}

#[test]
fn styles_show_on_the_wire() {
    let plain = Style::default();
    let text = |style: Style| {
        let bytes = joined(&stream_steps(&reply().style(style), &envelope(true)));
        String::from_utf8(bytes).unwrap()
    };
    let base = text(plain.clone());
    assert!(base.contains(r#""index":2"#) && base.ends_with("data: [DONE]\n\n"));
    assert!(base.contains(r#""usage":null"#));
    let table = [
        (
            Style {
                crlf: true,
                ..plain.clone()
            },
            "\r\n\r\n",
        ),
        (
            Style {
                comments: true,
                ..plain.clone()
            },
            ": keep-alive\n\n",
        ),
        (
            Style {
                prompt_filter: true,
                ..plain.clone()
            },
            "prompt_filter_results",
        ),
        (
            Style {
                spaced: true,
                ..plain.clone()
            },
            r#""finish_reason": "tool_calls""#,
        ),
        (
            Style {
                finish_stop: true,
                ..plain.clone()
            },
            r#""finish_reason":"stop""#,
        ),
        (
            Style {
                content_null: true,
                ..plain.clone()
            },
            r#""content":null,"tool_calls""#,
        ),
        (
            Style {
                name: Some(4),
                ..plain.clone()
            },
            r#""name":"read""#,
        ),
        (
            Style {
                arguments: None,
                ..plain.clone()
            },
            r#""arguments":"{}","name":"ls""#,
        ),
    ];
    for (style, mark) in table {
        assert!(!base.contains(mark), "{mark}");
        assert!(text(style).contains(mark), "{mark}");
    }
    let omitted = text(Style {
        index: IndexStyle::Omitted,
        ..plain.clone()
    });
    assert_eq!(
        omitted.matches(r#""index":"#).count(),
        omitted.matches(r#""delta""#).count()
    );
    let zero = text(Style {
        index: IndexStyle::Zero,
        ..plain
    });
    assert!(!zero.contains(r#""index":1"#) && zero.contains("call_b"));
}

#[test]
fn cuts_fall_at_any_byte_and_lose_none() {
    let whole = joined(&stream_steps(&reply(), &envelope(true)));
    for size in [1, 2, 3, 7, 64, 1_000_000] {
        let style = Style {
            cut: Some(size),
            ..Style::default()
        };
        let steps = stream_steps(&reply().style(style), &envelope(true));
        assert_eq!(joined(&steps), whole);
        let fits = |step: &Step| matches!(step, Step::Send(bytes) if bytes.len() <= size);
        assert!(steps.iter().all(fits));
        assert_eq!(steps.len(), whole.len().div_ceil(size));
    }
}

#[test]
fn faults_strike_at_their_event() {
    let clean = stream_steps(&reply(), &envelope(true));
    let count = clean.len();
    for event in 0..count {
        let steps = |fault| stream_steps(&reply().fault(fault), &envelope(true));
        let head: Vec<Step> = clean.iter().take(event).cloned().collect();
        let rest = |fault| {
            let steps = steps(fault);
            assert!(steps.iter().take(event).eq(head.iter()), "{fault:?}");
            steps.into_iter().skip(event).collect::<Vec<_>>()
        };
        assert_eq!(rest(Fault::CloseAt { event }), [Step::Break]);
        assert_eq!(rest(Fault::StallAt { event }), [Step::Stall]);
        assert_eq!(rest(Fault::EndAt { event }), []);
        assert_eq!(rest(Fault::GarbageAt { event }).len(), count - event + 1);
        let torn = rest(Fault::HalfUtf8At { event });
        assert!(
            matches!(&torn[..], [Step::Send(bytes), Step::Break] if std::str::from_utf8(bytes).is_err())
        );
        let error = rest(Fault::ErrorEventAt { event });
        assert!(
            matches!(&error[..], [Step::Send(bytes)] if bytes.starts_with(b"data: {\"error\""))
        );
    }
}

#[test]
fn a_connection_closes_after_any_number_of_bytes() {
    let whole = joined(&stream_steps(&reply(), &envelope(true)));
    for bytes in 0..=whole.len() {
        let steps = stream_steps(&reply().fault(Fault::CloseAfter { bytes }), &envelope(true));
        assert_eq!(joined(&steps), whole[..bytes], "{bytes}");
        assert_eq!(steps.back(), Some(&Step::Break), "{bytes}");
    }
}

#[test]
fn an_unstreamed_body_says_the_same() {
    for spaced in [false, true] {
        let reply = reply().style(Style {
            spaced,
            ..Style::default()
        });
        let heard = Heard::body(&body(&reply, &envelope(false)));
        assert_eq!(
            (heard.text, heard.calls),
            (reply.text.clone(), reply.calls.clone())
        );
        assert_eq!(heard.finish.as_deref(), Some("tool_calls"));
        let usage = heard.usage.unwrap();
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 40);
        assert_eq!(usage["total_tokens"], 109);
    }
    let cut = body_steps(
        &reply().fault(Fault::CloseAfter { bytes: 5 }),
        &envelope(false),
    );
    assert_eq!(joined(&cut).len(), 5);
    assert_eq!(cut.back(), Some(&Step::Break));
}

#[test]
fn a_reader_reports_what_clients_must_not_meet() {
    let chunk = |delta: &str| {
        format!(
            "data: {{\"id\":\"x\",\"created\":1,\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"
        )
    };
    let finish = "data: {\"id\":\"x\",\"created\":1,\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let done = "data: [DONE]\n\n";
    let role = chunk(r#"{"role":"assistant","content":""}"#);
    let table = [
        (format!("{role}{finish}{done}"), ""),
        (
            format!("{role}{role}{finish}{done}"),
            "2 deltas tell the role",
        ),
        (
            format!("{role}{finish}{finish}{done}"),
            "2 chunks tell a finish reason",
        ),
        (
            format!("{role}{finish}{done}{done}"),
            "an event follows [DONE]",
        ),
        (format!("{role}{finish}"), "[DONE] came 0 times"),
        (
            format!("{role}{finish}data: [DONE]\n"),
            "ends within an event",
        ),
        (format!("{role}data: {{oops\n\n{finish}{done}"), "no JSON"),
        (
            format!(
                "{role}{}{finish}{done}",
                chunk(r#"{"content":"a"}"#).replace("\"x\"", "\"y\"")
            ),
            "several ids",
        ),
        (
            format!(
                "{role}{}{finish}{done}",
                chunk(r#"{"tool_calls":[{"index":1,"id":"a"}]}"#)
            ),
            "gaps",
        ),
        (
            format!("{role}{finish}{}{done}", chunk(r#"{"content":"a"}"#)),
            "text follows",
        ),
    ];
    for (stream, want) in table {
        let faults = Heard::stream(stream.as_bytes()).faults.join("; ");
        assert!(
            faults.contains(want) && faults.is_empty() == want.is_empty(),
            "{want}: {faults}"
        );
    }
}
