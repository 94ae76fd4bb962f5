//! Realistic results of each shape, and what a clip of that shape must keep of them.

use std::fmt::Write as _;

use plimsoll_model::ResultShape;

use crate::{has, shaped};

#[test]
fn a_search_keeps_every_file_and_counts_the_rest() {
    let mut text = String::new();
    for file in 0..12 {
        for hit in 0..30 {
            let _ = writeln!(
                text,
                "src/part_{file}/mod.rs:{}:    let value = compute_{hit}(input);",
                hit * 7 + 1
            );
        }
    }
    let shown = shaped(&text, 700, ResultShape::Search);
    for file in 0..12 {
        has(
            &shown,
            &[
                &format!("src/part_{file}/mod.rs:1:"),
                &format!(" more matches in src/part_{file}/mod.rs]"),
            ],
        );
    }
    has(&shown, &[" of 360 matches shown]"]);
    let shown = shaped(&text, 150, ResultShape::Search);
    has(&shown, &[" files]"]);
}

#[test]
fn a_search_with_context_or_headings_keeps_its_matches() {
    let (mut context, mut headed) = (String::new(), String::new());
    for file in 0..9 {
        let _ = writeln!(headed, "pkg/f{file}.go");
        for hit in 1..20 {
            let at = hit * 10;
            let _ = writeln!(
                context,
                "pkg/f{file}.go-{}-\tbefore\npkg/f{file}.go:{at}:\thit()\npkg/f{file}.go-{}-\n--",
                at - 1,
                at + 1
            );
            let _ = writeln!(
                headed,
                "{at}:\tresult := hit(one, two)\n{}-\tif result",
                at + 1
            );
        }
        headed.push('\n');
    }
    let shown = shaped(&context, 600, ResultShape::Search);
    has(
        &shown,
        &["pkg/f8.go:10:\thit()", " of 171 matches shown", " lines)]"],
    );
    let shown = shaped(&headed, 500, ResultShape::Search);
    has(
        &shown,
        &["pkg/f8.go\n10:\tresult", " more matches in pkg/f8.go"],
    );
}

#[test]
fn findings_of_a_linter_keep_their_total() {
    let mut text = String::new();
    for n in 0..300 {
        let _ = writeln!(
            text,
            "app/views_{}.py:{n}: error: Incompatible types in assignment  [assignment]",
            n % 4
        );
    }
    text.push_str("Found 300 errors in 4 files (checked 90 source files)\n");
    let shown = shaped(&text, 300, ResultShape::Search);
    has(
        &shown,
        &["Found 300 errors in 4 files", "app/views_3.py:3: error"],
    );
}

fn build_log() -> String {
    let mut text = String::from("$ cargo test\n");
    for n in 0..400 {
        let _ = writeln!(text, "   Compiling crate-{n} v0.{n}.0 (error-free)");
    }
    text.push_str("warning: unused variable: `x`\n  --> src/lib.rs:3:9\n\n");
    text.push_str("error[E0308]: mismatched types\n  --> src/lib.rs:9:5\n   |\n9  |     x\n   |     ^ expected `u32`\n\n");
    for n in 0..400 {
        let _ = writeln!(text, "test part::error_{n} ... ok");
    }
    text.push_str("Traceback (most recent call last):\n  File \"run.py\", line 3, in <module>\n    main()\nValueError: no such port\n");
    for n in 0..200 {
        let _ = writeln!(text, "downloading package {n} of 200");
    }
    text.push_str("test result: FAILED. 399 passed; 1 failed; 0 ignored\nerror: could not compile `plim`\nExit code: 101\n");
    text
}

#[test]
fn a_log_keeps_its_end_its_errors_and_its_traceback() {
    for size in [300, 600, 2000] {
        let shown = shaped(&build_log(), size, ResultShape::Log);
        has(
            &shown,
            &[
                "error[E0308]: mismatched types\n  --> src/lib.rs:9:5",
                "Traceback (most recent call last):\n  File \"run.py\", line 3, in <module>\n    main()\nValueError: no such port",
                "test result: FAILED. 399 passed",
                "error: could not compile `plim`\nExit code: 101\n",
                "warning: unused variable",
                " lines left out]",
            ],
        );
    }
}

#[test]
fn a_log_of_errors_alone_keeps_the_first_and_the_last() {
    let mut text = String::new();
    for n in 0..3000 {
        let _ = writeln!(text, "error: thing {n} is broken in a long and tedious way");
    }
    text.push_str("exited with 2\n");
    let shown = shaped(&text, 400, ResultShape::Log);
    has(
        &shown,
        &["error: thing 0 ", "error: thing 2999 ", "exited with 2"],
    );
}

#[test]
fn json_keeps_its_first_and_last_items() {
    let row =
        |n: usize| format!("{{\"id\": {n}, \"name\": \"a, [row]\", \"tags\": [\"x\", \"y\"]}}");
    let rows: Vec<String> = (0..250).map(row).collect();
    let minified = format!("[{}]", rows.join(","));
    let object = format!(
        "{{\"total\": 250, \"rows\": [\n  {}\n], \"next\": null}}\n",
        rows.join(",\n  ")
    );
    let by_lines = rows.join("\n");
    for text in [&minified, &object, &by_lines] {
        let shown = shaped(text, 600, ResultShape::Json);
        has(
            &shown,
            &[
                "{\"id\": 0,",
                "{\"id\": 249,",
                " of 250 items left out]",
                " of 250 items shown]",
            ],
        );
    }
    let shown = shaped(&object, 600, ResultShape::Json);
    has(&shown, &["\"total\": 250", "\"next\": null"]);
}

#[test]
fn json_with_items_over_the_limit_is_plain() {
    let item = format!("{{\"text\": \"{}\"}}", "lorem ipsum ".repeat(400));
    let text = format!("[{item},{item},{item},{item},{item}]");
    let shown = shaped(&text, 300, ResultShape::Plain);
    has(&shown, &[" bytes left out]"]);
}

#[test]
fn a_search_of_one_file_is_no_numbered_file() {
    let mut text = String::new();
    for hit in 0..12 {
        let at = hit * 100 + 1;
        let _ = writeln!(text, "{at}:\tlet handler = use_handler(one);");
        for near in 1..12 {
            let _ = writeln!(text, "{}-\t\tbody of the handler {near}", at + near);
        }
        text.push_str("--\n");
    }
    let shown = shaped(&text, 300, ResultShape::Search);
    has(&shown, &["1:\tlet handler", " of 156 lines shown"]);
}

#[test]
fn tests_that_all_pass_are_a_log() {
    let mut text = String::new();
    for n in 0..200 {
        let _ = write!(
            text,
            "=== RUN   TestError{n}\n    x_test.go:9: Phase {n} of the test\n--- PASS: TestError{n} (0.0s)\n"
        );
    }
    text.push_str("PASS\nok  \texample.com/pkg\t0.1s\n");
    let shown = shaped(&text, 300, ResultShape::Log);
    has(&shown, &["ok  \texample.com/pkg\t0.1s"]);
}

#[test]
fn plain_text_keeps_head_and_tail() {
    let text: String = (0..900)
        .map(|n| format!("This is sentence number {n}, and it says nothing.\n"))
        .collect();
    let shown = shaped(&text, 600, ResultShape::Plain);
    has(&shown, &["sentence number 0,", "sentence number 899,"]);
    assert_eq!(shown.matches("left out]").count(), 1);
    let numbered: String = (1..900)
        .map(|n| format!("{n:6}\tthrow new Error('x');\n"))
        .collect();
    shaped(&numbered, 600, ResultShape::Plain);
}
