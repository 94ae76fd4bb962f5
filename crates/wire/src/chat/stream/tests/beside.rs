//! What stands beside texts that are joined: places in a text, and images, streamed and whole.

use super::rules::{HIDDEN_CALL, VISIBLE_CALL, call, compose, frame, spec, spelt};
use super::*;

/// What stands beside a text: a citation of these characters of it, and an image.
fn beside(name: &str, start: usize, end: usize) -> String {
    format!(
        r#""annotations":[{{"type":"url_citation","url_citation":{{"end_index":{end},"start_index":{start},"url":"{name}"}}}}],"images":[{{"type":"image_url","image_url":{{"url":"{name}"}}}}],"#
    )
}

/// The citations, each with the characters of the text that it names, and the images.
fn named(text: &str, message: &serde_json::Value) -> (Vec<(String, String)>, Vec<String>) {
    let text: Vec<char> = text.chars().collect();
    let list = |key: &str| message[key].as_array().cloned().unwrap_or_default();
    let cited = list("annotations").into_iter().map(|one| {
        let cited = &one["url_citation"];
        let at = |key: &str| usize::try_from(cited[key].as_u64().unwrap()).unwrap();
        let places = text[at("start_index")..at("end_index")].iter().collect();
        (cited["url"].as_str().unwrap().to_owned(), places)
    });
    let images = list("images").into_iter();
    let images = images.map(|one| one["image_url"]["url"].as_str().unwrap().to_owned());
    (cited.collect(), images.collect())
}

#[test]
fn places_in_a_text_stay_right_where_texts_are_joined() {
    let said = [
        ("\"Grüße an a.\"", HIDDEN_CALL, (9, 10)),
        ("\"See b.\"", VISIBLE_CALL, (4, 5)),
    ];
    let wanted = (
        vec![
            ("a".to_owned(), "a".to_owned()),
            ("b".to_owned(), "b".to_owned()),
        ],
        vec!["a".to_owned(), "b".to_owned()],
    );
    let bodies = ["a", "b"]
        .into_iter()
        .zip(said)
        .map(|(name, (text, made, (start, end)))| {
            spelt(name, text, &[made], &[], &beside(name, start, end))
        });
    let bodies: Vec<Bytes> = bodies.collect();
    let composed = compose(&bodies, UsageMode::Last, None);
    let body: serde_json::Value = serde_json::from_str(&composed).unwrap();
    let message = &body["choices"][0]["message"];
    let text = message["content"].as_str().unwrap();
    assert_eq!(named(text, message), wanted);

    let hops = ["a", "b"]
        .into_iter()
        .zip(said)
        .map(|(name, (text, made, (start, end)))| {
            let beside = beside(name, start, end);
            let name = if made == HIDDEN_CALL {
                "delimiter"
            } else {
                "read"
            };
            let frames = [
                frame(&format!(r#""content":{text}"#), "null"),
                frame(beside.trim_end_matches(','), "null"),
                call(name, "{}"),
                frame("", "\"tool_calls\""),
            ];
            Bytes::from(frames.concat())
        });
    let mut machine = Machine::new(MachineSettings::default(), &spec());
    let mut out = Vec::new();
    for (at, hop) in hops.enumerate() {
        if at > 0 {
            machine.next_hop(&mut out);
        }
        machine.push(hop, &mut out).unwrap();
        machine.end_hop(&mut out);
    }
    machine.release(&mut out);
    let out = String::from_utf8(out.concat()).unwrap();
    let (mut text, mut all) = (String::new(), json_lists());
    for event in out
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: {"))
    {
        let event: serde_json::Value = serde_json::from_str(&format!("{{{event}")).unwrap();
        let delta = &event["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        for key in ["annotations", "images"] {
            let list = delta[key].as_array().cloned().unwrap_or_default();
            all[key].as_array_mut().unwrap().extend(list);
        }
    }
    assert_eq!(named(&text, &all), wanted, "{out}");
}

fn json_lists() -> serde_json::Value {
    serde_json::json!({"annotations": [], "images": []})
}
