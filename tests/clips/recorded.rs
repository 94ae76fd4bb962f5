//! The large results of recorded sessions, clipped at several sizes: of those that come with the repository
//! always. Owns where they are found and which of them are taken.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use plimsoll_lab::trace;
use plimsoll_model::{ResultShape, Role};
use serde_json::Value;

use crate::reader::tokens;
use crate::{checked, keeps_what_is_vital, limits};

/// A result of more bytes than this is large.
const LARGE: usize = 4_000;
/// About so many results of sessions beside the repository are clipped by default.
const FEW: usize = 120;
/// At least so many the sessions have that come with it.
const OWN: usize = 30;
/// The limits, in tokens, at which each is clipped.
const SIZES: [u32; 4] = [150, 500, 1_000, 4_000];

/// The text of a tool's message; its parts joined where it has several.
fn text_of(raw: &[u8]) -> String {
    let message: Value = serde_json::from_slice(raw).unwrap();
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// All different large results of the recorded sessions in a place, each with its session and the place of its message
/// there.
fn large_results(root: &Path) -> Vec<(String, String)> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for file in trace::files(&[root.to_owned()]).unwrap().files {
        let trace = trace::read(&file).unwrap();
        for (at, message) in trace.messages.iter().enumerate() {
            // JSON is never shorter than the text it holds.
            if message.role != Role::Tool || message.raw.len() <= LARGE {
                continue;
            }
            let text = text_of(&message.raw);
            if text.len() > LARGE && seen.insert(text.clone()) {
                out.push((format!("{}:{at}", trace.name), text));
            }
        }
    }
    out
}

/// All of the sessions that come with the repository, and a spread of those beside it if they are there.
fn taken() -> Vec<(String, String)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut taken = large_results(&here.join("tests/fixtures/sessions"));
    assert!(taken.len() >= OWN, "only {} large results", taken.len());
    let beside = here.join("../shared/traces");
    if !beside.is_dir() {
        println!(
            "skipped: all recorded sessions but three, because there are none in {}",
            beside.display()
        );
        return taken;
    }
    let results = large_results(&beside);
    let all = std::env::var("PLIMSOLL_CLIPS").is_ok_and(|wanted| wanted == "all");
    let step = if all { 1 } else { results.len().div_ceil(FEW) };
    println!("of {} large results every {step}.", results.len());
    taken.extend(results.into_iter().step_by(step.max(1)));
    taken
}

#[test]
fn recorded_results_are_clipped_soundly() {
    let results = taken();
    // How full the clips of each shape are, in percent of their limit.
    let mut fills: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (id, text) in &results {
        for size in SIZES {
            let Some((made, shown)) = checked(text, &limits(size)) else {
                continue;
            };
            keeps_what_is_vital(text, size, &made, &shown);
            let exit = text
                .lines()
                .find(|line| line.starts_with("Exit code ") || line.starts_with("<returncode>"));
            if let Some(exit) = exit {
                assert!(
                    shown.contains(exit) || made.shape == ResultShape::Json,
                    "{id}: {exit}"
                );
            }
            let fill = fills.entry(format!("{:?}", made.shape)).or_default();
            fill.push(tokens(&shown) * 100 / size);
        }
    }
    println!("{} large results clipped", results.len());
    for (shape, mut fill) in fills {
        fill.sort_unstable();
        println!(
            "{shape}: {} clips fill {} % to {} %, {} % mostly",
            fill.len(),
            fill[0],
            fill[fill.len() - 1],
            fill[fill.len() / 2]
        );
    }
}
