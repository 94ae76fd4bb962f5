//! Tests of `dialect`.

use super::*;

#[test]
fn paths_are_told_apart_as_they_were_sent() {
    let table = [
        ("/v1/chat/completions", Some(Dialect::Chat)),
        ("/chat/completions", Some(Dialect::Chat)),
        (
            "/openai/deployments/gpt/chat/completions",
            Some(Dialect::Chat),
        ),
        ("/v1/chat/completions/", None),
        ("/v1/chat/completions/chatcmpl-1", None),
        ("/v1/chat%2Fcompletions", None),
        ("/v1/xchat/completions", None),
        ("/v1/completions", None),
        ("/v1/responses", Some(Dialect::Responses)),
        ("/v1/responses/resp_1", None),
        ("/v1/responses/compact", None),
        ("/v1/messages", Some(Dialect::Messages)),
        ("/messages", Some(Dialect::Messages)),
        ("/v1/messages/count_tokens", Some(Dialect::Messages)),
        ("/v1/messages/batches", None),
        ("/v1/threads/t/messages", None),
        ("/v1/models", None),
    ];
    for (path, wanted) in table {
        let found = Dialect::of_path(path).map(|(dialect, _)| dialect);
        assert_eq!(found, wanted, "{path}");
    }
}
