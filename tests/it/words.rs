//! The words of the README and of the documents: how many there are, how long a sentence gets, and whether links lead
//! anywhere. Judges text, runs nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What a newcomer reads in five minutes.
const README_WORDS: usize = 1_100;
/// All documents, those that tests write included, as `wc -w` counts.
const DOCS_WORDS: usize = 30_000;
/// The longest sentence outside of tables and code.
const SENTENCE_WORDS: usize = 35;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The documents.
pub fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root().join("docs"), &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

/// How many words a text has. A bar of a table and a dash are none.
fn count(text: &str) -> usize {
    let words = text.split_whitespace();
    words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

/// The paragraphs, headings and items of lists, each in one line. Tables, code, comments and pictures are left out.
fn paragraphs(text: &str) -> Vec<String> {
    let (mut all, mut now, mut code) = (Vec::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        let fence = line.starts_with("```");
        code ^= fence;
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = line.starts_with("- ") || (item.len() < line.len() && item.starts_with(". "));
        let skipped = fence || code || line.is_empty() || line.starts_with(['|', '#', '!', '<']);
        if skipped || item {
            all.push(std::mem::take(&mut now));
        }
        if !skipped {
            now.push_str(line);
            now.push(' ');
        }
    }
    all.push(now);
    all.retain(|paragraph| !paragraph.is_empty());
    all
}

/// A paragraph without what no reader reads as words: spans of code count as one, and so does a link's address as none.
fn spoken(paragraph: &str) -> String {
    let mut text = String::new();
    for (at, part) in paragraph.split('`').enumerate() {
        text.push_str(if at % 2 == 0 { part } else { "code" });
    }
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// The sentences of a paragraph. A colon or a semicolon ends none.
fn sentences(paragraph: &str) -> Vec<String> {
    let (mut all, mut now) = (Vec::new(), Vec::new());
    let text = spoken(paragraph);
    for word in text.split_whitespace() {
        now.push(word);
        if word
            .trim_end_matches(['*', ')', '"', ']'])
            .ends_with(['.', '?', '!'])
        {
            all.push(now.join(" "));
            now.clear();
        }
    }
    all.push(now.join(" "));
    all
}

#[test]
fn sentences_are_told_apart() {
    let text = "One `a b. c` two [three](four five).\nSix\n\n- seven\n- eight? Nine\n\n| ten |\n";
    let found: Vec<String> = paragraphs(text)
        .iter()
        .flat_map(|text| sentences(text))
        .collect();
    let found: Vec<&String> = found.iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(
        found,
        ["One code two [three.", "Six", "- seven", "- eight?", "Nine"]
    );
}

#[test]
fn the_readme_and_the_documents_are_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let words = readme.split_whitespace().count();
    assert!(words <= README_WORDS, "README.md has {words} words");
    let counts = pages().into_iter().map(|page| {
        let text = fs::read_to_string(&page).unwrap();
        (text.split_whitespace().count(), page)
    });
    let counts: Vec<(usize, PathBuf)> = counts.collect();
    let all: usize = counts.iter().map(|(words, _)| words).sum();
    assert!(all <= DOCS_WORDS, "{all} words in {counts:#?}");
}

#[test]
fn no_sentence_has_to_be_read_twice() {
    let mut long = Vec::new();
    for page in pages().into_iter().chain([root().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        for sentence in paragraphs(&text).iter().flat_map(|text| sentences(text)) {
            let words = count(&sentence);
            if words > SENTENCE_WORDS {
                long.push(format!("{}: {words} words: {sentence}", page.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// What GitHub makes of the headings of a page.
pub fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The addresses of the links in a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1);
    ends.filter_map(|rest| rest.split_once(')').map(|(address, _)| address))
}

#[test]
fn links_lead_to_what_is_there() {
    let mut seen = 0;
    let others = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    let others = others.map(|name| root().join(name));
    for page in pages().into_iter().chain(others) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.contains(anchor), "{}: {link}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

/// Code, settings and deployments name documents by their place.
#[test]
fn documents_that_others_name_are_there() {
    let mut files = Vec::new();
    for folder in [
        "src",
        "crates",
        "config",
        "deploy",
        "packaging",
        "tests",
        "console",
    ] {
        texts(&root().join(folder), &mut files);
    }
    files.extend(
        ["justfile", ".ci/run", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)),
    );
    let mut seen = 0;
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        for (at, _) in text.match_indices("docs/") {
            let before = text[..at].chars().next_back();
            let outside = before.is_some_and(|c| c.is_alphanumeric() || "/.-_".contains(c));
            let end = text[at..].find(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)));
            let name = text[at..].split_at(end.unwrap_or(text.len() - at)).0;
            let Some((name, _)) = name.split_once(".md") else {
                continue;
            };
            if !outside {
                let page = root().join(format!("{name}.md"));
                assert!(page.exists(), "{}: {name}.md", file.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Files of a folder, without what is installed there.
fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["node_modules", "fixtures"].contains(&name.as_str()) {
            texts(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}
