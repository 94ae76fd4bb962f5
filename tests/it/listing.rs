//! The list of sessions at the admin port: one row for each session, newest first, by pages, and a
//! clear answer to what is not understood.

use plimsoll::config::{Backend, Config};
use plimsoll_core::turn::StoreContent;
use plimsoll_scripted::{Reply, Script};
use serde_json::Value;

use super::agent::{Agent, provider};
use super::support::{Proxy, client, soon};

async fn get(proxy: &Proxy, query: &str) -> (u16, Value) {
    let url = format!("http://{}/api/sessions{query}", proxy.admin);
    let response = soon(client().get(url).send()).await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap())
}

fn names(page: &Value) -> Vec<String> {
    let rows = page["sessions"].as_array().unwrap().iter();
    rows.map(|row| row["session"].as_str().unwrap().to_owned())
        .collect()
}

/// A list that is filtered goes on behind a session that went on meanwhile.
#[tokio::test]
async fn a_page_begins_behind_a_row_that_has_moved() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let proxy = Proxy::before(provider.address).await;
    let mut agents = Vec::new();
    for task in 0..6 {
        let mut agent = Agent::new(&proxy, false).told(&format!("task {task}"));
        agent.turn().await;
        agents.push(agent.told("go on"));
    }
    let (_, first) = get(&proxy, "?model=gpt-4o&limit=2").await;
    let next = first["next"].as_str().unwrap();
    // The last of the page is the first of the list now.
    agents[4].turn().await;
    let (_, second) = get(&proxy, &format!("?model=gpt-4o&limit=9&cursor={next}")).await;
    let (mut all, rest) = (names(&first), names(&second));
    assert_eq!((all.len(), rest.len()), (2, 4));
    all.extend(rest);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6);
}

/// One search reads the texts of some sessions, and the next goes on where it stopped, until all were read: each
/// session is found, and once.
#[tokio::test]
async fn a_search_goes_on_until_all_texts_are_read() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let all = |config: &mut Config| config.store.content = StoreContent::All;
    let proxy = Proxy::with(provider.address, all).await;
    let mut wanted = Vec::new();
    for task in 0..505 {
        let bird = if task % 250 == 2 { "heron" } else { "gull" };
        let mut agent = Agent::new(&proxy, false).told(&format!("watch {bird} {task}"));
        let answer = agent.turn().await;
        if bird == "heron" {
            wanted.insert(0, answer.header("x-plimsoll-session").to_owned());
        }
    }
    let (mut found, mut older, mut left, mut answers) = (Vec::new(), String::new(), 506, 0);
    loop {
        let (status, page) = get(&proxy, &format!("?q=HERON&limit=1000{older}")).await;
        assert_eq!(status, 200, "{page}");
        found.extend(names(&page));
        let unsearched = page["unsearched"].as_u64().unwrap();
        assert!(
            unsearched < left && left - unsearched <= 501,
            "{unsearched} of {left}"
        );
        (left, answers) = (unsearched, answers + 1);
        match page["older"].as_str() {
            Some(next) => older = format!("&older={next}"),
            None => break,
        }
    }
    assert_eq!((found, left), (wanted, 0));
    assert!(answers > 1, "one answer reads no more than 500 sessions");
    // What a row itself shows is told by the first answer alone.
    let (_, page) = get(&proxy, &format!("?q=gpt-4o&limit=1000{older}")).await;
    assert_eq!(names(&page), Vec::<String>::new());
    let (status, refused) = get(&proxy, &older.replacen('&', "?", 1)).await;
    assert_eq!(status, 400, "{refused}");
}

#[tokio::test]
async fn each_session_has_a_row_and_the_newest_comes_first() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let scratch = tempfile::tempdir().unwrap();
    let proxy = Proxy::with(provider.address, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = scratch.path().to_owned();
    })
    .await;
    let mut ids = Vec::new();
    for task in 0..5 {
        let mut agent = Agent::new(&proxy, task % 2 == 0).told(&format!("task {task}"));
        let turns = 1 + task % 3;
        for turn in 1..=turns {
            let answer = agent.turn().await;
            ids.push((answer.header("x-plimsoll-session").to_owned(), turn));
            agent = agent.told("go on");
        }
    }
    let (status, all) = get(&proxy, "").await;
    assert_eq!((status, &all["next"]), (200, &Value::Null));
    assert_eq!(names(&all).len(), 5, "{all}");
    let rows = all["sessions"].as_array().unwrap();
    assert!(rows.is_sorted_by(|one, other| one["ended"].as_u64() >= other["ended"].as_u64()));
    for row in rows {
        let of = ids.iter().filter(|(id, _)| row["session"] == **id);
        assert_eq!(
            row["turn"].as_u64(),
            of.map(|(_, turn)| *turn).max(),
            "{row}"
        );
        assert!(row["began"].as_u64() <= row["ended"].as_u64());
        assert!(row["client_tokens"].as_u64() > Some(0) && row["view_tokens"].as_u64() > Some(0));
        assert_eq!(
            (row["content"].as_bool(), &row["parent"]),
            (Some(false), &Value::Null)
        );
        assert_eq!(row["tenant"].as_str().unwrap().len(), 64);
    }
    // By pages, and the same after a restart.
    let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let (status, page) = get(&proxy, &query).await;
        assert_eq!(status, 200);
        paged.extend(names(&page));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        query = format!("?limit=2&before={next}");
    }
    assert_eq!(paged, names(&all));
    proxy.end().await;
    let proxy = Proxy::with(provider.address, |config| {
        config.store.backend = Backend::Sled;
        config.store.path = scratch.path().to_owned();
    })
    .await;
    // What was in memory is gone, and nothing else.
    let mut gone = all.clone();
    for row in gone["sessions"].as_array_mut().unwrap() {
        row["live"] = false.into();
    }
    assert_eq!(get(&proxy, "").await, (200, gone));
    proxy.end().await;
}

#[tokio::test]
async fn what_the_list_does_not_understand_is_refused_with_what_it_takes() {
    let provider = provider(Script::ask(|_| Reply::text("done"))).await;
    let proxy = Proxy::before(provider.address).await;
    for (query, says) in [
        ("?limit=0", "from 1 to 1000"),
        (
            "?before=yesterday",
            "is not the `next` or `older` of an earlier page",
        ),
        ("?page=2", "`page` is no parameter of the list"),
        ("?parent=nobody", "16 hexadecimal digits"),
    ] {
        let (status, answer) = get(&proxy, query).await;
        assert_eq!(status, 400, "{query}");
        let told = answer["error"]["message"].as_str().unwrap();
        assert!(told.contains(says), "{query}: {told}");
    }
    let none = serde_json::json!({
        "sessions": [], "next": null, "total": 0, "unsearched": null, "older": null, "tree": null,
    });
    assert_eq!(get(&proxy, "?limit=1000").await, (200, none));
}
