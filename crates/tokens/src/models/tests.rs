//! Holds the built-in table to what it must say, and the reading of errors to real answers.

use plimsoll_model::{ReasoningBack, ReasoningRead};
use proptest::prelude::*;

use std::time::Duration;

use super::*;
use crate::{Encoding, Prices};

fn builtin() -> Models {
    Models::parse(include_str!("../../../../config/models.toml")).unwrap()
}

#[test]
fn models_find_their_family() {
    for (model, family) in [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-codex", "gpt-5"),
        ("GPT-5-Mini", "gpt-5-mini"),
        ("openai/gpt-5", "gpt-5"),
        ("openrouter/openai/gpt-5.6-sol", "gpt-5.6"),
        ("gpt-5.1-codex-mini", "gpt-5-mini"),
        ("gpt-5.1-codex-max", "gpt-5"),
        ("gpt-5.3-codex", "gpt-5.2"),
        ("gpt-5.4-nano", "gpt-5.4-nano"),
        ("gpt-5.6-luna", "gpt-5.6-luna"),
        ("gpt-6.1-sol-2026-09-29", "gpt-6.1-sol"),
        ("gpt-6-something", "gpt-6"),
        ("ft:gpt-4o-mini:org::id", "gpt-4o-mini"),
        ("gpt-4", "gpt-4"),
        ("gpt-4-turbo-2024-04-09", "gpt-4-turbo"),
        ("gpt-3.5-turbo-0125", "gpt-3.5"),
        ("o3", "o3"),
        ("o3-mini", "o3-mini"),
        ("claude-opus-4-6", "claude-opus-5"),
        ("anthropic/claude-opus-4.5", "claude-opus-4.5"),
        (
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "claude-sonnet-4",
        ),
        ("claude-sonnet-5-5", "claude-sonnet-5.5"),
        ("claude-fable-5-1", "claude-fable-5.1"),
        ("claude-of-the-future", "claude"),
        ("deepseek/deepseek-chat-v3.1", "deepseek-chat"),
        ("accounts/fireworks/models/deepseek-r1", "deepseek"),
        ("moonshotai/kimi-k2.5", "kimi-k2.5"),
        ("kimi-for-coding", "kimi"),
        ("google/gemini-3.1-pro-preview", "gemini-3.1-pro"),
        ("x-ai/grok-4.7", "grok-4.6"),
        ("zai-org/GLM-4.6", "glm-4.6"),
        ("mistralai/devstral-small-latest", "devstral-small"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen"),
        ("MiniMax-M2", "minimax-m2"),
        ("my-own-model", "other"),
        ("o3ther", "other"),
        ("", "other"),
    ] {
        assert_eq!(Models::builtin().family(model).name, family, "{model}");
    }
}

/// Each row is the answer for a name of its own, so none is hidden behind an earlier one.
#[test]
fn every_row_can_be_reached() {
    let table: toml::Table = include_str!("../../../../config/models.toml")
        .parse()
        .unwrap();
    for row in table["family"].as_array().unwrap() {
        let reached = row["models"].as_array().unwrap().iter().any(|glob| {
            let mut name = glob.as_str().unwrap().replace('*', "");
            for (class, member) in [
                ("[.-]", "-"),
                ("[6-9]", "6"),
                ("[678]", "7"),
                ("[67]", "6"),
                ("[23]", "2"),
            ] {
                name = name.replace(class, member);
            }
            Models::builtin().family(&name).name == row["name"].as_str().unwrap()
        });
        assert!(reached, "{} is hidden", row["name"]);
    }
}

#[test]
fn what_is_not_known_has_the_stated_defaults() {
    let family = builtin().family("someone-elses-model").clone();
    assert_eq!(family.encoding, Encoding::O200k);
    assert_eq!(family.window, None);
    let Prices {
        plain,
        read,
        write,
        hour_write,
        output: _,
        usd_per_mtok,
    } = family.prices;
    assert_eq!((plain, read, write, usd_per_mtok), (1.0, 0.1, 1.25, None));
    assert_eq!(hour_write, 1.25);
    assert_eq!(family.reasoning_back, ReasoningBack::None);
}

#[test]
fn families_say_what_their_providers_say() {
    let models = builtin();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let gpt = models.family("gpt-5.6");
    assert_eq!(
        gpt.cache,
        CacheModel::Breakpoints {
            max: 4,
            ttl: minutes(30),
            look_back: None,
            implicit: true
        }
    );
    assert_eq!((gpt.prices.write, gpt.prices.read), (1.25, 0.1));
    let claude = models.family("claude-opus-4-6");
    assert_eq!(
        claude.cache,
        CacheModel::Breakpoints {
            max: 4,
            ttl: minutes(5),
            look_back: Some(20),
            implicit: false
        }
    );
    assert_eq!(
        (claude.prices.write, claude.prices.read, claude.window),
        (1.25, 0.1, Some(1_000_000))
    );
    let older = models.family("gpt-4o");
    assert_eq!(
        older.cache,
        CacheModel::Automatic {
            step: 128,
            ttl: minutes(60)
        }
    );
    assert_eq!((older.prices.write, older.prices.read), (1.0, 0.5));
    assert_eq!(models.family("gpt-4").encoding, Encoding::Cl100k);
    for (model, back) in [
        ("deepseek-v4-pro", ReasoningBack::Calls),
        ("kimi-k3", ReasoningBack::Calls),
        ("claude-opus-5", ReasoningBack::Newest),
        ("claude-opus-5-5", ReasoningBack::Bound),
        ("anthropic/claude-sonnet-5.5", ReasoningBack::Bound),
        ("claude-haiku-5-5-20261001", ReasoningBack::Bound),
        ("us.anthropic.claude-fable-5-2", ReasoningBack::Bound),
        ("claude-mythos-5-1", ReasoningBack::Bound),
        ("claude-fable-5", ReasoningBack::Newest),
        ("gemini-3.1-pro", ReasoningBack::Turn),
        ("gpt-6-sol", ReasoningBack::None),
    ] {
        let family = models.family(model);
        assert_eq!(family.reasoning_back, back, "{model}");
        // Others get late guidance in front, so it makes no difference what they take.
        assert_eq!(family.system_among, back == ReasoningBack::Bound, "{model}");
    }
    for (model, read) in [
        ("deepseek-v4-pro", ReasoningRead::Calls),
        ("claude-sonnet-4-5", ReasoningRead::Turn),
        ("claude-opus-4-1", ReasoningRead::Turn),
        ("claude-opus-4-5", ReasoningRead::All),
        ("kimi-k3", ReasoningRead::All),
    ] {
        assert_eq!(models.family(model).reasoning_read, read, "{model}");
    }
}

/// Numbers out of these bounds are misplaced digits.
#[test]
fn every_family_is_plausible() {
    let models = builtin();
    assert_eq!(
        Models::builtin().tables.len(),
        1,
        "the built-in table parses"
    );
    for family in &models.tables[0].families {
        let name = &family.name;
        let prices = family.prices;
        assert!(
            (0.01..=1.0).contains(&prices.read),
            "{name} read {}",
            prices.read
        );
        assert!(
            (0.9..=2.0).contains(&prices.write),
            "{name} write {}",
            prices.write
        );
        assert!(
            (1.0..=10.0).contains(&prices.output),
            "{name} output {}",
            prices.output
        );
        assert!(
            family
                .window
                .is_none_or(|window| (8_000..=2_000_000).contains(&window)),
            "{name}"
        );
        assert!(
            prices
                .usd_per_mtok
                .is_none_or(|usd| (0.01..=200.0).contains(&usd)),
            "{name}"
        );
    }
}

#[test]
fn a_users_table_wins() {
    let user = r#"
        [context_length]
        patterns = ["zu lang, höchstens {window}"]
        [caches.mine]
        kind = "none"
        [[family]]
        name = "house-model"
        models = ["gpt-5", "house-*"]
        encoding = "cl100k"
        window = 32_000
        usd = { input = 2.0, read = 1.0, output = 8.0 }
        cache = "mine"
    "#;
    let models = builtin().overlay(Models::parse(user).unwrap());
    let family = models.family("house-7b");
    assert_eq!(family, models.family("gpt-5"));
    assert_eq!(
        *family,
        Family {
            name: "house-model".to_owned(),
            encoding: Encoding::Cl100k,
            window: Some(32_000),
            context: None,
            cut: None,
            prices: Prices {
                plain: 1.0,
                read: 0.5,
                write: 1.0,
                hour_write: 1.0,
                output: 4.0,
                usd_per_mtok: Some(2.0)
            },
            cache: CacheModel::None,
            reasoning_back: ReasoningBack::None,
            reasoning_read: ReasoningRead::All,
            system_among: false,
            by_user: true,
        }
    );
    assert_eq!(models.family("gpt-5-mini").name, "gpt-5-mini");
    let said =
        models.context_length_error(400, r#"{"error":{"message":"ZU LANG, HÖCHSTENS 32000"}}"#);
    assert_eq!(
        said,
        Some(ContextLengthError {
            window: Some(32_000)
        })
    );
    assert!(
        models
            .context_length_error(400, "prompt is too long")
            .is_some()
    );
}

#[test]
fn bad_tables_are_refused_with_the_reason() {
    let family = |rest: &str| format!("[[family]]\nname = \"x\"\nmodels = [\"x\"]\n{rest}");
    for (toml, reason) in [
        ("[[family]]\nname = \"x\"".to_owned(), "models"),
        (family("windov = 5"), "windov"),
        (family("window = 0"), "window must be a positive number"),
        (family("window = -5"), "invalid value"),
        (family("context = 0"), "context must be a positive number"),
        (family("window = 5\ncontext = 9"), "not both"),
        (family("encoding = \"gpt2\""), "gpt2"),
        (family("cache = \"none\""), "[caches.none]"),
        (family("usd = { input = 0.0, output = 1.0 }"), "price"),
        (family("usd = { input = nan, output = 1.0 }"), "price"),
        (family("usd = { input = 1.0, output = -1.0 }"), "price"),
        (
            "[[family]]\nname = \"x\"\nmodels = [\"[x\"]".to_owned(),
            "pattern",
        ),
        (
            "[context_length]\npatterns = [\"\"]".to_owned(),
            "placeholder",
        ),
        (
            "[context_length]\npatterns = [\"{window}\"]".to_owned(),
            "placeholder",
        ),
        (
            "[context_length]\npatterns = [\"a {n}{window}\"]".to_owned(),
            "placeholder",
        ),
        (
            "[context_length]\npatterns = [\"a {size}\"]".to_owned(),
            "placeholder",
        ),
        (
            "[context_length]\npatterns = [\"a {n\"]".to_owned(),
            "placeholder",
        ),
        ("[caches.x]\nkind = \"magic\"".to_owned(), "magic"),
    ] {
        let error = Models::parse(&toml).unwrap_err().to_string();
        assert!(error.contains(reason), "{toml}\ngave: {error}");
    }
}

#[test]
fn a_prompt_has_the_window_or_what_an_answer_leaves_of_the_context() {
    let family = |rest: &str| {
        let toml = format!("[[family]]\nname = \"x\"\nmodels = [\"x\"]\n{rest}");
        Models::parse(&toml).unwrap().family("x").clone()
    };
    for (rest, output, prompt) in [
        ("", Some(9), None),
        ("window = 8_192", None, Some(8_192)),
        // What is set apart for the answer is no part of it.
        ("window = 8_192", Some(4_000), Some(8_192)),
        ("context = 8_192", None, Some(7_680)),
        ("context = 8_192", Some(0), Some(7_680)),
        ("context = 8_192", Some(2_000), Some(5_680)),
        ("context = 8_192", Some(7_679), Some(1)),
        // No prompt is short enough beside these.
        ("context = 8_192", Some(7_680), Some(7_680)),
        ("context = 8_192", Some(8_192), Some(7_680)),
        ("context = 8_192", Some(u64::MAX), Some(7_680)),
        ("context = 1", None, Some(1)),
    ] {
        let found = family(rest).prompt(output);
        assert_eq!(found, prompt, "{rest} {output:?}");
    }
}

/// What providers answer, and the window that it tells.
const TOO_LONG: &[(&str, Option<u32>)] = &[
    (
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        Some(128_000),
    ),
    (
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
        None,
    ),
    (
        r#"{"error":{"message":"Zu viel","code":"context_length_exceeded"}}"#,
        None,
    ),
    (
        r#"{"error":{"message":"Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300,000 tokens.","code":"context_length_exceeded"}}"#,
        Some(272_000),
    ),
    (
        r#"{"object":"error","message":"This model's maximum context length is 8,192 tokens. However, you requested 9000 tokens","type":"BadRequestError","param":null,"code":400}"#,
        Some(8_192),
    ),
    (
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
        Some(200_000),
    ),
    (
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 198000 + 21333 > 200000, decrease input length"}}"#,
        Some(200_000),
    ),
    (
        r#"[{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}]"#,
        Some(1_048_575),
    ),
    (
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens\"}}","provider_name":"X"}}}"#,
        Some(131_072),
    ),
    (
        r#"{"code":"invalid-argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
        Some(131_072),
    ),
    (
        r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)","type":"invalid_request_error"}}"#,
        Some(262_144),
    ),
    (
        r#"{"error":{"code":400,"message":"the request exceeds the available context size (4096 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
        Some(4_096),
    ),
    (
        r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
        Some(4_096),
    ),
    (
        r#"{"message":"Prompt contains 40000 tokens, too large for model with 32768 maximum context length","type":"invalid_request_error"}"#,
        Some(32_768),
    ),
    (
        r#"{"error":{"message":"Range of input length should be [1, 98304]","type":"invalid_request_error"}}"#,
        Some(98_304),
    ),
    (
        r#"{"error":{"message":"The input (516368 tokens) is longer than the model's context length (262144 tokens)."}}"#,
        Some(262_144),
    ),
    (
        r#"{"error":"Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}"#,
        Some(4_096),
    ),
    (
        r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10247 >= n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter prompt."}"#,
        Some(4_096),
    ),
    (
        r#"{"error":{"message":"Prompt too long: 41911 tokens exceeds max context window of 32768 tokens"}}"#,
        Some(32_768),
    ),
    (
        r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 `inputs` tokens and 1024 `max_new_tokens`","error_type":"validation"}"#,
        Some(1_512),
    ),
    (
        r#"{"error":"Input validation error: `inputs` must have less than 1024 tokens. Given: 1872","error_type":"validation"}"#,
        Some(1_024),
    ),
    (r#"{"error":"Context size has been exceeded."}"#, None),
    (
        r#"{"error":{"message":"Please reduce the length of the messages or completion."}}"#,
        None,
    ),
    ("prompt is too long", None),
    (
        "This model's maximum context length is 99999999999999999999 tokens",
        None,
    ),
];

