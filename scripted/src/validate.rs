//! What a real Chat Completions provider refuses.
//!
//! Owns the rules and the texts of the refusals, in OpenAI's error shape. It never repairs, never
//! warns and never looks at anything but the request: a body is either accepted or refused, and
//! the first fault found is the one that is named.

mod messages;
mod pairs;
mod tools;

use serde_json::{Value, json};

use crate::rules::Form;

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status, 400 for whatever the validator finds.
    pub status: u16,
    /// The text that the caller reads.
    pub message: String,
    /// The parameter at fault, such as `messages[2].role`.
    pub param: Option<String>,
    /// The provider's code, such as `context_length_exceeded`.
    pub code: Option<String>,
    /// The body, where the provider has a shape of its own for it.
    pub raw: Option<String>,
}

impl Refusal {
    /// A refusal with status 400.
    fn new(message: impl Into<String>, param: impl Into<String>, code: &str) -> Self {
        Self {
            status: 400,
            message: message.into(),
            param: Some(param.into()),
            code: Some(code.to_owned()),
            raw: None,
        }
    }

    /// The refusal without a code, as some texts of the provider have none.
    fn without_code(mut self) -> Self {
        self.code = None;
        self
    }

    fn missing(param: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!("Missing required parameter: '{param}'.");
        Self::new(message, param, "missing_required_parameter")
    }

    fn wrong_type(param: impl Into<String>, expected: &str, got: &Value) -> Self {
        let param = param.into();
        let got = kind(got);
        let message =
            format!("Invalid type for '{param}': expected {expected}, but got {got} instead.");
        Self::new(message, param, "invalid_type")
    }

    fn empty_array(param: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!(
            "Invalid '{param}': empty array. Expected an array with minimum length 1, but got an \
             empty array instead."
        );
        Self::new(message, param, "empty_array")
    }

    /// The request is longer than the model's window.
    #[must_use]
    pub fn context_length(window: usize, size: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {window} tokens. However, your messages \
             resulted in {size} tokens. Please reduce the length of the messages."
        );
        Self::new(message, "messages", "context_length_exceeded")
    }

    /// The body is no JSON.
    #[must_use]
    pub fn malformed() -> Self {
        Self {
            status: 400,
            message: "We could not parse the JSON body of your request. (HINT: This likely means \
                      you aren't using your HTTP library correctly. The API expects a JSON \
                      payload, but what was sent was not valid JSON.)"
                .to_owned(),
            param: None,
            code: None,
            raw: None,
        }
    }

    /// The refusal as the provider sends it in a wire format.
    #[must_use]
    pub fn body(&self, form: Form) -> String {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let kind = "invalid_request_error";
        match form {
            Form::Messages => {
                json!({"type": "error", "error": {"type": kind, "message": self.message}})
            }
            Form::Chat | Form::Responses => json!({"error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }}),
        }
        .to_string()
    }
}

/// Checks a request body. Its length against the window is checked by the caller, who counts.
///
/// # Errors
/// The first rule that the body breaks.
pub fn request(body: &[u8]) -> Result<Value, Refusal> {
    request_of(Form::Chat, body, false)
}

/// The same in a wire format, of a provider that may know parts of thinking.
pub(crate) fn request_of(form: Form, body: &[u8], thinking: bool) -> Result<Value, Refusal> {
    let value: Value = serde_json::from_slice(body).map_err(|_| Refusal::malformed())?;
    let Some(fields) = value.as_object() else {
        return Err(Refusal::malformed());
    };
    match fields.get("model") {
        Some(Value::String(model)) if !model.is_empty() => {}
        None | Some(Value::Null | Value::String(_)) => {
            return Err(
                Refusal::new("you must provide a model parameter", "model", "").without_code(),
            );
        }
        Some(other) => return Err(Refusal::wrong_type("model", "a string", other)),
    }
    if form != Form::Chat {
        pairs::check(form, &value)?;
        return Ok(value);
    }
    scalars(&value)?;
    messages::check(fields.get("messages"), thinking)?;
    tools::check(&value)?;
    Ok(value)
}

/// Checks the types of the plain settings.
fn scalars(value: &Value) -> Result<(), Refusal> {
    type Fits = fn(&Value) -> bool;
    let table: [(&str, &str, Fits); 10] = [
        ("stream", "a boolean", Value::is_boolean),
        ("n", "an integer", Value::is_u64),
        ("max_tokens", "an integer", Value::is_u64),
        ("max_completion_tokens", "an integer", Value::is_u64),
        ("temperature", "a decimal", Value::is_number),
        ("top_p", "a decimal", Value::is_number),
        ("seed", "an integer", Value::is_i64),
        ("user", "a string", Value::is_string),
        ("metadata", "an object", Value::is_object),
        ("stream_options", "an object", Value::is_object),
    ];
    for (field, expected, fits) in table {
        if let Some(found) = present(value, field)
            && !fits(found)
        {
            return Err(Refusal::wrong_type(field, expected, found));
        }
    }
    let streamed = value.get("stream") == Some(&Value::Bool(true));
    if present(value, "stream_options").is_some() && !streamed {
        return Err(Refusal::new(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
            "",
        )
        .without_code());
    }
    Ok(())
}

/// A field that is there and not null: the provider takes null for "not given" in most settings.
fn present<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|found| !found.is_null())
}

/// The provider's name of a JSON type.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
