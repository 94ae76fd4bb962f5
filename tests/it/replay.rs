//! `plimsoll replay` and `plimsoll tune` as they are run by hand, on the session that the demo comes
//! with: tables, JSON, the page, the story of one item, a recommendation, and what they say where
//! they can't do what was asked.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn bundled() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/demo/session.jsonl.zst")
}

fn replay(arguments: &[&str]) -> Output {
    run("replay", arguments)
}

fn run(command: &str, arguments: &[&str]) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll.arg(command).arg(bundled()).args(arguments);
    plimsoll.output().unwrap()
}

/// What `replay` says of files of one's own, which must not keep it for long.
fn replayed(path: &std::path::Path) -> Output {
    let mut plimsoll = Command::new("timeout");
    plimsoll.arg("60").arg(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll
        .arg("replay")
        .arg(path)
        .args(["--policies", "none"]);
    plimsoll.output().unwrap()
}

/// A file of some kilobytes that holds half a gigabyte and more is refused, and the refusal says what to do.
#[test]
fn a_file_that_unpacks_to_too_much_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.jsonl.zst");
    let lines = std::io::repeat(b'\n').take((512 << 20) + 1);
    std::fs::write(&file, zstd::encode_all(lines, 1).unwrap()).unwrap();
    let output = replayed(&file);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("unpacks to more than 512 MiB: unpack it yourself"),
        "{said}"
    );
}

/// What never ends or leads in a circle does not keep a replay: named it is refused, and in a directory it
/// is passed over with a note.
#[test]
fn pipes_and_links_in_a_circle_do_not_keep_a_replay() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::copy(bundled(), root.join("session.jsonl.zst")).unwrap();
    let pipe = root.join("pipe.jsonl");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let output = replayed(&pipe);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("pipe.jsonl is no file"), "{said}");
    std::os::unix::fs::symlink(root, root.join("round")).unwrap();
    let output = replayed(root);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for note in [
        "pipe.jsonl is no file",
        "round is a link to a directory that is read",
    ] {
        assert!(said.contains(note), "{note}: {said}");
    }
    assert!(text(&output.stdout).contains("1 session, "));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The figures that every policy has.
const FIGURES: [&str; 19] = [
    "requests",
    "tokens_sent",
    "peak",
    "over_budget",
    "prune_rate",
    "passes",
    "passes_above_floor",
    "runs_above_floor",
    "prefix_breaks",
    "cached_share",
    "cost",
    "usd",
    "retention_visible",
    "retention_recoverable",
    "retention_lines",
    "retention_passages",
    "no_impact_rate",
    "refetches",
    "us_per_request",
];

