//! The words of the refusals, as providers were seen to put them. Where a text is from stands
//! beside it; what is cut out there is left out here, too.

use serde_json::json;

use super::{CONTROLS, Difference, Form, Rule, Scope};
use crate::validate::Refusal;

fn refusal(message: impl Into<String>) -> Refusal {
    Refusal {
        status: 400,
        message: message.into(),
        param: None,
        code: None,
        raw: None,
    }
}

fn shaped(message: impl Into<String>, shape: impl FnOnce(&str) -> String) -> Refusal {
    let message = message.into();
    Refusal {
        raw: Some(shape(&message)),
        ..refusal(message)
    }
}

/// Google's shape: its OpenAI-compatible endpoint answers with a list of one error.
fn google(message: impl Into<String>) -> Refusal {
    shaped(message, |message| {
        json!([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}])
            .to_string()
    })
}

fn missing_signature(name: &str, place: usize) -> String {
    format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for \
         tools to work correctly, and missing thought_signature may lead to degraded model \
         performance. Additional data, function call `default_api:{name}` , position {place}. \
         Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    )
}

/// <https://github.com/Gitlawb/openclaude/issues/67>
pub(super) fn gemini_missing(name: &str, place: usize) -> Refusal {
    google(missing_signature(name, place))
}

/// <https://github.com/RooCodeInc/Roo-Code/pull/10640>
pub(super) fn gemini_foreign() -> Refusal {
    google("Unable to submit request because Thought signature is not valid.")
}

/// <https://github.com/microsoft/agent-framework/issues/2947>
pub(super) fn openrouter(name: &str, place: usize) -> Refusal {
    let upstream = json!({"error": {"code": 400, "message": missing_signature(name, place),
        "status": "INVALID_ARGUMENT"}});
    let raw = format!(
        "Gemini models require OpenRouter reasoning details to be preserved in each request. \
         Please refer to our docs: https://openrouter.ai/docs/guides/best-practices/\
         reasoning-tokens#preserving-reasoning-blocks. Upstream error: {upstream}"
    );
    shaped("Provider returned error", |message| {
        json!({"error": {"message": message, "code": 400,
            "metadata": {"raw": raw, "provider_name": "Google AI Studio"}}, "user_id": "user_1"})
        .to_string()
    })
}

