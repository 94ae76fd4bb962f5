//! Reading calls, and what is taken out of documents: ranges, searches, what fits.

use proptest::prelude::*;

use super::*;

/// A stand-in for a tokeniser: a token for each four bytes and each new line.
fn count(text: &str) -> u32 {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count();
    u32::try_from(text.len().div_ceil(4) + lines).unwrap()
}

fn ask(lines: Option<(usize, usize)>, search: Option<&str>) -> RecallAsk {
    RecallAsk {
        id: "read:3".to_owned(),
        lines,
        search: search.map(str::to_owned),
    }
}

fn poem(lines: usize) -> String {
    (1..=lines)
        .map(|n| format!("line {n} of the poem\n"))
        .collect()
}

#[test]
fn arguments_are_read_or_refused_with_what_to_send() {
    let cases: [(&str, Result<RecallAsk, &str>); 13] = [
        (r#"{"id":" read:3 ","mood":1}"#, Ok(ask(None, None))),
        (
            r#"{"id":"read:3","lines":null,"search":""}"#,
            Ok(ask(None, None)),
        ),
        (
            r#"{"id":"read:3","lines":"10-40"}"#,
            Ok(ask(Some((10, 40)), None)),
        ),
        (
            r#"{"id":"read:3","lines":" 7 "}"#,
            Ok(ask(Some((7, 7)), None)),
        ),
        (
            r#"{"id":"read:3","lines":"7 -"}"#,
            Ok(ask(Some((7, usize::MAX)), None)),
        ),
        (
            r#"{"id":"read:3","search":" x "}"#,
            Ok(ask(None, Some(" x "))),
        ),
        (
            r#"{"id":"read:3","lines":"0-4"}"#,
            Err("give lines as a range"),
        ),
        (
            r#"{"id":"read:3","lines":"9-4"}"#,
            Err("give lines as a range"),
        ),
        (
            r#"{"id":"read:3","lines":"all"}"#,
            Err("give lines as a range"),
        ),
        (r#"{"id":"read:3","lines":4}"#, Err("send lines as text")),
        (r#"{"id":7}"#, Err("send id as text")),
        ("{}", Err("give the id that a line names")),
        ("nonsense", Err("send the arguments as a JSON object")),
    ];
    for (arguments, want) in cases {
        match (RecallAsk::read(arguments), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{arguments}"),
            (Err(got), Err(want)) => assert!(got.starts_with(want), "{arguments}: {got}"),
            (got, want) => panic!("{arguments}: {got:?}, not {want:?}"),
        }
    }
}

/// What is taken of a poem of 50 lines: how its text begins, and what is said of it.
#[track_caller]
fn check(ask: &RecallAsk, limit: u32, begins: &str, said: &str) {
    let part = take(&poem(50), ask, limit, &count).unwrap();
    assert!(part.text.starts_with(begins), "{}", part.text);
    assert_eq!(part.said, said);
}

#[test]
fn each_part_says_what_it_is_and_how_to_get_the_rest() {
    check(&ask(None, None), 1000, "line 1 of", "50 lines");
    check(&ask(Some((1, 50)), None), 1000, "line 1 of", "50 lines");
    check(&ask(Some((1, 900)), None), 1000, "line 1 of", "50 lines");
    check(
        &ask(Some((10, 12)), None),
        1000,
        "line 10 of",
        "lines 10-12 of 50",
    );
    check(
        &ask(Some((50, 50)), None),
        1000,
        "line 50 of",
        "lines 50 of 50",
    );
    check(
        &ask(Some((10, 30)), None),
        40,
        "line 10 of",
        "lines 10-15 of 50; no more fits: ask for lines \"16-30\"",
    );
    check(
        &ask(None, None),
        144,
        "line 1 of",
        "lines 1-13 and 45-50 of 50; no more fits: ask for lines \"14-44\", or search",
    );
    check(
        &ask(None, Some("line 9 ")),
        1000,
        "7- line 7 of the poem\n8- line 8 of the poem\n9: line 9 of the poem\n10- ",
        "1 of 1 lines with \"line 9 \", of 50",
    );
    check(
        &ask(None, Some("LINE 4")),
        100,
        "2- line 2 of the poem\n3- line 3 of the poem\n4: line 4 of the poem\n5- ",
        "6 of 11 lines with \"LINE 4\", of 50; no more fits: search on in lines \"45-\"",
    );
    check(
        &ask(Some((40, 90)), Some("line 4")),
        1000,
        "40: line 40 of the poem\n41: line 41",
        "10 of 10 lines with \"line 4\", of 50",
    );
    let part = take(&poem(50), &ask(None, None), 144, &count).unwrap();
    assert!(
        part.text
            .contains("line 13 of the poem\n[... 14-44 left out ...]\nline 45 of")
    );
}

#[test]
fn matches_far_apart_are_kept_apart() {
    let part = take(&poem(50), &ask(None, Some("9 of")), 1000, &count).unwrap();
    let marks: Vec<&str> = part
        .text
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let want = [
        "7-", "8-", "9:", "10-", "11-", "--", "17-", "18-", "19:", "20-", "21-", "--",
    ];
    assert_eq!(marks[..12], want);
}

#[test]
fn what_is_not_there_is_said() {
    let miss = |ask: &RecallAsk, limit| take(&poem(50), ask, limit, &count).unwrap_err();
    let nothing = |text: &str| NoExcerpt::Nothing(text.to_owned());
    let asked = ask(Some((51, 60)), None);
    assert_eq!(miss(&asked, 100), nothing("read:3 has 50 lines"));
    let asked = ask(Some((2, 9)), Some("prose"));
    let want = "no line of read:3 has \"prose\": it has 50 lines, 2-9 were searched";
    assert_eq!(miss(&asked, 100), nothing(want));
    assert_eq!(miss(&ask(None, None), 3), NoExcerpt::NoRoom);
    assert_eq!(miss(&ask(None, Some("poem")), 3), NoExcerpt::NoRoom);
}

#[test]
fn one_endless_line_is_cut_in_itself_and_searched_in_itself() {
    let line = format!("{}needle{}", "\u{e4}b ".repeat(4000), " cd".repeat(4000));
    let part = take(&line, &ask(None, None), 100, &count).unwrap();
    assert!(line.starts_with(&part.text) && part.text.len() > 300);
    assert!(part.said.starts_with("the first "), "{}", part.said);
    assert!(
        part.said
            .ends_with("of line 1 of 1; no more fits: search for what you need of it")
    );
    let part = take(&line, &ask(None, Some("needle")), 150, &count).unwrap();
    assert!(part.text.starts_with("1: ...") && part.text.ends_with("...\n"));
    assert!(part.text.contains("b needle cd"), "{}", part.text);
    let nothing = take("", &ask(None, None), 100, &count).unwrap();
    assert_eq!(
        (nothing.whole, nothing.said.as_str()),
        (true, "nothing was in it")
    );
}

fn document() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        8 => "[a-c\u{e4} ]{0,12}",
        1 => "[a-c\u{1f600}]{400,900}",
    ];
    let end = prop::sample::select(vec!["\n", "\r\n"]);
    (prop::collection::vec((line, end), 0..60), any::<bool>()).prop_map(|(lines, open)| {
        let text: String = lines
            .iter()
            .map(|(line, end)| format!("{line}{end}"))
            .collect();
        let cut = usize::from(open && !text.is_empty());
        text[..text.len() - cut].to_owned()
    })
}

proptest! {
    #[test]
    fn parts_fit_and_change_no_byte(
        document in document(),
        lines in prop::option::of((1_usize..70, 0_usize..70)),
        search in prop::option::of("[a-cA]{1,3}"),
        limit in 30_u32..600,
    ) {
        let lines = lines.map(|(first, more)| (first, first + more));
        let asked = ask(lines, search.as_deref());
        let Ok(part) = take(&document, &asked, limit, &count) else {
            return Ok(());
        };
        prop_assert!(count(&part.text) <= limit, "{} of {limit}", count(&part.text));
        prop_assert_eq!(part.whole, part.text == document && search.is_none());
        let all: Vec<&str> = document.split_inclusive('\n').collect();
        if search.is_some() {
            let mut last = 0;
            for line in part.text.lines().filter(|line| *line != "--") {
                let at = line.find([':', '-']).unwrap();
                let number: usize = line[..at].parse().unwrap();
                prop_assert!(number > last, "{}", part.text);
                last = number;
                let own = all[number - 1].trim_end_matches(['\n', '\r']);
                let shown = line[at + 2..].trim_matches('.');
                prop_assert!(own.contains(shown), "{own:?} has no {shown:?}");
            }
        } else if lines.is_some() {
            prop_assert!(document.contains(&part.text));
        } else if let Some((head, tail)) = part.text.split_once("[... ") {
            let (_, tail) = tail.split_once("left out ...]\n").unwrap();
            prop_assert!(document.starts_with(head) && document.ends_with(tail));
            let kept = head.split_inclusive('\n').count() + tail.split_inclusive('\n').count();
            prop_assert!(kept < all.len());
        } else {
            prop_assert!(document.starts_with(&part.text));
        }
    }
}
