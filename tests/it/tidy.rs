//! The tree's own rules, held by reading it: who may import whom, what the pure middle may name,
//! how files open and how long they get. Judges text, so that it needs no compiler.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of a crate in layers: each may import lower ones only, and its own. Who may import which crate is
/// said by their manifests, and held by cargo.
const LAYERS: [(&str, &[&[&str]]); 3] = [
    (
        "crates/core/src",
        &[
            &["clip"],
            &["session"],
            &["policy"],
            &["commit", "intercept"],
            &["render"],
            &["turn"],
        ],
    ),
    (
        "crates/proxy/src",
        &[&["upstream"], &["record"], &["history"], &["pipeline"]],
    ),
    ("src", &[&["config"], &["cli"]]),
];

/// Crates that do no IO, know no clock and never wait.
const PURE: [&str; 4] = [
    "crates/model/src",
    "crates/wire/src",
    "crates/tokens/src",
    "crates/core/src",
];

/// What the pure crates may not name.
const IMPURE: [&str; 11] = [
    "tokio",
    "axum",
    "reqwest",
    "hyper",
    "sled",
    "std::fs",
    "std::net",
    "std::env",
    "Instant",
    "SystemTime",
    "getrandom",
];

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 80;

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// The module at the top of a crate's sources; none for the crate's own roots.
    fn module(&self, sources: &str) -> Option<String> {
        let below = self.path.strip_prefix(root().join(sources)).ok()?;
        let first = below.components().next()?.as_os_str().to_str()?;
        let name = first.trim_end_matches(".rs");
        (!matches!(name, "lib" | "main")).then(|| name.to_owned())
    }

    /// The text without comments and without what only tests see.
    fn shipped(&self) -> String {
        let code = self.text.lines().map(|line| match line.find("//") {
            // `//` inside a string is cut too, which only hides text from these checks.
            Some(at) => &line[..at],
            None => line,
        });
        let code: Vec<&str> = code.collect();
        let tests = code.iter().position(|line| line.trim() == "#[cfg(test)]");
        let inline = tests.filter(|at| {
            let next = code.get(at + 1).map_or("", |line| line.trim());
            next.starts_with("mod ") && next.ends_with('{')
        });
        code[..inline.unwrap_or(code.len())].join("\n")
    }

    /// Whether the file is compiled for tests only.
    fn is_test(&self) -> bool {
        let parts = self.path.strip_prefix(root()).unwrap().components();
        let mut names = parts.map(|part| part.as_os_str().to_string_lossy().into_owned());
        names.any(|name| matches!(name.as_str(), "tests" | "tests.rs" | "laws" | "testing.rs"))
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

fn walk(folder: &Path, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(Source { path, text });
        }
    }
}

fn everywhere() -> Vec<Source> {
    ["src", "crates", "tests", "benches", "fuzz", "scripted/src"]
        .into_iter()
        .flat_map(sources)
        .collect()
}

/// Fails with one line a breach.
#[track_caller]
fn none(breaches: Vec<String>) {
    assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
}

/// The names that stand behind `crate::` in a text, groups in braces taken apart.
fn imported(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, found) in text.match_indices("crate::") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &text[at + found.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(heads(group)),
            None => names.extend(head(rest)),
        }
    }
    names
}

/// The first names of a group's members, up to its closing brace.
fn heads(group: &str) -> Vec<String> {
    let (mut depth, mut member, mut members) = (0, String::new(), Vec::new());
    for next in group.chars() {
        match next {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(std::mem::take(&mut member)),
            _ => {}
        }
        if !(next == ',' && depth == 0) {
            member.push(next);
        }
    }
    members.push(member);
    members
        .iter()
        .filter_map(|member| head(member.trim()))
        .collect()
}

fn head(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|next| next.is_alphanumeric() || *next == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

#[test]
fn imports_are_read_right() {
    let names = |text: &str| imported(text).into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::model::{Mark, Item};"), ["model"]);
    assert_eq!(
        names("use crate::{model::Mark, tokens, store::{a, b}};"),
        ["model", "store", "tokens"]
    );
    assert_eq!(names("fn f(x: crate::session::View) {}"), ["session"]);
    assert_eq!(names("use mycrate::model; pub(crate) fn f() {}"), [""; 0]);
}

#[test]
fn modules_import_lower_layers_only() {
    let mut breaches = Vec::new();
    for (folder, layers) in LAYERS {
        let layer = |module: &str| layers.iter().position(|names| names.contains(&module));
        for source in sources(folder).iter().filter(|source| !source.is_test()) {
            let Some(module) = source.module(folder) else {
                continue;
            };
            let file = source.path.display();
            let Some(own) = layer(&module) else {
                breaches.push(format!("{file}: {module} has no layer"));
                continue;
            };
            let others = imported(&source.shipped()).into_iter();
            for other in others.filter(|other| *other != module) {
                if layer(&other).is_some_and(|theirs| theirs >= own) {
                    breaches.push(format!("{file}: {module} imports {other}"));
                }
            }
        }
    }
    none(breaches);
}

#[test]
fn the_middle_is_pure() {
    let mut breaches = Vec::new();
    let pure = PURE.into_iter().flat_map(sources);
    for source in pure.filter(|source| !source.is_test()) {
        let text = source.shipped();
        for name in IMPURE.iter().filter(|name| names(&text, name)) {
            breaches.push(format!("{}: names {name}", source.path.display()));
        }
    }
    none(breaches);
}

/// Whether a text has a name as a word of its own.
fn names(text: &str, name: &str) -> bool {
    let part = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric() || next == '_');
    text.match_indices(name).any(|(at, _)| {
        !part(text[..at].chars().next_back()) && !part(text[at + name.len()..].chars().next())
    })
}

