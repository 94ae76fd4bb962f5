//! Tests of `target`.

use super::*;

fn join(base: &str, asked: &str) -> Result<String, UpstreamError> {
    let asked = PathAndQuery::try_from(asked).unwrap();
    BaseUrl::parse(base)
        .unwrap()
        .join(&asked)
        .map(|url| url.to_string())
}

#[test]
fn client_paths_stand_under_the_base() {
    let table = [
        ("https://h/v1", "/v1/models", "https://h/v1/models"),
        ("https://h/v1", "/models", "https://h/v1/models"),
        ("https://h/v1/", "/v1", "https://h/v1"),
        (
            "https://chatgpt.com/backend-api/codex",
            "/v1/responses",
            "https://chatgpt.com/backend-api/codex/responses",
        ),
        ("https://h/v1", "/v1beta/x", "https://h/v1beta/x"),
        (
            "https://h/api/paas/v4",
            "/v1/chat/completions",
            "https://h/api/paas/v4/chat/completions",
        ),
        (
            "https://h",
            "/openai/deployments/d/chat/completions?api-version=1",
            "https://h/openai/deployments/d/chat/completions?api-version=1",
        ),
        (
            "http://h:1/v1",
            "//evil.example/x",
            "http://h:1//evil.example/x",
        ),
        (
            "http://h:1/v1",
            "/v1//evil.example/x",
            "http://h:1/v1//evil.example/x",
        ),
        (
            "http://h:1/v1",
            "/@evil.example/x",
            "http://h:1/@evil.example/x",
        ),
        (
            "https://h/v1",
            "/v1/files/a%2Fb?x=%20&y",
            "https://h/v1/files/a%2Fb?x=%20&y",
        ),
    ];
    for (base, asked, wanted) in table {
        assert_eq!(join(base, asked).unwrap(), wanted, "{base} + {asked}");
    }
}

#[test]
fn bases_are_taken_as_people_write_them() {
    let openai = "https://api.openai.com/v1/responses";
    for base in [
        "https://api.openai.com",
        "https://api.openai.com/",
        "https://api.openai.com/v1",
        "https://api.openai.com/v1/",
        " https://API.openai.com/v1// ",
        "https://api.openai.com/v1/chat/completions",
        "https://api.openai.com/v1/responses/",
        "https://api.openai.com/v1/messages",
        "https://api.openai.com/v1/messages/count_tokens",
        "https://api.openai.com/v1/models",
    ] {
        assert_eq!(join(base, "/v1/responses").unwrap(), openai, "{base}");
        assert_eq!(join(base, "/responses").unwrap(), openai, "{base}");
    }
    for (base, asked, wanted) in [
        // Nothing is known of the host: what the client writes is what is asked for.
        ("http://h:8000", "/v1/models", "http://h:8000/v1/models"),
        ("http://h:8000/", "/v1/models", "http://h:8000/v1/models"),
        ("http://h:8000", "/models", "http://h:8000/models"),
        // This one says where its endpoints are.
        ("http://h/chat/completions", "/v1/models", "http://h/models"),
        (
            "https://openrouter.ai",
            "/v1/models",
            "https://openrouter.ai/api/v1/models",
        ),
        (
            "https://api.githubcopilot.com",
            "/v1/models",
            "https://api.githubcopilot.com/models",
        ),
    ] {
        assert_eq!(join(base, asked).unwrap(), wanted, "{base} + {asked}");
    }
}

#[test]
fn what_no_api_has_under_its_version_stands_under_the_root() {
    let ollama = "http://h:11434/v1";
    let router = "https://openrouter.ai/api/v1";
    let gemini = "https://h/v1beta/openai";
    for (base, asked, wanted) in [
        (ollama, "/api/tags", "http://h:11434/api/tags"),
        (ollama, "/api/chat", "http://h:11434/api/chat"),
        (ollama, "/", "http://h:11434/"),
        (ollama, "/models/m", "http://h:11434/v1/models/m"),
        (ollama, "/v1/api/tags", "http://h:11434/v1/api/tags"),
        (ollama, "/version?x=/v1", "http://h:11434/version?x=/v1"),
        ("http://h/ollama/v1", "/api/ps", "http://h/ollama/api/ps"),
        (
            "http://h/ollama/v1",
            "/ollama/api/ps",
            "http://h/ollama/api/ps",
        ),
        // Whoever knows the upstream's own paths may write them.
        (router, "/api/tags", "https://openrouter.ai/api/tags"),
        (
            router,
            "/api/v1/models",
            "https://openrouter.ai/api/v1/models",
        ),
        (router, "/apiary", "https://openrouter.ai/api/apiary"),
        (router, "/key", "https://openrouter.ai/api/v1/key"),
        (gemini, "/v1beta/models/m:x", "https://h/v1beta/models/m:x"),
        (gemini, "/models", "https://h/v1beta/openai/models"),
        // Without a version there is nothing to stand beside.
        ("https://h/inference", "/info", "https://h/inference/info"),
        (
            "https://h/v1",
            "/openai/deployments/d/chat/completions",
            "https://h/v1/openai/deployments/d/chat/completions",
        ),
        (
            "https://h/openai/v1",
            "/openai/deployments/d/chat/completions",
            "https://h/openai/deployments/d/chat/completions",
        ),
    ] {
        assert_eq!(join(base, asked).unwrap(), wanted, "{base} + {asked}");
    }
}

#[test]
fn the_proxys_own_addresses_are_known() {
    for (base, own, same) in [
        ("http://127.0.0.1:8787/v1", "127.0.0.1:8787", true),
        ("http://localhost:8787", "127.0.0.1:8787", true),
        ("http://localhost:8787", "[::1]:8787", true),
        ("http://[::1]:8787", "[::1]:8787", true),
        ("http://127.0.0.1:8787", "0.0.0.0:8787", true),
        ("http://[::1]:8787", "[::]:8787", true),
        ("http://0.0.0.0:8787", "127.0.0.1:8787", true),
        ("https://127.0.0.1", "127.0.0.1:443", true),
        ("http://127.0.0.1:8788", "127.0.0.1:8787", false),
        ("http://10.0.0.1:8787", "127.0.0.1:8787", false),
        ("http://127.0.0.1:0", "127.0.0.1:0", false),
        ("https://h:8787", "127.0.0.1:8787", false),
    ] {
        let reaches = BaseUrl::parse(base).unwrap().reaches(own.parse().unwrap());
        assert_eq!(reaches, same, "{base} {own}");
    }
}

#[test]
fn dot_segments_never_leave_the_base() {
    for asked in [
        "/v1/../admin",
        "/..",
        "/v1/%2e%2E/x",
        "/a/./b",
        "/v1/.%2e/x",
        "/a/..?q",
        "/api/../admin",
        "/api\\..\\admin",
    ] {
        assert!(
            matches!(join("https://h/v1", asked), Err(UpstreamError::Path)),
            "{asked}"
        );
    }
}

#[test]
fn base_urls_hold_no_more_than_they_must() {
    for text in ["ftp://h", "h/v1", "", "https://"] {
        assert!(
            matches!(BaseUrl::parse(text), Err(BaseUrlError::Url)),
            "{text}"
        );
    }
    for text in ["https://u:p@h", "https://h/?a", "https://h/#a"] {
        assert!(
            matches!(BaseUrl::parse(text), Err(BaseUrlError::Extra)),
            "{text}"
        );
    }
}
