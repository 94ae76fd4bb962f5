//! Pictures in results: `recall` brings them back as they were, in each dialect's form, also after the client has dropped
//! them, and says so where they don't fit. Over HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::dialects::{Agent, DIALECTS, Dialect, Provider, Reply, Sent, call, file, says};
use super::support::Proxy;

/// The beginning of a PNG of this size, which is all that is read of one.
fn png(width: u32, height: u32, bytes: usize) -> String {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend(width.to_be_bytes());
    png.extend(height.to_be_bytes());
    png.extend([8, 2, 0, 0, 0]);
    png.resize(png.len() + bytes, 7);
    STANDARD.encode(png)
}

/// A picture as a part of a result.
fn part(dialect: Dialect, data: &str) -> Value {
    let url = format!("data:image/png;base64,{data}");
    match dialect {
        Dialect::Chat => json!({"type": "image_url", "image_url": {"url": url}}),
        Dialect::Responses => json!({"type": "input_image", "image_url": url}),
        Dialect::Messages => json!({"type": "image", "cache_control": {"type": "ephemeral"},
            "source": {"type": "base64", "media_type": "image/png", "data": data}}),
    }
}

/// A model that looks at a screen, reads fourteen files, and then does what the user says.
fn reply(sent: &Sent) -> Reply {
    let key = sent.key();
    let id = format!("c{}", sent.calls().len());
    let does = |name: &str, arguments: String| says("", vec![call(&id, name, arguments)]);
    match key.strip_prefix('c').and_then(|number| number.parse().ok()) {
        Some(14) => says("done", Vec::new()),
        Some(number @ 0..14) => does(
            "Read",
            format!(r#"{{"file_path":"/src/{}.rs"}}"#, number + 1_usize),
        ),
        Some(_) => says("done", Vec::new()),
        None if key == "go" => does("Read", r#"{"file_path":"/screen"}"#.to_owned()),
        None if key.starts_with("recall ") => {
            does("recall", key.trim_start_matches("recall ").to_owned())
        }
        None => says("done", Vec::new()),
    }
}

/// Plays that with a picture of this data.
async fn played(proxy: &Proxy, (dialect, stream): (Dialect, bool), data: &str) -> Agent {
    let mut agent = Agent::new(proxy, dialect, stream, "s");
    agent.tools = vec!["Read"];
    agent.user("go");
    agent
        .work(|agent, call| {
            if !call.arguments.contains("/screen") {
                agent.result(&call.id, &file(agent.history.len()));
                return;
            }
            agent.result(&call.id, "");
            let text = json!({"type": if dialect == Dialect::Responses { "input_text" } else { "text" }, "text": "the screen:"});
            let parts = json!([text, part(dialect, data)]);
            let last = agent.history.last_mut().unwrap();
            match dialect {
                Dialect::Chat => last["content"] = parts,
                Dialect::Responses => last["output"] = parts,
                Dialect::Messages => last["content"][0]["content"] = parts,
            }
        })
        .await;
    agent
}

/// What a recall of the screen brought.
async fn recalled(agent: &mut Agent, provider: &Provider) -> String {
    agent.user(r#"recall {"id":"/screen"}"#);
    agent.turn().await;
    let sent = provider.newest();
    sent.result(&sent.calls().pop().unwrap().id).unwrap()
}

#[tokio::test]
async fn a_recall_brings_a_picture_back_as_it_was() {
    for (dialect, stream) in DIALECTS
        .into_iter()
        .flat_map(|dialect| [(dialect, false), (dialect, true)])
    {
        // Formats count by tiles or by the area.
        let data = match dialect {
            Dialect::Messages => png(1_100, 1_000, 3_000),
            Dialect::Chat | Dialect::Responses => png(800, 600, 3_000),
        };
        let provider = Provider::start(|_, sent| reply(sent)).await;
        let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = 8_000).await;
        let mut agent = played(&proxy, (dialect, stream), &data).await;
        let gone = String::from_utf8(provider.newest().bytes).unwrap();
        assert!(!gone.contains(&data), "{dialect:?}: it was evicted");
        let before = agent.clone();
        let brought = recalled(&mut agent, &provider).await;
        let parts: Vec<Value> =
            serde_json::from_str(&brought).unwrap_or_else(|_| panic!("{dialect:?} {brought}"));
        let text = parts[0]["text"].as_str().unwrap();
        assert!(
            text.starts_with("recalled Read:") && text.ends_with("the screen:[an image]"),
            "{text}"
        );
        let mut whole = part(dialect, &data);
        // A breakpoint is the client's, and there may be four of them.
        whole.as_object_mut().unwrap().remove("cache_control");
        assert_eq!(parts[1..], [whole], "{dialect:?}");
        // It stands where it stood with every later request, and is not brought back twice.
        agent.user("go on");
        agent.turn().await;
        let sent = provider.newest();
        let id = sent.calls().pop().unwrap().id;
        assert_eq!(sent.result(&id), Some(brought));
        let again = recalled(&mut agent, &provider).await;
        assert!(again.contains("still in view"), "{again}");
        // So it is after the client has dropped its history.
        let mut anew = before;
        anew.history.clear();
        anew.user("Summary: a screen was looked at.");
        anew.turn().await;
        let brought = recalled(&mut anew, &provider).await;
        assert!(brought.contains(&data), "{dialect:?}: {brought}");
    }
}

#[tokio::test]
async fn pictures_that_do_not_fit_are_named() {
    // Some are too many tokens for a quarter of the budget, and some too many bytes for a record.
    for (dialect, data) in [
        (Dialect::Messages, png(2_000, 2_000, 100)),
        (Dialect::Chat, png(800, 600, 5 << 20)),
        (Dialect::Responses, png(800, 600, 5 << 20)),
    ] {
        let provider = Provider::start(|_, sent| reply(sent)).await;
        let proxy = Proxy::with(provider.addr, |config| config.budget.ceiling = 4_000).await;
        let mut agent = played(&proxy, (dialect, false), &data).await;
        let brought = recalled(&mut agent, &provider).await;
        assert!(
            brought.contains(", without its pictures, which don't fit: "),
            "{dialect:?}: {brought}"
        );
        assert!(brought.ends_with("the screen:[an image]"), "{brought}");
    }
}