#[test]
fn context_length_errors_of_real_providers() {
    let models = builtin();
    for (body, window) in TOO_LONG {
        let said = models.context_length_error(400, body);
        assert_eq!(said, Some(ContextLengthError { window: *window }), "{body}");
        for status in [200, 401, 429, 500] {
            assert_eq!(
                models.context_length_error(status, body),
                None,
                "{status} {body}"
            );
        }
    }
}

#[test]
fn ordinary_refusals_are_no_context_length_errors() {
    let models = builtin();
    for body in [
        "",
        "null",
        "Bad Request",
        r#"{"error":{"message":"Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length 139 instead.","type":"invalid_request_error","param":"user","code":"string_above_max_length"}}"#,
        r#"{"error":{"message":"max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you provided 200000.","type":"invalid_request_error","param":"max_tokens","code":null}}"#,
        r#"{"error":{"message":"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.","type":"invalid_request_error","param":"messages.[3].role","code":null}}"#,
        r#"{"error":{"message":"Invalid 'messages[1].tool_calls[0].function.name': string too long.","code":"string_above_max_length"}}"#,
        r#"{"error":{"message":"Unsupported parameter: 'temperature'","code":"unsupported_parameter"}}"#,
        r#"{"error":{"message":"The model `context_length_exceeded` does not exist","code":"model_not_found"}}"#,
        r#"{"error":{"message":"Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 35000.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        r#"{"error":{"message":"Invalid schema","code":"invalid_schema"},"input":"maximum context length is 5 tokens"}"#,
    ] {
        assert_eq!(models.context_length_error(400, body), None, "{body}");
    }
}

proptest! {
    #[test]
    fn any_answer_can_be_read(status: u16, body: String) {
        let _ = Models::builtin().context_length_error(status, &body);
    }

    /// A stated window is read back, however large, and nested however deep a gateway may.
    #[test]
    fn a_stated_window_is_read(window in 1_u32.., nested in 0_usize..3) {
        let mut body = format!("This model's maximum context length is {window} tokens.");
        for _ in 0..nested {
            body = serde_json::json!({"error": {"message": body}}).to_string();
        }
        let said = Models::builtin().context_length_error(400, &body);
        prop_assert_eq!(said, Some(ContextLengthError { window: Some(window) }));
    }

    #[test]
    fn any_model_name_has_a_family(name: String) {
        let _ = Models::builtin().family(&name);
    }
}