#[test]
fn policies_are_compared_in_a_table_and_as_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let output = replay(&[
        "--policies",
        "cwl,none",
        "--budget",
        "40000",
        "--json",
        file.to_str().unwrap(),
    ]);
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "no terminal, no progress");
    for row in ["policy", "cwl ", "none "] {
        assert!(
            shown.lines().any(|line| line.starts_with(row)),
            "{row}: {shown}"
        );
    }
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let session = &json["sessions"][0];
    assert!(session["name"].is_string() && session["tokens"].as_u64() > Some(100_000));
    for (policies, whose) in [(&json["policies"], "all"), (&session["policies"], "one")] {
        let names: Vec<&str> = policies
            .as_array()
            .unwrap()
            .iter()
            .map(|policy| policy["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["cwl", "none"], "{whose}");
        for figure in FIGURES {
            let number = |at: usize| policies[at][figure].as_f64();
            assert!(
                number(0).is_some() && number(1).is_some(),
                "{whose} {figure}"
            );
        }
    }
    let (cwl, none) = (&json["policies"][0], &json["policies"][1]);
    assert_eq!(none["retention_visible"], 1.0);
    assert!(cwl["passes"].as_u64() > Some(0) && cwl["peak"].as_u64() <= Some(40_000));
    assert!(cwl["cost"].as_f64() < none["cost"].as_f64());
}

#[test]
fn thoughts_are_made_up_charged_and_told_of_each_play() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let figures = |arguments: &[&str]| -> (String, Value) {
        let mut all = vec!["--policies", "none,cwl", "--budget", "40000"];
        all.extend(["--json", file.to_str().unwrap()]);
        all.extend(arguments);
        let output = replay(&all);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        (text(&output.stdout), json)
    };
    let (shown, plain) = figures(&[]);
    assert!(plain["settings"].get("think").is_none() && !shown.contains("thinks"));
    assert!(plain["sessions"][0].get("plays").is_none());

    let (shown, json) = figures(&["--think", "800", "--family", "bound"]);
    assert!(shown.contains("Every answer thinks 800 tokens"), "{shown}");
    let think = serde_json::json!({"tokens": 800, "spread": 0});
    assert_eq!(json["settings"]["think"], think);
    assert_eq!(json["settings"]["family"], "bound");
    let [none, cwl] = json["sessions"][0]["plays"].as_array().unwrap().as_slice() else {
        panic!("{}", json["sessions"][0]["plays"]);
    };
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
    let answers = number(none, "requests");
    let output = number(none, "cost_of_thoughts") / 5.0;
    assert!((output / (800.0 * answers) - 1.0).abs() < 0.02, "{output}");
    assert_eq!(cwl["cost_of_thoughts"], none["cost_of_thoughts"]);
    assert!(number(none, "cost") > number(&plain["policies"][0], "cost") + 4.0 * output);
    // All that was said is sent again, the thoughts with it.
    let grown = number(none, "came_in") - number(&plain["policies"][0], "peak");
    assert!(grown > 0.5 * 800.0 * answers, "{grown}");
    let over = none["over"].as_array().unwrap();
    assert_eq!(over.len() as u64, json["policies"][0]["over_budget"]);
    for one in over {
        assert!(number(one, "sent") > 40_000.0 && number(one, "kept") < number(one, "sent"));
        assert_eq!(one["kept_over"], number(one, "kept") > 40_000.0);
        assert!(number(one, "thoughts") >= 780.0);
    }
    let passes = cwl["passes"].as_array().unwrap();
    assert_eq!(passes.len() as u64, json["policies"][1]["passes"]);
    for pass in passes {
        assert!(number(pass, "floor") < 40_000.0 && number(pass, "after") < number(pass, "before"));
        assert!(number(pass, "came_in") > 0.0 && pass["trigger"] == "budget");
    }
    assert!(number(cwl, "mean_view") < number(none, "mean_view"));
}

/// Writes views of the bundled session, and reads them.
fn views(file: &std::path::Path, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["--policies", "none,cwl,recency", "--budget", "8000"];
    all.extend(["--annotate", "none", "--views", file.to_str().unwrap()]);
    all.extend(arguments);
    let output = replay(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(file).unwrap();
    let lines = written.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of<'a>(views: &'a [Value], policy: &str) -> Vec<&'a Value> {
    let own = views.iter().filter(|view| view["policy"] == policy);
    own.collect()
}

fn mean_size(views: &[&Value]) -> f64 {
    let sizes = views.iter().map(|view| view["tokens"].as_f64().unwrap());
    sizes.sum::<f64>() / views.len() as f64
}

const MAKERS: [&str; 4] = ["none", "cwl", "recency", "truncated"];

