//! Several policies over one view, seen from the provider: results that come again become pointers,
//! large ones are clipped when they come in, and what nobody asked to edit stays as it is.

use plimsoll_model::Globs;
use plimsoll_scripted::{Call, Provider, Reply, Script};
use serde_json::{Value, json};

use super::agent::{Agent, Answer, bash, extends, none_refused, plan, provider};
use super::support::Proxy;

/// The output of a build: steps, and one that failed.
fn log(steps: usize) -> String {
    let step = |at: usize| match at {
        40 => "error[E0308]: mismatched types in src/fold.rs:40".to_owned(),
        _ => format!("   Compiling crate_{at} v1.{at}.0 (registry, checked, as it was before)"),
    };
    let lines: Vec<String> = (0..steps).map(step).collect();
    format!(
        "Exit code 1\n{}\nerror: could not compile `fold`",
        lines.join("\n")
    )
}

/// Calls one after the other, and what the provider was sent.
async fn served(ladder: &str, calls: &[(Call, String)]) -> (Provider, Vec<Answer>) {
    served_until(ladder, calls, Reply::text("done")).await
}

/// The same, with a last answer.
async fn served_until(
    ladder: &str,
    calls: &[(Call, String)],
    last: Reply,
) -> (Provider, Vec<Answer>) {
    let mut keys = vec!["go".to_owned()];
    keys.extend(calls.iter().map(|(call, _)| call.id.clone()));
    let turns = keys.iter().zip(calls);
    let turns =
        turns.map(|(key, (call, _))| (key.as_str(), vec![Reply::calls(vec![call.clone()])]));
    let newest = keys.last().unwrap().as_str();
    let turns = turns.chain([(newest, vec![last])]);
    let provider = provider(plan(turns)).await;
    let proxy = Proxy::with(provider.address, |config| {
        config.budget.admit.limits.tokens = 500;
        config.budget.admit.except = Globs::new(&["spared*".to_owned()]).unwrap();
    })
    .await;
    let mut agent = Agent::new(&proxy, false)
        .told("go")
        .with("x-plimsoll-policy", ladder);
    let mut answers = Vec::new();
    for (_, result) in calls {
        answers.push(agent.work(result).await);
    }
    answers.push(agent.turn().await);
    none_refused(&provider);
    extends(&provider.chats());
    (provider, answers)
}

/// The texts of all results as they were last sent.
fn results(provider: &Provider) -> Vec<String> {
    let last = provider.chats().last().unwrap().value();
    let messages = last["messages"].as_array().unwrap().iter();
    messages
        .filter(|one| one["role"] == "tool")
        .map(|one| one["content"].as_str().unwrap().to_owned())
        .collect()
}

/// Of a result that repeats another one in part: the other's id, what its first line says behind that, and the rest.
fn repeated(shown: &str) -> (&str, &str, &str) {
    let (head, rest) = shown.split_once('\n').unwrap();
    let head = head.strip_prefix("[repeats ").unwrap();
    let (id, head) = head.split_once(" in part, ").unwrap();
    (id, head, rest)
}

fn made(id: &str, tool: &str, arguments: &Value) -> Call {
    Call::new(id, tool, arguments.to_string())
}

#[tokio::test]
async fn a_result_that_is_still_shown_is_pointed_to() {
    let (long, short) = (log(60), "ok".to_owned());
    let same = json!({"path": "src/fold.rs"});
    let calls = [
        (made("r1", "read", &same), long.clone()),
        (bash("b1"), short.clone()),
        (made("r2", "read", &same), long.clone()),
        (bash("b2"), long.clone()),
        (bash("b3"), short.clone()),
        (made("r3", "read", &same), format!("{long}\n")),
    ];
    let (provider, _) = served("repeat+cwl", &calls).await;
    let shown = results(&provider);
    assert_eq!(shown[0], long, "the first stays whole");
    let number = shown[2].split(['[', ',']).nth(1).unwrap();
    assert!(number.starts_with("unchanged since read:"), "{}", shown[2]);
    assert!(shown[2].contains("the same call"), "{}", shown[2]);
    assert!(
        shown[3].starts_with("[unchanged since read:"),
        "{}",
        shown[3]
    );
    assert!(
        shown[3].contains("src/fold.rs"),
        "it says which call: {}",
        shown[3]
    );
    assert_eq!(
        (&shown[1], &shown[4]),
        (&short, &short),
        "too short to gain by"
    );
    let (id, _, rest) = repeated(&shown[5]);
    assert_eq!(
        rest,
        format!("[lines 1 to 62 of {id}]\n"),
        "one line break more is another text of the same lines"
    );
}

