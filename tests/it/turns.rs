//! Managed turns against a strict provider: hidden calls are answered, hidden from the client and
//! put back in the next request.

use plimsoll_scripted::Reply;

use super::agent::{
    Agent, act, bash, explore, extends, learned, none_refused, outline, plan, provider,
};
use super::support::Proxy;

#[tokio::test]
async fn hidden_calls_are_answered_and_come_back_upstream() {
    for stream in [false, true] {
        let alone = Reply::calls(vec![explore("d1", "a")]).saying("First.");
        let visible = Reply::calls(vec![bash("b1")]).saying("Then.");
        let mixed = vec![learned("d2", "seen"), bash("b2"), act("d3", "b", &["a"])];
        let provider = provider(plan([
            ("look around", vec![alone]),
            ("d1", vec![visible]),
            ("b1", vec![Reply::calls(mixed)]),
        ]))
        .await;
        let proxy = Proxy::before(provider.address).await;
        let mut agent = Agent::new(&proxy, stream).told("look around");
        assert_eq!(agent.work("x y").await.heard.text, "First.\n\nThen.");
        assert_eq!(agent.work("/").await.heard.calls.len(), 1);
        assert_eq!(agent.turn().await.heard.text, "done");
        none_refused(&provider);
        let requests = provider.chats();
        assert_eq!(requests.len(), 4);
        assert_eq!(
            outline(&requests[3]),
            [
                "system",
                "user",
                "assistant d1",
                "tool d1",
                "assistant b1",
                "tool b1",
                "assistant d2 b2 d3",
                "tool d2",
                "tool d3",
                "tool b2"
            ]
        );
        extends(&requests);
        let last = requests[3].value();
        assert_eq!(last["tools"][0]["function"]["name"], "delimiter");
    }
}