#[test]
fn views_of_some_turns_are_written_as_they_are_sent() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("views.jsonl");
    let drawn = ["--turns", "6", "--run", "2", "--longest", "20000"];
    let first = views(&file, &drawn);
    let recorded = zstd::decode_all(std::fs::File::open(bundled()).unwrap()).unwrap();
    let recorded = text(&recorded);
    let recorded = recorded
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let recorded: Vec<Value> = recorded
        .filter(|one: &Value| one["role"].is_string())
        .collect();
    assert_eq!(first.len(), 6 * MAKERS.len());
    let mut repeated = 0.0;
    for (at, view) in first.iter().enumerate() {
        assert_eq!(view["policy"], MAKERS[at % MAKERS.len()], "turn by turn");
        let turn = usize::try_from(view["turn"].as_u64().unwrap()).unwrap();
        let messages = view["messages"].as_array().unwrap();
        let told = |message: &Value| (message["role"].clone(), message["content"].clone());
        assert_eq!(told(&view["answer"]), told(&recorded[turn]));
        assert_eq!(view["answer"]["role"], "assistant");
        let (tokens, history) = (view["tokens"].as_u64(), view["history"].as_u64());
        assert!(
            history > Some(8_000) && history <= Some(20_000),
            "{history:?}"
        );
        let share = |name: &str| {
            let measure = &view["measures"][name];
            (measure[0].as_f64().unwrap(), measure[1].as_f64().unwrap())
        };
        if view["policy"] == "none" {
            assert_eq!(tokens, history);
            let sent: Vec<_> = messages.iter().map(told).collect();
            let before: Vec<_> = recorded[..turn].iter().map(told).collect();
            assert_eq!(sent, before);
            for name in ["K", "L", "P"] {
                let (part, whole) = share(name);
                assert_eq!(part, whole, "{name}");
            }
            repeated += share("P").1;
            assert_eq!(view["strings"]["hidden"], Value::Array(Vec::new()));
        } else {
            assert!(tokens <= Some(8_000) && tokens < history, "{tokens:?}");
        }
    }
    assert!(repeated > 0.0, "no answer repeats a passage");
    // Two that follow each other, three times, and no turn twice.
    let turns: Vec<u64> = of(&first, "none")
        .iter()
        .map(|view| view["turn"].as_u64().unwrap())
        .collect();
    for pair in turns.chunks(2) {
        let between = usize::try_from(pair[0] + 1).unwrap()..usize::try_from(pair[1]).unwrap();
        assert!(
            !between.is_empty()
                && recorded[between]
                    .iter()
                    .all(|one| one["role"] != "assistant")
        );
    }
    let other = views(&file, &[&drawn[..], &["--seed", "7"]].concat());
    assert_ne!(of(&other, "none"), of(&first, "none"));
    assert_eq!(views(&file, &drawn), first);
}

#[test]
fn views_are_brought_to_one_size_at_the_same_turns() {
    let directory = tempfile::tempdir().unwrap();
    let (file, other) = (
        directory.path().join("a.jsonl"),
        directory.path().join("b.jsonl"),
    );
    let sent = views(&file, &["--turns", "8", "--longest", "40000"]);
    let like = ["--like", file.to_str().unwrap(), "--match-size"];
    let equal = views(&other, &like);
    let turns = |all: &[Value]| {
        let turns = all
            .iter()
            .map(|view| (view["turn"].clone(), view["block"].clone()));
        turns.collect::<Vec<_>>()
    };
    assert_eq!(turns(&sent), turns(&equal));
    assert_eq!(of(&sent, "none"), of(&equal, "none"), "nothing is evicted");
    let sizes = |all: &[Value]| MAKERS.map(|maker| mean_size(&of(all, maker)));
    let [_, least, ..] = sizes(&equal);
    for (maker, size) in MAKERS.iter().zip(sizes(&equal)).skip(1) {
        assert!(
            (size / least - 1.0).abs() < 0.1,
            "{maker}: {size} of {least}"
        );
    }
    let given = views(
        &other,
        &["--like", file.to_str().unwrap(), "--match-size", "5000"],
    );
    for (maker, size) in MAKERS.iter().zip(sizes(&given)).skip(1) {
        assert!((size / 5_000.0 - 1.0).abs() < 0.1, "{maker}: {size}");
    }
}

