//! Many short messages that come at once: they share blobs, and are read, exported and erased as any others.

use bytes::Bytes;
use plimsoll_console::inspect::{Archive, erasure, export};
use plimsoll_model::{Digest, Erased};
use plimsoll_store::Store;
use serde_json::{Value, json};

use super::references::{Asker, provider};
use super::support::Proxy;

/// All blobs of a store.
fn blobs(store: &Store) -> Vec<(Digest, Bytes)> {
    let mut blobs = Vec::new();
    let read = store.each(&mut |batch| {
        blobs.extend(batch.blobs);
        Ok(())
    });
    read.map(|()| blobs).unwrap()
}

/// A message of a client that gives ids of its own. One of them is long.
fn own(number: usize) -> Value {
    let text = "word ".repeat(if number == 150 { 400 } else { 2 });
    json!({"type": "message", "id": format!("mine_{number}"), "role": "user",
        "content": format!("{number} {text}")})
}

/// A request of the session `s`.
fn asked(more: &Value) -> Value {
    let mut asked = json!({"prompt_cache_key": "s"});
    asked
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    asked
}

/// A store has memory for each blob, so short messages of one turn share one. A few stay apart, and so do long ones.
#[tokio::test]
async fn what_many_short_messages_said_is_kept_together_and_found_by_their_ids() {
    let provider = provider().await;
    for (count, kept) in [(300, 9..26), (10, 12..16)] {
        let proxy = Proxy::before(provider.addr).await;
        let asker = Asker::of(&proxy, false);
        let history: Vec<Value> = (0..count).map(own).collect();
        let first = asker.ask(asked(&json!({"input": history}))).await;
        let found = blobs(&proxy.app.store).len();
        assert!(kept.contains(&found), "{count} messages: {found} blobs");

        let last = json!({"role": "user", "content": "next"});
        let on = asked(&json!({"previous_response_id": first.id(), "input": [last]}));
        let on = asker.ask(on).await;
        assert_eq!((on.status, on.unmanaged()), (200, None));
        let whole: Vec<Value> = history
            .iter()
            .chain(first.body["output"].as_array().unwrap())
            .chain([&last])
            .cloned()
            .collect();
        assert_eq!(provider.newest()["input"], json!(whole));

        let named: Vec<usize> = [0, 3, 150, 299]
            .into_iter()
            .filter(|at| *at < count)
            .collect();
        let input = named
            .iter()
            .map(|at| json!({"type": "item_reference", "id": format!("mine_{at}")}));
        let answer = json!({"id": first.body["output"][0]["id"]});
        let input: Vec<Value> = input.chain([answer, last.clone()]).collect();
        let by_name = asker.ask(asked(&json!({"input": input}))).await;
        assert_eq!((by_name.status, by_name.unmanaged()), (200, None));
        let whole = named.iter().map(|at| own(*at));
        let whole: Vec<Value> = whole
            .chain([first.body["output"][0].clone(), last])
            .collect();
        assert_eq!(provider.newest()["input"], json!(whole));
    }
}

#[tokio::test]
async fn what_many_short_messages_said_is_exported_and_erased() {
    let provider = provider().await;
    let proxy = Proxy::before(provider.addr).await;
    let asker = Asker::of(&proxy, false);
    let history: Vec<Value> = (0..100).map(own).collect();
    asker.ask(asked(&json!({"input": history}))).await;
    let store = &proxy.app.store;
    let archive = Archive::read(store).unwrap();
    let branch = &archive.branches()[0];
    let whole = export(store, branch).unwrap();
    assert!(whole.content);
    // In front of them stand a line about the session and the instructions.
    let lines = whole.text.lines().skip(2).take(history.len());
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, history);

    let said = |bytes: &Bytes| bytes.windows(5).any(|text| text == b"mine_");
    let with_text: Vec<Digest> = blobs(store)
        .iter()
        .filter(|(_, bytes)| said(bytes))
        .map(|(id, _)| *id)
        .collect();
    assert!((2..20).contains(&with_text.len()));
    let found = erasure(store, &Erased::Session(branch.session.clone())).unwrap();
    assert!(with_text.iter().all(|id| found.ids.contains(id)));
}
