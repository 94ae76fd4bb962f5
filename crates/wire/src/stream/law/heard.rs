//! What a client hears of an answer, a stream or a body, that is written by the rules of its dialect: it puts the pieces
//! together as SDKs do. Shares no code with the proxy's readers.

use serde_json::{Value, json};

use crate::Dialect;
use crate::answer::join;

/// What a client hears.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The texts: one at most in Chat, and in the others one for each block or part.
    pub(super) texts: Vec<String>,
    /// What each citation is about, and the characters that it names.
    cited: Vec<(String, String)>,
    images: Vec<String>,
    /// The tokens of texts, and those of refusals.
    tokens: [String; 2],
    pub(super) refusal: String,
    /// Ids and names.
    pub(super) calls: Vec<(String, String)>,
    finish: String,
}

impl Heard {
    pub(super) fn of_stream(dialect: Dialect, stream: &[u8]) -> Self {
        let text = std::str::from_utf8(stream).unwrap();
        let data = text.split("\n\n").filter_map(|frame| {
            let line = frame.lines().find_map(|line| line.strip_prefix("data: "))?;
            serde_json::from_str::<Value>(line).ok()
        });
        let body = match dialect {
            Dialect::Chat => chat(data),
            Dialect::Messages => messages(data),
            Dialect::Responses => responses(data),
        };
        Self::of(dialect, &body)
    }

    pub(super) fn of_body(dialect: Dialect, body: &[u8]) -> Self {
        Self::of(dialect, &serde_json::from_slice(body).unwrap())
    }

    fn of(dialect: Dialect, body: &Value) -> Self {
        let mut heard = Self::default();
        match dialect {
            Dialect::Chat => heard.hear_chat(&body["choices"][0]),
            Dialect::Messages => heard.hear_messages(body),
            Dialect::Responses => heard.hear_responses(body),
        }
        heard
    }

    /// What a client hears of hops that say this, one behind the other, without what they call of hidden tools.
    pub(super) fn joined(dialect: Dialect, hops: &[Self], hidden: &[&str]) -> Self {
        let mut all = Self::default();
        for hop in hops {
            all.texts.extend(hop.texts.iter().cloned());
            all.cited.extend(hop.cited.iter().cloned());
            all.images.extend(hop.images.iter().cloned());
            for (all, own) in all.tokens.iter_mut().zip(&hop.tokens) {
                all.push_str(own);
            }
            all.refusal.push_str(&hop.refusal);
            let calls = hop.calls.iter();
            let seen = calls.filter(|(_, name)| !hidden.contains(&name.as_str()));
            all.calls.extend(seen.cloned());
            all.finish.clone_from(&hop.finish);
        }
        if dialect == Dialect::Chat {
            let (text, _) = join(all.texts.iter().map(String::as_str));
            all.texts = Vec::from_iter((!text.is_empty()).then_some(text));
        }
        all
    }

    fn cite(&mut self, name: &Value, text: &str, places: &Value) {
        let place = |key: &str| usize::try_from(places[key].as_u64().unwrap()).unwrap();
        let (start, end) = (place("start_index"), place("end_index"));
        let characters = text.chars().skip(start).take(end - start);
        self.cited.push((string(name), characters.collect()));
    }

    fn hear_chat(&mut self, choice: &Value) {
        let message = &choice["message"];
        let text = string(&message["content"]);
        for annotation in list(&message["annotations"]) {
            let citation = &annotation["url_citation"];
            self.cite(&citation["url"], &text, citation);
        }
        self.texts.extend((!text.is_empty()).then_some(text));
        let images = list(&message["images"]).iter();
        self.images = images.map(|one| string(&one["image_url"]["url"])).collect();
        self.refusal = string(&message["refusal"]);
        self.tokens = ["content", "refusal"].map(|key| tokens(&choice["logprobs"][key]));
        for call in list(&message["tool_calls"]) {
            self.call(&call["id"], &call["function"]["name"]);
        }
        self.finish = string(&choice["finish_reason"]);
    }