/// A session is cut once; whoever sends everything misses nothing, and the views are those of that point.
#[test]
fn sessions_are_cut_once_and_judged_by_their_future() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cut.jsonl");
    let cut = |more: &[&str]| {
        let ceiling = ["--policies", "none,cwl,oldest-turn", "--budget", "40000"];
        let all = [&ceiling[..], &["--annotate", "none", "--cut-points"], more];
        replay(&all.concat())
    };
    let output = cut(&["--views", file.to_str().unwrap()]);
    let table = text(&output.stdout);
    let row = |name: &str| {
        let found = table.lines().find(|line| line.starts_with(name));
        let words = found.unwrap().split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("none")[2..4], ["0.0%", "100.0%"], "{table}");
    let [pruned, missed] = [row("cwl")[2].clone(), row("oldest-turn")[13..].join(" ")];
    assert!(
        pruned.trim_end_matches('%').parse::<f64>().unwrap() > 30.0,
        "{table}"
    );
    assert!(missed.split(' ').any(|count| count == "1"), "{table}");
    assert!(table.contains(
        "1 conversations, each cut once before a request over the budget; the future of 1"
    ));
    let views = std::fs::read_to_string(&file).unwrap();
    let views: Vec<Value> = views
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(views.len(), 4, "three policies and truncation at one point");
    assert!(views.iter().all(|view| view["turn"] == views[0]["turn"]));
    assert_eq!(text(&cut(&["--seed", "1"]).stdout), table);
    let both = ["--views", file.to_str().unwrap(), "--turns", "9"];
    assert_eq!(
        cut(&both).status.code(),
        Some(2),
        "there is one turn of each"
    );
    assert_ne!(cut(&["--seed", "5"]).stdout, cut(&["--seed", "1"]).stdout);
    let several = replay(&["--budget", "40000,80000", "--cut-points"]);
    assert!(text(&several.stderr).contains("looked at under one budget"));
    let alone = replay(&["--seed", "3"]);
    assert_eq!(alone.status.code(), Some(2), "there is nothing to draw");
}

#[test]
fn an_item_has_a_story() {
    let explain = |item| {
        let mut arguments = vec!["--policies", "cwl", "--budget", "40000"];
        arguments.extend(["--annotate", "none", "--explain", item]);
        replay(&arguments)
    };
    // The session's first read, and a large one.
    let story = text(&explain("read:10").stdout);
    for words in [
        "Read:10: ",
        "pass 1 (budget): ",
        "the view had ",
        "the pass took: ",
    ] {
        assert!(story.contains(words), "{words} not in {story}");
    }
    let output = explain("Read:100000");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no item Read:100000"));
}