/// <https://github.com/continuedev/continue/issues/11285> of the turn, and of all messages
/// <https://github.com/mnfst/modelparams.dev/issues/29>.
pub(super) fn deepseek(scope: Scope, place: usize) -> Refusal {
    match scope {
        Scope::Turn => refusal(format!(
            "Missing `reasoning_content` field in the assistant message at message index {place}. \
             For more information, please refer to \
             https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        )),
        Scope::All => deepseek_lost("reasoning_content"),
    }
}

fn deepseek_lost(field: &str) -> Refusal {
    Refusal {
        code: Some("invalid_request_error".to_owned()),
        ..refusal(format!(
            "The `{field}` in the thinking mode must be passed back to the API."
        ))
    }
}

/// <https://github.com/decolua/9router/issues/2397>
pub(super) fn deepseek_thinking() -> Refusal {
    deepseek_lost("content[].thinking")
}

/// <https://github.com/VicBilibily/GCMP/issues/162>
pub(super) fn kimi(place: usize) -> Refusal {
    shaped(
        format!(
            "thinking is enabled but reasoning_content is missing in assistant tool call message \
             at index {place}"
        ),
        |message| {
            json!({"error": {"type": "invalid_request_error", "message": message}, "type": "error"})
                .to_string()
        },
    )
}

/// <https://github.com/prism-php/prism/issues/659>
pub(super) fn dictionary(place: usize, block: usize) -> Refusal {
    shaped(
        format!(
            "messages.{place}.content.{block}.tool_use.input: Input should be a valid dictionary"
        ),
        |message| {
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
                .to_string()
        },
    )
}

/// vLLM: <https://github.com/vllm-project/vllm/issues/43995>; llama.cpp:
/// <https://github.com/vxcontrol/pentagi/issues/313>.
pub(super) fn arguments(rule: Rule, arguments: &str) -> Refusal {
    let column = arguments.chars().count();
    if rule == Rule::LlamaArguments {
        let text = format!(
            "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse \
             error at line 1, column {column}: syntax error while parsing value - unexpected end \
             of input; expected '[', '{{', or a literal"
        );
        let shape = |message: &str| {
            json!({"error": {"code": 500, "message": message, "type": "server_error"}}).to_string()
        };
        return Refusal {
            status: 500,
            ..shaped(text, shape)
        };
    }
    let text = format!("Expecting ',' delimiter: line 1 column {column} (char {column})");
    shaped(text, |message| {
        json!({"error": {"message": message, "type": "BadRequestError", "param": null,
            "code": 400}})
        .to_string()
    })
}

/// <https://github.com/OpenHands/OpenHands/issues/8685>
pub(super) fn mistral() -> Refusal {
    shaped(
        "Assistant message must have either content or tool_calls, but not none.",
        |message| {
            json!({"object": "error", "message": message, "type": "invalid_request_error",
                "param": null, "code": null})
            .to_string()
        },
    )
}

/// Groq says this of an answer's call (<https://github.com/mastra-ai/mastra/issues/9688>); of a
/// request's, "requested tool does not exist" was seen too.
pub(super) fn unknown_tool(name: &str) -> Refusal {
    refusal(format!(
        "Tool call validation failed: tool call validation failed: attempted to call tool \
         '{name}' which was not in request.tools"
    ))
}

/// <https://github.com/anthropics/anthropic-sdk-typescript/issues/553>
pub(super) fn cache_control() -> Refusal {
    refusal("messages.0.cache_control: Extra inputs are not permitted")
}

/// <https://github.com/deepset-ai/haystack-core-integrations/issues/2146>
pub(super) fn claude(place: usize, found: &str) -> Refusal {
    refusal(format!(
        "messages.{place}.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
         `{found}`. When `thinking` is enabled, a final `assistant` message must start with a \
         thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We \
         recommend you include thinking blocks from previous turns. To avoid this requirement, \
         disable `thinking`. Please consult our documentation at \
         https://docs.claude.com/en/docs/build-with-claude/extended-thinking"
    ))
}

/// <https://docs.claude.com/en/docs/build-with-claude/extended-thinking#preserving-thinking-blocks>
pub(super) fn claude_signature(place: usize) -> Refusal {
    refusal(format!(
        "messages.{place}.content.0: Invalid `signature` in `thinking` block"
    ))
}

/// <https://community.openai.com/t/1236046>
pub(super) fn without_reasoning(id: &str, reasoning: &str) -> Refusal {
    let kind = if id.starts_with("fc_") {
        "function_call"
    } else {
        "message"
    };
    input(format!(
        "Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: \
         '{reasoning}'."
    ))
}

/// <https://github.com/continuedev/continue/issues/8933>
pub(super) fn reasoning_alone(id: &str) -> Refusal {
    input(format!(
        "Item '{id}' of type 'reasoning' was provided without its required following item."
    ))
}

fn input(message: String) -> Refusal {
    Refusal {
        param: Some("input".to_owned()),
        ..refusal(message)
    }
}

/// <https://github.com/smallmain/vscode-unify-chat-provider/issues/178>
pub(super) fn encrypted(id: &str) -> Refusal {
    Refusal {
        code: Some("invalid_encrypted_content".to_owned()),
        ..refusal(format!(
            "The encrypted content for item {id} could not be verified. Reason: Encrypted content \
             could not be decrypted or parsed."
        ))
    }
}

/// Groq, which takes no field that it does not know: <https://github.com/janhq/jan/issues/8136>
pub(super) fn unsupported(place: usize, field: &str) -> Refusal {
    refusal(format!(
        "'messages.{place}' : for 'role:assistant' the following must be \
         satisfied[('messages.{place}' : property '{field}' is unsupported)]"
    ))
}

/// A refusal of Anthropic's, as its own endpoint shapes it or as OpenRouter passes it on.
fn anthropic(form: Form, message: String) -> Refusal {
    let raw = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": message}});
    match form {
        Form::Messages | Form::Responses => shaped(message, |_| raw.to_string()),
        Form::Chat => Refusal {
            message,
            ..shaped("Provider returned error", |outer| {
                json!({"error": {"message": outer, "code": 400, "metadata":
                    {"raw": raw.to_string(), "provider_name": "Anthropic"}}, "user_id": "user_1"})
                .to_string()
            })
        },
    }
}

const SIGNATURE: &str = "Invalid `signature` in `thinking` block";

/// <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation>
pub(super) fn bound(form: Form, path: &str, told: bool, difference: &Difference) -> Refusal {
    let mut text = format!(
        "{path}: {SIGNATURE}. The block is bound to a different conversation. Remove the block, or \
         set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\"."
    );
    if !told {
        text.push_str(&format!(
            " That setting requires the `{CONTROLS}` value in the `anthropic-beta` header."
        ));
    }
    text.push_str(&match difference {
        Difference::System => {
            " The `system` prompt differs from the one this block was created with.".to_owned()
        }
        Difference::Tools => {
            " The `tools` list differs from the one this block was created with.".to_owned()
        }
        Difference::Content(first) => format!(
            " Content before this block differs from when it was created, first at `{first}`."
        ),
        Difference::Older(first) => {
            format!(" A message older than `{first}` differs from when this block was created.")
        }
        Difference::Missing(first) => format!(
            " Content that preceded this block when it was created is missing from this request, \
             starting at `{first}`."
        ),
        Difference::Gap => " The `thinking` block that preceded this one when it was created is \
                            missing from this request."
            .to_owned(),
        Difference::Returned => String::new(),
    });
    anthropic(form, text)
}

/// The same page, of a signature that can't be read.
pub(super) fn forged(form: Form, path: &str) -> Refusal {
    anthropic(form, format!("{path}: {SIGNATURE}"))
}

/// <https://github.com/openclaw/openclaw/pull/27142>
pub(super) fn newest(form: Form, path: &str) -> Refusal {
    anthropic(
        form,
        format!(
            "{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message \
             cannot be modified. These blocks must remain as they were in the original response."
        ),
    )
}

/// <https://github.com/Wei-Shaw/sub2api/pull/6677>
pub(super) fn binding_unknown(kind: &str) -> Refusal {
    let text = format!("thinking.{kind}.block_binding: Extra inputs are not permitted");
    anthropic(Form::Messages, text)
}

/// What is said of a value that is none of the two was seen nowhere: it is worded as its like.
pub(super) fn binding_value(kind: &str) -> Refusal {
    let text = format!(
        "thinking.{kind}.block_binding.prefix_mismatch_behavior: Input should be 'error' or \
         'drop_block'"
    );
    anthropic(Form::Messages, text)
}

/// A system message among the others, for a model that takes none there.
pub(super) fn no_system() -> Refusal {
    anthropic(
        Form::Messages,
        "role 'system' is not supported on this model".to_owned(),
    )
}

/// One where none may stand
/// (<https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages>). The words were seen
/// nowhere.
pub(super) fn misplaced(place: usize) -> Refusal {
    let text = format!(
        "messages.{place}: role 'system' must follow a user message, and only an assistant's may follow it"
    );
    anthropic(Form::Messages, text)
}

/// A refusal that says nothing.
pub(super) fn nothing() -> Refusal {
    refusal("Invalid request")
}

/// A refusal for no reason, which names nothing or what it is not for.
pub(super) fn random(named: bool) -> Refusal {
    if named {
        deepseek_lost("reasoning_content")
    } else {
        nothing()
    }
}
