//! A request of messages that were said before, as one that is read again. Owns where they stand in its body. Never sent to
//! anybody.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Dialect;

/// A request of these units, byte for byte.
pub(super) fn body(dialect: Dialect, model: &str, units: &[Bytes], tools: Option<&Bytes>) -> Bytes {
    let list = match dialect {
        Dialect::Chat => "messages",
        Dialect::Responses => "input",
        Dialect::Messages => "messages",
    };
    let mut body = format!("{{\"model\":{},", Value::from(model)).into_bytes();
    if dialect == Dialect::Messages {
        body.extend_from_slice(b"\"max_tokens\":1024,");
    }
    if let Some(tools) = tools {
        body.extend_from_slice(b"\"tools\":");
        body.extend_from_slice(tools);
        body.push(b',');
    }
    body.extend_from_slice(format!("\"{list}\":[").as_bytes());
    let mut results: Vec<&Bytes> = Vec::new();
    let mut first = true;
    let mut put = |body: &mut Vec<u8>, part: &[u8]| {
        if !std::mem::take(&mut first) {
            body.push(b',');
        }
        body.extend_from_slice(part);
    };
    for unit in units {
        // A unit of Messages may be one result, which stands in a user's message.
        if dialect == Dialect::Messages && is_block(unit) {
            results.push(unit);
            continue;
        }
        if !results.is_empty() {
            put(&mut body, &of_results(&std::mem::take(&mut results)));
        }
        put(&mut body, unit);
    }
    if !results.is_empty() {
        put(&mut body, &of_results(&results));
    }
    body.extend_from_slice(b"]}");
    Bytes::from(body)
}

/// Whether a unit of Messages is a block and no message.
fn is_block(unit: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        role: Option<&'a RawValue>,
    }
    serde_json::from_slice::<Head<'_>>(unit).is_ok_and(|head| head.role.is_none())
}

fn of_results(results: &[&Bytes]) -> Vec<u8> {
    let mut message = b"{\"role\":\"user\",\"content\":[".to_vec();
    for (at, result) in results.iter().enumerate() {
        if at > 0 {
            message.push(b',');
        }
        message.extend_from_slice(result);
    }
    message.extend_from_slice(b"]}");
    message
}