#[test]
fn what_cannot_be_done_is_said_in_words() {
    for (arguments, code, words) in [
        (
            &["no-such-file.jsonl"][..],
            1,
            "can't read no-such-file.jsonl",
        ),
        (&["--min-tokens", "9000000"], 1, "lower --min-tokens"),
        (&["--prices", "gold"], 1, "no prices are named \"gold\""),
        (&["--explain", "Read:1"], 1, "one policy"),
        (&["--policies", "magic"], 2, "is not one of \"repeat\""),
        (&["--budget", "100"], 2, "at least 4000"),
        (&["--ceiling", "40k"], 2, "is called --budget now"),
        (&["--floor", "ceiling"], 2, "is called `budget` now"),
        (&["--floor", "2"], 2, "at most 1"),
        (&["--think", "much"], 2, "N or N,SPREAD"),
        (&["--turns", "5"], 2, "--views <FILE>"),
        (
            &["--views", "none.jsonl", "--budget", "40k,80k"],
            1,
            "give one",
        ),
        (
            &["--views", "none.jsonl", "--longest", "50k"],
            1,
            "no session has a turn",
        ),
    ] {
        let output = replay(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_page_shows_every_policy_and_loads_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    let output = replay(&[
        "--policies",
        "none,recency,cwl",
        "--budget",
        "40000",
        "--html",
        file.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(file).unwrap();
    let data = carried(&page);
    assert_eq!(
        data["policies"],
        serde_json::json!(["none", "recency", "cwl"])
    );
    let session = &data["sessions"][0];
    assert!(session["requests"].as_u64() > Some(100));
    let passes = session["passes"][0][2].as_array().unwrap();
    assert!(!passes.is_empty(), "{session}");
    // The figures of the table, in dollars too: five for a million, as the model's price is.
    let table = text(&output.stdout);
    for (at, name) in ["none", "recency", "cwl"].iter().enumerate() {
        let figure = |figure: &str| {
            let names = data["figures"].as_array().unwrap();
            let place = names.iter().position(|name| name == figure).unwrap();
            data["total"][at][place].as_f64().unwrap()
        };
        let line = table
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let cells: Vec<&str> = line.unwrap().split_whitespace().collect();
        assert_eq!(cells[1], figure("requests").to_string());
        assert_eq!(cells[11], format!("{:.2}", figure("cost") / 1e6));
        assert_eq!(cells[12], format!("{:.4}", figure("retention_visible")));
        assert!((figure("usd") - figure("cost") * 5e-6).abs() < 1e-4);
    }
}

/// The data of a page, which must let its browser load nothing from elsewhere.
fn carried(page: &str) -> Value {
    assert!(page.contains("content=\"default-src 'none'; script-src 'unsafe-inline' data:"));
    let (before, licences) = page.split_once("id=\"licences\">").unwrap();
    assert!(
        !before.contains("://"),
        "something is loaded from elsewhere"
    );
    assert_eq!(licences.matches("</script>").count(), 1);
    let (_, rest) = before.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_ceiling_and_a_floor_are_recommended_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("surface.json");
    let page = directory.path().join("surface.html");
    let output = run(
        "tune",
        &[
            "--budgets",
            "60000,30000",
            "--floors",
            "0.6,auto,0.6",
            "--json",
            file.to_str().unwrap(),
            "--html",
            page.to_str().unwrap(),
        ],
    );
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "", "no terminal, no progress");
    let page = carried(&std::fs::read_to_string(page).unwrap());
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (name, value) in json.as_object().unwrap() {
        // The time of a policy is that of the same run, and so all are equal.
        assert_eq!(&page[name], value, "{name}");
    }
    assert!(!page["front"].as_array().unwrap().is_empty());
    assert!(shown.ends_with(page["choice"].as_str().unwrap()));
    let settings = json["settings"].as_array().unwrap();
    let pairs: Vec<(u64, String)> = settings
        .iter()
        .map(|one| {
            let ceiling = one["budget"].as_u64().unwrap();
            (ceiling, one["floor"].to_string())
        })
        .collect();
    let expect = [
        (30_000, "0.6"),
        (30_000, "\"auto\""),
        (60_000, "0.6"),
        (60_000, "\"auto\""),
    ];
    assert_eq!(
        pairs,
        expect.map(|(ceiling, floor)| (ceiling, floor.to_owned()))
    );
    for one in settings {
        assert!(one["passes"].as_u64() > Some(0) && one["cost"].as_f64() > Some(0.0));
    }
    let taken = &json["recommended"];
    let lines = format!(
        "[budget]\ntokens = {}\nfloor = {}\n",
        taken["budget"], taken["floor"]
    );
    assert!(shown.ends_with(&lines), "{lines} not in {shown}");
    assert!(shown.contains("it is the cheapest whose K is within 0.005"));
    let config = directory.path().join("pasted.toml");
    std::fs::write(&config, lines).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let checked = check.arg("check").arg(&config).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stdout));
}

#[test]
fn tune_says_what_it_cannot_do() {
    for (arguments, code, words) in [
        (&["--min-tokens", "9000000"][..], 1, "lower --min-tokens"),
        (&["--budgets", "100"], 2, "at least 4000"),
        (&["--ceilings", "40k"], 2, "--budgets"),
        (&["--floors", "0.5,low"], 2, "a fraction greater than 0"),
    ] {
        let output = run("tune", arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
    // Nothing comes near this ceiling.
    let output = run("tune", &["--budgets", "900000", "--floors", "auto"]);
    assert!(text(&output.stdout).contains("stay with the defaults"));
}