#[test]
fn policies_do_not_know_each_other() {
    // What they share is not a policy: the question, their order and the loop that runs it, the working state, the
    // plan, what is protected, which thoughts a provider does without, where a pass is expected to cut, and which
    // results are new.
    let shared = [
        "mod", "ask", "cut", "fresh", "ladder", "order", "run", "work", "pass", "plan", "protect",
        "thoughts",
    ];
    let name = |source: &Source| {
        source
            .path
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned()
    };
    let all: Vec<Source> = sources("crates/core/src/policy")
        .into_iter()
        .filter(|source| !source.is_test() && !shared.contains(&name(source).as_str()))
        .collect();
    // Steps of `cwl` on whole episodes go on with the finer levels of what they free, and leave lines of texts that
    // tombstones merge. The levels ask which strings a result leaves behind. What agents say is unchanged is a matter of
    // `repeat`.
    let parts = [
        ("episode_steps", "levels"),
        ("episode_steps", "merge"),
        ("levels", "lexicon"),
        ("repeat", "unchanged"),
    ];
    let mut breaches = Vec::new();
    for source in &all {
        for other in all.iter().map(name).filter(|other| *other != name(source)) {
            let own = name(source);
            let part = parts.contains(&(own.as_str(), other.as_str()));
            if !part && names(&source.shipped(), &other) {
                breaches.push(format!("{} knows {other}", source.path.display()));
            }
        }
    }
    none(breaches);
}

#[test]
fn every_file_says_what_it_owns() {
    let all = everywhere();
    let silent = all.iter().filter(|source| {
        let first = source.text.lines().next().unwrap_or_default();
        !first.starts_with("//! ")
    });
    none(
        silent
            .map(|source| format!("{}: open it with //!", source.path.display()))
            .collect(),
    );
}

#[test]
fn no_file_is_too_long() {
    let all = everywhere();
    let long = all.iter().filter_map(|source| {
        let lines = source.text.lines().count();
        (lines > FILE_LINES).then(|| format!("{}: {lines} lines", source.path.display()))
    });
    none(long.collect());
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["todo!", "unimplemented!", "FIXME", "TODO"];
    let own = root().join("tests/it/tidy.rs");
    let mut breaches = Vec::new();
    for source in everywhere().iter().filter(|source| source.path != own) {
        for (at, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(**word)) {
                breaches.push(format!("{}:{}: {word}", source.path.display(), at + 1));
            }
        }
    }
    none(breaches);
}

/// The functions of a text by name, line and length: from the line that names it to the line that
/// closes at the same indentation, which the formatter guarantees.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else {
            continue;
        };
        let own = indent(line);
        let ends = |line: &&str| indent(line) == own && line.trim_end().ends_with(['}', ';']);
        let Some(length) = lines[at..].iter().position(ends) else {
            continue;
        };
        found.push((name, at + 1, length + 1));
    }
    found
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    for word in ["pub", "(crate)", "(super)", "const", "async", "unsafe"] {
        rest = rest.strip_prefix(word).unwrap_or(rest).trim_start();
    }
    head(rest.strip_prefix("fn ")?)
}

#[test]
fn functions_are_measured_right() {
    let text = "impl X {\n    pub(super) async fn f(\n        a: u8,\n    ) -> u8 {\n        1\n    }\n\n    fn g();\n}\n";
    assert_eq!(
        functions(text),
        [("f".to_owned(), 2, 5), ("g".to_owned(), 8, 1)]
    );
}

#[test]
fn no_function_is_too_long() {
    // A test that is a table may be as long as its table.
    let mut breaches = Vec::new();
    for source in everywhere().iter().filter(|source| !source.is_test()) {
        for (name, line, length) in functions(&source.text) {
            if length > FUNCTION_LINES {
                breaches.push(format!(
                    "{}:{line}: {name} has {length} lines",
                    source.path.display()
                ));
            }
        }
    }
    none(breaches);
}