#[tokio::test]
async fn of_a_log_that_is_polled_what_is_new_is_shown() {
    let read = json!({"path": "build.log"});
    let line =
        |at: usize| format!("   Compiling crate_{at} v1.{at}.0 (registry, as it was before)\n");
    let lines = |from, to| (from..to).map(line).collect::<String>();
    let polled = |id: &str, from, to| (made(id, "bash", &read), lines(from, to));
    let calls = [
        polled("b1", 0, 50),
        polled("b2", 0, 60),
        polled("b3", 20, 70),
        (made("r1", "read", &read), lines(0, 55)),
        polled("b4", 20, 70),
    ];
    let (provider, _) = served("repeat+cwl", &calls).await;
    let shown = results(&provider);
    assert_eq!(shown[0], calls[0].1, "the first stays whole");
    for (at, first, new) in [
        (1, "its first 50 lines are all 50 lines of", lines(50, 60)),
        (
            2,
            "its first 30 lines are the last 30 of the 50 lines of",
            lines(50, 70),
        ),
        (
            4,
            "its first 30 lines are the last 30 of the 50 lines of",
            lines(50, 70),
        ),
    ] {
        let (head, rest) = shown[at].split_once('\n').unwrap();
        assert!(head.starts_with("[continues bash:"), "{head}");
        assert!(head.contains(first), "{head}");
        assert!(head.contains("the same call above"), "{head}");
        assert_eq!(rest, new);
    }
    let (head, rest) = shown[3].split_once('\n').unwrap();
    let first = "its first 50 lines are all 50 lines of the result of bash {";
    assert!(head.contains(first), "{head}");
    assert_eq!(rest, lines(50, 55), "whatever tool brings it");
}

#[tokio::test]
async fn of_a_file_that_is_read_again_after_an_edit_the_edit_is_shown() {
    let line = |at: usize| format!("    let value_{at} = self.read_value({at})?;\n");
    let lines = |from, to| (from..to).map(line).collect::<String>();
    let edited = format!("{}    // as it was\n{}", lines(0, 30), lines(31, 60));
    let calls = [
        (
            made("r1", "read", &json!({"path": "src/fold.rs"})),
            lines(0, 60),
        ),
        (made("r2", "read", &json!({"path": "src/fold.rs"})), edited),
    ];
    let (provider, _) = served("repeat+cwl", &calls).await;
    let shown = results(&provider);
    assert_eq!(shown[0], calls[0].1);
    let (id, head, rest) = repeated(&shown[1]);
    let same = "of the 60 lines that the result of the same call above shows]";
    assert!(head.ends_with(same), "{head}");
    assert_eq!(
        rest,
        format!("[lines 1 to 30 of {id}]\n    // as it was\n[lines 32 to 60 of {id}]\n")
    );
}

#[tokio::test]
async fn nothing_points_where_nobody_asks_for_it() {
    let calls = [(bash("b1"), log(60)), (bash("b2"), log(60))];
    let (provider, _) = served("cwl", &calls).await;
    assert_eq!(results(&provider), [log(60), log(60)]);
}

#[tokio::test]
async fn a_large_result_is_clipped_when_it_comes_in_and_never_again() {
    let read = json!({"path": "build.log"});
    let calls = [
        (bash("b1"), log(200)),
        (made("r1", "read", &read), log(200)),
        (made("s1", "spared_shell", &read), log(200)),
        (bash("b2"), log(5)),
    ];
    let (provider, _) = served("admit+cwl", &calls).await;
    let shown = results(&provider);
    assert!(shown[0].starts_with("[clipped bash:"), "{}", shown[0]);
    for kept in ["Exit code 1", "error[E0308]", "could not compile `fold`"] {
        assert!(shown[0].contains(kept), "{kept}: {}", shown[0]);
    }
    assert!(shown[0].contains(" lines left out]"), "{}", shown[0]);
    assert_eq!(shown[1], log(200), "what is read is exempt");
    assert_eq!(shown[2], log(200), "and so is what the settings name");
    assert_eq!(shown[3], log(5), "and what is small");
}