    fn hear_messages(&mut self, message: &Value) {
        for block in list(&message["content"]) {
            match block["type"].as_str().unwrap() {
                "text" => {
                    let text = string(&block["text"]);
                    // The API takes no text back that shows nothing, and so it may go.
                    if text.trim().is_empty() {
                        continue;
                    }
                    let citations = list(&block["citations"]).iter();
                    let cited = citations.map(|one| (string(&one["document_title"]), text.clone()));
                    self.cited.extend(cited);
                    self.texts.push(text);
                }
                "tool_use" => self.call(&block["id"], &block["name"]),
                _ => self.images.push(string(&block["content"][0]["url"])),
            }
        }
        self.finish = string(&message["stop_reason"]);
    }

    fn hear_responses(&mut self, response: &Value) {
        for item in list(&response["output"]) {
            match item["type"].as_str().unwrap() {
                "message" => {
                    for part in list(&item["content"]) {
                        self.hear_part(part);
                    }
                }
                "function_call" => self.call(&item["call_id"], &item["name"]),
                _ => self.images.push(string(&item["result"])),
            }
        }
        self.finish = string(&response["status"]);
    }

    fn hear_part(&mut self, part: &Value) {
        self.refusal.push_str(&string(&part["refusal"]));
        if part["type"] == "refusal" {
            return;
        }
        let text = string(&part["text"]);
        for annotation in list(&part["annotations"]) {
            self.cite(&annotation["url"], &text, annotation);
        }
        let [said, _] = &mut self.tokens;
        said.push_str(&tokens(&part["logprobs"]));
        self.texts.push(text);
    }

    fn call(&mut self, id: &Value, name: &Value) {
        self.calls.push((string(id), string(name)));
    }
}

/// The body that the chunks of Chat come to.
fn chat(chunks: impl Iterator<Item = Value>) -> Value {
    let mut message = json!({});
    let mut logprobs = json!({"content": [], "refusal": []});
    let mut finish = Value::Null;
    for chunk in chunks {
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        for key in ["content", "refusal"] {
            message[key] = json!(string(&message[key]) + &string(&delta[key]));
            extend(&mut logprobs, key, &choice["logprobs"][key]);
        }
        for key in ["annotations", "images", "tool_calls"] {
            extend(&mut message, key, &delta[key]);
        }
        if choice["finish_reason"].is_string() {
            finish = choice["finish_reason"].clone();
        }
    }
    json!({"choices": [{"message": message, "logprobs": logprobs, "finish_reason": finish}]})
}

/// The message that the events of Messages come to.
fn messages(events: impl Iterator<Item = Value>) -> Value {
    let mut message = Value::Null;
    for event in events {
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                assert_eq!(event["index"], list(&message["content"]).len(), "{event}");
                extend(&mut message, "content", &json!([event["content_block"]]));
            }
            "content_block_delta" => {
                let at = list(&message["content"]).len() - 1;
                assert_eq!(event["index"], at, "{event}");
                let block = &mut message["content"][at];
                let delta = &event["delta"];
                block["text"] = json!(string(&block["text"]) + &string(&delta["text"]));
                if delta["type"] == "citations_delta" {
                    extend(block, "citations", &json!([delta["citation"]]));
                }
            }
            "message_delta" => message["stop_reason"] = event["delta"]["stop_reason"].clone(),
            _ => {}
        }
    }
    message
}

/// The response that the events of Responses come to. What was told of piece by piece is what the end tells of.
fn responses(events: impl Iterator<Item = Value>) -> Value {
    let (mut items, mut end) = (json!({}), Value::Null);
    let mut said = String::new();
    for (number, event) in events.enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        match event["type"].as_str().unwrap() {
            "response.output_item.done" => {
                assert_eq!(event["output_index"], list(&items["all"]).len(), "{event}");
                extend(&mut items, "all", &json!([event["item"]]));
                let item = &event["item"];
                let whole = list(&item["content"]).iter();
                let whole: String = whole.map(|part| string(&part["text"])).collect();
                assert_eq!(std::mem::take(&mut said), whole, "{event}");
            }
            "response.output_text.delta" => said.push_str(&string(&event["delta"])),
            "response.completed" => end = event["response"].clone(),
            _ => {}
        }
    }
    assert_eq!(list(&end["output"]), list(&items["all"]));
    end
}

fn extend(of: &mut Value, key: &str, more: &Value) {
    let all: Vec<Value> = list(&of[key]).iter().chain(list(more)).cloned().collect();
    of[key] = Value::from(all);
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn tokens(list: &Value) -> String {
    let list = self::list(list).iter();
    list.map(|one| string(&one["token"])).collect()
}