#[tokio::test]
async fn a_search_that_is_made_to_read_is_exempt_as_reads_are() {
    // Matches in ten files, with so many lines on either side.
    let found = |file: usize, beside: usize| {
        let line = |at: usize| {
            let sign = if at == 40 { ':' } else { '-' };
            format!("src/part_{file}.rs{sign}{at}{sign}    let value_{at} = self.read({at})?;\n")
        };
        (40 - beside..=40 + beside).map(line).collect::<String>()
    };
    let search = |beside| (0..10).map(|file| found(file, beside)).collect::<String>();
    let one = (1..200).map(|at| match at % 50 {
        25 => format!("{at}:    let value_{at} = self.read({at})?;\n"),
        _ => format!("{at}-    let value_{at} = self.read({at})?;\n"),
    });
    let calls = [
        (bash("b1"), search(3)),
        (bash("b2"), search(6)),
        (bash("b3"), one.collect()),
    ];
    let (provider, _) = served("admit+cwl", &calls).await;
    let shown = results(&provider);
    assert!(shown[0].starts_with("[clipped bash:"), "{}", shown[0]);
    assert_eq!(shown[1], calls[1].1, "six lines on either side");
    assert_eq!(shown[2], calls[2].1, "of one file, which has no path");
}

#[tokio::test]
async fn a_call_that_brings_the_same_again_and_again_is_told() {
    let same = json!({"c": "cargo test"});
    let call = |id: &str| (made(id, "bash", &same), "1 failed".to_owned());
    let calls = [call("b1"), call("b2"), call("b3"), call("b4")];
    for (ladder, line) in [("cwl", false), ("loop-guard+cwl", true)] {
        let (provider, answers) = served(ladder, &calls).await;
        let told: Vec<&str> = answers
            .iter()
            .map(|answer| answer.header("x-plimsoll-loop"))
            .collect();
        assert_eq!(told, ["", "", "", "3", "4"], "{ladder}");
        let shown = results(&provider);
        assert_eq!(&shown[..2], ["1 failed", "1 failed"]);
        let with = |times: u32| match line {
            true => {
                format!("1 failed\n[this call has brought the same result {times} times running]")
            }
            false => "1 failed".to_owned(),
        };
        assert_eq!(&shown[2..], [with(3), with(4)]);
    }
}

#[tokio::test]
async fn what_is_clipped_or_pointed_to_comes_back_whole() {
    let read = json!({"path": "build.log"});
    let grown = format!("{}\nwarning: 1 warning emitted\nretrying", log(60));
    let calls = [
        (bash("b1"), log(200)),
        (made("r1", "read", &read), log(60)),
        (made("r2", "read", &read), log(60)),
        (made("r3", "read", &read), grown.clone()),
    ];
    let (provider, _) = served("repeat+admit+cwl", &calls).await;
    let shown = results(&provider);
    let id = shown[0].split(['[', ',']).nth(1).unwrap();
    let clipped = id.strip_prefix("clipped ").unwrap();
    let (_, first) = clipped.split_once(':').unwrap();
    // Each call is three numbers behind the one before: a message, its reasoning, its text.
    let number = |calls: u32| format!("read:{}", first.parse::<u32>().unwrap() + 3 * calls);
    let (pointer, continued) = (number(2), number(3));
    assert!(shown[3].starts_with("[continues read:"), "{}", shown[3]);
    let all = [
        (clipped, log(200)),
        (pointer.as_str(), log(60)),
        (continued.as_str(), grown),
    ];
    for (id, whole) in all {
        let recall = Call::new("x1", "recall", json!({"id": id}).to_string());
        let last = Reply::calls(vec![recall]);
        let (provider, _) = served_until("repeat+admit+cwl", &calls, last).await;
        let shown = results(&provider);
        let back = shown.last().unwrap();
        assert!(back.ends_with(&whole), "{id}: {back:.200}");
    }
}

#[tokio::test]
async fn a_call_that_is_written_as_text_is_told_of_too() {
    let provider = provider(Script::ask(|_| Reply::text("Action: run the tests"))).await;
    let proxy = Proxy::before(provider.address).await;
    let mut agent = Agent::new(&proxy, false)
        .told("go")
        .with("x-plimsoll-profile", "mini-swe-agent");
    let mut told = Vec::new();
    for _ in 0..4 {
        let answer = agent.turn().await;
        told.push(answer.header("x-plimsoll-loop").to_owned());
        agent.user("<returncode>1</returncode>\n<output>\n1 failed\n</output>");
    }
    assert_eq!(told, ["", "", "", "3"]);
    agent.history.pop();
    agent.user("<returncode>0</returncode>\n<output>\nall passed\n</output>");
    let other = agent.turn().await;
    assert_eq!(
        other.header("x-plimsoll-loop"),
        "",
        "another result ends it"
    );
}
